/** An answer becomes a position: a whole number below the size of the domain. */

import { bigOf, Fraction, type Source } from "../noise/chance.js";
import type { SheetMetric } from "../sheet.js";

const KEYS = 1n << 64n;
export const TYPES = ["boolean", "categorical", "ordinal", "product", "string", "key", "number", "set"];

/** The number of positions. */
export function domainOf(metric: SheetMetric): bigint {
  if (metric.type === "string") return 256n ** BigInt(metric.max_length!);
  if (metric.type === "key") return KEYS;
  if (metric.type === "number") return BigInt(metric.rounded ? 2 : (metric.bins ?? metric.steps! + 1));
  const count = BigInt(metric.values!.length);
  return metric.type === "set" ? 1n << count : count;
}

/**
 * Find the position of an answer, before a number is rounded to an end; null of one that is not declared. `replaced` is called
 * for each option of a set that counts as `other`.
 */
export function position(metric: SheetMetric, answer: unknown, replaced?: () => void): bigint | null {
  if (metric.type === "number") return ofNumber(metric, answer);
  const meant = answer ?? metric.none;
  if (metric.type === "set") return ofSet(metric, meant, replaced);
  if (metric.type === "string") return typeof meant === "string" ? ofText(meant, metric.max_length!) : null;
  if (metric.type === "key") {
    const key = typeof meant === "bigint" ? meant : Number.isSafeInteger(meant) ? BigInt(meant as number) : -1n;
    return key >= 0n && key < KEYS ? key : null;
  }
  return place(metric, meant);
}

/** The position that stands for an undeclared answer, before it is rounded. */
export function standIn(metric: SheetMetric, chance: Source): bigint {
  if (metric.type === "number") return ofNumber(metric, null)!;
  if (metric.other === null) return chance.belowBig(domainOf(metric));
  const other = place(metric, metric.other)!;
  return metric.type === "set" ? 1n << other : other;
}

/** Round a number to the low end (0) or the high end (1) of its range. */
export const rounded = (at: bigint, point: number): bigint => (at > BigInt(point) ? 1n : 0n);

function place(metric: SheetMetric, meant: unknown): bigint | null {
  const values = metric.values!;
  const at = metric.factors
    ? values.findIndex((value) => sameList(value as readonly string[], meant))
    : values.indexOf(meant as string | boolean);
  return at < 0 ? null : BigInt(at);
}

const sameList = (value: readonly string[], answer: unknown): boolean =>
  Array.isArray(answer) && answer.length === value.length && value.every((part, i) => part === answer[i]);

const MOST_UNDECLARED = 1000; // options of an answer beyond the declared ones

function ofSet(metric: SheetMetric, answer: unknown, replaced?: () => void): bigint | null {
  if (!Array.isArray(answer) && !(answer instanceof Set)) return null;
  const options: unknown[] = [...answer];
  if (options.length > metric.values!.length + MOST_UNDECLARED) return null;
  let bits = 0n;
  for (const option of options) {
    const at = place(metric, option) ?? (replaced?.(), place(metric, metric.other));
    if (at === null) return null;
    bits |= 1n << at;
  }
  return bits;
}

/** Make a text fit, and read its bytes as a number, filled up with zeros. */
function ofText(text: string, length: number): bigint {
  const fitted = [...text.slice(0, 2 * length)].slice(0, length).join("");
  const bytes = new Uint8Array(length);
  new TextEncoder().encodeInto(fitted.replace(/[\0\ud800-\udfff]/gu, "?"), bytes); // whole characters, as long as there is room
  return bigOf(bytes);
}

/** A finite float as the fraction that it stands for: doubling is exact. */
function exact(x: number): Fraction {
  let den = 1n;
  for (; x % 1; x *= 2) den *= 2n;
  return new Fraction(BigInt(x), den);
}

function ofNumber(metric: SheetMetric, answer: unknown): bigint | null {
  const meant = answer ?? metric.none ?? metric.range![0]!; // the last two are decimals, in texts
  if (meant === answer && typeof answer !== "bigint" && (typeof answer !== "number" || Number.isNaN(answer))) return null;
  const step = stepOf(metric, meant as string | bigint | number);
  if (metric.bins === null) return step;
  const [bins, bin] = [BigInt(metric.bins), (step * BigInt(metric.bins)) / BigInt(metric.steps!)];
  return bin < bins ? bin : bin - 1n;
}

function stepOf(metric: SheetMetric, meant: string | bigint | number): bigint {
  const steps = BigInt(metric.steps!);
  const float = Number(meant);
  if (Math.abs(float) === Infinity) return float > 0 ? steps : 0n;
  const x = typeof meant === "number" ? exact(meant) : Fraction.read(String(meant));
  const [low, high] = metric.range!.map(Fraction.read) as [Fraction, Fraction];
  if (!low.isBelow(x)) return 0n;
  if (!x.isBelow(high)) return steps;
  if (metric.scale === "log") {
    const [bottom, top] = metric.range!.map(Number) as [number, number];
    return BigInt(Math.round((Number(steps) * Math.log(float / bottom)) / Math.log(top / bottom)));
  }
  // steps (x - low) / (high - low) + 1/2, rounded down; both differences are above 0
  const num = steps * (x.num * low.den - low.num * x.den) * high.den;
  const den = (high.num * low.den - low.num * high.den) * x.den;
  return (2n * num + den) / (2n * den);
}
