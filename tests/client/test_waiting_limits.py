"""Reports that wait to the moment: not a part of a second less than they must."""

from __future__ import annotations

from deniable.device.state import State
from deniable.device.waiting import Waiting
from deniable.wire.report import Report, Stratum


def test_a_report_waits_for_a_second_that_has_begun(tmp_path):
    """Due times are whole seconds, the next one: an earlier one would tell for how long a block ran."""
    now = [1_800_000_000.5]
    waiting = Waiting(State(tmp_path / "shop"), lambda: now[0])
    waiting.put([(Report(Stratum("m", 1, "0" * 16, "2027-01-15", ""), b"\0"), 10.0)])
    now[0] += 9.9
    waiting._look_at = 0.0
    assert waiting.take() == []
    now[0] += 0.6
    waiting._look_at = 0.0
    assert len(waiting.take()) == 1
