"""Strings and keys, from the device's answer to the query and the page, with every mechanism that takes them."""

from __future__ import annotations

from base64 import b64encode
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from deniable.errors import RegistryError
from deniable_aggregator import tally
from deniable_aggregator.answer.readings import ShareReading
from deniable_aggregator.decode.support_estimate import Supported

WORDS = ["duckduckgo.com", "google.com", "größer.example", "例え.jp", *(f"absent-{i}.example" for i in range(20))]
SHARES = [0.5, 0.3, 0.15, 0.05]
SURE = 0.999999  # so that chance alone hardly ever names a value that nobody holds
MECHANISMS = {
    "auto": "",
    "cms": 'mechanism = "cms"\nparameters = { rows = 32, width = 64 }',
    "hcms": 'mechanism = "hcms"',
    "rappor": 'mechanism = "rappor"\nparameters = { cohorts = 16, bits = 64, hashes = 2 }',
    "google_rappor": (
        'mechanism = "google_rappor"\nparameters = { preset = "PYTHON_DEFAULT", prob_f = 0.0, prob_q = 0.95, prob_p = 0.05 }'
    ),
}


def registry(declaration: str, type_: str = "string", *, epsilon: float = 12, source: str = 'candidates = "words.txt"') -> str:
    return f"""
format = 1
budget.per_month = 10000
budget.lifetime = 100000
caps.epsilon = 16
caps.permanent = 16
app = "shop"
publication = {{ min_reports = 1, trial = true }}
[metrics.page]
type = "{type_}"
{source}
epsilon = {epsilon}
{declaration}
description = "Which page"
owner = "web@shop.example"
"""


@pytest.fixture
def start(serve):
    """Serve a registry with candidates."""

    def run(text, candidates=WORDS):
        return serve(text, words="".join(f"{word}\n" for word in candidates))

    return run


def answer(served, n, held=None):
    """Let n devices answer, four words by their shares, and count their reports."""
    metric = served.app.registry.metrics["page"]
    held = held or [word for word, share in zip(WORDS, SHARES, strict=False) for _ in range(round(n * share))]
    served.post({"format": 1, "app": "shop", "groups": [served.group("page", [metric.position(word) for word in held])]})
    served.drain()


def answer_evenly(served, rows):
    """Name every cell of some rows once, so that by no chance any value stands out, and count that."""
    layout = served.mechanism("page").layout
    cells = [layout.pack(row, cell) for row in range(rows) for cell in range(layout.width)]
    payloads = b64encode(b"".join(cells)).decode()
    served.post({"format": 1, "app": "shop", "groups": [served.group("page", [], payloads=payloads, count=len(cells))]})
    served.drain()


@pytest.mark.parametrize("name", MECHANISMS)
def test_candidates_from_the_device_to_the_page(start, name):
    """Each candidate has its estimate in the file's order, those held are detected, and the page shows them."""
    served = start(registry(MECHANISMS[name]))
    answer(served, 3000)
    body = served.get("/api/v1/metrics/page").get_json()
    assert (body["n"], body["domain_size"], body["candidates"], body["discover"]) == (3000, None, 24, False)
    assert body["mechanism"] == ("fast_local_hash" if name == "auto" else name)
    assert [row["value"] for row in body["estimates"]] == WORDS
    for row, true in zip(body["estimates"], [*SHARES, *[0] * 20], strict=True):
        assert abs(row["estimate"] - true) < 6 * row["stderr"]
    detected = [row["value"] for row in body["estimates"] if row["detected"]]
    assert set(WORDS[:3]) <= set(detected)
    assert len(detected) <= 6  # at 5%, three of these mistakes are one run in 50,000
    only = served.get("/api/v1/metrics/page?only=detected").get_json()
    assert [row["value"] for row in only["estimates"]] == detected
    assert 0 < body["detection_frequency"] < 0.2
    assert {row["interval_kind"] for row in only["estimates"]} == {"selected"}
    remainder = body["unallocated"]
    assert abs(remainder["estimate"]) < 6 * remainder["stderr"]
    reach = 1.96 * remainder["stderr"]
    assert remainder["interval"] == pytest.approx([remainder["estimate"] - reach, remainder["estimate"] + reach], abs=0.001)
    page = served.http.get("/m/page").get_data(as_text=True)
    assert "größer.example" in page
    assert "24 candidates" in page
    assert f"{len(detected)} of 24" in page
    assert "of people give none of these answers" in page
    assert "interval of one value, longer if detected" in page


@pytest.mark.parametrize("name", MECHANISMS)
def test_before_any_report(start, name):
    """Without reports the numbers are null, the candidates are listed, and the page says what to do."""
    served = start(registry(MECHANISMS[name]))
    body = served.get("/api/v1/metrics/page").get_json()
    assert (body["n"], body["detection_frequency"], len(body["estimates"])) == (0, None, 24)
    assert {row["estimate"] for row in body["estimates"]} == {None}
    assert body["unallocated"] == {"estimate": None, "stderr": None, "interval": [None, None]}
    page = served.http.get("/m/page").get_data(as_text=True)
    assert "Nothing is shown yet, because no" in page
    assert "The 24 answers looked for" in page
    assert served.http.get("/").status_code == 200


def test_nothing_detectable(start):
    """Where noise hides every candidate the page says so, with the share that could be seen."""
    served = start(registry("", epsilon=0.5))
    answer_evenly(served, rows=300)
    body = served.get("/api/v1/metrics/page").get_json()
    assert not any(row["detected"] for row in body["estimates"])
    assert body["unallocated"]["estimate"] == pytest.approx(1)  # as if chance had no part in it
    page = served.http.get("/m/page").get_data(as_text=True)
    assert '<p class="headline" dir="auto">These reports detect no answer</p>' in page
    assert "They would detect, half of the time, one that " in page
    assert "Collect more reports, or ask with a larger ε." in page


def test_too_few_reports(start):
    """Of so few reports that no share would be detected, the page says that."""
    served = start(registry("", epsilon=0.5))
    answer_evenly(served, rows=1)
    assert served.get("/api/v1/metrics/page").get_json()["detection_frequency"] is None
    page = served.http.get("/m/page").get_data(as_text=True)
    assert "hese reports detect no answer, and could detect none, however many give it</p>" in page
    assert "So few reports detect no value half of the time" in page


def test_keys(start):
    """Keys are whole numbers in the file, in the answer and on the page."""
    keys = [17, (1 << 64) - 1, *range(100, 120)]
    served = start(registry("", "key"), keys)
    answer(served, 0, [17] * 1200 + [(1 << 64) - 1] * 800)
    body = served.get(f"/api/v1/metrics/page?level={SURE}").get_json()
    assert [row["value"] for row in body["estimates"]] == keys
    assert [row["label"] for row in body["estimates"] if row["detected"]] == ["17", "18446744073709551615"]
    assert "18446744073709551615" in served.http.get("/m/page").get_data(as_text=True)


def test_other_candidates_need_no_new_version(start):
    """Candidates are no part of what a report means: another list reads what was counted before."""
    served = start(registry(""))
    answer(served, 2000)
    served = start(registry(""), ["google.com", "new.example"])
    body = served.get(f"/api/v1/metrics/page?level={SURE}").get_json()
    assert [(row["value"], row["detected"]) for row in body["estimates"]] == [("google.com", True), ("new.example", False)]


def test_candidates_that_cannot_be_told_apart(start):
    """Candidates whose bits are the same have no numbers, and the page shows the others."""
    served = start(registry('mechanism = "rappor"\nparameters = { cohorts = 1, bits = 4, hashes = 1 }'))
    answer(served, 2000)
    body = served.get("/api/v1/metrics/page").get_json()
    unknown = [row for row in body["estimates"] if row["estimate"] is None]
    assert len(unknown) >= 20
    assert not any(row["detected"] for row in unknown)
    assert "The candidates cannot be distinguished" in served.http.get("/m/page").get_data(as_text=True)
    assert served.http.get("/").status_code == 200


@pytest.mark.parametrize("name", ["pem", "tree_hist"])
@pytest.mark.parametrize(("type_", "held"), [("string", ["日本", "grün", "a"]), ("key", [17, 1 << 63, 0])])
def test_what_nobody_listed_is_found(start, name, type_, held):
    """The common answers come back without a list, with the same words as the rest, and the page shows them."""
    source = "discover = true" + ("\nmax_length = 6" if type_ == "string" else "")
    served = start(registry(f'mechanism = "{name}"', type_, source=source))
    answer(served, 0, [held[0]] * 3000 + [held[1]] * 2000 + [held[2]] * 1000)
    body = served.get(f"/api/v1/metrics/page?level={SURE}").get_json()
    assert (body["n"], body["domain_size"], body["candidates"], body["discover"]) == (6000, None, None, True)
    assert body["mechanism"] == name
    assert [row["value"] for row in body["estimates"] if row["detected"]] == held
    for row, true in zip(body["estimates"], (1 / 2, 1 / 3, 1 / 6), strict=False):
        assert abs(row["estimate"] - true) < 6 * row["stderr"]
    low, high = body["unallocated"]["interval"]
    assert low < 0 < high
    page = served.http.get("/m/page").get_data(as_text=True)
    assert all(str(value) in page for value in held)
    assert served.http.get("/").status_code == 200


def test_what_was_tried_and_not_confirmed_is_not_shown(start):
    """Of what a search came upon only what is detected is answered; of candidates all are."""
    for source, page in (("discover = true\nmax_length = 2", [True]), ('candidates = "words.txt"', [True, False])):
        served = start(registry("", source=source, epsilon=3))
        declared = served.app.highest["page"]
        channel = SimpleNamespace(p=Fraction(3, 4), q=Fraction(1, 4))
        read = ShareReading(declared, tally.empty(declared.layout), {})
        positions = [declared.metric.position(text) for text in ("ab", "cd")]
        vars(read)["_decoded"] = positions, Supported(channel, 1000, np.array([600, 260]))
        measured = read.estimates(served.app.describe(read.declared), 0.95)
        assert [row.detected for row in measured.estimates] == page


def test_what_was_found_steers_no_page(start):
    """Whoever sends control and direction characters does so for their own amusement: a label shows them written out."""
    results = "\u202e\x1b[2J"
    served = start(registry("", source="discover = true\nmax_length = 8"))
    answer(served, 0, [results] * 3000 + ["honest"] * 3000)
    answered = served.get("/api/v1/metrics/page")
    rows = {row["value"]: row["label"] for row in answered.get_json()["estimates"]}
    assert rows == {results: r"\u202e\u001b[2J", "honest": "honest"}
    assert answered.data.isascii()
    assert b"\x1b" not in answered.data
    for path in ("/", "/m/page"):
        page = served.http.get(path).get_data(as_text=True)
        assert r"\u202e\u001b[2J" in page
        assert not {"\u202e", "\x1b"} & {*page}


def test_nothing_found(start):
    """Where everybody holds another answer nothing is found, and the page says how common one has to be."""
    served = start(registry("", "key", source="discover = true", epsilon=2))
    body = served.get("/api/v1/metrics/page").get_json()
    assert (body["n"], body["estimates"]) == (0, [])
    assert "Nothing is shown yet, because no" in served.http.get("/m/page").get_data(as_text=True)
    answer_evenly(served, rows=4096)
    body = served.get("/api/v1/metrics/page").get_json()
    assert not any(row["detected"] for row in body["estimates"])
    assert 0 < body["detection_frequency"] < 1
    assert "Nothing detectable with this many reports" in served.http.get("/m/page").get_data(as_text=True)
    assert served.http.get("/").status_code == 200


def test_a_bad_list_stops_the_start(start):
    """A server with a candidate twice does not start, and says which."""
    with pytest.raises(RegistryError, match="line 3: 'a': remove it; it is on line 1 already"):
        start(registry(""), ["a", "b", "a"])
