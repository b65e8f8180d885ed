/** Sending: one batch after another, each under one key and with one body for good. */

import { bodyOf, type Report } from "./batch.js";
import { uuid, withChance } from "../noise/chance.js";
import type { Address } from "./dsn.js";
import { unsent, type Batch, type State, type Store, type Waiting } from "../device/state.js";

const REPORTS = 100; // of a batch; the body then stays below what a browser takes from a page that ends
const TRIES = 4;
const HOURS_48 = 48 * 3_600_000; // after the first try, a batch may no longer be recognised as the same
const LONGEST_WAIT = 300; // seconds of a Retry-After
const TIMEOUT = 10_000;
const JOURNAL = 200;

export interface Counts {
  sent: number;
  rejected: number;
  dropped: { [reason: string]: number };
}

interface Verdict {
  readonly what: "done" | "split" | "keep" | "lost" | "refused";
  readonly rejected?: number;
  /** Places of groups of which a report was rejected. */
  readonly groups?: readonly number[];
  readonly pause?: number;
}

export class Sender {
  /** Whether the key was refused: then nothing is sent until the next start. */
  refused = false;
  #running: Promise<void> | undefined;
  #abort = new AbortController();

  constructor(
    readonly address: Address,
    readonly store: Store,
    readonly counts: Counts,
    readonly allowed: () => boolean,
    readonly now: () => number,
    readonly fetcher: typeof fetch,
  ) {}

  /** Send what may travel. When leaving, each batch is tried once, in a way that outlives the page. */
  flush(leaving = false): Promise<void> {
    this.#running ??= this.#locked(leaving).finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  /** Drop everything that is not sent yet, also what is on its way. */
  async purge(): Promise<void> {
    this.#abort.abort();
    this.#abort = new AbortController();
    if (await this.store.begun()) {
      const dropped = await this.store.transact((state) => {
        const count = unsent(state);
        state.waiting = [];
        state.batches = [];
        return count;
      });
      this.drop("purged", dropped);
    }
  }

  drop(reason: string, count: number): void {
    if (count) this.counts.dropped[reason] = (this.counts.dropped[reason] ?? 0) + count;
  }

  /** Of several tabs that share a state, one sends. */
  async #locked(leaving: boolean): Promise<void> {
    const locks = (globalThis.navigator as Navigator | undefined)?.locks;
    if (!locks?.request || !this.store.lasts) return this.#sendAll(leaving);
    await locks.request(`deniable ${this.address.app}`, { ifAvailable: true }, async (lock) => {
      if (lock) await this.#sendAll(leaving);
    });
  }

  async #sendAll(leaving: boolean): Promise<void> {
    for (let tries = 0; this.allowed() && !this.refused; ) {
      const batch = await this.store.transact((state) => this.#next(state));
      if (!batch || !this.allowed()) return;
      const verdict = await this.#try(batch, leaving);
      await this.store.transact((state) => this.#settle(state, batch, verdict));
      if (verdict.what === "refused") this.refused = true;
      if (verdict.what !== "keep") {
        tries = 0;
        continue;
      }
      if (++tries === TRIES || leaving) return;
      const random = withChance((chance) => chance.below(1 << 16)) / (1 << 16);
      const seconds = Math.max(random * Math.min(2 ** (tries - 1), 30), verdict.pause ?? 0);
      await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
    }
  }

  /** Return the batch that is tried next, and note that its key may be seen from now on. */
  #next(state: State): Batch | undefined {
    const now = this.now();
    const before = unsent(state);
    state.batches = state.batches.filter((batch) => !batch.tried || now - batch.tried <= HOURS_48);
    this.drop("too_old", before - unsent(state));
    const free = state.waiting.filter((report) => mayTravel(report, now));
    state.waiting = state.waiting.filter((report) => !mayTravel(report, now));
    for (let at = 0; at < free.length; at += REPORTS) {
      state.batches.push(batchOf(free.slice(at, at + REPORTS).map(({ due: _, wait: __, ...report }) => report)));
    }
    const [batch] = state.batches;
    if (batch && !batch.tried) batch.tried = now;
    return batch;
  }

  #settle(state: State, batch: Batch, verdict: Verdict): void {
    const at = state.batches.findIndex(({ key }) => key === batch.key);
    if (at < 0 || verdict.what === "keep" || verdict.what === "refused") return; // perhaps it was purged meanwhile
    const { reports } = batch;
    const half = Math.ceil(reports.length / 2);
    const halves = verdict.what === "split" && reports.length > 1 ? [reports.slice(0, half), reports.slice(half)].map(batchOf) : [];
    state.batches.splice(at, 1, ...halves);
    if (verdict.what === "done") {
      this.counts.sent += reports.length - verdict.rejected!;
      this.counts.rejected += verdict.rejected!;
      state.sent = [...taken(batch, verdict.groups!), ...state.sent].slice(0, JOURNAL);
    } else if (!halves.length) {
      this.drop("refused", reports.length);
    }
  }

  async #try(batch: Batch, leaving: boolean): Promise<Verdict> {
    const own = this.#abort;
    const timer = setTimeout(() => {
      own.abort();
      this.#abort = new AbortController();
    }, TIMEOUT);
    try {
      const zipped = leaving ? undefined : await gzip(batch.body);
      const response = await this.fetcher(this.address.url, {
        method: "POST",
        body: zipped ?? batch.body,
        headers: {
          Authorization: `Bearer ${this.address.key}`,
          "Content-Type": "application/json",
          "Idempotency-Key": batch.key,
          ...(zipped ? { "Content-Encoding": "gzip" } : {}),
          // In Node only: from a browser, also from its workers, a server of another origin would refuse this header.
          ...(!globalThis.document && "process" in globalThis ? { "User-Agent": "deniable" } : {}),
        },
        credentials: "omit",
        redirect: "error",
        referrerPolicy: "no-referrer",
        cache: "no-store",
        keepalive: leaving,
        signal: own.signal,
      });
      return verdictOf(response.status, await response.json().catch(() => null), response.headers.get("Retry-After"), this.now());
    } catch {
      return { what: "keep" }; // nobody knows whether it arrived, so it keeps its key
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Whether a report may travel. If the clock was set back, it waits no longer than it was to wait. */
const mayTravel = (report: Waiting, now: number): boolean => now >= report.due || report.due - now > report.wait;

const batchOf = (reports: readonly Report[]): Batch => ({ key: uuid(), body: bodyOf(reports), reports, tried: 0 });

/** The reports of a batch that the server took, without those of metrics of which it rejected any. */
function taken(batch: Batch, rejected: readonly number[]): Report[] {
  const { groups } = JSON.parse(batch.body) as { groups: Report[] };
  const out = rejected.map((place) => groups[place]?.metric);
  return batch.reports.filter(({ metric }) => !out.includes(metric));
}

export function verdictOf(status: number, answer: unknown, retry: string | null, now: number): Verdict {
  if (status === 202) {
    const { rejected, errors } = (answer ?? {}) as { rejected?: number; errors?: { group: number }[] };
    return { what: "done", rejected: rejected ?? 0, groups: (errors ?? []).map((error) => error.group) };
  }
  if (status === 413) return { what: "split" };
  const { type, code } = (answer ?? {}) as { type?: unknown; code?: unknown };
  // Only a deniable server's refusal costs a report. A portal or a proxy may answer anything.
  if (typeof code === "string" && type === `urn:deniable:problem:${code}` && status >= 400 && status < 500) {
    if (status === 401 || status === 403) return { what: "refused" };
    if (status !== 408 && status !== 429) return { what: "lost" };
  }
  const seconds = retry === null ? 0 : /^\d+$/.test(retry) ? Number(retry) : (Date.parse(retry) - now) / 1000;
  return { what: "keep", pause: Math.min(Math.max(seconds || 0, 0), LONGEST_WAIT) };
}

async function gzip(body: string): Promise<ArrayBuffer | undefined> {
  if (!globalThis.CompressionStream) return undefined;
  return new Response(new Blob([body]).stream().pipeThrough(new CompressionStream("gzip"))).arrayBuffer();
}
