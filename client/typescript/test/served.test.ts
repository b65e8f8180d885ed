/** A registry from the server: what it can turn off and down, and what ends sending. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Telemetry, type Options } from "../src/client.js";
import { MemoryStore, type Limit } from "../src/device/state.js";
import type { Sheet } from "../src/sheet.js";
import { WIRE } from "./vectors.js";

const DAY = 86_400_000;
const START = Date.parse("2026-11-21T10:00:00Z");
const ON: Limit = { sample: "1", until: null };
const ALL = Object.fromEntries(Object.keys(WIRE.metrics).map((id) => [id, ON]));
const { oue: _, ...WITHOUT } = ALL;
const warnings: unknown[] = [];
console.warn = (...words) => warnings.push(words.join(" "));

class Lasting extends MemoryStore {
  override readonly lasts = true;
}

const pair = await crypto.subtle.generateKey("Ed25519", true, ["sign", "verify"]);
const base64 = (bytes: ArrayBuffer): string => btoa(String.fromCharCode(...new Uint8Array(bytes)));
const KEY = base64(await crypto.subtle.exportKey("raw", pair.publicKey));

/** Write the text of a restriction. */
function textOf(metrics: { [id: string]: Limit }, revision: number, app = "shop"): string {
  const listed = Object.entries(metrics).sort(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify({ app, metrics: Object.fromEntries(listed), revision });
}

/** Sign a text. */
async function sealed(text: string, until?: string): Promise<{ [member: string]: unknown }> {
  const header = `deniable restriction 1${until ? ` until ${until}` : ""}\n`;
  const signature = await crypto.subtle.sign("Ed25519", pair.privateKey, new TextEncoder().encode(header + text));
  return { format: 1, restriction: text, ...(until ? { valid_until: until } : {}), signature: base64(signature) };
}

/** A server that hands out a registry, a device with a clock, and what was asked. */
class Scene {
  now = START;
  served: unknown = null; // what is answered with 200; null for 404
  asked: { url: string; init: RequestInit }[] = [];
  uploads = 0;
  readonly store = new Lasting(() => this.now);
  readonly fetch = (async (url: string, init: RequestInit) => {
    if (!url.endsWith("/v1/registry")) {
      this.uploads++;
      return Response.json({ accepted: 1, rejected: 0, errors: [] }, { status: 202 });
    }
    this.asked.push({ url, init });
    if (this.served instanceof Error) throw this.served;
    if (this.served instanceof Response) return this.served.clone();
    return this.served === null ? Response.json({ code: "no_signed_registry" }, { status: 404 }) : Response.json(this.served);
  }) as typeof fetch;

  open(options: Partial<Options<Sheet>> = {}): Telemetry<Sheet> {
    const segments = { platform: "linux", version: "2.4" };
    return new Telemetry<Sheet>({
      dsn: "https://pk_test@telemetry.invalid/shop",
      registry: WIRE,
      registryKey: KEY,
      consent: true,
      segments,
      state: this.store,
      now: () => this.now,
      fetch: this.fetch,
      ...options,
    });
  }
}

const record = (telemetry: Telemetry<Sheet>, metric: string, answer: unknown): Promise<boolean> => telemetry.record(metric, answer as never);

test("it turns off, thins and ends, in every tab and after a restart; and it is asked for once a day, always alike", async () => {
  const scene = new Scene();
  const limits = { ...WITHOUT, sue: { sample: "0." + "0".repeat(29) + "1", until: null }, grr: { sample: "1", until: "2026-11-22" } };
  scene.served = await sealed(textOf(limits, 6));
  const [telemetry, other] = [scene.open(), scene.open()];
  assert.equal(scene.asked.length, 0); // init asks nobody
  assert.equal(await record(telemetry, "grr", "0"), true);
  assert.equal(await record(telemetry, "oue", "a"), true); // nobody has said anything yet
  assert.equal((await telemetry.flush()).sent, 2);
  for (const each of [telemetry, other, scene.open()]) {
    assert.equal(await record(each, "oue", "a"), false);
    assert.equal(await record(each, "sue", "a"), false);
    await each.flush();
    assert.equal(each.stats().dropped["off"], 1);
  }
  assert.equal(telemetry.stats().dropped["not_sampled"], 1);
  assert.equal(scene.asked.length, 1);
  scene.now += 2 * DAY;
  assert.equal(await record(telemetry, "grr", "0"), false);
  assert.equal(telemetry.stats().dropped["expired"], 1);
  await telemetry.flush();
  const [first, second] = scene.asked;
  assert.equal(first!.url, "https://telemetry.invalid/v1/registry");
  const { signal: _one, ...plain } = first!.init;
  const { signal: _two, ...again } = second!.init;
  assert.deepEqual(again, plain); // nothing in it follows from what was served
  assert.deepEqual(plain.headers, { Authorization: "Bearer pk_test", "User-Agent": "deniable", Accept: "application/json" });
  assert.equal(telemetry.stats().disabled, null);
});

test("it cannot ask for more than the app does", async () => {
  const scene = new Scene();
  const own = { ...WIRE.metrics["grr"]!, sample: "0", expires: null };
  const ended = { ...WIRE.metrics["oue"]!, expires: "2026-11-01" };
  const registry = { ...WIRE, metrics: { grr: own, oue: ended } };
  scene.served = await sealed(textOf({ grr: { sample: "1", until: null }, later: ON, oue: { sample: "1", until: "2030-12-31" } }, 6));
  const telemetry = scene.open({ registry });
  await telemetry.flush();
  assert.deepEqual([await record(telemetry, "grr", "0"), await record(telemetry, "oue", "a"), await record(telemetry, "later", "a")], [false, false, false]);
  assert.deepEqual(telemetry.stats().dropped, { not_sampled: 1, expired: 1, unknown_metric: 1 });
});

test("what must not be used ends recording and sending until the next start", async () => {
  const good = await sealed(textOf(ALL, 6));
  const stranger = await sealed(textOf(WITHOUT, 6));
  for (const [served, why] of [
    [{ ...good, signature: stranger["signature"] }, /its signature is of another text, or by another key/],
    [{ ...good, restriction: textOf(WITHOUT, 6) }, /its signature is of another text/],
    [{ ...good, valid_until: "2030-12-31" }, /its signature is of another text/],
    [{ ...good, signature: "AAAA" }, /its signature cannot be checked here/],
    [{ ...good, seed: 1 }, /it has another form/],
    [{ ...good, format: 2 }, /it has another form/],
    [{ ...good, valid_until: "31.12.2030" }, /it has another form/],
    [{ signature: good["signature"] }, /it has another form/],
    [await sealed(`${textOf(ALL, 6)} `), /its text has another form/],
    [await sealed(textOf(ALL, 6, "other")), /it is for app "other"/],
    [await sealed(textOf(ALL, 4)), /its revision is below that of the app's registry/],
  ] as const) {
    const scene = new Scene();
    scene.served = served;
    const telemetry = scene.open({ registry: { ...WIRE, revision: 5 } });
    await record(telemetry, "grr", "0");
    await telemetry.flush();
    await telemetry.flush();
    assert.match(telemetry.stats().disabled!, why);
    assert.match(telemetry.stats().disabled!, /^the served registry cannot be used: /);
    assert.equal(await record(telemetry, "oue", "a"), false);
    assert.deepEqual([scene.asked.length, scene.uploads], [1, 0], String(why));
    scene.now += DAY;
    scene.served = good;
    assert.equal((await scene.open({ registry: { ...WIRE, revision: 5 } }).flush()).sent, 1); // what waited was kept
  }
  assert.ok(warnings.some((each) => /^deniable is off: the served registry/.test(String(each))));
});

test("it never goes back: not to an older revision, and not to another text of one; also after a restart, and of another key", async () => {
  for (const [revision, limits, why] of [
    [5, ALL, /its revision is below one that was served before/],
    [6, WITHOUT, /another text of its revision was served before/],
  ] as const) {
    const scene = new Scene();
    scene.served = await sealed(textOf(ALL, 6));
    await scene.open().flush();
    scene.now += 2 * DAY;
    scene.served = await sealed(textOf(limits, revision));
    const telemetry = scene.open();
    await telemetry.flush();
    assert.match(telemetry.stats().disabled!, why);
  }
  const scene = new Scene();
  await scene.store.transact((state) => {
    state.served = { key: "another", revision: 7, text: "", until: null, limits: {}, least: {}, next: scene.now + DAY };
  });
  const telemetry = scene.open();
  assert.equal(await record(telemetry, "grr", "0"), true); // what another key has turned off is on
  scene.served = await sealed(textOf(ALL, 6));
  await telemetry.flush();
  assert.match(telemetry.stats().disabled!, /its revision is below one that was served before/);
});

test("what is no served registry changes nothing, and is asked for again within the hour", async () => {
  const over = await sealed(textOf(WITHOUT, 6), "2026-11-20");
  for (const served of [null, new TypeError("offline"), new Response("<html>a portal"), {}, [], "text", over]) {
    const scene = new Scene();
    scene.served = served;
    const telemetry = scene.open();
    await record(telemetry, "oue", "a");
    assert.equal((await telemetry.flush()).sent, 1);
    scene.now += 0.8 * 3_600_000;
    await telemetry.flush();
    assert.equal(scene.asked.length, 1);
    scene.now += 0.4 * 3_600_000;
    await telemetry.flush();
    assert.equal(scene.asked.length, 2);
    assert.equal(await record(telemetry, "oue", "a"), true);
  }
});

test("after its last day, what any earlier one turned off is off again, so that holding one back undoes nothing", async () => {
  const scene = new Scene();
  scene.served = await sealed(textOf(WITHOUT, 6), "2026-11-30");
  await scene.open().flush();
  scene.now += 2 * DAY;
  scene.served = await sealed(textOf(ALL, 7), "2026-11-30");
  const telemetry = scene.open();
  await telemetry.flush();
  assert.equal(await record(telemetry, "oue", "a"), true);
  scene.now += 9 * DAY;
  await telemetry.flush(); // the same one comes again, and its days are over
  assert.equal(await record(telemetry, "oue", "a"), false);
  assert.equal(await record(telemetry, "grr", "0"), true);
  scene.now += DAY;
  scene.served = await sealed(textOf(ALL, 7), "2026-12-31"); // signed again
  await telemetry.flush();
  assert.equal(await record(telemetry, "oue", "a"), true);
});

test("a registry of the app that is newer than what was served counts alone", async () => {
  const scene = new Scene();
  scene.served = await sealed(textOf(WITHOUT, 6));
  await scene.open().flush();
  assert.equal(await record(scene.open({ registry: { ...WIRE, revision: 7 } }), "oue", "a"), true);
  assert.equal(await record(scene.open({ registry: { ...WIRE, revision: 6 } }), "oue", "a"), false);
});

test("without a yes, and without a key, nobody is asked", async () => {
  const scene = new Scene();
  const { registryKey: _key, ...options } = scene.open({ consent: false }).options;
  await scene.open({ consent: false }).flush();
  assert.equal(await scene.store.begun(), false);
  await new Telemetry<Sheet>({ ...options, consent: true }).flush();
  assert.equal(scene.asked.length, 0);
});

test("a page asks after some seconds, whether anything was recorded or not", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const scene = new Scene();
  scene.open();
  context.mock.timers.tick(9_999);
  assert.equal(scene.asked.length, 0);
  context.mock.timers.tick(2);
  context.mock.timers.reset();
  for (let i = 0; i < 100 && !scene.asked.length; i++) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(scene.asked.length, 1);
});
