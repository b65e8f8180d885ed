"""The subcommand ``attack``: simulate what an observer learns of one person."""

from __future__ import annotations

import json
from math import isnan
from typing import TYPE_CHECKING, Any

from deniable import mechanisms
from deniable.commands import terminal
from deniable.exact.epsilon import exact
from deniable.mechanisms.sets import OfSets
from deniable_aggregator.commands.options import add_seed, drawing, progress, seed

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from deniable.commands.parser import Run
    from deniable.mechanisms import Mechanism
    from deniable_aggregator.attack.averaging import Curve, Result
    from deniable_aggregator.attack.differencing import Guesses
    from deniable_aggregator.attack.linkage import Linked

_SURE = 0.99
_TABLED = ("1", "2", "5")
_PUBLISHED = {
    "counts": "exact counts",
    "noisy counts": "counts with central noise",
    "reports": "sums of randomised reports",
    "releases": "our releases",
}
_STORIES = {
    "voters": "A clinic's records and a voters' roll: {people:,} people, one of six diagnoses each; epsilon {epsilon} a report",
    "reviews": "Ratings and public reviews: {people:,} people, who liked one more film or not; epsilon {epsilon} a report",
}
_HEADINGS = {"fresh": "noise drawn anew", "kept": "response kept", "lost": "kept, and lost"}


def attack(parser: argparse.ArgumentParser) -> Run:
    """``deniable attack averaging|differencing|linkage``: guess answers from reports, from sums, or from what else is known."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_averaging(actions)
    _add_differencing(actions)
    _add_linkage(actions)
    runs = {"averaging": _averaging, "differencing": _differencing, "linkage": _linkage}

    def run(arguments: argparse.Namespace) -> int:
        return runs[arguments.action](arguments)

    return run


def _add_averaging(actions: Any) -> None:
    about = "guess each device's answer from its first 1, 2, 5, ... reports, with and without a kept permanent response"
    parser = actions.add_parser("averaging", help=about)
    parser.add_argument("--mechanism", nargs="+", default=["l_grr", "rappor"], metavar="NAME", help="default: l_grr rappor")
    parser.add_argument("--domain-size", type=int, default=2, metavar="D", help="values; of sets of m options 2^m (default 2)")
    parser.add_argument("--epsilon", default="1", metavar="E", help="privacy loss of a report in nats (default 1)")
    parser.add_argument("--epsilon-permanent", default="2", metavar="E", help="of the kept response (default 2)")
    parser.add_argument("--preset", metavar="NAME", help="parameters of google_rappor")
    parser.add_argument("--prior", type=int, nargs="+", default=[], metavar="N", help="weight of each value (default: all alike)")
    parser.add_argument("--reports", type=int, default=1000, metavar="N", help="of each device (default 1000)")
    parser.add_argument("--devices", type=int, default=400, metavar="N", help="of each kind (default 400)")
    parser.add_argument("--lose-every", type=int, metavar="N", help="add devices that lose their state after every N reports")
    parser.add_argument("--plot", metavar="FILE", help="plot the success: .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each mechanism")


def _add_differencing(actions: Any) -> None:
    about = "guess the answer of a person who left a group, from what was published of it before and after"
    parser = actions.add_parser("differencing", help=about)
    parser.add_argument("--people", type=int, default=500, metavar="N", help="before one of them leaves (default 500)")
    parser.add_argument("--epsilon", default="1", metavar="E", help="of a report, and of noise in a count (default 1)")
    parser.add_argument("--min-reports", type=int, default=100, metavar="N", help="fewest reports behind a release (default 100)")
    parser.add_argument("--runs", type=int, default=10_000, metavar="N", help="groups (default 10000)")
    add_seed(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_linkage(actions: Any) -> None:
    about = "look for people in records, groups and reports by what else is known of them: a voters' roll, or public reviews"
    parser = actions.add_parser("linkage", help=about)
    parser.add_argument("--story", choices=[*_STORIES], help="default: both")
    parser.add_argument("--people", type=int, default=3000, metavar="N", help="made up, for each story (default 3000)")
    parser.add_argument("--k", type=int, default=5, metavar="K", help="fewest records that look alike (default 5)")
    parser.add_argument("--reviews", type=int, default=4, metavar="N", help="of each person, in public (default 4)")
    parser.add_argument("--epsilon", default="1", metavar="E", help="of a report (default 1)")
    add_seed(parser)
    parser.add_argument("--plot", metavar="FILE", help="plot what is found: .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each story")


def _averaging(arguments: argparse.Namespace) -> int:
    from deniable_aggregator.attack.averaging import averaging
    from deniable_aggregator.attack.observer import Observer

    if arguments.plot:
        drawing("attack.plot")  # a missing library is reported before the work
    observers = [Observer(_mechanism(name, arguments), arguments.prior) for name in arguments.mechanism]
    kinds = [(2 + bool(arguments.lose_every)) if each.mechanism.in_two_steps else 1 for each in observers]
    advance = progress(sum(kinds) * max(arguments.devices, 0), "devices")
    results = [
        averaging(
            observer, devices=arguments.devices, reports=arguments.reports, lose_every=arguments.lose_every, advance=advance
        )
        for observer in observers
    ]
    for result in results:
        print(json.dumps(result.to_dict()) if arguments.json else _text(result, arguments.lose_every))
    if arguments.plot:
        drawing("attack.plot")(results, arguments.plot)
        if not arguments.json:
            print(f"Plot: {arguments.plot}")
    return 0


def _mechanism(name: str, arguments: argparse.Namespace) -> Mechanism:
    options: dict[str, Any] = {}
    if name == "google_rappor":  # its prob_f sets the epsilon of the permanent response
        options["preset"] = arguments.preset or ""
    elif "permanent" in mechanisms.make(name, domain_size=arguments.domain_size, epsilon=arguments.epsilon).options:
        options["permanent"] = exact(arguments.epsilon_permanent)
    return mechanisms.make(name, domain_size=arguments.domain_size, epsilon=arguments.epsilon, **options)


def _text(result: Result, lose_every: int | None) -> str:
    mechanism, first = result.observer.mechanism, result.curves[0]
    permanent_curve = next((curve for curve in result.curves if curve.way == "kept"), None)
    title = f"{mechanism.name}, {mechanism.answers}, epsilon {mechanism.epsilon:.4g} a report"
    if permanent := mechanism.in_two_steps:
        total = f"{permanent.epsilon_permanent:.4g}" if permanent.permanent_ratio else "without bound"
        title += f", {total} for all reports of a kept response"
    lines = [f"{title}; {first.devices} devices of each kind", _row("reports", [_HEADINGS[curve.way] for curve in result.curves])]
    for place, reports in enumerate(first.reports):
        if str(reports).rstrip("0") in _TABLED or place + 1 == len(first.reports):
            lines.append(_row(f"{reports:,}", [_cell(curve, place) for curve in result.curves]))
    guess = result.observer.chances.max()
    lines += ["Right guesses with 95% intervals. " + f"Without any report {guess:.1%} would be right.", _about_fresh(first)]
    if permanent_curve is None:
        or_keep = "" if isinstance(mechanism, OfSets) else ", or declare epsilon_permanent"
        lines.append(f"This mechanism keeps no response: ask each person once{or_keep}.")
        return "\n".join(lines) + "\n"
    bound = result.observer.bound()
    how = "the kept response itself gives" if bound.exact else "its epsilon allows"
    lines.append(f"Kept: in the long run no observer is right more often than {bound.success:.1%}, which is what {how}.")
    if lose_every:
        lines.append(f"Kept, and lost after every {lose_every:,} reports: each new response tells as much again.")
    lines.append(
        "Next: declare epsilon_permanent for every metric that a device answers more than once, and keep the state directory."
    )
    return "\n".join(lines) + "\n"


def _about_fresh(curve: Curve) -> str:
    needed = curve.needed(_SURE)
    if needed is None:
        return f"Drawn anew: {curve.success[-1]:.1%} after {curve.reports[-1]:,} reports, and more with every report."
    return f"Drawn anew: {needed:,} reports are enough to know {_SURE:.0%} of the answers."


def _row(label: str, cells: Sequence[str]) -> str:
    return f"{label:>9}  " + "  ".join(f"{cell:>24}" for cell in cells)


def _cell(curve: Curve, place: int) -> str:
    return f"{curve.success[place]:6.1%} ({curve.low[place]:.1%} to {curve.high[place]:.1%})"


def _differencing(arguments: argparse.Namespace) -> int:
    from numpy.random import default_rng

    from deniable_aggregator.attack.differencing import differencing

    settings = {name: getattr(arguments, name) for name in ("people", "epsilon", "min_reports", "runs")}
    number = seed(arguments)
    guesses = {guess.published: guess for guess in differencing(**settings, rng=default_rng(number))}
    if arguments.json:
        settings |= {"epsilon": float(exact(arguments.epsilon)), "seed": number}
        print(json.dumps(settings | {"results": [guess.to_dict() for guess in guesses.values()]}))
        return 0
    print(f"A yes or no of {arguments.people:,} people, then without one of them; epsilon {arguments.epsilon}")
    rows = [("published both times", "right guesses", "95% interval", "at most")]
    for name, guess in guesses.items():
        rows.append((_PUBLISHED[name], f"{guess.success:.1%}", f"{guess.low:.1%} to {guess.high:.1%}", f"{guess.bound:.1%}"))
    terminal.print_table(rows)
    print(f"Subtracting exact counts gives the answer away. {_about_releases(guesses, arguments.min_reports)}")
    print("Next: keep min_reports well above 1, and choose an epsilon that would do if everything were published.")
    print(f"Seed: {number}")
    return 0


def _about_releases(guesses: Mapping[str, Guesses], min_reports: int) -> str:
    success = guesses["releases"].success
    if min_reports == 1:
        return f"Subtracting our releases leaves one randomised report: a guess is right in {success:.1%}, as epsilon allows."
    return f"Our releases are never one person apart, so a guess is right in {success:.1%}; a coin is right in 50%."


def _linkage(arguments: argparse.Namespace) -> int:
    from numpy.random import default_rng

    from deniable_aggregator.attack import reviews, voters

    if arguments.plot:
        drawing("attack.linkage_plot")  # a missing library is reported before the work
    number, stories = seed(arguments), [arguments.story] if arguments.story else [*_STORIES]
    common = {name: getattr(arguments, name) for name in ("people", "k", "epsilon")}
    results: dict[str, tuple[Linked, ...]] = {}
    for story in stories:
        rng = default_rng(number)
        if story == "voters":
            results[story] = voters.attacks(**common, rng=rng)
        else:
            advance = progress(max(arguments.people, 0), "people")
            results[story] = reviews.attacks(**common, reviews=arguments.reviews, rng=rng, advance=advance)
    for story, linked in results.items():
        if arguments.json:
            settings = {"story": story, "k": arguments.k, "epsilon": float(exact(arguments.epsilon)), "seed": number}
            print(json.dumps(settings | {"results": [each.to_dict() for each in linked]}))
        else:
            print(_STORIES[story].format(people=arguments.people, epsilon=arguments.epsilon))
            terminal.print_table([_LINKED, *map(_linked_row, linked)])
            print()
    if not arguments.json:
        print(_about_linkage([each for linked in results.values() for each in linked]))
        print(f"Seed: {number}. It fixes the people. The noise of devices is the system's, and another one each time.")
    if arguments.plot:
        drawing("attack.linkage_plot")(results, arguments.plot)
        if not arguments.json:
            print(f"Plot: {arguments.plot}")
    return 0


_LINKED = ("published", "person found", "answer claimed", "claims right", "guesses right", "had they stayed away")


def _linked_row(linked: Linked) -> tuple[str, ...]:
    names = ("named", "claims", "right_claims", "guesses", "without")
    counts = {name: getattr(linked, name) for name in names}
    totals = dict.fromkeys(names, linked.people) | {"right_claims": linked.claims}

    def cell(name: str) -> str:
        low, high = linked.intervals[name]
        return f"{counts[name] / totals[name]:.1%} ({100 * low:.1f} to {100 * high:.1f})" if totals[name] else "-"

    return linked.published, *map(cell, names)


def _about_linkage(results: Sequence[Linked]) -> str:
    reports = [each for each in results if not isnan(each.bound)]
    worst = max(reports, key=lambda linked: linked.named)
    return (
        "Shares of people with 95% intervals. An answer is claimed where it is at least 90% sure.\n"
        "Reports hide no segment and no period. "
        f"Where all of that is known, {worst.named / worst.people:.1%} of people are known to have sent one of them. "
        f"A guess from such a report is right in {worst.bound:.1%} at most, on average.\n"
        "Where more guesses are right, the others tell it: as many are right had the person stayed away.\n"
        "Next: declare few segments with few values, and an epsilon that would do if everybody knew whose report is whose."
    )
