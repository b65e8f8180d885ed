/** What a receipt says of one report. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { groupOf } from "../src/noise/mechanisms.js";
import { answerOf, answersOf, TEXTS } from "../src/receipt.js";
import { pack } from "../src/wire/batch.js";
import { WIRE } from "./vectors.js";

const says = (id: string, row: number, content: bigint): string | null => {
  const metric = WIRE.metrics[id]!;
  return answerOf(metric, pack(metric.layout, row, content));
};

test("a report of one answer says it, and one of several says which", () => {
  assert.equal(says("grr", 0, 1n), WIRE.metrics["grr"]!.values![1]);
  assert.equal(says("capped_set", 0, 0b1n), "a");
  assert.equal(says("capped_set", 0, 0b10000101n), "a, c or h");
  assert.equal(says("capped_set", 0, 0b1111110n), "b, c, d, e or 2 more");
  assert.equal(says("capped_set", 0, 0n), null); // it names none
  assert.equal(says("capped_set", 0, 0b11111111n), null);
});

test("answers to a yes or no are no and yes, or the page's words for them", () => {
  const id = Object.keys(WIRE.metrics).find((each) => WIRE.metrics[each]!.mechanism === "binary")!;
  assert.equal(answersOf(WIRE.metrics[id]!), "no; yes");
  assert.deepEqual([0n, 1n].map((cell) => says(id, 0, cell)), ["no", "yes"]);
  const chosen = { true: "ja", false: "nein" };
  assert.equal(answersOf(WIRE.metrics[id]!, { ...TEXTS, chosen }), "nein; ja");
});

test("a report of a few options says yes or no of each", () => {
  for (const [id, row] of [["set", 3], ["joint_set", 4], ["set_at_once", 0]] as const) {
    const { values, layout } = WIRE.metrics[id]!;
    const group = groupOf(WIRE.metrics[id]!, row);
    assert.equal(2 ** group.length, layout.width);
    for (let cell = 0; cell < layout.width; cell++) {
      const words = group.map((option, i) => `${values![option]}: ${(cell >> i) & 1 ? "yes" : "no"}`);
      assert.equal(says(id, row, BigInt(cell)), words.join(", "), id);
    }
  }
});

test("a report of a number says the part of the range that it speaks for", () => {
  const metric = WIRE.metrics["mean"]!;
  const { blocks, length } = metric.constants as { blocks: number; length: number };
  const [low, high] = metric.range!.map(Number) as [number, number];
  const unit = metric.unit ? ` ${metric.unit}` : "";
  const at = (point: number): string => String(Number((low + (point / (blocks * length)) * (high - low)).toPrecision(3)));
  assert.equal(says("mean", 0, 0n), `${low}${unit}`);
  assert.equal(says("mean", 0, 3n), `${low} to ${at(3)}${unit}`);
  assert.equal(says("mean", 0, BigInt(metric.layout.width - 1)), `${high}${unit}`);
});

test("where a report names no answer only its bytes are shown", () => {
  for (const id of ["local_hash"]) assert.equal(says(id, 0, 0n), null);
});
