"""What the client's tests share: a feed in place of the system's generator, a bound for chi-square, an empty environment."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

from deniable.registry import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import date
    from pathlib import Path

settings.register_profile("client", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("client")

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


class Feed:
    """Hands out prescribed bytes for `os.urandom`, call by call, and remembers how many were asked for."""

    def __init__(self, chunks: Iterable[Callable[[int], bytes] | bytes]) -> None:
        self._chunks = iter(chunks)
        self.asked: list[int] = []
        self.given: list[bytes] = []

    def __call__(self, size: int) -> bytes:
        self.asked.append(size)
        chunk = next(self._chunks)
        given = chunk(size) if callable(chunk) else chunk
        assert len(given) == size, f"the feed has {len(given)} bytes where {size} were asked for"
        self.given.append(given)
        return given


@contextmanager
def _feeding(*chunks: Callable[[int], bytes] | bytes, then: Callable[[int], bytes] | None = None) -> Iterator[Feed]:
    def all_chunks() -> Iterator[Callable[[int], bytes] | bytes]:
        yield from chunks
        while then is not None:
            yield then

    feed = Feed(all_chunks())
    with mock.patch("deniable.source.os.urandom", feed):
        yield feed


@pytest.fixture(scope="session")
def feeding():
    """Context manager that replaces `os.urandom` by prescribed chunks (bytes, or functions of the size asked for)."""
    return _feeding


@pytest.fixture(scope="session")
def chi_square():
    """Check observed counts against exact probabilities; a right mechanism fails once in more than 10 million runs."""

    def check(observed, probabilities) -> None:
        total = sum(observed.values())
        assert set(observed) <= set(probabilities)
        statistic = sum(
            (observed.get(y, 0) - total * float(share)) ** 2 / (total * float(share)) for y, share in probabilities.items()
        )
        freedom = len(probabilities) - 1
        # Wilson and Hilferty: the cube root of a chi-square is nearly normal. 5.5 standard deviations: 2e-8 of its tail.
        limit = freedom * (1 - 2 / (9 * freedom) + 5.5 * (2 / (9 * freedom)) ** 0.5) ** 3 if freedom else 1e-9
        assert statistic < limit, f"chi-square {statistic:.1f} with {freedom} degrees of freedom, at most {limit:.1f}"

    return check


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch, state_directory):
    """No setting of whoever runs the tests reaches them."""
    for name in list(os.environ):
        if name.startswith("DENIABLE_") or name == "DO_NOT_TRACK":
            monkeypatch.delenv(name)
    monkeypatch.setenv("DENIABLE_STATE_DIR", str(state_directory))


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch):
    """Let every test be told what another one was told."""
    monkeypatch.setattr("deniable.process.notice._warned", set())


@pytest.fixture(scope="session")
def registry_text():
    """Give a small metrics.toml."""
    return REGISTRY


@pytest.fixture(scope="session")
def registry():
    """Give the same, parsed."""
    return parse(REGISTRY)


@pytest.fixture(scope="session", autouse=True)
def _usual_umask():
    """Let nobody but the owner write what tests put beside the SDK's files, whatever the umask of whoever runs them."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def given_away(monkeypatch):
    """Make a file or link somebody else's: by root; by anybody else, who cannot, as far as the SDK sees."""

    def give(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, 54321, -1, follow_symlinks=False)
        else:
            monkeypatch.setattr("deniable.device.files._me", lambda: 54321)

    return give


@pytest.fixture
def sending_threads():
    """List the threads of the SDK that live now and did not when the test began."""

    def living() -> set[threading.Thread]:
        return {each for each in threading.enumerate() if each.name in ("deniable-sender", "deniable-courier")}

    before = living()
    return lambda: living() - before


@pytest.fixture
def in_child():
    """Run a function in a forked child and return the bytes it returned."""
    if not hasattr(os, "fork"):
        pytest.skip("this system has no fork")

    def run(function: Callable[[], bytes]) -> bytes:
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(receive)
                with os.fdopen(send, "wb") as pipe:
                    pipe.write(function())
                status = 0
            finally:
                os._exit(status)
        os.close(send)
        with os.fdopen(receive, "rb") as pipe:
            answer = pipe.read()
        _, status = os.waitpid(child, 0)
        assert status == 0, "the child failed"
        return answer

    return run


@pytest.fixture(scope="session")
def sealed():
    """Sign a registry's text, by a key of the tests or another; `sealed.public` is the key to pin."""
    pytest.importorskip("cryptography", reason="deniable[signed] is not installed")
    from deniable.served_registry.signature import generate, seal

    keys = {name: generate() for name in ("ours", "theirs")}

    def envelope(text: str, key: str = "ours", valid_until: date | None = None) -> bytes:
        return seal(text, keys[key][0], valid_until)[0].write()

    envelope.public = keys["ours"][1]
    envelope.private = keys["ours"][0]
    return envelope
