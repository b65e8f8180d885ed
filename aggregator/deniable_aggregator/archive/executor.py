"""Executors, which count files on the cores of this machine or of a cluster."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

PROCESS = "process"
"""An executor of as many processes as there are cores."""
_DASK = "dask://"


@contextmanager
def start(name: str = PROCESS) -> Iterator[Executor]:
    """Start an executor, or connect to one: ``process``, or ``dask://HOST:PORT`` for a scheduler of Dask."""
    if name == PROCESS:
        # The threads of an object store's client do not survive a fork.
        with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as processes:
            yield processes
        return
    if not name.startswith(_DASK):
        raise ConfigurationError(f"--executor {name!r}: write {PROCESS} or {_DASK}HOST:PORT")
    try:
        from distributed import Client  # noqa: PLC0415 - of no extra of ours
    except ModuleNotFoundError:
        raise ConfigurationError(f"--executor {_DASK}... needs Dask: pip install distributed") from None
    try:
        client = Client(name.removeprefix(_DASK))  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"--executor: no scheduler of Dask answers at {name} ({type(error).__name__})") from None
    with client, client.get_executor() as executor:  # type: ignore[no-untyped-call]
        yield executor
