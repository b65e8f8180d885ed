/** The sheets of the conformance suite. */

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Sheet } from "../src/sheet.js";

const FOLDER = process.env["DENIABLE_VECTORS"] ?? fileURLToPath(new URL("../../../deniable/conformance/vectors/", import.meta.url));

const sheetsOf = (file: string): { [name: string]: Sheet } =>
  (JSON.parse(readFileSync(`${FOLDER}/${file}.json`, "utf8")) as { sheets: { [name: string]: Sheet } }).sheets;

export const WIRE = sheetsOf("vectors")["wire"]!;
export const WIDER = sheetsOf("wider")["wider"]!;
export const WORKED = sheetsOf("device")["worked"]!;
