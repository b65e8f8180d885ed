"""The subcommand ``plan``: the errors that a number of users gives, and the users that an error needs."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from deniable import mechanisms
from deniable.commands.parser import REGISTRY
from deniable.commands.terminal import print_table
from deniable.errors import ConfigurationError
from deniable.exact.epsilon import exact
from deniable.forecast import pools
from deniable.forecast.precision import length
from deniable.forecast.search import outlook
from deniable.limits.admission import off
from deniable.messages.percent import percent
from deniable.registry import Metric
from deniable.registry.answers.axis import read_number
from deniable.registry.answers.domain import MAX_OPTIONS, MAX_VALUES
from deniable.registry.period import LENGTHS
from deniable.registry.published import newest
from deniable_aggregator.commands.off import lines, marked
from deniable_aggregator.commands.options import share, whole_number

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import timedelta

    from deniable.commands.parser import Run
    from deniable.registry import Registry
    from deniable_aggregator.accounting.plan import Plan
    from deniable_aggregator.planning.outlook import Outlook, Terms

_NONE = "-"
_OWN = {
    "values": "--values",
    "options": "--options",
    "range": "--range",
    "epsilon": "--epsilon",
    "central": "--central",
    "epsilon_permanent": "--epsilon-permanent",
    "mechanism": "--mechanism",
    "segments": "--segments",
    "period": "--period",
    "min_reports": "--min-reports",
    "distribution": "--distribution",
}
"""Options for what a registry states itself, by name."""


def plan(parser: argparse.ArgumentParser) -> Run:
    """``deniable plan FILE --users N``, or ``deniable plan --values D --epsilon E --users N``."""
    # Without `--users` it finds how many users `--within` or an arm needs. Without `--epsilon` it finds the epsilon.
    parser.add_argument("file", nargs="?", metavar="FILE", help=f"a registry: all its metrics (default: {REGISTRY})")
    parser.add_argument("--users", type=whole_number, metavar="N", help="people who answer once, such as 1e5")
    about = "find the users or the epsilon for this error: of a share, or part of the range of a number"
    parser.add_argument("--within", type=share, metavar="W", help=about)
    parser.add_argument("--share", type=share, default=0.1, metavar="F", help="the share whose errors are shown (default 0.1)")
    parser.add_argument("--difference", type=share, metavar="D", help="size the arms of a comparison that is to see this rise")
    about = "how many people show that one answer leads by so much; the next one has --share, and all others less, evenly"
    parser.add_argument("--leads-by", type=share, metavar="X", help=about)
    parser.add_argument("--level", type=share, default=0.95, metavar="P", help="confidence (default 0.95)")
    parser.add_argument("--per-day", type=float, metavar="N", help="reports a day (default: of all users in a period)")
    parser.add_argument("--values", type=int, metavar="D", help="instead of FILE: answers of a list")
    parser.add_argument("--options", type=int, metavar="M", help="options of a set")
    parser.add_argument("--most", type=int, default=0, metavar="S", help="of a set: the most options that an answer keeps")
    parser.add_argument("--range", nargs=2, metavar=("LOW", "HIGH"), help="of a number")
    parser.add_argument("--distribution", action="store_true", help="of a number: quantiles, too")
    parser.add_argument("--epsilon", metavar="E", help="privacy loss of a report in nats")
    about = "instead of --epsilon: what the server may learn of a report; with a relay, and without one"
    parser.add_argument("--central", metavar="E", help=about)
    parser.add_argument("--epsilon-permanent", metavar="E", help="of the kept response, if one is kept")
    parser.add_argument("--mechanism", nargs="+", default=[], metavar="NAME", help="default: those that auto chooses from")
    parser.add_argument("--segments", nargs="+", type=int, default=[], metavar="K", help="number of values of each segment")
    parser.add_argument("--period", choices=LENGTHS, help="default: day")
    parser.add_argument("--min-reports", type=int, metavar="N", help="fewest reports behind a release (default 100)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return _plan


def _plan(arguments: argparse.Namespace) -> int:
    from deniable_aggregator.accounting import plan as accounting
    from deniable_aggregator.planning.outlook import Terms, of_registry

    _check_purpose(arguments)
    terms = Terms(
        users=arguments.users,
        share=arguments.share,
        within=arguments.within,
        level=arguments.level,
        difference=arguments.difference,
        leads_by=arguments.leads_by,
        per_day=arguments.per_day,
    )
    if arguments.central is not None:
        return _print_ways(arguments, terms)
    kinds = _kinds(arguments)
    if arguments.file is None and kinds:
        _print(_for_mechanisms(arguments, terms), terms, None, as_json=arguments.json)
        return 0
    flags = [option for name, option in _OWN.items() if getattr(arguments, name)]
    if flags:
        kind = "without FILE" if kinds else "with --values, --options or --range"
        raise ConfigurationError(f"{flags[0]} goes {kind}: a registry states its own")
    registry = newest(arguments.file or REGISTRY)
    rows = of_registry(registry, terms)
    planned, today = _with(registry, rows), datetime.now(UTC).date()
    budget = accounting.plan(_with(registry, [row for row in rows if not row.metric.expired(today)]))
    _print(rows, terms, budget, planned, off(planned, today), as_json=arguments.json)
    return 0


def _print_ways(arguments: argparse.Namespace, terms: Terms) -> int:
    """Print how many reports an error needs with a relay and without one, at one central epsilon."""
    from deniable_aggregator.planning import mixing

    central = float(exact(arguments.central))
    others = [
        name for name in ("file", "users", "epsilon", "epsilon_permanent", "difference", "leads_by") if getattr(arguments, name)
    ]
    if others or terms.within is None or arguments.segments or len(arguments.mechanism) > 1:
        rule = "--central goes with --within and the kind of one metric, and at most one --mechanism"
        raise ConfigurationError(f"{rule}, such as deniable plan --values 2 --within 0.02 --central 1")
    metric = replace(_described(arguments), mechanism=(arguments.mechanism or ["auto"])[0])
    both = mixing.ways(metric, terms, central)
    if arguments.json:
        print(json.dumps({"central": central, "delta": mixing.DELTA, "within": terms.within} | both._asdict()))
        return 0
    alone, mixed = (_NONE if number is None else f"{number:,}" for number in (both.alone, both.mixed))
    print_table(
        [
            ["", "reports", "local epsilon"],
            ["without a relay", alone, f"{central:g}"],
            ["with a relay", mixed, f"{both.local:g}"],
        ]
    )
    print()
    print(f"Reports of one period for +-{terms.within:g}, if the server shall learn at most {central:g} nats of each.")
    print("The local epsilon is what anyone learns who sees a report by itself.")
    needs = "relay and server do not work together, and that so many reports are honest"
    print(f"With a relay, {central:g} has a delta of {mixing.DELTA:g}. It needs that {needs}.")
    return 0


def _check_purpose(arguments: argparse.Namespace) -> None:
    """Refuse a plan without a number of users, an error or a difference."""
    if arguments.range and arguments.within is not None and arguments.within >= 1:
        low, high = (float(read_number(end)) for end in arguments.range)
        if arguments.within < high - low:
            part = f"{arguments.within:g} of {high - low:g} is {arguments.within / (high - low):.3g}"
            raise ConfigurationError(f"--within {arguments.within:g}: write it as a part of the range; {part}")
    if all(each is None for each in (arguments.users, arguments.within, arguments.difference, arguments.leads_by)):
        aims = "--users, --within, --difference or --leads-by"
        raise ConfigurationError(f"state {aims}: how many people there are, or what is to be seen")


def _kinds(arguments: argparse.Namespace) -> list[str]:
    """Return the options that say what kind of metric is planned."""
    return [name for name in ("values", "options", "range") if getattr(arguments, name) is not None]


def _for_mechanisms(arguments: argparse.Namespace, terms: Terms) -> list[Outlook]:
    """Plan a metric that no registry declares, for each mechanism."""
    from deniable_aggregator.planning.outlook import of_mechanisms

    if terms.users is None and terms.within is None:
        if arguments.epsilon is None:
            aim = "--difference" if terms.difference is not None else "--leads-by"
            raise ConfigurationError(f"{aim} needs --epsilon; or --users and --within, to find the epsilon")
    elif (arguments.epsilon is None or arguments.users is None) is (terms.within is None):
        rule = "state --users and --epsilon; or --within, and one of them, to find the other"
        raise ConfigurationError(rule)
    if arguments.epsilon is None and arguments.users is None:
        raise ConfigurationError("--within needs --users, to find the epsilon, or --epsilon, to find the users")
    if any(size < 1 for size in arguments.segments):
        raise ConfigurationError("a segment has at least one value")
    return of_mechanisms(
        _described(arguments),
        terms,
        epsilon_needed=arguments.epsilon is None,
        names=tuple(arguments.mechanism),
        segments=tuple(arguments.segments),
    )


def _described(arguments: argparse.Namespace) -> Metric:
    """Return the metric that the options describe."""
    kinds = _kinds(arguments)
    if len(kinds) != 1:
        raise ConfigurationError("state only one of --values, --options and --range")
    if arguments.distribution and kinds != ["range"]:
        raise ConfigurationError("--distribution goes with --range")
    fields: dict[str, Any] = {"id": "", "epsilon": arguments.epsilon or "1", "period": arguments.period or "day"}
    if arguments.epsilon_permanent is not None:
        fields["epsilon_permanent"] = str(exact(arguments.epsilon_permanent))
    if arguments.min_reports is not None:
        if arguments.min_reports < 1:
            raise ConfigurationError("--min-reports is a whole number of at least 1")
        fields["min_reports"] = arguments.min_reports
    if kinds == ["range"]:
        low, high = map(read_number, arguments.range)
        if low >= high:
            raise ConfigurationError("--range is the least number and then the greatest")
        fields["estimate"] = "distribution" if arguments.distribution else "mean"
        return Metric(type="number", values=(), range=tuple(arguments.range), **fields)
    kind, option, most = ("categorical", "--values", MAX_VALUES) if kinds == ["values"] else ("set", "--options", MAX_OPTIONS)
    size = getattr(arguments, kinds[0])
    if not 1 < size <= most:
        raise ConfigurationError(f"{option} is a whole number from 2 to {most:,}")
    if arguments.most and (kind != "set" or not 0 < arguments.most < size):
        raise ConfigurationError("--most goes with --options, and is a whole number below it")
    fields |= {"type": kind, "most": arguments.most}
    return Metric(values=tuple(map(str, range(size))), **fields)


def _with(registry: Registry, rows: Sequence[Outlook]) -> Registry:
    """Return the registry with the epsilons of a plan."""
    return replace(registry, metrics={row.metric.id: row.metric for row in rows})


def _print(
    rows: Sequence[Outlook],
    terms: Terms,
    budget: Plan | None,
    registry: Registry | None = None,  # with the epsilons of the plan
    not_recorded: Mapping[str, str] = MappingProxyType({}),  # why metrics of it are off, by id
    *,
    as_json: bool,
) -> None:
    from deniable_aggregator.accounting.crowds import readers, relay

    mixed = [(registry, metric) for metric in registry.metrics.values() if metric.shuffled] if registry else []
    if as_json:
        document: dict[str, Any] = {"plan": [row.to_dict() for row in rows]}
        if budget:
            document["budget"] = _budget(budget)
            document["relay"] = {metric.id: relay.to_dict(metric) for _, metric in mixed}
            document["off"] = dict(not_recorded)
        print(json.dumps(document))
        return

    first = ["metric"] if budget else []
    cells = ["cell"] if any(row.cell for row in rows) else []
    people, around = "reports" if terms.users else "users", f"+-{terms.level:.4g}"
    headings = [*first, *cells, "mechanism", "epsilon", "bytes", people, around, "detects", "A/B sees", "overall"]
    headings += [*(["an arm"] if terms.difference else []), *(["a lead"] if terms.leads_by else []), "first release"]
    print_table([headings, *([*_labels(row, first, cells, not_recorded), *_row(row)] for row in rows)])
    print()
    for line in (*lines(not_recorded), *_notes(rows, terms)):
        print(line)
    if budget:
        fits = "fits" if budget.fits else "does not fit"
        most = budget.budget.per_month
        of = "" if most is None else f" of {most:g}"
        collected = {use.metric.id for use in budget.uses}
        ended = "" if all(row.metric.id in collected for row in rows) else " Metrics that have ended reserve none."
        print(f"Budget: {budget.reserved_month:.4g}{of} nats are reserved in a calendar month; the registry {fits}.{ended}")
        guesses = {row.metric.id: row.guess for row in rows if row.metric.id in collected}
        figures = ", ".join(f"{id_} {percent(guess)}" for id_, guess in guesses.items() if guess is not None)
        if figures:
            print(f"Right guess in a year, from all reports of one answer, at most: {figures}; 50% is luck.")
        crowds = [(use.metric.id, use.crowd) for use in budget.uses if use.crowd]
        if crowds:
            figures = ", ".join(f"{id_} {readers.upward(readers.one_report(crowd))}" for id_, crowd in crowds)
            print(f"Central epsilon of one report, with delta {readers.DELTA:g}: {figures}. {readers.CONDITION}")
        for declared, metric in mixed:
            few = pools.too_small(declared, metric, terms.users) if terms.users else ""
            print(f"{metric.id}: {relay.sentence(declared, metric)}{f' {few}.' if few else ''}")


def _labels(row: Outlook, first: Sequence[str], cells: Sequence[str], not_recorded: Mapping[str, str]) -> list[str]:
    cell = f"{row.cell} (1/{row.parts})" if row.cell else "all"
    return [marked(row.metric.id, not_recorded)] * len(first) + [cell] * len(cells)


def _row(row: Outlook) -> list[str]:
    mechanism = row.mechanism
    if not mechanism:
        columns = 7 + bool(row.terms.difference) + bool(row.terms.leads_by)
        return [row.metric.mechanism, "none is enough", *[_NONE] * columns]
    figures = [_figure(row, part) for part in (row.error, row.detects, row.difference, row.overall)]
    aims = [(row.terms.difference, row.arm), (row.terms.leads_by, row.lead)]
    needs = [_NONE if number is None else f"{number:,}" for aim, number in aims if aim is not None]
    users = _NONE if row.n is None else f"{row.n if row.terms.users else row.users:,}"
    size = str(mechanism.layout.payload_size)
    return [mechanism.name, f"{mechanism.epsilon:.4g}", size, users, *figures, *needs, _duration(row.wait)]


def _figure(row: Outlook, part: float | None) -> str:
    """Write a share, or a part of a range in the unit of the metric."""
    if part is None:
        return _NONE
    return length(row.metric, part) if row.of == "mean" else f"{part:.3g}"


def _duration(wait: timedelta | None) -> str:
    if wait is None:
        return _NONE
    if not wait:
        return "at once"  # in a trial
    hours = wait.total_seconds() / 3600
    for size, word in ((24, "days"), (1, "hours")):
        if hours >= 2 * size:
            return f"{hours / size:.2g} {word}"
    return f"{hours * 60:.2g} minutes"


def _notes(rows: Sequence[Outlook], terms: Terms) -> list[str]:
    """Return lines that explain the table."""
    lines = [
        f"+-: half the length of a {terms.level:.0%} interval of a share of {terms.share:g}, or of a mean at most.",
        "detects: the smallest share that is detected half of the time.",
        f"A/B sees: a rise by so much, from {terms.share:g}, with half of the reports in each arm and power 80%.",
        "overall: such a rise, while all other values fall evenly, for the test that takes all values together.",
    ]
    for row in rows:
        if terms.within is not None and row.of == "mean" and not row.cell:
            name = f" of {row.metric.id}" if row.metric.id else ""
            lines.append(f"within: {terms.within:g} is part of the range{name}: {length(row.metric, terms.within).strip()}.")
    lines += _aims(terms)
    lines += [*_too_few(rows), *_searches(rows)]
    if terms.within is not None and terms.users and any(row.mechanism and row.cell for row in rows):
        aim = f"what all reports need for +-{terms.within:g}"
        lines.append(f"epsilon: {aim}; of a segment there are fewer, so it has a larger error.")
    if terms.within is not None and not terms.users and any(row.cell for row in rows):
        lines.append(f"users: how many people are needed in all, so that this row is within +-{terms.within:g}.")
    for row in rows:
        if row.resolved and not row.cell:
            words = ", ".join(f"{name} is {'' if is_resolved else 'not '}resolved" for name, is_resolved in row.resolved.items())
            lines.append(f"Quantiles{f' of {row.metric.id}' if row.metric.id else ''}: {words} (rough).")
        if row.mechanism and row.n and row.error is None and not row.cell:
            lines.append(f"The error of {row.mechanism.name} depends on all answers: it is not known before.")
    if rows[0].metric.id == "" and not rows[0].metric.kind.mechanism(rows[0].metric) and rows[0].mechanism:
        chosen = _chosen(rows[0].metric)
        lines.append(f"At epsilon {rows[0].mechanism.epsilon:.4g}, auto would choose {chosen}.")
    return list(dict.fromkeys(lines))


def _aims(terms: Terms) -> Iterator[str]:
    """Say what the columns mean that only some plans have."""
    if terms.difference is not None:
        needs = f"reports that each of two arms needs, to see a rise by {terms.difference:g} with power 80%"
        often = "An experiment may be looked at often, and needs more: deniable registry lint tells how many people"
        yield f"an arm: {needs}, with one look. {often}."
    if terms.leads_by is not None:
        what = f"that one answer is the most frequent, if it leads the next by {terms.leads_by:g}, with power 80%"
        yield f"a lead: people who are needed in all to show {what}."
        yield f"The next has a share of {terms.share:g}, or that of the others if they have more; in a set all others have it."


def _searches(rows: Sequence[Outlook]) -> Iterator[str]:
    """Say of each search how many reports it needs."""
    for row in rows:
        if row.mechanism and row.mechanism.searches and not row.cell:
            yield f"{row.metric.id}: {outlook(row.metric, row.mechanism)}."


def _too_few(rows: Sequence[Outlook]) -> Iterator[str]:
    """Say of each metric why no epsilon is enough, and how many reports would be; of several mechanisms, with the best one."""
    fewest: dict[str, tuple[int, str]] = {}
    for row in rows:
        few, metric = row.too_few, row.metric
        if few is None or row.cell:
            continue
        why = "by chance alone that many people differ more from everybody"
        if metric.epsilon_permanent is not None:
            why = f"epsilon may be {float(metric.epsilon_permanent):.4g} at most, which is its epsilon_permanent"
        elif few.share < 1:
            what = "pairs of options" if metric.joint else "options"
            why = f"each report is about {100 * few.share:.3g}% of the {what} at most, so {few.about:,} are about each"
        enough = f"about {float(f'{few.needed:.3g}'):,.0f} reports are needed at epsilon {float(metric.epsilon):.4g}"
        name = f"{metric.id}: " if metric.id else ""
        words = f"{name}no epsilon is enough for +-{row.terms.within:g} with {row.reports:,} reports: {why}; {enough}."
        fewest[metric.id] = min(fewest.get(metric.id, (few.needed, words)), (few.needed, words))
    return (words for _, words in fewest.values())


def _chosen(metric: Metric) -> str:
    return mechanisms.of(replace(metric, mechanism="auto")).name


def _budget(budget: Plan) -> dict[str, Any]:
    from deniable_aggregator.accounting.crowds import readers

    return {
        "per_month": budget.budget.per_month,
        "reserved": budget.reserved_month,
        "fits": budget.fits,
        "metrics": {use.metric.id: use.reserved_month for use in budget.uses},
        "readers": {use.metric.id: readers.one_report(use.crowd) for use in budget.uses if use.crowd},
    }
