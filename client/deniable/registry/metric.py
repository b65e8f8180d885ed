"""A metric: one question that an app asks its users, as the registry declares it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from deniable.errors import ParameterError
from deniable.exact.hashing import KEY_SPACE
from deniable.registry import period, text
from deniable.registry.axis import BINS, MOST_STEP_VALUES, Axis
from deniable.registry.number import LARGEST, plain
from deniable.registry.rules import ANSWERS_PER_WINDOW, OPEN_TYPES
from deniable.registry.tables import GRACE, MIN_REPORTS, duration
from deniable.wire.layout import MAX_REPORT_BYTES

if TYPE_CHECKING:
    from datetime import date, datetime

    from deniable.source import Source

__all__ = ["PER_SECOND", "Metric", "Value"]

PER_SECOND = {"us": 1e6, "ms": 1e3, "s": 1.0, "min": 1 / 60, "h": 1 / 3600}
"""The units of time, and how many of them a second has."""

Value = str | bool | int | tuple[str, ...]
_MOST_UNDECLARED = 1000  # options of an answer beyond the declared ones; with more, it would take long to read
_MAX_LENGTH = {True: 16, False: 64}  # the default of `max_length`: of texts to be discovered, and of texts with candidates


@dataclass(frozen=True, slots=True)
class Metric:
    """One question that an app asks.

    Parameters
    ----------
    id
        Lower-case words joined by dots or dashes.
    type
        - ``boolean``, ``categorical``, or ``ordinal`` (values in order; decoded like categorical for now).
        - ``product``: an answer to several questions at once.
        - ``string``, or ``key`` (a whole number below 2^64).
        - ``number``: a number in a declared range.
        - ``set``: any of the options that `values` lists, none to all of them.
    values
        The possible answers, in the order of the domain. For a boolean these are False and True. For a product they are all
        combinations of its factors' values; the last factor changes fastest. For a set they are the options. Empty for a
        string, key or number.
    epsilon
        Privacy loss of one report in nats, as written.
    description, owner
        What is asked and why, and whom to ask about it.
    version
        Raised with every change of meaning. Each version is counted apart.
    mechanism
        A name of `deniable.mechanisms.names`, or ``auto``.
    period
        Length of a period: ``hour``, ``day``, ``week`` or ``month``.
    segments
        Names of the segments that reports carry.
    expires
        Last day of collection, or None.
    min_reports
        Everything published of it rests on at least so many reports, and any two results differ by at least so many. 1 or more.
    grace
        How long a period takes reports after its end, such as ``12h`` or ``2d``.
    delay
        For how long a report waits on the device at most, such as ``12h``. Each waits for a random time up to that, drawn before
        the answer is looked at. None: it may travel at once.
    max_report_bytes
        Largest payload that ``auto`` may choose.
    candidates
        For a string or key: the file of candidates, one on each line. Devices do not need it.
    discover
        For a string or key: whether common answers are searched for without a list.
    max_length
        Bytes of UTF-8 of the longest string.
    parameters
        Options of the mechanism, as pairs of name and value.
    factors
        For a product: each question with its answers.
    epsilon_permanent
        Privacy loss of all reports of one answer together, as written. With it, a device keeps a permanent response to each
        answer and reports once a period. None if reports are independent.
    sample
        Share of answers that are recorded, as written. The draw does not depend on the answer.
    none
        The answer that is reported for ``None``; None if ``None`` is no answer. For a number: the number, as it is written, that
        is reported for everything that is none; None for the low end of the range.
    other
        The answer that is reported for every undeclared answer; None for a random one. For a set: the option that is reported for
        every undeclared option.
    range
        For a number: its least and its greatest value, as written. Numbers beyond are reported as the nearer end.
    unit
        For a number: what it counts, such as ``ms``.
    scale
        For a number: ``linear`` or ``log``.
    step
        For a number: answers are its least value and every `step` from there on, as written; None if they may lie anywhere.
        Devices do not use this.
    estimate
        For a number: ``mean``, or ``distribution`` for its distribution, quantiles and mean. For an ordinal: ``mean`` for the
        mean position only; empty for the share of each value.
    joint
        For a set: whether pairs of options are reported, so that it can be estimated which are chosen together.
    per_period
        Most reports of a device in a period.
    answers_per_window
        With permanent responses: most different ones that a device reports in a window of its budget. After that it reports the
        last one again.
    together
        How many devices answer alike, on average as a device sees it: those of a household, a fleet, a school. Devices do not
        use this.
    least_shift
        The smallest shift of a share that matters, as written; of a number, as a share of its range. Shifts are looked for as
        periods close. None: they are not. Devices do not use this.
    """

    id: str
    type: Literal["boolean", "categorical", "ordinal", "product", "string", "key", "number", "set"]
    values: tuple[Value, ...]
    epsilon: str
    description: str = ""
    owner: str = ""
    version: int = 1
    mechanism: str = "auto"
    period: str = "day"
    segments: tuple[str, ...] = ()
    expires: date | None = None
    min_reports: int = MIN_REPORTS
    grace: str = GRACE
    delay: str | None = None
    max_report_bytes: int = MAX_REPORT_BYTES
    candidates: str | None = None
    discover: bool = False
    max_length: int = 0
    parameters: tuple[tuple[str, int | float | str], ...] = ()
    factors: tuple[tuple[str, tuple[str, ...]], ...] = ()
    epsilon_permanent: str | None = None
    sample: str = "1"
    none: str | None = None
    other: str | None = None
    range: tuple[str, ...] = ()
    unit: str = ""
    scale: Literal["linear", "log"] = "linear"
    estimate: Literal["", "mean", "distribution"] = ""
    joint: bool = False
    per_period: int = 1
    answers_per_window: int = ANSWERS_PER_WINDOW
    together: float = 1
    least_shift: str | None = None
    step: str | None = None
    axis: Axis | None = field(init=False, repr=False, compare=False, default=None)
    _longest: int = field(init=False, repr=False, compare=False, default=0)
    _positions: dict[Value, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_positions", {value: i for i, value in enumerate(self.values)})
        texts = chain.from_iterable(value if isinstance(value, tuple) else (value,) for value in self.values)
        object.__setattr__(self, "_longest", max((len(text) for text in texts if isinstance(text, str)), default=0))
        if self.type == "number":
            low, high = map(Fraction, self.range)
            object.__setattr__(self, "axis", Axis(low, high, self.scale))
        if self.type == "string" and not self.max_length:
            object.__setattr__(self, "max_length", _MAX_LENGTH[self.discover])

    @property
    def open(self) -> bool:
        """Whether there are too many possible answers for a list."""
        return self.type in OPEN_TYPES

    @property
    def kept(self) -> bool:
        """Whether devices keep a permanent response to each answer and report once a period."""
        return self.epsilon_permanent is not None

    @property
    def rounded(self) -> bool:
        """Whether an answer is rounded to one end of its range, at a point that the device keeps: the mean of a kept number."""
        return self.kept and self.type == "number" and self.estimate == "mean"

    @property
    def binned(self) -> bool:
        """Whether an answer is reported as one of `BINS` equal parts of its range: the distribution of a kept number."""
        return self.kept and self.type == "number" and self.estimate == "distribution"

    @property
    def step_values(self) -> tuple[float, ...]:
        """Of a number with a step: the values that answers can have, as far as estimates use them: at most `MOST_STEP_VALUES`."""
        if self.axis is None or self.step is None or self.kept or self.estimate != "distribution":
            return ()
        low, step = self.axis.low, Fraction(self.step)
        count = int((self.axis.high - low) / step) + 1
        return tuple(float(low + step * place) for place in range(count)) if count <= MOST_STEP_VALUES else ()

    @property
    def domain_size(self) -> int:
        """Number of possible answers. Of a number: positions on its axis, or bins of it."""
        if self.open:
            return KEY_SPACE if self.type == "key" else text.domain_size(self.max_length)
        if self.axis:
            return BINS if self.binned else self.axis.steps + 1
        return 1 << len(self.values) if self.type == "set" else len(self.values)

    @property
    def delay_seconds(self) -> int:
        """For how long a report waits on the device at most, in seconds; 0 if it may travel at once."""
        return 0 if self.delay is None else int(duration("delay", self.delay).total_seconds())

    @property
    def longest_seconds(self) -> float | None:
        """The longest time of the range, in seconds; None if the metric counts no time."""
        if self.axis is None or self.unit not in PER_SECOND:
            return None
        return max(0.0, float(self.axis.high) / PER_SECOND[self.unit])

    def closes(self, name: str) -> datetime:
        """Return when a period closes."""
        return period.bounds(name, self.period)[1] + duration("grace", self.grace)

    def next_to_close(self, moment: datetime) -> str:
        """Return the name of the first period that is not closed at a moment."""
        return period.of(moment - duration("grace", self.grace), self.period)

    def position(self, value: object) -> int:
        """Return the position of an answer in the domain, in [0, domain_size). The device calls this.

        Raises
        ------
        ParameterError
            If it is no declared answer; see `stand_in`. The message does not repeat it.
        """
        if self.axis:
            return self._number_position(self.axis, value)
        if value is None:
            value = self.none
        if self.open:
            return self._open_position(value)
        if self.type == "set":
            return self._set_position(value)
        if self.factors:
            value = self._combination(value)
        # The type is checked first: as keys of a dict True == 1 == 1.0, and an object of the host app must not be hashed.
        # A longer text than any declared one is not hashed, since that takes as long as it is.
        found = -1
        answer: Any = value
        if type(answer) is type(self.values[0]) and (type(answer) is not str or len(answer) <= self._longest):
            found = self._positions.get(answer, -1)
        if found < 0:
            kind = "True or False" if self.type == "boolean" else f"one of the {self.domain_size} declared values"
            if self.factors:
                kind = f"a declared value each of {', '.join(name for name, _ in self.factors)}"
            raise ParameterError(f"an answer to {self.id} is {kind}", type(value).__name__)
        return int(found)

    def _combination(self, value: object) -> tuple[str, ...] | None:
        """Read an answer to a product, by methods of its base class; None if it is no such answer."""
        names = [name for name, _ in self.factors]
        given: list[Any]
        if isinstance(value, Mapping):
            given = [value.get(name) for name in names] if len(value) == len(names) else []
        elif isinstance(value, list | tuple):
            base: Any = list if isinstance(value, list) else tuple
            given = base.__getitem__(value, slice(len(names) + 1))
        else:
            given = []
        declared = len(given) == len(names) and all(type(part) is str and len(part) <= self._longest for part in given)
        return tuple(given) if declared else None

    def _open_position(self, value: object) -> int:
        if self.type == "string" and isinstance(value, str):
            return text.encode(text.fit(value, self.max_length), self.max_length)
        if self.type == "key" and isinstance(value, int) and not isinstance(value, bool):
            number = int.__index__(value)  # a plain number, since a subclass may redefine comparisons
            if 0 <= number < KEY_SPACE:
                return number
        kind = "a text" if self.type == "string" else "a whole number in [0, 2^64)"
        raise ParameterError(f"an answer to {self.id} is {kind}", type(value).__name__)

    def _number_position(self, axis: Axis, value: Any) -> int:
        """Return the position of a number on its axis, or its bin; None has that of `none`."""
        if value is None:
            return self._absent(axis)
        return self._binned(axis, axis.position(self._number(value)))

    def _number(self, value: Any) -> float | Fraction:
        kind = type(value)
        if (kind is float or kind is int) and -LARGEST < value < LARGEST:  # so most answers are read fast; NaN is not among them
            number: float | Fraction = value
            return number
        read = plain(value)
        if read is None:
            raise ParameterError(f"an answer to {self.id} is a number", kind.__name__)
        return read

    def _absent(self, axis: Axis) -> int:
        return self._binned(axis, axis.position(Fraction(self.none)) if self.none else 0)

    def _binned(self, axis: Axis, position: int) -> int:
        return min(position * BINS // axis.steps, BINS - 1) if self.binned else position

    def clips(self, value: object) -> bool:
        """Return whether an answer is a number beyond the range, which is reported as the nearer end.

        Raises
        ------
        ParameterError
            If it is no number.
        """
        return self.axis is not None and value is not None and not self.axis.covers(self._number(value))

    def _set_position(self, value: object) -> int:
        """Return the number whose bit i is 1 if the answer has option i."""
        base: Any = next((each for each in (set, frozenset, list, tuple) if isinstance(value, each)), None)
        if base is None or base.__len__(value) > len(self.values) + _MOST_UNDECLARED:
            raise ParameterError(f"an answer to {self.id} is a set or list of options", type(value).__name__)
        other = -1 if self.other is None else self._positions[self.other]
        found, longest = 0, self._longest
        for option in base.__iter__(value):  # a method of its base class: a subclass of the host app may define its own
            short = type(option) is str and len(option) <= longest
            position = self._positions.get(option, other) if short else other
            if position < 0:
                raise ParameterError(f"an option of {self.id} is one of the {len(self.values)} declared", type(option).__name__)
            found |= 1 << position
        return found

    def round_at(self, position: int, point: int) -> int:
        """Round a position on the axis to its low end (0) or its high end (1).

        Parameters
        ----------
        position
            In [0, steps].
        point
            Drawn uniformly from [0, steps). So the mean over all points is the position, as a share of the axis.
        """
        return int(position > point)

    def stand_in(self, source: Source) -> int:
        """Return the position of the answer that is reported for an undeclared one. The device calls this.

        Parameters
        ----------
        source
            Draws a uniformly random answer if the metric declares no `other`, and is no number.
        """
        if self.axis:
            return self._absent(self.axis)
        if self.other is None:
            return source.below(self.domain_size)
        return 1 << self._positions[self.other] if self.type == "set" else self._positions[self.other]

    def value(self, position: int) -> Value:
        """Return the answer at a position of the domain.

        Raises
        ------
        ParameterError
            If the position stands for no text.
        """
        if self.open:
            return position if self.type == "key" else text.decode(position, self.max_length)
        return self.values[position]

    def label(self, position: int) -> str:
        """Write an answer for people. Characters that control a page or a terminal are escaped."""
        value = self.value(position)
        if isinstance(value, tuple):
            return text.visible(", ".join(value))
        if value == "":
            return "(empty)"
        return ("yes" if value else "no") if isinstance(value, bool) else text.visible(str(value))

    def expired(self, today: date) -> bool:
        """Return whether collection has ended."""
        return self.expires is not None and today > self.expires
