/** The client of an app: consent, recording, sending. */

import { position, standIn } from "./wire/answers.js";
import { pack, type Report } from "./wire/batch.js";
import { Fraction, withChance } from "./noise/chance.js";
import { readDsn } from "./wire/dsn.js";
import type { Explanation } from "./explain.js";
import { budgetOf, spend, spentEver, spentIn, type Budget } from "./device/ledger.js";
import { oracleOf, refusal, type Oracle } from "./noise/mechanisms.js";
import { periodOf } from "./wire/periods.js";
import { respond } from "./device/responses.js";
import { Sender } from "./wire/sender.js";
import type { Answer, Id, Period, Sheet, SheetMetric } from "./sheet.js";
import { BrowserStore, MemoryStore, unsent, type State, type Store } from "./device/state.js";

const FULL = 5000; // reports that wait at most
const SEND_AT = 100;
const INTERVAL = 60_000;
const FORMAT = 1;

export interface Options<S extends Sheet> {
  /** `https://PUBLIC_KEY@host/app`. */
  readonly dsn: string;
  /** The sheet of the registry. */
  readonly registry: S;
  /** Only `true` is consent. A function is asked each time. */
  readonly consent: boolean | (() => boolean);
  /** The values of segments, by name. */
  readonly segments?: { readonly [name: string]: string };
  /** Most nats of a report, and of a permanent response; a metric above is off. */
  readonly caps?: { readonly epsilon?: number; readonly permanent?: number };
  /** Where the device's state is kept: by default in the browser's database. `memory` forgets with the page, and keeps no responses. */
  readonly state?: "memory" | Store;
  /** Whether mistakes of the app are thrown: an unusable DSN or registry, an undeclared metric or answer. */
  readonly strict?: boolean;
  /** For tests. */
  readonly now?: () => number;
  readonly fetch?: typeof fetch;
}

export interface Stats {
  readonly recorded: number;
  readonly sent: number;
  readonly rejected: number;
  readonly undeclared: number;
  readonly repeated: number;
  /** Answers and reports that were dropped, by reason. */
  readonly dropped: { readonly [reason: string]: number };
  /** Why metrics are off, by id. */
  readonly off: { readonly [metric: string]: string };
  /** Why nothing is recorded at all, or null. */
  readonly disabled: string | null;
}

interface Prepared {
  readonly id: string;
  readonly oracle: Oracle;
  readonly segment: string;
  readonly sample: Fraction;
  readonly delay: number;
}

/** What the person's system says against telemetry, or null. */
export function objection(): string | null {
  const navigator = (globalThis as { navigator?: { doNotTrack?: unknown; globalPrivacyControl?: unknown } }).navigator;
  if (navigator?.globalPrivacyControl === true) return "the browser says no (globalPrivacyControl)";
  if (navigator?.doNotTrack === "1") return "the browser says no (doNotTrack)";
  const env = (globalThis as { process?: { env?: { [name: string]: string | undefined } } }).process?.env ?? {};
  const name = ["DENIABLE_DISABLED", "DO_NOT_TRACK"].find((each) => (env[each] ?? "0") !== "0" && env[each]);
  return name ? `${name} is set` : null;
}

export class Telemetry<S extends Sheet> {
  readonly #counts = { recorded: 0, sent: 0, rejected: 0, undeclared: 0, repeated: 0, dropped: {} as { [reason: string]: number } };
  readonly #off: { [metric: string]: string } = {};
  readonly #metrics = new Map<string, Prepared>();
  readonly #now: () => number;
  #disabled: string | null = null;
  #consent: boolean | (() => boolean);
  #store!: Store;
  #budget!: Budget;
  #sender!: Sender;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #closed = false;

  constructor(readonly options: Options<S>) {
    this.#now = options.now ?? Date.now;
    this.#consent = options.consent;
    try {
      this.#open(options);
    } catch (error) {
      if (options.strict) throw error;
      this.#disabled = (error as Error).message;
      console.warn(`deniable is off: ${this.#disabled}`);
    }
  }

  #open(options: Options<S>): void {
    const { registry } = options;
    const address = readDsn(options.dsn);
    if (registry.format !== FORMAT) throw new TypeError(`the registry has format ${registry.format}, and ${FORMAT} is read here`);
    if (registry.app !== address.app) throw new TypeError(`the DSN is for app "${address.app}", the registry for "${registry.app}"`);
    const chosen = options.state === "memory" ? new MemoryStore(this.#now) : options.state;
    if (!chosen && !globalThis.indexedDB) throw new TypeError("no database here: pass `state`");
    this.#store = chosen ?? new BrowserStore(registry.app, this.#now);
    this.#budget = budgetOf(registry, this.#store.forgets);
    const fetcher = options.fetch ?? ((input, init) => fetch(input, init));
    this.#sender = new Sender(address, this.#store, this.#counts, () => this.agreed(), this.#now, fetcher);
    this.#disabled = objection();
    for (const [id, metric] of Object.entries(registry.metrics)) {
      const why = this.#why(metric);
      if (why) this.#off[id] = why;
      else this.#metrics.set(id, this.#prepared(id, metric));
    }
    const off = Object.entries(this.#off);
    if (off.length) console.warn(`deniable: off: ${off.map(([id, why]) => `${id} (${why})`).join("; ")}`);
    this.#listen("addEventListener");
    if (this.agreed()) this.#later();
    else void this.#sender.purge().catch(() => undefined); // what an earlier page left, if there is a state at all
  }

  /** Why a metric is off, or null. */
  #why(metric: SheetMetric): string | null {
    const { caps = {}, segments = {} } = this.options;
    const permanent = metric.epsilon_permanent !== null;
    const cap = permanent ? caps.permanent : caps.epsilon;
    const strange = metric.segments.find((name) => !this.options.registry.segments[name]?.includes(segments[name] ?? ""));
    const why = metric.off ?? refusal(metric);
    if (why) return why;
    if (permanent && !this.#store.lasts) return "it needs a state that lasts";
    if (cap !== undefined && metric.allowance.cost > cap * 1e6) return "it spends more than `caps` allow";
    return strange === undefined ? null : `the segment "${strange}" has no declared value`;
  }

  #prepared(id: string, metric: SheetMetric): Prepared {
    const { segments = {} } = this.options;
    return {
      id,
      oracle: oracleOf(metric),
      segment: metric.segments.map((name) => `${name}=${segments[name]}`).join(","),
      sample: Fraction.read(metric.sample),
      delay: parseInt(metric.delay ?? "0") * ({ m: 60, h: 3600, d: 86_400 }[metric.delay?.at(-1) ?? ""] ?? 1),
    };
  }

  /** Whether answers may be recorded now. */
  agreed(): boolean {
    if (this.#disabled || this.#closed) return false;
    try {
      return (typeof this.#consent === "function" ? this.#consent() : this.#consent) === true;
    } catch {
      return false;
    }
  }

  #drop(reason: string): false {
    this.#counts.dropped[reason] = (this.#counts.dropped[reason] ?? 0) + 1;
    return false;
  }

  /** Randomise an answer, and queue the report. The promise says whether one was queued, and is never broken unless `strict`. */
  async record<I extends Id<S>>(metric: I, answer: Answer<S["metrics"][I]>): Promise<boolean> {
    try {
      return await this.#record(metric, answer);
    } catch (error) {
      if (this.options.strict) throw error;
      return this.#drop(error instanceof DOMException ? "state" : "error");
    }
  }

  #record(id: string, answer: unknown): Promise<boolean> | boolean {
    const prepared = this.#metrics.get(id);
    if (this.#disabled) return this.#drop("disabled");
    if (!prepared) {
      const off = Object.hasOwn(this.#off, id);
      if (this.options.strict) throw new TypeError(off ? `${id} is off` : "no such metric is declared");
      return this.#drop(off ? "off" : "unknown_metric");
    }
    if (!this.agreed()) return this.#drop("no_consent");
    const { oracle } = prepared;
    const { metric } = oracle;
    const now = this.#now();
    if (metric.expires !== null && periodOf(now, "day") > metric.expires) return this.#drop("expired");
    return withChance((chance) => {
      // Both are drawn before the answer is looked at.
      const sampled = chance.event(prepared.sample) === 1;
      const wait = prepared.delay ? 1000 * chance.below(prepared.delay + 1) : 0;
      let at: bigint | null = null;
      try {
        at = position(metric, answer);
      } catch {
        // an object of the app whose own methods fail is an undeclared answer
      }
      if (metric.epsilon_permanent !== null) {
        // The position waits in memory for the transaction: only there it is known which response is kept for it.
        return this.#spend(prepared, now, sampled, wait, at === null, (state) =>
          withChance((inside) => respond(state, oracle, at, now, inside)),
        );
      }
      // Here the answer is randomised at once. The report is dropped if the ledger refuses it.
      const payload = sampled ? pack(metric.layout, ...oracle.randomize(at ?? standIn(metric, chance), chance)) : "";
      return this.#spend(prepared, now, sampled, wait, at === null, () => ({ payload, repeated: false }));
    });
  }

  /** Spend and queue in one transaction. */
  async #spend(
    prepared: Prepared,
    now: number,
    sampled: boolean,
    wait: number,
    undeclared: boolean,
    make: (state: State) => { payload: string; repeated: boolean } | string,
  ): Promise<boolean> {
    const { id, oracle } = prepared;
    const { metric } = oracle;
    const outcome = await this.#store.transact((state) => {
      if (!this.agreed()) return "no_consent"; // it was withdrawn meanwhile
      if (this.#sender.refused) return "refused_key";
      if (state.waiting.length >= FULL) return "queue_full";
      const refused = spend(state, metric, this.#budget, now, sampled);
      if (refused) return refused;
      const made = make(state);
      if (typeof made === "string") return made;
      state.waiting.push({
        metric: id,
        version: metric.version,
        fingerprint: metric.fingerprint,
        period: periodOf(now, metric.period as Period),
        segment: prepared.segment,
        payload: made.payload,
        due: wait ? now + wait : 0,
        wait,
      });
      return { count: state.waiting.length, repeated: made.repeated };
    });
    const queued = typeof outcome !== "string";
    if (queued) {
      this.#counts.recorded++;
      if (outcome.repeated) this.#counts.repeated++;
      if (outcome.count >= SEND_AT) void this.flush();
      else this.#later();
    } else {
      this.#drop(outcome);
    }
    if (undeclared) {
      this.#counts.undeclared++;
      if (this.options.strict) throw new TypeError(`an answer to ${id} is not declared`);
    }
    return queued;
  }

  /** Send after a minute, give or take a random fifth. */
  #later(): void {
    if (this.#timer !== undefined || this.#closed) return;
    const share = withChance((chance) => chance.below(1 << 16)) / (1 << 16);
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      void this.flush();
    }, INTERVAL * (0.8 + 0.4 * share));
    (this.#timer as { unref?: () => void }).unref?.(); // a program of Node may end before
  }

  #listen(how: "addEventListener" | "removeEventListener"): void {
    globalThis.document?.[how]("visibilitychange", this.#leave);
    if (globalThis.document) globalThis[how]("pagehide", this.#leave);
  }

  readonly #leave = (event: Event): void => {
    if (event.type === "pagehide" || globalThis.document?.visibilityState === "hidden") {
      if (this.agreed()) void this.#sender.flush(true).catch(() => undefined);
    }
  };

  /** Send what may travel; return how many reports the server took meanwhile, and how many are left. */
  async flush(): Promise<{ readonly sent: number; readonly left: number }> {
    const before = this.#counts.sent;
    let left = 0;
    try {
      if (this.agreed()) await this.#sender.flush();
      left = await this.waiting();
    } catch {
      this.#drop("state");
    }
    return { sent: this.#counts.sent - before, left };
  }

  /** Read from the state; where there is none, none is made. */
  async #read<T>(block: (state: State) => T, nothing: T): Promise<T> {
    return this.#disabled || !(await this.#store.begun()) ? nothing : this.#store.transact(block);
  }

  /** How many reports are not sent yet. */
  waiting(): Promise<number> {
    return this.#read(unsent, 0);
  }

  /** Start or end collection. A no deletes everything unsent; what was spent stays. */
  async setConsent(consent: boolean | (() => boolean)): Promise<void> {
    this.#consent = consent;
    if (!this.#sender) return;
    try {
      if (this.agreed()) this.#later();
      else await this.#sender.purge();
    } catch {
      this.#drop("state");
    }
  }

  /** Explain what recording would send; null if the metric is off or not declared. */
  async explain(metric: Id<S>): Promise<Explanation | null> {
    const prepared = this.#metrics.get(metric);
    if (!prepared) return null;
    const { explain } = await import("./explain.js"); // its words are loaded by pages that show them
    return explain(metric, prepared.oracle.metric, this.#budget, this.#store);
  }

  /** The reports that the server took, the newest first; at most 200. */
  sent(): Promise<readonly Report[]> {
    return this.#read((state) => state.sent, []);
  }

  /** What was spent in a month such as `2026-11`, and ever, in millionths of a nat. */
  spent(month: string): Promise<{ readonly month: number; readonly lifetime: number }> {
    return this.#read((state) => ({ month: spentIn(state, month), lifetime: spentEver(state) }), { month: 0, lifetime: 0 });
  }

  /** Counts of what happened in this page. They are never sent. */
  stats(): Stats {
    return { ...this.#counts, dropped: { ...this.#counts.dropped }, off: { ...this.#off }, disabled: this.#disabled };
  }

  /** Stop. What is unsent stays for the next page. */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#listen("removeEventListener");
  }
}
