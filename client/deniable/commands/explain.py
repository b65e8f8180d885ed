"""``deniable explain``: what a metric sends, in words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deniable.commands.parser import REGISTRY
from deniable.errors import ConfigurationError, ParameterError
from deniable.explanation import Explanation
from deniable.limits.admission import admit
from deniable.messages.lookalike import did_you_mean, nearest
from deniable.registry import load

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

    from deniable.commands.parser import Run
    from deniable.registry import Metric


_BRACKETS = frozenset('[]{}"')  # somebody wrote a list


def explain(parser: argparse.ArgumentParser) -> Run:
    """``deniable explain METRIC [ANSWER] [--registry FILE]``."""
    parser.add_argument("metric", metavar="METRIC")
    about = "to draw an example of a report for; of a set or a product with commas, such as news,comedy; of a set '' for none"
    parser.add_argument("answer", nargs="*", default=[], metavar="ANSWER", help=about)
    parser.add_argument("--registry", default=REGISTRY, metavar="FILE", help=f"default: {REGISTRY}")

    def run(arguments: argparse.Namespace) -> int:
        declared = load(arguments.registry)
        if arguments.metric not in declared.metrics:
            near = nearest(arguments.metric, declared.metrics)
            which = f"; did you mean {near}?" if near else f", but {', '.join(declared.metrics)}"
            raise ConfigurationError(f"{arguments.registry} declares no {arguments.metric}{which}")
        metric = declared.metrics[arguments.metric]
        written = _written(metric, arguments.answer)
        answer = None if written is None else metric.kind.parse(written)
        admission = admit(declared, None, datetime.now(UTC).date())
        for fault in admission.faults:
            if fault.metric == arguments.metric:
                raise ConfigurationError(f"{fault}. Nothing is recorded of it")
        try:
            counted = [] if answer is None or metric.open else _undeclared(metric, answer)
            explanation = Explanation.of(declared, arguments.metric, admission.budget, answer, instead=bool(counted))
        except ParameterError as error:
            if answer is None or metric.open:
                raise
            meant = did_you_mean(written, _texts(metric))
            raise ConfigurationError(f"{metric.kind.allowed(metric, error.rule)}{meant}") from None
        for word in counted:
            print(f"{word!r} is not declared, so it counts as {metric.other!r}{did_you_mean(word, _texts(metric))}")
        print(explanation)
        return 0

    return run


def _texts(metric: Metric) -> list[str]:
    """Return the declared values that are texts."""
    return [value for value in metric.values if isinstance(value, str)]


def _undeclared(metric: Metric, answer: Any) -> list[str]:
    """Return what is not declared of an answer and counts as `other`. Refuse an option where there is no `other`."""
    words = answer if metric.kind.options else [answer]
    missing = [word for word in words if isinstance(word, str) and word not in metric.values]
    if metric.kind.options and missing and (metric.other is None or any(set(word) & _BRACKETS for word in missing)):
        form = f"write options with commas, such as {','.join(map(str, metric.values[:2]))}, and '' for none"
        raise ConfigurationError(
            f"{missing[0]!r} is no option of {metric.id}{did_you_mean(missing[0], _texts(metric))}: {form}. The options are "
            f"{', '.join(map(str, metric.values))}"
        )
    return missing if metric.other is not None else []


def _written(metric: Metric, words: Sequence[str]) -> str | None:
    """Return the answer of a command line; None without one. Refuse several words, and say how they are written as one."""
    if len(words) > 1:
        joined = metric.kind.options or metric.factors
        instead = f"with commas: {','.join(words)}" if joined else f"as one word in quotes: {' '.join(words)!r}"
        raise ConfigurationError(f"an answer to {metric.id} is one argument: write it {instead}")
    return words[0] if words else None
