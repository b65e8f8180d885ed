"""The import contracts hold, and each one bites."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from pathlib import Path

import pytest
from grimp import build_graph
from importlinter.api import read_configuration
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract
from importlinter.contracts.protected import ProtectedContract

ROOT = Path(__file__).parents[2]
FLOORS = ("client", "aggregator", "server")
CONFIGURATION = read_configuration(str(ROOT / "pyproject.toml"))
CONTRACTS = [options["name"] for options in CONFIGURATION["contracts_options"]]
TYPES = {"forbidden": ForbiddenContract, "layers": LayersContract, "protected": ProtectedContract}
MODULES = 12
"""Modules of a folder at most, beside its `__init__`."""
COLLECTIONS = {"commands"}
"""Folders whose modules are of one kind, of which there may be many."""
FULL: set[str] = set()
"""Folders that hold more, still."""
LINES = 400
"""Lines of a module at most."""
LONG: set[str] = set()
"""Modules that have more, still."""


@pytest.fixture(scope="module")
def imports():
    """Read which module imports which."""
    return build_graph(*CONFIGURATION["session_options"]["root_packages"], include_external_packages=True, cache_dir=None)


def contract(name):
    """Return a contract of pyproject.toml, as `lint-imports` reads it."""
    (options,) = (options for options in CONFIGURATION["contracts_options"] if options["name"] == name)
    return TYPES[options["type"]](name, CONFIGURATION["session_options"], options)


@pytest.mark.parametrize("name", CONTRACTS)
def test_contracts_hold(imports, name):
    """The packages as they are keep every contract."""
    assert imports.find_modules_that_directly_import("redis")  # what others have made is seen, too
    assert contract(name).check(deepcopy(imports), verbose=False).kept


PLANTS = [
    ("server -> aggregator -> client", "deniable_aggregator.tally", "deniable_server.settings"),
    ("server -> aggregator -> client", "deniable.wire.report", "deniable_aggregator.store.uploads.batch"),
    ("floors of the client", "deniable.wire.layout", "deniable.mechanisms"),
    ("floors of the client", "deniable.registry.metric", "deniable.transport"),
    ("floors of the client's front", "deniable.client.counts", "deniable.client.recorder"),
    ("floors of the aggregator", "deniable_aggregator.store.script", "deniable_aggregator.decode"),
    ("floors of the aggregator", "deniable_aggregator.publish.release", "deniable_aggregator.deletion"),
    ("floors of the store", "deniable_aggregator.store.sums.tallies", "deniable_aggregator.store.uploads"),
    ("floors of the server", "deniable_server.api.uploads.ingest", "deniable_server.pages"),
    ("floors of the server", "deniable_server.access.keys", "deniable_server.service"),
    ("rooms of the API", "deniable_server.api.uploads.intake", "deniable_server.api.answers.export"),
    ("research and the archive know no store", "deniable_aggregator.attack.averaging", "deniable_aggregator.store"),
    ("floors of an answer", "deniable_aggregator.answer.select", "deniable_aggregator.answer.table"),
    ("few read what is counted and not published", "deniable_aggregator.answer.pool", "deniable_aggregator.publish.strata"),
    ("few read what is counted and not published", "deniable_server.api.answers.rows", "deniable_aggregator.publish.hourly"),
    ("live numbers are for administrators", "deniable_server.api.answers.metrics", "deniable_aggregator.answer.live"),
    ("only the store speaks Redis", "deniable_aggregator.audit.log", "redis"),
    ("only the store speaks Redis", "deniable_server.app", "redis"),
    (
        "families are asked by those who read tallies",
        "deniable_aggregator.answer.pool",
        "deniable_aggregator.decode.families",
    ),
    ("the SDK stays light", "deniable.source", "random"),
    ("the SDK stays light", "deniable.client", "numpy"),
    ("whoever asks needs requests only", "deniable_query", "deniable.errors"),
    ("nothing of ours asks", "deniable.client", "deniable_query"),
    ("somebody else runs the relay: it needs the SDK, and nothing of server or aggregator", "deniable_relay.pools", "redis"),
    ("nothing of ours needs the relay", "deniable_server.api.uploads.pools", "deniable_relay"),
    ("the worker runs without a web server", "deniable_aggregator.counting.worker", "flask"),
]
"""A contract, a module, and an import that breaks the contract there."""


@pytest.mark.parametrize(("name", "importer", "imported"), PLANTS)
def test_a_planted_violation_is_caught(imports, name, importer, imported):
    """A forbidden import breaks its contract."""
    planted = deepcopy(imports)
    assert importer in planted.modules
    planted.add_import(importer=importer, imported=imported)
    assert not contract(name).check(planted, verbose=False).kept


def test_each_contract_is_planted():
    """No contract is believed without a violation of it."""
    assert {name for name, *_ in PLANTS} == set(CONTRACTS)


@pytest.mark.parametrize(
    ("call", "place"),
    [("release.records(", "answer/select.py"), ("releases.of_strata(", "answer/readings/__init__.py")],
)
def test_answers_select_and_read_in_one_place(call, place):
    """Whatever is answered, on a page or not, looks for releases and reads their tallies in the same way."""
    folders = ("aggregator/deniable_aggregator/answer", "server/deniable_server/api", "server/deniable_server/pages")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    assert [file for file in files if "release.listed(" in file.read_text("utf-8")] == []
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
