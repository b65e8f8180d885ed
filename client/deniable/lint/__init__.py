"""Checks of a registry: its faults, what may be a mistake, and what its metrics lead to."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from fractions import Fraction
from importlib.metadata import entry_points
from itertools import chain
from math import inf
from typing import TYPE_CHECKING

from deniable import mechanisms, registry
from deniable.declared import Declared, declare
from deniable.errors import Fault, RegistryError
from deniable.forecast import pools, search, space
from deniable.forecast.precision import expected, people_needed
from deniable.frozen import dataclass, replace
from deniable.limits import spending
from deniable.limits.admission import admit
from deniable.limits.allowance import Allowance
from deniable.limits.caps import budget_of, caps_of, exceeding
from deniable.limits.exposure import MANY_GROUPS, Exposure
from deniable.lint import numbers
from deniable.lint.sound import Sound, read_sound
from deniable.mechanisms.sets import OfSets
from deniable.messages.lookalike import alike, nearest, spelt
from deniable.messages.plural import plural
from deniable.registry.places import placed
from deniable.registry.tables import Budget

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric, Registry

STRONG_EPSILON = 4.0
"""The epsilon above which lint warns. A report then raises the odds between two answers more than 50 times."""

LONG_DAYS = 400
"""Days for which exact sums may be kept without a warning. All that may be published of them was published long before."""

FEW_REPORTS = 20
"""The `min_reports` below which lint warns. It would publish groups so small that all members may know each other."""
_FEW = f"below {FEW_REPORTS} it publishes results of small groups; write more"

MANY_VALUES = 3
"""Fewest equal values for which two metrics may ask the same question. Many have fewer, such as yes and no."""

LONG_SECONDS = 60
"""Seconds of the longest time of a range above which lint says how long reports by `timed` wait in memory."""

MANY_REPORTS = 10_000
"""Reports that a release waits for above which lint reports a metric whose reports are about one of many parts each."""
_MANY_PARTS = 20

LARGE_BYTES = 1 << 28
"""Bytes in the store above which lint reports a metric, with the reasons: 256 MiB."""

ALIKE = "look alike, and are counted apart: keep one, or make them different"


@dataclass(frozen=True, slots=True)
class Note:
    """What a usable metric resolves to, and why."""

    metric: str  # its id
    facts: Mapping[str, str]  # each with what it is about, in a word


@dataclass(frozen=True, slots=True)
class Lint:
    """What lint found in a registry file."""

    faults: tuple[Fault, ...]  # Faults. The file cannot be used until they are mended.
    warnings: tuple[Fault, ...]  # what may be a mistake
    notes: tuple[Note, ...]  # one for each usable metric
    exposed: str = ""  # what the reports of all metrics together show besides answers, in words; empty where it is nothing
    spending: tuple[tuple[str, ...], ...] = ()  # the rows of a table: what a device may give away on each metric
    legend: tuple[str, ...] = ()  # sentences below that table


def lint(
    path: str | Path,
    users: int | None = None,  # people who report once a period, by which it is known whether pools of a relay are filled
) -> Lint:
    """Check a registry file: its format, that each metric has a mechanism, and that none would be off on a device."""
    try:
        sound = read_sound(registry.read(path), str(path))
    except RegistryError as error:  # it cannot be read
        return Lint(error.faults, (), ())
    loaded, faults = sound.registry, list(sound.faults)
    if loaded is None:
        return Lint(tuple(_placed(path, sound.text, faults)), (), ())
    faults += [Fault(str(path), "-", rule) for rule in _unknown_mechanisms(loaded)]
    declared, notes = _declared(loaded, sound, faults), list[Note]()
    faulty = {fault.metric for fault in faults}
    usable = [ready for ready in declared if ready.metric == loaded.metrics[ready.metric.id]]
    warnings = [Fault(str(path), "-", rule, value) for rule, value in _file_doubts(loaded)]
    for ready in (each for each in usable if not sound.stands_in(each.metric.id)):
        metric, mechanism = ready.metric, ready.mechanism
        doubts = chain(
            *(_doubts(metric, loaded.publication.min_reports, is_whole=metric.id in sound.whole_numbers), _mixed_doubts(metric)),
            *(_large(loaded, metric, mechanism), _rare(metric, mechanism), _capped(metric)),
        )
        warnings += [Fault(str(path), metric.id, rule, value) for rule, value in doubts]
        faults += [Fault(str(path), metric.id, rule) for rule in _mixed_faults(loaded, metric, users)]
        if metric.id not in faulty:
            notes.append(_note(loaded, ready))
    today = datetime.now(UTC).date()
    admission = admit(loaded, None, today) if sound.spends and len(usable) == len(loaded.metrics) else None
    exposed, table, legend = "", tuple[tuple[str, ...], ...](), tuple[str, ...]()
    if admission is not None and not faults:
        table, legend = tuple(spending.rows(loaded, admission, today)), tuple(spending.legend(loaded, today))
        exposure = Exposure.of(loaded)
        warnings += [Fault(str(path), "-", rule, value) for rule, value in _exposed(exposure)]
        exposed = exposure.words
    if admission is not None:
        faults += admission.faults
    elif "caps" not in sound.left_out.get("-", ()):  # what is unknown of others does not matter
        above = exceeding(declared, caps_of(loaded), "[caps]")
        faults += [Fault(str(path), id_, rule) for id_, rule in above if sound.knows(id_, rule)]
    warnings = [warning for warning in warnings if sound.knows(warning.metric, warning.rule)]
    lines = _placed(path, sound.text, [*faults, *warnings])
    in_order = sorted(lines[: len(faults)], key=lambda fault: (fault.file != str(path), fault.line))
    return Lint(tuple(in_order), tuple(lines[len(faults) :]), tuple(notes), exposed, table, legend)


def _declared(loaded: Registry, sound: Sound, faults: list[Fault]) -> list[Declared]:
    """Declare each metric, and add why it cannot be.

    Then one with a mechanism that fits is in its place: what it asks for can be compared with the caps all the same.
    """
    declared: list[Declared] = []
    for metric in loaded.metrics.values():
        candidates: tuple[int, ...] = ()
        try:
            candidates = loaded.candidates(metric)
        except RegistryError as error:
            faults += error.faults
        try:
            declared.append(declare(loaded, metric, candidates))
        except RegistryError as error:
            faults += (fault for fault in error.faults if sound.knows(metric.id, fault.rule))
            with suppress(RegistryError):
                declared.append(declare(loaded, replace(metric, mechanism="auto", parameters=()), candidates))
    return declared


def _placed(path: str | Path, text: str, findings: Sequence[Fault]) -> list[Fault]:
    """Add to each finding its line in the registry. Findings in other files say their line themselves."""
    ours = iter(placed(text, [each for each in findings if each.file == str(path)]))
    return [next(ours) if each.file == str(path) else each for each in findings]


def _unknown_mechanisms(loaded: Registry) -> Iterator[str]:
    """Find what `[caps]` names that is no mechanism: nobody would notice that it allows none."""
    for name in sorted(loaded.caps.mechanisms or ()) if loaded.caps else ():
        if name not in mechanisms.every():
            mended = nearest(name, mechanisms.every()) or " or ".join(mechanisms.every())
            yield f"caps.mechanisms has {name!r}, which is no mechanism: write {mended}"


def _file_doubts(loaded: Registry) -> Iterator[tuple[str, object]]:
    if loaded.publication.trial:
        yield "publication.trial: all is published at once, which reveals who took part; remove it before people answer", True
    if loaded.publication.min_reports < FEW_REPORTS:
        yield f"publication.min_reports: {_FEW}", loaded.publication.min_reports
    if loaded.analysts.epsilon > STRONG_EPSILON:
        rule = f"analysts.epsilon: above {STRONG_EPSILON:g} the segment of a report is known with odds above 50 to 1; write less"
        yield rule, loaded.analysts.epsilon
    if loaded.retention.tallies > LONG_DAYS:
        rule = f"retention.tallies: after {LONG_DAYS} days exact sums are of little use, and somebody may demand them; write less"
        yield rule, loaded.retention.tallies
    default = Budget()
    if loaded.budget is None:
        words = f"{default.per_month:g} nats a month and {default.lifetime:g} ever"
        yield f"there is no [budget], so a person gives away up to {words}: declare one", ...
    elif (loaded.budget.per_month or inf) > (default.per_month or inf):
        yield f"budget.per_month: above {default.per_month:g} it promises people little; write less", loaded.budget.per_month
    for name in loaded.experiments:
        if not any(name in metric.segments for metric in loaded.metrics.values()):
            yield f"experiments.{name}: no metric has this segment; add it to the segments of a metric", ...
    if loaded.relay and not any(metric.shuffled for metric in loaded.metrics.values()):
        yield "relay: no metric has `shuffled`, so it mixes nothing; remove it, or declare shuffled", ...
    yield from _alike(loaded)


def _mixed_faults(loaded: Registry, metric: Metric, users: int | None) -> Iterator[str]:
    """Find why a metric must not be published with what it claims of mixed reports."""
    if metric.shuffled is None:
        return
    try:
        unproved = [check.load()(metric) for check in entry_points(group="deniable.claims")]
    except ModuleNotFoundError:
        unproved = []
    unchecked = "shuffled: here nothing can check its central epsilon: pip install 'deniable[aggregator]'"
    yield from filter(None, unproved or [unchecked])
    if users is not None:
        yield from filter(None, [pools.too_small(loaded, metric, users)])


def _alike(loaded: Registry) -> Iterator[tuple[str, object]]:
    for name, values in loaded.segments.items():
        for pair in alike(values):
            yield f"segments.{name}: {_pair(pair)} {ALIKE}", ...
    for pair in alike(loaded.metrics):
        yield f"metrics {_pair(pair)} look alike, and are mistaken for each other: rename one", ...
    same: dict[frozenset[object], list[str]] = {}
    for metric in loaded.metrics.values():
        if len(metric.values) >= MANY_VALUES:
            same.setdefault(frozenset(metric.values), []).append(metric.id)
    for ids in same.values():
        if len(ids) > 1:
            rule = f"{', '.join(ids)} have the same values: they may ask the same question, and their losses add up"
            yield f"{rule}; keep one, unless the questions differ", ...


def _pair(names: Iterable[str]) -> str:
    return " and ".join(map(repr, names))


def _note(loaded: Registry, declared: Declared) -> Note:
    metric, mechanism = declared.metric, declared.mechanism
    allowance = Allowance.of(declared, budget_of(loaded))
    facts = _resolved(metric, mechanism, len(declared.candidates))
    facts |= _reported(metric, allowance) | _experiments(loaded, metric, mechanism)
    if (metric.longest_seconds or 0) > LONG_SECONDS:  # whether an app uses `timed`, a registry does not say
        end = f"{metric.range[1]} {metric.unit} after the block began, so that the moment does not tell the time"
        facts["by timed"] = f"a report waits in memory until {end}; it is lost if the process is killed before"
    if metric.shuffled:
        facts["mixed"] = _mixed(loaded, metric)
    if metric.delay is not None:
        facts["travels"] = f"after a random time of up to {metric.delay} on the device"
    return Note(metric.id, facts)


def _resolved(metric: Metric, mechanism: Mechanism, candidates: int) -> dict[str, str]:
    """Return the mechanism of a metric and why it was chosen, in words."""
    size = mechanism.layout.payload_size
    plain = f"{mechanism.name}: epsilon {mechanism.epsilon:.6g}, {size} byte{'s' * (size != 1)} a report"
    if metric.open:
        answers = plural(candidates, "candidate") if candidates else "to be discovered"
        cut = f"; texts are cut after {plural(metric.max_length, 'byte')}: max_length" if metric.kind.clipped else ""
        frequent = {"found": search.outlook(metric, mechanism)} if mechanism.searches else {}
        return {"mechanism": plain, "answers": f"{answers}{cut}"} | frequent
    if metric.axis or metric.estimate or metric.kind.options:
        return {"mechanism": plain} | expected(metric, mechanism)
    if metric.mechanism != "auto":
        return {"mechanism": f"{plain}, as declared"}
    chosen = mechanisms.choose(
        domain_size=metric.domain_size,
        epsilon=metric.epsilon,
        max_bytes=metric.max_report_bytes,
        permanent=metric.epsilon_permanent,
    )
    return {"mechanism": f"{mechanism.name}: {chosen.figures}", "chosen for": chosen.reason, "others' error": chosen.others}


def _reported(metric: Metric, allowance: Allowance) -> dict[str, str]:
    """Return how many reports of a metric, or answers to it, a device makes, in words."""
    if allowance.answers:
        price = f"all reports of one answer give away {allowance.price} together"
        change = "That an answer changed, or returned to an earlier one, shows as well, and is not counted"
        return {"answers kept": f"at most {allowance.answers} a month; {price}. {change}"}
    return {"reports": f"at most {metric.per_period} a {metric.period}"}


def _mixed(loaded: Registry, metric: Metric) -> str:
    """Return what is claimed of the reports of a metric that a relay mixes, in words. The local epsilon stands before."""
    if metric.shuffled is None or loaded.relay is None:
        return ""
    shuffled, operator, users = metric.shuffled, loaded.relay.operator, pools.users_needed(loaded, metric)
    per = f" of each of {pools.cells(loaded, metric):,} combinations of segments" if metric.segments else ""
    return (
        f"epsilon {metric.epsilon} holds for anyone who sees a report; the server learns at most {shuffled.central}, with delta "
        f"{float(shuffled.delta):g}, if {operator} does not work together with it and {shuffled.min:,} reports of a pool are "
        f"honest. A pool of a {metric.period}{per} needs as many: {users:,} users who answer each time, if they are spread "
        "evenly. Smaller ones are dropped"
    )


def _experiments(loaded: Registry, metric: Metric, mechanism: Mechanism) -> dict[str, str]:
    """Return what the experiments of a metric need, in words."""
    sentences = []
    for name in (each for each in metric.segments if each in loaded.experiments):
        experiment, arms = loaded.experiments[name], loaded.segments[name]
        planned = experiment.planned
        people = people_needed(metric, mechanism, experiment, arms)
        if people is not None:
            what = f"a difference of {planned:g}{' of the range' if metric.axis else ''}"
            sentences.append(f"{people:,} people in each arm of {name} find {what} in 80% of cases, however often you look")
    if sentences and metric.permanent:
        sentences.append("more periods of the same people hardly help, since each keeps its noise")
    return {"experiment": "; ".join(sentences)} if sentences else {}


def _exposed(exposure: Exposure) -> Iterator[tuple[str, object]]:
    for what, groups, mend in (
        ("rows of kept responses", exposure.rows, "use fewer cohorts, or mechanisms with fewer rows"),
        ("segments", exposure.segments, "use fewer and coarser values"),
    ):
        if groups > MANY_GROUPS:
            rule = f"{what} put devices into {groups:,} groups, and each report shows the device's own, which few share"
            yield f"{rule}: {mend}", ...


def _doubts(metric: Metric, common: int, *, is_whole: bool) -> Iterator[tuple[str, object]]:
    if float(metric.epsilon) > STRONG_EPSILON:
        rule = f"epsilon: above {STRONG_EPSILON:g} it gives the answer away with odds above 50 to 1; write less"
        yield rule, float(metric.epsilon)
    yield from numbers.doubts(metric, is_whole=is_whole)
    if "other" in metric.kind.members and not metric.kind.ordered and metric.other is None:
        many = "options" if metric.kind.options else "answers"
        rule = f"other is missing: write the {metric.kind.noun} for {many} that are not listed, which is one of the values"
        own = next((value for value in ("other", "something else") if value in metric.values), "")
        mended = f'write other = "{own}"' if own else 'add "something else" to values, and write other = "something else"'
        yield f"{rule}: {mended}", ...
    if metric.epsilon_permanent is not None and float(metric.epsilon_permanent) > STRONG_EPSILON:
        odds = f"above {STRONG_EPSILON:g} all reports of an answer give it away with odds above 50 to 1; write less"
        yield f"epsilon_permanent: {odds}", float(metric.epsilon_permanent)
    if metric.period == "hour" and not metric.permanent:
        yield "period: it spends its epsilon 24 times a day; declare epsilon_permanent, or a longer period", metric.period
    if metric.expired(datetime.now(UTC).date()):
        yield f"collection ended on {metric.expires}: remove the metric, or write a later expires", ...
    if metric.expires is None:
        yield "expires is missing: write the last day of collection, such as expires = 2030-12-31", ...
    if metric.min_reports < FEW_REPORTS and metric.min_reports != common:
        yield f"min_reports: {_FEW}", metric.min_reports
    plain = tuple(value for value in metric.values if isinstance(value, str))
    for values in (plain, *(listed for _, listed in metric.factors)):
        for pair in alike(values):
            yield f"values {_pair(map(spelt, pair))} {ALIKE}", ...


def _mixed_doubts(metric: Metric) -> Iterator[tuple[str, object]]:
    if metric.shuffled and metric.shuffled.min < metric.min_reports:
        rule = f"shuffled.min: below min_reports a pool may be too small to be published; write {metric.min_reports} or more"
        yield rule, metric.shuffled.min


def _large(loaded: Registry, metric: Metric, mechanism: Mechanism) -> Iterator[tuple[str, object]]:
    """Report the space of a metric in the store if it is large: a tally for each period and combination of segments."""
    it = space.Space.of(loaded, metric, mechanism.layout)
    size = space.total([it])
    if size > LARGE_BYTES:
        mend = "use a mechanism with fewer cells, a longer period, fewer segments, or a shorter [retention]"
        yield f"up to {space.written(size)} in the store: {it.made_of()}; {mend}", ...


def _capped(metric: Metric) -> Iterator[tuple[str, object]]:
    """Report a cap of a set that makes estimates worse, though answers are cut for it."""
    if not metric.most:
        return
    typical = Fraction(metric.most, 2 * len(metric.values))
    both = (mechanisms.of(replace(metric, most=most, mechanism="auto", parameters=())) for most in (metric.most, 0))
    capped, free = (each.option_variance(typical) for each in both if isinstance(each, OfSets))
    if capped > free:
        rule = f"most: without it the variance of an option is {float(1 - free / capped):.0%} less, and nothing is cut; remove it"
        yield rule, metric.most


def _rare(metric: Metric, mechanism: Mechanism) -> Iterator[tuple[str, object]]:
    """Report a metric of which each release waits for many reports, since each report is about a part of what is asked."""
    needed = mechanism.needed(metric.min_reports)
    if needed > max(MANY_REPORTS, _MANY_PARTS * metric.min_reports):
        rule = f"a release waits for {metric.min_reports:,} reports about each {mechanism.part}, so for some {needed:,} in all"
        yield f"{rule}, and in each segment; list less, write a longer period, or lower min_reports", ...
