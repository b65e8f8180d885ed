/** Chance: exact draws from the system's generator. Nothing is drawn ahead, and what is left over is wiped. */

/** A probability as an exact fraction, with the first of its digits to base 256. */
export class Fraction {
  readonly first: number;
  readonly rest: bigint;

  constructor(
    readonly num: bigint,
    readonly den: bigint,
  ) {
    this.first = Number((num * 256n) / den);
    this.rest = (num * 256n) % den;
  }

  isBelow(other: Fraction): boolean {
    return this.num * other.den < other.num * this.den;
  }

  /** Read `a/b`, or a decimal such as `0.25`. */
  static read(text: string): Fraction {
    const [num, den] = text.split("/");
    const [whole, digits = ""] = num!.split(".");
    return new Fraction(BigInt(whole! + digits), den ? BigInt(den) : 10n ** BigInt(digits.length));
  }
}

/** The two draws that everything is made of. */
export interface Source {
  /** B(p): 1 with this probability, else 0. */
  event(p: Fraction): 0 | 1;
  /** U(n): a number from 0 to n - 1; n is at most 2^32. */
  below(n: number): number;
  /** The same of any n. */
  belowBig(n: bigint): bigint;
}

export const HALF = new Fraction(1n, 2n);

/** Draws of any source that gives bytes. */
export abstract class Bytes implements Source {
  protected abstract byte(): number;

  event(p: Fraction): 0 | 1 {
    // The byte is compared with the first digit of the fraction. Only a tie, one time in 256, looks at the others.
    const drawn = this.byte();
    return drawn === p.first ? this.#tie(p.rest, p.den) : drawn < p.first ? 1 : 0;
  }

  #tie(rest: bigint, den: bigint): 0 | 1 {
    while (rest) {
      const digit = Number((rest * 256n) / den);
      rest = (rest * 256n) % den;
      const drawn = this.byte();
      if (drawn !== digit) return drawn < digit ? 1 : 0;
    }
    return 0; // the fraction ends here, and what is equal is not below it
  }

  below(n: number): number {
    const bits = n > 1 ? 32 - Math.clz32(n - 1) : 0;
    for (;;) {
      let drawn = 0;
      for (let have = 0; have < bits; have += 8) drawn = drawn * 256 + this.byte();
      drawn = Math.floor(drawn / 2 ** ((8 - (bits % 8)) % 8)); // the surplus bits are left out
      if (drawn < n) return drawn;
    }
  }

  belowBig(n: bigint): bigint {
    const bits = n > 1n ? (n - 1n).toString(2).length : 0;
    for (;;) {
      const drawn = bitsOf(run(this, HALF, bits));
      if (drawn < n) return drawn;
    }
  }
}

const CHUNK = 64;

/** The system's generator. One is made for each report, and wiped after it. */
export class SystemSource extends Bytes {
  readonly #chunk = new Uint8Array(CHUNK);
  #at = CHUNK;

  protected byte(): number {
    if (this.#at === CHUNK) {
      crypto.getRandomValues(this.#chunk);
      this.#at = 0;
    }
    const byte = this.#chunk[this.#at]!;
    this.#chunk[this.#at++] = 0;
    return byte;
  }

  wipe(): void {
    this.#chunk.fill(0);
    this.#at = CHUNK;
  }
}

/** Do something with the system's generator, and wipe what is left. */
export function withChance<T>(block: (chance: Source) => T): T {
  const chance = new SystemSource();
  try {
    return block(chance);
  } finally {
    chance.wipe();
  }
}

/** A random share of one, to scatter moments. */
export const jitter = (): number => withChance((chance) => chance.below(1 << 16)) / (1 << 16);

/** B(p) x k, as k digits; the first draw is the highest bit of the number that they write. */
export function run(chance: Source, p: Fraction, count: number): string {
  let digits = "";
  for (let i = 0; i < count; i++) digits += chance.event(p);
  return digits;
}

/** Read bits. */
export const bitsOf = (digits: string): bigint => (digits ? BigInt(`0b${digits}`) : 0n);

/** So many random bytes, in hexadecimal. */
export const random = (size: number): string => hex(crypto.getRandomValues(new Uint8Array(size)));

/** Write bytes as hexadecimal digits. */
export const hex = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Read hexadecimal digits. */
export const unhex = (text: string): Uint8Array => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));

/** Read bytes as a number, the first the highest. */
export const bigOf = (bytes: Uint8Array): bigint => BigInt(`0x0${hex(bytes)}`);

/** Write a text in UTF-8. */
export const utf8 = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);
