/** Draws have exactly their probabilities, and mechanisms exactly their ratios. */

import assert from "node:assert/strict";
import { createHash, createHmac, randomBytes } from "node:crypto";
import { test } from "node:test";
import { pack } from "../src/wire/batch.js";
import { Bytes, Fraction, SystemSource, withChance, type Source } from "../src/noise/chance.js";
import { oracleOf, STEPS, supports, type Oracle } from "../src/noise/mechanisms.js";
import { hmac, sha256 } from "../src/noise/sha256.js";
import { WIDER, WIRE } from "./vectors.js";

class Scripted extends Bytes {
  at = 0;
  constructor(readonly bytes: readonly number[]) {
    super();
  }
  protected byte(): number {
    if (this.at === this.bytes.length) throw new RangeError("more bytes");
    return this.bytes[this.at++]!;
  }
}

const outcome = <T>(bytes: number[], draw: (source: Source) => T): T | null => {
  try {
    return draw(new Scripted(bytes));
  } catch (error) {
    if (error instanceof RangeError) return null;
    throw error;
  }
};

test("an event has its probability over all tapes of two bytes", () => {
  for (const [num, den] of [[0, 1], [1, 1], [1, 2], [1, 3], [5837465777, 7984949425], [255, 256], [1, 65536], [65535, 65536]] as const) {
    const p = new Fraction(BigInt(num), BigInt(den));
    let [ones, open] = [0, 0];
    for (let a = 0; a < 256; a++)
      for (let b = 0; b < 256; b++) {
        const drawn = outcome([a, b], (source) => source.event(p));
        if (drawn === null) open++;
        else ones += drawn;
      }
    assert.equal(ones, Number((p.num * 65536n) / p.den), `${num}/${den}`);
    assert.ok(open <= 1);
  }
});

test("ties look at each digit of a fraction, however many agree", () => {
  for (const [num, den] of [[5837465777n, 7984949425n], [1n, 3n], [(1n << 77n) - 3n, 1n << 77n], [1n, 1n << 61n]] as const) {
    const p = new Fraction(num, den);
    let rest = num;
    const digits: number[] = [];
    for (let i = 0; i < 12; i++) {
      digits.push(Number((rest * 256n) / den));
      rest = (rest * 256n) % den;
    }
    digits.forEach((digit, i) => {
      const same = digits.slice(0, i);
      if (digit > 0) assert.equal(outcome([...same, digit - 1], (s) => s.event(p)), 1);
      // After the last digit that is not 0, what is equal is not below.
      if (digit < 255 && digits.slice(i).some(Boolean)) assert.equal(outcome([...same, digit + 1, 0], (s) => s.event(p)), 0);
    });
  }
});

test("numbers below n are equally likely over all tapes", () => {
  for (const n of [1, 2, 3, 5, 7, 8, 100, 255, 256, 257, 300, 65535, 65536]) {
    const counts = new Map<number | bigint | null, number>();
    for (let a = 0; a < 256; a++)
      for (let b = 0; b < (n > 256 ? 256 : 1); b++) {
        const bytes = n > 256 ? [a, b] : [a];
        const drawn = outcome(bytes, (source) => source.below(n));
        counts.set(drawn, (counts.get(drawn) ?? 0) + 1);
      }
    counts.delete(null);
    assert.equal(counts.size, n);
    assert.equal(new Set(counts.values()).size, 1, String(n));
  }
  for (const n of [1n, 2n, 3n, 5n, 8n]) {
    const counts = new Map<bigint | null, number>();
    for (let tape = 0; tape < 8; tape++) {
      const bits = [tape & 1, tape & 2, tape & 4].slice(0, (n - 1n).toString(2).length * Number(n > 1n));
      const drawn = outcome(bits.map((bit) => (bit ? 0 : 255)), (source) => source.belowBig(n));
      counts.set(drawn, (counts.get(drawn) ?? 0) + 1);
    }
    counts.delete(null);
    assert.equal(counts.size, Number(n));
    assert.equal(new Set(counts.values()).size, 1);
  }
  assert.equal(outcome([255, 255, 255, 254], (source) => source.below(2 ** 32)), 2 ** 32 - 2);
});

test("the system's source wipes what is left of a chunk", () => {
  let chunk: Uint8Array | undefined;
  const real = crypto.getRandomValues;
  crypto.getRandomValues = ((array: Uint8Array) => (chunk = real.call(crypto, array as Uint8Array<ArrayBuffer>) as Uint8Array)) as typeof real;
  try {
    withChance((chance) => {
      chance.below(256);
      assert.ok(chunk!.some(Boolean));
      assert.equal(chunk![0], 0); // what was drawn is gone already
    });
    assert.ok(!chunk!.some(Boolean));
    chunk = undefined;
    withChance((chance) => assert.ok(chance));
    assert.equal(chunk, undefined); // nothing is drawn ahead
  } finally {
    crypto.getRandomValues = real;
  }
});

test("hashes are those of the system", () => {
  for (let length = 0; length < 300; length += 7) {
    const [message, key] = [randomBytes(length), randomBytes(32)];
    assert.deepEqual(Buffer.from(sha256(message)), createHash("sha256").update(message).digest());
    assert.deepEqual(Buffer.from(hmac(key, message)), createHmac("sha256", key).update(message).digest());
  }
});

/** Walks every draw that a block can make, each with its exact probability. */
class Walk implements Source {
  readonly #path: { chosen: number; odds: [bigint, bigint][] }[] = [];
  #at = 0;

  #draw(odds: () => [bigint, bigint][]): number {
    if (this.#at === this.#path.length) {
      const open = odds();
      this.#path.push({ chosen: open.findIndex(([num]) => num > 0n), odds: open });
    }
    return this.#path[this.#at++]!.chosen;
  }
  event(p: Fraction): 0 | 1 {
    return this.#draw(() => [[p.den - p.num, p.den], [p.num, p.den]]) as 0 | 1;
  }
  below(n: number): number {
    return this.#draw(() => Array.from({ length: n }, () => [1n, BigInt(n)]));
  }
  belowBig(n: bigint): bigint {
    return BigInt(this.below(Number(n)));
  }
  /** The distribution of what a block returns: numerators by outcome, and one denominator. */
  static over(block: (source: Source) => string): Map<string, Exact> {
    const walk = new Walk();
    const masses = new Map<string, Exact>();
    for (;;) {
      walk.#at = 0;
      const result = block(walk);
      const mass = walk.#path.reduce<Exact>((p, step) => p.times(...step.odds[step.chosen]!), new Exact(1n, 1n));
      masses.set(result, (masses.get(result) ?? new Exact(0n, 1n)).plus(mass));
      for (;;) {
        const last = walk.#path.at(-1);
        if (!last) return masses;
        do last.chosen++;
        while (last.chosen < last.odds.length && last.odds[last.chosen]![0] === 0n);
        if (last.chosen < last.odds.length) break;
        walk.#path.pop();
      }
    }
  }
}

const gcd = (a: bigint, b: bigint): bigint => (b ? gcd(b, a % b) : a);

class Exact {
  readonly num: bigint;
  readonly den: bigint;
  constructor(num: bigint, den: bigint) {
    const common = gcd(num, den);
    this.num = num / common;
    this.den = den / common;
  }
  times(num: bigint, den: bigint): Exact {
    return new Exact(this.num * num, this.den * den);
  }
  plus(other: Exact): Exact {
    return new Exact(this.num * other.den + other.num * this.den, this.den * other.den);
  }
  toString(): string {
    return this.den === 1n ? String(this.num) : `${this.num}/${this.den}`;
  }
}

const domain = (oracle: Oracle): bigint[] => Array.from({ length: oracle.size }, (_, i) => BigInt(i));
const one = (oracle: Oracle, at: bigint): Map<string, Exact> =>
  Walk.over((source) => pack(oracle.metric.layout, ...oracle.randomize(at, source)));

function worst(distributions: Map<string, Exact>[]): string {
  let ratio = new Exact(1n, 1n);
  for (const payload of new Set(distributions.flatMap((each) => [...each.keys()]))) {
    const masses = distributions.map((each) => each.get(payload) ?? new Exact(0n, 1n));
    for (const a of masses)
      for (const b of masses) {
        assert.ok(b.num > 0n, "a payload is possible for one answer, and not for another");
        const found = new Exact(a.num * b.den, a.den * b.num);
        if (found.num * ratio.den > ratio.num * found.den) ratio = found;
      }
  }
  return String(ratio);
}

const SMALL = ["binary", "grr", "sue", "oue", "subset", "local_hash", "hadamard", "l_grr", "l_osue", "loloha", "rappor", "set", "joint_set", "set_at_once", "ordinal_mean"];
for (const id of SMALL) {
  test(`${id}: the worst ratio over every draw is what the sheet says`, () => {
    const oracle = oracleOf(WIRE.metrics[id]!);
    const distributions = domain(oracle).map((at) => one(oracle, at));
    for (const each of distributions) assert.equal(String([...each.values()].reduce((sum, mass) => sum.plus(mass))), "1");
    assert.equal(worst(distributions), oracle.metric.canonical.split(" ")[2]);
  });
}

for (const id of ["l_grr", "l_osue", "loloha", "rappor"]) {
  test(`${id}: both steps together are one, and the first has the permanent ratio`, () => {
    const oracle = oracleOf(WIRE.metrics[id]!);
    const steps = STEPS[id]!;
    const row = Math.min(1, oracle.metric.layout.rows - 1);
    const first = (at: bigint) => Walk.over((source) => String(steps.respond(oracle, row, at, source)));
    const responses = domain(oracle).map(first);
    const reports = new Map<string, Map<string, Exact>>();
    for (const content of responses[0]!.keys())
      reports.set(content, Walk.over((source) => pack(oracle.metric.layout, row, steps.again(oracle, BigInt(content), source))));
    for (const at of [0n, BigInt(oracle.size - 1)]) {
      const both = new Map<string, Exact>();
      for (const [content, mass] of responses[Number(at)]!)
        for (const [payload, p] of reports.get(content)!)
          both.set(payload, (both.get(payload) ?? new Exact(0n, 1n)).plus(mass.times(p.num, p.den)));
      const direct = Walk.over((source) => {
        let first = true;
        const inRow: Source = {
          event: (p) => source.event(p),
          below: (n) => (first && n === oracle.metric.layout.rows && id === "loloha" ? ((first = false), row) : source.below(n)),
          belowBig: (n) => source.belowBig(n),
        };
        return pack(oracle.metric.layout, ...oracle.randomize(at, inRow));
      });
      assert.deepEqual(written(both), written(direct));
    }
    assert.equal(worst(responses), oracle.metric.canonical.split(" ").at(-1));
  });
}

const written = (masses: Map<string, Exact>): string[] => [...masses].map(([payload, mass]) => `${payload} ${mass}`).sort();

test("pgr: as many points support each position, and its odds are those of the sheet", () => {
  for (const id of ["pgr", "pgr_even"]) {
    const oracle = oracleOf(WIRE.metrics[id]!);
    const every = oracle.metric.layout.width;
    const on = domain(oracle).map((at) => Array.from({ length: every }, (_, x) => x).filter((x) => supports(oracle, x, Number(at))).length);
    assert.equal(new Set(on).size, 1);
    const [n, k] = [BigInt(on[0]!), BigInt(every)];
    const { num, den } = oracle.p["keep"]!;
    assert.equal(String(new Exact(num * (k - n), (den - num) * n)), oracle.metric.canonical.split(" ")[2]);
  }
});

/** The z-score of a count. */
const score = (count: number, n: number, p: number): number => (count - n * p) / Math.sqrt(n * p * (1 - p) || 1);

test("200,000 real reports follow the law", () => {
  const n = 25_000;
  const scores: number[] = [];
  for (const id of ["binary", "grr", "oue", "subset", "hadamard", "l_grr", "ordinal_mean", "set"]) {
    const oracle = oracleOf(WIRE.metrics[id]!);
    const law = one(oracle, 1n);
    const counts = new Map<string, number>();
    for (let i = 0; i < n; i++) {
      const payload = withChance((chance) => pack(oracle.metric.layout, ...oracle.randomize(1n, chance)));
      counts.set(payload, (counts.get(payload) ?? 0) + 1);
    }
    for (const payload of counts.keys()) assert.ok(law.has(payload), `${id}: ${payload} cannot be`);
    for (const [payload, mass] of law) scores.push(score(counts.get(payload) ?? 0, n, Number(mass.num) / Number(mass.den)));
  }
  // Of some 200 scores one exceeds 6 in less than one of a million runs.
  assert.ok(Math.max(...scores.map(Math.abs)) < 6, String(Math.max(...scores.map(Math.abs))));
});

test("reports of texts and keys have constant length, and draw as often whatever the answer", () => {
  class Counting extends SystemSource {
    draws: string[] = [];
    override event(p: Fraction): 0 | 1 {
      this.draws.push(`${p.num}/${p.den}`);
      return super.event(p);
    }
    override below(n: number): number {
      this.draws.push(String(n));
      return super.below(n);
    }
  }
  for (const id of ["text.256", "pem.text", "rappor.text", "rappor.key", "text.8", "window.large", "set.wide"]) {
    const oracle = oracleOf(WIDER.metrics[id]!);
    const seen = new Set<string>();
    for (const at of [0n, 1n]) {
      const source = new Counting();
      const payload = pack(oracle.metric.layout, ...oracle.randomize(at, source));
      assert.equal(payload.length, 2 * oracle.metric.layout.payload_bytes);
      seen.add(source.draws.join(" "));
    }
    assert.equal(seen.size, 1, id);
  }
});
