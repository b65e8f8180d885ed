/** Counting in the page: what a server would estimate of reports, for metrics whose report is one answer. */

import { answerOf, answersOf } from "../src/receipt.js";
import type { SheetMetric } from "../src/sheet.js";
import { Fraction } from "../src/noise/chance.js";

/** The share of an answer, with its interval at 95%. */
export interface Share {
  readonly answer: string;
  readonly share: number;
  readonly low: number;
  readonly high: number;
}

export interface Counted {
  readonly n: number;
  readonly shares: readonly Share[];
}

const NORMAL = 1.96; // of a normal law 95% lies within so many standard deviations

/** Estimate shares: each report says the truth with probability p, and each other answer with q. */
export function count(metric: SheetMetric, payloads: readonly string[]): Counted {
  const keep = Fraction.read(metric.constants["keep"] as string);
  const answers = answersOf(metric).split("; "); // as a receipt names them
  const p = Number(keep.num) / Number(keep.den);
  const q = (1 - p) / (answers.length - 1);
  const [n, says] = [payloads.length, payloads.map((payload) => answerOf(metric, payload))];
  const shares = answers.map((answer) => {
    const part = says.filter((each) => each === answer).length / n;
    const share = (part - q) / (p - q);
    const error = (NORMAL * Math.sqrt((part * (1 - part)) / n)) / (p - q);
    return { answer, share, low: share - error, high: share + error };
  });
  return { n, shares };
}

/** By how much one report can move an estimate. */
export function influence(metric: SheetMetric, n: number): number {
  const keep = Fraction.read(metric.constants["keep"] as string);
  const p = Number(keep.num) / Number(keep.den);
  return 1 / (n * (p - (1 - p) / (metric.values!.length - 1)));
}
