/** The test adapter for `deniable conformance`: it answers lines of JSON. */

import { createInterface } from "node:readline";
import { position, rounded, standIn } from "../src/wire/answers.js";
import { bodyOf, pack } from "../src/wire/batch.js";
import { Telemetry } from "../src/client.js";
import { oracleOf, refusal, STEPS, supports, type Oracle } from "../src/noise/mechanisms.js";
import { periodOf } from "../src/wire/periods.js";
import { lesser } from "../src/device/limits.js";
import { rowOf } from "../src/device/responses.js";
import { isSigned, read } from "../src/served.js";
import type { Layout, Period, Sheet } from "../src/sheet.js";
import { freshState, MemoryStore } from "../src/device/state.js";
import { Tape } from "./tape.js";

/** A store that outlives a client, as a disk does. */
class LastingStore extends MemoryStore {
  override readonly lasts = true;
}

interface Request {
  do: string;
  sheet: Sheet;
  metric: string;
  answer: unknown;
  point: number;
  draws: string;
  position: string;
  row: number;
  content: string;
  layout: Layout;
  moment: string;
  period: Period;
  text: string;
  metrics: { [metric: string]: { sample: string; expires: string | null } };
  key: string;
  signature: string;
  valid_until: string | null;
  asks: { rows: number; draws: string }[];
  reports: { metric: string; period: string; segment: string; payload: string }[];
  segments: { [name: string]: string };
  secret: string;
  consent: boolean;
  dsn: string;
  registry_key?: string;
  month: string;
  given: boolean;
}

let sheet: Sheet;
let now = 0;
let store: LastingStore;
let consent = false;
let device: Telemetry<Sheet>;
let options: { dsn: string; segments: { [name: string]: string }; registryKey?: string };

const oracle = (request: Request): Oracle => oracleOf(sheet.metrics[request.metric]!);

function begin(): void {
  device = new Telemetry({ ...options, registry: sheet, consent, state: store, now: () => now });
}

const answers: { [request: string]: (request: Request) => unknown } = {
  hello: () => ({ protocol: 1, client: "deniable for TypeScript", level: 2 }),
  sheet(request) {
    if (request.sheet.format !== 1) return { refused: "format" };
    sheet = request.sheet;
    const refused = Object.entries(sheet.metrics).map(([id, metric]) => [id, refusal(metric)] as const);
    return { refused: Object.fromEntries(refused.filter(([, why]) => why)) };
  },
  payload: ({ layout, row, content }) => ({ payload: pack(layout, row, BigInt(content)) }),
  period: ({ moment, period }) => ({ period: periodOf(Date.parse(moment), period) }),
  position(request) {
    const { metric } = oracle(request);
    const { answer } = request;
    const given = metric.type === "key" && typeof answer === "string" ? BigInt(answer) : answer;
    const at = position(metric, given);
    return { position: at === null ? null : String(at) };
  },
  stand_in(request) {
    const tape = new Tape(request.draws);
    return { position: String(standIn(oracle(request).metric, tape)), left: tape.left.length };
  },
  round: (request) => ({ position: String(rounded(position(oracle(request).metric, request.answer)!, request.point)) }),
  report(request) {
    const tape = new Tape(request.draws);
    const own = oracle(request);
    return { payload: pack(own.metric.layout, ...own.randomize(BigInt(request.position), tape)), left: tape.left.length };
  },
  support(request) {
    const own = oracle(request);
    const points = Array.from({ length: own.metric.layout.width }, (_, x) => x);
    return { points: points.filter((x) => supports(own, x, Number(request.position))) };
  },
  respond(request) {
    const [tape, own] = [new Tape(request.draws), oracle(request)];
    const steps = STEPS[own.metric.mechanism]!;
    const content = steps.respond(own, request.row, BigInt(request.position), tape);
    return { key: String(steps.key(own, request.row, BigInt(request.position))), content: String(content), left: tape.left.length };
  },
  again(request) {
    const [tape, own] = [new Tape(request.draws), oracle(request)];
    const content = STEPS[own.metric.mechanism]!.again(own, BigInt(request.content), tape);
    return { payload: pack(own.metric.layout, request.row, content), left: tape.left.length };
  },
  place({ asks }) {
    const state = freshState(0);
    const rows = asks.map((each) => rowOf(state, each.rows, new Tape(each.draws)));
    return { rows, place: state.place.join("/") };
  },
  body({ reports }) {
    const full = reports.map((report) => ({
      ...report,
      version: sheet.metrics[report.metric]!.version,
      fingerprint: sheet.metrics[report.metric]!.fingerprint,
    }));
    return { body: JSON.parse(bodyOf(sheet.app, full)) as unknown };
  },
  restrict({ text, metrics }) {
    const said = read(text);
    if (!said) return { metrics: null };
    const limited = Object.entries(metrics).map(([id, { sample, expires }]) => {
      const limit = said.limits[id] && lesser({ sample, until: expires }, said.limits[id]);
      return [id, limit ? { sample: limit.sample, expires: limit.until } : null];
    });
    return { metrics: Object.fromEntries(limited) as unknown };
  },
  verify: async ({ key, text, signature, valid_until }) => ({ right: await isSigned(key, text, signature, valid_until) }),
  async device(request) {
    device?.close();
    now = Date.parse(request.moment ?? "2026-11-21T10:00:00Z");
    store = new LastingStore(() => now);
    await store.transact((state) => (state.secret = request.secret));
    consent = request.consent;
    options = { dsn: request.dsn ?? "http://pk_conformance@127.0.0.1:9/shop", segments: request.segments };
    if (request.registry_key) options.registryKey = request.registry_key;
    begin();
    return {};
  },
  async record(request) {
    now = Date.parse(request.moment);
    const before = device.stats().dropped;
    if (await device.record(request.metric, request.answer as never)) return { outcome: "reported" };
    const after = device.stats().dropped;
    return { outcome: Object.keys(after).find((reason) => after[reason] !== (before[reason] ?? 0)) };
  },
  spent: ({ month }) => device.spent(month),
  stored: async ({ metric }) => ({ last: await store.transact((state) => state.kept[sheet.metrics[metric]!.fingerprint]!.last) }),
  waiting: async () => ({ reports: await device.waiting() }),
  async consent({ given }) {
    consent = given;
    await device.setConsent(given);
    return {};
  },
  restart() {
    device.close();
    begin();
    return {};
  },
  async flush() {
    await device.flush();
    return {};
  },
  sent: async () => ({ reports: await device.sent() }),
};

console.warn = () => undefined;
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line) as Request;
  const answer = (await answers[request.do]?.(request)) ?? { unsupported: "not in this client" };
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
