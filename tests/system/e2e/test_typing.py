"""What an app's type checkers see of the package as it is installed, from a wheel."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import deniable
import deniable.testing

ROOT = Path(__file__).parents[3]

PROGRAM = '''
"""An app that uses everything public."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, assert_type

import deniable
from deniable import (
    Arrival,
    Budget,
    Caps,
    Client,
    ConfigurationError,
    DeniableError,
    SentReport,
    Explanation,
    MetricHandle,
    ParameterError,
    PayloadError,
    People,
    Person,
    Registry,
    RegistryError,
    SenderSettings,
    ServedRegistryError,
    StateError,
    Stopwatch,
)
from deniable.testing import Attempt, Capture, Captured, Clock, Received, StubServer, Wait, make_due


def agreed() -> bool:
    return True


def start(registry: Registry) -> Client:
    caps = Caps(epsilon=2, permanent=4, mechanisms={"oue"}, budget=Budget(per_month=8, lifetime=None))
    settings = SenderSettings(flush_at=50, flush_interval=30.0)
    client = deniable.init(
        "https://key@host.example/app",
        registry=registry,
        consent=agreed,
        segments={"platform": "linux"},
        settings=settings,
        caps=caps,
        state=Path("/var/lib/app"),
        registry_key="key",
        strict=False,
    )
    assert_type(client, Client)
    assert_type(deniable.init(registry="metrics.toml", consent=True, state=None), Client)
    return client


def use() -> None:
    assert_type(deniable.record("ui.theme", "dark"), bool)
    handle: MetricHandle = deniable.metric("ui.theme")
    assert_type(handle.record(None), bool)
    deniable.set_consent(False)
    deniable.set_consent(agreed)
    assert_type(deniable.flush(1), Arrival)
    assert_type(deniable.close(timeout=0.5), Arrival)
    assert_type(deniable.stats(), dict[str, Any])
    assert_type(deniable.explain("ui.theme", "dark"), Explanation | None)
    assert_type(deniable.journal(), list[SentReport])
    assert_type([entry.payload for entry in deniable.journal()], list[str])
    version: str = deniable.__version__
    print(version)


@deniable.timed("search.ms")
def search(words: str, *, most: int = 10) -> list[str]:
    return words.split()[:most]


@deniable.metric("fetch.ms").timed()
async def fetch(address: str) -> bytes:
    return address.encode()


async def measure(client: Client) -> None:
    with deniable.timed("search.ms") as watch:
        assert_type(watch, Stopwatch)
        assert_type(search("a b", most=1), list[str])
    assert_type(await fetch("a"), bytes)
    assert_type(client.record_time("search.ms", 0.25), bool)
    with client.timed("search.ms"), client.metric("search.ms").timed():
        print("timed")


async def stop() -> None:
    assert_type(await deniable.aflush(5.0), Arrival)


def own(registry: Registry, consent: Callable[[], bool]) -> dict[str, Any]:
    with Client(dsn=None, registry=registry, consent=consent) as client:
        assert_type(client, Client)
        assert_type(client.metric("a").record(1), bool)
        assert_type(client.record("a", True), bool)
        client.set_consent(True)
        asyncio.run(client.aflush())
        explanation = client.explain("a")
        if explanation is not None:
            assert_type(explanation.epsilon, float)
        assert_type(client.journal(), list[SentReport])
        return client.stats()


def serve(registry: Registry) -> bool:
    people = deniable.people(registry=registry, key="0" * 32, store="/var/lib/shop", consent=lambda account: account == 1)
    assert_type(people, People)
    person: Person = people.person(1)
    with person.timed("search.ms") as watch:
        assert_type(watch, Stopwatch)
    assert_type(person.record("a", True), bool)
    assert_type(person.spent(), dict[str, float | None])
    assert_type(people.flush(1), Arrival)
    assert_type(people.explain("a"), Explanation | None)
    return person.forget()


def fail(error: DeniableError) -> str:
    match error:
        case ParameterError():
            return error.rule
        case ServedRegistryError() | RegistryError():
            return str(error.faults[0].rule)
        case PayloadError():
            return error.code
        case ConfigurationError() | StateError():
            return str(error)
        case _:
            return ""


def check() -> None:
    with Capture("metrics.toml", lenient=True) as capture:
        assert_type(capture.answers, list[Captured])
        assert_type(capture.values("a"), list[Any])
        assert_type(capture.faults, list[str])
    make_due()
    with StubServer(key="k") as server:
        server.fail(503, times=2, headers={"Retry-After": "1"})
        server.hang()
        server.recover()
        assert_type(server.dsn, str)
        assert_type(server.attempts, list[Attempt])
        assert_type(server.batches, list[Received])
        assert_type(server.reports[0].payload, bytes)


def test_fixtures(deniable_capture: Capture, deniable_stub_server: StubServer, deniable_clock: Clock) -> None:
    assert_type(deniable_clock.now, datetime)
    assert_type(deniable_capture.answers, list[Captured])
    assert_type(deniable_stub_server.wait(3), Wait)
'''

MISTAKES = """
import deniable
from deniable import Cliente

deniable.recrod("ui.theme", "dark")
deniable.record("ui.theme")
deniable.init(registry=1, consent=True)
deniable.init(registry="metrics.toml")
deniable.Caps(epsilon="high")
number: int = deniable.explain("ui.theme")
deniable.Client(registry="metrics.toml", consent=True).flsh()
"""

PROGRAMS = {"program.py": PROGRAM, "mistakes.py": MISTAKES}


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Build a wheel of this tree and install it, alone, in an environment of its own; return its interpreter."""
    folder = tmp_path_factory.mktemp("wheel")
    quiet = ["--quiet", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip"]
    # The tree itself, and the build tools of this environment: nothing is downloaded.
    run([*pip, "wheel", *quiet, "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT], folder)
    run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], folder)
    interpreter = folder / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
    (wheel,) = folder.glob("*.whl")
    run([*pip, "--python", interpreter, "install", *quiet, "--no-deps", "--no-index", "--no-compile", wheel], folder)
    return interpreter


def run(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def mypy(python, folder):
    """Check the programs in a folder, strictly, with the package as `python` sees it; return the faulty lines of each."""
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "--cache-dir", os.devnull, *PROGRAMS]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return [(file, int(line)) for file, line in re.findall(r"^(\S+):(\d+): error", done.stdout, re.MULTILINE)], done.stdout


def pyright(python, folder, *arguments):
    """Run pyright, which asks the first `python` in PATH where packages are."""
    command = [sys.executable, "-m", "pyright", "--outputjson", *arguments]
    path = os.pathsep.join((str(python.parent), os.environ["PATH"]))
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return json.loads(done.stdout)


def strict_pyright(python, folder):
    """Check them likewise with pyright."""
    config = {"typeCheckingMode": "strict", "include": list(PROGRAMS)}
    folder.joinpath("pyrightconfig.json").write_text(json.dumps(config), "utf-8")
    diagnostics = pyright(python, folder)["generalDiagnostics"]
    return [(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in diagnostics], diagnostics


@pytest.mark.parametrize("check", [mypy, strict_pyright])
def test_an_app_that_uses_everything(python, tmp_path, check):
    """A program that uses every public name is strictly typed, with nothing unknown. Another's mistakes are all found."""
    for name, text in PROGRAMS.items():
        tmp_path.joinpath(name).write_text(text, "utf-8")
    faults, report = check(python, tmp_path)
    assert set(faults) == {("mistakes.py", line) for line in set(range(3, 12)) - {4}}, report


def test_the_app_uses_everything():
    """It has every public name."""
    assert not [name for name in [*deniable.__all__, *deniable.testing.__all__] if not re.search(rf"\b{name}\b", PROGRAM)]


def test_the_query_client_is_complete(python, tmp_path):
    """It comes with the wheel, and all of it is typed."""
    report = pyright(python, tmp_path, "--verifytypes", "deniable_query", "--ignoreexternal")["typeCompleteness"]
    known = {symbol["name"]: symbol["isTypeKnown"] for symbol in report["symbols"]}
    assert {"deniable_query.Query.rows", "deniable_query.Query.where", "deniable_query.QueryError"} <= set(known)
    assert all(known.values())


def test_completeness(python, tmp_path):
    """All that is public is typed, completely: no checker has to guess."""
    report = pyright(python, tmp_path, "--verifytypes", "deniable", "--ignoreexternal")["typeCompleteness"]
    assert Path(report["packageRootDirectory"]).is_relative_to(python.parents[1])
    owners = [deniable, deniable.testing]
    public = {f"{owner.__name__}.{name}" for owner in owners for name in owner.__all__}
    classes = [value for owner in owners for name in owner.__all__ if isinstance(value := getattr(owner, name), type)]
    homes = tuple(f"{each.__module__}.{each.__qualname__}" for each in classes)
    known = {symbol["name"]: symbol["isTypeKnown"] for symbol in report["symbols"]}
    assert public <= set(known)
    assert set(homes) <= set(known)
    members = {name for name in known if name.startswith(tuple(f"{home}." for home in homes))}
    assert not sorted(name for name in public | set(homes) | members if not known[name])
