"""Fixtures for every floor. Imports stand inside the fixtures, so that tests/client runs with nothing but the SDK."""

from __future__ import annotations

import gc
import importlib.metadata
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing, contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

sys.path.insert(0, str(Path(__file__).parent / "support"))  # for `forgery`, `rappor_params`
# Workers share the cores: threads of linear algebra that wait for one another would only heat them. Set before NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Started in the background (`&`), a shell has us ignore SIGINT, and so would every process that tests start to be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The first count of a kind compiles a kernel, and CI machines pause: a time limit would only measure them.
# Examples are the same in each run, like the devices' draws below. With another seed there are others, and twice as many.
EXAMPLES = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("deniable", derandomize=True, max_examples=50, **EXAMPLES)
settings.register_profile("another seed", **EXAMPLES)
settings.register_profile("first cases", derandomize=True, max_examples=10, **EXAMPLES)

# Tests are rewritten for asserts once, and not in each run by each process, whatever the environment says: a tenth of the time.
sys.dont_write_bytecode = False

# No package is installed while tests run: to ask all of them again takes 15 ms, for each command and each app.
importlib.metadata.entry_points = cache(importlib.metadata.entry_points)

gc.disable()  # what is collected stays to the end: to look for garbage among it took a fifth of the time
GARBAGE = 1 << 30  # bytes more in memory than after the last look, after which it is looked for all the same
LEFT_OUT = pytest.StashKey[int]()
CASES = pytest.StashKey[Counter[tuple[str, str | None, bool]]]()
CAMPAIGN_CASES = 1
"""The cases of a campaign that run for each change, unless `first_cases` says otherwise; at night all do."""
OTHER_STORES = {"both_stores": "wheel", "cluster_too": "cluster", "divided_too": "divided"}
"""By mark, the store that a test runs on, too."""
CPU_SECONDS = 8.0
"""CPU seconds that a default test may take without `slow`: one on a quiet machine, and a busy one counts several times more."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let another run draw otherwise, or keep what it sees."""
    parser.addoption("--seed", type=int, default=0, help="draw otherwise, and try new examples")
    parser.addoption("--pictures", type=Path, help="a folder for pictures of the pages, as tests/system/browser sees them")
    parser.addoption(
        "--every-store", action="store_true", help="run tests of the store on each server that it may be; the default is one"
    )
    parser.addoption("--nightly", action="store_true", help="run the longest campaigns, too")
    parser.addoption("--first-cases", action="store_true", help="run the first case, or the first examples, of each test only")


def pytest_configure(config: pytest.Config) -> None:
    """Let Hypothesis try new examples with another seed, and watch which tests start processes."""
    few = "first cases" if config.getoption("first_cases") else "deniable"
    settings.load_profile("another seed" if config.getoption("seed") else few)
    sys.addaudithook(_refuse_processes)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[pytest.CollectReport]:
    """Let each worker begin with other modules: asserts of a module are rewritten by the first process that imports it."""
    report = yield
    worker = getattr(collector.config, "workerinput", None)
    if worker and isinstance(collector, pytest.Directory):
        modules = [node for node in report.result if isinstance(node, pytest.Module)]
        first = len(modules) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        for module in modules[first:] + modules[:first]:
            with suppress(Exception, pytest.skip.Exception):  # raised again when its tests are collected
                module.obj  # noqa: B018 - imports it
    return report


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave to the night what repeats a default test at length, and all but the first cases of campaigns and of `first_cases`."""
    if item.get_closest_marker("nightly"):
        return
    few, campaign = item.get_closest_marker("first_cases"), item.get_closest_marker("campaign")
    cases = item.parent.stash.setdefault(CASES, Counter())  # on each store the first ones run, of campaigns and of others
    store = item.callspec.params.get("store_url") if hasattr(item, "callspec") else None
    test = getattr(item, "originalname", item.name), store, bool(campaign)
    cases[test] += 1
    most = few.args[0] if few else CAMPAIGN_CASES if campaign else math.inf
    if cases[test] > most or (campaign and cases[(*test[:2], False)]):
        item.add_marker("campaign")
        item.add_marker("nightly")


_guarded = [False]  # whether a default test runs, which starts no process


def _refuse_processes(event: str, arguments: tuple[object, ...]) -> None:
    """Fail a default test that starts a process. The servers that tests share are started outside of this rule.

    Matplotlib asks `fc-list` for the system's fonts, once in the life of a home directory.
    """
    starts = event in ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn")
    if starts and _guarded and _guarded[0] and "fc-list" not in arguments:
        raise ProcessStartedError


class ProcessStartedError(RuntimeError):
    """A default test starts a process."""

    def __init__(self) -> None:
        super().__init__("a test that starts a process belongs into tests/system")


@contextmanager
def unguarded() -> Iterator[None]:
    """Let a fixture that tests share start a process."""
    before, _guarded[0] = _guarded[0], False
    try:
        yield
    finally:
        _guarded[0] = before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let each test draw from its own seed, and collect garbage when there is much of it."""
    from seeded import seeded

    _guarded[0] = not any(item.get_closest_marker(name) for name in ("system", "campaign", "other_store", "starts_processes"))
    with seeded(f"{item.config.getoption('seed')} {item.nodeid}"):
        answer = yield
    _guarded[0] = False
    if _resident() > _looked[0] + GARBAGE:
        gc.collect()
        _looked[0] = _resident()
    return answer


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a default test that takes long, unless it says why."""
    before = time.process_time()
    yield
    took = time.process_time() - before
    limited = _guarded[0] and "windows" not in sys.modules  # the stand-in looks at all open files, each time
    if limited and took > CPU_SECONDS and not item.get_closest_marker("slow") and _kernels_are_compiled():
        pytest.fail(
            f"this test took {took:.1f} s of CPU: shorten it, mark it slow('why'), or mark its long cases as campaign",
            pytrace=False,
        )


def _kernels_are_compiled() -> bool:
    """Return whether no test has to compile them, which takes seconds."""
    try:
        from deniable_aggregator.tally import machine_code

        return machine_code.is_kept()
    except ImportError:
        return True


_compilers: list[subprocess.Popen[bytes]] = []


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the kernels once, while several processes collect tests: each would compile what it meets."""
    if getattr(session.config.option, "numprocesses", None) and find_spec("numba") and find_spec("deniable_aggregator"):
        command = [sys.executable, "-m", "deniable_aggregator.tally.machine_code"]
        _compilers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))


_looked = [0]  # bytes in memory when garbage was last looked for


def _resident() -> int:
    """Return how many bytes of this process are in memory; 0 where nobody tells."""
    try:
        descriptor = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return 0
    try:
        return int(os.read(descriptor, 100).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    finally:
        os.close(descriptor)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef, request: pytest.FixtureRequest) -> Iterator[None]:
    """Let what several tests share draw from a seed of its own, whichever test is the first."""
    from seeded import seeded

    if fixturedef.scope == "function":
        return (yield)
    with seeded(f"{request.config.getoption('seed')} {fixturedef.baseid} {fixturedef.argname} {request.param_index}"):
        return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Start one process more than there are cores for `-n auto`: many tests wait for a server or a clock."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + 1


def pytest_collection_finish() -> None:
    """Look for garbage from now on, among what the tests make, and seldom: Python would after each 700 objects."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count the campaign tests that are left out, or the longest of them where the others run."""
    for item in items:
        longest, without = item.get_closest_marker("nightly"), _leaves_campaigns_out(item.config)
        if item.get_closest_marker("campaign") and bool(longest) != without:
            item.config.stash[LEFT_OUT] = item.config.stash.get(LEFT_OUT, 0) + 1


def _leaves_campaigns_out(config: pytest.Config) -> bool:
    return "not campaign" in config.option.markexpr


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that prints the summary; each worker leaves out the same tests."""
    for process in _compilers:
        process.wait()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    """Hear what a worker left out, unless it crashed."""
    if hasattr(node, "workeroutput"):
        node.config.stash[LEFT_OUT] = node.workeroutput.get("left_out", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how many campaign tests `-m` left out, and how to run them and what else is left out; and why no browser was opened."""
    number = config.stash.get(LEFT_OUT, 0)
    if number and "campaign" in config.option.markexpr:
        task = "campaigns" if _leaves_campaigns_out(config) else "nightly"
        line = f"{number} campaign tests, which simulate at length, were left out. To run them: just {task}"
        others = "" if config.getoption("every_store") else "; to run tests/system, and the rest on every store: just test-system"
        terminalreporter.write_line(line + others)
    blind = [each for each in terminalreporter.stats.get("skipped", ()) if each.nodeid.startswith("tests/system/browser/")]
    if blind:
        terminalreporter.write_line(
            f"{len(blind)} tests of the pages in a browser were skipped: {blind[0].longrepr[2].removeprefix('Skipped: ')}"
        )


REGISTRY = """
format = 1
budget.per_month = 10000
budget.lifetime = 100000
app = "shop"

[segments]
platform = ["linux", "macos"]

[publication]
min_reports = 1
trial = true

[metrics."ui.theme"]
type = "categorical"
values = ["light", "dark", "system"]
epsilon = 1.0
mechanism = "grr"
description = "Which theme people use"
owner = "design@shop.example"

[metrics."export.used"]
type = "boolean"
epsilon = 1.0
segments = ["platform"]
description = "Whether the export was used"
owner = "core@shop.example"

[metrics."plugin"]
type = "categorical"
values = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]
epsilon = 1.0
mechanism = "oue"
description = "Which plugin is used most"
owner = "core@shop.example"

[metrics."country"]
type = "categorical"
values = ["at", "be", "ch", "de", "es", "fr", "gb", "hr", "it", "jp"]
epsilon = 1.0
mechanism = "local_hash"
description = "Which country"
owner = "core@shop.example"

[metrics."ended"]
type = "boolean"
epsilon = 1.0
expires = 2020-01-01
description = "No longer asked"
owner = "core@shop.example"
"""


@pytest.fixture(scope="session")
def _devices(tmp_path_factory):
    """Give each test a folder that is not made yet: to make `tmp_path` would take as long as many a test."""
    folder = tmp_path_factory.mktemp("devices")
    return (folder / str(number) for number in count())


@pytest.fixture(autouse=True)
def state_directory(_devices, monkeypatch):
    """Let every test be a device of its own: no budget of another one, none of whoever runs the tests."""
    directory = next(_devices)
    monkeypatch.setenv("DENIABLE_STATE_DIR", str(directory))
    return directory


@pytest.fixture
def open_files() -> Callable[[], Counter[str]]:
    """Tell what this process has open; what was opened since is what is left after subtracting.

    Descriptors' numbers would not do: what an earlier test's threads close late frees one for a leak to hide behind.
    """
    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("this system does not tell which files are open")

    def names() -> Counter[str]:
        open_: Counter[str] = Counter()
        for each in descriptors.iterdir():
            with suppress(FileNotFoundError):  # the one with which we look
                open_[str(each.readlink())] += 1
        return open_

    return names


@pytest.fixture
def machines(tmp_path):
    """Start store servers of a test's own: clusters, Sentinels and single ones."""
    from machines import Machines

    with closing(Machines(_store_program(), tmp_path)) as started:
        yield started


def _store_program() -> str:
    """Return a packaged Redis where there is one, else the wheel's Valkey."""
    from deniable_aggregator.store.server import embedded

    return which("redis-server") or str(embedded.find(None)[0])


@pytest.fixture(scope="session")
def start_store(tmp_path_factory) -> Iterator[Callable[[str], str]]:
    """Start real servers, each once.

    ``server`` is a packaged Redis where there is one, else the wheel's Valkey. ``wheel`` is that Valkey. ``cluster`` has three
    primaries.
    """
    from contextlib import ExitStack

    from machines import Machines
    from redis import utils

    from deniable_aggregator.store import connect
    from deniable_aggregator.store.server import embedded

    utils.get_lib_version = cache(utils.get_lib_version)  # each connection asks for it, and it is in a file
    with ExitStack() as running:

        @cache
        def start(name: str) -> str:
            with unguarded():
                return start_one(name)

        def start_one(name: str) -> str:
            if name == "cluster":
                started = Machines(_store_program(), tmp_path_factory.mktemp("cluster"))
                return running.enter_context(closing(started)).cluster(
                    3, 0, "--appendonly", "yes", "--lazyfree-lazy-user-flush", "no"
                )
            executable = Path(_store_program()) if name == "server" else None
            url = running.enter_context(embedded.open_store(executable=executable)).url
            with closing(connect(url)) as client:  # Valkey would free in the background what the test before left
                client.config_set("lazyfree-lazy-user-flush", "no")
            return url

        yield start


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what asks for a store on one server, and with --every-store on the others that its marks name."""
    if "store_url" in metafunc.fixturenames:
        others = [store for mark, store in OTHER_STORES.items() if metafunc.definition.get_closest_marker(mark)]
        metafunc.parametrize(
            "store_url", ["server", *(pytest.param(store, marks=pytest.mark.other_store) for store in others)], indirect=True
        )


@pytest.hookimpl(trylast=True)  # the first case is the first of those that `-m` leaves
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the other stores and the longest campaigns, unless they are asked for, and all but first cases if those are."""
    left = [
        item
        for item in items
        if (config.getoption("every_store") or not item.get_closest_marker("other_store"))
        and (config.getoption("nightly") or not item.get_closest_marker("nightly"))
    ]
    if config.getoption("first_cases"):
        left = list({item.nodeid.partition("[")[0]: item for item in reversed(left)}.values())[::-1]
    config.hook.pytest_deselected(items=list(set(items).difference(left)))
    items[:] = left


@pytest.fixture
def store_url(request: pytest.FixtureRequest, start_store: Callable[[str], str]) -> str:
    """Return the address of a real server."""
    return start_store("cluster" if request.param == "divided" else request.param)


@pytest.fixture
def real_redis(store_url: str, request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    """Empty the real server and connect to it; divide the app ``shop`` if the test asks for it."""
    from deniable_aggregator.store import Store, connect

    client = connect(store_url)
    client.flushall()
    if request.node.callspec.params["store_url"] == "divided":
        Store(client, "shop").divide(3)
    yield client
    client.close()


@pytest.fixture
def registry_file(tmp_path):
    """Write the registry of an app named shop."""
    path = tmp_path / "metrics.toml"
    path.write_text(REGISTRY, "utf-8")
    return path
