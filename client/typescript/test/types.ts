/** What does not compile: a misspelt metric, or an answer that is not declared. `tsc` is the test. */

import { init } from "../src/index.js";
import registry from "./registry.js";

const telemetry = init({ dsn: "https://pk_a@telemetry.invalid/shop", registry, consent: () => false, state: "memory" });

void telemetry.record("ui.theme", "dark");
void telemetry.record("ui.newsletter", true);
void telemetry.record("search.ms", 12.5);
void telemetry.record("tags", ["a", "b"]);
void telemetry.record("tags", new Set(["a"] as const));
void telemetry.record("word", "anything");
void telemetry.record("id", 12345678901234567890n);
void telemetry.record("often", null);
void telemetry.record("both", ["light", "s"]);
void telemetry.explain("ui.theme");

// @ts-expect-error no such metric
void telemetry.record("ui.teme", "dark");
// @ts-expect-error no such value
void telemetry.record("ui.theme", "drak");
// @ts-expect-error a truth value
void telemetry.record("ui.newsletter", "yes");
// @ts-expect-error a number
void telemetry.record("search.ms", "12");
// @ts-expect-error no such option
void telemetry.record("tags", ["z"]);
// @ts-expect-error it declares no `none`
void telemetry.record("ui.theme", null);
// @ts-expect-error not one of these
void telemetry.record("both", ["s", "light"]);
// @ts-expect-error no such metric
void telemetry.explain("other");
