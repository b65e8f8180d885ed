"""A forked child and what waits in memory."""

from __future__ import annotations

from deniable.device.state import State
from deniable.device.waiting import Waiting
from deniable.wire.report import Report, Stratum


def test_a_state_in_memory_is_the_parents(monkeypatch, in_child):
    """A forked child has a copy of what waits there, and does not send it."""
    seconds = [0.0]
    monkeypatch.setattr("deniable.device.waiting.time.monotonic", lambda: seconds[0])
    waiting = Waiting(State(None), lambda: 1.8e9 + seconds[0])
    report = Report(Stratum("m", 1, "0" * 16, "2027-01-15", ""), b"x")
    waiting.put([(report, 1)])
    seconds[0] = 10.0

    def child() -> bytes:
        waiting.reset()
        return str(len(waiting.take())).encode()

    assert in_child(child) == b"0"
    assert waiting.take() == [report]
