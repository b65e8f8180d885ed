"""The subcommand ``simulate``: measure the errors of a registry's metrics on random tallies, drawn without devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.commands import terminal
from deniable.registry.published import newest
from deniable_aggregator.commands.options import add_seed, drawing, progress, seed, whole_number

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from deniable.commands.parser import Run
    from deniable_aggregator.planning.rehearsal import Result

_RUNS = 100


def simulate(parser: argparse.ArgumentParser) -> Run:
    """``deniable simulate FILE --users N [--shares FILE]``: draw tallies, decode them, and measure the errors."""
    parser.add_argument("file", metavar="FILE", help="a registry")
    parser.add_argument("--users", type=whole_number, required=True, metavar="N", help="people who answer once, such as 1e9")
    parser.add_argument("--shares", type=Path, metavar="CSV", help="columns metric,value,share (default: Zipf's law)")
    parser.add_argument("--runs", type=int, default=_RUNS, metavar="N", help=f"of each metric (default {_RUNS})")
    parser.add_argument("--level", type=float, default=0.95, metavar="P", help="confidence of the intervals (default 0.95)")
    add_seed(parser)
    parser.add_argument("--plot", metavar="FILE", help="plot measured and predicted errors: .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return _simulate


def _simulate(arguments: argparse.Namespace) -> int:
    import numpy as np

    from deniable_aggregator.planning.population import read_shares
    from deniable_aggregator.planning.rehearsal import rehearsals

    draw = drawing("planning.plot") if arguments.plot else None  # a missing library is reported before the work
    number = seed(arguments)
    stated = read_shares(arguments.shares) if arguments.shares else {}
    planned, left = rehearsals(newest(arguments.file), stated)
    advance = progress(len(planned) * max(arguments.runs, 0), "runs")
    # Each metric has its own stream of random numbers, so what one of them draws does not change the others.
    results = [
        rehearsal.run(arguments.users, arguments.runs, np.random.default_rng(chance), level=arguments.level, advance=advance)
        for rehearsal, chance in zip(planned, np.random.SeedSequence(number).spawn(len(planned)), strict=True)
    ]
    if arguments.json:
        print(json.dumps({"seed": number, "results": [result.to_dict() for result in results], "not_simulated": left}))
    else:
        _tell(results, left)
        print(f"Seed: {number}")
    if draw and results:
        draw(results, arguments.plot)
        if not arguments.json:
            print(f"Plot: {arguments.plot}")
    return 0


def _tell(results: Sequence[Result], left: Sequence[str]) -> None:
    rows = [("metric", "mechanism", "errors of", "reports", "runs", "measured", "predicted", "ratio", "coverage")]
    for result in results:
        known = result.predicted is not None
        ratio = f"{result.ratio:.3f} +-{result.ratio * result.ratio_stderr:.3f}" if result.ratio else "-"
        errors = f"{result.measured:.3g}", f"{result.predicted:.3g}" if known else "-"
        sizes = f"{result.n:,}", f"{result.runs:,}"
        rows.append((result.metric, result.mechanism, result.of, *sizes, *errors, ratio, f"{result.coverage:.3f}"))
    terminal.print_table(rows)
    print()
    print("measured: root of the mean squared error, over values and runs; predicted: by the mechanism's variance.")
    if any(result.of == "mean" for result in results):
        print("Errors of a mean are parts of its range.")
    if results:
        print(f"coverage: the share of {results[0].level:.4g} intervals that held the truth.")
    if left:
        print(f"Not simulated, for their answers are not listed: {', '.join(left)}.")
