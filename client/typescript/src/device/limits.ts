/** What a served registry leaves of a metric: the lesser sample and the earlier end. It can say nothing else. */

import { Fraction } from "../noise/chance.js";
import type { Limit } from "./state.js";

/** The lesser sample and the earlier end. */
export const lesser = (one: Limit, other: Limit): Limit => ({
  sample: (Fraction.read(one.sample).isBelow(Fraction.read(other.sample)) ? one : other).sample,
  until: [one.until, other.until].filter((day) => day).sort()[0] ?? null,
});
