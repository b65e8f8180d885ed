/** Payloads, and the body of an upload. */

import { hex, unhex, utf8 } from "../noise/chance.js";
import type { Layout } from "../sheet.js";

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

/** A text whose order is that of another one's code points, as that of its bytes in UTF-8 is. */
const points = (text: string): string => hex(utf8(text));

/** Write the body of a batch. */
export function bodyOf(app: string, reports: readonly Report[]): string {
  const groups: { [name: string]: Report[] } = {};
  for (const report of reports) {
    const { metric, version, fingerprint, period, segment } = report;
    const name = [metric, String(version).padStart(16, "0"), fingerprint, period, segment].map(points).join();
    (groups[name] ??= []).push(report);
  }
  return JSON.stringify({
    format: 1,
    app,
    groups: Object.keys(groups).sort().map((name) => {
      const group = groups[name]!;
      const { payload: _, ...of } = group[0]!;
      const bytes = unhex(group.map(({ payload }) => payload).sort().join(""));
      return { ...of, count: group.length, payloads: btoa(String.fromCharCode(...bytes)) };
    }),
  });
}
