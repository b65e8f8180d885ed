"""Options that several commands share, and what they do if the store cannot be used."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from decimal import Decimal, InvalidOperation
from functools import wraps
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.commands import terminal
from deniable.errors import ConfigurationError
from deniable_aggregator.process import running
from deniable_aggregator.process.variables import ARCHIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from deniable.commands.parser import Run
    from deniable.registry.published import Faulty
    from deniable_aggregator.archive.folder import Folder
    from deniable_aggregator.store import Client, Store

_URL, _REGISTRY, _APPS = "DENIABLE_REDIS_URL", "DENIABLE_REGISTRY", "DENIABLE_APPS"

_SEED_BITS = 64

_USERS = {"backup": "backup", "publish": "worker", "recount": "worker", "simulate": "worker", "report": "query"}
"""Users of the store that commands run as; all others run as `operator`."""

STORE_STATUS = 3
"""Exit status if the store cannot be used."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a store and its apps."""
    add_store(parser)
    add_apps(parser)


def add_store(parser: argparse._ActionsContainer) -> None:
    """Add ``--redis-url`` and ``--data``, each of which names a store."""
    parser.add_argument("--redis-url", metavar="URL", help="the store (default: DENIABLE_REDIS_URL)")
    about = f"of a running `deniable serve`: its store and its apps (default: {running.FOLDER}, where no store is named)"
    parser.add_argument("--data", type=Path, metavar="DIR", help=about)


def add_apps(parser: argparse.ArgumentParser) -> None:
    """Add ``--app``, which may be repeated."""
    about = f"name in the registry; may be repeated (default: {_APPS}, else the apps of the registries in {_REGISTRY})"
    parser.add_argument("--app", action="append", metavar="NAME", help=about)


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Add ``--seed``."""
    parser.add_argument("--seed", type=int, metavar="S", help="for the same result again (default: another one each time)")


def add_archive(parser: argparse.ArgumentParser, about: str) -> None:
    """Add ``--archive``, with a text on what the command does with it."""
    parser.add_argument("--archive", metavar="URL", help=f"{about} (default: {ARCHIVE}, else none)")


def archive(
    arguments: argparse.Namespace,  # with `--archive`
) -> Folder | None:
    """Open the archive, if one is named. ConfigurationError if the URL is invalid, or a library is missing."""
    url = arguments.archive or os.environ.get(ARCHIVE)
    if not url:
        return None
    try:
        from deniable_aggregator.archive.folder import Folder
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"--archive needs {error.name}, which is not installed: pip install 'deniable[archive]'"
        ) from None
    return Folder(url)


def seed(arguments: argparse.Namespace) -> int:
    """Return the number of ``--seed``, or a new one."""
    if arguments.seed is None:
        return secrets.randbits(_SEED_BITS)
    if arguments.seed < 0:
        raise ConfigurationError("--seed is a whole number of at least 0")
    return int(arguments.seed)


def environment(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the variables of a command: those of a running ``deniable serve``, or else of this process."""
    # Options replace variables. If no store is named, it is the one of the `deniable serve` that runs in this folder.
    if arguments.data and arguments.redis_url:
        raise ConfigurationError("--redis-url and --data both name a store: leave one of them out")
    variables = dict(os.environ)
    if arguments.data or not (arguments.redis_url or variables.get(_URL)):
        served = running.find(arguments.data or running.FOLDER)
        if served is not None:
            variables = served.environment
        elif arguments.data:
            raise ConfigurationError(f"no `deniable serve` runs with --data {arguments.data}: start one, or leave --data out")
    # Both variables are set from here on, perhaps to an empty text.
    for option, variable in (("redis_url", _URL), ("registry", _REGISTRY)):
        variables[variable] = getattr(arguments, option, None) or variables.get(variable, "")
    if not variables[_URL]:
        raise ConfigurationError(
            f"no store is named, and no `deniable serve` runs in this folder: set {_URL}, or give --redis-url, or --data of one"
        )
    return variables


def stores(
    variables: Mapping[str, str],  # as `environment` returns them
    apps: Sequence[str] | None,  # of `--app`; without it the variables name them
) -> list[Store]:
    """Open the store of each app, without connecting. ConfigurationError if no app is named, or the URL is invalid."""
    from deniable_aggregator.store import Store

    apps = apps or _apps(variables)
    if not apps:
        raise ConfigurationError(f"this needs --app, the name in the registry, or {_APPS} or {_REGISTRY}")
    client = opened(variables[_URL])
    return [Store(client, app) for app in dict.fromkeys(apps)]


def store(
    # variables, apps: as `stores` takes them
    variables: Mapping[str, str],
    apps: Sequence[str] | None,
    doing: str,  # what the command does with it, as the beginning of an error
    *,
    unknown: bool = False,  # whether it may be an app that `check_known` refuses
) -> Store:
    """Open the store of one app. ConfigurationError if several apps are named, or one that nobody knows."""
    of_apps = stores(variables, apps)
    if len(of_apps) > 1:
        raise ConfigurationError(f"{doing} one app at a time: {name_one([each.app for each in of_apps])}")
    if not unknown:
        check_known(variables, of_apps)
    return of_apps[0]


def name_one(
    apps: Collection[str],  # that are known
) -> str:
    """Say how to name one app."""
    return f"give --app, {'one of ' + ', '.join(sorted(apps)) if apps else 'its name in the registry'}"


def _apps(variables: Mapping[str, str]) -> list[str]:
    """Return the apps that the variables name, or else those of the registries."""
    if listed := _listed(variables):
        return listed
    if not (paths := variables.get(_REGISTRY)):
        return []
    from deniable.registry import published

    apps, faulty = _tried(paths)
    if not apps:
        raise published.joined(faulty)
    _tell(faulty)
    return apps


def _listed(variables: Mapping[str, str]) -> list[str]:
    return [app for each in variables.get(_APPS, "").split(",") if (app := each.strip())]


def declared_apps(paths: str) -> list[str]:
    """Return the apps of registries, also of one that has faults; it is named on stderr."""
    apps, faulty = _tried(paths)
    _tell(faulty)
    return apps


def _tried(paths: str) -> tuple[list[str], list[Faulty]]:
    """Return the apps of registries, and which files have faults."""
    from deniable.registry import published

    loaded, faulty = published.tried(paths)
    return [*loaded, *(each.app for each in faulty if each.app)], faulty


def _tell(faulty: Iterable[Faulty]) -> None:
    """Name files with faults on stderr."""
    from deniable.registry import published

    for path, _, error in faulty:
        why = published.in_a_line(error)
        print(f"{why}\nServers and workers leave the app off: `deniable registry lint {path}`", file=sys.stderr)


def check_known(variables: Mapping[str, str], stores: Iterable[Store]) -> None:
    """Raise ConfigurationError for an app that no variable names and that the store has nothing of: its name may be mistyped."""
    known: list[str] | None = None
    for store in stores:
        if known is None:
            known = [*_listed(variables), *declared_apps(variables.get(_REGISTRY, ""))]
        if store.app not in known and not store.is_used():
            names = f"known apps are {', '.join(dict.fromkeys(known))}" if known else f"{_REGISTRY} names none"
            rule = f"no app {store.app!r}{meant(store.app, known)}: no registry declares it, and the store has nothing of it"
            raise ConfigurationError(f"{rule}; {names}")


def meant(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most similar, as a question; empty if none is."""
    from deniable.messages.lookalike import nearest

    near = nearest(name, sorted({*known} - {name}))
    return f" (did you mean {near!r}?)" if near else ""


def opened(
    url: str,  # as in `DENIABLE_REDIS_URL`
    *,
    timeout: float = 10.0,  # as `store.connect` takes it
) -> Client:
    """Make a client of the store, without connecting. ConfigurationError if the URL is invalid."""
    from deniable_aggregator.store import connect

    try:
        return connect(url, timeout=timeout)
    except ConfigurationError as error:
        raise ConfigurationError(f"{_URL}, --redis-url: {error}") from None


def answered(run: Run) -> Run:
    """Wrap a command: if the store cannot be used, it prints that and ends with `STORE_STATUS`."""

    @wraps(run)
    def answering(arguments: argparse.Namespace) -> int:
        from deniable_aggregator.store.errors import StoreError, cause, remedy

        try:
            return run(arguments)
        except StoreError as error:
            print(f"the store cannot be used: {cause(error)}", file=sys.stderr)
            url = getattr(arguments, "redis_url", None) or environment(arguments)[_URL]
            print(remedy(error, url, _USERS.get(arguments.command, "operator")), file=sys.stderr)
            return STORE_STATUS

    return answering


def whole_number(written: str) -> int:
    """Read a whole number, such as 100000 or 1e5."""
    try:
        read = Decimal(written)
        if read == int(read):
            return int(read)
    except (InvalidOperation, ValueError, OverflowError):
        pass
    raise argparse.ArgumentTypeError(f"a whole number is needed, such as 100000 or 1e5, not {written!r}")


def share(written: str) -> float:
    """Read a share, such as 0.03 or 3%."""
    try:
        return float(written.removesuffix("%")) / (100 if written.endswith("%") else 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a number or a percentage is needed, such as 0.03 or 3%, not {written!r}") from None


def drawing(module: str) -> Callable[..., None]:
    """Return the function `draw` of a module of this package. ConfigurationError if it needs a library that is missing."""
    try:
        draw: Any = import_module(f"deniable_aggregator.{module}").draw
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("deniable"):
            raise
        raise ConfigurationError(f"--plot needs {error.name}, which is not installed: pip install 'deniable[plots]'") from None
    return draw  # type: ignore[no-any-return] # each draws its own results


def progress(total: int, what: str) -> Callable[[], None]:
    """Return a function that shows progress on a terminal. It is called `total` times, once for each run or device."""
    screen, done = terminal.raw(sys.stderr), count(1)

    def advance() -> None:
        number = next(done)
        if screen.isatty():
            end = "\r" if number < total else "\r\033[K"
            print(f"{number:,} of {total:,} {what}", end=end, file=screen, flush=True)

    return advance
