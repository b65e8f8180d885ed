"""The command ``telemetry`` with ``on``, ``off``, ``show`` and ``status``, for apps made with argparse, click and typer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from deniable.errors import DeniableError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    import click
    import typer

    from deniable.cli.telemetry import Telemetry

_ABOUT = "look at what this program reports about its use, or change it"
_ACTIONS = {
    "on": "report how the program is used, with noise",
    "off": "report nothing any more, and delete what was not sent yet",
    "show": "show what is asked, and what was sent",
    "status": "say whether anything is reported, what waits, and when it travels",
}


def is_chosen(
    arguments: Sequence[str],  # of the tool's command line
) -> bool:
    """Return whether the command line is that of the command ``telemetry``, and not one with this word in another place."""
    # Before the command stand options and their values, and after it an action. We do not know which options take a value.
    for index, word in enumerate(arguments):
        before = arguments[index - 1] if index else ""
        after_option = before.startswith("-") and "=" not in before
        if word == "telemetry" and (not after_option or set(arguments[index + 1 : index + 2]) & {*_ACTIONS}):
            return True
        if not word.startswith("-") and not after_option:
            return False
    return False


def run(telemetry: Telemetry, action: str) -> int:
    """Do an action, and print what a person wants to know; return the exit status."""
    try:
        if action == "on":
            telemetry.turn_on()
        elif action == "off":
            telemetry.turn_off()
        print(telemetry.show() if action == "show" else telemetry.status())
    except (DeniableError, OSError) as error:
        print(f"{telemetry.command} telemetry {action}: {error}", file=sys.stderr)
        return 1
    return 0


def add_to_argparse(telemetry: Telemetry, subparsers: argparse._SubParsersAction[Any], func: str) -> None:
    """Add the command to the subcommands of an argparse app."""
    parser = subparsers.add_parser("telemetry", help=_ABOUT, description=_ABOUT)
    parser.add_argument("action", choices=_ACTIONS, help="; ".join(f"{name}: {about}" for name, about in _ACTIONS.items()))
    parser.set_defaults(**{func: lambda arguments: run(telemetry, arguments.action)})


def of_click(telemetry: Telemetry) -> click.Group:
    """Make the command for a click app."""
    import click

    group = click.Group("telemetry", help=_ABOUT)
    for action, about in _ACTIONS.items():
        group.add_command(click.Command(action, callback=_callback(telemetry, action), help=about))
    return group


def of_typer(telemetry: Telemetry) -> typer.Typer:
    """Make the command for a typer app."""
    import typer

    app = typer.Typer(name="telemetry", help=_ABOUT, no_args_is_help=True)
    for action, about in _ACTIONS.items():
        app.command(action, help=about)(_callback(telemetry, action))
    return app


def _callback(telemetry: Telemetry, action: str) -> Callable[[], None]:
    def act() -> None:
        status = run(telemetry, action)
        if status:
            sys.exit(status)

    return act
