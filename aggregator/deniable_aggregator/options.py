"""The options by which commands find their store and apps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable_aggregator.store import Store, connect

if TYPE_CHECKING:
    import argparse

__all__ = ["add", "stores"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add ``--redis-url`` and ``--app`` to a command."""
    parser.add_argument("--redis-url", default=os.environ.get("DENIABLE_REDIS_URL"), help="default: DENIABLE_REDIS_URL")
    parser.add_argument("--app", action="append", metavar="NAME", help="name in the registry; may be repeated")


def stores(arguments: argparse.Namespace) -> list[Store]:
    """Open the store of each app that was named; nothing is sent to it yet.

    Raises
    ------
    ConfigurationError
        If no store or no app is given, or the URL is none.
    """
    if not arguments.redis_url:
        raise ConfigurationError("this needs --redis-url; `deniable serve` starts a store and a worker of its own")
    if not arguments.app:
        raise ConfigurationError("this needs --app, the name in the registry; it may be repeated")
    try:
        client = connect(arguments.redis_url)
    except ValueError:  # whose text may repeat a password
        raise ConfigurationError("--redis-url begins with redis://, rediss:// or unix://") from None
    return [Store(client, app) for app in dict.fromkeys(arguments.app)]
