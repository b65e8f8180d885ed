/** What a device keeps, and where. No raw answer is ever in it. */

import type { Report } from "../wire/batch.js";
import { hex } from "../noise/chance.js";

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
  waiting: Waiting[];
  batches: Batch[];
  /** Reports that the server took, the newest first. */
  sent: Report[];
}

/** Where a state is kept. */
export interface Store {
  /** Whether it may be forgotten without anybody's doing, so that a new state has to earn its budget. */
  readonly forgets: boolean;
  /** Whether it lasts, so that permanent responses can be kept. */
  readonly lasts: boolean;
  /** Read and change the state. When the promise is kept, the change is durable; if `block` throws, nothing changes. */
  transact<T>(block: (state: State) => T): Promise<T>;
  /** Whether there is a state; asking makes none. */
  begun(): Promise<boolean>;
}

/** How many reports are not sent yet. */
export const unsent = (state: State): number =>
  state.batches.reduce((sum, batch) => sum + batch.reports.length, state.waiting.length);

/** Make the state of a new device. */
export function freshState(now: number): State {
  return {
    format: 1,
    born: now,
    secret: hex(crypto.getRandomValues(new Uint8Array(32))),
    place: ["0", "1"],
    accounts: {},
    spends: {},
    kept: {},
    responses: {},
    waiting: [],
    batches: [],
    sent: [],
  };
}

/** Check that a state is one of ours. */
export function checked(state: unknown): State {
  if ((state as State).format !== 1) throw new Error("the stored state has another format");
  return state as State;
}

/** A state that ends with the page. */
export class MemoryStore implements Store {
  readonly forgets = false;
  readonly lasts: boolean = false;
  #state: State | undefined;

  constructor(readonly now: () => number = Date.now) {}

  async begun(): Promise<boolean> {
    return this.#state !== undefined;
  }

  async transact<T>(block: (state: State) => T): Promise<T> {
    const state = structuredClone(this.#state ?? freshState(this.now()));
    const outcome = block(state);
    this.#state = state;
    return outcome;
  }
}

const STORE = "state";

/** A state in the browser's database, shared by all tabs of an origin. */
export class BrowserStore implements Store {
  readonly forgets = true;
  readonly lasts = true;
  #database: Promise<IDBDatabase> | undefined;

  constructor(
    readonly app: string,
    readonly now: () => number = Date.now,
  ) {}

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

  async transact<T>(block: (state: State) => T): Promise<T> {
    const database = await this.#open();
    return new Promise<T>((resolve, reject) => {
      // Durable when it completes: a browser would otherwise leave the write to the system, and a spend could be lost.
      const transaction = database.transaction(STORE, "readwrite", { durability: "strict" });
      const store = transaction.objectStore(STORE);
      let outcome: T;
      let fault: unknown;
      const read = store.get(STORE);
      read.onsuccess = () => {
        try {
          const state = read.result === undefined ? freshState(this.now()) : checked(read.result);
          outcome = block(state);
          store.put(state, STORE);
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
