"""What tests of the SDK's processes share: what other tests of the SDK have, forked children, and a spool."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from sdk import nothing_told, quiet_environment, registry, registry_text, sending_threads, usual_umask  # noqa: F401
from senders import sending  # noqa: F401

from deniable.transport import Spool

if TYPE_CHECKING:
    from collections.abc import Callable


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


@pytest.fixture
def spool(tmp_path):
    """Open a spool, and let go at the end of what was taken."""
    (tmp_path / "shop").mkdir()
    opened = Spool(tmp_path / "shop" / "spool")
    yield opened
    opened.reset()
