"""The demo's second act: a year of flights, day by day, with segments, months to compare, and an experiment.

No server takes reports of days that are long over. So each flight's device answers here, and its reports are put into the store
as those of simulated people are. From there on all is as ever: they are published, and questions are asked over the API.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from deniable.declared import Declared
from deniable.registry import period
from deniable.wire.report import Stratum
from deniable_aggregator.people import sending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from deniable.registry import Metric, Registry
    from deniable_aggregator.store import Store

DAILY, MONTHLY, TRIED = "departure.late", "departure.late_month", "boarding.late"
ARMS = ("control", "zones")


class Flight(NamedTuple):
    """What the device of a flight knows."""

    day: date  # when it departed
    # airport, carrier, boarding: its segments
    airport: str
    carrier: str
    boarding: str
    late: bool  # its answer

    def segment(self, metric: Metric) -> str:
        """Write the segment of its reports of a metric."""
        return ",".join(f"{name}={getattr(self, name)}" for name in metric.segments)


@dataclass(frozen=True, slots=True)
class Difference:
    """An estimated difference, beside the true one."""

    what: str  # in words
    # true, estimated, low, high: differences of two shares, with the interval
    true: float
    estimated: float
    low: float
    high: float

    @property
    def inside(self) -> bool:
        """Whether the interval holds the true difference."""
        return self.low <= self.true <= self.high


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the year shows."""

    # days, reports: how many there were
    days: int
    reports: int
    shifts: list[Difference]  # shifts of the last days of the year
    months: Difference  # two months compared
    experiment: Difference  # the arms of the experiment compared


@dataclass(frozen=True)
class Year:
    """A year of flights, moved by whole weeks so that it ended within the last seven days."""

    flights: list[Flight]  # with their own dates

    @cached_property
    def moved(self) -> list[Flight]:
        """The flights with the dates that they have here."""
        weeks = (datetime.now(UTC).date() - timedelta(days=1) - max(flight.day for flight in self.flights)).days // 7
        return [flight._replace(day=flight.day + timedelta(weeks=weeks)) for flight in self.flights]

    def tables(self, epsilon: str) -> str:
        """Write the part of a metrics.toml that asks about the year."""

        def metric(name: str, more: str, about: str) -> str:
            members = f'epsilon = {epsilon}\n{more}\ndescription = "{about}"\nowner = "the demo"\n'
            return f'[metrics."{name}"]\ntype = "boolean"\n{members}'

        values = {name: sorted({getattr(flight, name) for flight in self.flights}) for name in ("airport", "carrier")}
        return "\n".join(
            [
                "[segments]",
                *(f"{name} = {each}".replace("'", '"') for name, each in (values | {"boarding": list(ARMS)}).items()),
                f'\n[experiments]\nboarding = {{ base = "{ARMS[0]}", planned = 0.02 }}\n',
                metric(DAILY, 'segments = ["airport", "carrier"]\nleast_shift = 0.02', "Whether a flight departed late, by day"),
                metric(MONTHLY, 'period = "month"', "Whether a flight departed late, by month"),
                metric(TRIED, 'period = "month"\nsegments = ["boarding"]', "Departed late, in an experiment without effect"),
            ]
        )

    def put(self, store: Store, registry: Registry) -> Iterator[int]:
        """Let all devices answer, and put their reports into the store; yield the number of reports of each period."""
        for name in (DAILY, MONTHLY, TRIED):
            question = Declared.of(registry.metrics[name])
            by_period: dict[str, list[Flight]] = defaultdict(list)
            for flight in self.moved:
                moment = datetime(flight.day.year, flight.day.month, flight.day.day, tzinfo=UTC)
                by_period[period.of(moment, question.metric.period)].append(flight)
            for of, flights in sorted(by_period.items()):
                payloads: dict[str, list[bytes]] = defaultdict(list)
                for flight in flights:
                    payloads[flight.segment(question.metric)].append(question.mechanism.randomize(int(flight.late)))
                reports = {Stratum(*question.definition, of, segment): b"".join(parts) for segment, parts in payloads.items()}
                yield sending.put(store, reports, question, time.time())

    def outcome(
        self,
        get: Callable[[str], Any],  # asks the API for a path below the metrics
        level: float,  # of the intervals; shifts have their own
    ) -> Outcome:
        """Ask for what the year shows, and put the truth beside it."""
        days = {flight.day for flight in self.moved}
        return Outcome(
            len(days), 3 * len(self.flights), list(self._shifts(get)), self._months(get, level), self._arms(get, level)
        )

    def _shifts(self, get: Callable[[str], Any]) -> Iterator[Difference]:
        series = get(f"{DAILY}/series")
        (line,) = (line for line in series["lines"] if line["value"] is True)
        by_day = _shares((flight.day, flight.late) for flight in self.moved)
        for shift in line["shifts"]:
            first, last = (date.fromisoformat(shift[end]) for end in ("begins", "seen"))
            days = [day for day in by_day if first <= day <= last]
            before = [[day - timedelta(weeks=weeks) for weeks in range(1, 9)] for day in days]
            usual = [
                sum(by_day[day] for day in earlier if day in by_day) / sum(day in by_day for day in earlier) for earlier in before
            ]
            true = sum(by_day[day] - mean for day, mean in zip(days, usual, strict=True)) / len(days)
            span = str(first) if first == last else f"{first} to {last}"
            yield Difference(f"shift: {shift['direction']} on {span}", true, shift["size"], *shift["interval"])

    def _months(self, get: Callable[[str], Any], level: float) -> Difference:
        """Compare the two whole months in which the true shares are furthest apart."""
        months = _shares((f"{flight.day:%Y-%m}", flight.late) for flight in self.moved)
        complete = sorted(months)[1:-1]
        a, b = min(complete, key=months.__getitem__), max(complete, key=months.__getitem__)
        return _difference(f"{b} against {a}", months[b] - months[a], get(f"{MONTHLY}/compare?a={a}&b={b}&level={level}"))

    def _arms(self, get: Callable[[str], Any], level: float) -> Difference:
        arms = _shares((flight.boarding, flight.late) for flight in self.moved)
        a, b = ARMS
        answer = get(f"{TRIED}/compare?a=boarding={a}&b=boarding={b}&level={level}")
        return _difference(f"experiment: {b} against {a}", arms[b] - arms[a], answer)


def _difference(what: str, true: float, answer: dict[str, Any]) -> Difference:
    (late,) = (each for each in answer["differences"] if each["value"] is True)
    return Difference(what, true, late["difference"], *late["interval"])


def _shares(answers: Iterable[tuple[Any, bool]]) -> dict[Any, float]:
    """Return the share of late flights of each group."""
    late: Counter[Any] = Counter()
    of: Counter[Any] = Counter()
    for group, was_late in answers:
        of[group] += 1
        late[group] += was_late
    return {group: late[group] / of[group] for group in of}
