"""A host app for the tests of the SDK as a guest: a process of its own, a server on loopback, and a device's directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deniable.testing import StubServer

sys.path.insert(0, str(Path(__file__).parent))  # for `foreign`

_MANY = 1_000_000

# A test may record as often as it wants, but for "theme"; `Host.bound` sets a bound. The periods are months, so that one report a
# period of each metric fits into the default budget.
HOST_REGISTRY = f"""
format = 1
app = "shop"

[metrics."used"]
type = "boolean"
epsilon = 1.0
period = "month"
per_period = {_MANY}
description = "Whether it was used"
owner = "o@shop.example"

[metrics."theme"]
type = "categorical"
values = ["light", "dark", "system"]
epsilon = 1.0
epsilon_permanent = 2.0
period = "month"
description = "Which theme people use"
owner = "o@shop.example"

[metrics."plugin"]
type = "categorical"
values = {[f"p{number}" for number in range(400)]}
mechanism = "oue"  # so that no two reports are alike
epsilon = 1.0
period = "month"
per_period = {_MANY}
description = "Which plugin"
owner = "o@shop.example"

[metrics."page"]
type = "string"
candidates = "pages.txt"
epsilon = 1.0
period = "month"
per_period = {_MANY}
description = "Which page"
owner = "o@shop.example"

[metrics."key"]
type = "key"
discover = true
epsilon = 1.0
period = "month"
per_period = {_MANY}
description = "Where it stopped"
owner = "o@shop.example"

[metrics."both"]
type = "product"
factors = {{ a = ["x", "y"], b = ["no", "yes"] }}
epsilon = 1.0
period = "month"
per_period = {_MANY}
description = "Both"
owner = "o@shop.example"
"""

# What every host begins with. `start` is `deniable.init` for a device without a budget, in whose way nothing else is.
# It is a person's device: it is not being developed although its DSN leads to this machine, so it sees no warnings.
PRELUDE = """
import logging, os, sys, threading, time
import deniable

logging.getLogger("deniable").addHandler(logging.NullHandler())

FREE = deniable.Caps(budget=deniable.Budget(per_month=None, lifetime=None))

def start(*, interval=60.0, at=100, queue=100_000, timeout=10.0, tries=4, **options):
    arguments = {"consent": True, "registry": os.environ["HOST_REGISTRY"]} | options
    dsn = arguments.pop("dsn", os.environ["HOST_DSN"])
    settings = deniable.SenderSettings(
        flush_at=at, flush_interval=interval, queue_size=queue, timeout=timeout, max_tries=tries
    )
    return deniable.init(dsn, settings=settings, caps=FREE, **arguments)

"""


class Host:
    """Runs programs that embed the SDK, all on one device.

    Parameters
    ----------
    folder
        Where programs and registry lie.
    """

    def __init__(self, folder) -> None:
        self.folder = folder
        self.state = folder / "state" / "shop"
        self.registry = folder / "metrics.toml"
        self.registry.write_text(HOST_REGISTRY, "utf-8")
        self.dsn = "http://key@127.0.0.1:9/shop"  # the port of a service that nobody runs: refused at once
        self._programs = 0

    def bound(self, reports: int) -> None:
        """Let a device report each metric so often a period at most; small numbers are leased one by one."""
        self.registry.write_text(HOST_REGISTRY.replace(f"per_period = {_MANY}", f"per_period = {reports}"), "utf-8")

    @property
    def spooled(self) -> list[str]:
        """Keys of the batches that wait on disk."""
        return sorted(path.name.split(".")[0] for path in self.state.glob("spool/*.json.gz"))

    @property
    def environment(self) -> dict[str, str]:
        """What programs find in their environment: nothing of whoever runs the tests."""
        variables = {
            name: text for name, text in os.environ.items() if not name.startswith("DENIABLE_") and name != "DO_NOT_TRACK"
        }
        return variables | {
            "DENIABLE_STATE_DIR": str(self.state.parent),
            "HOST_DSN": self.dsn,
            "HOST_REGISTRY": str(self.registry),
            "PYTHONFAULTHANDLER": "1",
        }

    def program(self, code: str) -> str:
        """Write a program; `start` calls `deniable.init` in it."""
        self._programs += 1
        path = self.folder / f"program_{self._programs}.py"
        path.write_text(PRELUDE + dedent(code), "utf-8")
        return str(path)

    def begin(self, code: str, *options: str) -> subprocess.Popen[str]:
        """Start a program."""
        return self.spawn(*options, self.program(code))

    def spawn(self, *arguments: str) -> subprocess.Popen[str]:
        """Start Python."""
        command = [sys.executable, *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env=self.environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )

    def run(self, code: str, *options: str, timeout: float = 120) -> str:
        """Run a program, which has to end well and write nothing to stderr; return what it printed."""
        process = self.begin(code, *options)
        try:
            printed, complaints = process.communicate(timeout=timeout)
        finally:
            with suppress(OSError):  # its children have ended, too
                os.killpg(process.pid, signal.SIGKILL)
        assert (process.returncode, complaints) == (0, ""), complaints
        return printed


@pytest.fixture
def host(tmp_path) -> Host:
    """Give a host whose server cannot be reached."""
    return Host(tmp_path)


@pytest.fixture
def server(host) -> Iterator[StubServer]:
    """Let the host's server be reached."""
    from deniable.testing import StubServer

    with StubServer(host.registry, key="key") as stub:
        host.dsn = stub.dsn
        yield stub
