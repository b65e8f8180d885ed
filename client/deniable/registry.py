"""The registry: every metric that an app may ask, declared in ``metrics.toml`` before anything is collected.

::

    format = 1
    app = "shop"

    [segments]
    platform = ["linux", "macos", "windows"]

    [metrics."ui.theme"]
    type = "categorical"
    values = ["light", "dark", "system"]
    epsilon = 1.0
    period = "day"
    segments = ["platform"]
    description = "Which theme people use"
    owner = "design@shop.example"
    expires = 2027-12-31

A published metric is immutable: its reports can only be decoded with what it said when they were made. To change it, raise its
``version``, which begins a new count.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from deniable import period
from deniable.errors import Fault, ParameterError, RegistryError
from deniable.weight import exact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["FORMAT", "Metric", "Registry", "load", "parse"]

FORMAT = 1
MAX_VALUES = 1 << 16
COIN_EPSILON = "1.0986122886681098"  # ln 3, which two fair coins spend; the one epsilon that may be left out
TYPES = ("boolean", "categorical", "ordinal")
Value = str | bool

_ID = re.compile(r"[a-z][a-z0-9_]*(?:[.-][a-z0-9_]+)*")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_MAX_ID = 80


@dataclass(frozen=True, slots=True)
class Metric:
    """One question that an app asks.

    Parameters
    ----------
    id
        Lower-case words joined by dots or dashes.
    type
        ``boolean``, ``categorical``, or ``ordinal`` (values in order; decoded like categorical for now).
    values
        The possible answers, in the order of the domain; a boolean's are False and True.
    epsilon
        Privacy loss of one report in nats, as written.
    description, owner
        What is asked and why, and whom to ask about it.
    version
        Raised with every change of meaning; each version is counted apart.
    mechanism
        A name of `deniable.mechanisms.names`, or ``auto``.
    period
        Collection window: ``hour``, ``day``, ``week`` or ``month``.
    segments
        Names of the declared public breakdowns that reports carry.
    expires
        Last day of collection, or None.
    min_reports
        Reports below which estimates are not to be published.
    max_report_bytes
        Largest payload that ``auto`` may choose.
    """

    id: str
    type: Literal["boolean", "categorical", "ordinal"]
    values: tuple[Value, ...]
    epsilon: str
    description: str = ""
    owner: str = ""
    version: int = 1
    mechanism: str = "auto"
    period: str = "day"
    segments: tuple[str, ...] = ()
    expires: date | None = None
    min_reports: int = 0
    max_report_bytes: int = 256
    _positions: dict[Value, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_positions", {value: i for i, value in enumerate(self.values)})

    @property
    def domain_size(self) -> int:
        """Number of possible answers."""
        return len(self.values)

    def position(self, value: object) -> int:
        """Encode an answer as its place in the domain, in [0, domain_size). This method is run by the device.

        Raises
        ------
        ParameterError
            If it is no declared answer. The message does not repeat it.
        """
        try:
            found = self._positions[value]  # type: ignore[index]
        except (KeyError, TypeError):
            found = -1
        # True == 1 == 1.0 as keys of a dict; an answer must also be of the declared kind.
        if found < 0 or value.__class__ is not self.values[found].__class__:
            kind = "True or False" if self.type == "boolean" else f"one of the {self.domain_size} declared values"
            raise ParameterError(f"an answer to {self.id} is {kind}", type(value).__name__)
        return found

    def label(self, position: int) -> str:
        """Write an answer for people."""
        value = self.values[position]
        return value if isinstance(value, str) else "yes" if value else "no"

    def expired(self, today: date) -> bool:
        """Tell whether collection has ended."""
        return self.expires is not None and today > self.expires


@dataclass(frozen=True, slots=True)
class Registry:
    """All metrics of an app.

    Parameters
    ----------
    app
        The app's name, a lower-case word.
    metrics
        By id.
    segments
        Declared values of each public breakdown, by its name.
    """

    app: str
    metrics: Mapping[str, Metric]
    segments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def segment(self, metric: Metric, given: Mapping[str, str]) -> str:
        """Write a report's segment, e.g. ``platform=linux,version=2.4``; empty where the metric has none.

        Parameters
        ----------
        metric
            A metric of this registry.
        given
            Value of each breakdown that the metric declares; others are not looked at.

        Raises
        ------
        ParameterError
            If a declared breakdown is missing or its value is not declared.
        """
        words = []
        for name in metric.segments:
            if given.get(name) not in self.segments[name]:
                raise ParameterError(f"segment {name} is one of {', '.join(self.segments[name])}", given.get(name))
            words.append(f"{name}={given[name]}")
        return ",".join(words)


def load(path: str | Path) -> Registry:
    """Read a registry file.

    Raises
    ------
    RegistryError
        With every fault of the file.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RegistryError([Fault(str(path), "-", "the registry is a readable UTF-8 file", str(error))]) from None
    return parse(text, str(path))


def parse(text: str, file: str = "metrics.toml") -> Registry:
    """Read a registry from TOML text.

    Parameters
    ----------
    text
        TOML.
    file
        Name to use in faults.

    Raises
    ------
    RegistryError
        With every fault of the text.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RegistryError([Fault(file, "-", "the registry is valid TOML", str(error))]) from None
    faults = [Fault(file, *rest) for rest in _document_faults(document)]
    if faults:
        raise RegistryError(faults)
    segments = {name: tuple(values) for name, values in document.get("segments", {}).items()}
    metrics = {id_: _metric(id_, table) for id_, table in document["metrics"].items()}
    return Registry(document["app"], metrics, segments)


def _metric(id_: str, table: dict[str, Any]) -> Metric:
    given = dict(table)
    values = (False, True) if given["type"] == "boolean" else tuple(given.pop("values"))
    epsilon = f"{Decimal(str(given.pop('epsilon', COIN_EPSILON))).normalize():f}"  # 1 and 1.0 are the same
    segments = tuple(given.pop("segments", ()))
    return Metric(id=id_, values=values, epsilon=epsilon, segments=segments, **given)


_KEYS = tuple(f.name for f in fields(Metric) if f.init and f.name != "id")

_Rest = tuple[str, str, object]  # metric, rule, value: a Fault without its file


def _unknown(where: str, known: tuple[str, ...], table: dict[str, Any]) -> Iterator[_Rest]:
    for key in table:
        if key not in known:
            from difflib import get_close_matches  # noqa: PLC0415 - slow to import, and only a faulty file needs it

            near = get_close_matches(key, known, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            yield where, f"a key is one of {', '.join(known)}{hint}", key


def _document_faults(document: dict[str, Any]) -> Iterator[_Rest]:
    yield from _unknown("-", ("format", "app", "segments", "metrics"), document)
    if document.get("format") != FORMAT or isinstance(document["format"], bool):  # True == 1
        yield "-", f"format is {FORMAT}, the registry format this version reads", document.get("format")
    app = document.get("app")
    if not isinstance(app, str) or not _ID.fullmatch(app) or len(app) > _MAX_ID:
        yield "-", "app is a lower-case name such as shop", app
    segments = document.get("segments", {})
    if isinstance(segments, dict):
        yield from _segments_faults(segments)
    else:
        yield "-", "segments is a table of lists of words", segments
        segments = {}
    metrics = document.get("metrics")
    if not isinstance(metrics, dict) or not metrics:
        yield "-", 'at least one metric is declared, as a table [metrics."ui.theme"]', metrics
        return
    for id_, table in metrics.items():
        if not _ID.fullmatch(id_) or len(id_) > _MAX_ID:
            rule = f"an id is lower-case words joined by dots or dashes, at most {_MAX_ID} characters"
            yield id_, rule, id_
        if isinstance(table, dict):
            yield from _metric_faults(id_, table, segments)
        else:
            yield id_, "a metric is a table", table


def _segments_faults(segments: dict[str, Any]) -> Iterator[_Rest]:
    for name, values in segments.items():
        if not _WORD.fullmatch(name):
            yield "-", "a segment's name is a word of letters, digits and _.+-", name
        if not isinstance(values, list) or not values or not all(isinstance(v, str) and _WORD.fullmatch(v) for v in values):
            yield "-", f"segments.{name} is a list of words of letters, digits and _.+-", values
        elif len(set(values)) != len(values):
            yield "-", f"segments.{name} lists each value once", values


def _metric_faults(id_: str, table: dict[str, Any], segments: dict[str, Any]) -> Iterator[_Rest]:
    yield from _unknown(id_, _KEYS, table)
    for rule, value in chain(
        _domain_faults(table), _privacy_faults(table), _upkeep_faults(table), _segment_faults(table, segments)
    ):
        yield id_, rule, value


_Broken = tuple[str, object]  # rule, value


def _domain_faults(table: dict[str, Any]) -> Iterator[_Broken]:
    type_ = table.get("type")
    if type_ not in TYPES:
        yield f"type is one of {', '.join(TYPES)}", type_
    elif type_ == "boolean":
        if "values" in table:
            yield "a boolean's values are yes and no and are not listed", table["values"]
    else:
        yield from _values_faults(table.get("values"))


def _values_faults(values: object) -> Iterator[_Broken]:
    if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
        yield "values is a list of texts", values
    elif not 2 <= len(values) <= MAX_VALUES:  # noqa: PLR2004
        yield f"values lists 2 to {MAX_VALUES} answers", len(values)
    elif len(set(values)) != len(values):
        yield "values lists each answer once", sorted(value for value, times in Counter(values).items() if times > 1)


def _privacy_faults(table: dict[str, Any]) -> Iterator[_Broken]:
    epsilon = table.get("epsilon", COIN_EPSILON if table.get("mechanism") == "coin" else None)
    if isinstance(epsilon, str) and epsilon is not COIN_EPSILON:
        yield "epsilon is a number, without quotes", epsilon
        return
    try:
        exact(epsilon)  # type: ignore[arg-type]
    except ParameterError as error:
        yield error.rule, error.value


def _upkeep_faults(table: dict[str, Any]) -> Iterator[_Broken]:
    for key, default in (("description", None), ("owner", None), ("mechanism", "auto")):
        text = table.get(key, default)
        if not isinstance(text, str) or not text.strip():
            yield f"{key} is a text", text
    for key, least in (("version", 1), ("min_reports", 0), ("max_report_bytes", 1)):
        number = table.get(key, least)
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            yield f"{key} is a whole number of at least {least}", number
    if table.get("period", "day") not in period.LENGTHS:
        yield f"period is one of {', '.join(period.LENGTHS)}", table["period"]
    expires = table.get("expires")
    if expires is not None and (not isinstance(expires, date) or isinstance(expires, datetime)):
        yield "expires is a date such as 2027-12-31, without quotes", expires


def _segment_faults(table: dict[str, Any], segments: dict[str, Any]) -> Iterator[_Broken]:
    named = table.get("segments", [])
    if not isinstance(named, list) or any(not isinstance(name, str) or name not in segments for name in named):
        yield f"segments lists names declared under [segments]: {', '.join(segments) or 'none is'}", named
    elif len(set(named)) != len(named):
        yield "segments lists each name once", named
