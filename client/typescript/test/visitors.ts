/** Many visitors of a page, each with a device of its own: `node visitors.js DSN SHEET ANSWERS COUNT`. */

import { readFileSync } from "node:fs";
import { init } from "../src/index.js";
import type { Sheet } from "../src/sheet.js";

const [dsn, sheet, answers, count] = process.argv.slice(2) as [string, string, string, string];
const registry = JSON.parse(readFileSync(sheet, "utf8")) as Sheet;
console.warn = () => undefined;

async function visit(number: number): Promise<{ sent: number; left: number; disabled: string | null }> {
  const telemetry = init({ dsn, registry, consent: () => true, segments: { platform: "linux", version: "2.4" }, state: "memory" });
  for (const [metric, listed] of Object.entries(JSON.parse(answers) as { [metric: string]: unknown[] }))
    await telemetry.record(metric, listed[number % listed.length] as never);
  const outcome = await telemetry.flush();
  const { disabled } = telemetry.stats();
  telemetry.close();
  return { ...outcome, disabled };
}

let [sent, left] = [0, 0];
for (let number = 0; number < Number(count); number += 20) {
  const outcomes = await Promise.all(Array.from({ length: Math.min(20, Number(count) - number) }, (_, i) => visit(number + i)));
  for (const outcome of outcomes) {
    sent += outcome.sent;
    left += outcome.left;
    if (outcome.disabled) throw new Error(outcome.disabled);
  }
}
process.stdout.write(JSON.stringify({ sent, left }));
