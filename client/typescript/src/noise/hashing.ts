/** Families of hash functions. */

import { bigOf, unhex, utf8 } from "./chance.js";
import { sha256 } from "./sha256.js";
import type { SheetMetric } from "../sheet.js";

export interface Family {
  readonly kind: string;
  readonly rows: number;
  readonly width: number;
  readonly digits?: number;
  readonly polynomial?: number;
  readonly label?: string;
}

const WORD = (1n << 64n) - 1n;

/** The product of polynomials over two elements. */
export function times(a: number, b: number, polynomial: number): number {
  const degree = 31 - Math.clz32(polynomial);
  let product = 0;
  for (let bit = degree - 1; bit >= 0; bit--) {
    product <<= 1;
    if ((product >> degree) & 1) product ^= polynomial;
    if ((b >> bit) & 1) product ^= a;
  }
  return product;
}

/** What function r of a family makes of a position, or of a pool's key. */
export function hashed(family: Family, r: number, at: bigint): number {
  const { width } = family;
  if (family.kind === "pool") {
    const digest = sha256(utf8(`deniable ${family.label} ${r}`));
    const [a, b, c] = [0, 8, 16].map((start) => bigOf(digest.subarray(start, start + 8))) as [bigint, bigint, bigint];
    const mixed = ((a * (at >> 32n) + b * (at & 0xffffffffn) + c) & WORD) >> 32n;
    return Number((mixed * BigInt(width)) >> 32n);
  }
  let value = Number(at);
  if (family.kind === "line") {
    const y = Math.floor(value / width);
    return r === width ? y : (value % width) ^ times(r, y, family.polynomial!);
  }
  let sum = 0;
  for (let i = 0; i < family.digits!; i++) {
    sum += (r % width) * (value % width);
    r = Math.floor(r / width);
    value = Math.floor(value / width);
  }
  return sum % width;
}

/** The key of a position for a pool. */
export function keyOf(metric: SheetMetric, at: bigint): bigint {
  if (metric.type !== "string" || metric.max_length! <= 8) return at;
  const digits = at.toString(16).padStart(2 * metric.max_length!, "0").replace(/(00)+$/, ""); // without the zero bytes at the end
  return bigOf(sha256(unhex(digits)).subarray(0, 8));
}

/** Add a chunk to the key of a prefix. */
export function extend(key: bigint, chunk: bigint): bigint {
  let w = (key + (chunk + 1n) * 0x9e3779b97f4a7c15n) & WORD;
  w = ((w ^ (w >> 30n)) * 0xbf58476d1ce4e5b9n) & WORD;
  w = ((w ^ (w >> 27n)) * 0x94d049bb133111ebn) & WORD;
  return w ^ (w >> 31n);
}
