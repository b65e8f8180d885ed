/** Telemetry that nobody can hold against the person who sent it, in a browser. */

import { Telemetry, type Options } from "./client.js";
import type { Sheet } from "./sheet.js";

export type { Report } from "./wire/batch.js";
export type { Options, Stats, Telemetry } from "./client.js";
export type { Explanation } from "./explain.js";
export type { Answer, Id, Sheet, SheetMetric } from "./sheet.js";
export type { Outbox, Parts, State, Store } from "./device/state.js";

/** Make the client of an app. It never throws unless `strict`, and does nothing on the network by itself. */
export function init<const S extends Sheet>(options: Options<S>): Telemetry<S> {
  return new Telemetry(options);
}
