/** Telemetry that nobody can hold against the person who sent it, in a browser. */

import { Telemetry, type Options } from "./client.js";
import type { Sheet } from "./sheet.js";

export type { Report } from "./wire/batch.js";
export type { Flushed, Options, Stats, Telemetry } from "./client.js";
export type { Explanation } from "./explain.js";
export type { Answer, Id, Sheet, SheetMetric } from "./sheet.js";
export type { Outbox, Parts, State, Store } from "./device/state.js";

// Where the page or the server is on this machine, mistakes are named. Elsewhere nothing of it is loaded.
const HERE = /[@/](?:localhost|127(?:\.\d+){3}|\[::1\])[:/]/;

/** Make the client of an app. It never throws unless `strict`, and does nothing on the network by itself. */
export function init<const S extends Sheet>(options: Options<S>): Telemetry<S> {
  const named = options.strict || HERE.test(`${options.dsn} ${globalThis.origin}/`);
  const telemetry = new Telemetry({ ...options }, named);
  if (named) {
    const record = telemetry.record.bind(telemetry);
    const watched = import("./mistakes.js").then(
      ({ watch }) => watch(telemetry as never, record as never) as typeof record,
      () => record,
    );
    telemetry.record = async (...answer) => (await watched)(...answer);
  }
  return telemetry;
}
