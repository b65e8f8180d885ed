/** Permanent responses: drawn once for an answer, kept, and reported once a period with fresh noise. */

import { rounded, standIn } from "../wire/answers.js";
import { pack } from "../wire/batch.js";
import { hex, unhex, utf8, type Source } from "../noise/chance.js";
import { STEPS, type Oracle } from "../noise/mechanisms.js";
import { monthOf } from "../wire/periods.js";
import { hmac } from "../noise/sha256.js";
import type { Period } from "../sheet.js";
import type { State } from "./state.js";

const MONTHS = 4; // of so many months it is remembered which responses were reported

const gcd = (a: bigint, b: bigint): bigint => (b ? gcd(b, a % b) : a);

/** The payload of a report, and whether an earlier response stands for the answer. */
export interface Made {
  readonly payload: string;
  readonly repeated: boolean;
}

/** The device's row in a metric of so many rows; all rows follow from one place. */
export function rowOf(state: State, rows: number, chance: Source): number {
  let [x, y] = state.place.map(BigInt) as [bigint, bigint];
  const n = BigInt(rows);
  const finer = n / gcd(y, n);
  if (finer > 1n) {
    x = x * finer + chance.belowBig(finer);
    y *= finer;
    state.place = [String(x), String(y)];
  }
  return Number((x * n) / y);
}

/** Where the response of a response key is stored. */
export const storedUnder = (secret: string, fingerprint: string, key: bigint): string =>
  hex(hmac(unhex(secret), utf8(`${fingerprint} ${key}`)).subarray(0, 16));

/** Find or draw the response to an answer, and draw the report of it; return the payload, or why there is none. */
export function respond(
  state: State,
  oracle: Oracle,
  at: bigint | null,
  now: number,
  chance: Source,
): Made | "budget" | "this_period" {
  const { metric } = oracle;
  const steps = STEPS[metric.mechanism]!;
  const { answers, answers_ever: ever } = metric.allowance;
  const month = monthOf(now, metric.period as Period);
  const row = rowOf(state, metric.layout.rows, chance);
  const kept = (state.kept[metric.fingerprint] ??= {
    standIn: String(standIn(metric, chance)),
    point: metric.rounded ? chance.below(metric.steps!) : 0,
    last: null,
    drawn: 0,
    uses: {},
  });
  const meant = at ?? BigInt(kept.standIn);
  const value = metric.rounded ? rounded(meant, kept.point) : meant;
  let key = storedUnder(state.secret, metric.fingerprint, steps.key(oracle, row, value));
  const months = Object.keys(kept.uses).sort();
  if (month < months.at(-MONTHS)!) return "this_period"; // which responses it had was forgotten
  for (const old of months.slice(0, -MONTHS)) delete kept.uses[old];
  const uses = kept.uses[month] ?? [];
  let repeated = false;
  const full = answers !== null && !uses.includes(key) && uses.length >= answers;
  const exhausted = ever !== null && kept.drawn >= ever;
  if (full || (state.responses[key] === undefined && exhausted)) {
    // Without room for another response the last one is reported again: silence would show that the answer has changed.
    const again = uses.at(-1) ?? kept.last;
    if (again !== null && again in state.responses) {
      key = again;
      repeated = true;
    }
  }
  let written = state.responses[key];
  if (written === undefined) {
    if (exhausted) return "budget";
    written = String(steps.respond(oracle, row, value, chance));
    state.responses[key] = written;
    kept.drawn++;
  }
  kept.last = key;
  kept.uses[month] = [...uses.filter((each) => each !== key), key];
  return { payload: pack(metric.layout, row, steps.again(oracle, BigInt(written), chance)), repeated };
}
