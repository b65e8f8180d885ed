"""The ``deniable`` command: a thin front that finds its subcommands by entry point.

Each subcommand is a function that takes an argparse parser and adds its arguments. It returns the function that runs the
subcommand (`Run`). A subcommand imports what an extra brings when it runs. Without the extra it shows its options all the same,
and says which ``pip install`` adds it.
"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import deniable
from deniable.commands import terminal
from deniable.commands.catalogue import CATALOGUE, GROUPS, NOT_ON_WINDOWS, CommandInfo, actions
from deniable.commands.parser import Parser
from deniable.errors import DeniableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from deniable.commands.parser import Run

    Command = Callable[[argparse.ArgumentParser], Run]

_UNKNOWN = CommandInfo("", "", ())  # of a command that another package brings
_INTERRUPTED = 130  # the status that a shell reports for a program ended by Ctrl-C


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    # It is 0 if all went well, 1 if a check failed, 2 for wrong usage or configuration, and 130 after Ctrl-C. If nobody reads the
    # output any more, the process ends with `terminal.CLOSED_STATUS`.
    with terminal.guarded():
        try:
            return _main(list(sys.argv[1:] if arguments is None else arguments))
        except KeyboardInterrupt:
            print("Stopping ...", file=sys.stderr)
            return _INTERRUPTED


def _main(arguments: list[str]) -> int:
    commands = {point.name: point for point in entry_points(group="deniable.commands")}
    parser = Parser(prog="deniable", description="Telemetry that nobody can hold against the person who sent it.")
    parser.elsewhere = actions()
    parser.epilog = _listed(commands)
    parser.add_argument("--version", action="version", version=f"deniable {deniable.__version__}")
    options = {"help": argparse.SUPPRESS, "prog": parser.prog}  # the epilog lists them
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", **options)
    parser.usage = f"{parser.prog} [-h] [--version] COMMAND ..."
    chosen = arguments[0] if arguments else ""
    run: Run | None = None
    for name in sorted(commands):
        about = CATALOGUE.get(name, _UNKNOWN)
        subparser = subparsers.add_parser(name, help=about.summary)
        if name != chosen:  # only the chosen command is imported
            continue
        command: Command = commands[name].load()
        run = command(subparser)
        subparser.complete(about.examples, about.extra)
    if not arguments:
        parser.print_help()
        return 2
    parsed = parser.parse_args(arguments)
    if run is None:
        return 2
    if chosen in NOT_ON_WINDOWS and sys.platform == "win32":
        print(f"deniable {chosen} does not run on Windows; use Linux, macOS, WSL or a container", file=sys.stderr)
        return 2
    try:
        return run(parsed)
    except DeniableError as error:
        print(f"deniable {chosen}: {error}", file=sys.stderr)
    except ModuleNotFoundError as error:
        print(f"deniable {chosen} {_lack(error, CATALOGUE.get(chosen, _UNKNOWN))}", file=sys.stderr)
    return 2


def _listed(commands: Collection[str]) -> str:
    """List the commands in their groups, and those of other packages after them."""
    groups = {**GROUPS, "more": tuple(sorted(set(commands) - CATALOGUE.keys()))}
    lines = []
    for group, names in groups.items():
        known = [f"  {name:<12}  {CATALOGUE.get(name, _UNKNOWN).summary}".rstrip() for name in names if name in commands]
        lines += ["", f"{group}:", *known] if known else []
    return "\n".join([*lines[1:], "", "Options and examples of a command: deniable COMMAND --help"])


def _lack(error: ModuleNotFoundError, about: CommandInfo) -> str:
    """Tell which extra brings a module; raise where none does."""
    if not about.extra or (error.name or "").startswith("deniable"):
        raise error
    return f"needs {error.name}, which is not installed: pip install 'deniable[{about.extra}]'"
