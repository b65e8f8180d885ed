/** The DSN: one line that says where reports go. */

export interface Address {
  /** What all paths follow. */
  readonly url: string;
  readonly key: string;
  readonly app: string;
}

// By http:// it leads to this machine only. It has no key that an app may not hold. No part is decoded. `mistakes.ts` says which part is missing.
const SHAPE =
  /^\s*(https:\/\/|http:\/\/(?=[\w-]+@(?:localhost|127(?:\.\d+){3}|\[::1\])(?::\d+)?\/))(?![rax]k_)([\w-]+)@([^/@?#\s]+(?:\/[^/?#\s]+)*)\/([a-z0-9_.-]{1,80})\/?\s*$/;

/** Read a DSN; throw an error that does not repeat its key. */
export function readDsn(dsn: string): Address {
  const [, scheme, key, path, app] = SHAPE.exec(dsn) ?? [];
  if (!app) throw new TypeError("the DSN is not https://PUBLIC_KEY@host/app");
  return { url: scheme! + path!, key: key!, app };
}
