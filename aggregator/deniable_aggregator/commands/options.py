"""Options of commands that use the store, and their errors if it cannot be used."""

from __future__ import annotations

import os
import sys
from functools import wraps
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable_aggregator.store import Store, connect
from deniable_aggregator.store.errors import StoreError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from deniable_aggregator.store import Client

__all__ = ["STORE_STATUS", "add", "answered", "opened", "stores"]

_APP = "name in the registry; may be repeated (default: DENIABLE_APPS, else the apps of the registries in DENIABLE_REGISTRY)"

STORE_STATUS = 3
"""Exit status if the store cannot be used."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add ``--redis-url`` and ``--app`` to a command."""
    parser.add_argument("--redis-url", default=os.environ.get("DENIABLE_REDIS_URL"), help="default: DENIABLE_REDIS_URL")
    parser.add_argument("--app", action="append", metavar="NAME", help=_APP)


def stores(arguments: argparse.Namespace) -> list[Store]:
    """Open the store of each app that was named, without connecting.

    Raises
    ------
    ConfigurationError
        If no store or no app is given, or the URL is invalid.
    """
    if not arguments.redis_url:
        raise ConfigurationError("this needs --redis-url; `deniable serve` starts a store and a worker of its own")
    apps = arguments.app or _apps(getattr(arguments, "registry", None))
    if not apps:
        raise ConfigurationError("this needs --app, the name in the registry, or DENIABLE_APPS or DENIABLE_REGISTRY")
    client = opened(arguments.redis_url)
    return [Store(client, app) for app in dict.fromkeys(apps)]


def _apps(paths: str | None) -> list[str]:
    """Return the apps that the environment names, or else those of the given registries."""
    named = [app.strip() for app in os.environ.get("DENIABLE_APPS", "").split(",")]
    if any(named):
        return list(filter(None, named))
    paths = paths or os.environ.get("DENIABLE_REGISTRY", "")
    if not paths:
        return []
    from deniable.registry import published  # noqa: PLC0415 - not needed if the apps are named

    return list(published.load_all(paths))


def opened(url: str, *, timeout: float = 10.0) -> Client:
    """Make a client of the store, without connecting.

    Parameters
    ----------
    url
        As in ``DENIABLE_REDIS_URL``.
    timeout
        As `store.connect` takes it.

    Raises
    ------
    ConfigurationError
        If the URL is invalid.
    """
    try:
        return connect(url, timeout=timeout)
    except ValueError:  # its text may contain a password
        raise ConfigurationError("DENIABLE_REDIS_URL, --redis-url: redis://, rediss:// or unix://, as redis-py has it") from None


def answered(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Wrap a command: if the store cannot be used, it says so and ends with `STORE_STATUS`."""

    @wraps(run)
    def answering(arguments: argparse.Namespace) -> int:
        try:
            return run(arguments)
        except StoreError as error:
            print(f"the store cannot be used ({type(error).__name__})", file=sys.stderr)
            return STORE_STATUS

    return answering
