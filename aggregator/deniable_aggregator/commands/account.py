"""The subcommand ``account``: the privacy loss of all reports of a device together, and which total to quote."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deniable import mechanisms
from deniable.commands.parser import REGISTRY
from deniable.errors import ConfigurationError, ParameterError
from deniable.limits.spending import drawn_anew
from deniable.messages.plural import few
from deniable.registry import period
from deniable.registry.published import newest
from deniable_aggregator.commands import noise
from deniable_aggregator.commands.options import drawing

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from deniable.registry import Registry
    from deniable_aggregator.accounting.crowds.crowd import Crowd
    from deniable_aggregator.accounting.plan import Plan
    from deniable_aggregator.accounting.spend import Spend
    from deniable_aggregator.accounting.statement import Statement

_DELTA = 1e-6
_POINTS = 24  # of a plot
_MONTH = 31  # days of a plot that is for no stated time


def account(parser: argparse.ArgumentParser) -> Callable[[Namespace], int]:
    """``deniable account [FILE] [--metric ID...] [--days D]``, or with ``--epsilon E``, or with ``--gaussian S``."""
    # Exit status: 0 done, 1 if the budget does not allow all of it, 2 for wrong usage or a registry that cannot be read.
    parser.add_argument("file", nargs="?", metavar="FILE", help=f"a registry (default: {REGISTRY}, unless there is --epsilon)")
    of_file = parser.add_argument_group("reports of a registry")
    of_file.add_argument(
        "--metric", nargs="+", default=[], metavar="ID", help="of these metrics alone (default: all that have not ended)"
    )
    of_file.add_argument("--days", type=int, metavar="D", help="for so many days (default: a calendar month)")
    of_file.add_argument("--answers", type=int, metavar="N", help="different answers to a question with kept responses, at most")
    stated = parser.add_argument_group("reports without a registry")
    stated.add_argument(
        "--epsilon", nargs="+", default=[], metavar="E", help="of a report, in nats; several are of several metrics"
    )
    about = "number of reports, one for each epsilon or one for all (default 1); with a registry: of each metric"
    stated.add_argument("--reports", nargs="+", type=int, default=[], metavar="K", help=about)
    stated.add_argument("--epsilon-permanent", metavar="E", help="of kept responses, which count instead of their reports")
    stated.add_argument("--sample", metavar="P", help="share of occasions with a report (default 1)")
    stated.add_argument("--mechanism", metavar="NAME", help="of the reports (default: the worst case of any)")
    stated.add_argument("--domain-size", type=int, default=2, metavar="D", help="number of values of that mechanism (default 2)")
    about = "also what readers of a published sum learn, which has so many honest reports"
    stated.add_argument("--crowd", type=int, metavar="N", help=about)
    output = parser.add_argument_group("for whom, and what is printed")
    output.add_argument(
        "--group", type=int, default=1, metavar="G", help="devices of a person or a household, each with all of it"
    )
    about = f"probability of exceeding a total, one or more (default {_DELTA:g})"
    output.add_argument("--delta", nargs="+", type=float, default=[_DELTA], metavar="P", help=about)
    output.add_argument("--all", action="store_true", help="totals by every method (default: those to quote)")
    output.add_argument("--check", action="store_true", help="compare with dp-accounting")
    output.add_argument("--plot", metavar="FILE", help="plot totals by reports or days: .svg, .png or .pdf")
    output.add_argument("--json", action="store_true", help="one JSON object")
    noise.add(parser)
    defaults = vars(parser.parse_args([]))
    return lambda arguments: _noise(arguments, defaults) if noise.is_noise(arguments) else _account(arguments)


def _noise(arguments: Namespace, defaults: Mapping[str, Any]) -> int:
    return noise.answer(arguments, defaults, _places(arguments.queries or 1))


def _account(arguments: Namespace) -> int:
    from deniable_aggregator.accounting import library
    from deniable_aggregator.accounting.statement import statement

    draw = drawing("accounting.plot") if arguments.plot else None  # a missing library is reported before the work
    planned = None if arguments.epsilon else _plan(arguments)
    if left_out := _ended(newest(arguments.file or REGISTRY)) if planned and not arguments.metric else []:
        it = "it" if len(left_out) == 1 else "them"
        rule = f"so this leaves {it} out; --metric counts {it} all the same."
        print(f"Collection has ended of {few(left_out)}, {rule}", file=sys.stderr)
    spends = planned.spends if planned else _stated(arguments)
    summary = statement(
        spends,
        tuple(dict.fromkeys(arguments.delta)),
        devices=arguments.group,
        plan=planned,
        crowds=() if planned else _crowds(arguments, spends),
        permanent=arguments.epsilon_permanent is not None,
    )
    checked = [library.epsilon(spends, entry.delta) for entry in summary.accounts] if arguments.check else []
    if arguments.json:
        written = summary.to_dict()
        if checked:
            written["dp_accounting"] = [
                {"delta": entry.delta, "epsilon": epsilon} for entry, epsilon in zip(summary.accounts, checked, strict=True)
            ]
        print(json.dumps(written))
    else:
        for line in summary.lines(every=arguments.all):
            print(line)
        for entry, epsilon in zip(summary.accounts, checked, strict=False):
            print(
                f"dp-accounting, for any mechanisms, delta {entry.delta:g}: {epsilon:.6g}; ours is {entry.totals['optimal']:.6g}."
            )
        for line in _next(summary, arguments):
            print(line)
    if draw:
        axis, places = _series(arguments)
        permanent = [(_responses(spend), spend.count * spend.epsilon) for spend in spends] if arguments.epsilon_permanent else []
        draw(axis, places, arguments.plot, permanent)
        print(f"Plot: {arguments.plot}", file=sys.stderr)
    return 0 if summary.fits else 1


def _plan(arguments: Namespace) -> Plan:
    """Return the plan of the registry."""
    numbers = ("epsilon_permanent", "mechanism", "sample", "crowd")
    flags = [f"--{name.replace('_', '-')}" for name in numbers if getattr(arguments, name) is not None]
    if flags:
        raise ConfigurationError(f"{flags[0]} goes with --epsilon; a registry states its own")
    if len(arguments.reports) > 1:
        raise ConfigurationError("one --reports is for all metrics of a registry")
    return _planned(arguments, arguments.days, arguments.reports[0] if arguments.reports else None)


def _planned(arguments: Namespace, days: int | None, reports: int | None) -> Plan:
    from deniable_aggregator.accounting.plan import plan

    registry = newest(arguments.file or REGISTRY)
    ended = _ended(registry)
    metrics = arguments.metric or [id_ for id_ in registry.metrics if id_ not in ended]
    if not metrics:
        raise ConfigurationError("collection of all metrics has ended: name with --metric those to count")
    return plan(registry, metrics=metrics, days=days, reports=reports, answers=arguments.answers)


def _ended(registry: Registry) -> list[str]:
    """Name the metrics that are left out unless they are asked for: no device reports them any more, and they reserve nothing."""
    today = datetime.now(UTC).date()
    return [id_ for id_, metric in registry.metrics.items() if metric.expired(today)]


def _stated(arguments: Namespace) -> list[Spend]:
    """Return the spends of the command line."""
    if arguments.file or arguments.metric:
        raise ConfigurationError("either FILE and --metric, or --epsilon")
    if arguments.days is not None and arguments.reports:
        raise ConfigurationError("either --days, with a report on each, or --reports")
    if arguments.answers is not None and arguments.epsilon_permanent is None:
        raise ConfigurationError("--answers goes with --epsilon-permanent, or with a registry")
    counts: list[int] = arguments.reports or [1 if arguments.days is None else arguments.days]
    if len(counts) == 1:
        counts = counts * len(arguments.epsilon)
    if len(counts) != len(arguments.epsilon):
        rule = f"--reports has {len(counts)} numbers: write one, or one for each of the {len(arguments.epsilon)} epsilons"
        raise ConfigurationError(rule)
    return [_spend(arguments, epsilon, count) for epsilon, count in zip(arguments.epsilon, counts, strict=True)]


def _spend(arguments: Namespace, epsilon: str, count: int) -> Spend:
    from deniable_aggregator import checks
    from deniable_aggregator.accounting.spend import Spend

    checks.count("--reports" if arguments.reports else "--days", count)
    # All reports of one answer tell no more than its permanent response, so only different answers add up.
    if arguments.epsilon_permanent is not None and count > 1:
        answers = checks.count("--answers", 1 if arguments.answers is None else arguments.answers)
        return Spend.of_epsilon(arguments.epsilon_permanent, min(answers, count))
    sample = _sample(arguments)
    if arguments.mechanism is None:
        return replace(Spend.of_epsilon(epsilon, count), share=float(sample))
    mechanism = mechanisms.make(arguments.mechanism, domain_size=arguments.domain_size, epsilon=epsilon)
    return Spend.of(mechanism, count, sample)


def _crowds(arguments: Namespace, spends: Sequence[Spend]) -> list[Crowd]:
    """Return the same reports as parts of published sums."""
    from deniable_aggregator.accounting.crowds.crowd import Crowd

    if arguments.crowd is None:
        return []
    if arguments.epsilon_permanent is not None:
        raise ConfigurationError(
            "--crowd goes without --epsilon-permanent: copies of a response do not add up as independent ones"
        )
    sample = float(_sample(arguments))
    return [Crowd(spend.cost, min(1.0, spend.share / sample), arguments.crowd, spend.count, sample) for spend in spends]


def _sample(arguments: Namespace) -> Fraction:
    try:
        share = Fraction(arguments.sample or "1")
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if not 0 < share <= 1:
        raise ParameterError("--sample: write a share above 0 and at most 1", arguments.sample)
    return share


def _next(summary: Statement, arguments: Namespace) -> Iterator[str]:
    if not summary.plan:
        again = any(spend.count > 1 for spend in summary.spends)
        if again and not arguments.epsilon_permanent:
            yield "Next: --epsilon-permanent shows the same with kept responses, which do not add up while an answer stays."
        return
    repeated = [use.metric for use in summary.plan.uses if use.occasions > 1 and not use.permanent and not use.metric.discover]
    can_keep = {metric.id: metric.can_keep and not metric.shuffled for metric in repeated}
    # Once a month is seldom: there an app may prefer new noise, as `deniable init` does where an answer changes for all.
    keeping = [metric.id for metric in repeated if can_keep[metric.id] and metric.period != period.LENGTHS[-1]]
    rare = [id_ for id_, can in can_keep.items() if not can]
    advice = [f"{drawn_anew(keeping)}; if it changes, ask less often."] if keeping else []
    if rare:
        advice.append(f"{'Ask' if advice else 'ask'} {few(rare)} less often: epsilon_permanent cannot be declared there.")
    if advice:
        yield f"Next: {' '.join(advice)}"
    elif not summary.fits:
        yield "Next: ask less often, with less epsilon or fewer values, or declare a budget that has room."
    else:
        yield "Next: quote these figures with the time they are for. `deniable attack averaging` shows what they mean."


def _series(arguments: Namespace) -> tuple[str, list[tuple[int, Statement]]]:
    """Return what a plot shows: the name of its axis, and a statement for each number of reports or days on it."""
    from deniable_aggregator.accounting.statement import statement

    deltas = arguments.delta[:1]
    if arguments.epsilon:
        # The curve shows reports that add up. `draw` gets permanent responses apart, as a line to compare it with.
        fresh = _stated(Namespace(**(vars(arguments) | {"epsilon_permanent": None, "answers": None})))
        most = max(spend.count for spend in fresh)
        series = ((place, [replace(each, count=min(place, each.count)) for each in fresh]) for place in _places(most))
        return "reports of one device", [(place, statement(spends, deltas)) for place, spends in series]
    planned = _plan(arguments)
    by_days = planned.reports is None
    most = planned.reports or planned.days or _MONTH
    plans = [(place, _planned(arguments, *((place, None) if by_days else (None, place)))) for place in _places(most)]
    word = "days" if by_days else "reports of each metric"
    return word, [(place, statement(each.spends, deltas, plan=each)) for place, each in plans]


def _places(most: int) -> list[int]:
    """Return whole numbers up to a largest one, evenly spaced on a logarithmic axis."""
    return sorted({max(1, round(most ** (i / (_POINTS - 1)))) for i in range(_POINTS)})


def _responses(spend: Spend) -> str:
    return "one response kept" if spend.count == 1 else f"{spend.count} responses kept"
