/** The DSN: one line that says where reports go. */

export interface Address {
  readonly url: string;
  readonly key: string;
  readonly app: string;
}

const SHAPE = /^(https?):\/\/([\w-]+)@([^/@?#\s]+)((?:\/[^/?#\s]+)*)\/([a-z0-9_.-]{1,80})$/;
const HERE = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?$/;

/** Read a DSN; throw an error that does not repeat its key. */
export function readDsn(dsn: string): Address {
  const parts = SHAPE.exec(dsn);
  if (!parts) throw new TypeError("the DSN cannot be read: write it as https://PUBLIC_KEY@host/app");
  const [, scheme, key, host, prefix, app] = parts as unknown as [string, string, string, string, string, string];
  if (/^(rk|ak)_/.test(key)) throw new TypeError("the DSN has a key that no app may hold: write the ingest key");
  if (scheme === "http" && !HERE.test(host)) throw new TypeError("the DSN leads to another machine by http://: write https://");
  return { url: `${scheme}://${host}${prefix}/v1/reports`, key, app };
}
