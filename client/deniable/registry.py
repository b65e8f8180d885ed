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

import tomllib
from dataclasses import dataclass, field, fields
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from deniable.errors import Fault, ParameterError, RegistryError
from deniable.layout import MAX_REPORT_BYTES
from deniable.rules import COIN_EPSILON, faults_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date

__all__ = ["Metric", "Registry", "load", "parse"]

Value = str | bool


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
    max_report_bytes: int = MAX_REPORT_BYTES
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
    faults = [Fault(file, *rest) for rest in faults_of(document, _KEYS)]
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
