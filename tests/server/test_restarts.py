"""A process that died is started again: after a pause, which grows."""

from __future__ import annotations

from deniable_server.local.restarts import LONGEST, MANY, STEADY, Restarts


def test_pauses_grow_with_deaths_in_a_row():
    """Each pause is twice the one before, up to the longest; after many deaths it is said what to do."""
    clock = [0.0]
    restarts = Restarts("worker", lambda: clock[0])
    pauses, lines = [], []
    for _ in range(9):
        lines.append(restarts.died(-9))
        assert restarts.waits
        begin = clock[0]
        while not restarts.due:
            clock[0] += 0.5
        pauses.append(clock[0] - begin)
        restarts.started()
        assert not restarts.waits
    assert pauses == [1, 2, 4, 8, 16, 32, LONGEST, LONGEST, LONGEST]
    assert lines[0] == (
        "The worker was killed by SIGKILL (is there memory enough?); it is started again in 1 s. What was accepted is kept."
    )
    assert ["deniable doctor" in line for line in lines] == [False] * (MANY - 1) + [True] * (10 - MANY)
    clock[0] += STEADY + 1
    assert "status 3; it is started again in 1 s" in restarts.died(3)
