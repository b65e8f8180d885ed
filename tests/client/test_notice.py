"""What is told on the logger: once, in a line, and not without end."""

from __future__ import annotations

import pytest

from deniable.client import Client
from deniable.messages import notice
from deniable.messages.notice import warn_once
from deniable.registry import Registry


def test_once_for_each_subject_and_reason(caplog):
    """The same is told once; of another metric, or for another reason, again."""
    for _ in range(3):
        warn_once("ui.theme", "period_closed", "too late")
        warn_once("ui.theme", "segment", "none such")
        warn_once("ui.dark", "segment", "none such")
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "deniable: ui.theme: period_closed: too late"),
        ("WARNING", "deniable: ui.theme: segment: none such"),
        ("WARNING", "deniable: ui.dark: segment: none such"),
    ]


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("text", ["x\nERROR: fake line", "\x1b[2J", "a\rb", "\u202efdp", "\u2028", "größer", "y" * 10_000])
def test_a_line_of_plain_text(caplog, place, text):
    """Whatever is told stays on its line, in printable ASCII, and is cut."""
    parts = ["ui.theme", "segment", "words"]
    parts[place] = text
    warn_once(*parts)
    (record,) = caplog.records
    assert record.message.isascii()
    assert record.message.isprintable()
    assert len(record.message) < 1000


def test_each_client_says_its_own(caplog):
    """A second client of the process has the first one's fault, and says so again, for as long as it is no loop."""
    for number in range(1, 40):
        Client(registry=Registry("shop", {}), consent=True, state=None, segments={"colour": "red"})
        assert sum("segment colour: unknown_segment" in line for line in caplog.messages) == min(number, notice._MOST_CLIENTS)


def test_an_end(caplog):
    """After a hundred there is a last line, which says where to look."""
    for number in range(300):
        warn_once(f"m{number}", "segment", "none such")
    assert len(caplog.records) == 101
    assert caplog.records[-1].message == "deniable: no more such warnings are logged; stats() counts them"
