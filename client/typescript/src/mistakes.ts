/** Mistakes of an app, in words. It is loaded where the page or the server is on this machine, and nowhere else: lines name answers. */

import type { Options, Telemetry } from "./client.js";
import type { Sheet, SheetMetric } from "./sheet.js";

const KEPT = "the reports are kept, and sent again later";
const REGISTRY = "write the registry of this page anew from the server's metrics.toml, or give the server yours, which `deniable serve` reads by itself and other servers at a restart";

/** What happened and what to do, by the reason why an answer is not reported. */
const REASONS: { readonly [reason: string]: string } = {
  no_consent: "nobody has agreed, so nothing is recorded; call setConsent(true) once the person has said yes: only `true` is a yes",
  disabled: "",
  unknown_metric: "",
  off: "",
  expired: "its collection has ended; write a later `expires` in metrics.toml, for the page and for the server",
  not_sampled: "`sample` has left this answer out; that is normal; for more reports raise `sample` in metrics.toml",
  this_period:
    "this answer was left out: this browser has already reported in this period; that is expected: each person counts that often. To record once more while you develop, open a private window",
  budget: "",
  queue_full: "too many reports wait to be sent; see whether the server answers, and record less",
  refused_key: "the server has refused the key of the DSN, so nothing is recorded until the page is loaded again; correct the DSN",
  state: "what was spent cannot be read or written, so nothing is recorded; let the page use its database",
  error: "an unexpected error happened, and the page was not disturbed; `strict: true` throws it",
};

/** Why an answer is dropped before it is looked at; nothing is said of it. */
const UNSEEN: ReadonlySet<string | undefined> = new Set(["no_consent", "disabled", "unknown_metric", "off"]);

const SIMULATED = "To see its figures now, run `deniable simulate metrics.toml --send`";
const SWAPPED = "the arguments are swapped; write the metric first, and then the answer";

/** What to do, by the code of the server or the lack of an answer. */
const REMEDIES: { readonly [code: string]: string } = {
  no_answer: `no answer came; start the server (\`deniable serve\`) at the DSN's host and port. If it runs, the page's policy needs it in connect-src, and DENIABLE_CORS_ORIGINS the page's origin; or an extension of the browser blocks it; ${KEPT}`,
  no_tls: `no answer came by https://; write http:// in the DSN if the server of this machine has no TLS, as \`deniable serve\` has none. Else see whether the browser trusts its certificate; ${KEPT}`,
  unknown_key: "the server does not know the DSN's key; write a key into the DSN that the server knows, such as the one that `deniable serve` prints",
  other_app: "the DSN is not that of this app; write the DSN that `deniable serve` prints for it",
  unknown_metric: REGISTRY,
  unknown_version: REGISTRY,
  definition_mismatch: `if you changed the metric, raise its version; ${REGISTRY}`,
  segment: REGISTRY,
  period: REGISTRY,
  period_closed: "see whether this machine's clock is right; else raise `grace`",
  period_not_open: "set the clock of this machine, or of the server",
};

const SHEET = "pass what `deniable registry show --typescript metrics.toml` writes";
const STATE = 'write "memory", pass a store such as `await fileStore("folder")` of deniable/node, or leave it out';
const OPTIONS: { readonly [name in keyof Options<Sheet>]-?: true } = {
  dsn: true,
  registry: true,
  consent: true,
  segments: true,
  caps: true,
  state: true,
  registryKey: true,
  strict: true,
  now: true,
  fetch: true,
};

type Client = Telemetry<Sheet> & { readonly options: { fetch?: typeof fetch } };
type Record_ = (id: string, answer: unknown) => Promise<boolean>;

/** Name each mistake once for each metric and reason, on the console. Return `record` as it is watched: answers one after another. */
export function watch(client: Client, record: Record_): Record_ {
  const said = new Set<string>();
  const tell = (lines: () => Line[], strict?: boolean): void => {
    if (strict) {
      const [[subject, , words]] = lines() as [Line];
      throw new TypeError(`${subject}: ${words}`);
    }
    try {
      for (const [subject, reason, words] of lines()) {
        if (words && !said.has(`${subject} ${reason}`)) console.warn(`deniable: ${subject}: ${reason}: ${words}`);
        said.add(`${subject} ${reason}`);
      }
    } catch {
      // a line less
    }
  };
  const { options } = client;
  const asked = options.fetch ?? fetch;
  options.fetch = async (input, init) => {
    const body = await plain(init?.body);
    const failed = (why: string, content?: unknown): void => tell(() => (client.agreed() ? ofUpload(options.dsn, why, content, body) : []));
    const response = await asked(input, init).catch((error: unknown) => {
      failed("no_answer");
      throw error;
    });
    const content: unknown = await response.clone().json().catch(() => null);
    if (init?.method === "POST") failed(String(response.status), content);
    return response;
  };
  let { consent } = options;
  const set = client.setConsent.bind(client);
  client.setConsent = (other) => set((consent = other));
  tell(() => ofOptions(options));
  if (client.stats().disabled !== null) tell(() => ofAnswer(client, "disabled", "", undefined));
  else tell(() => [["all metrics", "dsn", ofDsn(options) && `the DSN ${ofDsn(options)}; nothing arrives meanwhile`]]);
  if (!ofState(options)) tell(() => Object.keys(client.stats().off).flatMap((id) => ofAnswer(client, "off", id, undefined)));
  let before: Promise<unknown> = Promise.resolve();
  return (id, answer) => {
    const watched = async (): Promise<boolean> => {
      const { dropped, undeclared } = client.stats();
      const queued = await record(id, answer);
      const now = client.stats();
      const reason = Object.keys(now.dropped).find((each) => each in REASONS && now.dropped[each] !== dropped[each]);
      const { strict } = options;
      if (!queued && reason === "error" && ofState(options)) return queued; // said at the start
      if (!queued && reason === "no_consent") tell(() => [["all metrics", reason, thrown(consent) || REASONS[reason]!]]);
      const ahead = reason === "budget" ? await (await client.explain(id))?.days().catch(() => null) : null;
      if (!queued && reason) tell(() => ofAnswer(client, reason, id, answer, ahead), strict && ["off", "unknown_metric"].includes(reason));
      if (now.undeclared > undeclared) tell(() => ofAnswer(client, "undeclared", id, answer), strict);
      else if (!UNSEEN.has(reason)) tell(() => ofAnswer(client, "clipped", id, answer));
      return queued;
    };
    const watching = before.then(watched);
    before = watching.catch(() => undefined);
    return watching;
  };
}

type Line = readonly [subject: string, reason: string, words: string];

/** Say what is wrong with the names of options and of segments, and with the state. */
function ofOptions(options: Options<Sheet>): Line[] {
  const names = Object.keys(OPTIONS);
  const odd = Object.keys(options).filter((name) => !names.includes(name));
  const declared = ofRegistry(options) ? [] : Object.keys(options.registry.segments);
  const strange = ofRegistry(options) ? [] : Object.keys(options.segments ?? {}).filter((name) => !declared.includes(name));
  const unsent = "the registry declares no such segment, so it is not sent";
  return [
    ...strange.map((name): Line => [`segment ${name}`, "unknown_segment", `${unsent}${nearest(name, declared)}`]),
    ...odd.map((name): Line => ["all metrics", name, `this is no option of init${nearest(name, names) || `: write one of ${names.join(", ")}`}`]),
    ["all metrics", "state", ofState(options)],
  ];
}

function ofState({ state }: Options<Sheet>): string {
  const usable = !state || state === "memory" || typeof state.transact === "function";
  return usable ? "" : `\`state\` is ${seen(state)}: ${STATE}`;
}

function ofRegistry({ registry }: Options<Sheet>): string {
  if (typeof registry === "object" && registry?.metrics) return "";
  return `\`registry\` is ${registry === undefined ? "missing" : seen(registry)}: ${SHEET}`;
}

/** Say that a consent function throws; empty if it does not. */
function thrown(consent: unknown): string {
  try {
    if (typeof consent === "function") consent();
    return "";
  } catch (error) {
    return `the consent function has thrown ${(error as Error | null)?.name ?? "an error"}, which is taken for a no`;
  }
}

function ofAnswer(client: Client, reason: string, id: string, answer: unknown, ahead: number | null = null): Line[] {
  const { registry } = client.options;
  const odd = ofRegistry(client.options);
  if (odd) return [["all metrics", "disabled", `the client is off: ${odd}; nothing is recorded meanwhile`]];
  const metric = Object.hasOwn(registry.metrics, id) ? registry.metrics[id] : undefined;
  const { off, disabled } = client.stats();
  if (reason === "disabled") {
    const sealed = registry.relay ? ". Reports of this app are sealed for a relay, which a page cannot do" : "";
    const wrong = String(disabled).startsWith("the DSN ") && ofDsn(client.options);
    const why = wrong ? `the DSN ${wrong}` : disabled === "closed" ? "close() was called; call it at the end only" : disabled;
    return [["all metrics", reason, `the client is off: ${why}${sealed}; nothing is recorded meanwhile`]];
  }
  if (reason === "off") return [[id, reason, `the metric is off: ${off[id]}${MENDED[off[id]!] ?? segments(client.options, metric)}`]];
  if (reason === "unknown_metric") {
    if (typeof answer === "string" && Object.hasOwn(registry.metrics, answer)) return [[answer, reason, SWAPPED]];
    const meant = nearest(String(id), Object.keys(registry.metrics));
    return [[seen(id), reason, `the registry does not declare the metric; correct the name, or add the metric to metrics.toml${meant}`]];
  }
  if (reason === "budget") return [[id, reason, budget(client.options, metric!, ahead)]];
  if (reason === "undeclared") return [[id, reason, undeclared(metric!, answer)]];
  if (reason === "clipped") return [[id, reason, clipped(metric!, answer)]];
  const alike = ["no_consent", "queue_full", "refused_key", "state"].includes(reason);
  return [[alike ? "all metrics" : id, reason, REASONS[reason]!]];
}

const COPY = "copy the one of your server, which `deniable serve` prints";

/** Say what is wrong with a DSN, and write the one that works as far as it is known, without a key; empty if nothing is wrong. */
function ofDsn({ dsn, registry: { app } }: Options<Sheet>): string {
  const text = String(dsn ?? "").trim();
  if (/^["'`]|["'`]$/.test(text)) return "has quotes around it: write it without them";
  if (/\s/.test(text)) return "has white space in it: write it as one word";
  const [, scheme = "", key, place = "", path = ""] = /^(?:([a-z]+):\/\/)?(?:([^@/]*)@)?([^/?#]*)(.*)$/is.exec(text)!;
  const [, host = "", port] = /^(.*?)(?::(\d+))?$/.exec(place)!;
  const here = /^(localhost|127(\.\d+){3}|\[::1\])$/i.test(host);
  // What is before an @ is the key, and without one the host may be it.
  const address = host && (key || here) ? place : "host";
  const works = `write it as ${here && scheme !== "https" ? "http" : "https"}://PUBLIC_KEY@${address}/${app}`;
  if (!/^https?$/.test(scheme)) return `does not begin with https:// or http://: ${works}`;
  if (!key) return `has no key before its host: ${works}, with the key that \`deniable serve\` prints`;
  if (/^[rax]k_/.test(key)) return "has a key that no page may hold: write the app's ingest key (pk_...), which is public";
  if (/(^|\.)example\.(org|com|net)$/.test(host)) return `is that of an example: ${COPY}`;
  if (/^((PUBLIC|YOUR)_)?KEY$|\.\.\.$|^[<{$]/.test(key)) return `has a placeholder where its key should be: ${COPY}`;
  if (!/^[\w-]+$/.test(key)) return `has more than the public key before its host: ${works}`;
  if (!host) return `has no host: ${works}`;
  if (port && (port === "0" || Number(port) > 65535)) return `has port ${port}: write a number from 1 to 65535, as in the DSN that \`deniable serve\` prints`;
  if (scheme === "http" && !here) return `leads to ${seen(host)} by http://, where anybody on the way can read what is sent: ${works}`;
  const [, prefix = "", name] = /^((?:\/[^/?#]+)*)\/([a-z0-9_.-]{1,80})\/?$/.exec(path) ?? [];
  if (!name) return `does not end with the app's name, but with ${seen(path)}: ${works}`;
  if (/\/v1(\/|$)/.test(prefix)) return `has the path of an upload, which the SDK adds by itself: ${works}`;
  if (name !== app) return `is for app ${seen(name)} and the registry for app ${seen(app)}: ${works}, or pass the registry of ${seen(name)}`;
  return "";
}

/** What to do about a metric that is off, by why. */
const MENDED: { readonly [why: string]: string } = {
  "needs a lasting state": `; it keeps its answer, and \`state: "memory"\` forgets: leave out \`state\`, and a new browser is asked once its part of the budget is earned. In Node pass \`await fileStore("folder")\` of deniable/node, which asks at once. ${SIMULATED}`,
  "above `caps`": "; raise `caps` of init, or lower the epsilon of the metric",
};

/** Say when there is budget for a metric, and how a developer goes on until then. */
function budget({ state }: Options<Sheet>, { epsilon_permanent: kept }: SheetMetric, days: number | null): string {
  if (days === null) return "there is no budget left for it, and none later; raise `budget` in metrics.toml, for the page and for the server";
  const when = `in ${days} ${days === 1 ? "day" : "days"}`;
  if (state === "memory" || state?.forgets === false) return `the month's budget is spent, and there is more ${when}; raise \`per_month\` in metrics.toml, or ask less often`;
  const earned = `it is asked ${when}, when its part of the budget is earned: a browser that is new earns a month's budget in 30 days`;
  if (kept !== null) return `${earned}, and a metric that keeps its answer is never asked before. ${SIMULATED}`;
  return `${earned}, and answers one question at first. To try it now, pass state: "memory" while you develop`;
}

/** Say which value of a segment is missing or not declared; empty if none is. */
function segments({ registry, segments = {} }: Options<Sheet>, metric: SheetMetric | undefined): string {
  const name = metric?.segments.find((each) => !registry.segments[each]?.includes(segments[each] ?? ""));
  const values = name && registry.segments[name];
  const given = name && segments[name];
  const wrong = given === undefined ? "" : `: ${seen(given)} is not declared`;
  return values ? `${wrong}; pass segments: { ${name}: ${JSON.stringify(values[0])} } to init, with one of ${values.join(", ")}` : "";
}

function undeclared(metric: SheetMetric, answer: unknown): string {
  const { type, values, range, none, other } = metric;
  const listed = (values ?? []).slice(0, 20).map((value) => seen(value));
  const allowed = listed.length
    ? `${type === "set" ? "an answer is a list or set of" : "an answer is one of"} ${listed.join(", ")}${values!.length > 20 ? " and others" : ""}`
    : `an answer is ${range ? `a number from ${range[0]} to ${range[1]}` : type === "key" ? "a whole number of 64 bits" : "a text"}`;
  const texts = (values ?? []).filter((value): value is string => typeof value === "string");
  const option = unlisted(metric, answer);
  const odd = option ?? answer;
  const meant = typeof odd === "string" && texts.length ? (texts.includes(odd) ? "" : nearest(odd, texts)) : alike(odd, values ?? []);
  const instead = other !== null ? seen(other) : type === "number" ? (none ?? "the low end of the range") : "a random one";
  const report = "If a report is made now, it says";
  const said = option === undefined ? `${report} ${instead} instead`
    : other !== null ? `${report} ${instead} instead of ${seen(option)}, and the other options stay`
    : `The whole answer is lost with ${seen(option)}: declare \`other\`, so that the other options stay. ${report} a random set instead`;
  return `${seen(answer)} is not declared: ${allowed}${meant || "."} ${said}`;
}

/** The first text among the options of an answer that a set does not list. */
function unlisted({ type, values }: SheetMetric, answer: unknown): string | undefined {
  if (type !== "set" || !(Array.isArray(answer) || answer instanceof Set)) return undefined;
  return [...answer].find((option): option is string => typeof option === "string" && !values!.some((value) => value === option));
}

function clipped({ range, unit, max_length }: SheetMetric, answer: unknown): string {
  if (max_length !== null && typeof answer === "string") {
    const { length } = new TextEncoder().encode(answer.replace(/[\0\ud800-\udfff]/gu, "?"));
    const rule = `${seen(answer)} is longer than ${max_length} bytes: a report says its beginning`;
    return length > max_length ? `${rule}; record shorter texts, or raise \`max_length\`` : "";
  }
  const beyond = range && answer != null && (Number(answer) < Number(range[0]) || Number(answer) > Number(range[1]));
  const words = () => `${seen(answer)} is beyond the range, ${range![0]} to ${range![1]}${unit ? ` ${unit}` : ""}`;
  return beyond ? `${words()}: a report says the nearer end; see whether the unit is right, or widen \`range\`` : "";
}

/** Ask whether the one text with the same number was meant, or the boolean that an answer may stand for; empty if there is none. */
function alike(odd: unknown, values: readonly unknown[]): string {
  if (typeof odd !== "number" && typeof odd !== "string") return "";
  const meant = values.filter((value) =>
    typeof value === "boolean" ? odd === Number(value) || odd === String(value) : parseFloat(String(value)) === odd,
  );
  return meant.length === 1 ? `; did you mean ${seen(meant[0])}?` : "";
}

/** Read the body of an upload. */
async function plain(body: unknown): Promise<string> {
  if (!(body instanceof ArrayBuffer)) return typeof body === "string" ? body : "{}";
  return new Response(new Blob([body]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

function ofUpload(dsn: string, why: string, content: unknown, body: string): Line[] {
  const { type, code, detail, errors } = (content ?? {}) as {
    type?: unknown; code?: string; detail?: unknown; errors?: { group: number; code: string; detail?: unknown }[];
  };
  const ours = typeof code === "string" && type === `urn:deniable:problem:${code}`;
  if (Array.isArray(errors) && errors.length) {
    const { groups } = JSON.parse(body) as { groups?: { metric: string }[] };
    return errors.map((each) => [groups?.[each.group]?.metric ?? "upload", String(each.code), remedied(String(each.code), each.detail)]);
  }
  const here = why === "no_answer" && /^\s*https:.*@(localhost|127[.\d]+|\[::1])[:/]/.test(dsn);
  return why === "202" ? [] : [["upload", ours ? code : why, remedied(here ? "no_tls" : ours ? code : why, detail)]];
}

function remedied(code: string, detail: unknown): string {
  const foreign = /^\d/.test(code) ? `what answered is no deniable server; see what listens at the DSN's host and port. ${KEPT}` : "";
  const words = [typeof detail === "string" ? detail.slice(0, 300) : "", REMEDIES[code] ?? foreign].filter(Boolean);
  return words.join("; ") || "the server refuses it; read its log";
}

/** Write a value of the page, cut. */
function seen(value: unknown): string {
  const text = typeof value === "string" || Array.isArray(value) ? JSON.stringify(value) : String(value);
  return text.length > 60 ? `${text.slice(0, 60)}...` : text;
}

/** Ask whether the word most like another one was meant; empty if none is like it. */
function nearest(word: string, words: readonly string[]): string {
  const [best] = words.map((each) => [distance(word.toLowerCase(), each.toLowerCase()), each] as const).sort(([a], [b]) => a - b);
  return best && best[0] <= Math.max(1, best[1].length / 3) ? `; did you mean ${seen(best[1])}?` : "";
}

/** How many letters must be changed, added or left out. */
function distance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, i) => i);
  for (let i = 1; i <= Math.min(one.length, 100); i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++) {
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + Number(one[i - 1] !== other[j - 1])));
    }
    row = next;
  }
  return row.at(-1)!;
}
