"""The subcommand ``dead-letters``: list batches that could not be counted, and requeue or remove them."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable_aggregator.commands import options

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from deniable.commands.parser import Run
    from deniable_aggregator.store.uploads.dead_letters import DeadLetter, DeadLetters

_ID = re.compile(r"(\d{1,3}/)?\d{1,20}-\d{1,20}")
_MAX_BACKLOG = 10_000  # batches


def dead_letters(parser: argparse.ArgumentParser) -> Run:
    """``deniable dead-letters list|show|requeue|purge --redis-url URL --app NAME``."""
    # Exit status: 0 done; 1 if an id is unknown, or a batch could not be requeued; 2 for a wrong configuration; 3 if the store
    # cannot be used.
    options.add(parser)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="one line each: id, size, reports, reason")
    show = actions.add_parser("show", help="what one contains, without its reports")
    show.add_argument("id")
    for name, words in (("requeue", "put it back to be counted, once"), ("purge", "remove it for good")):
        action = actions.add_parser(name, help=words)
        action.add_argument("ids", nargs="*", metavar="ID")
        action.add_argument("--all", action="store_true", help="all dead letters")
    actions.choices["requeue"].add_argument(
        "--max-backlog",
        type=int,
        default=_MAX_BACKLOG,
        metavar="N",
        help=f"stop when so many batches wait (default {_MAX_BACKLOG})",
    )

    @options.answered
    def run(arguments: argparse.Namespace) -> int:
        from deniable_aggregator.audit.log import AuditLog
        from deniable_aggregator.store.uploads.dead_letters import DeadLetters

        environment = options.environment(arguments)
        store = options.store(environment, arguments.app, "dead-letters looks at")
        letters = DeadLetters(store)
        if arguments.action == "list":
            return _list(list(letters))
        if arguments.action == "show":
            return _show(letters.get(_checked(arguments.id)))
        if bool(arguments.ids) == arguments.all:
            raise ConfigurationError(f"{arguments.action} takes ids or --all")
        named = list(map(_checked, arguments.ids))
        there = list(letters) if arguments.all else [letter for id_ in named if (letter := letters.get(id_))]
        ids = named or [letter.id for letter in there]
        if there:  # nothing is done that is not in the audit log
            event = {"purge": "letters.purged", "requeue": "letters.requeued"}[arguments.action]
            reports = sum(letter.reports for letter in there)
            AuditLog(store).append(event, "command", {"letters": len(there), "reports": reports})
        if arguments.action == "purge":
            purged = letters.purge(ids)
            print(f"purged {purged}")
            return int(purged < len(ids))
        return _requeue(letters, ids, arguments.max_backlog)

    return run


def _checked(id_: str) -> str:
    if not _ID.fullmatch(id_):
        raise ConfigurationError(f"{id_!r} is no id: write two numbers joined by -, as `deniable dead-letters list` shows them")
    return id_


def _list(letters: Sequence[DeadLetter]) -> int:
    if not letters:
        print("no dead letters: every batch could be counted so far, or was removed", file=sys.stderr)
    for letter in letters:
        size = "-" if letter.size is None else letter.size
        print(f"{letter.id}  {size:>8} bytes  {letter.reports:>8} reports  {letter.reason}")
    return 0


def _show(letter: DeadLetter | None) -> int:
    """Print the structure of a dead letter. Its reports are not printed: together they are of one upload."""
    if letter is None:
        print("there is no such dead letter", file=sys.stderr)
        return 1
    print(f"id       {letter.id}\nreason   {letter.reason}")
    print("batch    none" if letter.size is None else f"batch    {letter.size} bytes")
    if letter.size is not None and not letter.groups:
        print("groups   cannot be read")
    for group in letter.groups:
        stratum, layout = group.stratum, group.layout
        print(
            f"group    {stratum.metric} version {stratum.version} ({stratum.fingerprint}), period {stratum.period}, "
            f"segment {stratum.segment or 'none'}: {group.reports} reports, {layout.rows} x {layout.width} {layout.kind}"
        )
    return 0


def _requeue(letters: DeadLetters, ids: Iterable[str], cap: int) -> int:
    failed = False
    for id_ in ids:
        outcome = letters.requeue(id_, cap)
        print(f"{id_}  {outcome}")
        failed = failed or outcome != "requeued"
        if outcome == "full":  # then there is no room for the next one either
            break
    return int(failed)
