"""Processes share permanent responses."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

from deniable.device.state import State

RACE = """
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from deniable.declared import Declared
from deniable.limits.allowance import Allowance
from deniable.registry.tables import Budget
from deniable.device.ledger import Ledger
from deniable.device.permanent_responses import PermanentResponses
from deniable.device.prepared import Prepared
from deniable.registry import Metric
from deniable.device.state import State
state, budget = State(Path(sys.argv[1])), Budget()
responses = PermanentResponses(state, Ledger(state, budget))
metric = Metric("m", "categorical", tuple("abcdefgh"), "1", epsilon_permanent="2", mechanism="rappor")
prepared = Prepared(Declared.of(metric), Allowance.of(Declared.of(metric), budget), "")
for day in range(20):
    made = responses.respond(prepared, prepared.occasion(datetime(2026, 11, 1, tzinfo=UTC) + timedelta(days=day)), 3)
    print(f"{day:02}", made if isinstance(made, str) else "report")
"""


def test_processes_share_it(tmp_path):
    """Eight processes that report every day report once a day between them, from one response."""
    script = [sys.executable, "-c", RACE, str(tmp_path / "shop")]
    running = [subprocess.Popen(script, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    lines = Counter(line for process in running for line in process.communicate()[0].splitlines())
    days = Counter(line.split()[0] for line in lines.elements() if line.endswith("report"))
    assert {line.split()[1] for line in lines} <= {"report", "this_period", "state"}
    assert all(times == 1 for times in days.values())
    assert days
    with State(tmp_path / "shop").transaction() as db:
        assert len(db.execute("SELECT * FROM responses").fetchall()) == 1
