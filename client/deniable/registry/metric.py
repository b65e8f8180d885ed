"""A metric: one question that an app asks its users, as the registry declares it."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, Literal

from deniable.frozen import dataclass, field
from deniable.registry import period, text
from deniable.registry.answers import types
from deniable.registry.answers.axis import MOST_STEP_VALUES
from deniable.registry.rules import ANSWERS_PER_MONTH
from deniable.registry.tables import GRACE, MIN_REPORTS, duration
from deniable.wire.layout import MAX_REPORT_BYTES

if TYPE_CHECKING:
    from datetime import date, datetime

    from deniable.registry.answers.axis import Axis
    from deniable.registry.answers.base import Type
    from deniable.registry.relay import Shuffled
    from deniable.source import Source

__all__ = ["PER_SECOND", "Metric", "Value"]

PER_SECOND = {"us": 1e6, "ms": 1e3, "s": 1.0, "min": 1 / 60, "h": 1 / 3600}
"""The units of time, and how many of them a second has."""

Value = str | bool | int | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """One question that an app asks.

    Parameters
    ----------
    id
        Words of lower-case letters, digits and ``_``, joined by dots or dashes.
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
    most
        For a set: the most options that an answer keeps. A device cuts longer ones: it draws so many of their options, all alike.
        0 if any number is kept.
    per_period
        Most reports of a device in a period.
    answers_per_month
        With permanent responses: most different ones that a device reports in a calendar month. After that it reports the last
        one again.
    together
        How many devices answer alike, on average as a device sees it: those of a household, a fleet, a school. Devices do not
        use this.
    least_shift
        The smallest shift of a share that matters, as written; of a number, as a share of its range. Shifts are looked for as
        periods close. None: they are not. Devices do not use this.
    public
        Whether what is published of it is shown to everybody, where the server shows results. Devices do not use this.
    shuffled
        What is claimed of its reports once a relay has mixed them. A device then seals each of them. None: they go to the server
        as they are.
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
    most: int = 0
    per_period: int = 1
    answers_per_month: int = ANSWERS_PER_MONTH
    together: float = 1
    least_shift: str | None = None
    public: bool = False
    step: str | None = None
    shuffled: Shuffled | None = None
    kind: Type = field(init=False, repr=False, compare=False)  # the type itself, which answers for what differs by type
    axis: Axis | None = field(init=False, repr=False, compare=False, default=None)  # of a number
    # Of the listed values: the length of the longest text, and the position of each.
    longest: int = field(init=False, repr=False, compare=False)
    positions: dict[Value, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kind = types.of(self.type)
        texts = chain.from_iterable(value if isinstance(value, tuple) else (value,) for value in self.values)
        derived = {
            "kind": kind,
            "longest": max((len(text) for text in texts if isinstance(text, str)), default=0),
            "positions": {value: i for i, value in enumerate(self.values)},
            **kind.derived(self),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def open(self) -> bool:
        """Whether there are too many possible answers for a list."""
        return self.kind.open

    @property
    def permanent(self) -> bool:
        """Whether devices keep a permanent response to each answer and report once a period."""
        return self.epsilon_permanent is not None

    @property
    def can_keep(self) -> bool:
        """Whether it may have permanent responses. Neither a set nor the mean of an ordinal has any."""
        return not (self.kind.options or (self.estimate and self.axis is None))

    @property
    def rounded(self) -> bool:
        """Whether a device rounds an answer to one end of its range, at a point that it keeps, as for a mean of kept numbers."""
        return self.permanent and self.axis is not None and self.estimate == "mean"

    @property
    def binned(self) -> bool:
        """Whether an answer is reported as one of 16 equal parts of its range; it is, for the distribution of a kept number."""
        return self.permanent and self.axis is not None and self.estimate == "distribution"

    @property
    def step_values(self) -> tuple[float, ...]:
        """The values that answers can have, of a number with a step; empty if they are more than estimates can use (128)."""
        if self.axis is None or self.step is None or self.permanent or self.estimate != "distribution":
            return ()
        low, step = self.axis.low, Fraction(self.step)
        count = int((self.axis.high - low) / step) + 1
        return tuple(float(low + step * place) for place in range(count)) if count <= MOST_STEP_VALUES else ()

    @property
    def cap(self) -> str:
        """What becomes of an answer with too many options, in words; empty if any number is kept."""
        if not self.most:
            return ""
        part = "one of them counts" if self.most == 1 else f"{self.most} of them count"
        return f"; of more than {self.most}, {part}, drawn at random on the device"

    @property
    def domain_size(self) -> int:
        """Number of possible answers. A number has the positions on its axis, or the bins of it."""
        return self.kind.size(self)

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

    @property
    def crowd(self) -> int:
        """Fewest reports that a relay hands on together."""
        return self.shuffled.min if self.shuffled else self.min_reports

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
        return self.kind.position(self, value)

    def clips(self, value: object) -> bool:
        """Return whether an answer is a number beyond the range, has more options than an answer keeps, or is too long a text.

        Such a number is reported as the nearer end, such a set as some of its options, and such a text as its beginning.

        Raises
        ------
        ParameterError
            If it is no answer.
        """
        return self.kind.clips(self, value)

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
        return self.kind.stand_in(self, source)

    def value(self, position: int) -> Value:
        """Return the answer at a position of the domain.

        Raises
        ------
        ParameterError
            If the position stands for no text.
        """
        return self.kind.value(self, position)

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
