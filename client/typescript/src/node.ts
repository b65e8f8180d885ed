/** A state on disk, for programs of Node that has SQLite built in (22.13 or later). No other client reads it. */

import { chmodSync, existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { PartedStore, type Store } from "./device/state.js";

const PATIENCE = 5000; // milliseconds to wait for another process

class FileStore extends PartedStore {
  override readonly forgets = false;
  override readonly lasts = true;
  #database: DatabaseSync | undefined;

  constructor(
    readonly Database: typeof DatabaseSync,
    readonly folder: string,
  ) {
    super();
  }

  #open(): DatabaseSync {
    if (!this.#database) {
      mkdirSync(this.folder, { recursive: true, mode: 0o700 });
      const file = join(this.folder, "typescript.db");
      const database = new this.Database(file);
      chmodSync(file, 0o600);
      database.exec(`PRAGMA busy_timeout = ${PATIENCE}; PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = FULL;`);
      database.exec("PRAGMA fullfsync = ON; PRAGMA secure_delete = ON");
      database.exec("CREATE TABLE IF NOT EXISTS parts (name TEXT PRIMARY KEY, content TEXT NOT NULL)");
      this.#database = database;
    }
    return this.#database;
  }

  async begun(): Promise<boolean> {
    return existsSync(join(this.folder, "typescript.db"));
  }

  protected async change<T>(names: readonly string[], block: (parts: unknown[]) => T): Promise<T> {
    const database = this.#open();
    database.exec("BEGIN IMMEDIATE");
    try {
      const read = database.prepare("SELECT content FROM parts WHERE name = ?");
      const parts = names.map((name) => {
        const row = read.get(name) as { content: string } | undefined;
        return row && (JSON.parse(row.content) as unknown);
      });
      const outcome = block(parts);
      const write = database.prepare("INSERT OR REPLACE INTO parts VALUES (?, ?)");
      names.forEach((name, i) => write.run(name, JSON.stringify(parts[i])));
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
