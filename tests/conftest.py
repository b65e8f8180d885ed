"""Fixtures for every floor. Imports stand inside the fixtures, so that tests/client runs with nothing but the SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

# The first count of a kind compiles a kernel, and CI machines pause: a time limit would only measure them.
settings.register_profile("deniable", deadline=None)
settings.load_profile("deniable")

REGISTRY = """
format = 1
app = "shop"

[segments]
platform = ["linux", "macos"]

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
def store_url() -> Iterator[str]:
    """Start a real server, as the product starts it."""
    from deniable_aggregator import embedded

    with embedded.open_store() as store:
        yield store.url


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
