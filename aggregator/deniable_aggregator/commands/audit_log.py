"""The subcommand ``audit-log``: list and verify an app's audit log, and move old entries to files."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable.messages.plural import plural
from deniable_aggregator.audit.entry import EVENTS, intact_entry
from deniable_aggregator.commands import options

if TYPE_CHECKING:
    from deniable.commands.parser import Run
    from deniable_aggregator.audit.files import Verification
    from deniable_aggregator.audit.log import AuditLog

_ANCHOR = re.compile(r"([1-9]\d{0,15}):([0-9a-f]{64})")
_DAY = 86400
_MOST_DAYS = 36500


def audit_log(parser: argparse.ArgumentParser) -> Run:
    """``deniable audit-log verify|list|head|rotate|restored --redis-url URL --app NAME``."""
    # Exit status: 0 done, or the log is whole; 1 if it is broken, if it has no end to print, or if somebody else rotates it at
    # the moment; 2 for a wrong configuration; 3 if the store cannot be used.
    options.add(parser)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    verify = actions.add_parser("verify", help="find every edit and every gap")
    verify.add_argument("--files", type=Path, metavar="DIR", help="folder of rotated entries; they are verified, too")
    verify.add_argument(
        "--anchor", type=_anchor, action="append", default=[], metavar="N:HASH", help="as `head` printed it; may be repeated"
    )
    verify.add_argument("--json", action="store_true", help="for programs")
    listing = actions.add_parser("list", help="one line for each entry in the store")
    listing.add_argument("--event", choices=list(EVENTS), help="only these")
    listing.add_argument("--json", action="store_true", help="the entries as they are written")
    actions.add_parser("head", help="number and hash of the last entry: an anchor, to be kept elsewhere")
    restored = actions.add_parser("restored", help="after the store was restored: put aside the files of the time that was lost")
    restored.add_argument("--files", type=Path, required=True, metavar="DIR", help="folder of rotated entries")
    rotate = actions.add_parser("rotate", help="move old entries to files, and delete files that are old enough")
    rotate.add_argument("--to", type=Path, required=True, metavar="DIR", help="folder of the files of this log")
    rotate.add_argument("--older-than", type=_days, required=True, metavar="DAYS", help="age from which on entries are moved")
    rotate.add_argument("--retain", type=_days, metavar="DAYS", help="age from which on files are deleted (default: never)")

    @options.answered
    def run(arguments: argparse.Namespace) -> int:
        from deniable_aggregator.audit.log import AuditLog, Rotated

        environment = options.environment(arguments)
        store = options.store(environment, arguments.app, "audit-log looks at", unknown=True)
        log = AuditLog(store)
        try:
            if not _has_files(getattr(arguments, "files", None), store.app):  # a store that was lost knows less than they do
                options.check_known(environment, [store])
            if arguments.action == "verify":
                return _verify(log, arguments.files, dict(arguments.anchor), as_json=arguments.json)
            if arguments.action == "list":
                return _list(log, arguments.event, as_json=arguments.json)
            if arguments.action == "head":
                return _head(log)
            if arguments.action == "restored":
                return _put_aside(log, arguments.files)
            return _rotate(log, arguments.to, arguments.older_than, arguments.retain)
        except Rotated:
            print("somebody else rotates this log at the moment; try again", file=sys.stderr)
            return 1
        except OSError as error:
            raise ConfigurationError(f"the files of the audit log cannot be used: {error}") from None

    return run


def _has_files(folder: Path | None, app: str) -> bool:
    """Return whether a folder has files of an app's log."""
    from deniable_aggregator.audit import files

    return folder is not None and bool(files.files(folder, app))


def _anchor(text: str) -> tuple[int, str]:
    match = _ANCHOR.fullmatch(text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no anchor: write N:HASH, as `deniable audit-log head` prints it")
    return int(match[1]), match[2]


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not 0 <= days <= _MOST_DAYS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days: write 0 to {_MOST_DAYS}")
    return days


def _verify(log: AuditLog, folder: Path | None, anchors: dict[int, str], *, as_json: bool) -> int:
    from deniable_aggregator.audit import files

    verification = files.verify(log, folder, anchors)
    if as_json:
        print(json.dumps({"app": log.app, "whole": not verification.faults} | asdict(verification)))
    else:
        _print(log, verification)
    return int(bool(verification.faults))


def _print(log: AuditLog, verification: Verification) -> None:
    for fault in verification.faults:
        print(fault)
    for note in verification.notes:
        print(f"note: {note}")
    if verification.faults:
        places = "1 place" if len(verification.faults) == 1 else f"{len(verification.faults)} places"
        print(f"the audit log of {log.app} is broken in {places}")
    elif verification.entries:
        print(f"{plural(verification.entries, 'entry')} of {log.app}, whole as far as {verification.number}:{verification.hash}")
    else:
        print(f"nothing was ever logged of {log.app}, or all of it was removed")


def _list(log: AuditLog, event: str | None, *, as_json: bool) -> int:
    begins = number = 0  # number of the first entry in the store; entries that are listed
    for line in log.lines(log.first()):
        entry = intact_entry(line)
        begins = begins or (entry.number if entry else 0)
        number += entry is not None and event in (None, entry.event)
        if entry is None:
            print("no entry; ask `deniable audit-log verify`", file=sys.stderr)
        elif event in (None, entry.event):
            details = " ".join(f"{name}={value}" for name, value in sorted(entry.details.items()))
            print(
                line.decode() if as_json else f"{entry.number:>8}  {entry.moment}  {entry.event:<18} {entry.actor:<20} {details}"
            )
    moved = f"; entries 1 to {begins - 1} were moved to files by `rotate`" if begins > 1 else ""
    if not number or moved:
        which = f"of {event} " if event else ""
        print(
            f"{plural(number, 'entry')} {which}in the store{moved}" if number else f"no entry {which}in the store{moved}",
            file=sys.stderr,
        )
    return 0


def _put_aside(log: AuditLog, folder: Path) -> int:
    from deniable_aggregator.audit import files

    lost = files.put_aside(log, folder)
    for path in lost:
        print(f"put aside: {path}")
    if not lost:
        print("no file is of a later time than the store: `rotate` goes on as before")
    return 0


def _head(log: AuditLog) -> int:
    last = log.last()
    if last is None:
        print(f"nothing was ever logged of {log.app}, or all of it was removed", file=sys.stderr)
        return 1
    print(f"{last.number}:{last.hash}")
    return 0


def _rotate(log: AuditLog, folder: Path, older_than: float, retain: float | None) -> int:
    from deniable_aggregator.audit import files

    if retain is not None and retain < older_than:
        raise ConfigurationError(f"--retain is {retain:g} days, less than --older-than, {older_than:g}: write a longer --retain")
    now = int(time.time())
    for path in files.rotate(log, folder, now - int(older_than * _DAY)):
        print(f"moved to {path}")
    if retain is not None:
        # Files of a broken log stay: they may show what happened.
        verification = files.verify(log, folder)
        if verification.faults:
            _print(log, verification)
            print("nothing was deleted: these files may be needed to see what happened", file=sys.stderr)
            return 1
        for path in files.expire(log, folder, now - int(retain * _DAY)):
            print(f"deleted {path}")
    return _head(log)
