"""Which metrics are on: those within the caps, in the order of the file, as long as there is room. Advice that is taken fits."""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.limits.admission import admit
from deniable.limits.allowance import MICRO, micro
from deniable.limits.exposure import Exposure
from deniable.lint import lint
from deniable.registry import Registry, parse
from deniable.registry.tables import Budget, Caps

if TYPE_CHECKING:
    from pathlib import Path

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
    words = 'a report may give away 5 nats, and the app allows 4: write epsilon = 4 in [metrics."m1"]'
    assert reasons(registry) == reasons(registry, Caps(epsilon=4)) == [("m1", words)]
    assert reasons(registry, Caps(epsilon=5)) == []
    assert reasons(parse(written(*monthly(1, 5, 2), head="[caps]\nepsilon = 5\n"))) == []


def test_an_epsilon_that_the_mechanism_fixes_is_not_lowered():
    """Two fair coins spend ln 3: then only the cap can change, up to the default; above it, only the mechanism."""
    coins = written({"mechanism": '"coin"', "epsilon": 1.0986122886681098, "period": '"month"'}, head="[caps]\nepsilon = 1\n")
    assert reasons(parse(coins)) == [
        ("m0", "a report may give away 1.09861 nats, and the app allows 1: write epsilon = 1.1 in [caps]")
    ]
    fixed = "{ bits = 16, cohorts = 2, hashes = 1, prob_f = 0, prob_p = 0.01, prob_q = 0.99 }"
    loud = {"type": '"string"', "candidates": '"c.txt"', "mechanism": '"google_rappor"', "epsilon": 10, "parameters": fixed}
    ((_, words),) = reasons(parse(written(loud | {"period": '"month"'})))
    assert words.endswith("nats, and the app allows 4: choose another mechanism, or other parameters of it")


def test_a_lower_kept_answer_takes_its_reports_along():
    """All reports of an answer say no less than one, so both are lowered, and the cap stays as strict as it is."""
    text = written({"epsilon": 3, "epsilon_permanent": 6, "period": '"month"'}, head="[caps]\npermanent = 2\n")
    ((_, words),) = reasons(parse(text))
    lines = 'epsilon = 2 and epsilon_permanent = 2 in [metrics."m0"]'
    assert words == f"a kept answer may give away 6 nats, and the app allows 2: write {lines}"


def test_a_metric_may_have_several_faults():
    registry = parse(written({"epsilon": 5, "epsilon_permanent": 6}, head="[caps]\nmechanisms = []\n"))
    assert [words.partition(":")[0] for _, words in reasons(registry)] == [
        'its mechanism is "l_grr", and the app allows none',
        "a report may give away 5 nats, and the app allows 4",
        "a kept answer may give away 6 nats, and the app allows 4",
    ]


def test_what_the_budget_has_no_room_for_is_off_and_the_rest_goes_on():
    """In the order of the file: one that still fits is on. Each message has the same change, which has room for all."""
    registry = parse(written(*monthly(2, 2, 1), head="[budget]\nper_month = 3\nlifetime = 30\n"))
    admission = admit(registry, None, TODAY)
    assert list(admission.metrics) == ["m0", "m2"]
    less = 'epsilon = 1 in [metrics."m0"], [metrics."m1"]'
    words = f"it needs 2 nats a month, and the metrics above leave 1 of 3: write {less}, or per_month = 5.0 in [budget]"
    assert reasons(registry) == [("m1", words)]


@pytest.mark.parametrize(
    ("head", "in_code", "line"),
    [
        ("budget = { per_month = 9, lifetime = 20 }\n", None, "write per_month = 28.0 and lifetime = 1680 in [budget]"),
        ("budget = { per_month = 9 }\n", Caps(), "write per_month = 28.0 in [budget]"),
        ("", Caps(budget=Budget(per_month=9)), "write per_month = 28.0 in the budget of the app's Caps"),
        (
            "budget = { per_month = 8 }\n",
            Caps(budget=Budget(per_month=9)),
            "write per_month = 28.0 in [budget] and per_month = 28.0 in the budget of the app's Caps",
        ),
        ("budget = { per_month = 50, lifetime = 50 }\n", Caps(budget=Budget(per_month=9)), "in the budget of the app's Caps"),
    ],
)
def test_the_line_is_where_the_bound_stands(head, in_code, line):
    registry = parse(written(*monthly(*[4] * 7), head=head))
    faults = reasons(registry, in_code)
    assert faults
    assert all(line in words for _, words in faults)


def test_a_longer_period_is_told_where_it_is_enough():
    seldom = "(for an answer that seldom changes)"
    one = parse(written({"period": '"day"'}, *monthly(3)))
    week = 'period = "week" in [metrics."m0"] (which saves most), or epsilon = 0.9 in [metrics."m0"]'
    permanent = f'epsilon_permanent = 2 in [metrics."m0"] {seldom}'
    assert [(id_, words.partition("write ")[2]) for id_, words in reasons(one)] == [("m1", week)]
    tight = parse(written({"period": '"day"'}, *monthly(2), head="budget = { per_month = 6.5 }\n"))
    assert [words.partition("write ")[2] for _, words in reasons(tight)] == [permanent]
    daily = parse(written({}, {"epsilon": 3}, {}))
    assert [words.partition("write ")[2] for _, words in reasons(daily)] == [
        'period = "week" in [metrics."m1"], [metrics."m0"], [metrics."m2"] (which saves most)'
    ] * 2


def test_a_metric_that_exceeds_a_cap_gets_all_advice_at_once():
    """It takes no room while it is off. Once it is mended it needs some, and the same round says where from."""
    registry = parse(written({"epsilon": 5}, *monthly(3)))
    assert list(admit(registry, None, TODAY).metrics) == ["m1"]
    assert [words.partition(": write")[0] for _, words in reasons(registry)] == [
        "a report may give away 5 nats, and the app allows 4",
        "within the caps it needs 124 nats a month, and the other metrics leave 29 of 32",
    ]
    assert reasons(registry)[1][1].endswith(': write period = "week" in [metrics."m0"] (which saves most)')


def test_what_keeps_to_the_caps_needs_no_more_room_than_it_takes_then():
    """The budget that is advised has room for the metric as the other line mends it; where there is room, nothing is advised."""
    head = "budget = { per_month = 8 }\n"
    assert len(reasons(parse(written(*monthly(5, 3, 1), head=head)))) == 1
    ((_, cap), (_, room)) = reasons(parse(written(*monthly(5, 3, 3), head=head)))
    assert cap.endswith(': write epsilon = 4 in [metrics."m0"]')
    assert room.endswith(': write epsilon = 2 in [metrics."m1"], [metrics."m2"], or per_month = 10.0 in [budget]')


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
    assert words.startswith("with it, rows of kept answers divide devices into ")
    assert words.endswith(" groups, and 4096 are allowed: use fewer cohorts")  # lint would warn of larger caps
    few = parse(re.sub(r"\[metrics.m5000\][^[]*", "", text))
    ((id_, words),) = reasons(few, Caps(rows=200))
    rows = int(re.search(r"and 200 are allowed: use fewer cohorts, or write rows = (\d+) in the app's Caps", words)[1])
    assert (id_, rows) == ("m81", Exposure.of(few).rows)
    assert reasons(few, Caps(rows=rows)) == []
    assert reasons(few, Caps(rows=rows - 1))


def test_segments_put_devices_into_groups():
    """Segments travel in clear: their combinations are capped like rows."""
    names = "".join(f"s{n} = {[f'v{i}' for i in range(17)]}\n" for n in range(3))
    keys = [{"period": '"month"', "segments": [f"s{n}"]} for n in range(3)]
    registry = parse(written(*keys, head=f"[segments]\n{names}"))
    ((id_, words),) = reasons(registry)
    assert id_ == "m2"
    assert words.endswith("have 4913 combinations, and 4096 are allowed: use fewer segments, or fewer values")
    assert reasons(registry, Caps(segments=4913)) == []
    # One with exactly as many as are allowed takes all room, so that a further segment has none.
    more = parse(written(*keys, {"period": '"month"', "segments": ["more"]}, head=f'[segments]\n{names}more = ["a", "b"]\n'))
    assert [id_ for id_, _ in reasons(more, Caps(segments=4913))] == ["m3"]
    pair = parse(written(*[{"period": '"month"', "segments": [f"s{n}"]} for n in range(2)], head=f"[segments]\n{names}"))
    few = Caps(segments=20)
    assert reasons(parse(written(keys[0], head=f"[segments]\n{names}")), few) == []
    assert [words.partition("allowed: ")[2] for _, words in reasons(pair, few)] == ["use fewer segments, or fewer values"]


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
        "caps": st.fixed_dictionaries({"epsilon": EPSILON, "permanent": EPSILON}, optional={"segments": st.integers(1, 9)}).map(
            lambda caps: f"caps = {{ {', '.join(f'{key} = {value}' for key, value in caps.items())} }}\n"
        ),
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


LINES = re.compile(r"(\w+ = \S+(?: and \w+ = \S+)*) (in (?:\[[^]]+\](?:, (?=\[))?)+)")


def change(text: str, advice: str) -> str:
    """Write lines where it was said: in a metric, in several, or in a table at the top of the file."""
    changes = LINES.findall(advice)
    assert changes, advice
    for sets, places in changes:
        for key, value in (line.split(" = ") for line in sets.split(" and ")):
            for place in re.findall(r"\[[^]]+\]", places):
                text = write(text, place, key, value)
    return text


def write(text: str, place: str, key: str, value: str) -> str:
    if place in ("[budget]", "[caps]"):
        table = place.strip("[]")
        inline = re.search(rf"^{table} = {{ (.*) }}$", text, re.MULTILINE)
        keys = dict(pair.split(" = ") for pair in inline[1].split(", ")) if inline else {}
        pairs = ", ".join(f"{name} = {number}" for name, number in (keys | {key: value}).items())
        text = text.replace(f"{inline[0]}\n" if inline else "\x00", "")
        return text.replace('app = "shop"\n', f'app = "shop"\n{table} = {{ {pairs} }}\n', 1)
    before, head, after = text.partition(f"{place}\n")
    own, next_, others = after.partition("\n[metrics")
    own = (
        re.sub(rf"^{key} = .*$", f"{key} = {value}", own, flags=re.MULTILINE)
        if f"\n{key} = " in f"\n{own}"
        else f"{key} = {value}\n{own}"
    )
    return before + head + own + next_ + others


def advised(text: str, which: int) -> str:
    """Write what the messages say; a second round if they said to mend first what exceeds the caps."""
    for _ in range(2):
        for fault in admit(parse(text), None, TODAY).faults:
            advice = re.search(r"write (.*)$", fault.rule)
            if advice is None:
                assert fault.rule.endswith(": mend what exceeds the caps first"), fault.rule
            else:
                text = change(text, re.split(r",? or (?:write )?", advice[1])[which])
    return text


def doubts(path: Path, text: str) -> set[tuple[str, str]]:
    path.write_text(text)
    return {(warning.metric, warning.rule) for warning in lint(path).warnings}


@pytest.mark.slow("it tries many registries")
@pytest.mark.parametrize("which", [0, -1], ids=["the first change", "the last change"])
def test_whoever_takes_the_advice_is_done(which, tmp_path):
    """For any registry: when the lines of all messages are written, nothing is off, and lint has no warning that is new.

    No budget is advised that lint would warn of, and no weaker cap where a metric can have less.
    """
    path = tmp_path / "metrics.toml"

    @settings(deadline=None, max_examples=50)
    @given(HEAD, st.lists(METRIC, min_size=1, max_size=7))
    def follow(head, metrics):
        text = registry_of(head, metrics)
        changed = advised(text, which)
        if changed == text:
            return
        assert not admit(parse(changed), None, TODAY).faults
        assert doubts(path, changed) <= doubts(path, text)
        assert (parse(changed).budget or Budget()).per_month <= max(32, (parse(text).budget or Budget()).per_month)
        after, before = (parse(each).caps or Caps() for each in (changed, text))
        assert (after.epsilon, after.permanent) == (before.epsilon, before.permanent)

    follow()


M0_TO_M3 = ", ".join(f'[metrics."m{number}"]' for number in range(4))

KEPT_TOO = 'epsilon = 1 and epsilon_permanent = 1 in [metrics."m0"] and epsilon = 2 in [metrics."m1"]'


@pytest.mark.parametrize(
    ("head", "metrics", "advice"),
    [
        ("", monthly(*[4] * 9), 'epsilon = 2 in [metrics."m0"], [metrics."m1"]'),
        ("budget = { per_month = 8 }\n", monthly(*[4] * 5), "per_month = 20.0 in [budget]"),
        ("budget = { per_month = 8 }\n", monthly(*[4] * 4, 3.51), "per_month = 19.6 in [budget]"),
        ("budget = { per_month = 8 }\n", monthly(*[4] * 10), f"per_month = 32.0 in [budget] and epsilon = 2 in {M0_TO_M3}"),
        ("", ({"epsilon": 2, "epsilon_permanent": 2, "period": '"day"'}, *monthly(*[4] * 8)), KEPT_TOO),
    ],
)
def test_a_budget_that_lint_would_warn_of_is_not_advised(head, metrics, advice):
    """The greediest metrics change instead: as few as possible, none to less than half of its epsilon if that is enough."""
    registry = parse(written(*metrics, head=head))
    assert {words.partition("write ")[2] for _, words in reasons(registry)} == {advice}


def test_where_nothing_is_taken_the_budget_itself_is_too_small():
    """The first metric has no metrics above it."""
    ((_, words),) = reasons(parse(written({}, head="budget = { per_month = 4 }\n")))
    assert words.startswith("it needs 31 nats a month, and the budget has 4: write ")
