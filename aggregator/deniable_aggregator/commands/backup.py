"""The subcommand ``backup``: copy a running store into a file."""

from __future__ import annotations

import os
import time
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable.platform.files import sync
from deniable_aggregator.commands import options
from deniable_aggregator.process import running

if TYPE_CHECKING:
    import argparse

    from deniable.commands.parser import Run

_NAME = "%Y-%m-%dT%H%M%SZ"
_LATEST = 300.0  # seconds that a server may be silent while it writes


def backup(parser: argparse.ArgumentParser) -> Run:
    """``deniable backup --redis-url URL --to FOLDER [--keep-days N]``."""
    # Exit status: 0 if the copy is there; 2 for a wrong configuration; 3 if the store cannot be used.
    options.add_store(parser)
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="where the copy goes; made where there is none")
    about = "remove copies in the folder that are older (default: none is removed)"
    parser.add_argument("--keep-days", type=options.whole_number, metavar="N", help=about)

    @options.answered
    def run(arguments: argparse.Namespace) -> int:
        from deniable_aggregator.store.url import kind  # needs the extra: the help of a command does not

        url = options.environment(arguments)["DENIABLE_REDIS_URL"]
        if kind(url) == "cluster":
            raise ConfigurationError("backup copies one server: name each primary of a cluster by its own redis:// URL")
        if arguments.keep_days is not None and arguments.keep_days < 1:
            raise ConfigurationError(f"--keep-days {arguments.keep_days}: write a whole number of at least 1")
        try:
            arguments.to.mkdir(mode=0o700, parents=True, exist_ok=True)
            doubt = _note(url, begun=True)
            file, size = _copy(url, arguments.to)
            removed = _expire(arguments.to, arguments.keep_days) if arguments.keep_days else 0
        except OSError as error:
            raise ConfigurationError(f"--to {arguments.to}: the copy cannot be written ({error.strerror})") from None
        print(f"{file}: {size:,} bytes")
        if doubt := _note(url) or doubt:
            print(doubt)
        if removed:
            print(f"removed: copies older than {arguments.keep_days} days {removed}")
        print("it has all that the store has, also what retention or an erasure deletes later: encrypt it, and let it expire")
        keys = _key_file(arguments.data or running.FOLDER, url)
        if keys:
            print(f"it does not have {keys}: copy that file, too; without it other keys are drawn, and devices get 401")
        return 0

    return run


def _key_file(folder: Path, url: str) -> Path | None:
    """Return the file with the keys of the `deniable serve` whose store was copied; None if there is none."""
    served = running.find(folder)
    keys = folder / running.KEYS
    return keys if served and served.environment["DENIABLE_REDIS_URL"] == url and keys.is_file() else None


def _copy(url: str, folder: Path) -> tuple[Path, int]:
    """Copy the store into a new file, which only its owner can read; it has its name once it is whole and on the disk."""
    from deniable_aggregator.store.server import snapshot

    file = folder / f"{datetime.now(UTC):{_NAME}}.rdb"
    part = file.with_suffix(".rdb.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as sink, closing(options.opened(url, timeout=_LATEST)) as client:
            size = snapshot.copy(client, sink)
            sink.flush()
            os.fsync(sink.fileno())
        part.rename(file)
    finally:
        part.unlink(missing_ok=True)
    with suppress(OSError):  # not every file system can
        sync(folder)
    return file, size


def _note(url: str, *, begun: bool = False) -> str:
    """Leave the time of the copy for the doctor; return why that was not possible."""
    from deniable_aggregator.store.errors import StoreError, cause
    from deniable_aggregator.store.server import snapshot

    try:
        with closing(options.opened(url)) as client:
            (snapshot.begin if begun else snapshot.note)(client, time.time())
    except StoreError as error:
        return f"`deniable doctor` does not know of it: it could not be noted in the store ({cause(error)})"
    return ""


def _expire(folder: Path, days: int) -> int:
    """Remove copies whose names say that they are older; return how many there were."""
    before = f"{datetime.now(UTC) - timedelta(days=days):{_NAME}}"
    old = [path for path in folder.glob("????-??-??T??????Z.rdb") if path.stem < before]
    for path in old:
        path.unlink()
    return len(old)
