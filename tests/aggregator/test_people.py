"""Simulated people: what they answer, what their devices report, and where nothing is sent."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import workers

from deniable import registry
from deniable.commands.entry import main
from deniable.declared import Declared
from deniable.errors import ConfigurationError
from deniable.registry import period
from deniable.wire.report import Stratum
from deniable_aggregator import tally
from deniable_aggregator.commands import simulate
from deniable_aggregator.people import plausible, sending, table
from deniable_aggregator.people.comparison import Compared
from deniable_aggregator.people.crowd import NOTHING
from deniable_aggregator.people.devices import Devices
from deniable_aggregator.people.truth import Truth
from deniable_aggregator.store import Store, schema

EXAMPLE = Path(__file__).parents[2] / "deploy" / "metrics.toml"
KINDS = {
    "listed": 'type = "categorical"\nvalues = ["x", "y", "z"]\nother = "z"\nsegments = ["platform", "arm"]',
    "kept": 'type = "boolean"\nepsilon_permanent = 4.0\nsegments = ["platform"]',
    "once": 'type = "categorical"\nvalues = ["x", "y"]\nepsilon_permanent = 4.0\nanswers_per_month = 1',
    "order": 'type = "ordinal"\nvalues = ["a", "b", "c"]\nestimate = "mean"',
    "both": 'type = "product"\nfactors = { f = ["t", "u"], g = ["v", "w"] }',
    "some": 'type = "set"\nvalues = ["u", "v", "w"]',
    "others": 'type = "set"\nvalues = ["u", "v", "z"]\nother = "z"',
    "many": f'type = "set"\nvalues = {[f"o{number}" for number in range(20)]}',
    "mean": 'type = "number"\nrange = [0, 10]\nunit = "ms"\nestimate = "mean"',
    "log": 'type = "number"\nrange = [1, 1000]\nscale = "log"\nunit = "ms"\nestimate = "distribution"',
    "whole": 'type = "number"\nrange = [0, 7]\nwhole = true\nunit = "ms"\nestimate = "distribution"',
    "ends": 'type = "number"\nrange = [0, 5]\nunit = "ms"\nestimate = "mean"\nepsilon_permanent = 4.0',
    "bins": 'type = "number"\nrange = [0, 5]\nunit = "ms"\nestimate = "distribution"\nepsilon_permanent = 4.0',
    "found": 'type = "string"\ndiscover = true',
    "key": 'type = "key"\ndiscover = true',
    "rappor": 'type = "string"\ncandidates = "c.txt"\nepsilon_permanent = 4.0',
}
HEAD = """format = 1
app = "shop"
[publication]
trial = true
[segments]
platform = ["linux", "macos", "windows"]
arm = ["control", "large"]
[experiments]
arm = { base = "control", planned = 0.3, split = { control = 3, large = 1 } }
"""


def written(*kinds):
    metrics = "".join(f'[metrics.{kind}]\n{KINDS[kind]}\nepsilon = 2.0\ndescription = "d"\nowner = "o"\n' for kind in kinds)
    return HEAD + metrics


def loaded(tmp_path, *kinds):
    (tmp_path / "c.txt").write_text("one\ntwo\n", "utf-8")
    path = tmp_path / "metrics.toml"
    path.write_text(written(*kinds), "utf-8")
    return registry.load(path)


def crowd_of(tmp_path, *kinds, people=3000, stated=None, seed=5):
    return plausible.crowd(loaded(tmp_path, *kinds), people, stated or {}, np.random.SeedSequence(seed))


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_answered_and_reported(kind, tmp_path):
    """People answer metrics of each type, and each report is one that a device could have sent."""
    crowd = crowd_of(tmp_path, kind, people=400)
    declared = Declared.of(crowd.answers[kind].metric)
    truth = Truth(loaded(tmp_path, kind), crowd)
    devices = Devices(declared, crowd.answers[kind].positions, *crowd.segment(loaded(tmp_path, kind), declared.metric))
    for time in (0, 0.5, 1):
        held = crowd.answers[kind].at(time)
        truth.add(declared.metric, f"2026-11-0{1 + int(2 * time)}", held)
        payloads = devices.report(held)
        assert sum(tally.count(declared.layout, each).n for each in payloads.values()) == 400
    figures = list(truth.in_all())
    assert {each.people for each in figures if not each.segment} == {1200}
    shares = [each.truth for each in figures if not each.segment]
    assert sum(shares) == pytest.approx(1) or kind in ("order", "some", "others", "many", "mean", "log", "whole", "ends", "bins")
    assert len({each.period for each in truth.by_period()}) == 3


def test_reports_are_about_what_people_hold(tmp_path):
    """Estimates from many reports of devices are near what these hold, also of kept responses and rounded numbers."""
    for kind, answer in (("listed", "x"), ("kept", "yes"), ("ends", "mean"), ("some", "u")):
        crowd = crowd_of(tmp_path, kind, people=20_000)
        answers = crowd.answers[kind]
        declared = Declared.of(answers.metric)
        held = answers.at(0)
        devices = Devices(declared, answers.positions, [""], np.zeros(20_000, np.int64))
        counted = tally.count(declared.layout, devices.report(held)[""])
        truth = Truth(loaded(tmp_path, kind), crowd)
        truth.add(answers.metric, "2026-11-01", held)
        true = next(each.truth for each in truth.by_period() if each.value == answer and not each.segment)
        assert estimated(declared, counted, answer) == pytest.approx(true, abs=0.15 if kind == "ends" else 0.03)


def estimated(declared, counted, answer):
    from deniable_aggregator import decode
    from deniable_aggregator.decode.numbers.mean import mean
    from deniable_aggregator.decode.sets.options import option_shares

    metric = declared.metric
    if metric.axis:
        return metric.axis.number(mean(declared.mechanism, counted).place)
    if metric.kind.options:
        return option_shares(declared.mechanism, counted).frequency[metric.values.index(answer)]
    return decode.estimate(declared.mechanism, counted).frequency[
        [metric.label(at) for at in range(metric.domain_size)].index(answer)
    ]


def test_a_device_keeps_its_row_and_its_responses():
    """Reports of one answer are copies of one response: with equal epsilons, all of a device are the same."""
    metric = registry.parse(written("once").replace("epsilon_permanent = 4.0", "epsilon_permanent = 2.0")).metrics["once"]
    declared = Declared.of(metric)
    devices = Devices(declared, (0, 1), [""], np.zeros(500, np.int64))
    held = np.arange(500) % 2
    first = devices.report(held)[""]
    assert first == devices.report(held)[""]
    assert first != devices.report(1 - held)[""]
    assert first == devices.report(held)[""]
    assert len(devices.report(np.where(held, held, NOTHING))[""]) == 250 * declared.layout.payload_size


def test_people_move_over_time_and_by_segment(tmp_path):
    """More people give the second answer later, in later values of a segment, and in arms, as many as planned."""
    crowd = crowd_of(tmp_path, "listed", "kept", "once", people=40_000)
    answers = crowd.answers["listed"]
    before, after = answers.at(0), answers.at(1)
    assert (after == 1).mean() - (before == 1).mean() == pytest.approx(0.1 * (before != 1).mean(), abs=0.02)
    linux = crowd.segments["platform"] == 0
    arm = crowd.segments["arm"] == 1
    assert arm.mean() == pytest.approx(0.25, abs=0.02)
    assert (before[linux & arm] == 1).mean() - (before[linux & ~arm] == 1).mean() == pytest.approx(0.3 * 0.7, abs=0.04)
    permanent = [crowd.answers["kept"].at(time) for time in np.linspace(0, 1, 9)]
    assert all(((earlier == 1) <= (later == 1)).all() for earlier, later in pairwise(permanent))
    once = crowd.answers["once"]
    assert (once.at(0) == once.at(1)).all()  # a device with room for one response could not tell


def test_stated_shares_hold_everywhere(tmp_path):
    """Shares that are stated hold at all times and in all segments; those of a set are each for itself."""
    crowd = crowd_of(tmp_path, "listed", "some", "both", people=40_000, stated={"listed": {"y": 3, "x": 1}, "some": {"w": 0.8}})
    listed = crowd.answers["listed"]
    for time in (0, 1):
        held = [listed.values[place] for place in listed.at(time)]
        assert held.count("y") / 40_000 == pytest.approx(0.75, abs=0.01)
    options = crowd.answers["some"]
    assert {tuple(options.values[place]) for place in options.at(1)} == {(), ("w",)}


def test_a_seed_repeats_the_people_and_not_the_noise(tmp_path):
    """The same people come again, one metric more or less, and their reports are others."""
    one, same = crowd_of(tmp_path, "listed", seed=3), crowd_of(tmp_path, "listed", seed=3)
    held = one.answers["listed"].at(0)
    assert (held == same.answers["listed"].at(0)).all()
    assert (held != crowd_of(tmp_path, "listed", seed=4).answers["listed"].at(0)).any()
    declared = Declared.of(one.answers["listed"].metric)
    reports = {Devices(declared, (0, 1, 2), [""], np.zeros(3000, np.int64)).report(held)[""] for _ in range(2)}
    assert len(reports) == 2


PEOPLE = """listed,platform,mean,some
x,linux,3.5,"u,w"
nothing,macos,99,
,windows,0,v
"""


def read(tmp_path, text, people=None):
    path = tmp_path / "people.csv"
    path.write_text(text, "utf-8")
    return table.crowd(loaded(tmp_path, "listed", "mean", "some", "both"), path, people, np.random.SeedSequence(1))


def test_people_of_a_file_answer_what_it_says(tmp_path):
    """Each line is a person: an undeclared answer is `other`, an empty cell is no answer, a number beyond counts as the end."""
    crowd = read(tmp_path, PEOPLE)
    assert crowd.size == 3
    assert set(crowd.answers) == {"listed", "mean", "some"}
    assert "it has no column both" in crowd.description
    assert "who leaves some empty does not answer it: a set of nothing is a comma in quotes" in crowd.description
    nothing = read(tmp_path, 'some\n","\n"u,w"\n')
    assert [nothing.answers["some"].values[place] for place in nothing.answers["some"].at(0)] == [[], ["u", "w"]]
    assert "leaves" not in nothing.description
    listed, options = crowd.answers["listed"], crowd.answers["some"]
    assert [listed.values[place] if place >= 0 else None for place in listed.at(0)] == ["x", "z", None]
    assert [options.values[place] if place >= 0 else None for place in options.at(0)] == [["u", "w"], None, ["v"]]
    assert crowd.segments["platform"].tolist() == [0, 1, 2]
    truth = Truth(loaded(tmp_path, "listed", "mean", "some", "both"), crowd)
    truth.add(crowd.answers["mean"].metric, "2026-11-01", crowd.answers["mean"].at(0))
    (mean,) = truth.by_period()
    assert (mean.people, mean.truth) == (3, 4.5)
    assert read(tmp_path, PEOPLE, 500).size == 500


def test_what_counts_as_other_is_named(tmp_path):
    """How many rows, of which column, and the first of them: a typo would be lost among the others."""
    crowd = read(tmp_path, "listed\nx\nxx\ny\nxx\n" + "zz\n" * 6)
    first = "'xx' in line 3, 'xx' in line 5, 'zz' in line 6, 'zz' in line 7 and 4 more"
    assert f"; column listed is not declared in 8 rows, and counts as 'z': {first}" in crowd.description
    assert "declared" not in read(tmp_path, "listed\nx\n").description


def test_an_option_that_is_not_declared_counts_as_other(tmp_path):
    """Each of a set by itself, as on a device; the declared ones stay."""
    (tmp_path / "people.csv").write_text('others\n"u,leek"\nleek\nu;v\nv\n', "utf-8")
    crowd = table.crowd(loaded(tmp_path, "others"), tmp_path / "people.csv", None, np.random.SeedSequence(1))
    options = crowd.answers["others"]
    assert [options.values[place] for place in options.at(0)] == [["u", "z"], ["z"], ["z"], ["v"]]
    assert "counts as 'z': 'u,leek' in line 2, 'leek' in line 3, 'u;v' in line 4" in crowd.description


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: at least one column is a metric"),
        ("listed\n", "has no line below its header"),
        ("listed,colour\nx,red\n", "line 1: column 'colour' is no metric and no segment of"),
        ("listed,listed\nx,x\n", "line 1: each column is one metric or one segment; 'listed' is not"),
        ("platform\nlinux\n", "line 1: at least one column is a metric"),
        ("listed,platform\nx,linux\nx\n", "line 3: the line has 1 cell: write one for each of the 2 columns"),
        ("mean\n1\nmuch\n", "line 3: column mean has 'much': an answer to mean must be a number, such as 10"),
        ("listed,platform\nx,beos\n", "line 2: column platform has 'beos': write one of linux, macos, windows"),
        (
            "some\nq\n",
            "has 'q': an option of some must be one of the 3 declared: u, v, w; several options are joined by commas, such as u,",
        ),
        ('listed\n"x\n', "cannot be read as CSV"),
    ],
)
def test_a_file_with_a_fault_is_refused(text, message, tmp_path):
    """The line, the column, the rule and what was written are named."""
    with pytest.raises(ConfigurationError) as refused:
        read(tmp_path, text)
    assert message in str(refused.value)


def test_all_faults_of_a_file_are_said_at_once(tmp_path):
    """Of the header first: without it nothing is known of the cells. Then of all cells, by line."""
    with pytest.raises(ConfigurationError) as refused:
        read(tmp_path, "listd,platform,day\nx,linux,2026-01-01\n")
    first, second, third = str(refused.value).splitlines()
    assert first.endswith("did you mean 'listed'?")
    assert "column 'day' is no metric and no segment of " in second
    assert ", line 1: columns may be listed, " in third
    with pytest.raises(ConfigurationError) as refused:
        read(tmp_path, "mean,platform\n1,beos\nmuch,linux\nmore,linx\n")
    lines = str(refused.value).splitlines()
    assert [line.partition(", ")[2].partition(" has")[0] for line in lines] == [
        "line 2: column platform",
        "line 3: column mean",
        "line 4: column mean",
        "line 4: column platform",
    ]
    assert lines[-1].endswith("; did you mean 'linux'?")


def test_everybody_answers_once_in_each_period_that_the_days_touch():
    """Earlier periods come first, today is the last day, and nobody answers after a metric's last day."""
    text = written("listed", "mean", "log").replace("[metrics.mean]", '[metrics.mean]\nperiod = "month"')
    text = text.replace("[metrics.log]", '[metrics.log]\nperiod = "week"\nexpires = 2026-11-20')
    known = registry.parse(text)
    days = sending.Days.until(datetime(2026, 11, 25, 13, tzinfo=UTC), 26, known)
    assert days.first.date() == date(2026, 10, 31)
    planned = sending.occasions(known, list(known.metrics), days)
    by_metric = {id_: [each.period for each in planned if each.metric == id_] for id_ in known.metrics}
    assert by_metric["listed"] == ["2026-10-31", *(f"2026-11-{day:02}" for day in range(1, 26))]
    assert by_metric["mean"] == ["2026-10", "2026-11"]
    assert by_metric["log"] == ["2026-W44", "2026-W45", "2026-W46", "2026-W47"]
    assert [each.time for each in planned if each.metric == "mean"] == [0, 1]
    assert planned == sorted(planned)
    for wrong in (0, known.retention.releases + 1):
        with pytest.raises(ConfigurationError, match=r"--days .*: write 1 to 1095, for which"):
            sending.Days.until(datetime(2026, 11, 25, tzinfo=UTC), wrong, known)


@pytest.fixture
def served(real_redis, store_url, tmp_path):
    """Return the store of an app whose trial a server has served, its registry, and the command that sends."""
    path = tmp_path / "metrics.toml"
    path.write_text(EXAMPLE.read_text("utf-8") + "\n[publication]\ntrial = true\n", "utf-8")
    shutil.copy(EXAMPLE.parent / "search-engines.txt", tmp_path)
    store = Store(real_redis, "shop")
    store.put(schema.AUDIT_SERVED, registry.load(path).digest)
    return store, path, ["simulate", str(path), "--send", "--redis-url", store_url, "--days", "3"]


@pytest.mark.slow("all metrics of the example are estimated")
def test_people_are_sent_into_a_trial(served, tmp_path, capsys):
    """The reports of the example's metrics are counted and published, what was answered is told, and the store remembers it."""
    store, path, send = served
    assert main([*send, "--devices", "300", "--json", "--truth", str(tmp_path / "truth.csv")]) == 0
    outcome = json.loads(capsys.readouterr().out)
    known = registry.load(path)
    for metric in known.metrics.values():
        declared = Declared.of(metric)
        n = store.read(declared.layout, list(store.strata(metric.id))).n
        periods = {stratum.period for stratum in store.strata(metric.id)}
        assert n == 300 * len(periods) if Fraction(metric.sample) == 1 else 0 < n < 300
    assert outcome["devices"] == 300
    assert {each["metric"] for each in outcome["rows"]} >= {"ui.theme", "startup.ms", "cart.and.coupon"}
    assert (tmp_path / "truth.csv").read_text("utf-8").startswith("metric,period,segment,value,people,truth\n")
    begins = min(
        period.bounds(stratum.period, metric.period)[0]
        for metric in known.metrics.values()
        for stratum in store.strata(metric.id)
    )
    assert store.simulated.startswith(f"{begins:%Y-%m-%d} to ")  # whole periods, although the days begin within some
    (entry,) = [each for each in map(json.loads, store.audit.between(0, -1)) if each["event"] == "reports.simulated"]
    assert entry["details"] == {"people": 300, "days": store.simulated}
    assert main(send) == 2
    assert f"people were sent already, for {store.simulated}" in capsys.readouterr().err


@pytest.mark.parametrize("counted", [1, 5])
def test_nothing_is_sent_where_others_reported(served, capsys, counted):
    """Also if they reported another metric, in a period that is over."""
    store, path, send = served
    declared = Declared.of(registry.load(path).metrics["export.used"])
    week = sending.occasions(registry.load(path), ["export.used"], sending.Days.until(datetime.now(UTC), 1, registry.load(path)))
    report = declared.mechanism.randomize(1)
    sending.put(store, {Stratum(*declared.definition, week[0].period, ""): report * counted}, declared, store.now())
    assert main([*send, "--devices", "50", "--days", "1"]) == 2
    err = capsys.readouterr().err
    assert f"this store has {counted} report{'s' * (counted > 1)} of shop already" in err
    assert "start `deniable serve --data other`, and send with --data other" in err
    assert not store.simulated
    assert not store.strata("ui.theme")


def test_nothing_is_sent_where_reports_wait(served, capsys):
    """Nobody has counted them yet, and they would be mixed with simulated ones soon."""
    store, _, send = served
    workers.send(store, "upload")
    assert main([*send, "--devices", "50", "--days", "1"]) == 2
    assert "this store has 1 batch that waits to be counted of shop already" in capsys.readouterr().err


def test_nothing_is_sent_where_it_could_do_harm(served, tmp_path, capsys):
    """A registry that is no trial, one that is not the served one, and a period that is closed are refused."""
    store, path, send = served
    text = path.read_text("utf-8")
    path.write_text(text.replace("trial = true", "trial = false"), "utf-8")
    assert main(send) == 2
    assert "simulated reports go into a trial only" in capsys.readouterr().err
    path.write_text(text + "# changed\n", "utf-8")
    assert main(send) == 2
    assert "was served with another registry of it, or with this one before it was changed" in capsys.readouterr().err
    path.write_text(text.replace("per_month = 20.0", "per_month = 9.0"), "utf-8")
    assert main(send) == 2
    assert "nats a month" in capsys.readouterr().err
    store.release(schema.AUDIT_SERVED)
    path.write_text(text, "utf-8")
    assert main(send) == 2
    assert "was served with no registry of it" in capsys.readouterr().err
    path.write_text(text, "utf-8")
    known = registry.load(path)
    store.put(schema.AUDIT_SERVED, known.digest)
    theme = Declared.of(known.metrics["ui.theme"])
    assert store.seal(theme.definition, f"{datetime.now(UTC):%Y-%m-%d}")
    assert main([*send, "--devices", "10"]) == 2
    assert "ui.theme takes no more reports of" in capsys.readouterr().err
    store._client.set(schema.ARCHIVE.of("shop"), "1")
    assert main(send) == 2
    assert "shop has an archive" in capsys.readouterr().err
    store.release(schema.ARCHIVE)
    for options, message in (
        (["--users", "5"], "--users measures errors and sends nothing: leave out --users, or --send"),
        (["--csv", "a.csv", "--shares", "b.csv"], "--csv and --shares both say what people answer"),
        (["--devices", "0"], "--devices 0: write a number from 1 to 5,000,000\n"),
        (["--devices", "1e9"], "write a number from 1 to 5,000,000; for more people, --users N without --send says what errors"),
        (["--csv", str(tmp_path / "none.csv")], "none.csv cannot be read: No such file or directory\n"),
    ):
        assert main([*send, *options]) == 2
        assert message in capsys.readouterr().err
    assert not store.strata("ui.theme")
    assert not store.simulated


@pytest.mark.parametrize("answers", [4, 6])
def test_the_command_says_how_many_rows_it_shows(answers, capsys):
    """It shows four answers of each metric and segment; all of them are counted below."""
    rows = [Compared("theme", "", f"answer{i}", 0.1 * i, 0.1 * i, 0.0, 1.0) for i in range(answers)]
    simulate._compare(rows, 0.999)
    out = capsys.readouterr().out
    assert out.count("answer") == 4 + (answers > 4)
    line = "Shown: 4 of 6 rows, the 4 most frequent answers of each metric and segment. --json prints all."
    assert (line in out) == (answers > 4)


def test_the_two_uses_of_the_command_are_told_apart(served, capsys):
    """Without `--send` nothing is sent, and what belongs to it is refused."""
    _, path, _ = served
    assert main(["simulate", str(path)]) == 2
    assert "this needs --users, the number of people; or --send" in capsys.readouterr().err
    assert main(["simulate", str(path), "--users", "1000", "--redis-url", "redis://localhost"]) == 2
    assert "--redis-url is about people who answer a trial: add --send, and have `deniable serve` run" in capsys.readouterr().err
