/** What a device keeps, and where. No raw answer is ever in it. */

import type { Report } from "../wire/batch.js";
import { random } from "../noise/chance.js";

/** A report that is not sent yet. */
export interface Waiting extends Report {
  /** The moment before which it must not travel, in milliseconds since 1970; 0 is at once. */
  readonly due: number;
  /** How long it may wait from now on, in milliseconds: a clock that is set back does not lengthen it. */
  readonly wait: number;
}

/** Reports that are tried together, under one key for good. */
export interface Batch {
  readonly key: string;
  readonly body: string;
  readonly reports: readonly Report[];
  /** The moment of the first try; 0 before it. */
  tried: number;
}

export interface Account {
  period: string;
  reports: number;
  /** What was ever spent, in millionths of a nat. */
  spent: number;
}

export interface Kept {
  /** The position that is reported for an undeclared answer, before it is rounded. */
  standIn: string;
  point: number;
  last: string | null;
  drawn: number;
  /** By month, where the responses are stored that were reported in it, in their order. */
  uses: { [month: string]: string[] };
}

export interface State {
  format: 1;
  /** When it was made, in milliseconds since 1970. */
  born: number;
  secret: string;
  place: [string, string];
  accounts: { [fingerprint: string]: Account };
  /** By month and fingerprint, in millionths of a nat. */
  spends: { [month: string]: { [fingerprint: string]: number } };
  kept: { [fingerprint: string]: Kept };
  responses: { [key: string]: string };
  /** Reports that wait, each a `Waiting` as JSON: databases copy a text much faster than an object. */
  waiting: string[];
  served?: Served;
}

/** The most that is asked of a metric. */
export interface Limit {
  /** The share of answers, as a decimal. */
  readonly sample: string;
  /** The last day; null if there is none. */
  readonly until: string | null;
}

export type Limits = { readonly [metric: string]: Limit };

/** What a served registry said. */
export interface Served {
  /** The key that its signature was checked with. */
  key: string;
  /** The highest revision that was ever taken; 0 for none. */
  revision: number;
  text: string;
  /** The last day on which its text may be handed out; null if there is none. */
  until: string | null;
  /** The metrics that stay on; null while nothing is restricted. */
  limits: Limits | null;
  /** Those that every text so far left on, each with the least. */
  least: Limits | null;
  /** When it is asked for again, in milliseconds since 1970. */
  next: number;
}

/** What is on its way, and what has arrived. It is kept apart from the state, so that no record reads and writes it. */
export interface Outbox {
  batches: Batch[];
  /** Reports that the server took, the newest first. */
  sent: Report[];
}

/** What is kept, in this order. */
export type Parts = [state: State, outbox: Outbox];

/** Where a state is kept. */
export interface Store {
  /** Whether it may be forgotten without anybody's doing, so that a new state has to earn its budget. */
  readonly forgets: boolean;
  /** Whether it lasts, so that permanent responses can be kept. */
  readonly lasts: boolean;
  /** Read and change the state. When the promise is kept, the change is durable; if `block` throws, nothing changes. */
  transact<T>(block: (state: State) => T): Promise<T>;
  /** The same of the state and the outbox together. */
  transactAll<T>(block: (...parts: Parts) => T): Promise<T>;
  /** Whether there is a state; asking makes none. */
  begun(): Promise<boolean>;
}

/** How many reports are not sent yet. */
export const unsent = (state: State, outbox: Outbox): number =>
  outbox.batches.reduce((sum, batch) => sum + batch.reports.length, state.waiting.length);

/** Make the state of a new device. */
export function freshState(now: number): State {
  return {
    format: 1,
    born: now,
    secret: random(32),
    place: ["0", "1"],
    accounts: {},
    spends: {},
    kept: {},
    responses: {},
    waiting: [],
  };
}

const NAMES = ["state", "outbox"];

/** A store that reads some parts, has them changed, and writes them, all at once. */
export abstract class PartedStore implements Store {
  abstract readonly forgets: boolean;
  abstract readonly lasts: boolean;

  constructor(readonly now: () => number = Date.now) {}

  abstract begun(): Promise<boolean>;
  /** Change the parts of these names. A part that is not there is undefined. */
  protected abstract change<T>(names: readonly string[], block: (parts: unknown[]) => T): Promise<T>;

  transact<T>(block: (state: State) => T): Promise<T> {
    return this.#changed(1, block);
  }

  transactAll<T>(block: (...parts: Parts) => T): Promise<T> {
    return this.#changed(2, block);
  }

  #changed<T>(count: number, block: (...parts: Parts) => T): Promise<T> {
    return this.change(NAMES.slice(0, count), (parts) => {
      const state = (parts[0] ??= freshState(this.now())) as State;
      if (state.format !== 1) throw new Error("the state is not known here");
      return block(state, (parts[1] ??= { batches: [], sent: [] }) as Outbox);
    });
  }
}

/** A state that ends with the page. */
export class MemoryStore extends PartedStore {
  override readonly forgets: boolean = false;
  override readonly lasts: boolean = false;
  #parts: { [name: string]: unknown } = {};

  async begun(): Promise<boolean> {
    return "state" in this.#parts;
  }

  protected async change<T>(names: readonly string[], block: (parts: unknown[]) => T): Promise<T> {
    const parts = names.map((name) => structuredClone(this.#parts[name]));
    const outcome = block(parts);
    names.forEach((name, i) => (this.#parts[name] = parts[i]));
    return outcome;
  }
}

const STORE = "state";

/** A state in the browser's database, shared by all tabs of an origin. */
export class BrowserStore extends PartedStore {
  override readonly forgets = true;
  override readonly lasts = true;
  #database: Promise<IDBDatabase> | undefined;

  constructor(
    readonly app: string,
    now?: () => number,
  ) {
    super(now);
  }

  #open(): Promise<IDBDatabase> {
    this.#database ??= new Promise<IDBDatabase>((resolve, reject) => {
      const request = indexedDB.open(`deniable ${this.app}`, 1);
      request.onupgradeneeded = () => request.result.createObjectStore(STORE);
      request.onsuccess = () => {
        // It may be deleted, by the person or another tab. The next transaction opens it anew.
        request.result.onversionchange = request.result.onclose = () => {
          request.result.close();
          this.#database = undefined;
        };
        resolve(request.result);
      };
      request.onerror = () => {
        this.#database = undefined;
        reject(request.error);
      };
    });
    return this.#database;
  }

  async begun(): Promise<boolean> {
    // Opening would make one, which nobody may have agreed to. Where the browser cannot list them, only this page's own is known.
    const listed = await indexedDB.databases?.();
    return listed ? listed.some(({ name }) => name === `deniable ${this.app}`) : this.#database !== undefined;
  }

  protected async change<T>(names: readonly string[], block: (parts: unknown[]) => T): Promise<T> {
    const database = await this.#open();
    return new Promise<T>((resolve, reject) => {
      // Durable when it completes: a browser would otherwise leave the write to the system, and a spend could be lost.
      const transaction = database.transaction(STORE, "readwrite", { durability: "strict" });
      const store = transaction.objectStore(STORE);
      let outcome: T;
      let fault: unknown;
      const reads = names.map((name) => store.get(name));
      // Requests are answered in their order.
      reads.at(-1)!.onsuccess = () => {
        try {
          const parts = reads.map(({ result }) => result as unknown);
          outcome = block(parts);
          names.forEach((name, i) => store.put(parts[i], name));
          transaction.commit(); // at once, and not when the page has heard of each write
        } catch (error) {
          fault = error;
          transaction.abort();
        }
      };
      transaction.oncomplete = () => resolve(outcome);
      transaction.onabort = () => reject(fault ?? transaction.error);
    });
  }
}
