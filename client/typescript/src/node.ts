/** A state on disk, for programs of Node that has SQLite built in (22.13 or later). No other client reads it. */

import { chmodSync, existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { checked, freshState, type State, type Store } from "./device/state.js";

const PATIENCE = 5000; // milliseconds to wait for another process

class FileStore implements Store {
  readonly forgets = false;
  readonly lasts = true;
  #database: DatabaseSync | undefined;

  constructor(
    readonly Database: typeof DatabaseSync,
    readonly folder: string,
  ) {}

  #open(): DatabaseSync {
    if (!this.#database) {
      mkdirSync(this.folder, { recursive: true, mode: 0o700 });
      const file = join(this.folder, "typescript.db");
      const database = new this.Database(file);
      chmodSync(file, 0o600);
      database.exec(`PRAGMA busy_timeout = ${PATIENCE}; PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = FULL;`);
      database.exec("PRAGMA fullfsync = ON; PRAGMA secure_delete = ON; CREATE TABLE IF NOT EXISTS state (content TEXT NOT NULL)");
      this.#database = database;
    }
    return this.#database;
  }

  async begun(): Promise<boolean> {
    return existsSync(join(this.folder, "typescript.db"));
  }

  async transact<T>(block: (state: State) => T): Promise<T> {
    const database = this.#open();
    database.exec("BEGIN IMMEDIATE");
    try {
      const row = database.prepare("SELECT content FROM state").get() as { content: string } | undefined;
      const state = row ? checked(JSON.parse(row.content)) : freshState(Date.now());
      const outcome = block(state);
      database.exec("DELETE FROM state");
      database.prepare("INSERT INTO state VALUES (?)").run(JSON.stringify(state));
      database.exec("COMMIT");
      return outcome;
    } catch (error) {
      database.exec("ROLLBACK");
      throw error;
    }
  }
}

/** Keep the state in a folder of the app's own. It fails where this Node has no SQLite. */
export async function fileStore(folder: string): Promise<Store> {
  const { DatabaseSync } = await import("node:sqlite");
  return new FileStore(DatabaseSync, folder);
}
