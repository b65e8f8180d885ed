"""The subcommand ``audit``: call any randomizer, and bound its epsilon from below."""

from __future__ import annotations

import ast
import json
import sys
from dataclasses import asdict
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import ConfigurationError
from deniable.exact.epsilon import exact
from deniable_aggregator.commands.options import progress, whole_number

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from deniable.commands.parser import Run
    from deniable_aggregator.attack.distinguisher import Evidence

_CALLS = 100_000


def audit(parser: argparse.ArgumentParser) -> Run:
    """``deniable audit MODULE:FUNCTION --epsilon E``: look for an event that shows a larger epsilon than the claimed one."""
    # Exit status: 1 if one is found, 0 if none is, 2 for a wrong configuration.
    parser.add_argument("function", metavar="MODULE:FUNCTION", help="takes an input and returns a report; from this folder")
    parser.add_argument("--epsilon", required=True, metavar="E", help="the claimed privacy loss of a report in nats")
    parser.add_argument("--inputs", default="0,1", metavar="A,B", help="values of Python, or words; all pairs (default 0,1)")
    parser.add_argument("--calls", type=whole_number, default=_CALLS, metavar="N", help=f"with each input (default {_CALLS})")
    parser.add_argument("--level", type=float, default=0.99, metavar="P", help="confidence of the bound (default 0.99)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return _audit


def _audit(arguments: argparse.Namespace) -> int:
    from deniable_aggregator.attack.distinguisher import CALLS_AT_ONCE, distinguish

    claimed, inputs = exact(arguments.epsilon), _inputs(arguments.inputs)
    advance = progress(len(inputs) * max(arguments.calls, 0) // CALLS_AT_ONCE, "thousand calls")
    evidence = distinguish(_loaded(arguments.function), inputs, calls=arguments.calls, level=arguments.level, advance=advance)
    exceeded = evidence.epsilon > claimed
    if arguments.json:
        about = {"function": arguments.function, "claimed": float(claimed), "level": arguments.level, "exceeded": exceeded}
        pair = {"likely": repr(inputs[evidence.likely]), "unlikely": repr(inputs[evidence.unlikely])}
        print(json.dumps(about | asdict(evidence) | pair))
    else:
        print(_text(arguments, inputs, evidence, exceeded=exceeded))
    return int(exceeded)


def _inputs(written: str) -> Sequence[Any]:
    """Read values of Python, or else words."""
    try:
        return list(ast.literal_eval(f"[{written}]"))
    except (SyntaxError, ValueError):
        return [word.strip() for word in written.split(",")]


def _loaded(written: str) -> Callable[[Any], object]:
    module, _, name = written.partition(":")
    if not module or not name:
        raise ConfigurationError(f"{written!r} names no function: write MODULE:FUNCTION, such as app:randomize")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        function: Any = reduce(getattr, name.split("."), import_module(module))
    except Exception as error:  # a module of somebody else may raise anything
        raise ConfigurationError(f"{written} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise ConfigurationError(f"{written} is no function, but a {type(function).__name__}")
    return function  # type: ignore[no-any-return] # a function of somebody else


def _text(arguments: argparse.Namespace, inputs: Sequence[Any], evidence: Evidence, *, exceeded: bool) -> str:
    likely, unlikely = inputs[evidence.likely], inputs[evidence.unlikely]
    hits, false_hits = f"{evidence.hits:,}", f"{evidence.false_hits:,}"
    verdict = f"{'more than' if exceeded else 'not shown to be more than'} the claimed {arguments.epsilon}"
    lines = [
        f"{arguments.function}, {arguments.calls:,} calls with each of {len(inputs)} inputs",
        f"Epsilon is at least {evidence.epsilon:.3f}, with confidence {arguments.level:g}: {verdict}.",
        f"Event: {evidence.event}.",
        f"It came in {hits} of {evidence.calls:,} calls with {likely!r}, and in {false_hits} with {unlikely!r}.",
    ]
    if exceeded:
        lines.append("Next: mend what makes this event so likely, or claim more; then audit again.")
    else:
        lines.append("This proves nothing: other inputs, or an event that was not learned, may tell more.")
        lines.append(
            "Next: give the --inputs that should differ most, and more --calls. `deniable prove` proves mechanisms of ours."
        )
    return "\n".join(lines)
