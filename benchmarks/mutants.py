"""Planted mistakes: whether the tests notice what a careful programmer may do wrong.

`mistakes.toml` has the mistakes, by area. Each is planted alone, in a copy of the packages, and the tests that it names run
there. Some must fail. A mistake is *caught* if one does, and *survived* if all pass. It is *broken* if it cannot be planted, or
if the tests cannot be run with it, or do not end. A test that fails without a mistake, too, is named and left out. Ends with 1
if less than 95% are caught.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import shutil
import signal
import sys
import time
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from itertools import count
from math import inf
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = Path(__file__).parents[1]
MISTAKES = Path(__file__).with_name("mistakes.toml")
LEAST = 0.95
"""Share of the mistakes that must be caught."""
OUTCOMES = ("caught", "survived", "broken")
_FLOORS = {"client": ("deniable", "deniable_query"), "server": ("deniable_server",), "aggregator": ("deniable_aggregator",)}
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".hypothesis", ".*_cache", "site", "dist")
_PYTEST = ("-x", "-q", "-p", "no:cacheprovider", "--tb=short", "-m", "not campaign")
_PASSED, _FAILED = 0, 1  # what pytest ends with
_NO_COPY = 99  # what a process ends with that would test other packages
_SECONDS = 900  # after which tests are taken to hang
_PROCESSES = multiprocessing.get_context("forkserver")
_LOADED = ["pytest", "requests", "numpy", "scipy.optimize", "scipy.stats", "flask", "msgspec", "redis", "numba"]


class Mistake(NamedTuple):
    """A mistake that may be planted."""

    area: str
    name: str
    file: str  # in which it is, from the root
    old: str  # text of the file, which occurs once in it
    new: str  # what stands there instead
    breaks: str  # what then goes wrong
    tests: tuple[str, ...]  # files of tests that should notice, from the root, the likeliest first

    @property
    def id(self) -> str:
        """Its area and its name."""
        return f"{self.area}.{self.name}"


class Outcome(NamedTuple):
    """What became of a planted mistake."""

    mistake: Mistake
    word: str  # one of `OUTCOMES`
    why: str  # the first test that failed, or what is broken


def read() -> list[Mistake]:
    """Read all mistakes."""
    areas = tomllib.loads(MISTAKES.read_text("utf-8"))
    return [
        Mistake(area, name, **{**entry, "tests": tuple(f"tests/{each}" for each in entry["tests"])})
        for area, entries in areas.items()
        for name, entry in entries.items()
    ]


def fault(mistake: Mistake, root: Path = ROOT) -> str:
    """Return why a mistake cannot be planted; empty if it can."""
    missing = [each for each in (mistake.file, *mistake.tests) if not (root / each).is_file()]
    if missing:
        return f"there is no {', '.join(missing)}"
    times = (root / mistake.file).read_text("utf-8").count(mistake.old)
    if times != 1:
        return f"the old text occurs {times} times in {mistake.file}; it must occur once"
    return "the new text is the old one" if mistake.new == mistake.old else ""


class Copy:
    """A copy of the packages and their tests."""

    _changes = count(1)

    def __init__(self, folder: Path) -> None:
        self._folder, self.root = folder, folder / "copy"
        shutil.copytree(ROOT, self.root, ignore=_LEFT_OUT)

    @contextmanager
    def planted(self, mistake: Mistake) -> Iterator[None]:
        """Plant a mistake for a while."""
        path = self.root / mistake.file
        text, before = path.read_text("utf-8"), path.stat().st_mtime_ns
        path.write_text(text.replace(mistake.old, mistake.new), "utf-8")
        # Compiled files are known by size and second: a second of its own keeps those of another text from being used.
        second = before + 1_000_000_000 * next(self._changes)
        os.utime(path, ns=(second, second))
        try:
            yield
        finally:
            path.write_text(text, "utf-8")
            os.utime(path, ns=(before, before))

    def test(self, tests: Sequence[str], left_out: Iterable[str] = ()) -> tuple[int | None, str]:
        """Run tests up to the first that fails; return what pytest ends with, None if it hangs, and what it printed."""
        printed = self._folder / "printed"
        # What is imported from elsewhere is loaded once, and each run begins with it.
        arguments = [*_PYTEST, *(f"--deselect={each}" for each in left_out), *tests]
        process = _PROCESSES.Process(target=_test, args=(self.root, printed, arguments))
        process.start()
        try:
            process.join(_SECONDS)
        finally:
            if hangs := process.exitcode is None:
                os.killpg(process.pid or 0, signal.SIGKILL)
                process.join()
        if process.exitcode == _NO_COPY:
            raise SystemExit(f"the packages that were tested are not those of the copy:\n{printed.read_text('utf-8')}")
        return None if hangs else process.exitcode, printed.read_text("utf-8", "replace")


def _test(root: Path, printed: Path, arguments: list[str]) -> None:
    """Run the tests of a copy, in a process of their own."""
    os.setsid()  # so that what tests start can be ended with them
    with printed.open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.chdir(root)
    floors = [str(root / floor) for floor in _FLOORS]
    sys.path[:] = [*floors, *(each for each in sys.path if each != str(Path(__file__).parent))]
    os.environ["PYTHONPATH"] = os.pathsep.join(floors)
    sys.dont_write_bytecode = False
    for floor, packages in _FLOORS.items():
        for package in packages:
            origin = str(getattr(find_spec(package), "origin", None))
            if not Path(origin).is_relative_to(root / floor):
                print(package, origin, flush=True)
                sys.exit(_NO_COPY)
    sys.exit(int(pytest.main(arguments, plugins=[_Patience()])))


class _Patience:
    """Lets tests take long: how busy this machine is is no mistake."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for plugin in session.config.pluginmanager.get_plugins():
            if hasattr(plugin, "CPU_SECONDS"):
                plugin.CPU_SECONDS = inf


class Suspects:
    """Tests that have failed with a mistake: whether they pass without it."""

    def __init__(self) -> None:
        self._sound: set[str] = set()
        self.bad: set[str] = set()

    def notices(self, copy: Copy, test: str) -> bool:
        """Return whether a test that failed passes in the copy, which now has no mistake."""
        if test not in self._sound | self.bad:
            status, _ = copy.test([test])
            (self._sound if status == _PASSED else self.bad).add(test)
            if test in self.bad:
                print(f"fails without a mistake, and is left out: {test}", flush=True)
        return test in self._sound


def outcome(copy: Copy, mistake: Mistake, suspects: Suspects) -> Outcome:
    """Plant a mistake, and see whether its tests notice."""
    if why := fault(mistake, copy.root):
        return Outcome(mistake, "broken", why)
    while True:
        left_out = frozenset(suspects.bad)
        with copy.planted(mistake):
            status, printed = copy.test(mistake.tests, left_out)
        if status is None:
            return Outcome(mistake, "broken", f"tests did not end within {_SECONDS} s")
        if status == _PASSED:
            return Outcome(mistake, "survived", "")
        failed = re.search(r"^(?:FAILED|ERROR) (tests/.*?)(?: - .*)?$", printed, re.MULTILINE)
        if status != _FAILED or not failed or failed[1] in left_out:
            return Outcome(mistake, "broken", f"pytest ended with {status}: {' '.join(printed.split())[-300:]}")
        if suspects.notices(copy, failed[1]):
            return Outcome(mistake, "caught", failed[1])


def run(mistakes: Sequence[Mistake], processes: int) -> list[Outcome]:
    """Plant mistakes one after the other, in several copies at once."""
    outcomes: list[Outcome] = []
    with ExitStack() as opened, ThreadPoolExecutor(processes) as threads:
        free: SimpleQueue[Copy] = SimpleQueue()
        for _ in range(processes):
            free.put(Copy(Path(opened.enter_context(TemporaryDirectory(prefix="mutants-")))))
        suspects = Suspects()

        def planted(mistake: Mistake) -> Outcome:
            copy = free.get()
            try:
                return outcome(copy, mistake, suspects)
            finally:
                free.put(copy)

        waiting = [threads.submit(planted, each) for each in mistakes]
        began = time.monotonic()
        try:
            for number, done in enumerate(as_completed(waiting), 1):
                outcomes.append(one := done.result())
                minutes = (time.monotonic() - began) / 60
                print(f"{number:>4}/{len(waiting)} {minutes:5.1f} min  {one.word:<8} {one.mistake.id}  {one.why}", flush=True)
        finally:  # also if it is interrupted
            threads.shutdown(wait=False, cancel_futures=True)
    return outcomes


def table(outcomes: Iterable[Outcome]) -> bool:
    """Print what was caught, by area, and what was not; return whether enough was."""
    outcomes = list(outcomes)
    areas = {area: Counter(item.word for item in outcomes if item.mistake.area == area) for area in _areas(outcomes)}
    row = "{:<14}{:>9}" + "{:>10}" * len(OUTCOMES)
    print("\n" + row.format("area", "planted", *OUTCOMES))
    areas["all"] = Counter(item.word for item in outcomes)
    for area, numbers in areas.items():
        print(row.format(area, numbers.total(), *(numbers[word] for word in OUTCOMES)))
    for item in outcomes:
        if item.word != "caught":
            print(f"\n{item.word}: {item.mistake.id} in {item.mistake.file}\n  {item.mistake.breaks}\n  {item.why}".rstrip())
    share = areas["all"]["caught"] / max(len(outcomes), 1)
    print(f"\n{share:.1%} are caught; at least {LEAST:.0%} must be")
    return share >= LEAST


def _areas(outcomes: Iterable[Outcome]) -> list[str]:
    return list(dict.fromkeys(each.mistake.area for each in sorted(outcomes, key=lambda outcome: outcome.mistake.id)))


def main() -> int:
    """Run from the command line; 1 if too few mistakes are caught."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="those whose area.name or file this regular expression finds"
    )
    parser.add_argument("--list", action="store_true", help="only say what would be planted")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="mistakes that are planted at the same time")
    arguments = parser.parse_args()
    chosen = [item for item in read() if re.search(arguments.only, f"{item.id} {item.file}")]
    if not chosen:
        parser.error(f"--only finds none of the mistakes in {MISTAKES.name}")
    if arguments.list:
        for item in chosen:
            print(f"{item.id}: {item.breaks}")
        return 0
    _PROCESSES.set_forkserver_preload(_LOADED)
    return 0 if table(run(chosen, arguments.processes)) else 1


if __name__ == "__main__":
    sys.exit(main())
