/** The coins and dice of a report, so that a page can show how they fell. */

import { SystemSource, type Fraction } from "../src/noise/chance.js";

/** A toss: how likely it was to be 1, of how many, and what came. */
export interface Toss {
  /** Of a coin, its probability; null of a die. */
  readonly chance: number | null;
  readonly sides: number;
  readonly result: number;
}

/** The system's generator, with what it gave written down. */
export class Coins extends SystemSource {
  readonly tosses: Toss[] = [];

  override event(p: Fraction): 0 | 1 {
    const result = super.event(p);
    this.tosses.push({ chance: Number(p.num) / Number(p.den), sides: 2, result });
    return result;
  }

  override below(n: number): number {
    const result = super.below(n);
    this.tosses.push({ chance: null, sides: n, result });
    return result;
  }
}
