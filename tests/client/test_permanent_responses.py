"""Permanent responses: drawn once, kept for good, reported once a period, and never told apart by silence."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from random import Random

import pytest

from deniable import mechanisms
from deniable.declared import Declared
from deniable.device.ledger import Ledger, Spent
from deniable.device.permanent_responses import PermanentResponses
from deniable.device.prepared import Occasion, Prepared
from deniable.device.state import State
from deniable.limits.allowance import MICRO, Allowance
from deniable.registry import Metric, period
from deniable.registry.tables import Budget
from deniable.source import OS
from deniable.wire.report import Stratum

DAY = 86_400.0
FREE = Budget(per_month=None, lifetime=None)


class Clock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def metric(id_: str = "m", **changes) -> Metric:
    """Declare a metric of sixteen answers, asked daily, whose report is the permanent response: what is kept can be seen."""
    fields = {"type": "categorical", "values": tuple("abcdefghijklmnop"), "epsilon": "2", "epsilon_permanent": "2"}
    return Metric(id_, **(fields | {"mechanism": "rappor", "answers_per_month": 16} | changes))


class Device:
    """A device that can be started again and again, at any time."""

    def __init__(self, directory, budget: Budget = FREE) -> None:
        self.clock = Clock()
        self.budget = budget
        self.directory = directory
        self.start()

    def start(self) -> None:
        self.state = State(self.directory)
        self.ledger = Ledger(self.state, self.budget)
        self.responses = PermanentResponses(self.state, self.ledger)

    def prepared(self, declared: Metric) -> Prepared:
        return Prepared(Declared.of(declared), Allowance.of(Declared.of(declared), self.budget), "")

    def answer(self, declared: Metric, value: int | None, *, days: float = 0, sampled: bool = True) -> bytes | str:
        """Answer, so many days after the last answer."""
        self.clock.now += days * DAY
        prepared = self.prepared(declared)
        return self.responses.respond(
            prepared, prepared.occasion(datetime.fromtimestamp(self.clock.now, UTC)), value, sampled=sampled
        )

    def spent(self) -> Spent:
        return self.ledger.spent(period.of(datetime.fromtimestamp(self.clock.now, UTC), "month"))

    def rows(self, table: str) -> list[tuple]:
        with self.state.transaction() as db:
            return db.execute(f"SELECT * FROM {table}").fetchall()


@pytest.fixture
def device(tmp_path):
    """Make a device with a given budget."""
    return lambda **budget: Device(tmp_path / "shop", Budget(**({"per_month": None, "lifetime": None} | budget)))


BARE = metric()
NOISY = metric(epsilon="1")
COST = Allowance.of(Declared.of(BARE), FREE).cost


def test_the_same_answer_has_the_same_response(device):
    """Over restarts and any number of periods, an answer's permanent response never changes."""
    mine = device()
    seen = set()
    for _ in range(50):
        mine.start()
        seen.add(mine.answer(BARE, 5, days=1))
    assert len(seen) == 1
    assert len(mine.rows("responses")) == 1


def test_reports_of_it_differ(device):
    """Each period's report is drawn anew from the response that is kept."""
    mine = device()
    seen = {mine.answer(NOISY, 5, days=1) for _ in range(50)}
    assert len(seen) > 10
    assert len(mine.rows("responses")) == 1


def test_the_response_is_kept_before_a_report_exists(device, monkeypatch):
    """If the process dies while the report is drawn, the response is on disk and paid for."""
    mine = device()
    monkeypatch.setattr(type(mechanisms.of(NOISY)), "respond_instantly", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        mine.answer(NOISY, 5)
    monkeypatch.undo()
    mine.start()
    assert len(mine.rows("responses")) == 1
    assert mine.spent().lifetime == 16 * COST / MICRO


def test_another_answer_has_another_response(device):
    """Each answer has a response of its own; going back to one brings its response back."""
    mine = device()
    seen = [mine.answer(BARE, number % 3, days=1) for number in range(30)]
    assert len(mine.rows("responses")) == 3
    assert seen[:3] * 10 == seen


def test_what_is_spent_does_not_depend_on_the_answers(device):
    """Whatever was answered and however often it changed, month and lifetime are spent alike."""
    ledgers = set()
    for run, answers in enumerate(([5] * 12, list(range(12)), [1, 2] * 6, [None] * 12, [3, None] * 6)):
        mine = device(lifetime=200, per_month=20)
        mine.directory = mine.directory.with_name(f"shop{run}")
        mine.start()
        spent = []
        for answer in answers:
            assert isinstance(mine.answer(replace(BARE, answers_per_month=3), answer, days=1), bytes)
            spent.append(mine.spent())
        ledgers.add(tuple(spent))
    assert len(ledgers) == 1


def test_another_version_begins_anew(device):
    """With the fingerprint, everything begins anew, and is paid for anew."""
    mine = device(per_month=100, lifetime=1000)
    assert isinstance(mine.answer(BARE, 5), bytes)
    first = mine.spent().lifetime
    assert isinstance(mine.answer(replace(BARE, version=2), 5), bytes)
    assert mine.spent().lifetime == 2 * first
    assert len(mine.rows("responses")) == 2


def test_so_many_answers_in_a_month(device):
    """When as many different answers were reported in the month, the last is reported again, until the next month."""
    mine, two = device(), metric(answers_per_month=2)
    a, b = (mine.answer(two, value, days=1) for value in (0, 1))
    assert [mine.answer(two, 2, days=1) for _ in range(3)] == [b, b, b]
    assert mine.responses.repeated == 3
    assert mine.answer(two, 0, days=1) == a
    assert mine.answer(two, 2, days=1) == a
    assert [mine.answer(two, 0, days=1) for _ in range(8)] == [a] * 8
    assert mine.clock.now == 1_800_000_000.0 + 15 * DAY  # the 30th of January
    assert mine.answer(two, 2, days=1) == a
    c = mine.answer(two, 2, days=1)
    assert len(mine.rows("responses")) == 3
    assert c not in (a, b)
    assert mine.answer(two, 1, days=1) == b
    assert mine.answer(two, 0, days=1) == b


def test_so_many_answers_ever(device):
    """When all responses that the lifetime pays for are drawn, the last is reported again, for good."""
    mine, declared = device(per_month=4, lifetime=8), metric(answers_per_month=2, epsilon="2")
    assert mine.prepared(declared).allowance.answers_ever == 4 - (8 * MICRO < 4 * COST)  # a cost is rounded up
    seen = [mine.answer(declared, value, days=31) for value in range(9)]
    assert len(mine.rows("responses")) == mine.prepared(declared).allowance.answers_ever
    assert len(set(seen[3:])) == 1
    assert mine.answer(declared, 0, days=31) == seen[0]


def test_one_answer_a_month(device):
    """A metric of one answer in a month keeps to the first one until the month is over."""
    mine, declared = device(), metric(answers_per_month=1)
    first = mine.answer(declared, 0)
    assert {mine.answer(declared, value % 16, days=1) for value in range(16)} == {first}
    mine.answer(declared, 3, days=1)
    assert len(mine.rows("responses")) == 2


def test_lost_responses_are_not_drawn_for_ever(device):
    """If the file has lost its responses and not the ledger, new ones count as further ones, up to the number for life."""
    mine = device(per_month=4, lifetime=8)
    declared = metric(answers_per_month=2)
    responses = []
    for _ in range(6):
        with mine.state.transaction() as db:
            db.execute("DELETE FROM responses")
        responses.append(mine.answer(declared, 5, days=31))
    reports = [each for each in responses if isinstance(each, bytes)]
    assert len(reports) == mine.prepared(declared).allowance.answers_ever < 6
    assert responses[len(reports) :] == ["budget"] * (6 - len(reports))


def test_a_lost_account_is_paid_for_again(device):
    """If what was spent on a metric is gone and its responses are not, it is paid for like the first time."""
    mine = device(per_month=100, lifetime=1000)
    assert isinstance(mine.answer(BARE, 5), bytes)
    first = mine.spent().lifetime
    with mine.state.transaction() as db:
        db.execute("DELETE FROM accounts")
    assert isinstance(mine.answer(BARE, 5, days=1), bytes)
    assert mine.spent().lifetime == 2 * first


def test_a_deleted_state_is_no_free_redraw(device):
    """If ledger and responses are gone together, nothing is reported."""
    mine = device()
    assert isinstance(mine.answer(BARE, 5), bytes)
    (mine.directory / "state.db").unlink()
    mine.start()
    assert mine.answer(BARE, 5, days=1) == "state"
    assert mine.state.trouble is not None


def test_once_a_period(device):
    """In a period there is one report, whatever is answered, also after a restart, and when the clock goes back."""
    mine = device()
    assert isinstance(mine.answer(BARE, 5), bytes)
    for restart in (False, True):
        if restart:
            mine.start()
        assert mine.answer(BARE, 5) == "this_period"
        assert mine.answer(BARE, None) == "this_period"
        assert mine.answer(BARE, 5, days=-9) == "this_period"
        mine.clock.now += 9 * DAY
    assert len(mine.rows("responses")) == 1


def test_a_period_that_is_not_sampled_is_over(device):
    """The toss is made once a period: trying again does not help, and nothing is spent."""
    mine = device()
    assert mine.answer(BARE, 5, sampled=False) == "not_sampled"
    mine.start()
    assert mine.answer(BARE, 5) == "this_period"
    assert (mine.rows("responses"), mine.spent().lifetime) == ([], 0)
    assert isinstance(mine.answer(BARE, 5, days=1), bytes)


def would_report(mine: Device, declared: Metric, value: int | None) -> bool:
    """Tell whether an answer would be reported now, and leave everything as it was."""
    reported, prepared = False, mine.prepared(declared)
    occasion = prepared.occasion(datetime(2100, 1, 1, tzinfo=UTC))
    with suppress(ZeroDivisionError), mine.state.transaction() as db:
        reserved = mine.responses._reserve(db, prepared, occasion, sampled=True) is None
        reported = reserved and isinstance(mine.responses._response(db, prepared, occasion, value), bytes)
        raise ZeroDivisionError
    return reported


def test_whether_there_is_a_report_does_not_depend_on_the_answer(device):
    """Whatever was answered and when, whether the next answer is reported is the same for all, also after updates."""
    chance = Random(20261121)
    spoken = Counter()
    for run in range(40):
        mine = device(per_month=chance.choice((4, 9)), lifetime=chance.choice((None, 9, 12)))
        mine.directory = mine.directory.with_name(f"shop{run}")
        mine.start()
        declared = [metric(id_, epsilon="1", answers_per_month=2) for id_ in ("one", "two", "three")]
        for _ in range(chance.randrange(2, 12)):
            mine.answer(chance.choice(declared), chance.choice((0, 1, 2, None)), days=chance.choice((1, 1, 1, 2, 16)))
        mine.clock.now += DAY * chance.choice((1, 2))
        outcomes = {would_report(mine, declared[0], value) for value in (0, 1, 2, 3, None)}
        assert len(outcomes) == 1
        spoken += Counter(outcomes)
    assert min(spoken[True], spoken[False]) > 3


def test_a_refusal_by_the_budget_leaves_the_period_open(device, monkeypatch):
    """A report that the budget refused is not tried again at once, but it is in the same period when there is room."""
    mine = device(per_month=4.5, lifetime=100)
    two = metric("two", answers_per_month=2)
    assert isinstance(mine.answer(metric("one", answers_per_month=2), 5), bytes)
    now = 0.0
    monkeypatch.setattr("deniable.device.permanent_responses.time.monotonic", lambda: now)
    assert [mine.answer(two, 5), mine.answer(two, 5)] == ["budget", "budget"]
    with mine.state.transaction() as db:
        db.execute("DELETE FROM spends")
    assert mine.answer(two, 5) == "budget"
    now = 61.0
    assert isinstance(mine.answer(two, 5), bytes)


def test_a_held_state_takes_no_time_twice(device, monkeypatch):
    """After a try that was in vain, the state is left alone for some seconds: each try takes the app's time."""
    mine = device()
    assert isinstance(mine.answer(BARE, 5), bytes)
    now = 0.0
    monkeypatch.setattr("deniable.device.permanent_responses.time.monotonic", lambda: now)
    (mine.directory / "state.db").rename(mine.directory / "elsewhere")
    assert mine.answer(BARE, 5, days=1) == "state"
    (mine.directory / "elsewhere").rename(mine.directory / "state.db")
    assert mine.answer(BARE, 5) == "state"
    now = 11.0
    assert isinstance(mine.answer(BARE, 5), bytes)


def test_an_undeclared_answer_has_a_response_that_stays(device):
    """It is that of a declared answer, drawn once for device and metric: reported alike, kept alike, for as long as it stays."""
    mine = device()
    first = mine.answer(BARE, None)
    for _ in range(5):
        mine.start()
        assert mine.answer(BARE, None, days=1) == first
    (row,) = mine.rows("kept")
    assert mine.answer(BARE, int(row[1]), days=1) == first
    assert len(mine.rows("responses")) == 1


def test_what_stands_in_is_uniform_and_drawn_for_all(device, chi_square):
    """Which declared answer stands in is drawn for each device and metric, whether it is needed or not."""
    declared, seen = metric(values=("a", "b", "c", "d")), Counter()
    for number in range(400):
        mine = Device(None)
        mine.answer(declared, 2 if number % 2 else None)
        seen[int(mine.rows("kept")[0][1])] += 1
    chi_square(seen, dict.fromkeys(range(4), 0.25))
    mine = device()
    assert mine.prepared(metric(other="c")).metric.stand_in(OS) == 2
    mine.answer(metric(other="c"), None)
    assert mine.rows("kept")[0][1] == "2"


def test_one_device_one_row(device):
    """A device has the same row in all metrics of as many rows, for all answers and for good; devices together have all."""
    parameters = (("bits", 16), ("cohorts", 4), ("hashes", 2))
    declared = [metric(id_, parameters=parameters, version=version) for id_ in ("one", "two", "three") for version in (1, 2)]
    layout = mechanisms.of(declared[0]).layout

    def rows(mine: Device) -> set[int]:
        return {layout.unpack(bytes(content))[0] for _, _, content in mine.rows("responses")}

    mine = device()
    for number in range(20):
        mine.start()
        for declaration in declared:
            mine.answer(declaration, number % 4)
        mine.clock.now += DAY
    assert len(mine.rows("responses")) == 4 * len(declared)
    assert len(rows(mine)) == 1
    counts = Counter()
    for _ in range(60):
        other = Device(None)
        other.answer(declared[0], 5)
        counts[next(iter(rows(other)))] += 1
    assert set(counts) == set(range(4))  # fails once in 10^7


def test_the_answer_cannot_be_read_off_the_file(device):
    """The file names no answer, and two devices name the same one differently; who tries all answers finds it out."""
    first, second = device(), Device(device().directory.with_name("other"))
    for mine in (first, second):
        mine.answer(BARE, 5)
    keys = [mine.rows("responses")[0][0] for mine in (first, second)]
    assert keys[0] != keys[1]
    with first.state.transaction() as db:
        tried = [PermanentResponses._key(db, first.prepared(BARE).allowance.tag, value) for value in range(16)]
    assert tried.index(keys[0]) == 5


def test_no_finer_time_than_the_period_is_kept(device):
    """Of when something was reported, the file has the period and nothing else."""
    mine = device()
    mine.clock.now += 4321.5
    mine.answer(metric(period="month"), 5)
    assert [row[1] for row in mine.rows("uses")] == ["2027-01"]
    assert [row[0] for row in mine.rows("spends")] == ["2027-01"]
    assert {name for name, _ in mine.rows("facts")} == {"secret", "lifetime", "place"}


def test_both_steps_are_the_declared_ones(chi_square):
    """Over many devices the first report has the distribution that the decoder assumes."""
    declared = metric(values=("a", "b"), epsilon="1")
    mechanism = mechanisms.of(declared)
    seen = Counter(Device(None).answer(declared, 1) for _ in range(800))
    one, other = mechanism.one, mechanism.other
    shares = {
        mechanism.layout.pack(0, bits): (one if bits & 2 else 1 - one) * (other if bits & 1 else 1 - other) for bits in range(4)
    }
    chi_square(seen, shares)


def test_answers_ever_have_no_bound_without_a_lifetime(device):
    """Without a lifetime, each answer has its response, however many there are."""
    mine, declared = device(), metric(answers_per_month=1, values=tuple(map(str, range(300))))
    assert mine.prepared(declared).allowance.answers_ever == inf
    for value in range(50):
        mine.answer(declared, value, days=31)
    assert len(mine.rows("responses")) == 50


def test_a_period_that_the_budget_refused_is_not_over(device, monkeypatch):
    """When the budget has room again in the same period, there is a report."""
    mine, declared = device(per_month=2.025), metric(answers_per_month=1)
    now = 0.0
    monkeypatch.setattr("deniable.device.permanent_responses.time.monotonic", lambda: now)
    other = Allowance("other", "other", MICRO // 100, 1000, 0, MICRO, None)
    occasion = Occasion(Stratum("other", 1, "other", "2027-01-15", ""), "2027-01")
    assert mine.ledger.spend(other, occasion) is None  # and takes more ahead
    assert mine.answer(declared, 3) == "budget"
    mine.ledger.return_leases()
    now = 61.0
    assert isinstance(mine.answer(declared, 3), bytes)
    assert mine.answer(declared, 3) == "this_period"
