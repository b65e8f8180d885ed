"""Commands before any of them runs: examples, help, options on both sides of an action, mistyped words, extras."""

from __future__ import annotations

import argparse
import re
import shlex
import tomllib
from pathlib import Path

import pytest

import deniable
from deniable.commands import entry as cli
from deniable.commands.catalogue import CATALOGUE, GROUPS, NOT_ON_WINDOWS, actions
from deniable.commands.parser import Parser

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
COMMANDS = PROJECT["entry-points"]["deniable.commands"]


def load(name):
    """Import a command of this tree, which needs no extra."""
    module, _, function = COMMANDS[name].partition(":")
    return getattr(__import__(module, fromlist=[function]), function)


def built(name):
    parser = Parser(prog=f"deniable {name}")
    load(name)(parser)
    parser.complete(CATALOGUE[name].examples, CATALOGUE[name].extra)
    return parser


def below(parser):
    """Go through a parser and those of its actions."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from below(subparser)


def test_the_catalogue_has_every_command():
    """Each command stands in the catalogue, and names an extra that there is."""
    assert set(CATALOGUE) == set(COMMANDS)
    assert {entry.extra for entry in CATALOGUE.values()} <= {"", *PROJECT["optional-dependencies"]}
    assert set(CATALOGUE) >= NOT_ON_WINDOWS
    for name, entry in CATALOGUE.items():
        assert bool(entry.extra) != COMMANDS[name].startswith(("deniable.", "deniable_query.")), name


def test_the_help_lists_every_command_once_in_its_group(capsys):
    """The commands stand in groups, the first steps first, each with its summary in a line of a narrow terminal."""
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert "usage: deniable [-h] [--version] COMMAND ..." in lines
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    listed = [line.split()[0] for line in lines if re.match(r"  [a-z]", line) and not line.startswith("  deniable")]
    assert listed == [name for names in GROUPS.values() for name in names]
    assert listed[:3] == ["demo", "init", "serve"]
    assert max(map(len, lines)) <= 80
    assert all(any(line.endswith(f" {entry.summary}") for line in lines) for entry in CATALOGUE.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_actions_of_a_command_are_known_before_it_is_imported(name):
    """The catalogue tells the actions of each command, as its parser has them."""
    known = {action for action, commands in actions().items() if name in commands}
    assert known == set(built(name)._actions_below)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_an_example_that_is_read(name):
    """Each command and each of its actions shows an example in its help, and the command reads all of them."""
    parser = built(name)
    for subparser in below(parser):
        assert subparser is parser or subparser.description, subparser.prog
        assert "examples:\n  deniable " in subparser.format_help(), subparser.prog
        extra = CATALOGUE[name].extra
        assert subparser.format_help().endswith(f"\n\nbrought by: pip install 'deniable[{extra}]'\n") is bool(extra)
    for example in CATALOGUE[name].examples:
        parser.parse_args(shlex.split(example)[2:])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("keys --app shop --redis-url unix:///a create --role ingest", {"app": "shop", "redis_url": "unix:///a"}),
        ("keys create --role ingest --app shop --redis-url unix:///a", {"app": "shop", "redis_url": "unix:///a"}),
        ("keys --redis-url unix:///a list --app shop", {"app": "shop", "redis_url": "unix:///a"}),
        ("keys --app shop revoke 3f --redis-url unix:///a", {"app": "shop", "redis_url": "unix:///a", "id": "3f"}),
        ("dead-letters --app shop list", {"app": ["shop"]}),
        ("dead-letters list --app shop", {"app": ["shop"]}),
        ("audit-log head --redis-url unix:///a --app shop", {"app": ["shop"], "redis_url": "unix:///a"}),
    ],
)
def test_options_stand_before_an_action_or_after_it(line, expected):
    """What a command is told counts on both sides of its action."""
    name, *options = line.split()
    parsed = vars(built(name).parse_args(options))
    assert {key: parsed[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("registery", "registry"),
        ("explian", "explain"),
        ("regsitry lint x", "registry"),
        ("registry lnit", "lint"),
        ("lint", "registry lint"),
        ("lnt", "registry lint"),
        ("decode x", "rappor decode"),
        ("list", "audit-log list, dead-letters list or keys list"),
        ("version", "--version"),
        ("help", "--help"),
    ],
)
def test_a_mistyped_word_gets_the_nearest(capsys, typed, meant):
    """A command or an action that there is not is refused with the nearest that there is, or the option of that name."""
    with pytest.raises(SystemExit) as caught:
        cli.main(typed.split())
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert f"did you mean {meant}?" in err
    assert "choose from" not in err


def test_a_missing_action_gets_all_that_there_are(capsys):
    """Whoever gives a command without its action learns the actions."""
    with pytest.raises(SystemExit):
        cli.main(["registry"])
    assert capsys.readouterr().err.endswith("required: ACTION, one of lint, diff, publish, show, keygen, sign, verify\n")


def test_a_word_like_no_other_gets_none(capsys):
    """Nothing is guessed where nothing is near."""
    with pytest.raises(SystemExit):
        cli.main(["xyzzyx"])
    err = capsys.readouterr().err
    assert "invalid choice" in err
    assert "did you mean" not in err


@pytest.mark.parametrize(
    ("type_", "typed", "needed"),
    [
        (float, "half", "a number is needed, such as 0.95, not 'half'"),
        (float, "it's", """a number is needed, such as 0.95, not "it's\""""),
        (int, "1e5", "a whole number is needed, in digits such as 1000, not '1e5'"),
    ],
)
def test_what_is_no_number_gets_the_rule(capsys, type_, typed, needed):
    """It says what is needed, an example, and what was given; nobody has to know what a float is."""
    parser = Parser(prog="deniable x")
    parser.add_argument("--size", type=type_)
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(["--size", typed])
    assert caught.value.code == 2
    assert capsys.readouterr().err.endswith(f"deniable x: error: argument --size: {needed}\n")


def test_the_version(capsys):
    """``deniable --version`` says it."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"deniable {deniable.__version__}\n"


@pytest.mark.parametrize("name", sorted(NOT_ON_WINDOWS))
def test_what_cannot_run_on_windows_says_so(monkeypatch, capsys, name):
    """No pip line helps there, and none is given."""
    monkeypatch.setattr(cli.sys, "platform", "win32")
    assert cli.main([name]) == 2
    err = capsys.readouterr().err
    assert "does not run on Windows" in err
    assert "pip" not in err


def test_an_interrupt_is_no_traceback(monkeypatch, capsys):
    """Ctrl-C ends any command with a word and the status that shells know."""

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_main", interrupted)
    assert cli.main(["prove"]) == 130
    assert capsys.readouterr().err == "Stopping ...\n"


def test_remedies_name_extras_that_there_are():
    """Each `deniable[...]` that the product or its documents name is an extra."""
    root = Path(__file__).parents[2]
    files = [path for folder in ("client", "server", "aggregator") for path in (root / folder).rglob("*.py")]
    named = {
        extra
        for path in [*files, *(root / "docs").rglob("*.md"), root / "README.md"]
        for extras in re.findall(r"(?:deniable|'\.)\[([a-z,]+)\]", path.read_text("utf-8"))
        for extra in extras.split(",")
    }
    assert named
    assert named <= set(PROJECT["optional-dependencies"])
