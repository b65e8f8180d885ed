"""What an observer of the uploads sees besides the reports: their number, size, keys and order say nothing about the answers."""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from datetime import UTC, datetime
from fractions import Fraction
from itertools import product
from math import comb
from uuid import UUID

import pytest
from registries import metric_toml, registry_toml

from deniable.client import Client
from deniable.limits.caps import Caps
from deniable.registry import parse
from deniable.registry.tables import Budget
from deniable.transport import SenderSettings

DAY = 86_400.0
REGISTRY = registry_toml(
    metric_toml(
        "kept",
        values=["light", "dark", "system", "not set"],
        none="not set",
        mechanism="rappor",
        parameters={"cohorts": 8, "bits": 16, "hashes": 2},
        epsilon_permanent=2,
    ),
    metric_toml(
        "often", values=["a", "b", "c", "a rather long answer that would show in the size of what is sent"], per_period=100
    ),
)
SAMPLED = REGISTRY.replace("epsilon_permanent = 2\n", "epsilon_permanent = 2\nsample = 0.5\n")
DAYS = 12
KEPT_ALONE = REGISTRY.partition('[metrics."often"]')[0]
KEPT = [
    ["dark"] * DAYS,
    ["nothing that is declared"] * DAYS,
    ["", 7, object(), ["dark"]] * (DAYS // 4),
    ["light"] * DAYS,
    [None] * DAYS,
    ["dark"] * 5 + ["light"] * (DAYS - 5),
    ["light", "dark", "system", None] * (DAYS // 4),
    ["light", "dark"] * (DAYS // 2),
]
OFTEN = ["a", "a rather long answer that would show in the size of what is sent", "undeclared", None]
# Each metric has its part of these budgets, and no more: the plain one falls silent when its own is spent.
TIGHT = REGISTRY.replace("per_period = 100", 'per_period = 2\nperiod = "week"')


class Wire:
    """A `Post` that takes everything and keeps what an observer sees."""

    def __init__(self) -> None:
        self.seen: list[tuple[dict[str, str], bytes]] = []

    def __call__(self, body, headers, _timeout):
        self.seen.append((dict(headers), body))
        return 202, {}, None


class Run:
    """A device that answers on given days, some times a day and with a restart every third, and what it sent."""

    def __init__(self, answers, often, *, registry=REGISTRY, budget=None, state=None, times=2) -> None:
        wire = Wire()
        self.now = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
        client = None
        for day, answer in enumerate(answers):
            if client is None or (state is not None and day % 3 == 0):
                if client is not None:
                    client.close(60)
                client = Client(
                    dsn="https://key@t.example/shop",
                    registry=parse(registry),
                    consent=True,
                    settings=SenderSettings(flush_interval=600, flush_at=1000),
                    caps=Caps(budget=budget or Budget(per_window=None, lifetime=None)),
                    state=state,
                    post=wire,
                    clock=lambda: self.now,
                )
            for _ in range(times):
                client.record("kept", answer)
                client.record("often", often)
            client.flush(60)
            self.now += DAY
        client.close(60)
        self.keys = [headers["Idempotency-Key"] for headers, _ in wire.seen]
        self.sizes = [len(body) for _, body in wire.seen]
        self.headers = [{name: text for name, text in headers.items() if name != "Idempotency-Key"} for headers, _ in wire.seen]
        self.uploads = [json.loads(body)["groups"] for _, body in wire.seen]

    @property
    def outside(self) -> object:
        """All that is seen but the reports and the keys."""
        groups = [[{**group, "payloads": len(group["payloads"])} for group in upload] for upload in self.uploads]
        return self.sizes, self.headers, groups

    def days(self, metric: str) -> int:
        return sum(group["metric"] == metric for upload in self.uploads for group in upload)


@pytest.fixture
def run(tmp_path):
    """Run a device of its own each time."""
    numbers = iter(range(1000))
    return lambda *answers, **options: Run(*answers, state=tmp_path / str(next(numbers)), **options)


@pytest.mark.parametrize(
    ("registry", "budget"),
    [
        (REGISTRY, Budget(per_window=None, lifetime=None)),
        (KEPT_ALONE, Budget(per_window=4, lifetime=4)),
        (KEPT_ALONE, Budget(window=3, per_window=4, lifetime=None)),
        (TIGHT, Budget(window=1, per_window=10, lifetime=10)),
    ],
    ids=["without a bound", "spent", "of a short window", "two metrics, one of them silent in the end"],
)
@pytest.mark.parametrize("pairs", ["all to one", pytest.param("all to all", marks=[pytest.mark.campaign, pytest.mark.nightly])])
def test_the_answers_do_not_show_in_what_surrounds_them(run, registry, budget, pairs):
    """Whatever is answered, the same times of asking give the same uploads of the same sizes, also when the budget is spent."""
    others = OFTEN if registry is not KEPT_ALONE else OFTEN[:1]  # which it does not declare, so nothing looks at the answer
    answers = (
        product(KEPT, others)
        if pairs == "all to all"
        else [*((one, OFTEN[0]) for one in KEPT), *((KEPT[0], one) for one in others[1:])]
    )
    seen = [run(*pair, registry=registry, budget=budget).outside for pair in answers]
    assert len(seen[0][0]) == DAYS
    assert all(outside == seen[0] for outside in seen)


def test_the_day_of_silence_tells_nothing_of_other_metrics(run):
    """The first day on which a plain metric is silent is the same, however many different answers a kept one was given."""
    often = REGISTRY.replace("per_period = 100", "")
    budget = Budget(window=1, per_window=6.1, lifetime=12.2)
    silent = []
    for answers in (1, 2, 3, 4):
        device = run(
            [f"{['light', 'dark', 'system', None][day % answers] or 'not set'}" for day in range(DAYS)],
            "a",
            registry=often,
            budget=budget,
        )
        silent.append((device.days("often"), device.days("kept")))
    assert silent == [(4, DAYS)] * 4


@pytest.mark.parametrize("devices", [120, pytest.param(500, marks=[pytest.mark.campaign, pytest.mark.nightly])])
def test_whether_an_answer_is_sampled_does_not_depend_on_it(chi_square, devices):
    """How many days are reported is binomial, exactly the same for an answer that stays and one that always changes."""
    shares = {days: Fraction(comb(3, days), 8) for days in range(4)}
    for answers in (["dark"] * 3, ["light", None, "dark"]):
        chi_square(Counter(Run(answers, "a", registry=SAMPLED).days("kept") for _ in range(devices)), shares)


def test_keys_are_drawn_anew(run):
    """No two uploads share a key, also of devices that answer alike, and a key is nothing but random."""
    keys = [key for _ in range(3) for key in run(KEPT[0], "a").keys]
    assert len(set(keys)) == len(keys) == 3 * DAYS
    assert {UUID(key).version for key in keys} == {4}
    bits = [sum(UUID(key).int >> bit & 1 for key in keys) for bit in range(128) if bit not in {62, 63, 76, 77, 78, 79}]
    assert all(0 < ones < len(keys) for ones in bits)  # fails once in 10^8


def test_the_order_of_answers_is_not_sent(run):
    """Within an upload reports stand in the order of their bytes, and groups in that of their names, whoever answered first."""
    for upload in run(["light"] * 3, "a", times=50).uploads:
        for group in upload:
            payloads = b64decode(group["payloads"])
            size = len(payloads) // group["count"]
            reports = [payloads[start : start + size] for start in range(0, len(payloads), size)]
            assert reports == sorted(reports)
            assert len(reports) == (50 if group["metric"] == "often" else 1)
        assert [group["metric"] for group in upload] == ["kept", "often"]
