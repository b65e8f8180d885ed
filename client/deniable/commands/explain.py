"""``deniable explain``: what a metric sends, in words."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError, ParameterError
from deniable.explanation import Explanation
from deniable.limits.caps import Caps
from deniable.registry import load
from deniable.registry.axis import read_number

if TYPE_CHECKING:
    import argparse

    from deniable.commands.parser import Run
    from deniable.registry.metric import Metric

_SHOWN = 20


def explain(parser: argparse.ArgumentParser) -> Run:
    """``deniable explain METRIC [ANSWER] [--registry FILE]``."""
    parser.add_argument("metric", metavar="METRIC")
    parser.add_argument("answer", nargs="?", metavar="ANSWER", help="to draw an example of a report for; a product's with commas")
    parser.add_argument("--registry", default="metrics.toml", metavar="FILE", help="default: metrics.toml")

    def run(arguments: argparse.Namespace) -> int:
        declared = load(arguments.registry)
        if arguments.metric not in declared.metrics:
            near = get_close_matches(arguments.metric, declared.metrics, 1)
            which = f"; did you mean {near[0]}?" if near else f", but {', '.join(declared.metrics)}"
            raise ConfigurationError(f"{arguments.registry} declares no {arguments.metric}{which}")
        metric = declared.metrics[arguments.metric]
        answer = None if arguments.answer is None else _answer(metric, arguments.answer)
        try:
            told = Explanation.of(declared, arguments.metric, Caps().tightened(declared.budget), answer)
        except ParameterError as error:
            if answer is None or metric.open:
                raise
            raise ConfigurationError(_allowed(metric, error.rule)) from None
        print(told)
        return 0

    return run


def _allowed(metric: Metric, rule: str) -> str:
    """Tell what an answer to a metric is, with the answers as they are written here, or the first of many."""
    if metric.type == "boolean":
        return f"an answer to {metric.id} is yes or no"
    if metric.axis:
        return f"an answer to {metric.id} is a number, such as {metric.range[1]}"
    shown = [",".join(value) if isinstance(value, tuple) else str(value) for value in metric.values[:_SHOWN]]
    more = len(metric.values) - len(shown)
    listed = ("; " if metric.type == "product" else ", ").join([*shown, f"and {more} more"] if more else shown)
    return f"{rule}: {listed}"


def _answer(metric: Metric, written: str) -> object:
    """Read an answer; what is none stays a text, which the metric will refuse."""
    if metric.type == "boolean":
        return {"yes": True, "true": True, "no": False, "false": False}.get(written.lower(), written)
    if metric.type == "key":
        return int(written) if written.isdecimal() else written
    if metric.axis:
        try:
            return read_number(written)
        except ParameterError:
            return written
    if metric.type == "set":
        return [option for option in written.split(",") if option]
    return written.split(",") if metric.type == "product" else written
