/** Sending: one batch after another, each under one key and with one body for good. */

import { bodyOf, type Report } from "./batch.js";
import { jitter, random } from "../noise/chance.js";
import type { Address } from "./dsn.js";
import { unsent, type Batch, type Outbox, type State, type Store, type Waiting } from "../device/state.js";

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

/** Count what was dropped. */
export function drop({ dropped }: Counts, reason: string, count = 1): void {
  if (count) dropped[reason] = (dropped[reason] ?? 0) + count;
}

interface Verdict {
  readonly what: "done" | "split" | "keep" | "lost" | "refused";
  /** Why not all of it arrived: a code, or empty. */
  readonly why: string;
  readonly rejected?: number;
  /** Places of groups of which a report was rejected. */
  readonly groups?: readonly number[];
  readonly pause?: number;
}

/** What a server answers. */
export interface Answer {
  readonly status: number;
  /** Its JSON; null if it has none. */
  readonly content: unknown;
  readonly retry: string | null;
}

export class Sender {
  /** Why the key was refused: then nothing is sent until the next start. Empty if it was not. */
  refused = "";
  /** Why reports did not arrive when last tried; empty if all did. */
  why = "";
  /** Whether what waits is to be sent. What is recorded while batches are on their way waits for the next time. */
  #asked = false;
  #running: Promise<void> | undefined;
  #abort = new AbortController();

  readonly #batchOf = (reports: readonly Report[]): Batch => ({
    key: random(16),
    body: bodyOf(this.address.app, reports),
    reports,
    tried: 0,
  });

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
    this.#asked = true;
    this.#running ??= this.#locked(leaving).finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  /** Drop everything that is not sent yet, also what is on its way. */
  async purge(): Promise<void> {
    this.#cut();
    if (await this.store.begun()) {
      const dropped = await this.store.transactAll((state, outbox) => {
        const count = unsent(state, outbox);
        state.waiting = [];
        outbox.batches = [];
        return count;
      });
      drop(this.counts, "purged", dropped);
    }
  }

  /** End what is on its way. */
  #cut(): void {
    this.#abort.abort();
    this.#abort = new AbortController();
  }

  /** Of several tabs that share a state, one sends. */
  async #locked(leaving: boolean): Promise<void> {
    const send = async (lock: unknown): Promise<void> => {
      if (lock) return this.#sendAll(leaving);
      this.why = "busy";
    };
    const locks = this.store.lasts && (globalThis.navigator as Navigator | undefined)?.locks;
    await (locks ? locks.request(`deniable ${this.address.app}`, { ifAvailable: true }, send) : send(true));
  }

  async #sendAll(leaving: boolean): Promise<void> {
    let lost = this.refused;
    for (let tries = 0; this.allowed() && !this.refused; ) {
      this.why = lost;
      const batch = await this.store.transactAll((state, outbox) => this.#next(state, outbox));
      lost = this.why;
      if (!batch || !this.allowed()) return;
      const verdict = await this.#try(batch, leaving);
      const { what, why, pause = 0 } = verdict;
      this.why = lost || why;
      if (what === "refused") this.refused = why;
      else if (what !== "keep") {
        await this.store.transactAll((_, outbox) => this.#settle(outbox, batch, verdict));
        lost = this.why;
        tries = 0;
      } else {
        if (++tries === TRIES || leaving) return;
        await new Promise((resolve) => setTimeout(resolve, 1000 * Math.max(jitter() * 2 ** (tries - 1), pause)));
      }
    }
  }

  /** Return the batch that is tried next, and note that its key may be seen from now on. */
  #next(state: State, outbox: Outbox): Batch | undefined {
    const now = this.now();
    const before = unsent(state, outbox);
    outbox.batches = outbox.batches.filter((batch) => !batch.tried || now - batch.tried <= HOURS_48);
    const old = before - unsent(state, outbox);
    drop(this.counts, "too_old", old);
    if (old) this.why ||= "too_old";
    if (this.#asked) {
      const free: Report[] = [];
      state.waiting = state.waiting.filter((written) => {
        const { due, wait, ...report } = JSON.parse(written) as Waiting;
        // If the clock was set back, a report waits no longer than it was to wait.
        const kept = now < due && due - now <= wait;
        if (!kept) free.push(report);
        return kept;
      });
      for (let at = 0; at < free.length; at += REPORTS) outbox.batches.push(this.#batchOf(free.slice(at, at + REPORTS)));
      this.#asked = false;
    }
    const [batch] = outbox.batches;
    if (batch) batch.tried ||= now;
    return batch;
  }

  #settle(outbox: Outbox, batch: Batch, verdict: Verdict): void {
    const at = outbox.batches.findIndex(({ key }) => key === batch.key);
    if (at < 0) return; // it was purged meanwhile
    const { reports } = batch;
    const half = Math.ceil(reports.length / 2);
    const halves = verdict.what === "split" && reports.length > 1 ? [reports.slice(0, half), reports.slice(half)].map(this.#batchOf) : [];
    outbox.batches.splice(at, 1, ...halves);
    if (verdict.what === "done") {
      this.counts.sent += reports.length - verdict.rejected!;
      this.counts.rejected += verdict.rejected!;
      outbox.sent = [...taken(batch, verdict.groups!), ...outbox.sent].slice(0, JOURNAL);
    } else if (!halves.length) {
      drop(this.counts, "refused", reports.length);
    }
  }

  async #try(batch: Batch, leaving: boolean): Promise<Verdict> {
    try {
      const zipped = leaving ? undefined : await gzip(batch.body);
      const { status, content, retry } = await this.request("/v1/reports", {
        method: "POST",
        body: zipped ?? batch.body,
        headers: {
          "Content-Type": "application/json",
          "Idempotency-Key": batch.key,
          ...(zipped ? { "Content-Encoding": "gzip" } : {}),
        },
        keepalive: leaving,
      });
      return verdictOf(status, content, retry, this.now());
    } catch {
      return { what: "keep", why: "no_answer" }; // nobody knows whether it arrived, so it keeps its key
    }
  }

  /** Ask the server, with nothing that a browser would add. It is cut after some seconds, and by a withdrawal. */
  async request(path: string, { headers, ...init }: RequestInit): Promise<Answer> {
    const { signal } = this.#abort;
    const timer = setTimeout(() => this.#cut(), TIMEOUT);
    try {
      const response = await this.fetcher(this.address.url + path, {
        ...init,
        headers: {
          Authorization: `Bearer ${this.address.key}`,
          // In Node only: from a browser, also from its workers, a server of another origin would refuse this header.
          ...(!globalThis.document && "process" in globalThis ? { "User-Agent": "deniable" } : {}),
          ...headers,
        },
        credentials: "omit",
        redirect: "error",
        referrerPolicy: "no-referrer",
        cache: "no-store",
        signal,
      });
      const content: unknown = await response.json().catch(() => null);
      return { status: response.status, content, retry: response.headers.get("Retry-After") };
    } finally {
      clearTimeout(timer);
    }
  }
}

/** The reports of a batch that the server took, without those of metrics of which it rejected any. */
function taken(batch: Batch, rejected: readonly number[]): Report[] {
  const { groups } = JSON.parse(batch.body) as { groups: Report[] };
  const out = rejected.map((place) => groups[place]?.metric);
  return batch.reports.filter(({ metric }) => !out.includes(metric));
}

export function verdictOf(status: number, answer: unknown, retry: string | null, now: number): Verdict {
  if (status === 202) {
    const { rejected = 0, errors = [] } = (answer ?? {}) as { rejected?: number; errors?: { group: number; code: string }[] };
    return { what: "done", why: errors[0]?.code ?? "", rejected, groups: errors.map((error) => error.group) };
  }
  if (status === 413) return { what: "split", why: "" };
  const { type, code } = (answer ?? {}) as { type?: unknown; code?: string };
  // Only a deniable server's refusal costs a report. A portal or a proxy may answer anything.
  const ours = type === `urn:deniable:problem:${code}`;
  if (ours && status >= 400 && status < 500) {
    if (status === 401 || status === 403) return { what: "refused", why: code! };
    if (status !== 408 && status !== 429) return { what: "lost", why: code! };
  }
  const seconds = Number(retry) || (Date.parse(retry!) - now) / 1000 || 0;
  return { what: "keep", why: ours ? code! : `${status}`, pause: Math.min(Math.max(seconds, 0), LONGEST_WAIT) };
}

async function gzip(body: string): Promise<ArrayBuffer | undefined> {
  if (!globalThis.CompressionStream) return undefined;
  return new Response(new Response(body).body!.pipeThrough(new CompressionStream("gzip"))).arrayBuffer();
}
