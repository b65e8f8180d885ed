"""Which metrics are on: those within the caps, in the order of the file, as long as there is room. Advice that is taken fits."""

from __future__ import annotations

import re
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.limits.admission import admit
from deniable.limits.allowance import MICRO, micro
from deniable.limits.exposure import Exposure
from deniable.registry import Registry, parse
from deniable.registry.tables import Budget, Caps

TODAY = date(2026, 11, 21)
REST = 'description = "d"\nowner = "o"\n'


def written(*metrics: dict[str, object], head: str = "") -> str:
    """Write a registry of yes and no, each metric with some keys."""
    tables = []
    for number, keys in enumerate(metrics):
        lines = "".join(f"{key} = {value}\n" for key, value in ({"type": '"boolean"', "epsilon": 1} | keys).items())
        tables.append(f'[metrics."m{number}"]\n{lines}{REST}')
    return f'format = 1\napp = "shop"\n{head}{"".join(tables)}'


def monthly(*epsilons: float) -> tuple[dict[str, object], ...]:
    return tuple({"epsilon": epsilon, "period": '"month"'} for epsilon in epsilons)


def reasons(registry: Registry, in_code: Caps | None = None) -> list[tuple[str, str]]:
    return [(fault.metric, fault.words) for fault in admit(registry, in_code, TODAY).faults]


def test_six_monthly_metrics_fit_easily():
    """An ordinary registry asks for less than half of the budget without a line about it."""
    admission = admit(parse(written(*monthly(1, 1, 2, 2, 2.333, 4))), None, TODAY)
    assert not admission.faults
    assert sum(each.allowance.month for each in admission.metrics.values()) < 0.4 * 32 * MICRO


def test_only_the_metric_that_exceeds_a_cap_is_off():
    registry = parse(written(*monthly(1, 5, 2)))
    admission = admit(registry, None, TODAY)
    assert list(admission.metrics) == ["m0", "m2"]
    words = "the app allows 4 nats for a report: write epsilon = 4 here, or epsilon = 5 in [caps]; got 5.0"
    assert reasons(registry) == [("m1", words)]
    assert reasons(registry, Caps(epsilon=4)) == [("m1", words.replace("[caps]", "the app's Caps"))]
    assert reasons(registry, Caps(epsilon=5)) == []
    assert reasons(parse(written(*monthly(1, 5, 2), head="[caps]\nepsilon = 5\n"))) == []


def test_an_epsilon_that_the_mechanism_fixes_is_not_lowered():
    """Two fair coins spend ln 3, and a kept answer no less than each report: then only the cap can change."""
    coins = written({"mechanism": '"coin"', "epsilon": 1.0986122886681098, "period": '"month"'}, head="[caps]\nepsilon = 1\n")
    assert reasons(parse(coins)) == [("m0", "the app allows 1 nats for a report: write epsilon = 1.1 in [caps]; got 1.09861")]
    text = written({"epsilon": 3, "epsilon_permanent": 3, "period": '"month"'}, head="[caps]\npermanent = 2\n")
    ((_, words),) = reasons(parse(text))
    assert words == "the app allows 2 nats for a kept answer: write permanent = 3 in [caps]; got 3.0"


def test_a_metric_may_have_several_faults():
    registry = parse(written({"epsilon": 5, "epsilon_permanent": 6}, head="[caps]\nmechanisms = []\n"))
    assert [words.partition(":")[0] for _, words in reasons(registry)] == [
        "the mechanism is one that the app allows (none)",
        "the app allows 4 nats for a report",
        "the app allows 4 nats for a kept answer",
    ]


def test_what_the_budget_has_no_room_for_is_off_and_the_rest_goes_on():
    """In the order of the file: one that still fits is on. Each message has the same budget, which has room for all."""
    registry = parse(written(*monthly(2, 2, 1), head="[budget]\nper_month = 3\nlifetime = 30\n"))
    admission = admit(registry, None, TODAY)
    assert list(admission.metrics) == ["m0", "m2"]
    words = "the metrics above leave 1 of 3 nats a month for it: write per_month = 5.0 in [budget]; got 2.0"
    assert reasons(registry) == [("m1", words)]


@pytest.mark.parametrize(
    ("head", "in_code", "line"),
    [
        ("", None, "write per_month = 40.0 in [budget];"),
        ("budget = { per_month = 9, lifetime = 20 }\n", None, "write per_month = 40.0 and lifetime = 400.0 in [budget];"),
        ("budget = { per_month = 9 }\n", Caps(), "write per_month = 40.0 in [budget];"),
        ("", Caps(budget=Budget(per_month=9)), "write per_month = 40.0 in the budget of the app's Caps;"),
        (
            "budget = { per_month = 8 }\n",
            Caps(budget=Budget(per_month=9)),
            "write per_month = 40.0 in [budget] and per_month = 40.0 in the budget of the app's Caps;",
        ),
        ("budget = { per_month = 50, lifetime = 50 }\n", Caps(budget=Budget(per_month=9)), "in the budget of the app's Caps;"),
    ],
)
def test_the_line_is_where_the_bound_stands(head, in_code, line):
    registry = parse(written(*monthly(*[4] * 10), head=head))
    faults = reasons(registry, in_code)
    assert faults
    assert all(line in words for _, words in faults)


def test_a_longer_period_is_told_where_it_is_enough():
    one = parse(written({"period": '"day"'}, *monthly(3)))
    assert [(id_, words.partition("write ")[2]) for id_, words in reasons(one)] == [
        ("m1", 'period = "week" in [metrics."m0"], or per_month = 34.0 in [budget]; got 3.0')
    ]
    daily = parse(written({}, {}, {}))
    assert [words.partition("write ")[2] for _, words in reasons(daily)] == [
        'period = "month" in each metric, or per_month = 93.0 in [budget]; got 31.0'
    ] * 2


def test_what_has_ended_needs_no_room():
    registry = parse(written({"epsilon": 1, "expires": "2026-11-20"}, {"epsilon": 1}))
    assert list(admit(registry, None, TODAY).metrics) == ["m0", "m1"]
    assert list(admit(registry, None, date(2026, 11, 20)).metrics) == ["m0"]


KEPT = 'type = "string"\ncandidates = "c.txt"\nmechanism = "rappor"\nepsilon = 1\nepsilon_permanent = 2\nperiod = "month"\n'


def test_a_device_keeps_one_of_few_rows():
    """A row that a device uses for good would name it if there were many: the metric that makes too many is off."""
    text = 'format = 1\napp = "shop"\n' + "".join(
        f"[metrics.m{cohorts}]\n{KEPT}parameters = {{ cohorts = {cohorts} }}\n{REST}" for cohorts in (64, 5000, 128, 81)
    )
    registry = parse(text)
    assert list(admit(registry, None, TODAY).metrics) == ["m64", "m128", "m81"]
    ((id_, words),) = reasons(registry)
    assert id_ == "m5000"
    assert words.startswith("rows of kept answers divide devices into 4096 groups at most, over all metrics: use fewer cohorts")
    rows = int(re.search(r"or write rows = (\d+) in \[caps\]", words)[1])
    assert rows == Exposure.of(registry).rows
    assert reasons(registry, Caps(rows=rows)) == []
    assert reasons(registry, Caps(rows=rows - 1))


def test_segments_put_devices_into_groups():
    """Segments travel in clear: their combinations are capped like rows."""
    names = "".join(f"s{n} = {[f'v{i}' for i in range(17)]}\n" for n in range(3))
    keys = [{"period": '"month"', "segments": [f"s{n}"]} for n in range(3)]
    registry = parse(written(*keys, head=f"[segments]\n{names}"))
    ((id_, words),) = reasons(registry)
    assert id_ == "m2"
    assert words.endswith("use fewer values, or write segments = 4913 in [caps]; got 4913")
    assert reasons(registry, Caps(segments=4913)) == []


EPSILON = st.integers(1, 140).map(lambda tenths: tenths / 20)
METRIC = st.fixed_dictionaries(
    {"epsilon": EPSILON, "period": st.sampled_from(['"hour"', '"day"', '"week"', '"month"'])},
    optional={
        "more": st.integers(0, 60),
        "answers_per_month": st.integers(1, 9),
        "segments": st.sampled_from([["a"], ["a", "b"]]),
    },
)
HEAD = st.fixed_dictionaries(
    {},
    optional={
        "budget": st.integers(1, 400).map(lambda tenths: f"budget = {{ per_month = {tenths / 10}, lifetime = {tenths / 5} }}\n"),
        "caps": st.fixed_dictionaries(
            {"epsilon": EPSILON, "permanent": st.just(7.0)}, optional={"segments": st.integers(1, 9)}
        ).map(lambda caps: f"caps = {{ {', '.join(f'{key} = {value}' for key, value in caps.items())} }}\n"),
    },
)
SEGMENTS = '[segments]\na = ["x", "y", "z"]\nb = ["x", "y", "z"]\n'


def registry_of(head: dict[str, str], metrics: list[dict[str, object]]) -> str:
    tables = []
    for keys in metrics:
        declared = {key: value for key, value in keys.items() if key not in ("more", "answers_per_month")}
        if "more" in keys:
            declared["epsilon_permanent"] = keys["epsilon"] + keys["more"] / 20
            declared["answers_per_month"] = keys.get("answers_per_month", 2)
        tables.append(declared)
    return written(*tables, head="".join(head.values()) + SEGMENTS)


@pytest.mark.slow("it tries many registries")
@settings(deadline=None, max_examples=100)
@given(HEAD, st.lists(METRIC, min_size=1, max_size=7))
def test_whatever_is_on_is_within_the_caps_and_the_budget(head, metrics):
    """All metrics that are on fit together; each other one would not be on with those above it."""
    registry = parse(registry_of(head, metrics))
    caps, admission = registry.caps or Caps(), admit(registry, None, TODAY)
    on = {id_: each.allowance for id_, each in admission.metrics.items()}
    assert set(on).isdisjoint(fault.metric for fault in admission.faults)
    assert {*on, *(fault.metric for fault in admission.faults)} == {*registry.metrics}
    assert sum(each.month for each in on.values()) <= micro((registry.budget or Budget()).per_month)
    assert all(
        each.declared.mechanism.ratio.limit_denominator(10**9) <= 2.7182818284591**caps.epsilon
        for each in admission.metrics.values()
    )
    assert Exposure.together(registry, (each.declared for each in admission.metrics.values())).segments <= caps.segments


def change(text: str, metric: str, line: str) -> str:
    """Write a line where it was said: in a metric, in each of them, or in a table at the top of the file."""
    sets, _, place = line.partition(" in ")
    for key, value in (each.split(" = ") for each in sets.split(" and ")):
        if place == "each metric":
            text = re.sub(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
        elif place in ("[budget]", "[caps]"):
            table = place.strip("[]")
            inline = re.search(rf"^{table} = {{ (.*) }}$", text, re.MULTILINE)
            keys = dict(each.split(" = ") for each in inline[1].split(", ")) if inline else {}
            pairs = ", ".join(f"{name} = {each}" for name, each in (keys | {key: value}).items())
            text = text.replace(f"{inline[0]}\n" if inline else "\x00", "")
            text = text.replace('app = "shop"\n', f'app = "shop"\n{table} = {{ {pairs} }}\n', 1)
        else:
            id_ = metric if place == "" else re.fullmatch(r'\[metrics\."(.*)"\]', place)[1]
            before, head, after = text.partition(f'[metrics."{id_}"]\n')
            text = before + head + re.sub(rf"^{key} = .*$", f"{key} = {value}", after, count=1, flags=re.MULTILINE)
    return text


@pytest.mark.slow("it tries many registries")
@pytest.mark.parametrize("which", [0, -1], ids=["the first change", "the last change"])
def test_whoever_takes_the_advice_is_done(which):
    """For any registry: each metric's message has a line, and when it is written nothing is off. There is no circle."""

    @settings(deadline=None, max_examples=120)
    @given(HEAD, st.lists(METRIC, min_size=1, max_size=7))
    def follow(head, metrics):
        text = registry_of(head, metrics)
        for _ in range(2):  # metrics that keep to the caps at last may find no room then
            for fault in admit(parse(text), None, TODAY).faults:
                advice = re.search(r"write (.*)$", fault.rule)[1]
                line = re.split(r",? or (?:write )?", advice)[which].replace(" here", "")
                text = change(text, fault.metric, line)
        assert not admit(parse(text), None, TODAY).faults

    follow()
