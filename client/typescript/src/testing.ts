/** For the tests of apps: a client that asks nobody and sends nothing, and the reports that it would send. */

import type { Report } from "./wire/batch.js";
import { Telemetry, type Options } from "./client.js";
import { watch } from "./mistakes.js";
import type { Sheet } from "./sheet.js";
import { MemoryStore, type Waiting } from "./device/state.js";

class CaptureStore extends MemoryStore {
  override readonly lasts = true;
}

export interface Capture<S extends Sheet> {
  readonly telemetry: Telemetry<S>;
  /** The randomised reports that were queued, in order. */
  reports(): Promise<readonly Report[]>;
}

/** Capture what an app records. Mistakes of the app are thrown; each capture is a new device. */
export function capture<const S extends Sheet>(registry: S, options: Partial<Options<S>> = {}): Capture<S> {
  const segments = Object.fromEntries(Object.entries(registry.segments).map(([name, values]) => [name, values[0]!]));
  const store = new CaptureStore(options.now);
  const telemetry = new Telemetry<S>({
    dsn: `https://pk_capture@capture.invalid/${registry.app}`,
    consent: true,
    segments,
    strict: true,
    ...options,
    registry,
    state: store,
    fetch: () => Promise.reject(new TypeError("a capture sends nothing")),
  });
  telemetry.record = watch(telemetry as never, telemetry.record.bind(telemetry) as never) as typeof telemetry.record;
  return {
    telemetry,
    reports: () =>
      store.transact((state) =>
        state.waiting.map((written) => {
          const { due: _, wait: __, ...report } = JSON.parse(written) as Waiting;
          return report;
        }),
      ),
  };
}
