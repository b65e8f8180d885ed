"""Fixtures for every floor. Imports stand inside the fixtures, so that tests/client runs with nothing but the SDK."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

sys.path.insert(0, str(Path(__file__).parent / "support"))  # for `forgery`, `rappor_params`

# The first count of a kind compiles a kernel, and CI machines pause: a time limit would only measure them.
settings.register_profile("deniable", deadline=None)
settings.load_profile("deniable")

REGISTRY = """
format = 1
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


@pytest.fixture(autouse=True)
def state_directory(tmp_path, monkeypatch):
    """Let every test be a device of its own: no budget of another one, none of whoever runs the tests."""
    directory = tmp_path / "deniable-state"
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


@pytest.fixture(scope="session")
def start_store() -> Iterator[Callable[[str], str]]:
    """Start real servers as the product does, each once: Valkey from the wheel, and a packaged Redis where there is one."""
    from contextlib import ExitStack
    from functools import cache
    from shutil import which

    from deniable_aggregator.store import embedded

    with ExitStack() as running:

        @cache
        def start(name: str) -> str:
            executable = None
            if name == "redis-server":
                found = which(name)
                if found is None:
                    pytest.skip("no redis-server on PATH; the same tests run on the wheel's Valkey")
                executable = Path(found)
            return running.enter_context(embedded.open_store(executable=executable)).url

        yield start


@pytest.fixture(params=["wheel", "redis-server"])
def store_url(request: pytest.FixtureRequest, start_store: Callable[[str], str]) -> str:
    """Return the address of each real server in turn."""
    return start_store(request.param)


@pytest.fixture
def real_redis(store_url: str) -> Iterator[redis.Redis]:
    """Empty the real server and connect to it."""
    from deniable_aggregator.store import connect

    client = connect(store_url)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def registry_file(tmp_path):
    """Write the registry of an app named shop."""
    path = tmp_path / "metrics.toml"
    path.write_text(REGISTRY, "utf-8")
    return path
