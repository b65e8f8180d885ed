"""What the SDK for web pages weighs, and how long a record takes in a browser, measured in one run (needs Node and Chromium).

    python benchmarks/web.py             # a minute
    python benchmarks/web.py --quick     # a smoke run

Sizes are compressed, as `gzip -9` does. Times are medians of rounds, in microseconds of a call. The page is isolated, so that its
clock is exact to 5 microseconds, and a round has many calls. Each time has its multiple of what the browser takes alone:

before the ledger   an answer becomes a payload; beside a call of `crypto.getRandomValues` for 64 bytes
record              the call until the report is durably queued; beside a durable transaction that reads and writes a small value.
                    The two take turns, call by call, so that both meet the same machine
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import subprocess
import tempfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from deniable.commands.sheet import sheet
from deniable.registry import parse

SOURCE = Path(__file__).parents[1] / "client" / "typescript"
REGISTRY = """
format = 1
app = "shop"
budget = { per_month = 100000, lifetime = 1000000 }
"""
METRIC = """
[metrics.{name}]
type = "categorical"
values = {values}
epsilon = 1
{more}
per_period = 5000
period = "month"
description = "d"
owner = "o@shop.example"
"""
METRICS = {
    "grr_4": ([f"v{n}" for n in range(4)], 'mechanism = "grr"'),
    "subset_128": ([f"v{n}" for n in range(128)], 'mechanism = "subset"'),
    "hash_128": ([f"v{n}" for n in range(128)], 'mechanism = "local_hash"'),
}
PAGE = """
import { init } from "./dist/index.js";
import { oracleOf } from "./dist/noise/mechanisms.js";
import { position } from "./dist/wire/answers.js";
import { pack } from "./dist/wire/batch.js";
import { withChance } from "./dist/noise/chance.js";

const median = (numbers) => numbers.sort((a, b) => a - b)[numbers.length >> 1];
const warm = 2; // rounds that do not count
const sync = (rounds, calls, call) => {
  const times = [];
  for (let round = 0; round < rounds + warm; round++) {
    const begin = performance.now();
    for (let i = 0; i < calls; i++) call();
    if (round >= warm) times.push((1000 * (performance.now() - begin)) / calls);
  }
  return median(times);
};
const inTurns = async (rounds, ...calls) => {
  const times = calls.map(() => []);
  for (let round = 0; round < rounds + warm; round++) {
    for (const [i, call] of calls.entries()) {
      const begin = performance.now();
      await call();
      if (round >= warm) times[i].push(1000 * (performance.now() - begin));
    }
  }
  return times.map(median);
};

window.measure = async (registry, rounds, calls) => {
  const bytes = new Uint8Array(64);
  const results = { random: sync(rounds, calls, () => crypto.getRandomValues(bytes)), metrics: {} };
  const database = await new Promise((resolve) => {
    const request = indexedDB.open("alone", 1);
    request.onupgradeneeded = () => request.result.createObjectStore("state");
    request.onsuccess = () => resolve(request.result);
  });
  const alone = () => new Promise((resolve) => {
    const transaction = database.transaction("state", "readwrite", { durability: "strict" });
    const store = transaction.objectStore("state");
    store.get("state").onsuccess = () => store.put({ a: 1 }, "state");
    transaction.oncomplete = resolve;
  });
  const taken = async () => Response.json({ accepted: 1, rejected: 0, errors: [] }, { status: 202 });
  const telemetry = init({ dsn: "https://pk_a@telemetry.invalid/shop", registry, consent: true, fetch: taken });
  for (const [id, metric] of Object.entries(registry.metrics)) {
    const oracle = oracleOf(metric);
    const before = sync(rounds, calls, () =>
      withChance((chance) => pack(metric.layout, ...oracle.randomize(position(metric, "v1"), chance))));
    await telemetry.record(id, "v1");
    await telemetry.flush();
    await new Promise((resolve) => {
      const request = indexedDB.open("deniable shop");
      request.onsuccess = () => {
        const store = request.result.transaction("state", "readwrite").objectStore("state");
        store.get("state").onsuccess = (event) => {
          store.put({ ...event.target.result, born: 0 }, "state").onsuccess = () => { request.result.close(); resolve(); };
        };
      };
    });
    const recorded = telemetry.stats().recorded;
    const [record, transaction] = await inTurns(20 * rounds, () => telemetry.record(id, "v1"), alone);
    results.metrics[id] = { before, record, transaction, recorded: telemetry.stats().recorded - recorded };
  }
  return results;
};
"""
SIZES = {"all but the words of explain": "index", "with the receipt": "script"}


class _Isolated(SimpleHTTPRequestHandler):
    def end_headers(self) -> None:
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as there
        """Write no log."""


def main() -> None:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--package", type=Path, metavar="DIR", help="a folder where the package is built already")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        package = arguments.package or _built(Path(folder) / "package")
        figures = {"sizes": {name: _size(package, entry) for name, entry in SIZES.items()}, **_times(package, arguments.quick)}
    for name, size in figures["sizes"].items():
        print(f"size, {name}: {size:,} bytes compressed")
    print(f"{'':12}{'before the ledger':>20}{'multiple':>10}{'record':>12}{'multiple':>10}")
    for name, metric in figures["metrics"].items():
        before, record = metric["before"], metric["record"]
        multiples = before / figures["random"], record / metric["transaction"]
        print(f"{name:12}{before:17.1f} us{multiples[0]:10.1f}{record:9.0f} us{multiples[1]:10.2f}")
    transactions = ", ".join(f"{metric['transaction']:.0f}" for metric in figures["metrics"].values())
    print(f"alone: random bytes {figures['random']:.2f} us, a durable transaction {transactions} us")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2), "utf-8")


def _built(package: Path) -> Path:
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("node_modules", "build", "dist"))
    for command in (["npm", "ci", "--ignore-scripts", "--silent"], ["npm", "run", "--silent", "build"]):
        subprocess.run(command, cwd=package, check=True)
    return package


def _bundle(package: Path, entry: str, target: str, *options: str) -> bytes:
    folder = (package / target).parent
    command = ["npx", "esbuild", entry, "--bundle", "--format=esm", f"--outdir={folder}", "--log-level=warning", *options]
    subprocess.run(command, cwd=package, check=True)
    return (package / target).read_bytes()


def _size(package: Path, entry: str) -> int:
    return len(gzip.compress(_bundle(package, f"dist/{entry}.js", f"build/size/{entry}.js", "--minify", "--splitting"), 9))


def _times(package: Path, quick: bool) -> dict[str, Any]:  # noqa: FBT001 - one of two
    from playwright.sync_api import sync_playwright

    (package / "speed.js").write_text(PAGE, "utf-8")
    site = package / "build" / "speed"
    _bundle(package, "speed.js", "build/speed/speed.js")
    (site / "index.html").write_text('<!doctype html><title>Speed</title><script type="module" src="speed.js"></script>', "utf-8")
    text = REGISTRY + "".join(METRIC.format(name=name, values=values, more=more) for name, (values, more) in METRICS.items())
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Isolated, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
        page.wait_for_function("window.measure !== undefined")
        rounds, calls = (2, 100) if quick else (15, 2000)
        figures: dict[str, Any] = page.evaluate("([...all]) => measure(...all)", [sheet(parse(text)), rounds, calls])
        browser.close()
    server.shutdown()
    server.server_close()
    return figures


if __name__ == "__main__":
    main()
