"""Numbers, sets and ordered answers through a real store: recorded by the SDK, counted, published, and asked for."""

from __future__ import annotations

import re
import time
from base64 import b64encode
from collections import defaultdict
from dataclasses import replace

import pytest
from registries import metric_toml, registry_toml

from deniable import Budget, Caps, Client
from deniable.exact.epsilon import MAX_EPSILON
from deniable.transport import Sender
from deniable_aggregator.answer.select import Published
from deniable_aggregator.decode.numbers.strict import strict_quantile

REGISTRY = registry_toml(
    metric_toml("air", range=[0, 720], unit="min", estimate="mean", segments=["platform"], epsilon=4),
    metric_toml("start", range=[1, 60000], unit="ms", scale="log", estimate="distribution", segments=["platform"], epsilon=4),
    metric_toml("stars", range=[1, 5], unit="stars", estimate="distribution", whole=True, epsilon=4),
    metric_toml("flights", range=[0, 10], unit="flights", estimate="mean", epsilon_permanent=8, epsilon=4),
    metric_toml("memory", range=[0, 16], unit="GB", estimate="distribution", epsilon_permanent=8, epsilon=4),
    metric_toml("used", type="set", values=["export", "print", "share"], epsilon=4),
    metric_toml("together", type="set", values=["a", "b", "c"], joint=True, epsilon=4),
    metric_toml("few", type="set", values=[*"abcdefgh"], most=2, epsilon=2),
    metric_toml("mood", type="ordinal", values=["bad", "fair", "good", "great"], epsilon=4),
    metric_toml("rating", type="ordinal", values=["1", "2", "3", "4", "5"], estimate="mean", epsilon=4),
    segments={"platform": ["linux", "macos"]},
    publication={"min_reports": 100},
)
FREE = Caps(epsilon=MAX_EPSILON, permanent=MAX_EPSILON, budget=Budget(per_month=None, lifetime=None))
DAY = 86400.0
SURE = "?level=0.99999"


@pytest.fixture
def answered(monkeypatch):
    """Let devices answer through the SDK on some days, and upload what they queue."""
    queued: list[tuple] = []
    monkeypatch.setattr(Sender, "submit", lambda _, report, __: queued.append((report.stratum, report.payload)))

    def run(served, metric, days, segment="linux"):
        """Record, for each device, its answer of each day: `days` has a list of all devices' answers for each day."""
        queued.clear()
        loaded = served.app.registry
        stored = loaded.metrics[metric].permanent
        devices = list(zip(*days, strict=True))
        # Where responses are kept, each device has a client of its own. Else one stands for all.
        of_all = replace(
            loaded, budget=None, metrics={metric: replace(loaded.metrics[metric], per_period=1 if stored else len(devices))}
        )
        groups = [[device] for device in devices] if stored else [devices]
        today = time.time()
        for group in groups:
            now = [today]
            client = Client(
                dsn="https://key@t.example/shop",
                registry=of_all,
                consent=True,
                caps=FREE,
                state=None,
                segments={"platform": segment},
                clock=lambda now=now: now[0],
                strict=True,
            )
            for day in range(len(days)):
                now[0] = today - DAY * (len(days) - 1 - day)
                for device in group:
                    client.record(metric, device[day])
        uploaded = defaultdict(list)
        for stratum, payload in queued:
            uploaded[stratum].append(payload)
        for stratum, payloads in uploaded.items():
            group = served.group(
                metric,
                [],
                period=stratum.period,
                segment=stratum.segment,
                count=len(payloads),
                payloads=b64encode(b"".join(payloads)).decode(),
            )
            answer = served.post({"format": 1, "app": "shop", "groups": [group]})
            assert answer.get_json()["accepted"] == len(payloads), answer.get_json()

    return run


def answer_of(served, metric, query=SURE):
    answer = served.get(f"/api/v1/metrics/{metric}{query}")
    assert answer.status_code == 200, answer.get_json()
    return answer.get_json()


@pytest.fixture
def numbers(serve):
    return serve(REGISTRY)


def test_a_mean(numbers, answered):
    """The mean and the sum come in the metric's unit, with intervals that hold the truth; there is no distribution."""
    answers = [minute % 300 for minute in range(600)]
    answered(numbers, "air", [answers])
    numbers.drain(days=5)
    body = answer_of(numbers, "air")
    number, true = body["number"], sum(answers) / 600
    assert (body["n"], number["unit"], number["range"], number["scale"]) == (600, "min", [0, 720], "linear")
    assert number["interval"][0] < true < number["interval"][1]
    assert number["geometric_mean"] is None
    assert number["respondents"][0] < true < number["respondents"][1]
    assert number["sum"][0] == pytest.approx(600 * number["mean"])
    assert number["sum"][1][0] < 600 * true < number["sum"][1][1]
    assert number["quantiles"] == number["parts"] == body["estimates"] == []
    assert body["order"] is body["chosen"] is None


def test_a_distribution_on_a_logarithmic_scale(numbers, answered):
    """Quantiles and the geometric mean come in the metric's unit; of skewed answers the bands hold the truth."""
    answers = [2.0 ** (i % 8 + 4) for i in range(2400)]
    answered(numbers, "start", [answers])
    numbers.drain(days=5)
    number = answer_of(numbers, "start")["number"]
    geometric, true = number["geometric_mean"], sum(answers) / len(answers)
    assert geometric["interval"][0] < 2**7.5 < geometric["interval"][1]
    assert geometric["respondents"][0] > geometric["interval"][0]
    # The arithmetic mean of the same reports is far less exact.
    assert number["interval"][0] < true < number["interval"][1]
    assert number["interval"][1] - number["interval"][0] > 3 * (geometric["interval"][1] - geometric["interval"][0])
    assert number["sum"][0] == pytest.approx(len(answers) * number["mean"])
    assert number["sum"][1][0] < sum(answers) < number["sum"][1][1]
    median = next(each for each in number["quantiles"] if each["share"] == 0.5)
    assert median["resolved"]
    assert median["interval"][0] < 256  # half of the answers are at most 128, the others at least 256
    assert median["interval"][1] > 128
    assert number["parts"][0]["low"] == 1
    assert number["parts"][-1]["high"] == pytest.approx(60_000)
    assert sum(part["share"] for part in number["parts"]) == pytest.approx(1)


def test_the_values_of_a_number_with_a_step(numbers, answered):
    """Quantiles are exact values, and the share of each value has an interval: in the API, on the page and in the file."""
    answered(numbers, "stars", [[5] * 1000 + [4] * 400 + [1] * 600])
    numbers.drain(days=5)
    number = answer_of(numbers, "stars")["number"]
    assert {item["value"] for item in number["quantiles"]} <= {1, 2, 3, 4, 5}
    median = next(item for item in number["quantiles"] if item["share"] == 0.5)
    assert median["interval"][0] <= 4.5 <= median["interval"][1] or median["value"] in (4, 5)
    values = number["values"]
    assert [(item["value"], item["label"], item["n"]) for item in values] == [(name, name, 2000) for name in "12345"]
    assert sum(item["estimate"] for item in values) == pytest.approx(1)
    for item, true in zip(values, (0.3, 0, 0, 0.2, 0.5), strict=True):
        assert item["simultaneous"][0] < true < item["simultaneous"][1]
    browse = numbers.flask.test_client().get
    page = browse("/m/stars").get_data(as_text=True)
    assert "<h3>Shares of values</h3>" in page
    assert "a picture, without intervals" in page
    assert "<h3>Shares of values</h3>" not in browse("/m/start").get_data(as_text=True)
    assert "share of 5," in browse("/m/stars/values.csv").get_data(as_text=True)


@pytest.mark.slow("exact tails of sums of hundreds of reports")
def test_strict_bands(numbers, answered):
    """On request the bands of quantiles hold without any approximation; everything else stays, and so does the next answer."""
    answers = [[2.0 ** (i % 8 + 4) for i in range(800)] for _ in range(2)]
    answered(numbers, "start", answers)
    numbers.drain(days=5)
    usual, strict = (answer_of(numbers, "start", f"?level=0.95{more}") for more in ("", "&bands=strict"))
    assert (usual["number"]["bands"], strict["number"]["bands"]) == ("approximate", "strict")
    for item, other in zip(usual["number"]["quantiles"], strict["number"]["quantiles"], strict=True):
        assert item | {"interval": None} == other | {"interval": None}
        assert other["interval"][0] <= item["interval"][0]
        assert item["interval"][1] <= other["interval"][1]
    # A device may have reported on both days.
    declared = numbers.app.find("start")
    (published,) = Published.of_each(numbers.app, [declared])
    counted = numbers.app.store.releases.read(declared.layout, list(published.covering("").releases))
    low, high = strict_quantile(declared.mechanism, counted, 0.5, 0.95, repeats=1)
    median = next(item["interval"] for item in strict["number"]["quantiles"] if item["share"] == 0.5)
    assert median == [declared.metric.axis.number(low), declared.metric.axis.number(high)]
    assert 1 < median[0] < 128
    assert 256 < median[1] < 60_000
    assert strict["says"] != usual["says"]  # it has the interval
    assert strict | {"number": None, "says": ""} == usual | {"number": None, "says": ""}
    assert answer_of(numbers, "start", "?level=0.95&bands=strict") == strict
    # With one period nobody can have reported twice.
    (period,) = {span["last"] for span in usual["included"]} - {usual["included"][0]["last"]}
    once = answer_of(numbers, "start", f"?level=0.95&bands=strict&period={period}")
    assert once["n"] == 800
    assert once["number"]["bands"] == "strict"


@pytest.mark.parametrize(
    ("metric", "bands", "words"),
    [
        ("start", "loose", "bands is strict, or not given; this is loose"),
        ("air", "strict", "strict bands are of quantiles"),
        ("memory", "strict", "strict bands are of quantiles"),
        ("mood", "strict", "strict bands are of quantiles"),
    ],
)
def test_strict_bands_are_refused(numbers, metric, bands, words):
    """Other bands, and those of metrics without quantiles or with permanent responses, are refused in words."""
    answer = numbers.get(f"/api/v1/metrics/{metric}?bands={bands}")
    assert (answer.status_code, answer.get_json()["code"]) == (400, "bands")
    assert words in answer.get_json()["detail"]


def test_segments_and_withheld_cells(numbers, answered):
    """Each platform has its own mean. With too few reports of one, both are withheld, and all together are told."""
    answered(numbers, "air", [[100] * 400], "linux")
    answered(numbers, "air", [[500] * 30], "macos")
    numbers.drain(days=5)
    for platform in ("linux", "macos"):
        refused = numbers.get(f"/api/v1/metrics/air?segment=platform={platform}")
        assert (refused.status_code, refused.get_json()["code"]) == (403, "withheld")
    assert answer_of(numbers, "air")["n"] == 430
    answered(numbers, "start", [[10.0] * 400], "linux")
    answered(numbers, "start", [[1000.0] * 400], "macos")
    numbers.drain(days=5)
    for platform, true in (("linux", 10), ("macos", 1000)):
        low, high = answer_of(numbers, "start", f"{SURE}&segment=platform={platform}")["number"]["geometric_mean"]["interval"]
        assert low < true < high
        assert high < true * 4


def test_periods_are_joined(numbers, answered):
    """A mean over several days is of all reports, with an error that allows for the same people in each."""
    answered(numbers, "air", [[720 * (i % 2) for i in range(300)]] * 3)
    numbers.drain(days=5)
    body = answer_of(numbers, "air")
    assert body["n"] == 900
    assert body["number"]["interval"][0] < 360 < body["number"]["interval"][1]
    (*_, last) = body["periods"]
    one = answer_of(numbers, "air", f"{SURE}&period={last['last']}")
    assert one["n"] == 300
    assert one["number"]["stderr"] / body["number"]["stderr"] < 1.4  # three times as many reports, of no more people


def test_a_kept_mean_over_several_days(numbers, answered):
    """Answers of every day are rounded at a point that the device keeps, and their mean is found."""
    answered(numbers, "flights", [[(i + day) % 6 for i in range(250)] for day in range(3)])
    numbers.drain(days=5)
    number = answer_of(numbers, "flights")["number"]
    assert number["interval"][0] < 2.5 < number["interval"][1]
    assert number["interval"] == number["respondents"]
    assert number["quantiles"] == []


def test_a_kept_distribution(numbers, answered):
    """Sixteen equal parts, with quantiles and a mean whose interval allows for what the parts hide."""
    answered(numbers, "memory", [[8] * 200 + [2] * 100])
    numbers.drain(days=5)
    number = answer_of(numbers, "memory")["number"]
    assert [part["low"] for part in number["parts"]] == list(range(16))
    assert number["interval"][0] < 6 < number["interval"][1]
    assert number["interval"][1] - number["interval"][0] > 1
    median = next(each for each in number["quantiles"] if each["share"] == 0.5)
    assert median["interval"][0] < 9
    assert median["interval"][1] > 8


def test_a_set(numbers, answered):
    """Each option has its own share; they need not sum to 1."""
    answered(numbers, "used", [[["export", "print"]] * 400 + [["export"]] * 400])
    numbers.drain(days=5)
    body = answer_of(numbers, "used")
    assert [row["value"] for row in body["estimates"]] == ["export", "print", "share"]
    for row, true in zip(body["estimates"], (1.0, 0.5, 0.0), strict=True):
        assert row["simultaneous"][0] <= true <= row["simultaneous"][1]
    assert [row["detected"] for row in body["estimates"]] == [True, True, False]
    assert body["chosen"]["interval"][0] < 1.5 < body["chosen"]["interval"][1]
    assert body["chosen"]["pairs"] == []
    assert body["number"] is None


def test_a_joint_set(numbers, answered):
    """Options that are chosen together are told from those that are not."""
    answered(numbers, "together", [[["a", "b"]] * 600 + [["c"]] * 600])
    numbers.drain(days=5)
    pairs = {tuple(pair["options"]): pair for pair in answer_of(numbers, "together")["chosen"]["pairs"]}
    assert sorted(pairs) == [("a", "b"), ("a", "c"), ("b", "c")]
    for options, true in ((("a", "b"), 0.5), (("a", "c"), 0.0), (("b", "c"), 0.0)):
        assert abs(pairs[options]["both"] - true) < 4.5 * pairs[options]["stderr"]
    assert pairs["a", "b"]["p_value"] < 1e-6


def test_a_capped_set(numbers, answered):
    """Longer answers are cut: a share is of cut answers, the number of options is too, and each rests on all reports."""
    answered(numbers, "few", [[["a", "b"]] * 800 + [["a"]] * 400 + [["b", "c", "d", "e"]] * 800])
    numbers.drain(days=5)
    body = answer_of(numbers, "few")
    assert body["n"] == 2000
    for row, true in zip(body["estimates"], (0.6, 0.6, 0.2, 0.2, 0.2, 0.0, 0.0, 0.0), strict=True):
        assert row["simultaneous"][0] <= true <= row["simultaneous"][1]
        assert row["n"] == 2000
    assert body["chosen"]["interval"][0] < 1.8 < body["chosen"]["interval"][1]
    assert body["chosen"]["pairs"] == []


def test_an_ordinal_and_its_mean(numbers, answered):
    """An ordinal has shares, a mean position and a median; one that asks for the mean only has just that."""
    answered(numbers, "mood", [["fair", "good", "good", "great"] * 200])
    answered(numbers, "rating", [["2", "3", "3", "4"] * 100])
    numbers.drain(days=5)
    body = answer_of(numbers, "mood")
    assert body["order"]["interval"][0] < 3 < body["order"]["interval"][1]
    assert body["order"]["median"] in ("fair", "good", "great")
    assert body["order"]["below"][-1] == {"value": "great", "share": pytest.approx(1), "stderr": pytest.approx(0, abs=1e-6)}
    assert body["number"] is None
    body = answer_of(numbers, "rating")
    assert body["number"]["interval"][0] < 3 < body["number"]["interval"][1]
    assert body["number"]["range"] == [1, 5]
    assert body["order"] is None
    assert body["estimates"] == []


@pytest.mark.parametrize("metric", ["air", "start", "flights", "memory", "used", "together", "few", "mood", "rating"])
@pytest.mark.parametrize("reports", [0, 1])
def test_nothing_and_one_report(serve, answered, metric, reports):
    """Without reports, and with one in a trial, every metric has an answer without a made-up figure."""
    served = serve(REGISTRY.replace("min_reports = 100", "trial = true"))
    if reports:
        values = served.app.registry.metrics[metric].values
        answered(served, metric, [[list(values[:1]) if metric in ("used", "together", "few") else values[0] if values else 5]])
        served.drain()
    body = answer_of(served, metric, "")
    assert body["n"] == reports
    if not reports:
        number, order = body["number"], body["order"]
        assert number is None or number["mean"] is None
        assert number is None or number["quantiles"] == []
        assert order is None
        assert body["chosen"] is None or body["chosen"]["mean"] is None
    elif body["number"]:
        assert body["number"]["interval"][1] - body["number"]["interval"][0] > 0
        assert not any(each["resolved"] for each in body["number"]["quantiles"])


@pytest.mark.parametrize(("metric", "least", "most"), [("mood", 1, 4), ("rating", 1, 5), ("air", 0, 720), ("start", 1, 60_000)])
def test_sentences_of_few_reports_say_what_is_possible(serve, answered, metric, least, most):
    """No mean is said to lie out of its range, and no median is named where it may be any value."""
    served = serve(REGISTRY.replace("min_reports = 100", "trial = true").replace("epsilon = 4", "epsilon = 0.1"))
    answered(served, metric, [[(served.app.registry.metrics[metric].values or (5,))[0]] * 2])
    served.drain()
    page = served.get(f"/m/{metric}").get_data(as_text=True)
    sentences = re.findall(r"ean (?:position )?is (?:position )?([^ <]+) (?:<span>)?\((?:95% interval )?([^ ]+) to ([^)]+)", page)
    sentences += re.findall(r"<dt>[^<]*[Mm]ean[^<]*</dt><dd><b>([^<]+)</b><small>(.+?) to ([^<]+)</small>", page)
    assert sentences
    for figure in (part.replace(",", "").partition("\u202f")[0] for sentence in sentences for part in sentence):
        assert least <= float(figure) <= most, sentences
    if metric == "mood":
        assert "The median may be any of the values" in page
        assert "<h3>The median is" not in page


def test_versions_of_a_number_are_not_merged(serve, answered):
    """A number of two versions has the newer one's estimate: places on two ranges are not the same."""
    served = serve(REGISTRY)
    answered(served, "air", [[100] * 300])
    served.drain(days=5)
    newer = serve(REGISTRY.replace('[metrics."air"]', '[metrics."air"]\nversion = 2').replace("[0, 720]", "[0, 1440]"))
    answered(newer, "air", [[700] * 300])
    newer.drain(days=5)
    body = answer_of(newer, "air")
    assert (body["version"], body["merged"], body["number"]["range"]) == (2, None, [0, 1440])
