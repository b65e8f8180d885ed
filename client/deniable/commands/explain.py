"""``deniable explain``: what a metric sends, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.errors import ParameterError
from deniable.explanation import Explanation
from deniable.limits.caps import Caps
from deniable.registry import load

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from deniable.registry.metric import Metric

    Run = Callable[[argparse.Namespace], int]

__all__ = ["explain"]


def explain(parser: argparse.ArgumentParser) -> Run:
    """``deniable explain METRIC [ANSWER] [--registry FILE]``."""
    parser.add_argument("metric", metavar="METRIC")
    parser.add_argument("answer", nargs="?", metavar="ANSWER", help="to draw an example of a report for; a product's with commas")
    parser.add_argument("--registry", default="metrics.toml", metavar="FILE", help="default: metrics.toml")

    def run(arguments: argparse.Namespace) -> int:
        declared = load(arguments.registry)
        if arguments.metric not in declared.metrics:
            raise ParameterError(f"a metric of {arguments.registry} is one of {', '.join(declared.metrics)}", arguments.metric)
        answer = None if arguments.answer is None else _answer(declared.metrics[arguments.metric], arguments.answer)
        print(Explanation.of(declared, arguments.metric, Caps().tightened(declared.budget), answer))
        return 0

    return run


def _answer(metric: Metric, written: str) -> object:
    """Read an answer; what is none stays a text, which the metric will refuse."""
    if metric.type == "boolean":
        return {"yes": True, "true": True, "no": False, "false": False}.get(written.lower(), written)
    if metric.type == "key":
        return int(written) if written.isdecimal() else written
    return written.split(",") if metric.type == "product" else written
