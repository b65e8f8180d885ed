"""What the SDK costs a program that records and ends: its start, its end, the disk, the slowest calls, and what travels.

    python benchmarks/command_line.py
    python benchmarks/command_line.py --rounds 5     # a smoke run

Each figure is of a fresh process, with those of a bare interpreter between them, so that a slow minute hits both. Processor time
and wall time are over those of the bare one: the least, and the median.

ready         importing the SDK, and `init` with the DSN of another machine, in an interpreter that has loaded nothing else
end           from the last line of the program to the end of its process, with a report in the queue: the server refuses
              connections, takes them and never answers, or answers
instructions  those of `ready`, counted by valgrind: the same on a busy machine
no            importing `deniable.cli` and asking whether anything is recorded, for somebody who said no
syncs         waits for the disk by the first record of a new device, counted by strace
p99.9         of `record`, of a metric with many reports a period, with the sending thread beside it
second runs   how many first runs' reports have arrived after a second run, which records, works for some seconds and ends. The
              server is on this machine and speaks no TLS
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

from sdk import Sink, servers

REGISTRY = """
format = 1
app = "shop"
budget = { per_month = 1_000_000.0, lifetime = 1_000_000.0 }

[metrics."ui.theme"]
type = "categorical"
values = ["light", "dark", "system", "something else"]
other = "something else"
epsilon = 1.0
period = "month"
per_period = 100_000
description = "Which theme people use"
owner = "bench@shop.example"
"""
INIT = """
import deniable
deniable.init({url!r}.replace('//', '//key@') + '/shop', registry='metrics.toml', consent=True, state='state')
"""
RECORD = f"{INIT}\nassert deniable.record('ui.theme', 'dark')\n"
NO = """
from deniable.cli import Telemetry
assert not Telemetry('https://key@t.example/shop', registry='metrics.toml').ask()
"""
LEAVE = "import os; os._exit(0)"
END = "import time; print(time.time(), flush=True)"
WORK = (0.0, 0.1, 0.2, 0.4)
SYNCS = f"""
{INIT}
import os
os.write(2, b'begun')
assert deniable.record('ui.theme', 'dark')
os.write(2, b'ended')
os._exit(0)
"""
CALLS = f"""
{RECORD}
import gc, json, os, time
now, times = time.perf_counter_ns, []
gc.disable()
for i in range({{calls}}):
    begun = now()
    deniable.record('ui.theme', 'dark')
    times.append(now() - begun)
    if i % 100 == 0:
        time.sleep(0.001)  # an app does something else, too
times.sort()
print(json.dumps([times[int(len(times) * share)] / 1e6 for share in (0.5, 0.99, 0.999)]), flush=True)
os._exit(0)
"""


def run(code: str, *before: str, folder: str = "") -> tuple[float, float, str, str]:
    """Run a program, in a new folder or a given one; return milliseconds of processor time and of its end, and what it wrote."""
    with tempfile.TemporaryDirectory() as new:
        folder = folder or new
        Path(folder, "metrics.toml").write_text(REGISTRY, "utf-8")
        environment = {name: text for name, text in os.environ.items() if name not in ("CI", "DENIABLE_DSN")}
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [*before, sys.executable, "-I", "-c", code],
            cwd=folder,
            env=environment | {"DENIABLE_STATE_DIR": f"{folder}/states"},
            capture_output=True,
            text=True,
            check=True,
        )
        ended, after = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - spent.ru_utime - spent.ru_stime
    last = done.stdout.split()[-1] if done.stdout else "nan"
    wall = ended - float(last) if last.replace(".", "").isdigit() else 0.0
    return 1000 * cpu, 1000 * wall, done.stdout, done.stderr


def count_instructions(kind: tuple[str, str]) -> int:
    """Count the instructions of a program."""
    counted = run("\n".join(kind), "valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")[3]
    return int(re.findall(r"I +refs: +([\d,]+)", counted)[0].replace(",", ""))


class Keeping(Sink):
    """Takes everything, and keeps the keys of the uploads."""

    keys: ClassVar[set[str]] = set()

    def do_POST(self) -> None:  # noqa: N802 - named by the base class
        self.keys.add(self.headers["Idempotency-Key"])
        super().do_POST()


def second_runs(rounds: int) -> dict[float, int]:
    """Return how many first runs' reports have arrived after a second run, by the seconds for which that works."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Keeping)
    Thread(target=server.serve_forever, daemon=True).start()
    program = RECORD.format(url=f"http://127.0.0.1:{server.server_port}")
    arrived = dict.fromkeys(WORK, 0)
    for _ in range(rounds):
        for seconds in WORK:
            with tempfile.TemporaryDirectory() as folder:
                run(program, folder=folder)
                (spooled,) = Path(folder).rglob("*.json.gz")
                run(f"{program}\nimport time; time.sleep({seconds})", folder=folder)
                arrived[seconds] += spooled.name.split(".")[0] in Keeping.keys
    server.shutdown()
    server.server_close()
    return arrived


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25, help="processes of each kind")
    parser.add_argument("--calls", type=int, default=20_000, help="calls of record")
    options = parser.parse_args()
    with servers() as (sink, closed, silent):
        kinds = {
            "bare": ("pass", LEAVE),
            "ready": (INIT.format(url="https://t.invalid"), LEAVE),
            "no": (NO, LEAVE),
            "end of a bare one": ("", END),
            "end, refused": (RECORD.format(url=closed), END),
            "end, no answer": (RECORD.format(url=silent), END),
            "end, answered": (RECORD.format(url=sink), END),
        }
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
        run(kinds["ready"][0])  # writes bytecode
        for _ in range(options.rounds):
            for name, (code, end) in kinds.items():
                figures[name].append(run(f"{code}\n{end}")[:2])
        calls = json.loads(run(CALLS.format(url=closed, calls=options.calls))[2])
        trace = ("strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,write")
        first = run(SYNCS.format(url=closed), *trace)[3] if shutil.which("strace") else ""
    arrived = second_runs(options.rounds)
    instructions = count_instructions(kinds["ready"]) - count_instructions(kinds["bare"]) if shutil.which("valgrind") else 0
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores")
    for place, base, names in ((0, "bare", ("ready", "no")), (1, "end of a bare one", list(kinds)[4:])):
        bare = [each[place] for each in figures[base]]
        for name in names:
            own = [each[place] for each in figures[name]]
            least, median = min(own) - min(bare), statistics.median(own) - statistics.median(bare)
            print(f"{name:<16} {least:6.1f} ms least, {median:6.1f} ms median, {'wall' if place else 'processor'} time")
    if instructions:
        print(f"instructions     {instructions / 1e6:.0f} million")
    if first:
        print(f"syncs            {first.partition('begun')[2].partition('ended')[0].count('sync(')}")
    print("record           p50 {:.4f}, p99 {:.4f}, p99.9 {:.4f} ms".format(*calls))
    words = ", ".join(f"{number} where it works for {seconds} s" for seconds, number in arrived.items())
    print(f"second runs      of {options.rounds}: {words}")


if __name__ == "__main__":
    main()
