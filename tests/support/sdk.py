"""What tests of the SDK share: a small registry, an empty environment, and its threads. A conftest imports the fixtures."""

from __future__ import annotations

import os
import threading

import pytest

import deniable
from deniable.messages import notice
from deniable.registry import parse

REGISTRY = """
format = 1
app = "shop"

[segments]
platform = ["linux", "macos"]

[metrics."ui.theme"]
type = "categorical"
values = ["light", "dark", "system"]
epsilon = 1.0
period = "month"
per_period = 4
segments = ["platform"]
description = "Which theme people use"
owner = "design@shop.example"

[metrics."ui.dark"]
type = "boolean"
mechanism = "coin"
period = "month"
per_period = 4
description = "Whether it is dark"
owner = "design@shop.example"

[metrics."old"]
type = "boolean"
epsilon = 1
description = "A question of long ago"
owner = "design@shop.example"
expires = 2001-01-01
"""


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch, state_directory):  # noqa: ARG001 - it sets the one variable that stays
    """No setting of whoever runs the tests reaches them."""
    for name in list(os.environ):
        if (name.startswith("DENIABLE_") and name != "DENIABLE_STATE_DIR") or name == "DO_NOT_TRACK":
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch):
    """Let every test be told what another one was told."""
    monkeypatch.setattr(notice, "_warned", set())
    monkeypatch.setattr(notice, "_clients", 0)
    monkeypatch.setattr(deniable, "_early", 0)


@pytest.fixture(scope="session")
def registry_text():
    """Give a small metrics.toml."""
    return REGISTRY


@pytest.fixture(scope="session")
def registry():
    """Give the same, parsed."""
    return parse(REGISTRY)


@pytest.fixture(scope="session", autouse=True)
def usual_umask():
    """Let nobody but the owner write what tests put beside the SDK's files, whatever the umask of whoever runs them."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def sending_threads():
    """List the threads of the SDK that live now and did not when the test began."""

    def living() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name in ("deniable-sender", "deniable-courier")}

    before = living()
    return lambda: living() - before
