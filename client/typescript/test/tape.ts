/** Sources whose draws are known. */

import type { Fraction, Source } from "../src/noise/chance.js";

/** The draws of a vector, one after another. */
export class Tape implements Source {
  readonly left: bigint[];

  constructor(written: string) {
    this.left = written
      .split(" ")
      .filter(Boolean)
      .flatMap((each) => (each.startsWith("0b") ? [...each.slice(2)].map(BigInt) : [BigInt(each)]));
  }

  #next(): bigint {
    if (!this.left.length) throw new Error("more draws than the vector has");
    return this.left.shift()!;
  }

  event(_: Fraction): 0 | 1 {
    return Number(this.#next()) as 0 | 1;
  }

  below(_: number): number {
    return Number(this.#next());
  }

  belowBig(_: bigint): bigint {
    return this.#next();
  }
}
