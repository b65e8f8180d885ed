"""``deniable init``: a metrics.toml to begin with."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.commands.parser import REGISTRY
from deniable.errors import ConfigurationError, DeniableError, RegistryError
from deniable.registry import load, parse
from deniable.registry.tables import MONTHS, Budget

if TYPE_CHECKING:
    import argparse

    from deniable.commands.parser import Run

_TEXT = """\
# What {app} asks its users. Each answer is randomised on the device before it leaves it.
# `deniable registry lint {file}` explains each fault. The guide: https://deniable.github.io/deniable/how-to/embed/
format = 1
app = "{app}"

# What one person gives away on all metrics together, in nats of privacy loss. When it is spent, nothing more is recorded.
# The metrics below need {needs} nats a month, so there is some room. The bounds without this table: {bounds}.
[budget]
per_month = 8.0              # in each calendar month, and ever {months} times that, unless you write a lifetime

# Public facts about a device, by which results can be broken down. The app passes its own to `deniable.init(segments=...)`.
# [segments]
# platform = ["linux", "macos", "windows"]

# While you try things out: everything is published at once, however few the reports. Remove it before real people answer.
{trial}[publication]
{trial}trial = true

# A metric is a question. An id with a dot needs its quotes.
# Without epsilon_permanent each report has new noise. Then the reports of a year together may reveal the answer: lint shows how
# often. With epsilon_permanent the device draws a noisy answer once, and keeps it. The error of one month is the same. But an
# average over months is hardly better than one month, and a month of too few reports is not joined with the next.
{web}[metrics."ui.theme"]
type = "categorical"         # or boolean, ordinal, number, set, product, string, key
values = ["light", "dark", "system", "something else"]
other = "something else"     # stands for every answer that is not listed
epsilon = 1.0                # of one report, in nats: below 1 is strong, above 4 is weak
{kept}epsilon_permanent = 1.5      # of all reports of one answer
period = "month"             # one report in each; or hour, day, week
# segments = ["platform"]
description = "Which theme people use"
owner = "design@{app}.example"
expires = {expires}

[metrics."export.used"]
type = "boolean"
epsilon = 1.0
{kept}epsilon_permanent = 1.5
period = "month"
description = "Whether the export was used this month"
owner = "core@{app}.example"
expires = {expires}
"""

_WEB = """\
# A new browser may answer such a metric only after weeks. So epsilon_permanent is left out here.
"""

_CLI = """\
# What {app}, a command line tool, asks its users. Each answer is randomised on the device before it leaves it.
# `deniable.cli.Telemetry` records all of these. The guide: https://deniable.github.io/deniable/how-to/command-line/
format = 1
app = "{app}"

# What one person gives away on all metrics together, in nats of privacy loss. When it is spent, nothing more is recorded.
# The metrics below need 13.5 nats a month. This leaves room for two metrics of your own.
[budget]
per_month = 20.0             # in each calendar month, and ever {months} times that, unless you write a lifetime

# Reports travel when the tool is used again. So the results of a period are final only so long after its end.
[publication]
grace = "21d"
# While you try things out: everything is published at once, however few the reports. Remove it before real people answer.
{trial}trial = true

# Most answers stay the same for months. With epsilon_permanent the device draws a noisy answer once, and keeps it. So all reports
# of one answer together reveal no more than that. The error of one period is the same. But an average over periods is hardly
# better, and a period of too few reports is not joined with the next.
# The answers to app.new and app.week change in a known way, so each of their reports has new noise.

# Each installation reports once a month, so the number of reports is that of the installations in use.
[metrics."app.new"]
type = "boolean"
epsilon = 1.0
period = "month"
description = "Whether {app} is used for the first month here"
owner = "team@{app}.example"
expires = {expires}

[metrics."app.version"]
type = "categorical"
values = ["0.1", "0.2", "1.0", "other"]    # yours: the first two numbers of each
other = "other"
epsilon = 1.0
epsilon_permanent = 1.5
period = "month"
description = "Which version of {app} runs"
owner = "team@{app}.example"
expires = {expires}

[metrics."app.system"]
type = "categorical"
values = ["linux", "macos", "windows", "other"]
other = "other"
epsilon = 1.0
epsilon_permanent = 1.5
period = "month"
description = "Which operating system {app} runs on"
owner = "team@{app}.example"
expires = {expires}

[metrics."app.python"]
type = "categorical"
values = ["3.11", "3.12", "3.13", "3.14", "other"]
other = "other"
epsilon = 1.0
epsilon_permanent = 1.5
period = "month"
description = "Which Python {app} runs on"
owner = "team@{app}.example"
expires = {expires}

[metrics."app.command"]
type = "categorical"
values = ["build", "test", "run", "other"]    # yours: the names of the commands
other = "other"
epsilon = 1.0
epsilon_permanent = 1.5
period = "week"
description = "Which command of {app} is the first one of a week"
owner = "team@{app}.example"
expires = {expires}

# Who came back: the number of "second" in one week, divided by the number of "first" in the week before.
[metrics."app.week"]
type = "ordinal"
values = ["first", "second", "third", "fourth", "later"]
epsilon = 1.0
period = "week"
description = "For how many weeks {app} has been here"
owner = "team@{app}.example"
expires = {expires}
"""


def init(parser: argparse.ArgumentParser) -> Run:
    """``deniable init [--app NAME] [--file FILE] [--cli | --web] [--trial]``: write a registry, but over none that is there."""
    parser.add_argument("--app", metavar="NAME", help="a lower-case name (default: that of this folder)")
    parser.add_argument("--file", default=REGISTRY, metavar="FILE", help=f"default: {REGISTRY}")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--cli", action="store_true", help="with what makers of a command line tool ask")
    kinds.add_argument("--web", action="store_true", help="for visitors of web pages: what a new browser can be asked")
    parser.add_argument("--trial", action="store_true", help="publish every report at once, while you try things out")

    def run(arguments: argparse.Namespace) -> int:
        path = Path(arguments.file)
        app = arguments.app or _named(path.absolute().parent.name)
        expires = f"{datetime.now(UTC).year + 2}-12-31"
        without = Budget()
        text = (_CLI if arguments.cli else _TEXT).format(
            app=app,
            file=path.name,
            expires=expires,
            trial="" if arguments.trial else "# ",
            bounds=f"{without.per_month:g} and {without.lifetime:g}",
            months=MONTHS,
            needs=2 if arguments.web else 3,
            kept="# " if arguments.web else "",
            web=_WEB if arguments.web else "",
        )
        try:
            parse(text, arguments.file)
        except RegistryError:
            fitting = f"write --app {_named(app)}"
            raise ConfigurationError(f"--app {app!r} is no lower-case name; {fitting}") from None
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            trial = "; to try things out with it, write two lines into it: [publication] and trial = true" * arguments.trial
            words = f"{path} is there already{_whose(path)}, and is left alone; name another with --file{trial}"
            raise ConfigurationError(words) from None
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None
        print(f"{path}: {'six' if arguments.cli else 'two'} metrics of {app}. Next:")
        named, option = ("", "") if arguments.file == REGISTRY else (f" {shlex.quote(arguments.file)}", " --registry")
        print(f"  deniable registry lint{named}")
        print(f"  deniable explain {'app.system linux' if arguments.cli else 'ui.theme dark'}{option}{named}")
        print(f"  deniable serve{option}{named}    # brought by pip install 'deniable[serve]'")
        return 0

    return run


def _whose(path: Path) -> str:
    """Say of which app a registry is; nothing if it is none."""
    try:
        return f", the registry of {load(path).app}"
    except DeniableError:
        return ""


def _named(text: str) -> str:
    """Make an app's name of another text, such as a folder's name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-0123456789")[:40].strip("-") or "app"
