"""What the client's tests share: a feed in place of the system's generator, a bound for chi-square, an empty environment."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from sdk import nothing_told, quiet_environment, registry, registry_text, sending_threads, usual_umask  # noqa: F401
from senders import sending, time_for_the_disk  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import date
    from pathlib import Path


class Feed:
    """Hands out prescribed bytes for `os.urandom`, call by call, and remembers how many were asked for."""

    def __init__(self, chunks: Iterable[Callable[[int], bytes] | bytes]) -> None:
        self._chunks = iter(chunks)
        self.sizes: list[int] = []
        self.outputs: list[bytes] = []

    def __call__(self, size: int) -> bytes:
        self.sizes.append(size)
        chunk = next(self._chunks)
        chunk_bytes = chunk(size) if callable(chunk) else chunk
        assert len(chunk_bytes) == size, f"the feed has {len(chunk_bytes)} bytes where {size} were asked for"
        self.outputs.append(chunk_bytes)
        return chunk_bytes


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


@pytest.fixture
def given_away(monkeypatch):
    """Make a file or link somebody else's: by root; by anybody else, who cannot, as far as the SDK sees."""

    def give(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, 54321, -1, follow_symlinks=False)
        else:
            monkeypatch.setattr("deniable.platform.owners._me", lambda: 54321)

    return give


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
