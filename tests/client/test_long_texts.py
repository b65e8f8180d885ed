"""A text that is longer than its metric allows is cut, and a developer sees that wherever a clipped number would be seen."""

from __future__ import annotations

import logging
from contextlib import ExitStack

import pytest
from registries import metric_toml, registry_toml

import deniable
from deniable.client import Client
from deniable.explanation import Explanation
from deniable.limits.caps import Caps
from deniable.lint import lint
from deniable.messages.reasons import INSTEAD
from deniable.registry import parse
from deniable.registry.tables import Budget
from deniable.testing import Capture

FREE = Caps(budget=Budget(per_month=None, lifetime=None))
ERROR = registry_toml(metric_toml("scanner.error", type="string", discover=True, per_period=100))
LONG = "barcode cannot be read"
WORDS = f"{LONG!r} is longer than 16 bytes: its beginning 'barcode cannot b' was reported"


@pytest.fixture
def metric():
    return parse(ERROR).metrics["scanner.error"]


@pytest.fixture
def client_of(caplog):
    """Make a client whose reports go to a fake server, and close it after the test."""
    caplog.set_level(logging.INFO)
    with ExitStack() as stack:

        def make(dsn) -> Client:
            client = Client(dsn=dsn, registry=parse(ERROR), consent=True, caps=FREE, post=lambda *_: (202, {}, None))
            stack.callback(client.close, 60)
            return client

        yield make


def test_which_texts_are_cut(metric):
    """Those of more bytes than the metric allows. A character that no text may have is replaced, and cuts nothing."""
    answers = ("", "x" * 16, "x" * 17, "ö" * 8, "ö" * 9, "\0" * 16, "\ud800" * 16, "\ud800" * 17)
    assert [metric.clips(answer) for answer in answers] == [False, False, True, False, True, False, False, True]


@pytest.mark.parametrize(("dsn", "named"), [("http://k@localhost/shop", True), ("https://k@t.example/shop", False)])
def test_a_text_that_is_cut_is_named_while_developing(client_of, caplog, dsn, named):
    """Once, and `flush` counts such answers. On people's devices nothing shows it, but a count that stays there."""
    client = client_of(dsn)
    for answer in ("short", LONG, "y" * 200):
        assert client.record("scanner.error", answer)
    assert caplog.messages == [f"deniable: scanner.error: clipped: {WORDS}; stats() counts such answers"] * named
    arrival = client.flush(60)
    assert arrival.clipped == ({"scanner.error": 2} if named else {})
    end = f"2 clipped answers (scanner.error); why: scanner.error: {INSTEAD['shortened'].words()}"
    assert str(arrival).endswith(end) is named
    assert client.stats()["clipped"] == 2


def test_a_capture_lists_it():
    """With a warning of Python, as of a number beyond its range."""
    with Capture(parse(ERROR)) as capture:
        with pytest.warns(UserWarning, match=f"scanner.error: {WORDS}"):
            assert deniable.record("scanner.error", LONG)
        assert deniable.record("scanner.error", "short")
        assert [each.value for each in capture.clipped] == [LONG]


def test_an_explanation_says_what_is_reported():
    """Of a text that fits it says nothing."""
    explanation = Explanation.of(parse(ERROR), "scanner.error", Budget(), LONG)
    assert explanation.beyond == "The text is longer than 16 bytes, so its beginning 'barcode cannot b' is reported in its place."
    assert explanation.beyond in str(explanation)
    assert f"look like this: it is sent as bytes {explanation.report}" in str(explanation)
    assert not Explanation.of(parse(ERROR), "scanner.error", Budget(), "short").beyond


def test_lint_says_where_texts_are_cut(tmp_path):
    """A key has one length, so it has no such line."""
    (tmp_path / "metrics.toml").write_text(ERROR + metric_toml("site", type="key", discover=True))
    text, key = lint(tmp_path / "metrics.toml").notes
    assert text.facts["answers"] == "to be discovered; texts are cut after 16 bytes: max_length"
    assert key.facts["answers"] == "to be discovered"


def test_lint_says_how_frequent_an_answer_must_be(tmp_path):
    """As the number of reports that a search needs for a common answer and for a rare one."""
    (tmp_path / "metrics.toml").write_text(registry_toml(metric_toml("site", type="key", discover=True, epsilon=2.0)))
    (note,) = lint(tmp_path / "metrics.toml").notes
    words = (
        "about 13,000 reports find an answer that 10% of people have, and about 1,100,000 one that 1% have: each half of the time"
    )
    assert note.facts["found"] == words
