"""The subcommand ``simulate``: measure errors on random tallies, or send the reports of simulated people into a trial."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.commands import terminal
from deniable.commands.parser import REGISTRY
from deniable.errors import ConfigurationError
from deniable.forecast.precision import length
from deniable.limits import admission
from deniable.messages.plural import plural
from deniable.registry import published
from deniable_aggregator.commands import off, options

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np

    from deniable.commands.parser import Run
    from deniable.registry import Registry
    from deniable_aggregator.people.comparison import Compared
    from deniable_aggregator.people.crowd import Crowd
    from deniable_aggregator.people.truth import Figure
    from deniable_aggregator.planning.rehearsal import Result

_RUNS, _LEVEL, _DAYS, _DEVICES = 100, 0.95, 30, 20_000
_ALONE = {"users": None, "runs": None, "level": None, "plot": None}
_SENT = {"devices": None, "days": None, "csv": None, "truth": None, "data": None, "redis_url": None}
_MOST_USERS, _MOST_DEVICES = 10**15, 5_000_000
_SHOWN = 4  # answers of a metric, the most frequent first


def simulate(parser: argparse.ArgumentParser) -> Run:
    """``deniable simulate FILE --users N [--shares FILE]``, or ``deniable simulate FILE --send [--devices N] [--days D]``."""
    parser.add_argument("file", nargs="?", default=REGISTRY, metavar="FILE", help=f"default: {REGISTRY}")
    about = "columns metric,value,share (default: Zipf's law; with --send also a trend, and differences between segments)"
    parser.add_argument("--shares", type=Path, metavar="CSV", help=about)
    options.add_seed(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    alone = parser.add_argument_group("errors to expect, measured on tallies without a store")
    alone.add_argument("--users", type=options.whole_number, metavar="N", help="people who answer once, such as 1e9")
    alone.add_argument("--runs", type=int, metavar="N", help=f"of each metric (default {_RUNS})")
    alone.add_argument("--level", type=float, metavar="P", help=f"confidence of the intervals (default {_LEVEL:g})")
    alone.add_argument("--plot", metavar="FILE", help="plot measured and predicted errors: .svg, .png or .pdf")
    sent = parser.add_argument_group("reports of simulated people, for the trial that `deniable serve` runs")
    sent.add_argument("--send", action="store_true", help="send them; the registry says trial = true under [publication]")
    about = f"people, each with a device (default {_DEVICES}; with --csv: one for each line)"
    sent.add_argument("--devices", type=options.whole_number, metavar="N", help=about)
    sent.add_argument("--days", type=int, metavar="D", help=f"days on which they answer, up to today (default {_DAYS})")
    sent.add_argument("--csv", type=Path, metavar="CSV", help="what people answer, one a line: columns are metrics and segments")
    sent.add_argument("--truth", type=Path, metavar="CSV", help="write what they truly answered, by period and segment")
    options.add_store(sent)
    return _simulate


def _simulate(arguments: argparse.Namespace) -> int:
    others = _ALONE if arguments.send else _SENT
    for name in others:
        if getattr(arguments, name) is not None:
            option = f"--{name.replace('_', '-')}"
            if arguments.send:
                raise ConfigurationError(f"{option} measures errors and sends nothing: leave out {option}, or --send")
            raise ConfigurationError(f"{option} is about people who answer a trial: add --send, and have `deniable serve` run")
    if arguments.send:
        return _send(arguments)
    if arguments.users is None:
        raise ConfigurationError("this needs --users, the number of people; or --send, which sends reports into a trial")
    return _measure(arguments)


def _measure(arguments: argparse.Namespace) -> int:
    import numpy as np

    from deniable_aggregator.planning.population import read_shares
    from deniable_aggregator.planning.rehearsal import rehearsals

    draw = options.drawing("planning.plot") if arguments.plot else None  # a missing library is reported before the work
    if arguments.users > _MOST_USERS:
        raise ConfigurationError(f"--users {arguments.users:,}: write {_MOST_USERS:,} or fewer")
    number = options.seed(arguments)
    runs = _RUNS if arguments.runs is None else arguments.runs
    level = _LEVEL if arguments.level is None else arguments.level
    registry = published.newest(arguments.file)
    stated = read_shares(arguments.shares, registry) if arguments.shares else {}
    planned, left = rehearsals(registry, stated)
    advance = options.progress(len(planned) * max(runs, 0), "runs")
    # Each metric has its own stream of random numbers, so what one of them draws does not change the others.
    results = [
        rehearsal.run(arguments.users, runs, np.random.default_rng(chance), level=level, advance=advance)
        for rehearsal, chance in zip(planned, np.random.SeedSequence(number).spawn(len(planned)), strict=True)
    ]
    not_recorded = admission.off(registry, datetime.now(UTC).date())
    if arguments.json:
        written = [result.to_dict() for result in results]
        print(json.dumps({"seed": number, "results": written, "not_simulated": left, "off": not_recorded}))
    else:
        _tell(results, left, registry, not_recorded)
        print(f"Seed: {number}")
    if draw and results:
        draw(results, arguments.plot)
        if not arguments.json:
            print(f"Plot: {arguments.plot}")
    return 0


def _tell(results: Sequence[Result], left: Sequence[str], registry: Registry, not_recorded: Mapping[str, str]) -> None:
    rows: list[tuple[str, ...]] = [
        ("metric", "mechanism", "errors of", "reports", "runs", "measured", "predicted", "ratio", "coverage")
    ]
    for result in results:
        ratio = f"{result.ratio:.3f} +-{result.ratio * result.ratio_stderr:.3f}" if result.ratio else "-"
        errors = [_error(result, part, registry) if part is not None else "-" for part in (result.measured, result.predicted)]
        sizes = f"{result.n:,}", f"{result.runs:,}"
        rows.append(
            (
                off.marked(result.metric, not_recorded),
                result.mechanism,
                result.of,
                *sizes,
                *errors,
                ratio,
                f"{result.coverage:.3f}",
            )
        )
    terminal.print_table(rows)
    print()
    for line in off.lines(not_recorded):
        print(line)
    print("measured: root of the mean squared error, over values and runs; predicted: by the mechanism's variance.")
    if results:
        print(f"coverage: the share of {results[0].level:.4g} intervals that held the truth.")
    if left:
        print(f"Not simulated, for their answers are not listed: {', '.join(left)}.")


def _error(result: Result, part: float, registry: Registry) -> str:
    """Write the error of a share, or of a mean in the unit of its metric."""
    return length(registry.metrics[result.metric], part) if result.of == "mean" else f"{part:.3g}"


@options.answered
def _send(arguments: argparse.Namespace) -> int:
    import numpy as np

    from deniable_aggregator.people import comparison, sending
    from deniable_aggregator.publish.publisher import Publisher

    registry = published.load(arguments.file)
    store = options.stores(options.environment(arguments), [registry.app])[0]
    number = options.seed(arguments)
    days = sending.Days.until(datetime.now(UTC), _DAYS if arguments.days is None else arguments.days, registry)
    sending.check_trial(store, registry, days)
    crowd = _crowd(arguments, registry, np.random.SeedSequence(number))
    planned = sending.occasions(registry, list(crowd.answers), days)
    sending.check_open(store, registry, planned)
    sending.check_empty(store, registry)
    print(f"{crowd.size:,} people, {days}: {crowd.description}.", file=sys.stderr, flush=True)
    if arguments.truth:
        _write(arguments.truth, [])  # before the work: it may not be writable
    began = time.monotonic()
    truth, reports = sending.send(store, registry, crowd, days, planned, options.progress(len(planned), "periods"))
    seconds = time.monotonic() - began
    print("Publishing ...", file=sys.stderr, flush=True)
    Publisher(store, registry, actor="command").publish(store.now())
    compared = list(comparison.compare(store, registry, truth.in_all()))
    if arguments.truth:
        _write(arguments.truth, truth.by_period())
    if arguments.json:
        sizes = {"seed": number, "devices": crowd.size, "days": str(days), "reports": reports, "seconds": seconds}
        rows = [each._asdict() | {"inside": each.inside} for each in compared]
        print(json.dumps(sizes | {"level": comparison.LEVEL, "rows": rows}))
        return 0
    _compare(compared, comparison.LEVEL)
    speed = f"{reports:,} reports in {seconds:.1f} s, of {60 * crowd.size / seconds:,.0f} people a minute"
    verdicts = [each.inside for each in compared]
    held = f" {sum(verdicts)} of {len(verdicts)} intervals hold the truth." if verdicts else ""
    print(f"\n{speed}.{held}")
    if arguments.truth:
        print(f"Truth by period and segment: {arguments.truth}")
    _point_to(arguments, registry, crowd)
    print(f"Seed: {number}, for the same people again; the noise of their reports is never the same.")
    return 0


def _crowd(arguments: argparse.Namespace, registry: Registry, chance: np.random.SeedSequence) -> Crowd:
    """Make the people that the options describe."""
    from deniable_aggregator.people import plausible, table
    from deniable_aggregator.planning.population import read_shares

    if arguments.devices is not None and not 1 <= arguments.devices <= _MOST_DEVICES:
        more = "; for more people, --users N without --send says what errors to expect" if arguments.devices > 1 else ""
        raise ConfigurationError(f"--devices {arguments.devices:,}: write a number from 1 to {_MOST_DEVICES:,}{more}")
    if arguments.csv and arguments.shares:
        raise ConfigurationError("--csv and --shares both say what people answer: leave one of them out")
    if arguments.csv:
        return table.crowd(registry, arguments.csv, arguments.devices, chance)
    stated = read_shares(arguments.shares, registry) if arguments.shares else {}
    return plausible.crowd(registry, arguments.devices or _DEVICES, stated, chance)


def _write(path: Path, figures: Iterable[Figure]) -> None:
    from deniable_aggregator.people.truth import Figure

    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(Figure._fields)
            writer.writerows(figures)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None


def _compare(compared: Sequence[Compared], level: float) -> None:
    """Print figures beside their estimates: of everybody, and of each segment the most frequent answers."""
    headings = "metric", "segment", "value", "truth", "estimate", f"{level:.1%} interval", "holds the truth"
    rows: list[tuple[str, ...]] = [headings]
    printed: Counter[tuple[str, str]] = Counter()
    for row in sorted(compared, key=lambda row: (row.metric, row.segment, -row.truth)):
        printed[row.metric, row.segment] += 1
        if printed[row.metric, row.segment] <= _SHOWN:
            figures = f"{row.truth:.4g}", f"{row.estimate:.4g}", f"{row.low:.4g} to {row.high:.4g}"
            rows.append((row.metric, row.segment or "-", row.value, *figures, "yes" if row.inside else "NO"))
    terminal.print_table(rows)
    if len(rows) <= len(compared):
        what = f"the {_SHOWN} most frequent answers of each metric and segment"
        print(f"\nShown: {len(rows) - 1} of {plural(len(compared), 'row')}, {what}. --json prints all.")


def _point_to(arguments: argparse.Namespace, registry: Registry, crowd: Crowd) -> None:
    """Say where to look, if the page is known."""
    from deniable_aggregator.process import running

    served = None if arguments.redis_url else running.find(arguments.data or running.FOLDER)
    if served is None:
        return
    print(f"Look at:    {served.url}/?app={registry.app}")
    metrics = [registry.metrics[id_] for id_ in crowd.answers]
    short = {"hour": 0, "day": 1, "week": 2, "month": 3}
    trend = min(metrics, key=lambda metric: short[metric.period])
    print(f"A trend:    {served.url}/m/{trend.id}?app={registry.app}")
    for name in registry.experiments:
        tried = next((metric for metric in metrics if name in metric.segments), None)
        if tried:
            print(f"Experiment: {served.url}/m/{tried.id}/experiment?segment={name}&app={registry.app}")
            break
