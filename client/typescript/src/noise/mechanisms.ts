/** Mechanisms: they draw first and look at the position then. So neither the number of draws nor their odds depend on it. */

import { bitsOf, Fraction, HALF, run, type Source } from "./chance.js";
import { domainOf, TYPES } from "../wire/answers.js";
import { extend, hashed, keyOf, times, type Family } from "./hashing.js";
import type { SheetMetric } from "../sheet.js";

/** A row, and the index or the bits as a number. */
export type Content = readonly [row: number, content: bigint];

/** A metric with its fractions read. */
export interface Oracle {
  readonly metric: SheetMetric;
  readonly size: number;
  readonly rows: number;
  readonly width: number;
  readonly p: { readonly [name: string]: Fraction };
  readonly family: Family;
  randomize(at: bigint, chance: Source): Content;
}

/** The two steps of permanent responses. */
export interface Steps {
  key(oracle: Oracle, row: number, at: bigint): bigint;
  respond(oracle: Oracle, row: number, at: bigint, chance: Source): bigint;
  again(oracle: Oracle, response: bigint, chance: Source): bigint;
}

type Draw = (oracle: Oracle, at: bigint, chance: Source) => Content;

const hashOf = (oracle: Oracle, row: number, at: bigint): number =>
  hashed(oracle.family, row, oracle.family.kind === "pool" ? keyOf(oracle.metric, at) : at);

function shifted({ width }: Oracle, cell: number, keep: Fraction, chance: Source): bigint {
  const truth = chance.event(keep);
  const other = chance.below(width - 1);
  return BigInt((cell + (truth ? 0 : other + 1)) % width);
}

const shiftedRow = (oracle: Oracle, row: number, cell: number, chance: Source): Content => [
  row,
  shifted(oracle, cell, oracle.p["keep"]!, chance),
];

const flips = (oracle: Oracle, name: string, chance: Source): bigint => bitsOf(run(chance, oracle.p[name]!, oracle.width));
const replaced = (bits: bigint, at: bigint, coin: number): bigint => (bits & ~(1n << at)) | (BigInt(coin) << at);

/** Whether two numbers have an odd number of bits in common. */
const odd = (a: number, b: number): number => (a & b).toString(2).replaceAll("0", "").length & 1;

const grr: Draw = (oracle, at, chance) => shiftedRow(oracle, 0, Number(at), chance);

const unary: Draw = (oracle, at, chance) => {
  const bits = flips(oracle, "other", chance);
  return [0, replaced(bits, at, chance.event(oracle.p["one"]!))];
};

/** Mark so many of n numbers, each set of them equally likely. */
function drawn(n: number, size: number, chance: Source): Uint8Array {
  const chosen = new Uint8Array(n);
  for (let i = n - size; i < n; i++) {
    const j = chance.below(i + 1);
    chosen[chosen[j] ? i : j] = 1;
  }
  return chosen;
}

const subset: Draw = (oracle, at, chance) => {
  const { size: d } = oracle;
  const { size } = oracle.metric.constants as { size: number };
  const truth = chance.event(oracle.p["keep"]!);
  const chosen = drawn(d - 1, size - truth, chance);
  // The others follow the answer around the circle of values; the number begins with the last value.
  let digits = "";
  for (let value = d - 1; value >= 0; value--) digits += chosen[(value + d - 1 - Number(at)) % d] ?? truth;
  return [0, bitsOf(digits)];
};

const localHash: Draw = (oracle, at, chance) => {
  const row = chance.below(oracle.rows);
  return shiftedRow(oracle, row, hashOf(oracle, row, at), chance);
};

const pem: Draw = (oracle, at, chance) => {
  const { bounds, lengths, bits } = oracle.metric.constants as { bounds: number[]; lengths: number[]; bits: number };
  const row = chance.below(oracle.rows);
  const level = bounds.filter((bound) => bound <= row).length - 1;
  let key = 0n;
  let begin = 0;
  for (const end of new Set(lengths.slice(0, level + 1))) {
    key = extend(key, (at >> BigInt(bits - end)) & ((1n << BigInt(end - begin)) - 1n));
    begin = end;
  }
  return shiftedRow(oracle, row, hashed(oracle.family, row, key), chance);
};

const hadamard: Draw = (oracle, at, chance) => {
  const even = chance.event(oracle.p["keep"]!);
  const number = chance.below(oracle.width / 2);
  const row = Number(at) + 1;
  const low = row & -row;
  const column = Math.floor(number / low) * 2 * low + (number % low);
  return [0, BigInt(odd(column, row) === 1 - even ? column : column + low)];
};

/** Whether point x of a geometry supports a position. */
export function supports(oracle: Oracle, x: number, at: number): boolean {
  const { order: q, dimension: t, polynomial } = oracle.metric.constants as { order: number; dimension: number; polynomial: number };
  const digits = (n: number): number[] => {
    let first = 0;
    let power = 1;
    while (first + power <= n) {
      first += power;
      power *= q;
    }
    let rest = n - first + power;
    return Array.from({ length: t }, () => {
      const digit = rest % q;
      rest = Math.floor(rest / q);
      return digit;
    });
  };
  const reversed = digits(at).reverse();
  let sum = 0;
  digits(x).forEach((digit, i) => {
    sum = polynomial ? sum ^ times(digit, reversed[i]!, polynomial) : (sum + digit * reversed[i]!) % q;
  });
  return sum === 0;
}

const pgr: Draw = (oracle, at, chance) => {
  const on = chance.event(oracle.p["keep"]!);
  for (;;) {
    const x = chance.below(oracle.width);
    if (Number(supports(oracle, x, Number(at))) === on) return [0, BigInt(x)];
  }
};

const rappor: Draw = (oracle, at, chance) => {
  const bits = flips(oracle, "flip", chance);
  const row = chance.below(oracle.rows);
  return [row, bits ^ filterOf(oracle, row, at)];
};

function filterOf(oracle: Oracle, row: number, at: bigint): bigint {
  if (!oracle.family) return 1n << at;
  const { hashes: count } = oracle.metric.constants as { hashes: number };
  let bits = 0n;
  for (let i = row * count; i < (row + 1) * count; i++) bits |= 1n << BigInt(hashOf(oracle, i, at));
  return bits;
}

const numbers: Draw = (oracle, at, chance) => {
  const { blocks, length } = oracle.metric.constants as { blocks: number; length: number };
  const inside = chance.event(oracle.p["keep"]!);
  const a = chance.below(length);
  const b = chance.below(blocks * length);
  const rest = BigInt(oracle.size - 1);
  const cell = (at * BigInt(blocks * length) + BigInt(chance.below(oracle.size - 1))) / rest;
  return [0, (cell + BigInt(inside ? a : length + b)) % BigInt(oracle.width)];
};

/** The options that a row of sampled options is about. */
export function groupOf({ mechanism, values, constants }: SheetMetric, row: number): number[] {
  const options = [...values!.keys()];
  if (mechanism === "sampled_pair") return options.flatMap((one) => options.slice(one + 1).map((other) => [one, other]))[row]!;
  return [...options.slice(row), ...options].slice(0, constants["size"] as number);
}

const sampled: Draw = (oracle, at, chance) => {
  const row = chance.below(oracle.rows);
  const group = groupOf(oracle.metric, row);
  const cell = group.reduce((sum, option, i) => sum + (Number((at >> BigInt(option)) & 1n) << i), 0);
  return shiftedRow(oracle, row, cell, chance);
};

const padded: Draw = (oracle, at, chance) => {
  const { width: m } = oracle;
  const { size, most } = oracle.metric.constants as { size: number; most: number };
  let ways = 1n;
  for (let n = most + 1; n <= m; n++) ways *= BigInt(n);
  let order = chance.belowBig(ways);
  let own = Math.min(most, size);
  for (let j = own - 1, coins = Array.from({ length: own }, (_, i) => chance.event(oracle.p[`own_${i}`]!)); j >= 0; j--) {
    if (coins[j]) own = j;
  }
  const among = drawn(most, own, chance);
  const others = drawn(m, size - own, chance);
  // Which place each further option takes; from `most` on it has none.
  const places = Array.from({ length: m }, (_, i) => {
    if (i < most) return i;
    const n = BigInt(i + 1);
    const place = Number(order % n);
    order /= n;
    return Math.min(place, most);
  });
  const held = Array.from({ length: most + 1 }, (_, i) => m + i);
  for (let option = 0, chosen = 0; option < m; option++) {
    const has = Number((at >> BigInt(option)) & 1n);
    held[has ? places[chosen]! : most] = option;
    chosen += has;
  }
  const isHeld = new Uint8Array(m + most);
  for (const place of held.slice(0, most)) isHeld[place] = 1;
  const bits = new Uint8Array(m);
  for (let place = 0, i = 0, j = 0; place < m + most; place++) {
    const named = isHeld[place] ? among[i++]! : others[j++]!;
    if (place < m) bits[m - 1 - place] = named;
  }
  return [0, bitsOf(bits.join(""))];
};

const DRAWS: { readonly [mechanism: string]: Draw } = {
  binary: grr,
  grr,
  l_grr: grr,
  sue: unary,
  oue: unary,
  l_osue: unary,
  subset,
  local_hash: localHash,
  fast_local_hash: localHash,
  loloha: localHash,
  pem,
  hadamard,
  pgr,
  rappor,
  window: numbers,
  sampled_options: sampled,
  sampled_pair: sampled,
  padded_subset: padded,
};

const itself = (_: Oracle, __: number, at: bigint): bigint => at;
const again: Steps["again"] = (oracle, response, chance) => response ^ flips(oracle, "flip_again", chance);
const cellsOf = (key: Steps["key"]): Steps => ({
  key,
  respond: (oracle, row, at, chance) => shifted(oracle, Number(key(oracle, row, at)), oracle.p["keep_permanent"]!, chance),
  again: (oracle, response, chance) => shifted(oracle, Number(response), oracle.p["keep_again"]!, chance),
});

/** By mechanism, the steps of permanent responses. */
export const STEPS: { readonly [mechanism: string]: Steps } = {
  l_grr: cellsOf(itself),
  loloha: cellsOf((oracle, row, at) => BigInt(hashOf(oracle, row, at))),
  l_osue: {
    key: itself,
    respond: (oracle, _, at, chance) => {
      const bits = flips(oracle, "other_permanent", chance);
      return replaced(bits, at, chance.event(HALF));
    },
    again,
  },
  rappor: {
    key: itself,
    respond: (oracle, row, at, chance) =>
      filterOf(oracle, row, at) ^ flips(oracle, "flip_permanent", chance),
    again,
  },
};

/** Why a metric cannot be recorded here, or null. */
export function refusal(metric: SheetMetric): string | null {
  const draws = metric.epsilon_permanent === null ? DRAWS : STEPS;
  for (const [name, known] of [["type", TYPES], ["mechanism", Object.keys(draws)]] as const) {
    if (!known.includes(metric[name])) return `the ${name} "${metric[name]}" is not known here`;
  }
  return null;
}

/** Prepare a metric's draws. */
export function oracleOf(metric: SheetMetric): Oracle {
  const fractions = Object.entries(metric.constants).filter(([, value]) => typeof value === "string");
  return {
    metric,
    size: Number(domainOf(metric)),
    rows: metric.layout.rows,
    width: metric.layout.width,
    p: Object.fromEntries(fractions.map(([name, value]) => [name, Fraction.read(value as string)])),
    family: metric.constants["family"] as Family,
    randomize(at, chance) {
      return DRAWS[metric.mechanism]!(this, at, chance);
    },
  };
}
