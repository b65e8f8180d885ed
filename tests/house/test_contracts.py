"""The import contracts hold, and each one bites."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FLOORS = ("client", "aggregator", "server")
MODULES = 12
"""Modules of a folder at most, beside its `__init__`."""
COLLECTIONS = {"mechanisms", "decode", "commands"}
"""Folders whose modules are of one kind, of which there may be many."""
FULL: set[str] = set()
"""Folders that hold more, still."""
LINES = 400
"""Lines of a module at most."""
LONG: set[str] = set()
"""Modules that have more, still."""


def lint_imports(folder):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(folder / floor) for floor in FLOORS)}
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path):
    """Copy the packages and the contracts."""
    for floor in FLOORS:
        shutil.copytree(ROOT / floor, tmp_path / floor, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_contracts_hold(copy):
    """The packages as they are keep every contract."""
    done = lint_imports(copy)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("contract", "file", "line"),
    [
        ("server -> aggregator -> client", "aggregator/deniable_aggregator/tally/__init__.py", "import deniable_server.settings"),
        ("server -> aggregator -> client", "client/deniable/wire/report.py", "import deniable_aggregator.store.uploads.batch"),
        ("floors of the client", "client/deniable/wire/layout.py", "import deniable.mechanisms"),
        ("floors of the client", "client/deniable/registry/metric.py", "import deniable.transport"),
        ("floors of the client's front", "client/deniable/client/counts.py", "import deniable.client.recorder"),
        ("floors of the aggregator", "aggregator/deniable_aggregator/store/script.py", "import deniable_aggregator.decode"),
        ("floors of the aggregator", "aggregator/deniable_aggregator/publish/release.py", "import deniable_aggregator.deletion"),
        (
            "floors of the store",
            "aggregator/deniable_aggregator/store/sums/tallies.py",
            "import deniable_aggregator.store.uploads",
        ),
        ("floors of the server", "server/deniable_server/api/uploads/ingest.py", "import deniable_server.pages"),
        ("floors of the server", "server/deniable_server/access/keys.py", "import deniable_server.service"),
        ("rooms of the API", "server/deniable_server/api/uploads/intake.py", "import deniable_server.api.answers.export"),
        (
            "research and the archive know no store",
            "aggregator/deniable_aggregator/attack/averaging.py",
            "import deniable_aggregator.store",
        ),
        ("floors of an answer", "aggregator/deniable_aggregator/answer/select.py", "import deniable_aggregator.answer.table"),
        (
            "few read what is counted and not published",
            "aggregator/deniable_aggregator/answer/pool.py",
            "import deniable_aggregator.publish.strata",
        ),
        (
            "few read what is counted and not published",
            "server/deniable_server/api/answers/rows.py",
            "import deniable_aggregator.publish.hourly",
        ),
        (
            "live numbers are for administrators",
            "server/deniable_server/api/answers/metrics.py",
            "import deniable_aggregator.answer.live",
        ),
        ("only the store speaks Redis", "aggregator/deniable_aggregator/audit/log.py", "from redis import Redis"),
        ("only the store speaks Redis", "server/deniable_server/app.py", "import redis.exceptions"),
        (
            "families are asked by those who read tallies",
            "aggregator/deniable_aggregator/answer/pool.py",
            "from deniable_aggregator.decode.families import family_of",
        ),
        ("the SDK stays light", "client/deniable/source.py", "import random"),
        ("the SDK stays light", "client/deniable/client/__init__.py", "import numpy"),
        ("whoever asks needs requests only", "client/deniable_query/__init__.py", "import deniable.errors"),
        ("nothing of ours asks", "client/deniable/client/__init__.py", "import deniable_query"),
        ("the worker runs without a web server", "aggregator/deniable_aggregator/counting/worker.py", "import flask"),
    ],
)
def test_a_planted_violation_is_caught(copy, contract, file, line):
    """A forbidden import breaks its contract."""
    path = copy / file
    path.write_text(
        path.read_text("utf-8").replace(
            "from __future__ import annotations\n", f"from __future__ import annotations\n{line}\n", 1
        )
    )
    done = lint_imports(copy)
    assert done.returncode == 1
    assert f"{contract} BROKEN" in done.stdout


@pytest.mark.parametrize(
    ("call", "place"),
    [("release.listed(", "answer/select.py"), ("releases.tallies(", "answer/readings/__init__.py")],
)
def test_answers_select_and_read_in_one_place(call, place):
    """Whatever is answered, on a page or not, looks for releases and reads their tallies in the same way."""
    folders = ("aggregator/deniable_aggregator/answer", "server/deniable_server/api", "server/deniable_server/pages")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    assert [file for file in files if call in file.read_text("utf-8")] == [ROOT / "aggregator/deniable_aggregator" / place]


def modules():
    """Return the product's modules, as paths from the root."""
    return [path.relative_to(ROOT) for floor in FLOORS for path in sorted((ROOT / floor).rglob("*.py"))]


def test_folders_are_small():
    """A reader sees at once what a folder holds."""
    numbers = Counter(path.parent for path in modules() if path.name != "__init__.py")
    large = {str(folder) for folder, number in numbers.items() if number > MODULES and folder.name not in COLLECTIONS}
    assert large - FULL == set()


def test_modules_are_short():
    """A module is read in one go."""
    long = {str(path) for path in modules() if len((ROOT / path).read_text("utf-8").splitlines()) > LINES}
    assert long == set()
