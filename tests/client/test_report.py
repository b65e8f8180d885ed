"""The wire format byte by byte, and what a fingerprint covers."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable.declared import fingerprint
from deniable.registry import Metric
from deniable.wire.report import Report, Stratum, encode

THEME = Stratum("ui.theme", 1, "0123456789abcdef", "2026-11-21", "platform=linux")
METRIC = Metric(id="m", type="categorical", values=("a", "b"), epsilon="1", description="d", owner="o")
strata = st.builds(
    Stratum,
    st.sampled_from(["a", "b"]),
    st.integers(1, 2),
    st.just("0" * 16),
    st.sampled_from(["2026-01-01", "2026-01-02"]),
    st.sampled_from(["", "p=x"]),
)


def test_the_format():
    """A batch is compact JSON: format, then groups with stratum, count and payloads in base64."""
    body = encode(
        "shop", [Report(THEME, b"\x00\x01"), Report(THEME._replace(segment=""), b"\xff\xff"), Report(THEME, b"\x02\x03")]
    )
    assert body == (
        b'{"format":1,"app":"shop","groups":['
        b'{"metric":"ui.theme","version":1,"fingerprint":"0123456789abcdef","period":"2026-11-21","segment":"",'
        b'"count":1,"payloads":"//8="},'
        b'{"metric":"ui.theme","version":1,"fingerprint":"0123456789abcdef","period":"2026-11-21","segment":"platform=linux",'
        b'"count":2,"payloads":"AAECAw=="}]}'
    )


def test_no_reports():
    """An empty batch has no groups."""
    assert encode("shop", []) == b'{"format":1,"app":"shop","groups":[]}'


@given(st.lists(st.tuples(strata, st.binary(min_size=2, max_size=2))))
def test_nothing_is_lost_or_added(pairs):
    """Every report is in the group of its stratum, one group for each, and nothing else is in the body."""
    document = json.loads(encode("shop", (Report(stratum, payload) for stratum, payload in pairs)))
    assert set(document) == {"format", "app", "groups"}
    seen = []
    for group in document["groups"]:
        data = b64decode(group.pop("payloads"), validate=True)
        assert len(data) == 2 * group.pop("count")
        stratum = Stratum(**group)
        seen += [(stratum, data[i : i + 2]) for i in range(0, len(data), 2)]
    assert sorted(seen) == sorted(pairs)
    assert len(document["groups"]) == len({stratum for stratum, _ in pairs})


@given(payloads=st.lists(st.binary(min_size=3, max_size=3), min_size=4, max_size=4))
def test_length_knows_no_payload(payloads):
    """The length of a body depends on how many reports there are and not on what they say."""
    assert len(encode("shop", (Report(THEME, p) for p in payloads))) == len(encode("shop", [Report(THEME, b"\0\0\0")] * 4))


@pytest.mark.parametrize(
    "change",
    [
        {"id": "n"},
        {"version": 2},
        {"type": "ordinal"},
        {"values": ("b", "a")},
        {"values": ("a", "b", "c")},
        {"values": ("a", "b ")},
        {"period": "week"},
        {"segments": ("platform",)},
    ],
)
def test_a_fingerprint_covers_the_meaning(change):
    """Whatever changes what a report means changes the fingerprint."""
    assert fingerprint(replace(METRIC, **change), "x") != fingerprint(METRIC, "x")


def test_a_fingerprint_covers_the_mechanism():
    """So does its mechanism, down to the integers."""
    assert fingerprint(METRIC, "grr 2 3 1/2 1/4 1x2 index") != fingerprint(METRIC, "grr 2 4 1/2 1/4 1x2 index")


@pytest.mark.parametrize(
    "change",
    [{"description": "other"}, {"owner": "other"}, {"expires": date(2030, 1, 1)}, {"min_reports": 9}, {"max_report_bytes": 9}],
)
def test_a_fingerprint_covers_nothing_else(change):
    """What does not change what a report means does not change the fingerprint."""
    assert fingerprint(replace(METRIC, **change), "x") == fingerprint(METRIC, "x")


def test_a_fingerprint_is_sixteen_digits():
    """A fingerprint is short, and the same whenever it is computed."""
    assert fingerprint(METRIC, "x") == fingerprint(replace(METRIC), "x")
    assert len(fingerprint(METRIC, "x")) == 16
    assert int(fingerprint(METRIC, "x"), 16) >= 0


def test_fingerprints_do_not_run_together():
    """Values that would join to the same text are told apart."""
    assert fingerprint(replace(METRIC, values=("a", "b,c")), "x") != fingerprint(replace(METRIC, values=("a,b", "c")), "x")


@given(
    st.permutations(
        [Report(THEME, b"\x05"), Report(THEME, b"\x00"), Report(THEME._replace(segment=""), b"\x01"), Report(THEME, b"\x05")]
    )
)
def test_order_says_nothing(recorded):
    """However the answers were ordered in time, the batch is the same."""
    assert encode("shop", recorded) == encode("shop", sorted(recorded, key=lambda report: (report.stratum, report.payload)))
