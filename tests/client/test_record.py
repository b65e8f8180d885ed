"""From `record` to the queue, by every draw: what is queued tells no more than is promised, whatever was given."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from fractions import Fraction

import pytest

from deniable import mechanisms
from deniable.client import Client
from deniable.device.state import State
from deniable.exact.hashing import KEY_SPACE
from deniable.limits.admission import admit
from deniable.mechanisms.permanent import Permanent
from deniable.proof import Tape, distribution
from deniable.registry import Metric, Registry
from deniable.registry.answers import axis
from deniable.registry.tables import Budget, Caps
from deniable.source import Source
from deniable.transport import Sender

DAY = 86_400
NOW = 1_800_000_000.0
FREE = Caps(epsilon=16, permanent=16, budget=Budget(per_month=None, lifetime=None))


class Odd:
    """An answer of no kind, which cannot even be compared."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, _other: object) -> bool:
        raise RuntimeError

    def __class_getitem__(cls, _: object) -> None:
        raise RuntimeError


UNDECLARED = ["nothing listed", 7, 1.0, b"a", object(), Odd(), ["a"], {"a": 1}, ("x", "nowhere"), None]
THREE = {"type": "categorical", "values": ("a", "b", "c")}
PRODUCT = {"type": "product", "values": (("x", "u"), ("x", "v"), ("y", "u"), ("y", "v"))}
PRODUCT["factors"] = (("one", ("x", "y")), ("two", ("u", "v")))
BOOLEAN = {"type": "boolean", "values": (False, True)}
TEXT = {"type": "string", "values": (), "max_length": 1, "candidates": "c.txt"}

PLAIN = [
    *((BOOLEAN, {"mechanism": name}) for name in ("binary", "grr", "oue", "hadamard")),
    (BOOLEAN, {"mechanism": "coin", "epsilon": "1.0986122886681098"}),
    *((THREE, {"mechanism": name}) for name in ("grr", "subset", "sue", "oue", "local_hash", "hadamard", "general_hadamard")),
    *((THREE, {"mechanism": name}) for name in ("pgr", "l_grr", "loloha", "dbitflip")),
    (THREE, {"mechanism": "grr", "other": "b"}),
    (THREE, {"mechanism": "grr", "none": "c", "sample": "0.25"}),
    (THREE | {"type": "ordinal"}, {"mechanism": "subset", "none": "a", "other": "c", "sample": "0.5"}),
    (PRODUCT, {"mechanism": "grr"}),
    (PRODUCT, {"mechanism": "hadamard", "sample": "0.5"}),
]
AT_NIGHT = [pytest.mark.campaign, pytest.mark.nightly]
"""Cases with many draws: shorter ones go the same way through the code."""
KEPT = [
    (BOOLEAN, {"mechanism": "l_grr"}),
    pytest.param(THREE, {"mechanism": "l_grr"}, marks=AT_NIGHT),
    (THREE, {"mechanism": "l_grr", "other": "b", "none": "a"}),
    (BOOLEAN, {"mechanism": "l_grr", "sample": "0.5"}),
    pytest.param(BOOLEAN, {"mechanism": "l_osue"}, marks=AT_NIGHT),
    pytest.param(BOOLEAN, {"mechanism": "loloha"}, marks=AT_NIGHT),
    pytest.param(THREE, {"mechanism": "loloha"}, marks=AT_NIGHT),
    (BOOLEAN, {"mechanism": "dbitflip", "epsilon_permanent": "1"}),
    (BOOLEAN, {"mechanism": "rappor"}),
    pytest.param(PRODUCT, {"mechanism": "l_grr"}, marks=AT_NIGHT),
]


def declare(domain: dict, options: dict, **more: str) -> Metric:
    return Metric(**({"id": "m", "epsilon": "1"} | domain | more | options))


def name(case: object) -> str:
    return "-".join(map(str, case.values())) if isinstance(case, dict) and "mechanism" in case else ""


@pytest.fixture(scope="module")
def fresh():
    """Give a state's tables: to make them anew for each walk would take a quarter of the time."""
    state = State(None)
    with state.transaction() as connection:
        pass
    with closing(connection):
        yield connection


@pytest.fixture
def way(fresh, monkeypatch):
    """Give the exact distribution of what a fresh device queues when a metric is given some answers, one a day."""
    queued: list[tuple] = []

    def connect(state: State, _folder: None) -> sqlite3.Connection:
        if state._memory is None:
            state._memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            fresh.backup(state._memory)
        return state._memory

    monkeypatch.setattr(State, "_connect", connect)
    monkeypatch.setattr(Sender, "submit", lambda _, report, *__: queued.append((report.stratum, report.payload)))

    def run(metric: Metric, answers: list[object], make=None, *, source=lambda tape: tape) -> dict[bytes, Fraction]:
        registry = Registry("shop", {"m": metric})
        # What is on follows from registry and day. To admit it anew on each walk would take a fifth of the time.
        admitted = admit(registry, FREE, datetime.fromtimestamp(NOW, UTC).date())
        monkeypatch.setattr("deniable.client.metrics.admit", lambda *_: admitted)

        def once(tape: Tape) -> bytes:
            queued.clear()
            now = [NOW]
            options = {"dsn": "https://key@t.example/shop", "consent": True, "caps": FREE, "state": None}
            client = Client(registry=registry, clock=lambda: now[0], source=source(tape), **options)
            for answer in answers:
                client.record("m", answer)
                client.record("m", answer)  # the same day: nothing comes of it
                now[0] += DAY
            stats = client.stats()
            assert len(queued) + sum(stats["dropped"].values()) == 2 * len(answers)
            return repr((queued, stats["spent"], sorted(stats["dropped"]))).encode()

        return {once(make()): Fraction(1)} if make else distribution(once)

    return run


def fixed(number: int, of: int):
    """Make tapes on which a draw of so many outcomes has a certain one, and any other its first."""

    class Fixed(Tape):
        def __init__(self) -> None:
            super().__init__([])

        def below(self, n: int) -> int:
            return number if n == of else super().below(n)

    return Fixed


class Sparse(Source):
    """A source whose draws of 256 outcomes have only each eighth of them."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape

    def bernoulli(self, num: int, den: int) -> bool:
        return self.tape.bernoulli(num, den)

    def below(self, n: int) -> int:
        return 8 * self.tape.below(32) if n == 256 else self.tape.below(n)


def worst(masses: list[dict[bytes, Fraction]]) -> Fraction:
    outcomes = set().union(*masses)
    assert all(sum(mass.values()) == 1 for mass in masses)
    assert all(set(mass) == outcomes for mass in masses), "something is queued for one answer and never for another"
    return max(max(mass[each] for mass in masses) / min(mass[each] for mass in masses) for each in outcomes)


def silent(mass: dict[bytes, Fraction]) -> Fraction:
    return sum((share for outcome, share in mass.items() if outcome.startswith(b"([],")), Fraction(0))


def mixture(metric: Metric, declared: list[dict[bytes, Fraction]]) -> dict[bytes, Fraction]:
    """Return what is queued for an undeclared answer, from what is queued for each declared one."""
    stands = declared if metric.other is None else [declared[metric.position(metric.other)]]
    return {each: sum(mass[each] for mass in stands) / len(stands) for each in stands[0]}


@pytest.mark.parametrize(("domain", "options"), PLAIN, ids=name)
def test_one_report(way, domain, options):
    """Declared or not, one report is queued as likely as any other answer's, and tells at most epsilon."""
    metric = declare(domain, options)
    undeclared_answers = UNDECLARED if mechanisms.of(metric).name == "grr" else [*UNDECLARED[:1], *UNDECLARED[-3:]]
    masses = [way(metric, [answer]) for answer in (*metric.values, *undeclared_answers)]
    assert worst(masses) == mechanisms.of(metric).ratio
    assert {silent(mass) for mass in masses} == {1 - Fraction(metric.sample)}
    declared, undeclared = masses[: metric.domain_size], masses[metric.domain_size :]
    if metric.none is not None:
        assert undeclared.pop() == declared[metric.position(None)]
    assert all(mass == mixture(metric, declared) for mass in undeclared)


@pytest.mark.parametrize(("domain", "options"), KEPT, ids=name)
def test_kept_responses(way, domain, options):
    """An answer that stays tells at most epsilon_permanent over all days, declared or not, and on one day epsilon."""
    metric = declare(domain, options, epsilon_permanent="2")
    mechanism = mechanisms.of(metric)
    assert isinstance(mechanism, Permanent)
    answers = (*metric.values, *UNDECLARED[:1], *UNDECLARED[-3:])
    assert worst([way(metric, [answer]) for answer in answers]) == mechanism.ratio
    if metric.factors:  # two days of that are too many walks
        return
    days = [way(metric, [answer, answer]) for answer in metric.values]
    if metric.none is None:  # one stand-in is drawn once, for whatever is undeclared
        answers = [UNDECLARED[0], None]
    else:
        answers = [UNDECLARED[0]] * 2
        assert way(metric, [None, None]) == days[metric.position(None)]
    undeclared = way(metric, answers)
    assert undeclared == mixture(metric, days)
    assert worst([*days, undeclared]) <= mechanism.permanent_ratio
    assert len({silent(mass) for mass in days}) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"mechanism": "fast_local_hash", "parameters": (("rows", 2),)},
        {"mechanism": "rappor", "parameters": (("bits", 2), ("cohorts", 2), ("hashes", 1))},
    ],
    ids=name,
)
@pytest.mark.parametrize("step", [8, pytest.param(1, marks=AT_NIGHT)])
def test_texts(way, options, step):
    """Any text has its place; what is no text is reported as a random one."""
    metric = declare(TEXT, options)
    texts = [way(metric, [answer]) for answer in ("", "a", "b", "\0", "a rather long one", "\ud800")]
    assert texts[1] == texts[4]  # as far as there is room for it
    other = way(metric, [7], source=Sparse if step == 8 else lambda tape: tape)
    assert worst([*texts, other]) <= mechanisms.of(metric).ratio
    assert {silent(mass) for mass in (*texts, other)} == {0}
    for number in range(0, 256, step):  # another that is no text draws the same text, and is reported as the first
        draw = fixed(number, 256)
        assert way(metric, [None], draw) == way(metric, [7], draw)


@pytest.mark.parametrize("key", [0, 17, KEY_SPACE - 1])
@pytest.mark.parametrize("permanent", [False, True])
def test_keys(way, key, permanent):
    """What is no key is reported as a random one, as that one would be, draw for draw."""
    draw = fixed(key, KEY_SPACE)
    options = {"mechanism": "rappor", "parameters": (("bits", 4), ("cohorts", 2), ("hashes", 1))}
    metric = declare(
        {"type": "key", "values": (), "candidates": "c.txt"}, options, **({"epsilon_permanent": "2"} if permanent else {})
    )
    expected = way(metric, [key, key], draw)
    for answer in (-1, KEY_SPACE, True, "17", 1.0, None, Odd()):
        assert way(metric, [answer, answer], draw) == expected


NUMBER = {"type": "number", "values": (), "range": ("0", "4"), "unit": "ms"}
NO_NUMBERS = [float("nan"), None, True, "3", b"3", Odd(), [3]]


@pytest.fixture
def coarse(monkeypatch):
    """Let an axis have few places, so that every draw can be walked."""
    monkeypatch.setattr(axis, "FINEST", 2)


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"none": "2", "estimate": "distribution"},
        pytest.param({"sample": "0.5"}, marks=AT_NIGHT),
        {"scale": "log", "range": ("1", "16"), "none": "4"},
    ],
)
def test_numbers(way, options):
    """One report for anything that is given, of at most epsilon; out of range is the nearer end, and no number is `none`."""
    metric = declare(NUMBER, {"mechanism": "window", "parameters": (("blocks", 1), ("length", 2)), "estimate": "mean"} | options)
    low, high = map(int, metric.range)
    masses = {answer: way(metric, [answer]) for answer in (low, 1.5, 2, high)}
    assert worst(list(masses.values())) == mechanisms.of(metric).ratio
    assert way(metric, [-7]) == way(metric, [float("-inf")]) == masses[low]
    assert way(metric, [1e300]) == way(metric, [10**400]) == masses[high]
    absent = way(metric, [float(metric.none or low)])
    assert all(way(metric, [answer]) == absent for answer in NO_NUMBERS)
    assert {silent(mass) for mass in masses.values()} == {1 - Fraction(metric.sample)}


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("firsts", [(0, 4), pytest.param((0, 3, 4), marks=AT_NIGHT)])
def test_means_of_kept_numbers(way, firsts):
    """A number that stays tells at most epsilon_permanent; whatever it does, all days tell at most twice that."""
    metric = declare(NUMBER, {"estimate": "mean"}, epsilon_permanent="1.2")
    mechanism = mechanisms.of(metric)
    assert worst([way(metric, [answer]) for answer in (0, 1.5, 4, *NO_NUMBERS[:3])]) <= mechanism.ratio
    assert worst([way(metric, [answer, answer]) for answer in (0, 1, 4, None)]) <= mechanism.permanent_ratio
    histories = [way(metric, [first, second]) for first in firsts for second in (0, 1, 4, None)]
    assert mechanism.permanent_ratio < worst(histories) <= mechanism.permanent_ratio**2
    assert len({silent(mass) for mass in histories}) == 1


@pytest.mark.parametrize("absent", [NO_NUMBERS[:1], pytest.param(NO_NUMBERS[:3], marks=AT_NIGHT)])
def test_distributions_of_kept_numbers(way, monkeypatch, absent):
    """The part of the range is kept like any answer."""
    for module in ("deniable.registry.answers.types", "deniable.registry.answers.axis"):
        monkeypatch.setattr(f"{module}.BINS", 2)
    metric = declare(NUMBER, {"estimate": "distribution"}, epsilon_permanent="2")
    mechanism = mechanisms.of(metric)
    days = [way(metric, [answer, answer]) for answer in (0, 1.9, 2, 99, *absent)]
    assert days[0] == days[1]
    assert days[2] == days[3]
    assert days[4:] == [days[0]] * len(absent)
    assert mechanism.ratio < worst(days) <= mechanism.permanent_ratio


@pytest.mark.parametrize(
    "options", [{}, {"other": "z"}, {"sample": "0.5"}, {"joint": True, "other": "z"}, {"most": 1}, {"most": 2, "other": "z"}]
)
def test_sets(way, options):
    """Sets that differ in every option have one epsilon between them; what is no set is reported, too."""
    metric = declare({"type": "set", "values": ("x", "y", "z")}, options)
    mechanism = mechanisms.of(metric)
    sets = [way(metric, [answer]) for answer in ([], ["x"], {"y", "z"}, ("x", "y", "z"))]
    assert worst(sets) == mechanism.ratio
    strange = [way(metric, [answer]) for answer in (None, "x", ["x", "w"], Odd(), [Odd()], [["x"]])]
    assert worst([*sets, *strange]) == mechanism.ratio
    assert {silent(mass) for mass in (*sets, *strange)} == {1 - Fraction(metric.sample)}
    if metric.other:
        assert strange[2] == way(metric, [["x", "z"]])
        assert strange[0] == way(metric, [["z"]])
