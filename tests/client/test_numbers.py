"""Number metrics on the device: every answer is one report, whatever is given."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from math import inf, nan

import pytest

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.registry import Metric, parse
from deniable.source import OS

HEAD = 'format = 1\napp = "shop"\n'
BODY = 'epsilon = 2\ndescription = "d"\nowner = "o"\n'


def number(**changes) -> Metric:
    fields = {"id": "n", "type": "number", "values": (), "range": ("0", "100"), "unit": "ms", "estimate": "mean", "epsilon": "1"}
    return Metric(**(fields | changes))


def test_as_it_is_declared():
    """Ends and `none` may be whole numbers, decimals or texts, and are kept as written."""
    text = f'{HEAD}[metrics.n]\ntype = "number"\nrange = [1, "2.50"]\nunit = "s"\nestimate = "distribution"\nnone = 1.0\n{BODY}'
    metric = parse(text).metrics["n"]
    assert (metric.range, metric.none, metric.unit, metric.scale) == (("1", "2.5"), "1", "s", "linear")
    assert (metric.values, metric.open, metric.permanent) == ((), False, False)


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        (0, 0), (25, Fraction(1, 4)), (100, 1), (-3, 0), (101, 1), (10**5000, 1), (-(10**5000), 0), (12.5, Fraction(1, 8)),
        (inf, 1), (-inf, 0), (1e308, 1), (5e-324, 0), (Decimal("62.5"), Fraction(5, 8)), (Decimal("Infinity"), 1),
        (Fraction(300, 4), Fraction(3, 4)), (Fraction(10**5000), 1),
    ],
    ids=range(16),
)  # fmt: skip
def test_numbers_have_positions(answer, share):
    """Exactly, where they have one; beyond the range at its end, however large."""
    metric = number()
    assert Fraction(metric.position(answer), metric.axis.steps) == share


def test_numbers_of_numpy_have_places():
    """Also those that are no subclass of a Python number."""
    np = pytest.importorskip("numpy")
    metric = number()
    for answer, share in ((np.int64(50), 2), (np.float32(25), 4), (np.float64(100), 1)):
        assert metric.position(answer) * share == metric.axis.steps
    with pytest.raises(ParameterError, match="an answer to n must be a number; this is an undeclared"):
        metric.position(np.float32("nan"))


@pytest.mark.parametrize("answer", [nan, Decimal("nan"), True, False, "3", b"3", [3], timedelta(1), 1j, object()])
def test_what_is_no_number_is_undeclared(answer):
    """It is told to a strict app, without the answer, and reported as `none`."""
    metric = number(none="50")
    with pytest.raises(ParameterError, match="an answer to n must be a number; this is an undeclared") as raised:
        metric.position(answer)
    assert "50" not in str(raised.value)
    assert metric.stand_in(OS) == metric.position(50)


def test_none_is_the_low_end_unless_declared():
    """And is an answer, not a fault."""
    assert number().position(None) == number().position(0) == 0
    assert number(none="75").position(None) == number().position(75)
    assert number(scale="log", range=("1", "100"), none="10").position(None) == number(scale="log", range=("1", "100")).position(
        10
    )


def test_mechanisms():
    """A window whose length depends on what is estimated; where responses are kept, one bit or sixteen parts."""
    plain = {kind: mechanisms.of(number(estimate=kind)) for kind in ("mean", "distribution")}
    assert {kind: each.name for kind, each in plain.items()} == {"mean": "window", "distribution": "window"}
    assert plain["mean"].points < plain["distribution"].points
    assert plain["mean"].domain_size == number().domain_size == number().axis.steps + 1
    permanent = {kind: mechanisms.of(number(estimate=kind, epsilon_permanent="2")) for kind in plain}
    assert {kind: (each.name, each.domain_size) for kind, each in permanent.items()} == {
        "mean": ("l_grr", 2),
        "distribution": ("l_osue", 16),
    }
    own = mechanisms.of(number(mechanism="window", parameters=(("blocks", 3), ("length", 5))))
    assert (own.blocks, own.length) == (3, 5)
    with pytest.raises(ParameterError, match="mechanism = 'grr': write auto or window for this metric"):
        mechanisms.of(number(mechanism="grr"))


def test_bins_of_a_kept_distribution():
    """Sixteen equal parts, the last with the high end."""
    metric = number(range=("0", "16"), estimate="distribution", epsilon_permanent="2")
    assert [metric.position(each) for each in (0, 0.99, 1, 15.99, 16, 99, None)] == [0, 0, 1, 15, 15, 15, 0]


def test_rounding_keeps_the_mean():
    """Over all points of the device, an answer is rounded up as often as its share of the range says."""
    metric = number(range=("0", "10"), epsilon_permanent="2")
    for answer in (0, 1, 3.7, 10):
        position = metric.position(answer)
        ups = sum(metric.round_at(position, point) for point in range(metric.axis.steps))
        assert ups == position


def test_the_mean_of_an_ordinal():
    """Its values are the positions of a window."""
    metric = Metric(id="o", type="ordinal", values=("bad", "fair", "good"), epsilon="1", estimate="mean")
    mechanism = mechanisms.of(metric)
    assert (mechanism.name, mechanism.domain_size) == ("window", 3)
    assert [mechanism.quantities(metric.position(each)) for each in metric.values] == [(0,), (Fraction(1, 2),), (1,)]


def test_the_meaning_is_in_the_fingerprint():
    """Reports of another range, unit or scale are never counted together."""
    from deniable.declared import Declared

    variants = [{}, {"range": ("0", "200")}, {"unit": "s"}, {"range": ("1", "100")}, {"range": ("1", "100"), "scale": "log"}]
    assert len({Declared.of(number(**each)).fingerprint for each in variants}) == len(variants)
