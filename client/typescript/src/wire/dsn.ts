/** The DSN: one line that says where reports go. */

export interface Address {
  /** What all paths follow. */
  readonly url: string;
  readonly key: string;
  readonly app: string;
}

// By http:// it leads to this machine only. No part is decoded.
const SHAPE =
  /^(https:\/\/|http:\/\/(?=[\w-]+@(?:localhost|127(?:\.\d+){3}|\[::1\])(?::\d+)?\/))([\w-]+)@([^/@?#\s]+(?:\/[^/?#\s]+)*)\/([a-z0-9_.-]{1,80})$/;

/** Read a DSN; throw an error that does not repeat its key. */
export function readDsn(dsn: string): Address {
  const [, scheme, key, path, app] = SHAPE.exec(dsn) ?? [];
  if (!app) throw new TypeError("the DSN cannot be read: write https://KEY@host/app; http:// may lead to this machine only");
  if (/^(rk|ak)_/.test(key!)) throw new TypeError("no app may hold this key: write the ingest key");
  return { url: scheme! + path!, key: key!, app };
}
