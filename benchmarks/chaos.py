"""Chaos, by seed: a whole service under load, in which everything is killed, stopped and cut off, as in tests/system/faults.

What each run checks: the tallies are those of the accepted reports, to the unit, and so are the weight tallies of reports with
bits (`unary` are accepted, `weighed` counted by weight); every upload that was ever answered with 202 is among them. Ends with 1
if anything was lost or counted twice.

With `--relay` devices seal their reports and send them to a relay, which is killed as well, and dies at its own steps. Then each
report that it answered with 202 is counted, or is of a pool that stayed too small.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "system" / "faults"))

from chaos import STORE_TROUBLES, TROUBLES, Run, Stage
from processes import servers
from relayed import RELAY_TROUBLES, RelayStage

RELAY_COLUMNS = ("relay kills", "relay deaths", "strata", "too few")
COLUMNS = (
    "kills",
    "at before",
    "at inside",
    "at after",
    "in pieces",
    "stalls",
    "server kills",
    *STORE_TROUBLES.values(),
    "cuts",
    "replays",
    "503",
    "uploads",
)


def main() -> int:
    """Run from the command line; 1 if anything was lost or counted twice."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    parser.add_argument("--seconds", type=float, default=3.0, help="of chaos in each run")
    parser.add_argument("--store", choices=servers(), default=next(iter(servers())))
    parser.add_argument("--kind", choices=("one", "cluster", "sentinels"), default="one", help="one server, or which several")
    parser.add_argument("--relay", action="store_true", help="with a relay between devices and the server")
    parser.add_argument(
        "--only", choices=(*RELAY_TROUBLES, *(set(STORE_TROUBLES) - set(TROUBLES))), help="the one thing that happens"
    )
    parser.add_argument("--least", type=int, default=1, help="so many things happen in each run, however long it takes")
    parser.add_argument("--timeout", type=int, default=1000, help="milliseconds after which a cluster's node is taken for dead")
    arguments = parser.parse_args()
    everything = (RELAY_TROUBLES if arguments.relay else TROUBLES) | ({"move": 2} if arguments.kind == "cluster" else {})
    troubles = {arguments.only: 1} if arguments.only else everything
    columns = (*COLUMNS, *(RELAY_COLUMNS if arguments.relay else ()))
    row = "{:>5} " + "{:>13}" * len(columns) + "{:>9}" * 4 + "{:>8}"
    print(row.format("seed", *columns, "accepted", "counted", "unary", "weighed", "seconds"))
    total, faults = Run(0), 0
    kind = RelayStage if arguments.relay else Stage
    with kind(servers()[arguments.store], kind=arguments.kind, timeout=arguments.timeout) as stage:
        for seed in range(arguments.seed, arguments.seed + arguments.runs):
            rate = 0.0 if arguments.only else 0.08
            run = stage.run(seed, arguments.seconds, troubles=troubles, least=arguments.least, rate=rate)
            _print(row, columns, str(seed), run)
            for fault in run.faults[:5]:
                print(f"      {fault}")
            faults += len(run.faults)
            for name in ("done", "accepted", "counted", "unary", "weighed"):
                getattr(total, name).update(getattr(run, name))
            total.seconds += run.seconds
            for what, item in run.silences.items():
                total.silences.setdefault(what, []).extend(item)
    _print(row, columns, "all", total)
    for what, item in total.silences.items():
        print(f"{what}: no 202 for {median(item):.1f} s (median), {max(item):.1f} s at most")
    print(f"{arguments.runs} runs on {arguments.store}, {faults} faults")
    return int(faults > 0)


def _print(row: str, columns: tuple[str, ...], name: str, run: Run) -> None:
    numbers = [run.done[column] for column in columns]
    numbers += [results.total() for results in (run.accepted, run.counted, run.unary, run.weighed)]
    print(row.format(name, *numbers, f"{run.seconds:.1f}"), flush=True)


if __name__ == "__main__":
    sys.exit(main())
