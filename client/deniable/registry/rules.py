"""The rules of a registry file. A fault has the metric, the broken rule and the value that breaks it."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.exact.epsilon import exact
from deniable.frozen import fields
from deniable.messages.percent import meant_percent
from deniable.registry import hierarchy, period
from deniable.registry.answers import domain, types
from deniable.registry.hierarchy import WORD
from deniable.registry.keys import lifted, listed, meant
from deniable.registry.relay import Relay, Shuffled
from deniable.registry.tables import (
    GRACE,
    USUAL,
    Analysts,
    Budget,
    Caps,
    Experiment,
    Publication,
    Retention,
    covered,
    duration,
    missing_keys,
    refused_values,
    unknown_keys,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from deniable.registry.answers.domain import Broken
    from deniable.registry.tables import Found

FORMAT = 1
COIN_EPSILON = "1.0986122886681098"  # ln 3, the loss of two fair coins; only the coin mechanism may leave out its epsilon
MAX_REVISION = 1 << 53
ANSWERS_PER_MONTH = 2
"""Most permanent responses that a device reports in a calendar month, unless the metric declares another number."""

TABLES: dict[str, tuple[type[Budget | Caps | Publication | Retention | Analysts | Relay], str]] = {
    "budget": (Budget, "{ per_month = 8.0, lifetime = 480.0 }"),
    "caps": (Caps, "{ epsilon = 4.0, permanent = 4.0 }"),
    "publication": (Publication, "{ min_reports = 100, early = false }"),
    "retention": (Retention, "{ tallies = 30, releases = 1095 }"),
    "analysts": (Analysts, "{ epsilon = 1.0, per_key = 0.5 }"),
    "relay": (Relay, '{ operator = "Example Foundation", key = "1:..." }'),
}

TOP = ("format", "revision", "app", "segments", "generalize", "experiments", *TABLES, "metrics")

_IN_CODE_ONLY = ("metrics", "budget")  # of caps: a file has an epsilon in each metric, and its own [budget]

_ID = re.compile(r"[a-z][a-z0-9_]*(?:[.-][a-z0-9_]+)*")
_MAX_ID = 80
_WORDS = "words of lower-case letters, digits and _, joined by dots or dashes"
ID_RULE = f"write an id as {_WORDS}; it begins with a letter and has at most {_MAX_ID} characters"
"""What `is_id` checks."""
_MOST_TOGETHER = 1_000_000
_DEVICES = r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?"


def is_id(value: object) -> bool:
    """Return whether a value may be the name of an app or a metric."""
    return isinstance(value, str) and len(value) <= _MAX_ID and _ID.fullmatch(value) is not None


def is_revision(value: object) -> bool:
    """Return whether a value is a whole number above 0 that every language can hold."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < MAX_REVISION


def _app_faults(app: object) -> Iterator[Found]:
    if not is_id(app):
        yield "-", "app: write a lower-case name in quotes, such as 'shop'", app
    elif re.fullmatch(_DEVICES, str(app)):
        yield "-", "app: write another name; Windows has a device of this one, and cannot make a folder of it", app


def faults_of(
    document: dict[str, Any],  # the parsed TOML
    keys: tuple[str, ...],  # the keys that a metric may have
) -> Iterator[Found]:
    """Find every fault of a registry: the metric (``"-"`` for the file), the broken rule, and the value that breaks it."""
    document, moved = lifted(document, keys, TOP)
    yield from (("-", rule, ...) for rule in moved)
    yield from unknown_keys("-", "of a registry", TOP, document)
    # One mistyped key is one fault: it is not missing as well.
    document = {meant(key, TOP) or "": value for key, value in document.items() if key not in TOP} | document
    if document.get("format") != FORMAT or isinstance(document["format"], bool):  # True == 1
        yield "-", f"format: write {FORMAT}, which this version reads", document.get("format")
    yield from _app_faults(document.get("app"))
    revision = document.get("revision", 1)
    if not is_revision(revision):
        yield "-", "revision: write a whole number above 0, and raise it with every publication", revision
    for name in (each for each in TABLES if each in document):
        yield from _table_faults(name, document[name])
    segments = document.get("segments", {})
    if isinstance(segments, dict):
        yield from _segments_faults(segments)
    else:
        yield "-", "segments: write a table of lists of words, such as { platform = ['linux', 'macos'] }", segments
        segments = {}
    yield from _generalize_faults(document.get("generalize", {}), segments)
    yield from _experiments_faults(document.get("experiments", {}), segments)
    metrics = document.get("metrics")
    if not isinstance(metrics, dict) or not metrics:
        yield "-", 'metrics: declare at least one, as a table [metrics."ui.theme"]', metrics
        return
    grace = _common_grace(document.get("publication"))
    for id_, table in metrics.items():
        if not is_id(id_):
            yield id_, ID_RULE, id_
        if isinstance(table, dict):
            yield from _metric_faults(id_, table, segments, keys, grace)
            if "shuffled" in table and "relay" not in document:
                yield id_, "shuffled: declare who mixes its reports, as a table [relay] with operator and key; or remove it", ...
        else:
            yield id_, "write a metric as a table, with its own lines", table


def _table_faults(name: str, table: object) -> Iterator[Found]:
    """Find the faults of a table that holds for all metrics."""
    made_of, example = TABLES[name]
    if not isinstance(table, dict):
        yield "-", f"{name}: write a table such as {example}", table
        return
    known = [each.name for each in fields(made_of) if name != "caps" or each.name not in _IN_CODE_ONLY]
    yield from unknown_keys("-", f"of [{name}]", known, table, f"{name}.")
    yield from missing_keys(name, USUAL.get(name, ()), table, example)
    yield from refused_values(name, made_of, {key: value for key, value in table.items() if key in known}, USUAL.get(name, {}))


def _segments_faults(segments: dict[str, Any]) -> Iterator[Found]:
    for name, values in segments.items():
        if not WORD.fullmatch(name):
            yield "-", "write the name of a segment as one word of the letters A to Z, digits and _.+-", name
        listed = values if isinstance(values, list) and values else [...]
        if wrong := [each for each in listed if not (isinstance(each, str) and WORD.fullmatch(each))]:
            value = values if wrong == [...] else wrong[0]
            yield "-", f"segments.{name}: write a list of words of the letters A to Z, digits and _.+-, each in quotes", value
        elif len(set(values)) != len(values):
            yield "-", f"segments.{name}: list each value once", values


def _generalize_faults(table: object, segments: dict[str, Any]) -> Iterator[Found]:
    if not isinstance(table, dict):
        yield "-", 'generalize: write a table of segments, such as { version = "." }', table
        return
    for name, declared in table.items():
        if name in segments and any(_segments_faults({name: segments[name]})):
            continue  # already reported
        for rule, value in hierarchy.faults_of(name, segments.get(name), declared):
            yield "-", rule, value


def _experiments_faults(table: object, segments: dict[str, Any]) -> Iterator[Found]:
    example, usual = '{ base = "control", planned = 0.02 }', USUAL["experiments"]
    if not isinstance(table, dict):
        yield "-", f"experiments: write a table of segments, such as {{ arm = {example} }}", table
        return
    known = [each.name for each in fields(Experiment)]
    for name, declared in table.items():
        where, arms = f"experiments.{name}", segments.get(name)
        if not isinstance(arms, list) or len(arms) < 2:  # noqa: PLR2004
            yield "-", f"{where}: declare it under [segments], with two or more values, which are the arms", ...
            arms = None
        if not isinstance(declared, dict):
            yield "-", f"{where}: write a table such as {example}", declared
            continue
        yield from unknown_keys("-", "of an experiment", known, declared, f"{where}.")
        yield from missing_keys(where, usual, declared, example)
        yield from refused_values(where, Experiment, {key: declared[key] for key in declared if key in known}, usual)
        base, split = declared.get("base"), declared.get("split")
        if arms and isinstance(base, str) and base not in arms:
            yield "-", f"{where}.base: write one of the arms, {listed(map(str, arms))}", base
        if arms and isinstance(split, dict) and split and set(split) != set(arms):
            yield "-", f"{where}.split: write a number for each of the arms, {', '.join(map(str, arms))}", sorted(split)


def _metric_faults(
    id_: str, table: dict[str, Any], segments: dict[str, Any], keys: tuple[str, ...], grace: str
) -> Iterator[Found]:
    inner = unquoted(table, keys)
    for key, other in inner.items():
        full = f"{id_}.{key}"
        yield full, f'[metrics.{full}] is an id with a dot, which needs quotes: write [metrics."{full}"]', ...
        if not other.keys().isdisjoint(keys):
            yield from _metric_faults(full, other, segments, keys, grace)
    if len(inner) == len(table) > 0:
        return
    table = {key: value for key, value in table.items() if key not in inner}
    yield from unknown_keys(id_, "of a metric", keys, table)
    # One mistyped key is one fault: it is not missing as well.
    for key in [key for key in table if key not in keys]:
        if (right := meant(key, keys)) is not None:
            table.setdefault(right, table[key])
    for rule, value in chain(
        _domain_faults(table),
        _privacy_faults(table),
        _parameters_faults(table),
        _shuffled_faults(table),
        _upkeep_faults(table, grace),
        _segment_faults(table, segments),
    ):
        yield id_, rule, value


def unquoted(table: dict[str, Any], keys: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the tables within that of a metric, by what stands after the dot: metrics whose ids lack their quotes."""
    return {key: value for key, value in table.items() if key not in keys and isinstance(value, dict)}


def _domain_faults(table: dict[str, Any]) -> Iterator[Broken]:
    try:
        kind = types.of(table.get("type"))
    except ParameterError as error:
        yield error.rule, error.value
        near = domain.type_meant(table.get("type"), types.TYPES)
        if near is None:
            return
        kind = types.of(near)
        table = dict(table, type=near)
    yield from kind.faults(table)
    for key, value in table.items():
        if key not in kind.members and (names := types.having(key)):
            yield f"{key}: remove it; only a metric of type {' or '.join(names)} has it", value
    values, none = table.get("values"), table.get("none")
    if (
        "none" in table
        and "none" not in kind.decimals
        and (not isinstance(none, str) or not none or (isinstance(values, list) and none not in values))
    ):
        yield "none: write one of the values, or add it to values; it is reported for None", none
    if "other" in table and isinstance(values, list) and table["other"] not in values:
        yield (
            "other: write one of the values, or add it to values; it is reported for every answer that is not listed",
            table["other"],
        )


def _privacy_faults(table: dict[str, Any]) -> Iterator[Broken]:
    epsilon = table.get("epsilon", COIN_EPSILON if table.get("mechanism") == "coin" else None)
    broken = list(_nats_faults("epsilon", epsilon))
    yield from broken
    if "epsilon_permanent" in table:
        permanent = table["epsilon_permanent"]
        faults = list(_nats_faults("epsilon_permanent", permanent))
        yield from faults
        if not broken and not faults and exact(permanent) < exact(epsilon):  # type: ignore[arg-type]
            yield (
                f"epsilon_permanent: write {epsilon} or more, the epsilon of one report, since all reports say no less than one",
                permanent,
            )
    sample = table.get("sample", 1)
    if isinstance(sample, bool) or not isinstance(sample, int | float) or not 0 < sample <= 1:
        yield f"sample: write a share above 0 and at most 1, such as 0.1{meant_percent(sample)}", sample


def _nats_faults(name: str, epsilon: object) -> Iterator[Broken]:
    if isinstance(epsilon, str) and epsilon is not COIN_EPSILON:
        yield f"{name}: write a number, without quotes", epsilon
        return
    try:
        exact(epsilon)  # type: ignore[arg-type]
    except ParameterError as error:
        yield error.rule.replace("epsilon", name, 1), error.value


def _shuffled_faults(table: dict[str, Any]) -> Iterator[Broken]:
    if "shuffled" not in table:
        return
    shuffled, example = table["shuffled"], "{ min = 10000, delta = 1e-8, central = 0.3 }"
    if not isinstance(shuffled, dict):
        yield f"shuffled: write a table such as {example}", shuffled
        return
    names = [each.name for each in fields(Shuffled)]
    known = {key: value for key, value in shuffled.items() if key in names}
    broken = [
        *unknown_keys("", "of shuffled", names, shuffled, "shuffled."),
        *missing_keys("shuffled", USUAL["shuffled"], shuffled, example),
        *refused_values("shuffled", Shuffled, known, USUAL["shuffled"]),
    ]
    yield from ((rule, value) for _, rule, value in broken)
    if "epsilon_permanent" in table:
        rule = "shuffled: remove it, or epsilon_permanent; copies of one permanent response do not add up as independent reports"
        yield f"{rule}, so nothing is claimed of them", ...
    if table.get("per_period", 1) != 1:
        yield "per_period: write 1 with shuffled, since one pool would have several reports of a device", table["per_period"]
    epsilon = table.get("epsilon", COIN_EPSILON)
    if not broken and not any(_nats_faults("epsilon", epsilon)) and exact(str(shuffled["central"])) >= exact(epsilon):
        yield (
            f"shuffled.central: write less than {epsilon}, the epsilon of a report alone; else remove shuffled",
            shuffled["central"],
        )


def _parameters_faults(table: dict[str, Any]) -> Iterator[Broken]:
    parameters = table.get("parameters", {})
    if not isinstance(parameters, dict) or not all(isinstance(value, int | float | str) for value in parameters.values()):
        yield "parameters: write a table of numbers and texts, such as { cohorts = 64 }", parameters
    elif parameters and table.get("mechanism", "auto") == "auto":
        yield "parameters: name the mechanism that they are of, such as mechanism = 'rappor', or remove them", parameters


def _upkeep_faults(table: dict[str, Any], grace: str) -> Iterator[Broken]:
    for key, default in (("description", None), ("owner", None), ("mechanism", "auto")):
        text = table.get(key, default)
        if not isinstance(text, str) or not text.strip():
            yield f"{key}: write a text in quotes", text
    for key in ("version", "min_reports", "max_report_bytes", "per_period", "answers_per_month"):
        number = table.get(key, 1)
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            yield f"{key}: write a whole number of at least 1", number
    permanent = "epsilon_permanent" in table
    if permanent and table.get("per_period", 1) != 1:
        yield (
            "per_period: write 1 with epsilon_permanent, since a second report would repeat the same answer",
            table["per_period"],
        )
    if not permanent and "answers_per_month" in table:
        yield "answers_per_month: remove it; only a metric with epsilon_permanent has it", table["answers_per_month"]
    yield from _delay_faults(table, grace)
    if table.get("period", "day") not in period.LENGTHS:
        yield f"period: write {listed(period.LENGTHS)}", table["period"]
    yield from _shift_faults(table)
    yield from _group_faults(table)
    yield from _public_faults(table)
    expires = table.get("expires")
    if expires is not None and (not isinstance(expires, date) or isinstance(expires, datetime)):
        yield "expires: write a date such as 2027-12-31, without quotes", expires


def _common_grace(publication: object) -> str:
    """Return the grace of metrics that declare none; the default if that of the table is a fault, which is already reported."""
    written = publication.get("grace", GRACE) if isinstance(publication, dict) else GRACE
    try:
        duration("grace", written)
    except ParameterError:
        return GRACE
    return str(written)


def _delay_faults(table: dict[str, Any], grace: str) -> Iterator[Broken]:
    lengths = {"grace": table.get("grace", grace)} | ({"delay": table["delay"]} if "delay" in table else {})
    broken = False
    for name, written in lengths.items():
        try:
            duration(name, written)
        except ParameterError as error:
            broken = True
            yield error.rule, error.value
    if "delay" in table and not broken and not covered(table["delay"], str(lengths["grace"])):
        hours = duration("delay", table["delay"]) // timedelta(hours=1) + 1
        yield (
            f"delay: write grace = '{hours}h' or more, so that a report that waits still comes in time",
            table["delay"],
        )


def _group_faults(table: dict[str, Any]) -> Iterator[Broken]:
    together = table.get("together", 1)
    if isinstance(together, bool) or not isinstance(together, int | float) or not 1 <= together <= _MOST_TOGETHER:
        yield f"together: write how many devices answer alike, a number from 1 to {_MOST_TOGETHER:,} such as 2.5", together


def _shift_faults(table: dict[str, Any]) -> Iterator[Broken]:
    if "least_shift" not in table:
        return
    least = table["least_shift"]
    if isinstance(least, bool) or not isinstance(least, int | float) or not 0 <= least < 1:
        rule = "least_shift: write the smallest shift that matters, a share from 0 to below 1 such as 0.01"
        yield f"{rule}{meant_percent(least, ' points')}", least
    if table.get("period") == "hour":
        yield "least_shift: remove it, or choose a period of a day or longer; at night people answer otherwise", least
    if table.get("discover") is True:
        yield "least_shift: remove it, or list the answers; what a search finds differs from period to period", least


def _public_faults(table: dict[str, Any]) -> Iterator[Broken]:
    public = table.get("public", False)
    if not isinstance(public, bool):
        yield "public: write true or false, without quotes", public
    elif public and types.of(domain.type_meant(table.get("type"), types.TYPES) or "boolean").open:
        yield "public: remove it, or list the answers; what a search finds may be a name", public


def _segment_faults(table: dict[str, Any], segments: dict[str, Any]) -> Iterator[Broken]:
    named = table.get("segments", [])
    if not isinstance(named, list) or any(not isinstance(name, str) or name not in segments for name in named):
        yield f"segments: write a list of names that are declared under [segments]: {', '.join(segments) or 'none is'}", named
    elif len(set(named)) != len(named):
        yield "segments: list each name once", named
