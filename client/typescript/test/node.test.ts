/** The state on disk, where Node has SQLite built in. */

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Telemetry } from "../src/client.js";
import { fileStore } from "../src/node.js";
import type { Sheet } from "../src/sheet.js";
import { WIRE } from "./vectors.js";

const [major, minor] = process.versions.node.split(".").map(Number) as [number, number];
console.warn = () => undefined;
const has = major > 22 || (major === 22 && minor >= 13);

test("a state on disk outlives the program, and two of them share it", { skip: !has && "this Node has no SQLite" }, async () => {
  const folder = join(mkdtempSync(join(tmpdir(), "deniable-")), "state");
  const dsn = "https://pk_a@telemetry.invalid/shop";
  const open = async (): Promise<Telemetry<Sheet>> =>
    new Telemetry<Sheet>({ dsn, registry: WIRE, consent: true, state: await fileStore(folder) });
  const first = await open();
  assert.equal(await first.waiting(), 0); // asking makes none
  assert.throws(() => statSync(folder));
  assert.equal(await first.record("grr", "0" as never), true);
  assert.equal(await first.record("l_grr", "a" as never), true); // a disk does not forget, so nothing has to be earned
  const second = await open();
  assert.equal(await second.record("grr", "0" as never), false);
  assert.equal(await second.waiting(), 2);
  const both = await Promise.all([first, second].flatMap((each) => [1, 2, 3].map(() => each.record("oue", "a" as never))));
  assert.equal(both.filter(Boolean).length, 3);
  assert.equal(statSync(join(folder, "typescript.db")).mode & 0o777, 0o600);
  await second.setConsent(false);
  assert.equal(await first.waiting(), 0);
  assert.doesNotMatch(readFileSync(join(folder, "typescript.db"), "latin1"), /"payload"/); // what is deleted is overwritten
});

test("without SQLite it is said", { skip: has && "this Node has SQLite" }, async () => {
  await assert.rejects(fileStore("/nowhere"));
});
