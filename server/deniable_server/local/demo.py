"""``deniable demo``: simulated devices answer through real processes, and true shares are compared with estimates.

Every device answers through the SDK's own `Client.record`. A store, gunicorn and a worker run as in production. One process
stands for many devices: each answer is randomised on its own, and only the uploads are shared.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from math import sqrt
from pathlib import Path
from secrets import token_hex, token_urlsafe
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import requests
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from deniable import mechanisms, registry
from deniable.commands import terminal
from deniable.errors import ConfigurationError
from deniable.exact.epsilon import exact
from deniable.mechanisms.base import FrequencyOracle
from deniable_aggregator.process import children
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.store import Store, connect
from deniable_server.local import devices, mixed, population
from deniable_server.local.stack import Stack
from deniable_server.settings import Settings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from deniable.registry import Metric
    from deniable_server.local.mixed import Mixing
    from deniable_server.local.population import Answer, Population
    from deniable_server.local.year import Outcome, Year

LEVEL = 0.999  # of all intervals of a demo together
_CHUNK = 1000  # devices that share a client
_DAILY_CHUNK = 50  # devices with a client each
_SHOWN = 12  # values of a metric, the most frequent first
_COUNT_SECONDS = 120.0
_LARGE = 10  # larger figures are shown with one decimal, others with two
_SHARES = {"median": 0.5, "90% quantile": 0.9}


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; return the exit status: 1 where a truth lies outside its interval."""
    if arguments.devices < 1:
        raise ConfigurationError(f"--devices {arguments.devices}: write 1 or more")
    epsilon = arguments.epsilon
    exact(epsilon)
    console = Console(file=terminal.raw(sys.stderr))
    if arguments.input:
        everybody = population.from_csv(arguments.input, arguments.column, arguments.string)
    elif arguments.column or arguments.string:
        raise ConfigurationError("--column and --string name columns of --input FILE.csv, which is missing")
    else:
        everybody = population.flights(year=arguments.year)
    people = everybody.sample(arguments.devices, arguments.seed)
    people = people.listed() if arguments.relay else people
    with tempfile.TemporaryDirectory(prefix="deniable-demo-") as folder:
        # In a given store the demo uses a new app, so that earlier reports are not in its sums.
        app = f"demo-{token_hex(4)}" if arguments.redis_url else "demo"
        mixing = mixed.Mixing(Path(folder), len(people.rows)) if arguments.relay else None
        metrics = mixing.declare(people, app, epsilon) if mixing else people.registry(Path(folder), app, epsilon)
        loaded = registry.load(metrics)
        settings = Settings(
            redis_url=arguments.redis_url or "",
            registry=str(metrics),
            ingest_keys=f"{app}:pk_{token_urlsafe(24)}",
            read_keys=f"{app}:rk_{token_urlsafe(24)}",
            dashboard="open",
            max_backlog=100_000,
            sealing_keys=str(mixing.keys) if mixing else "",
        )
        bind = f"127.0.0.1:{arguments.port or 0}"
        console.print("Starting a store, a server and a worker ...")
        with Stack(settings, bind=bind, log_file=Path(folder, "log")) as stack:
            console.print(f"Store: {stack.origin}")
            console.print(f"Watch: {stack.url}/")
            console.print("Everything is published at once, as in a trial (trial = true).")
            console.print(f"{_devices(people):,} devices answer ...")
            started = time.monotonic()
            store = Store(connect(stack.store_url), app)
            with mixing.start(metrics, stack.url, store) if mixing else nullcontext():
                _collect(people, stack, settings, console, store, mixing)
            # A worker would publish later; the demo does not wait for it.
            Publisher(store, loaded).publish(time.time())
            seconds = time.monotonic() - started - (mixing.waited if mixing else 0.0)
            level = 1 - (1 - LEVEL) / people.figures  # of each interval (Bonferroni)
            ask = partial(_ask, stack, settings)
            shares, numbers = people.shares(), people.numbers()
            results = [_compare(ask(f"{quote(id_)}?level={level}"), shares[id_], loaded.metrics[id_]) for id_ in shares]
            compared = [_compare_number(ask(f"{quote(id_)}?level={level}"), id_, numbers[id_]) for id_ in numbers]
            if people.year:
                _count_year(people.year, settings, console, store)
            year = people.year.outcome(ask, level) if people.year else None
            outcome = _outcome(people, arguments.epsilon, stack, seconds, results, compared, year)
            outcome["relay"] = mixed.outcome(loaded) if mixing else None
            if mixing and not arguments.json:
                mixed.show(Console(file=terminal.raw(sys.stdout)), loaded, outcome["relay"])
            if arguments.json:
                print(json.dumps(outcome, indent=2), flush=True)
            else:
                _show(outcome, results, compared, year, show_all=arguments.all)
            _keep_page_up(stack, console, keep=_stays(arguments))
    return 0 if outcome["all_inside"] else 1


def _stays(arguments: argparse.Namespace) -> bool:
    """Return whether the page stays up: as the option says, else if the output goes to a terminal."""
    keep: bool | None = arguments.keep
    return sys.stdout.isatty() and not arguments.json if keep is None else keep


def _keep_page_up(stack: Stack, console: Console, *, keep: bool) -> None:
    """Keep the page up until Ctrl-C, or say how to."""
    if keep:
        console.print(f"Look around: the page stays at {stack.url}/ until you press Ctrl-C.")
        stack.wait()
        console.print("Stopping ...")
    else:
        console.print(f"The services stop, and the page at {stack.url}/ with them; `deniable demo --keep` leaves them up.")


def _collect(people: Population, stack: Stack, settings: Settings, console: Console, store: Store, mixing: Mixing | None) -> None:
    """Let every device answer, and wait until every answer is counted."""
    metrics = registry.load(settings.registry).metrics.values()
    app, _, key = settings.ingest_keys.partition(":")
    dsn = mixing.dsn if mixing else f"http://{key}@{stack.bind}/{app}"
    moment = mixing.moment if mixing else None
    names = [column.metric for column in people.columns]
    reports = _reports(people)
    tasks: list[Any] = [(partial(devices.answer, moment=moment), names, chunk) for chunk in _chunks(people.rows, _CHUNK)]
    if people.daily:
        tasks += [(devices.answer_daily, people.daily.column.metric, chunk) for chunk in _chunks(people.daily.rows, _DAILY_CHUNK)]
    columns = TextColumn("{task.description:>18}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    pool = ProcessPoolExecutor(min(os.cpu_count() or 1, 4), multiprocessing.get_context("spawn"))
    with Progress(*columns, console=console) as progress, pool:
        answered = progress.add_task("devices answered", total=_devices(people))
        counted = progress.add_task("reports counted", total=reports)
        with children.spared():  # the pool starts its processes as chunks are submitted
            futures = {
                pool.submit(answer, dsn, settings.registry, question, chunk): len(chunk) for answer, question, chunk in tasks
            }
        try:
            for number, future in enumerate(as_completed(futures)):
                future.result()
                progress.update(answered, advance=futures[future])
                if number % 10 == 0:
                    stack.check()
                    progress.update(counted, completed=_counted(store, metrics))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        deadline = time.monotonic() + _COUNT_SECONDS + (mixing.announce(console) if mixing else 0.0)
        while (done := _counted(store, metrics)) < reports:
            stack.check()
            if mixing:
                mixing.check()
            if time.monotonic() > deadline:
                raise ConfigurationError(f"{done} of {reports} reports were counted within {_COUNT_SECONDS:g} s")
            progress.update(counted, completed=done)
            time.sleep(0.1)
        progress.update(counted, completed=done)


def _count_year(year: Year, settings: Settings, console: Console, store: Store) -> None:
    """Let the devices of a year answer, and publish it."""
    console.print("Second act: a year of days, whose reports are counted here, because no server takes reports so late.")
    loaded = registry.load(settings.registry)
    columns = TextColumn("{task.description:>18}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress:
        answered = progress.add_task("reports counted", total=3 * len(year.flights))
        for reports in year.put(store, loaded):
            progress.update(answered, advance=reports)
    console.print("Publishing the year ...")
    Publisher(store, loaded).publish(time.time())


def _chunks(rows: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _devices(people: Population) -> int:
    return len(people.rows) + (len(people.daily.rows) if people.daily else 0)


def _reports(people: Population) -> int:
    daily = sum(map(len, people.daily.rows)) if people.daily else 0
    return len(people.rows) * len(people.columns) + daily


def _ask(stack: Stack, settings: Settings, path: str) -> Any:
    headers = {"Authorization": f"Bearer {settings.read_keys.partition(':')[2]}"}
    with requests.Session() as session:
        session.trust_env = False  # this machine's own server is not reached through a proxy
        answer = session.get(f"{stack.url}/api/v1/metrics/{path}", headers=headers, timeout=30)
    answer.raise_for_status()
    return answer.json()


def _counted(store: Store, metrics: Iterable[Metric]) -> int:
    """Read the number of counted reports from the store; the page shows what is published only."""
    return sum(store.read(mechanisms.of(metric).layout, list(store.strata(metric.id))).n for metric in metrics)


@dataclass(frozen=True, slots=True)
class TruthRow:
    """The true and the estimated share of a value, in [0, 1]."""

    value: str
    true: float
    estimated: float
    low: float
    high: float
    inside: bool


@dataclass(frozen=True, slots=True)
class Result:
    """The true and the estimated shares of a metric."""

    # metric, mechanism, epsilon, n: as the server answers
    metric: str
    mechanism: str
    epsilon: float
    n: int
    level: float  # confidence of all intervals together
    # mse, predicted_mse: mean squared error measured, and predicted by the exact variance at the true shares
    mse: float
    predicted_mse: float
    # ratio, ratio_spread: the first divided by the second, and the standard deviation expected of it
    ratio: float
    ratio_spread: float
    rows: tuple[TruthRow, ...]  # one for each value


def _compare(answer: dict[str, Any], shares: dict[Answer, float], metric: Metric) -> Result:
    rows, n = [], answer["n"]
    for estimate, true in zip(answer["estimates"], shares.values(), strict=True):
        low, high = estimate["simultaneous"]
        rows.append(TruthRow(estimate["label"], true, estimate["estimate"], low, high, low <= true <= high))
    mechanism = mechanisms.of(metric)
    assert isinstance(mechanism, FrequencyOracle)  # noqa: S101 - only shares are compared here
    mse = sum((row.estimated - row.true) ** 2 for row in rows) / len(rows)
    variances = [mechanism.variance(row.true, n) for row in rows]
    predicted = sum(variances) / len(rows)
    # For a mean of d independent squares. If estimates must sum to 1, there is one independent square less.
    spread = sqrt(2 * sum(v * v for v in variances)) / sum(variances) * sqrt(len(rows) / max(1, len(rows) - 1))
    ratio = mse / predicted
    return Result(metric.id, answer["mechanism"], answer["epsilon"], n, LEVEL, mse, predicted, ratio, spread, tuple(rows))


@dataclass(frozen=True, slots=True)
class NumberRow:
    """A true and an estimated figure of a number, in its unit; `resolved` is False of a quantile with too few reports."""

    figure: str
    true: float
    estimated: float
    low: float
    high: float
    resolved: bool
    inside: bool


@dataclass(frozen=True, slots=True)
class NumberResult:
    """The true and the estimated figures of a number; else as `Result`."""

    metric: str
    mechanism: str
    epsilon: float
    n: int
    level: float
    unit: str
    rows: tuple[NumberRow, ...]


def _compare_number(answer: dict[str, Any], metric_id: str, truths: dict[str, float]) -> NumberResult:
    number = answer["number"]
    quantiles = {each["share"]: each for each in number["quantiles"]}
    rows = []
    for figure, true in truths.items():
        quantile = quantiles[_SHARES[figure]] if figure in _SHARES else None
        low, high = (quantile or number)["interval"]
        estimated = number["mean"] if quantile is None else quantile["value"]
        rows.append(NumberRow(figure, true, estimated, low, high, quantile is None or quantile["resolved"], low <= true <= high))
    return NumberResult(metric_id, answer["mechanism"], answer["epsilon"], answer["n"], LEVEL, number["unit"], tuple(rows))


def _outcome(
    people: Population,
    epsilon: str,
    stack: Stack,
    seconds: float,
    results: list[Result],
    numbers: list[NumberResult],
    year: Outcome | None,
) -> dict[str, Any]:
    reports = _reports(people)
    figures = [year.months.inside, year.experiment.inside] if year else []
    figures += [row.inside for number in numbers for row in number.rows if row.resolved]
    return {
        "source": people.source,
        "devices": _devices(people),
        "epsilon": float(epsilon),
        "store": stack.origin,
        "page": f"{stack.url}/",
        "seconds": round(seconds, 2),
        "reports": reports,
        "reports_per_second": round(reports / seconds),
        "all_inside": all(row.inside for result in results for row in result.rows) and all(figures),
        "metrics": [asdict(result) for result in results],
        "numbers": [asdict(number) for number in numbers],
        "year": asdict(year) if year else None,
    }


def _show(
    outcome: dict[str, Any], results: list[Result], numbers: list[NumberResult], year: Outcome | None, *, show_all: bool
) -> None:
    console = Console(file=terminal.raw(sys.stdout))
    for result in results:
        console.print(_table(result, show_all=show_all))
        spread = f"ratio {result.ratio:.2f} (1 on average; chance moves it by {result.ratio_spread:.2f})"
        console.print(f"Squared error {result.mse:.3g}, predicted {result.predicted_mse:.3g}: {spread}\n")
    for number in numbers:
        console.print(_number_table(number))
        console.print()
    if year:
        console.print(_year_table(year))
        console.print("The interval of a shift is its own, and holds with those of all shifts in 200 days.\n")
    verdict = "every true figure lies" if outcome["all_inside"] else "NOT every true figure lies"
    console.print(
        f"{outcome['devices']:,} devices of {outcome['source']}; {outcome['reports']:,} reports in {outcome['seconds']:.1f} s "
        f"({outcome['reports_per_second']:,}/s); {verdict} in its interval. "
        f"By chance alone this fails in one run of {1 / (1 - LEVEL):,.0f}."
    )
    console.print("Next: `deniable init` writes a metrics.toml for an app of yours, and says what comes after it.")


def _year_table(year: Outcome) -> Table:
    title = f"Departed late, in {year.days} days: {year.reports:,} reports"
    table = Table(title=title, title_justify="left")
    table.add_column("what differs")
    for heading in ("truly, in points", "estimated", "interval", "holds the true one"):
        table.add_column(heading, justify="right")
    for difference in (*year.shifts, year.months, year.experiment):
        interval = f"{100 * difference.low:+6.1f} to {100 * difference.high:+6.1f}"
        inside = "yes" if difference.inside else "OUTSIDE"
        table.add_row(difference.what, f"{100 * difference.true:+.1f}", f"{100 * difference.estimated:+.1f}", interval, inside)
    return table


def _number_table(number: NumberResult) -> Table:
    title = f"{number.metric} in {number.unit}: {number.mechanism}, epsilon {number.epsilon:.4g}, n = {number.n:,}"
    table = Table(title=title, title_justify="left")
    table.add_column("figure")
    for heading in ("true", "estimated", f"{LEVEL:.1%} interval, all together", "holds the true figure"):
        table.add_column(heading, justify="right")
    digits = 1 if max(row.high for row in number.rows) >= _LARGE else 2
    for row in number.rows:
        verdict = ("yes" if row.inside else "OUTSIDE") if row.resolved else "too few reports"
        interval = f"{row.low:8.{digits}f} to {row.high:7.{digits}f}"
        table.add_row(row.figure, f"{row.true:.{digits}f}", f"{row.estimated:.{digits}f}", interval, verdict)
    return table


def _table(result: Result, *, show_all: bool) -> Table:
    title = f"{result.metric}: {result.mechanism}, epsilon {result.epsilon:.4g}, n = {result.n:,}"
    table = Table(title=title, title_justify="left")
    table.add_column("value", overflow="fold")
    for heading in ("true", "estimated", f"{LEVEL:.1%} interval, all together", "holds the true share"):
        table.add_column(heading, justify="right")
    rows = sorted(result.rows, key=lambda row: -row.true)
    for row in rows if show_all else rows[:_SHOWN]:
        interval = f"{row.low:8.2%} to {row.high:7.2%}"
        table.add_row(row.value, f"{row.true:.2%}", f"{row.estimated:.2%}", interval, "yes" if row.inside else "OUTSIDE")
    if not show_all and len(rows) > _SHOWN:
        inside = sum(row.inside for row in rows[_SHOWN:])
        table.add_row(f"... {len(rows) - _SHOWN} more", "", "", f"{inside} inside", "")
    return table
