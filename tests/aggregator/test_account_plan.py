"""What a registry would have a device spend: times asked, kept responses, sampling, budget; and what is not promised."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from datetime import UTC, datetime
from fractions import Fraction
from math import exp, inf
from pathlib import Path

import pytest

from deniable import mechanisms
from deniable.client import Client
from deniable.errors import ParameterError
from deniable.limits.allowance import MICRO
from deniable.proof import distribution
from deniable.registry import load, parse, period
from deniable.registry.tables import Budget, Caps
from deniable.transport import SenderSettings
from deniable_aggregator.accounting.plan import plan
from deniable_aggregator.accounting.statement import statement

EXAMPLE = Path(__file__).parents[2] / "deploy" / "metrics.toml"
BODY = 'description = "d"\nowner = "o"\n'


def registry(*metrics, budget=""):
    tables = "".join(f"[metrics.m{i}]\n{words}\n{BODY}" for i, words in enumerate(metrics))
    return parse(f'format = 1\napp = "shop"\n{budget}\n{tables}')


def categorical(size=3, epsilon=1, **more):
    values = ", ".join(f'"{i}"' for i in range(size))
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in more.items())
    return f'type = "categorical"\nvalues = [{values}]\nepsilon = {epsilon}\n{lines}'


def test_the_example_registry():
    """Each metric of the example is told of in its own way."""
    planned = plan(load(EXAMPLE), days=30)
    uses = {use.metric.id: use for use in planned.uses}
    theme = uses["ui.theme"]
    assert (theme.occasions, theme.answers, theme.spend.cost, theme.spend.count) == (30, 4, 2 * MICRO, 4)
    export = uses["export.used"]
    assert (export.occasions, export.answers, export.spend.count) == (6, 2, 2)
    cart = uses["cart.size"]
    assert (cart.occasions, cart.spend.count, cart.spend.cost) == (3, 3, 800_000)
    assert cart.spend.share == pytest.approx(0.1 * float(cart.mechanism.telling))
    assert cart.reserved_month == pytest.approx(0.8)  # the coin of the sample may say yes each time
    assert uses["return.regretted"].spend.count == 2 + 1
    assert planned.budget == Budget(per_month=20, lifetime=1200)
    assert planned.fits


def test_a_kept_response_is_told_once_for_each_answer():
    """However often it is reported; a mechanism whose answers share responses keeps fewer; a single report tells less."""
    permanent = registry(categorical(5, 1, epsilon_permanent=2, mechanism="l_grr"))
    assert [plan(permanent, reports=k).uses[0].spend.total for k in (1, 2, 5, 100)] == [10**6, 4 * 10**6, 10**7, 10**7]
    assert plan(permanent, reports=100, answers=2).uses[0].spend.total == 4 * 10**6
    shared = registry(categorical(50, 2, epsilon_permanent=2, mechanism="dbitflip", parameters={}))
    use = plan(shared, reports=100).uses[0]
    assert use.spend.count == use.mechanism.kept_responses == 9


def test_what_is_reserved():
    """Of a month and of a lifetime, as the device has it; a registry that asks for more than the budget does not fit."""
    budget = "[budget]\nper_month = 40\nlifetime = 80"
    planned = plan(registry(categorical(3, 1, epsilon_permanent=2, mechanism="l_grr"), budget=budget), days=70)
    assert (planned.reserved_month, planned.reserved_lifetime, planned.allowed) == (4, 6, 6)
    assert planned.fits
    plain = plan(registry(categorical(3, 1), budget=budget), days=70)
    assert (plain.reserved_month, plain.reserved_lifetime, plain.uses[0].occasions) == (31, 62, 70)
    assert plain.fits
    assert not plan(registry(categorical(3, 1), categorical(4, 2), budget=budget)).fits
    often = plan(registry(categorical(3, 1) + "\nper_period = 2", budget=budget), days=70)
    assert (often.reserved_month, often.uses[0].occasions) == (62, 140)


def test_a_calendar_month_is_the_default():
    """Each metric is asked as often as may count in one month, which is what is reserved."""
    planned = plan(registry(*(f'type = "boolean"\nepsilon = 1\nperiod = "{length}"' for length in period.LENGTHS)))
    assert (planned.days, [use.occasions for use in planned.uses]) == (None, [744, 31, 5, 1])
    assert [use.spend.total / MICRO for use in planned.uses] == pytest.approx([use.reserved_month for use in planned.uses])
    assert planned.allowed == pytest.approx(planned.reserved_month)


def test_the_budget_is_the_stricter_one():
    """Of the registry's and the app's; without either there is no bound."""
    small = registry(categorical(), budget="[budget]\nper_month = 3")
    assert plan(small).budget.per_month == 3
    assert plan(small, caps=Caps(budget=Budget(per_month=2))).budget.per_month == 2
    assert plan(registry(categorical())).budget == Budget()
    free = plan(registry(categorical()), days=1000, caps=Caps(budget=Budget(per_month=None, lifetime=None)))
    assert free.allowed == inf
    assert free.fits


def test_what_the_budget_allows_over_days():
    """As many months as they touch, and never more than the lifetime; without days only that."""
    declared = registry(categorical(), budget="[budget]\nper_month = 31\nlifetime = 70")
    assert [plan(declared, days=days).allowed for days in (1, 2, 29, 30, 99)] == [31, 62, 62, 70, 70]
    weekly = registry('type = "boolean"\nepsilon = 1\nperiod = "week"', budget="[budget]\nper_month = 5\nlifetime = 70")
    assert [plan(weekly, days=days).allowed for days in (1, 22, 23, 24)] == [10, 10, 10, 15]
    assert plan(declared, reports=5).allowed == 70
    text = statement(plan(declared, days=100).spends, [1e-6], plan=plan(declared, days=100))
    assert (text.accounts[0].basic, text.capped(text.accounts[0].basic)) == (100, 70)
    assert text.capped(1000, 2) == 140


def test_metrics_are_chosen():
    """Some, once each; an unknown one is named."""
    three = registry(categorical(), categorical(4), categorical(5))
    assert [use.metric.id for use in plan(three, metrics=["m2", "m0", "m2"]).uses] == ["m2", "m0"]
    with pytest.raises(ParameterError, match=r"metric = 'm9': write one of those in metrics\.toml, m0, m1, m2"):
        plan(three, metrics=["m0", "m9"])


@pytest.mark.parametrize(
    ("numbers", "rule"),
    [
        ({"days": 0}, "days = 0: write a whole number of at least 1"),
        ({"reports": 0}, "reports = 0: write a whole number of at least 1"),
        ({"answers": 0}, "answers = 0: write a whole number of at least 1"),
        ({"days": 1, "reports": 1}, "days and reports are both given: leave one of them out"),
    ],
)
def test_numbers_are_checked(numbers, rule):
    """Each is at least 1, and only one says how often."""
    with pytest.raises(ParameterError, match=rule):
        plan(registry(categorical()), **numbers)


class Post:
    """Takes every batch, as a server would."""

    def __init__(self):
        self.reports = []

    def __call__(self, body, headers, _timeout):
        body = gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body
        for group in json.loads(body)["groups"]:
            self.reports += [(group["metric"], group["period"])] * len(b64decode(group["payloads"]))
        return 202, {}, None


def test_whoever_receives_reports_sees_which_were_sampled():
    """The SDK sends nothing for an answer that was not sampled: the coin is public, and no amplification is claimed."""
    rare = registry('type = "boolean"\nepsilon = 1\nsample = 0.5')
    post, now = Post(), [datetime(2027, 1, 1, 12, tzinfo=UTC).timestamp()]
    caps = Caps(budget=Budget(per_month=None, lifetime=None))
    options = {"settings": SenderSettings(flush_interval=3600), "caps": caps, "state": None, "strict": True}
    client = Client(dsn="https://k@t.example/shop", registry=rare, consent=True, post=post, clock=lambda: now[0], **options)
    views = []
    for _ in range(64):
        if client.record("m0", value=True):
            views.append(period.of(datetime.fromtimestamp(now[0], UTC), "day"))
        now[0] += 86_400
    assert client.flush(10)
    client.close(5)
    assert 0 < len(views) < 64  # but for one run in 2^63
    assert sorted(day for _, day in post.reports) == views


def test_when_an_answer_changed_is_not_covered():
    """Of two histories that change at different times, reports may tell more than the kept responses do together.

    So the condition stands beside every total with kept responses.
    """
    mechanism = mechanisms.make("l_grr", domain_size=2, epsilon="1.95", permanent=2)
    responses = [distribution(lambda tape, v=v: bytes([mechanism.respond_permanently(0, v, tape)])) for v in (0, 1)]
    report = [distribution(lambda tape, b=b: mechanism.respond_instantly(0, b, tape)) for b in (0, 1)]
    first, second = report[0]

    def chance(sequence, times):
        """Of reports `sequence`, from the responses to the answers `times`."""
        total = Fraction(0)
        for zero, one in ((a, b) for a in (0, 1) for b in (0, 1)):
            part = responses[0][bytes([zero])] * responses[1][bytes([one])]
            for payload, answer in zip(sequence, times, strict=True):
                part *= report[(zero, one)[answer]][payload]
            total += part
        return total

    series = [first] * 6 + [second] * 6
    ratio = chance(series, [0] * 6 + [1] * 6) / chance(series, [0] * 12)
    together = 2 * 2.0  # two responses
    assert ratio > exp(together)
    swapped = chance(series, [0] * 6 + [1] * 6) / chance(series, [1] * 6 + [0] * 6)
    assert 1 < swapped <= exp(together)
    lines = "\n".join(statement([], [1e-6], permanent=True).lines())
    assert "between histories of answers that change, and return to an earlier one, at the same times" in lines
