/** Mistakes of an app are named where it is developed, once, and nowhere else. */

import "fake-indexeddb/auto";
import assert from "node:assert/strict";
import { test } from "node:test";
import { init } from "../src/index.js";
import type { Options, Telemetry } from "../src/client.js";
import { MemoryStore } from "../src/device/state.js";
import type { Sheet } from "../src/sheet.js";
import { WIRE } from "./vectors.js";

const HERE = "http://pk_test@localhost:8080/shop";
const AWAY = "https://pk_test@telemetry.invalid/shop";
const NOW = Date.parse("2026-11-21T10:00:00Z");
const lines: string[] = [];
console.warn = (line: unknown) => void lines.push(String(line));

class Lasting extends MemoryStore {
  override readonly lasts = true;
}

interface Client {
  readonly telemetry: Telemetry<Sheet>;
  record(metric: string, answer: unknown): Promise<boolean>;
}

function client(options: Partial<Options<Sheet>> = {}): Client {
  lines.length = 0;
  const segments = { platform: "linux", version: "2.4" };
  const fetch = async (): Promise<Response> => Response.json({ accepted: 1, rejected: 0, errors: [] }, { status: 202 });
  const shared = { registry: WIRE, consent: true, segments, state: new Lasting(), now: () => NOW, fetch };
  const telemetry = init<Sheet>({ dsn: HERE, ...shared, ...options });
  return { telemetry, record: (metric, answer) => telemetry.record(metric, answer as never) };
}

/** The lines about metrics that a test is about; those of mechanisms that are not here come at each start. */
const said = (): string[] => lines.filter((line) => !line.includes(": off: the metric is off: the mechanism"));

test("each mistake is named at once, with what to do, and once", async () => {
  const number = "mean";
  for (const [id, answer, line] of [
    ["gr", "0", /^deniable: "gr": unknown_metric: .*; did you mean "grr"\?$/],
    ["0", "grr", /^deniable: grr: unknown_metric: the arguments are swapped; write the metric first/],
    ["oue", "A", /^deniable: oue: undeclared: "A" is not declared: an answer is one of "a", .*; did you mean "a"\? If a report is made now/],
    [number, 1e9, /^deniable: mean: clipped: 1000000000 is beyond the range, /],
    ["rappor_text", "a text of 20 bytes..", /^deniable: rappor_text: clipped: "a text of 20 bytes\.\." is longer than 12 bytes: a report says its beginning; record shorter texts, or raise `max_length`$/],
    [number, "12", /^deniable: mean: undeclared: "12" is not declared: an answer is a number from /],
    ["set", "a", /^deniable: set: undeclared: "a" is not declared: an answer is a list or set of "a", /],
    ["set", ["a", "q"], /If a report is made now, it says "other" instead of "q", and the other options stay$/],
    ["grr", 3, /^deniable: grr: undeclared: 3 is not declared: .*; did you mean "3\+"\? If a report/],
    ["grr", 4, /^deniable: grr: undeclared: 4 is not declared: an answer is one of "0", "1–2", "3\+"\. If a report/],
    ["joint_set", ["a", "q"], /The whole answer is lost with "q": declare `other`, so that the other options stay\. If a report .* a random set/],
  ] as const) {
    const { record } = client();
    for (let time = 0; time < 2; time++) await record(id, answer);
    const [first, ...others] = said();
    assert.match(first!, line);
    assert.ok(others.every((each) => each.includes(": this_period: ") || each.includes(": clipped: ")), others.join());
  }
});

test("what is wrong with a DSN is said with the one that works, and no key", async () => {
  const mended = "write it as http://PUBLIC_KEY@localhost:8080/shop";
  for (const [dsn, words] of [
    ["", "does not begin with https:// or http://: write it as https://PUBLIC_KEY@host/shop;"],
    ["pk_canary@localhost:8080/shop", `does not begin with https:// or http://: ${mended};`],
    ['"http://pk_canary@localhost:8080/shop"', "has quotes around it: write it without them;"],
    ["http://pk_canary @localhost:8080/shop", "has white space in it: write it as one word;"],
    ["http://localhost:8080/shop", `has no key before its host: ${mended}, with the key that \`deniable serve\` prints;`],
    ["https://pk_canary/shop", "has no key before its host: write it as https://PUBLIC_KEY@host/shop, with the key that"],
    ["http://rk_canary@localhost:8080/shop", "has a key that no page may hold: write the app's ingest key (pk_...), which is public;"],
    ["http://pk_canary:8@localhost:8080/shop", `has more than the public key before its host: ${mended};`],
    ["https://PUBLIC_KEY@localhost:8080/shop", "has a placeholder where its key should be: copy the one of your server"],
    ["https://pk_canary@telemetry.example.org/shop", "is that of an example: copy the one of your server"],
    ["https://pk_canary@/shop", "has no host: write it as https://PUBLIC_KEY@host/shop;"],
    ["http://pk_canary@localhost:80800/shop", "has port 80800: write a number from 1 to 65535"],
    ["http://pk_canary@localhost:8080", `does not end with the app's name, but with "": ${mended};`],
    ["http://pk_canary@localhost:8080/Shop", `does not end with the app's name, but with "/Shop": ${mended};`],
    ["http://pk_canary@t.example/shop", 'leads to "t.example" by http://, where anybody on the way can read what is sent: write it as https://PUBLIC_KEY@t.example/shop;'],
    ["https://pk_canary@t.example//shop", 'does not end with the app\'s name, but with "//shop": write it as https://PUBLIC_KEY@t.example/shop;'],
    ["http://pk_canary@localhost:8080/v1/shop", `has the path of an upload, which the SDK adds by itself: ${mended};`],
    ["http://pk_canary@localhost:8080/blog", `is for app "blog" and the registry for app "shop": ${mended}, or pass the registry of "blog";`],
  ] as const) {
    Object.assign(globalThis, { origin: "http://localhost" });
    const { record } = client({ dsn });
    await record("grr", "0");
    const line = said().find((each) => each.includes(`the DSN ${words}`)) ?? "";
    assert.match(line, /^deniable: all metrics: (disabled: the client is off: |dsn: )the DSN .* meanwhile$/, `${dsn}: ${lines.join()}`);
    assert.ok(!lines.join().includes("canary"));
  }
  Reflect.deleteProperty(globalThis, "origin");
});

test("a client that is off says at once what to do, before anything is recorded", async () => {
  client({ dsn: "http://pk_canary@localhost:8080/blog" });
  const found = () => said().find((each) => each.includes("all metrics: disabled"));
  for (let times = 0; !found() && times < 10_000; times++) await new Promise((resolve) => setTimeout(resolve, 5)); // words are loaded
  assert.match(found() ?? "", /the DSN is for app "blog" and the registry for app "shop": write it as http:/);
});

test("what is wrong with the options is said first, with what to write", async () => {
  Object.assign(globalThis, { origin: "http://localhost" });
  const sheet = "`registry` is";
  const written = "pass what `deniable registry show --typescript metrics.toml` writes";
  for (const [options, line] of [
    [{ registry: undefined }, `deniable: all metrics: disabled: the client is off: ${sheet} missing: ${written}; nothing is recorded meanwhile`],
    [{ registry: "metrics.toml" }, `deniable: all metrics: disabled: the client is off: ${sheet} "metrics.toml": ${written}; nothing is recorded meanwhile`],
    [{ dsn: "https://pk_a@telemetry.example.com/blog" }, "deniable: all metrics: disabled: the client is off: the DSN is that of an example: copy the one of your server, which `deniable serve` prints; nothing is recorded meanwhile"],
    [{ state: "none" }, 'deniable: all metrics: state: `state` is "none": write "memory", pass a store such as `await fileStore("folder")` of deniable/node, or leave it out'],
    [{ concent: true }, "deniable: all metrics: concent: this is no option of init; did you mean \"consent\"?"],
    [{ nothing: true }, /^deniable: all metrics: nothing: this is no option of init: write one of dsn, registry, consent, /],
  ] as const) {
    const { record } = client(options as object);
    assert.equal(await record("grr", "0"), !("registry" in options || "dsn" in options || "state" in options));
    const [first, ...others] = said();
    if (line instanceof RegExp) assert.match(first!, line);
    else assert.equal(first, line);
    assert.deepEqual(others, []);
  }
  Reflect.deleteProperty(globalThis, "origin");
});

test("a consent function that throws is named", async () => {
  const fails = (): never => { throw new RangeError("canary"); };
  const line = "deniable: all metrics: no_consent: the consent function has thrown RangeError, which is taken for a no";
  const { record } = client({ consent: fails });
  assert.equal(await record("grr", "0"), false);
  assert.deepEqual(said(), [line]);
  const later = client();
  assert.equal(await later.record("grr", "0"), true);
  await later.telemetry.setConsent(fails);
  assert.equal(await later.record("grr", "0"), false);
  assert.deepEqual(said(), [line]);
});

test("a client that was closed says so", async () => {
  const { telemetry, record } = client();
  telemetry.close();
  assert.equal(await record("grr", "0"), false);
  assert.deepEqual(telemetry.stats().dropped, { disabled: 1 });
  assert.match(said()[0]!, /^deniable: all metrics: disabled: the client is off: close\(\) was called; call it at the end only; nothing /);
});

test("an undeclared answer is counted once, also where an option of a set counts as another one", async () => {
  for (const [id, answer, undeclared] of [
    ["set", ["a"], 0],
    ["set", ["a", "q", "r"], 1],
    ["set", new Set(["q"]), 1],
    ["joint_set", ["q"], 1],
    ["oue", "A", 1],
  ] as const) {
    const { telemetry, record } = client({ dsn: AWAY });
    await record(id, answer);
    assert.equal(telemetry.stats().undeclared, undeclared, `${id} ${[...answer].join()}`);
  }
});

test("a DSN may have white space around it and a slash at its end", async () => {
  for (const dsn of [` ${HERE}\n`, `${HERE}/`]) {
    const asked: string[] = [];
    const fetch = async (url: RequestInfo | URL): Promise<Response> => {
      asked.push(String(url));
      return Response.json({ accepted: 1, rejected: 0, errors: [] }, { status: 202 });
    };
    const { telemetry, record } = client({ dsn, fetch });
    assert.ok(await record("grr", "0"));
    await telemetry.flush();
    assert.ok(asked[0]?.startsWith("http://localhost:8080/"), asked[0]);
  }
});

test("https:// to a server without TLS on this machine is told", async () => {
  const fetch = async (): Promise<Response> => Promise.reject(new TypeError("Failed to fetch"));
  const { telemetry, record } = client({ dsn: HERE.replace("http:", "https:"), fetch });
  await record("grr", "0");
  assert.equal((await telemetry.flush()).why, "no_answer");
  assert.match(said()[0]!, /^deniable: upload: no_answer: no answer came by https:\/\/; write http:\/\/ in the DSN/);
});

test("whatever drops an answer says so", async () => {
  const seldom = { ...WIRE, metrics: { grr: { ...WIRE.metrics["grr"]!, sample: "0" } } };
  const poor = { ...WIRE, budget: { per_month: 0, lifetime: 0 } };
  const over = { ...WIRE, metrics: { grr: { ...WIRE.metrics["grr"]!, expires: "2020-01-01" } } };
  for (const [options, line, times] of [
    [{}, /^deniable: grr: this_period: this answer was left out: this browser has already reported in this period; that is expected: /, 2],
    [{ consent: false }, /^deniable: all metrics: no_consent: nobody has agreed, .* call setConsent\(true\)/, 1],
    [{ registry: poor }, /^deniable: grr: budget: there is no budget left for it, and none later/, 1],
    [{ registry: over }, /^deniable: grr: expired: its collection has ended; /, 1],
    [{ registry: seldom }, /^deniable: grr: not_sampled: /, 1],
  ] as const) {
    const { record } = client(options);
    for (let time = 0; time < times; time++) await record("grr", "0");
    assert.match(said()[0] ?? "", line);
  }
  client({ state: "memory", caps: { epsilon: 0.25 } });
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.ok(said().some((each) => each.startsWith("deniable: l_grr: off: the metric is off: needs a lasting state; it keeps its answer, and ")));
  assert.ok(said().some((each) => each.startsWith("deniable: grr: off: the metric is off: above `caps`; raise `caps` of init, ")));
  const { record } = client({ segments: {} });
  await record("subset", "dark");
  assert.ok(said().some((each) => /^deniable: subset: off: .*; pass segments: \{ platform: "linux" \} to init, with one of /.test(each)), lines.join());
  client({ segments: { platform: "beos", version: "2.4", platfrm: "x" } });
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.ok(said().some((each) => /^deniable: subset: off: .*: "beos" is not declared; pass segments: \{ platform: /.test(each)), lines.join());
  const words = "the registry declares no such segment, so it is not sent; did you mean \"platform\"?";
  assert.ok(said().includes(`deniable: segment platfrm: unknown_segment: ${words}`), lines.join());
});

test("what a server refuses, and that none answers, is said with the metric and the remedy", async () => {
  const problem = (code: string, detail: string) => ({ type: `urn:deniable:problem:${code}`, code, detail });
  const errors = [{ group: 0, code: "definition_mismatch", count: 1, detail: "the device's registry differs" }];
  for (const [answer, why, line, left] of [
    [Response.json(problem("other_app", "the key is of app blog"), { status: 403 }), "other_app", /^deniable: upload: other_app: the key is of app blog; the DSN is not that of this app; write the DSN that `deniable serve` prints for it$/, 1],
    [Response.json({ ...problem("all_rejected", "none"), errors }, { status: 422 }), "all_rejected", /^deniable: grr: definition_mismatch: the device's registry differs; if you changed the metric, raise its version; write the registry of this page anew from the server's metrics.toml, or give the server yours, which `deniable serve` reads by itself and other servers at a restart$/, 0],
    [Response.json({ accepted: 0, rejected: 1, errors }, { status: 202 }), "definition_mismatch", /^deniable: grr: definition_mismatch: /, 0],
  ] as const) {
    const { telemetry, record } = client({ fetch: async () => answer });
    await record("grr", "0");
    assert.deepEqual(await telemetry.flush(), { sent: 0, left, why });
    assert.match(said()[0]!, line);
  }
  const { telemetry, record } = client({ fetch: async () => { setTimeout(() => telemetry.setConsent(false), 0); throw new TypeError("no"); } });
  await record("grr", "0");
  assert.equal((await telemetry.flush()).why, "no_answer");
  assert.match(said()[0]!, /^deniable: upload: no_answer: no answer came; start the server \(`deniable serve`\)/);
});

test("flush tells nothing to send from what has arrived", async () => {
  const { telemetry, record } = client();
  assert.deepEqual(await telemetry.flush(), { sent: 0, left: 0, why: "" });
  await record("grr", "0");
  assert.deepEqual(await telemetry.flush(), { sent: 1, left: 0, why: "" });
});

test("elsewhere nothing is named, and no line has an answer", async () => {
  for (const dsn of [AWAY, "https://pk_test@localhost.example.com/shop", "https://pk_test@127.example.com/shop"]) {
    const { record } = client({ dsn });
    for (const [id, answer] of [["gr", "0"], ["0", "grr"], ["oue", "A"], ["mean", 1e9]] as const) await record(id, answer);
    assert.deepEqual(lines, []);
  }
});

test("a strict client throws them, wherever its server is", async () => {
  const { record } = client({ dsn: AWAY, strict: true });
  await assert.rejects(record("gr", "0"), /^TypeError: "gr": .*; did you mean "grr"\?$/);
  await assert.rejects(record("oue", "A"), /^TypeError: oue: "A" is not declared: /);
  await assert.rejects(record("coin", true), /^TypeError: coin: the metric is off: the mechanism "coin" is not known here$/);
  assert.equal(await record("grr", "0"), true);
  assert.equal(await record("grr", "0"), false);
});

test("a number beyond the range is named also where no report is made of it", async () => {
  const { record } = client({ registry: { ...WIRE, budget: { per_month: 0, lifetime: 0 } } });
  assert.equal(await record("mean", 1e9), false);
  assert.deepEqual(said().map((line) => line.split(":")[2]), [" budget", " clipped"]);
  const refused = client({ consent: false }); // an answer of somebody who has not agreed is not looked at
  await refused.record("mean", 1e9);
  assert.ok(!said().some((line) => line.includes("clipped")));
});

test("a budget that is not earned yet says when it is, and sends no metric in a circle", async () => {
  const DAY = 86_400_000;
  const { cost, month } = WIRE.metrics["l_grr"]!.allowance;
  const registry = { ...WIRE, budget: { per_month: 5 * month, lifetime: 100 * month } };
  let now = NOW;
  class Forgetting extends Lasting {
    override readonly forgets = true;
  }
  const state = new Forgetting(() => now);
  const start = (): Client => client({ registry, state, now: () => now });
  assert.ok(cost > 0);
  assert.equal(await start().record("l_grr", "a"), false);
  const line = /^deniable: l_grr: budget: it is asked in (\d+) days?, when its part of the budget is earned: .* is never asked before\. To see/;
  assert.equal(line.exec(said()[0]!)?.[1], "6"); // a fifth of 30 days
  assert.ok(!said().join().includes("memory"));
  now += 6 * DAY - 1;
  assert.equal(await start().record("l_grr", "a"), false);
  assert.equal(line.exec(said()[0]!)?.[1], "1");
  now += 1;
  assert.equal(await start().record("l_grr", "a"), true);
  await client({ registry, state: "memory" }).record("l_grr", "a");
  assert.match(said()[0]!, /l_grr: off: .*; it keeps its answer, and `state: "memory"` forgets: leave out `state`, and a new browser is asked once/);
});

test("what is left of a month's budget says when there is more, and what was asked is not spent", async () => {
  const [cost, next] = ["grr", "oue"].map((id) => WIRE.metrics[id]!.allowance.cost) as [number, number];
  const registry = { ...WIRE, budget: { per_month: cost + next - 1, lifetime: 100 * (cost + next) } };
  const { telemetry, record } = client({ registry });
  assert.equal(await record("grr", "0"), true);
  const spent = await telemetry.spent("2026-11");
  assert.equal(await record("oue", "a"), false);
  assert.match(said()[0]!, /^deniable: oue: budget: the month's budget is spent, and there is more in 10 days; raise `per_month`/); // 1 December
  assert.deepEqual(await telemetry.spent("2026-11"), spent);
});

test("a flush says why an answer was dropped, once, and why the client is off", async () => {
  const { telemetry, record } = client({ consent: false });
  await record("grr", "0");
  assert.deepEqual(await telemetry.flush(), { sent: 0, left: 0, why: "no_consent" });
  assert.deepEqual(await telemetry.flush(), { sent: 0, left: 0, why: "" });
  const wrong = client({ dsn: "https://pk_test@t.example/other" });
  await wrong.record("grr", "0");
  assert.deepEqual(await wrong.telemetry.flush(), { sent: 0, left: 0, why: 'the DSN is for "other", not "shop"' });
});

test("a number or a text that stands for a boolean is asked about", async () => {
  const metric = { ...WIRE.metrics["grr"]!, type: "boolean", values: [false, true], none: null };
  for (const [answer, meant] of [[1, true], ["false", false]] as const) {
    const { record } = client({ registry: { ...WIRE, metrics: { "ui.dark": metric } } });
    await record("ui.dark", answer);
    assert.match(said()[0]!, new RegExp(`is not declared: .*; did you mean ${meant}\\?`));
  }
});
