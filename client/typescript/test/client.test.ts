/** The client: consent, the ledger, several tabs, what is forgotten, and sending. */

import "fake-indexeddb/auto";
import assert from "node:assert/strict";
import { test } from "node:test";
import { Telemetry, objection, type Options } from "../src/client.js";
import { init } from "../src/index.js";
import { verdictOf } from "../src/wire/sender.js";
import type { Sheet } from "../src/sheet.js";
import { BrowserStore, MemoryStore, PartedStore, type State, type Waiting } from "../src/device/state.js";
import { capture } from "../src/testing.js";
import { WIRE, WORKED } from "./vectors.js";

const DAY = 86_400_000;
const DSN = "https://pk_test@telemetry.invalid/shop";
const START = Date.parse("2026-11-02T10:00:00Z");
console.warn = () => undefined;

class Lasting extends MemoryStore {
  override readonly lasts = true;
}

interface Call {
  url: string;
  key: string;
  body: string;
  init: RequestInit;
}

/** A server that answers with the statuses given, and then takes all. */
function server(...statuses: (number | Response | Error)[]): { calls: Call[]; fetch: typeof fetch } {
  const calls: Call[] = [];
  const answer = async (url: unknown, init?: RequestInit): Promise<Response> => {
    const headers = init!.headers as { [name: string]: string };
    const bytes = typeof init!.body === "string" ? new Blob([init!.body]) : new Blob([init!.body as ArrayBuffer]);
    const plain = headers["Content-Encoding"] ? bytes.stream().pipeThrough(new DecompressionStream("gzip")) : bytes.stream();
    calls.push({ url: String(url), key: headers["Idempotency-Key"]!, body: await new Response(plain).text(), init: init! });
    const next = statuses.shift() ?? 202;
    if (next instanceof Error) throw next;
    if (next instanceof Response) return next;
    if (next === 202) return Response.json({ accepted: 1, rejected: 0, duplicate: false, errors: [] }, { status: 202 });
    return Response.json({ type: "urn:deniable:problem:planned", code: "planned" }, { status: next });
  };
  return { calls, fetch: answer as typeof fetch };
}

function client(options: Partial<Options<Sheet>> = {}): Telemetry<Sheet> {
  const segments = { platform: "linux", version: "2.4" };
  return new Telemetry<Sheet>({ dsn: DSN, registry: WIRE, consent: true, segments, state: new Lasting(), ...options });
}

const anything = (telemetry: Telemetry<Sheet>, metric: string, answer: unknown): Promise<boolean> =>
  telemetry.record(metric, answer as never);

test("without an explicit yes nothing is drawn, stored or sent", async () => {
  const [store, asked] = [new Lasting(), server()];
  for (const consent of [false, (() => 1) as never, "yes" as never, () => { throw new Error("no"); }]) {
    const telemetry = client({ consent, state: store, fetch: asked.fetch });
    assert.equal(await anything(telemetry, "grr", "0"), false);
    await telemetry.flush();
    assert.deepEqual(telemetry.stats().dropped, { no_consent: 1 });
  }
  assert.equal(await store.begun(), false);
  assert.equal(asked.calls.length, 0);
});

test("a withdrawal deletes what is unsent, also while it is being recorded, and keeps what was spent", async () => {
  const telemetry = client();
  assert.ok(await anything(telemetry, "grr", "0"));
  const [spent, late] = [await telemetry.spent("2026-11"), anything(telemetry, "oue", "a")];
  await telemetry.setConsent(false);
  assert.equal(await late, true); // it was in time
  await telemetry.setConsent(true);
  assert.equal(await telemetry.waiting(), 0);
  assert.equal(await anything(telemetry, "grr", "0"), false);
  assert.ok((await telemetry.spent("2026-11")).lifetime >= spent.lifetime);
});

test("a withdrawal that comes before the transaction is in time", async () => {
  class Slow extends Lasting {
    override async transact<T>(block: (state: State) => T): Promise<T> {
      await new Promise((resolve) => setTimeout(resolve, 20));
      return super.transact(block);
    }
  }
  const telemetry = client({ state: new Slow() });
  const late = [anything(telemetry, "grr", "0"), anything(telemetry, "l_grr", "a")];
  await telemetry.setConsent(false);
  assert.deepEqual(await Promise.all(late), [false, false]);
  assert.deepEqual(telemetry.stats().dropped, { no_consent: 2 });
});

test("what the person's system says wins over consent, and no database is made", async () => {
  const navigator = Object.getOwnPropertyDescriptor(globalThis, "navigator");
  try {
    for (const says of [{ globalPrivacyControl: true }, { doNotTrack: "1" }]) {
      Object.defineProperty(globalThis, "navigator", { value: says, configurable: true });
      assert.match(objection()!, /^(globalPrivacyControl|doNotTrack) is set$/);
      const telemetry = init({ dsn: DSN.replace("shop", "never"), registry: { ...WIRE, app: "never" }, consent: true });
      assert.equal(await anything(telemetry as Telemetry<Sheet>, "grr", "0"), false);
      assert.match(telemetry.stats().disabled!, /^(globalPrivacyControl|doNotTrack) is set$/);
    }
    Object.defineProperty(globalThis, "navigator", { value: { globalPrivacyControl: false, doNotTrack: "0" }, configurable: true });
    assert.equal(objection(), null);
    process.env["DO_NOT_TRACK"] = "1";
    assert.equal(objection(), "DO_NOT_TRACK is set");
  } finally {
    delete process.env["DO_NOT_TRACK"];
    if (navigator) Object.defineProperty(globalThis, "navigator", navigator);
    else delete (globalThis as { navigator?: unknown }).navigator;
  }
  assert.ok(!(await indexedDB.databases()).some(({ name }) => name === "deniable never"));
});

test("three tabs share one ledger and one outbox in the browser's database", async () => {
  let now = START;
  const asked = server();
  const registry = { ...WIRE, app: "tabs" };
  const open = (): Telemetry<Sheet> =>
    client({ dsn: DSN.replace("shop", "tabs"), registry, state: new BrowserStore("tabs", () => now), now: () => now, fetch: asked.fetch });
  const tabs = [open(), open(), open()];
  await new BrowserStore("tabs", () => now).transact(() => null);
  now += 30 * DAY; // the state has earned a month's budget
  await Promise.all(tabs.map((tab) => anything(tab, "grr", "0")));
  await Promise.all(tabs.map((tab) => anything(tab, "oue", "a")));
  const recorded = tabs.map((tab) => tab.stats().recorded);
  assert.equal(recorded.reduce((a, b) => a + b), 1 + 3, String(recorded)); // of grr one in a period, of oue three
  await Promise.all(tabs.map((tab) => tab.flush()));
  await Promise.all(tabs.map((tab) => tab.flush()));
  const keys = new Set(asked.calls.map((call) => call.key));
  const bodies = new Map(asked.calls.map((call) => [call.key, call.body]));
  const count = [...bodies.values()].flatMap((body) => (JSON.parse(body) as { groups: { count: number }[] }).groups.map((group) => group.count));
  assert.equal(count.reduce((a, b) => a + b), 4);
  assert.ok(keys.size >= 1);
  assert.equal(await tabs[0]!.waiting(), 0);
  assert.equal((await tabs[1]!.sent()).length, 4);
});

test("a state that browsers may forget earns its budget", async () => {
  let now = START;
  const spentOf = async (days: number, forgetsEach: number): Promise<number> => {
    let total = 0;
    for (let day = 0; day < days; ) {
      const store = new (class extends Lasting {
        override readonly forgets = true as never;
      })(() => now);
      const telemetry = client({ state: store, now: () => now });
      for (let age = 0; age < forgetsEach && day < days; age++, day++, now += DAY)
        for (const id of Object.keys(WORKED.metrics)) await anything(telemetry, id, "0");
      const state = await store.transact((each) => each);
      for (const month of Object.values(state.spends)) for (const cost of Object.values(month)) total += cost;
      telemetry.close();
    }
    return total;
  };
  const kept = WORKED.metrics["l_grr"]!;
  const cheap = { ...kept, allowance: { ...kept.allowance, month: 400_000, lifetime: 400_000 } }; // less than what is granted to others
  const small = { ...WORKED, metrics: { grr: WORKED.metrics["grr"]!, l_grr: cheap } };
  const first = client({ registry: small, state: new (class extends Lasting { override readonly forgets = true as never; })(() => now), now: () => now });
  assert.equal(await anything(first, "l_grr", "a"), false); // a metric that keeps responses is granted nothing
  assert.deepEqual(first.stats().dropped, { budget: 1 });
  now += 30 * DAY;
  assert.equal(await anything(first, "l_grr", "a"), true);
  const { cost } = WIRE.metrics["grr"]!.allowance;
  assert.equal(await spentOf(1, 1), cost); // who comes once can answer once
  assert.match((await first.explain("l_grr"))!.shared.join(" "), /If this browser's data are cleared, it starts anew/);
});

test("a month has its bound, whatever the parts of metrics are", async () => {
  let now = Date.parse("2026-11-02T10:00:00Z");
  const { cost } = WIRE.metrics["grr"]!.allowance;
  const telemetry = client({ registry: { ...WIRE, budget: { per_month: 2 * cost, lifetime: 100 * cost } }, now: () => now });
  const weeks: boolean[] = [];
  for (let week = 0; week < 5; week++, now += 7 * DAY) weeks.push(await anything(telemetry, "grr", "0"));
  assert.deepEqual(weeks, [true, true, false, false, true]); // the last of these weeks ends in December
});

test("without room for another response the last one is reported again", async () => {
  let now = START;
  const kept = WIRE.metrics["l_grr"]!;
  const metric = { ...kept, allowance: { ...kept.allowance, answers: 1, answers_ever: null, lifetime: null } };
  const store = new Lasting(() => now);
  const telemetry = client({ registry: { ...WIRE, metrics: { l_grr: metric } }, state: store, now: () => now });
  for (const answer of ["a", "b", "c"]) {
    assert.equal(await anything(telemetry, "l_grr", answer), true); // silence would show the change
    now += DAY;
  }
  const state = await store.transact((each) => each);
  assert.equal(state.kept[metric.fingerprint]!.drawn, 1);
  assert.equal(telemetry.stats().repeated, 2);
});

test("memory is chosen by name, keeps no responses, and says how long it remembers", async () => {
  const telemetry = client({ state: "memory" });
  assert.equal(telemetry.stats().off["l_grr"], "needs a lasting state");
  assert.equal(await anything(telemetry, "l_grr", "a"), false);
  assert.equal(await anything(telemetry, "grr", "0"), true);
  const [own, other] = [(await telemetry.explain("grr"))!, (await telemetry.explain("oue"))!];
  assert.match(own.shared.join(" "), /until this page ends/);
  assert.match(own.lines.join(" "), /of 1 byte, whatever the answer/);
  assert.match(own.lines.join(" "), /It costs \d+% of what all answers may give away in a month/);
  assert.deepEqual(own.shared, other.shared); // a receipt says them once
  assert.ok(own.lines.every((line) => !other.lines.includes(line) || line.startsWith("It costs") || line.startsWith("A report")));
});

test("where storage is refused nothing is recorded, and nothing falls back", async () => {
  const denied = () => Promise.reject(new DOMException("denied"));
  const refused = { forgets: true, lasts: true, begun: async () => true, transact: denied, transactAll: denied };
  const telemetry = client({ state: refused });
  assert.equal(await anything(telemetry, "grr", "0"), false);
  assert.deepEqual(telemetry.stats().dropped, { state: 1 });
});

test("what is not known here is refused at the start, by name", async () => {
  const telemetry = client();
  const { off } = telemetry.stats();
  assert.deepEqual(Object.keys(off).sort(), ["cms", "cms_text", "coin", "dbitflip", "general_hadamard", "google_rappor", "hcms", "tree_hist"]);
  assert.equal(off["coin"], 'the mechanism "coin" is not known here');
  assert.equal(await anything(telemetry, "coin", true), false);
  assert.deepEqual(telemetry.stats().dropped, { off: 1 });
});

test("a registry whose reports must be sealed turns the client off, and nothing of it is sent", async () => {
  const relay = { operator: "Example Foundation", key: "1:AAAA" };
  const telemetry = client({ registry: { ...WIRE, relay } });
  assert.equal(telemetry.stats().disabled, "the registry is not known here");
  assert.equal(await anything(telemetry, "grr", "0"), false);
  assert.deepEqual(telemetry.stats().dropped, { disabled: 1 });
  assert.equal(await telemetry.explain("grr"), null);
});

test("mistakes of the app turn the client off, and are thrown if strict", () => {
  for (const [options, why] of [
    [{ dsn: "shop" }, /the DSN is not https:/],
    [{ dsn: "http://pk_a@example.net/shop" }, /the DSN is not https:/],
    [{ dsn: "https://rk_secret@example.net/shop" }, /the DSN is not https:\/\/PUBLIC_KEY@/],
    [{ dsn: "https://pk_a@example.net/other" }, /the DSN is for "other", not "shop"/],
    [{ registry: { ...WIRE, format: 2 } }, /the registry is not known/],
  ] as const) {
    assert.throws(() => client({ ...options, strict: true }), why);
    const { disabled } = client(options).stats();
    assert.match(disabled!, why);
    assert.doesNotMatch(disabled!, /secret/);
  }
});

test("no raw answer is stored, and what is stored reveals none", async () => {
  const store = new Lasting();
  const telemetry = client({ state: store });
  const marker = "marker-5f1c";
  for (const id of Object.keys(WIRE.metrics)) await anything(telemetry, id, marker);
  const state: State = await store.transact((each) => each);
  assert.ok(state.waiting.length > 10);
  assert.doesNotMatch(JSON.stringify([state, telemetry.stats()]), /marker/);
});

test("init asks nobody, and an upload has no more than it needs", async () => {
  const asked = server();
  const telemetry = client({ fetch: asked.fetch });
  assert.equal(asked.calls.length, 0);
  await anything(telemetry, "grr", "0");
  assert.deepEqual(await telemetry.flush(), { sent: 1, left: 0, why: "" });
  const [call] = asked.calls;
  assert.equal(call!.url, "https://telemetry.invalid/v1/reports");
  const { credentials, redirect, referrerPolicy, cache, keepalive } = call!.init;
  assert.equal((call!.init.headers as { [name: string]: string })["User-Agent"], "deniable");
  assert.deepEqual([credentials, redirect, referrerPolicy, cache, keepalive], ["omit", "error", "no-referrer", "no-store", false]);
});

test("a batch keeps its key and its bytes, whatever became of the first tries", async () => {
  const asked = server(new TypeError("blocked"), 500, new Response("<html>", { status: 404 }));
  const store = new Lasting();
  const telemetry = client({ fetch: asked.fetch, state: store });
  await anything(telemetry, "grr", "0");
  await telemetry.flush();
  assert.equal(asked.calls.length, 4); // a page of a portal costs no report
  assert.equal(new Set(asked.calls.map((call) => call.key + call.body)).size, 1);
});

test("what is recorded while a batch is on its way waits for the next time, so that nothing shows its moment", async () => {
  let arrived!: () => void;
  const first = new Promise<void>((resolve) => (arrived = resolve));
  let answer!: (response: Response) => void;
  const calls: string[] = [];
  const slow = (async () => {
    calls.push("upload");
    if (calls.length > 1) return Response.json({ accepted: 1, rejected: 0, errors: [] }, { status: 202 });
    arrived();
    return new Promise<Response>((resolve) => (answer = resolve));
  }) as typeof fetch;
  const telemetry = client({ fetch: slow });
  await anything(telemetry, "grr", "0");
  const flushed = telemetry.flush();
  await first;
  await anything(telemetry, "oue", "a");
  answer(Response.json({ accepted: 1, rejected: 0, errors: [] }, { status: 202 }));
  assert.deepEqual([await flushed, calls.length], [{ sent: 1, left: 1, why: "" }, 1]);
  assert.deepEqual([await telemetry.flush(), calls.length], [{ sent: 1, left: 0, why: "" }, 2]);
});

test("a record reads and writes nothing of what is sent", async () => {
  const changed: string[] = [];
  class Watched extends PartedStore {
    readonly forgets = false;
    readonly lasts = true;
    begun = async () => true;
    #parts: unknown[] = [];
    protected async change<T>(names: readonly string[], block: (parts: unknown[]) => T): Promise<T> {
      changed.push(names.join());
      return block(this.#parts);
    }
  }
  const telemetry = client({ state: new Watched() });
  await anything(telemetry, "grr", "0");
  await anything(telemetry, "l_grr", "a");
  assert.deepEqual(changed, ["state", "state"]);
});

test("after a restart a batch has the same key; after 48 hours it is given up", async () => {
  let now = START;
  const store = new Lasting(() => now);
  const failing = server(...Array<Error>(8).fill(new TypeError("offline")));
  const first = client({ fetch: failing.fetch, state: store, now: () => now });
  await anything(first, "grr", "0");
  await first.flush();
  now += 47 * 3_600_000;
  await first.flush();
  first.close();
  const asked = server();
  const second = client({ fetch: asked.fetch, state: store, now: () => now });
  const key = (await store.transactAll((_, outbox) => outbox.batches[0]!.key)) as string;
  now += 2 * 3_600_000;
  assert.equal(failing.calls.length, 8);
  assert.deepEqual(new Set(failing.calls.map((call) => call.key)), new Set([key]));
  assert.deepEqual(await second.flush(), { sent: 0, left: 0, why: "too_old" });
  assert.equal(asked.calls.length, 0);
  assert.deepEqual(second.stats().dropped, { too_old: 1 });
  await anything(second, "oue", "a");
  assert.deepEqual(await second.flush(), { sent: 1, left: 0, why: "" });
});

test("while another tab sends, flush says so", async () => {
  const asked = server();
  const telemetry = client({ fetch: asked.fetch });
  await anything(telemetry, "grr", "0");
  const taken = { request: async (_: string, __: object, held: (lock: unknown) => Promise<void>) => held(null) };
  const { navigator } = globalThis;
  Object.defineProperty(globalThis, "navigator", { value: { locks: taken }, configurable: true, writable: true });
  try {
    assert.deepEqual(await telemetry.flush(), { sent: 0, left: 1, why: "busy" });
  } finally {
    Object.defineProperty(globalThis, "navigator", { value: navigator, configurable: true, writable: true });
  }
  assert.deepEqual(await telemetry.flush(), { sent: 1, left: 0, why: "" });
});

test("a withdrawal ends an upload that is on its way", async () => {
  let begun!: () => void;
  let signal!: AbortSignal;
  const under = new Promise<void>((resolve) => (begun = resolve));
  const hanging = ((_: unknown, init: RequestInit) =>
    new Promise((_resolve, reject) => {
      begun();
      signal = init.signal!;
      init.signal!.addEventListener("abort", () => reject(new DOMException("aborted", "AbortError")));
    })) as typeof fetch;
  const telemetry = client({ fetch: hanging });
  await anything(telemetry, "grr", "0");
  const flushed = telemetry.flush();
  await under;
  await telemetry.setConsent(false);
  assert.ok(signal.aborted);
  assert.equal((await flushed).sent, 0);
  await telemetry.setConsent(true);
  assert.equal(await telemetry.waiting(), 0);
});

test("answers of servers are read as the specification says", () => {
  const problem = { type: "urn:deniable:problem:period", code: "period" };
  const now = Date.parse("2026-11-21T10:00:00Z");
  assert.deepEqual(verdictOf(202, { rejected: 2, errors: [{ group: 1, code: "period" }] }, null, now), { what: "done", why: "period", rejected: 2, groups: [1] });
  for (const [status, answer, what] of [
    [413, null, "split"], [401, problem, "refused"], [403, problem, "refused"], [422, problem, "lost"], [404, problem, "lost"],
    [404, null, "keep"], [401, { code: "period" }, "keep"], [429, problem, "keep"], [408, problem, "keep"], [503, problem, "keep"], [302, problem, "keep"],
  ] as const) assert.equal(verdictOf(status, answer, null, now).what, what, `${status}`);
  for (const [header, pause] of [["7", 7], ["1000", 300], ["Sat, 21 Nov 2026 10:00:30 GMT", 30], ["soon", 0], ["-5", 0]] as const)
    assert.equal(verdictOf(503, null, header, now).pause, pause, header);
});

test("a report with a delay waits for it, and a clock that is set back makes it wait no longer", async () => {
  let now = START;
  const registry = { ...WIRE, metrics: { grr: { ...WIRE.metrics["grr"]!, delay: "12h" } } };
  const store = new Lasting(() => now);
  const asked = server();
  const telemetry = client({ registry, state: store, now: () => now, fetch: asked.fetch });
  await anything(telemetry, "grr", "0");
  await store.transact((state) => {
    state.waiting[0] = JSON.stringify({ ...(JSON.parse(state.waiting[0]!) as Waiting), due: now + 3_600_000, wait: 3_600_000 });
  });
  await telemetry.flush();
  assert.equal(asked.calls.length, 0);
  now -= 5 * DAY;
  await telemetry.flush();
  assert.equal(asked.calls.length, 1);
});

test("caps of the app turn off what asks for more", () => {
  const { off } = client({ caps: { epsilon: 1, permanent: 2.2 } }).stats();
  assert.ok(off["sue"] && off["l_osue"] && !off["grr"] && !off["l_grr"]);
});

test("a capture has what an app would send, and throws its mistakes", async () => {
  const { telemetry, reports } = capture(WIRE);
  await telemetry.record("grr", "0" as never);
  assert.deepEqual((await reports()).map(({ metric, segment }) => [metric, segment]), [["grr", ""]]);
  await assert.rejects(telemetry.record("grr", "no" as never), /^TypeError: grr: "no" is not declared: an answer is one of "0", /);
  await assert.rejects(telemetry.record("typo" as never, true as never), /^TypeError: "typo": the registry does not declare the metric/);
});
