/** The client of an app: consent, recording, sending. */

import { position, standIn } from "./wire/answers.js";
import { pack, type Report } from "./wire/batch.js";
import { Fraction, jitter, withChance } from "./noise/chance.js";
import { readDsn } from "./wire/dsn.js";
import type { Explanation } from "./explain.js";
import { budgetOf, spend, spentEver, spentIn, type Budget } from "./device/ledger.js";
import { lesser } from "./device/limits.js";
import { oracleOf, refusal, type Oracle } from "./noise/mechanisms.js";
import { periodOf } from "./wire/periods.js";
import { respond, type Made } from "./device/responses.js";
import { drop, Sender } from "./wire/sender.js";
import type { Answer, Id, Period, Sheet, SheetMetric } from "./sheet.js";
import { BrowserStore, MemoryStore, unsent, type Limit, type Parts, type Served, type State, type Store, type Waiting } from "./device/state.js";

const FULL = 5000; // reports that wait at most
const SEND_AT = 100;
const INTERVAL = 60_000;
const YOUNG = 10_000;

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
  /** The public key of a served registry, in base64: it can only turn metrics off and down. Without it none is asked for. */
  readonly registryKey?: string;
  /** Whether mistakes of the app are thrown, and not only named: an unusable DSN or registry, an undeclared metric or answer. */
  readonly strict?: boolean;
  /** For tests. */
  readonly now?: () => number;
  fetch?: typeof fetch;
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

/** What became of reports. If `why` is empty nothing failed: without `sent` nothing was recorded. */
export interface Flushed {
  /** How many the server took meanwhile. */
  readonly sent: number;
  /** How many wait: for another try, or until they may travel. */
  readonly left: number;
  /**
   * Why some did not arrive: a code of the server such as `unknown_key`, `no_answer`, `too_old` (given up 48 hours after the first
   * try), or `busy` (another tab of this site sends now, also what waits here). Else why an answer was dropped since the last
   * `flush`, such as `no_consent`. Of a client that is off it is why. Empty if there is nothing to explain.
   */
  readonly why: string;
}

interface Prepared {
  readonly id: string;
  readonly oracle: Oracle;
  readonly segment: string;
  readonly delay: number;
}

/** What the person's system says against telemetry, or null. */
export function objection(): string | null {
  const { navigator, process } = globalThis as {
    navigator?: { doNotTrack?: unknown; globalPrivacyControl?: unknown };
    process?: { env?: { [name: string]: unknown } };
  };
  const said: { [name: string]: unknown } = {
    ...process?.env,
    globalPrivacyControl: navigator?.globalPrivacyControl,
    doNotTrack: navigator?.doNotTrack === "1",
  };
  const name = ["globalPrivacyControl", "doNotTrack", "DENIABLE_DISABLED", "DO_NOT_TRACK"].find((each) => said[each] && said[each] !== "0");
  return name ? `${name} is set` : null;
}

/** Do something later. A program of Node may end before. */
function after(milliseconds: number, block: () => void): ReturnType<typeof setTimeout> {
  const timer = setTimeout(block, milliseconds);
  (timer as { unref?: () => void }).unref?.();
  return timer;
}

export class Telemetry<S extends Sheet> {
  readonly #counts = { recorded: 0, sent: 0, rejected: 0, undeclared: 0, repeated: 0, dropped: {} as { [reason: string]: number } };
  readonly #off: { [metric: string]: string } = {};
  readonly #metrics = new Map<string, Prepared>();
  readonly #now: () => number;
  #disabled: string | null = null;
  #dropped = ""; // why an answer was dropped, since the last flush
  #consent: boolean | (() => boolean);
  #store!: Store;
  #budget!: Budget;
  #sender!: Sender;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly options: Options<S>,
    /** Whether `mistakes.ts` says why it is off. */
    readonly named = false,
  ) {
    this.#now = options.now ?? Date.now;
    this.#consent = options.consent;
    try {
      this.#open(options);
    } catch (error) {
      if (options.strict) throw error;
      this.#turnOff((error as Error).message);
    }
  }

  #turnOff(why: string): void {
    this.#disabled = why;
    if (!this.named) console.warn(`deniable is off: ${why}`);
  }

  #open(options: Options<S>): void {
    const { registry } = options;
    const address = readDsn(options.dsn);
    if (registry?.format !== 1 || registry.relay) throw new TypeError("the registry is not known here");
    if (registry.app !== address.app) throw new TypeError(`the DSN is for "${address.app}", not "${registry.app}"`);
    const chosen = options.state === "memory" ? new MemoryStore(this.#now) : options.state;
    if (!chosen && !globalThis.indexedDB) throw new TypeError("no database: pass `state`");
    this.#store = chosen ?? new BrowserStore(registry.app, this.#now);
    this.#budget = budgetOf(registry, this.#store.forgets);
    this.#sender = new Sender(address, this.#store, this.#counts, () => this.agreed(), this.#now, (...call) => (options.fetch ?? fetch)(...call));
    this.#disabled = objection();
    for (const [id, metric] of Object.entries(registry.metrics)) {
      const why = this.#why(metric);
      if (why) this.#off[id] = why;
      else this.#metrics.set(id, this.#prepared(id, metric));
    }
    this.#listen("addEventListener");
    after(YOUNG, () => void this.#ask());
    if (this.agreed()) this.#later();
    else void this.#sender.purge().catch(() => undefined); // what an earlier page left, if there is a state at all
  }

  /** Why a metric is off, or null. */
  #why(metric: SheetMetric): string | null {
    const { caps = {}, segments = {} } = this.options;
    const permanent = metric.epsilon_permanent !== null;
    const strange = metric.segments.find((name) => !this.options.registry.segments[name]?.includes(segments[name] ?? ""));
    const why = metric.off ?? refusal(metric);
    if (why) return why;
    if (permanent && !this.#store.lasts) return "needs a lasting state";
    if (metric.allowance.cost > (caps[permanent ? "permanent" : "epsilon"] ?? Infinity) * 1e6) return "above `caps`";
    return strange ? `the segment "${strange}" has no declared value` : null;
  }

  #prepared(id: string, metric: SheetMetric): Prepared {
    const { segments = {} } = this.options;
    const delay = metric.delay ?? "0h";
    return {
      id,
      oracle: oracleOf(metric),
      segment: metric.segments.map((name) => `${name}=${segments[name]}`).join(),
      delay: parseInt(delay) * (delay.at(-1) === "d" ? 86_400 : 3600),
    };
  }

  /** Whether answers may be recorded now. */
  agreed(): boolean {
    try {
      return !this.#disabled && (typeof this.#consent === "function" ? this.#consent() : this.#consent) === true;
    } catch {
      return false;
    }
  }

  #drop(reason: string): false {
    drop(this.#counts, (this.#dropped = reason));
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
    if (!prepared) return this.#drop(Object.hasOwn(this.#off, id) ? "off" : "unknown_metric");
    if (!this.agreed()) return this.#drop("no_consent");
    const { oracle } = prepared;
    const { metric } = oracle;
    const now = this.#now();
    return withChance((chance) => {
      // It is drawn before the answer is looked at.
      const wait = prepared.delay ? 1000 * chance.below(prepared.delay + 1) : 0;
      let at: bigint | null = null;
      let undeclared = 0; // 1 if an option of a set is not declared
      try {
        at = position(metric, answer, () => (undeclared = 1));
      } catch {
        // an object of the app whose own methods fail is an undeclared answer
      }
      this.#counts.undeclared += at === null ? 1 : undeclared;
      let make: (state: State) => Made | string;
      if (metric.epsilon_permanent !== null) {
        // The position waits in memory for the transaction: only there it is known which response is kept for it.
        make = (state) => withChance((inside) => respond(state, oracle, at, now, inside));
      } else {
        // Here the answer is randomised at once. The report is dropped if it is not sampled, or if the ledger refuses it.
        const payload = pack(metric.layout, ...oracle.randomize(at ?? standIn(metric, chance), chance));
        make = () => ({ payload, repeated: false });
      }
      return this.#spend(prepared, now, wait, make);
    });
  }

  /** The sample and the end of a metric: its own, and the served registry's. */
  #limit({ id, oracle }: Prepared, served: Served | undefined): Limit | null {
    const { registryKey, registry } = this.options;
    const { sample, expires: until } = oracle.metric;
    const own = { sample, until };
    if (!served?.limits || served.key !== registryKey || served.revision < registry.revision) return own;
    return Object.hasOwn(served.limits, id) ? lesser(own, served.limits[id]!) : null;
  }

  /** Ask the server what stays on, if the app pins a key. An answer that must not be used ends all until the next start. */
  async #ask(): Promise<void> {
    if (!this.options.registryKey || !this.agreed()) return;
    try {
      const { ask } = await import("./served.js");
      const fault = await ask(this.options, this.#store, this.#now, this.#sender, { lesser, jitter });
      if (fault) this.#turnOff(fault);
    } catch {
      // Without its code, or without a state, it is as if nobody had answered.
    }
  }

  /** Spend and queue in one transaction. */
  async #spend(
    prepared: Prepared,
    now: number,
    wait: number,
    make: (state: State) => Made | string,
  ): Promise<boolean> {
    const { id, segment, oracle } = prepared;
    const { metric } = oracle;
    const { version, fingerprint } = metric;
    const outcome = await this.#store.transact((state) => {
      if (!this.agreed()) return "no_consent"; // it was withdrawn meanwhile
      if (this.#sender.refused) return "refused_key";
      if (state.waiting.length >= FULL) return "queue_full";
      const limit = this.#limit(prepared, state.served);
      if (!limit) return "off";
      if (limit.until !== null && periodOf(now, "day") > limit.until) return "expired";
      // This draw knows nothing of the answer.
      const sampled = withChance((chance) => chance.event(Fraction.read(limit.sample))) === 1;
      const refused = spend(state, metric, this.#budget, now, sampled);
      if (refused) return refused;
      const made = make(state);
      if (typeof made === "string") return made;
      const period = periodOf(now, metric.period as Period);
      const { payload } = made;
      const due = wait && now + wait;
      state.waiting.push(JSON.stringify({ metric: id, version, fingerprint, period, segment, payload, due, wait } satisfies Waiting));
      return { ...made, count: state.waiting.length };
    });
    if (typeof outcome === "string") return this.#drop(outcome);
    this.#counts.recorded++;
    if (outcome.repeated) this.#counts.repeated++;
    if (outcome.count >= SEND_AT) void this.flush();
    else this.#later();
    return true;
  }

  /** Send after a minute, give or take a random fifth. */
  #later(): void {
    if (this.#timer || this.#disabled) return;
    this.#timer = after(INTERVAL * (0.8 + 0.4 * jitter()), () => {
      this.#timer = undefined;
      void this.flush();
    });
  }

  #listen(how: "addEventListener" | "removeEventListener"): void {
    if (!globalThis.document) return;
    document[how]("visibilitychange", this.#leave);
    globalThis[how]("pagehide", this.#leave);
  }

  readonly #leave = (event: Event): void => {
    if (event.type === "pagehide" || document.visibilityState === "hidden") {
      if (this.agreed()) void this.#sender.flush(true).catch(() => undefined);
    }
  };

  /** Send what may travel, and say what became of it. */
  async flush(): Promise<Flushed> {
    const before = this.#counts.sent;
    let left = 0;
    try {
      await this.#ask();
      if (this.agreed()) await this.#sender.flush();
      left = await this.waiting();
    } catch {
      this.#drop("state");
    }
    const why = this.#disabled ?? (this.#sender.why || this.#dropped);
    this.#dropped = "";
    return { sent: this.#counts.sent - before, left, why };
  }

  /** Read from the state; where there is none, none is made. */
  async #read<T>(block: (...parts: Parts) => T, nothing: T): Promise<T> {
    return this.#store && (await this.#store.begun()) ? this.#store.transactAll(block) : nothing;
  }

  /** How many reports are not sent yet. */
  waiting(): Promise<number> {
    return this.#read(unsent, 0);
  }

  /** Start or end collection. A no deletes everything unsent; what was spent stays. */
  async setConsent(consent: boolean | (() => boolean)): Promise<void> {
    this.#consent = consent;
    try {
      if (this.agreed()) this.#later();
      else await (this.#sender as Sender | undefined)?.purge();
    } catch {
      this.#drop("state");
    }
  }

  /** Explain what recording would send; null if the metric is off or not declared. */
  async explain(metric: Id<S>): Promise<Explanation | null> {
    const prepared = this.#metrics.get(metric);
    if (!prepared) return null;
    const { explain } = await import("./explain.js"); // its words are loaded by pages that show them
    return explain(metric, prepared.oracle.metric, this.#budget, this.#store, spend, this.#now());
  }

  /** The reports that the server took, the newest first; at most 200. */
  sent(): Promise<readonly Report[]> {
    return this.#read((_, outbox) => outbox.sent, []);
  }

  /** What was spent in a month such as `2026-11`, and ever, in millionths of a nat. */
  spent(month: string): Promise<{ readonly month: number; readonly lifetime: number }> {
    return this.#read((state) => ({ month: spentIn(state, month), lifetime: spentEver(state) }), { month: 0, lifetime: 0 });
  }

  /** Counts of what happened in this page. They are never sent. */
  stats(): Stats {
    return structuredClone({ ...this.#counts, off: this.#off, disabled: this.#disabled });
  }

  /** Stop. What is unsent stays for the next page. */
  close(): void {
    this.#disabled ??= "closed";
    clearTimeout(this.#timer);
    this.#listen("removeEventListener");
  }
}
