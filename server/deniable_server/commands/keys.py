"""The subcommand ``keys``: make, list and revoke the keys of an app."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from deniable.commands.terminal import print_table
from deniable.errors import ConfigurationError
from deniable_aggregator.commands import options
from deniable_server.access.roles import ROLES

if TYPE_CHECKING:
    import argparse
    from datetime import date

    from deniable.commands.parser import Run
    from deniable_server.access.keys import KeyStore


_WITHOUT = {
    "ingest": "every app that has it is answered 401, and its devices stop sending",
    "relay": "its relay is answered 401, and keeps its pools until it has another key",
    "read": "nobody opens the dashboard or asks for numbers with it, and its sessions end",
    "admin": "nobody sees with it what is not published yet, or revokes keys over HTTP",
}
"""What stops when the last key of a role is revoked."""


def keys(parser: argparse.ArgumentParser) -> Run:
    """``deniable keys create --role ROLE [--name TEXT] [--epsilon NATS] [--undeclared] | list [--json] | revoke ID [--yes]``."""
    # Exit status: 0 done, 1 if the id is unknown, 2 for a wrong configuration or the last key of a role without --yes, 3 if the
    # store cannot be used.
    options.add_store(parser)
    parser.add_argument("--app", help="the app (default: the one of the registry)")
    parser.add_argument("--registry", metavar="FILE", help="metrics.toml of the app (default: DENIABLE_REGISTRY)")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="make a key, and print it this once")
    create.add_argument("--role", choices=list(ROLES), required=True, help="what it opens; an ingest key is public")
    create.add_argument("--name", default="", help="a label, e.g. the release that contains it")
    epsilon = (
        "nats of each month that this read key may spend on withheld numbers, at most per_key of [analysts] (default: per_key); "
        "two keys of one person count as two persons"
    )
    create.add_argument("--epsilon", type=float, metavar="NATS", help=epsilon)
    create.add_argument("--undeclared", action="store_true", help="also for an app that no registry declares yet")
    listing = actions.add_parser("list", help="list the keys, which are never shown again")
    listing.add_argument("--json", action="store_true", help="for programs")
    revoke = actions.add_parser("revoke", help="revoke a key")
    revoke.add_argument("id", help="as `list` shows it")
    revoke.add_argument("--yes", action="store_true", help="also the last key of its role")

    @options.answered
    def run(arguments: argparse.Namespace) -> int:
        from deniable_aggregator.store import Store
        from deniable_aggregator.store.uploads import registries
        from deniable_server.access.keys import KeyStore

        variables = options.environment(arguments)
        apps = options.declared_apps(variables["DENIABLE_REGISTRY"])
        app = arguments.app or "".join(apps[:1] if len(apps) == 1 else ())
        if not app:
            raise ConfigurationError(f"a key is for one app: {options.name_one(apps)}")
        client = options.opened(variables["DENIABLE_REDIS_URL"])
        of_app = Store(client, app)
        store = KeyStore(of_app)
        if arguments.action == "create":
            if app not in apps and not arguments.undeclared:
                rule = f"no registry declares {app!r}{options.meant(app, apps)}, so no server would take the key"
                raise ConfigurationError(
                    f"{rule}: name its metrics.toml by --registry or DENIABLE_REGISTRY, or give --undeclared"
                )
            if arguments.epsilon is not None:
                _check_below(variables["DENIABLE_REGISTRY"], app, arguments.epsilon)
            status = _create(store, arguments.role, arguments.name, arguments.epsilon)
            elsewhere = registries.served(Store(client, other) for other in apps)
            if elsewhere and app not in elsewhere:
                warning = f"warning: servers run, but serve {', '.join(elsewhere)} only: restart them"
                print(f"{warning} with a DENIABLE_REGISTRY that names the registry of {app}", file=sys.stderr)
            return status
        options.check_known(variables, [of_app])
        if arguments.action == "list":
            return _list(store, as_json=arguments.json)
        return _revoke(store, arguments.id, yes=arguments.yes)

    return run


def _check_below(paths: str, app: str, epsilon: float) -> None:
    """Refuse a budget above what the registry gives each key: it would have no effect."""
    from deniable.registry import published

    loaded, _ = published.tried(paths)
    if app in loaded:
        analysts = loaded[app].analysts
        most = min(analysts.epsilon, analysts.per_key)
        if epsilon > most:
            rule = f"--epsilon: write at most {most:g}, what [analysts] of {app} gives each key; this is {epsilon:g}"
            raise ConfigurationError(f"{rule}. A key's own budget only lowers it")


def _create(store: KeyStore, role: str, name: str, epsilon: float | None) -> int:
    text, key = store.create(role, name, epsilon)
    print(text)
    own = "" if epsilon is None else f", at most {epsilon:g} nats of each month"
    print(f"id {key.id}, role {role}, app {store.app}{own}. It cannot be shown again.", file=sys.stderr)
    return 0


def _list(store: KeyStore, *, as_json: bool) -> int:
    listed = store.all()
    if as_json:
        print(json.dumps([key.public() for key in listed], indent=2))
        return 0
    if not listed:
        words = (
            "no key was made with `deniable keys create`; keys of the environment and of `deniable serve` are not in the store"
        )
        print(words, file=sys.stderr)
        return 0
    rows = [
        (
            key.id,
            key.role,
            key.start,
            _day(key.created),
            _day(key.used),
            "-" if key.epsilon is None else f"{key.epsilon:g}",
            key.name,
        )
        for key in listed
    ]
    print_table([("ID", "ROLE", "STARTS WITH", "CREATED", "LAST USED", "EPSILON", "NAME"), *rows])
    return 0


def _revoke(store: KeyStore, id_: str, *, yes: bool) -> int:
    from deniable_server.access.key_ring import FRESH_SECONDS

    known = store.load()
    role = next((key.role for key in known if key.id == id_), None)
    if role and not yes and sum(key.role == role for key in known) == 1:
        raise ConfigurationError(
            f"{id_} is the last {role} key of {store.app} in the store. Without it {_WITHOUT[role]}. Make another one first "
            f"(`deniable keys create --app {store.app} --role {role}`), or give --yes"
        )
    if not store.revoke(id_):
        print(f"no key of {store.app} has this id: {id_}", file=sys.stderr)
        return 1
    print(f"revoked; servers refuse it within {FRESH_SECONDS:g} s", file=sys.stderr)
    return 0


def _day(day: date | None) -> str:
    return day.isoformat() if day else "never"
