/** Payloads, and the body of an upload. */

import type { Layout } from "./sheet.js";

/** A randomised report: all that ever leaves the device. */
export interface Report {
  readonly metric: string;
  readonly version: number;
  readonly fingerprint: string;
  readonly period: string;
  readonly segment: string;
  /** In hexadecimal. */
  readonly payload: string;
}

const littleEndian = (number: bigint, length: number): string =>
  (length ? number.toString(16).padStart(2 * length, "0").match(/../g)! : []).reverse().join("");

/** Pack a row and a content; in hexadecimal. */
export function pack(layout: Layout, row: number, content: bigint): string {
  if (layout.kind === "index") return littleEndian(BigInt(row) * BigInt(layout.width) + content, layout.payload_bytes);
  return littleEndian(BigInt(row), layout.row_bytes) + littleEndian(content, layout.payload_bytes - layout.row_bytes);
}

/** Compare by code points, not by the units of UTF-16. */
function compare(a: string, b: string): number {
  const [left, right] = [Array.from(a), Array.from(b)];
  for (let i = 0; i < Math.min(left.length, right.length); i++) {
    const difference = left[i]!.codePointAt(0)! - right[i]!.codePointAt(0)!;
    if (difference) return difference;
  }
  return left.length - right.length;
}

/** Write the body of a batch. */
export function bodyOf(reports: readonly Report[]): string {
  const groups = new Map<string, { of: Report; payloads: string[] }>();
  for (const report of reports) {
    const { payload, ...of } = report;
    const name = JSON.stringify([of.metric, of.version, of.fingerprint, of.period, of.segment]);
    const group = groups.get(name) ?? { of: report, payloads: [] };
    group.payloads.push(payload);
    groups.set(name, group);
  }
  const sorted = [...groups.values()].sort(
    ({ of: a }, { of: b }) =>
      compare(a.metric, b.metric) ||
      a.version - b.version ||
      compare(a.fingerprint, b.fingerprint) ||
      compare(a.period, b.period) ||
      compare(a.segment, b.segment),
  );
  return JSON.stringify({
    format: 1,
    groups: sorted.map(({ of, payloads }) => ({
      metric: of.metric,
      version: of.version,
      fingerprint: of.fingerprint,
      period: of.period,
      segment: of.segment,
      count: payloads.length,
      payloads: btoa(payloads.sort().join("").replace(/../g, (pair) => String.fromCharCode(parseInt(pair, 16)))),
    })),
  });
}
