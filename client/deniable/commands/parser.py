"""The parser of all subcommands: options count before an action and after it, and a mistyped word gets the nearest one."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Run = Callable[[argparse.Namespace], int]
"""What runs a subcommand: it takes the arguments and returns the exit status."""
REGISTRY = "metrics.toml"
"""The registry that commands read where none is named."""

_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")
_TYPE = re.compile(r"invalid (int|float) value: (.*)", re.DOTALL)
_VALUE = re.compile(r"argument (\S+): expected one argument")
_NEEDED = {"int": "a whole number is needed, in digits such as 1000", "float": "a number is needed, such as 0.95"}


class _Actions(argparse._SubParsersAction):  # type: ignore[type-arg] # noqa: SLF001 - argparse names it nowhere else
    """The actions of a command. What a list of them says of one, its own help says as well."""

    def add_parser(self, name: str, **options: Any) -> Any:
        return super().add_parser(name, description=options["help"], **options)


class Parser(argparse.ArgumentParser):
    """A parser whose options stand before an action or after it."""

    elsewhere: Mapping[str, Sequence[str]] = {}
    """Words that are actions of a command, each with the commands that have it."""

    def __init__(self, **options: Any) -> None:
        self._shared: list[tuple[tuple[str, ...], dict[str, Any]]] = []
        self._actions_below: dict[str, Parser] = {}
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        """Add an argument; an option is one of each action, too."""
        if names[0].startswith("-") and options.get("action") not in ("help", "version"):
            self._shared.append((names, options))
        return super().add_argument(*names, **options)

    def add_subparsers(self, **options: Any) -> Any:
        """Add actions."""
        actions = super().add_subparsers(action=_Actions, **options)
        self._actions_below = actions.choices
        return actions

    def complete(
        self,
        examples: Sequence[str],  # command lines
        extra: str = "",  # what brings all that the command needs; empty where the base install does
    ) -> None:
        """Give each action the options that stand before it, and each parser the examples that are of it."""
        own = [line for line in examples if f"{line} ".startswith(f"{self.prog} ")]
        if own:
            brought = ["", f"brought by: pip install 'deniable[{extra}]'"] if extra else []
            self.epilog = "\n".join(["examples:", *(f"  {line}" for line in own), *brought])
        for below in self._actions_below.values():
            taken = {name for names, _ in below._shared for name in names}  # noqa: SLF001 - of our own class
            for names, options in self._shared:
                if not taken.intersection(names):
                    below.add_argument(*names, **options | {"default": argparse.SUPPRESS, "required": False})
            below.complete(examples, extra)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; the parser of an action refuses what it does not know itself, so that its own usage is printed."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._instead(unknown)}")
        return parsed, unknown

    def _instead(self, unknown: Sequence[str]) -> str:
        """Say what to write for arguments that a command does not have; empty if nothing is alike."""
        from deniable.messages.lookalike import nearest

        word, _, value = unknown[0].partition("=")
        if word == "--port" and "--bind" in self._option_string_actions:
            return f"; write --bind 127.0.0.1:{value or ''.join(unknown[1:2]) or 'N'}"
        if word.endswith(".toml") and "--registry" in self._option_string_actions:
            return f"; write --registry {word}"
        if not word.startswith("-") and len(self._positionals._group_actions) == 1:  # noqa: SLF001 - argparse has no other list
            return f"; write one {self._positionals._group_actions[0].metavar}, and run it once for each"  # noqa: SLF001
        options = {option.removeprefix("--"): option for option in self._option_string_actions if option.startswith("--")}
        near = nearest(word.removeprefix("--"), options) if word.startswith("--") else None
        return f"; did you mean {options[near]}?" if near else ""

    def error(self, message: str) -> NoReturn:
        """End with status 2. Say what a mistyped word may have meant, and that a number is needed."""
        message = _TYPE.sub(lambda match: f"{_NEEDED[match[1]]}, not {match[2]}", message)
        message = _VALUE.sub(self._needed, message)
        choice = _CHOICE.search(message)
        if choice:
            meant = self._meant(choice[1], re.findall(r"[^\s',]+", choice[2]))
            message = f"{message.partition(' (choose')[0]}; did you mean {meant}?" if meant else message
        elif self._actions_below and "required" in message:
            message = f"{message}, one of {', '.join(self._actions_below)}"
        super().error(message)

    def _needed(self, match: re.Match[str]) -> str:
        """Say what an option needs. A word that begins with - is taken for another option."""
        action = self._option_string_actions[match[1].rpartition("/")[2]]
        about = f": {action.help}" if action.help else ""
        return f"{match[1]} needs a value behind it, {action.metavar or 'one'}, which does not begin with -{about}"

    def _meant(self, word: str, choices: Sequence[str]) -> str:
        """Return what a mistyped word may have meant: an option, an action of a command, or what is spelt alike."""
        from deniable.messages.lookalike import nearest

        if f"--{word}" in self._option_string_actions:
            return f"--{word}"
        near = None if word in self.elsewhere else nearest(word, choices)
        if near:
            return near
        action = word if word in self.elsewhere else nearest(word, self.elsewhere) or ""
        *others, last = sorted(f"{command} {action}" for command in self.elsewhere.get(action, ())) or [""]
        return f"{', '.join(others)} or {last}" if others else last
