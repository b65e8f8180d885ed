"""The base class of mechanisms: exact probabilities, noise that does not depend on the value, a deterministic response."""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from math import ceil
from operator import index
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

from deniable.errors import ParameterError
from deniable.exact.epsilon import exact, spent
from deniable.frozen import dataclass, field
from deniable.mechanisms.sealed import Sealed
from deniable.source import OS, mark_process, process_mark

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable.mechanisms.bounds import Bounds
    from deniable.mechanisms.permanent import Permanent
    from deniable.source import Source
    from deniable.wire.layout import Layout

__all__ = ["FrequencyOracle", "Mechanism", "Scored", "TwoSided", "mean_variance", "two_sided"]

_HELD = 1.0  # seconds for which noise drawn ahead may be used; a snapshot of the machine would copy it
_GROWTH = 4  # so many times more noise is drawn ahead if all of it was used within that time
_AHEAD = 256  # most draws ahead, enough to share the cost of a system call
_LOOKED_THROUGH = 4096  # values of a domain
_AHEAD_BITS = 1 << 12  # most bits drawn ahead, so that no call takes noticeably long


@dataclass(frozen=True, kw_only=True)
class Mechanism(Sealed, ABC):
    """A local randomizer: any payload is at most e^epsilon times as likely for one value as for another.

    The device draws *noise*, whose distribution does not depend on the value. It answers with a deterministic *response* to the
    value and the noise. So one method makes all draws, the same in production and in a proof. The time of the draw says nothing
    about the value. The response takes about the same number of steps for any value. But in Python the time of a step varies.

    Parameters
    ----------
    domain_size
        Values are 0 to ``domain_size - 1``.
    epsilon
        The requested privacy loss in nats, as it is written in the registry. Device and server must share it.
    **options
        The fields that the class of a mechanism adds.

    Attributes
    ----------
    epsilon : float
        The privacy loss of a report in nats: ln(`ratio`), never more than requested.
    ratio : Fraction
        The worst likelihood ratio, exactly.
    layout : Layout
        Layout of the payload.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    part: ClassVar[str] = ""
    """What a report is about, if it is about a part of what is asked, such as one option; see `parts`."""
    options: ClassVar[tuple[str, ...]] = ()
    sizeless: ClassVar[tuple[str, ...]] = ("permanent",)
    """Those options that do not depend on the number of answers."""
    searches: ClassVar[bool] = False
    """Whether values are found by a search, so that most reports are about prefixes of them."""

    domain_size: int
    epsilon: float
    layout: Layout = field(init=False)
    ratio: Fraction = field(init=False, repr=False)
    requested: Fraction = field(init=False, repr=False, compare=False)
    _hand: tuple[object, float, list[Any], int] = field(init=False, repr=False, compare=False)
    """Noise drawn ahead: the mark of its process, until when it may be used, what is left, and how much was drawn."""

    def __post_init__(self) -> None:
        if isinstance(self.domain_size, bool) or not isinstance(self.domain_size, int) or self.domain_size < 2:  # noqa: PLR2004
            raise ParameterError("domain_size: write a whole number of at least 2", self.domain_size)
        self._set(requested=exact(self.epsilon), _hand=(None, 0.0, [], 0))
        self._set(**self._parameters())
        self._set(epsilon=spent(self.ratio, self.requested))

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy is made from the parameters. Noise drawn ahead must not be copied.
        return _remake, (type(self), self.domain_size, self.requested, self.chosen)

    @property
    def chosen(self) -> dict[str, Any]:
        """The options with their values. A mechanism made with them is equal."""
        return {name: getattr(self, name) for name in self.options}

    @abstractmethod
    def _parameters(self) -> dict[str, Any]:
        """Compute `ratio`, `layout` and the integers of the sampler from `domain_size` and `requested`."""

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The rows that each estimate rests on, as groups. An estimate uses all reports of one or more of them, and no others."""
        # By default one group of all rows: hash functions and cohorts are only different ways to say the same.
        return (tuple(range(self.layout.rows)),)

    def needed(self, least: int) -> int:
        """Return how many reports it takes on average until each estimate rests on `least`."""
        return ceil(least * Fraction(self.layout.rows, min(map(len, self.parts)))) if self.part else least

    def supporting(self, payload: bytes, values: Iterable[int]) -> set[int] | None:  # noqa: ARG002
        """Return which of some values make a payload `ratio` times as likely as each other one; None if there are more kinds."""
        return None

    def window_of(self, payload: bytes) -> tuple[Fraction, Fraction] | None:  # noqa: ARG002
        """Return which part of a range a payload speaks for, as shares of it; None if it speaks for no part."""
        return None

    @property
    def in_two_steps(self) -> Permanent | None:
        """The mechanism itself, if a device can keep its permanent responses; else None."""
        return None

    @property
    def telling(self) -> Fraction:
        """How often a report tells two answers apart, at most. It is their total variation times (ratio + 1) / (ratio - 1)."""
        return Fraction(1)

    @property
    def odds(self) -> tuple[Fraction, Fraction] | None:
        """Probability that a report supports the true value, and another one; None if no shares of values are estimated."""
        return None

    @property
    @abstractmethod
    def influence(self) -> Fraction:
        """By how many respondents one made-up report can raise a count, or by how much a sum."""

    @property
    @abstractmethod
    def worst_variance(self) -> Fraction:
        """The largest variance that one report's estimate can have, whatever people answer. They are a sample of a population."""

    @property
    def unused(self) -> int:
        """How many codes no value has, though reports support them. Honest ones do so with probability q for any population."""
        return 0

    @property
    @abstractmethod
    def constants(self) -> dict[str, Any]:
        """All that a device needs to make a report besides the domain and the layout, by the names of docs/reference/wire.

        Probabilities are exact fractions. A family of hash functions has constants of its own.
        """

    @abstractmethod
    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw the noise of `count` independent reports. It does not depend on the value, and can be a key of a dict."""

    @abstractmethod
    def respond(self, value: int, noise: Any) -> bytes:
        """Return the payload of a value in [0, domain_size) and one drawn noise. This is deterministic."""

    @abstractmethod
    def bounds(self) -> Bounds:
        """Return the least and greatest probabilities of the parts of a report. Alarms test for reports beyond them."""

    def randomize(self, value: int, source: Source | None = None) -> bytes:
        """Randomise one answer. The device calls this.

        Parameters
        ----------
        value
            The true answer, in [0, domain_size).
        source
            The source of randomness; by default the operating system's cryptographic generator.

        Returns
        -------
        bytes
            ``layout.payload_size`` bytes, whatever the value.

        Raises
        ------
        ParameterError
            If the value is outside the domain. The message does not repeat it.
        """
        if value.__class__ is not int or not 0 <= value < self.domain_size:
            value = self._checked(value)
        if source is not None:
            return self.respond(value, self.noise(source, 1)[0])
        whose, until, ahead, _ = self._hand
        try:
            noise = ahead.pop()
        except IndexError:
            noise = self._refill()
        else:  # the mark is read after the noise was taken, so a fork in between cannot use this noise for another answer
            if monotonic() >= until or whose != process_mark():
                noise = self._refill()
        return self.respond(value, noise)

    def _checked(self, value: Any) -> int:
        try:
            number = index(value)  # accepts numpy integers, but no floats
        except TypeError:
            number = -1
        if isinstance(value, bool) or not 0 <= number < self.domain_size:
            # The message must not contain the answer, since it may be logged.
            raise ParameterError(
                f"a value must be a whole number in [0, {self.domain_size})", got=f"of type {type(value).__name__}"
            )
        return number

    def _refill(self) -> Any:
        """Draw noise ahead, and return the first of it.

        Threads need no lock: `list.pop` is atomic. If two threads draw at once, the noise of one is discarded, never used twice.
        """
        whose, until, ahead, count = self._hand
        used_up = not ahead and monotonic() < until and whose == process_mark()
        most = max(1, min(_AHEAD, _AHEAD_BITS // (8 * self.layout.payload_size)))
        count = min(_GROWTH * count, most) if used_up else 1  # an app that records rarely holds no noise
        while True:
            whose, until = mark_process(), monotonic() + _HELD
            batch = self.noise(OS, count)
            noise = batch.pop()
            # A signal handler may have forked during the draw. Two reports that share noise can reveal the answer.
            if whose == process_mark():
                self._set(_hand=(whose, until, batch, count))
                return noise

    @property
    def canonical(self) -> str:
        """All that device and decoder must agree on, as text. Mechanisms with equal texts make interchangeable reports."""
        layout = self.layout
        return f"{self.name} {self.domain_size} {self.ratio} {self._agreed} {layout.rows}x{layout.width} {layout.kind}"

    @property
    @abstractmethod
    def _agreed(self) -> str:
        """The part of `canonical` that only this kind of mechanism has."""

    @property
    @abstractmethod
    def says(self) -> str:
        """What one report says of the answer, in a sentence for people."""

    @property
    def answers(self) -> str:
        """The domain, in words."""
        return f"{self.domain_size} values"

    def resized(self, domain_size: int) -> Mechanism:
        """Make the same mechanism for another number of answers; raise `ParameterError` if there is none."""
        # Options that depend on the number are left out.
        options = {name: value for name, value in self.chosen.items() if name in self.sizeless}
        return type(self)(domain_size=domain_size, epsilon=self.requested, **options)  # type: ignore[arg-type] # read exactly


@dataclass(frozen=True, kw_only=True)
class FrequencyOracle(Mechanism):
    """A mechanism from whose reports the share of each value is estimated.

    A payload *supports* a set of values. Most oracles are *pure* in the sense of Wang et al.: a payload supports the true value
    with probability p and any other with probability q. The unbiased estimate of a frequency is
    ``(support / n - q) / (p - q)``. An oracle with a pool of hash functions has q only on average over the pool. `support` gives
    the exact probability for any pair of values.
    """

    # T. Wang and others: Locally differentially private protocols for frequency estimation. USENIX Security 2017, section 3.

    # p, q: probability that a payload supports the true value, and that it supports a given other one. If payloads also oppose
    # values, the probability that it opposes the value is subtracted.
    p: Fraction = field(init=False, repr=False)
    q: Fraction = field(init=False, repr=False)

    @abstractmethod
    def supported(self, payload: bytes) -> set[int]:
        """Return the values that a payload supports. This is the plain definition of what the decoder counts, and slow."""

    def opposed(self, payload: bytes) -> set[int]:  # noqa: ARG002 - most payloads oppose nothing
        """Return the values that a payload opposes. For each of them the support is one less."""
        return set()

    @property
    def odds(self) -> tuple[Fraction, Fraction]:
        """Probability that a report supports the true value, and another one."""
        return self.p, self.q

    @property
    def mirrored(self) -> bool:
        """Whether each payload supports exactly one of two values, which are all."""
        return False

    def support(self, value: int, true: int) -> Fraction:
        """Compute the probability that a payload for `true` supports `value`, minus the probability that it opposes it."""
        return self.p if value == true else self.q

    @property
    def _agreed(self) -> str:
        return f"{self.p} {self.q}"

    @property
    def says(self) -> str:
        """What one report says of the answer, in a sentence for people."""
        true, other = f"{float(self.p):.3f}", f"{float(self.q):.3f}"
        return f"A report points to your true answer with probability {true}, and to any one wrong answer with {other}."

    def variance(
        self,
        frequency: float,  # the share of the n respondents who hold the value, in [0, 1]
        n: int,  # number of reports
    ) -> float:
        """Compute the exact variance of an estimated frequency over the randomness of the devices."""
        # `(f p(1-p) + (1-f) q(1-q)) / (n (p-q)^2)`. If the respondents are a sample, and the share in their population is
        # estimated, add `f (1-f) / n`.
        p, q = float(self.p), float(self.q)
        return (frequency * p * (1 - p) + (1 - frequency) * q * (1 - q)) / (n * (p - q) ** 2)

    @property
    def mean_variance(self) -> Fraction:
        """Exact variance of one report's frequency estimate, averaged over the domain. It does not depend on the frequencies."""
        held, absent = self._variances
        return (held + (self.domain_size - 1) * absent) / self.domain_size

    @property
    def _variances(self) -> tuple[Fraction, Fraction]:
        """The variance that the noise of one report adds for a person who holds the value, and for one who does not."""
        square = (self.p - self.q) ** 2
        return self.p * (1 - self.p) / square, self.q * (1 - self.q) / square

    @property
    def worst_variance(self) -> Fraction:
        """The variance of one report's estimate of a share, where it is largest."""
        # It is `f held + (1 - f) absent + f (1 - f)` at a share f: of the noise, and of who answers. That is largest at `f = (1 +
        # held - absent) / 2`, or at the nearer of 0 and 1.
        held, absent = self._variances
        share = min(max((1 + held - absent) / 2, Fraction(0)), Fraction(1))
        return share * held + (1 - share) * absent + share * (1 - share)

    @property
    def influence(self) -> Fraction:
        """By how many respondents one report that supports a value raises its count: ``(1 - q) / (p - q)``."""
        return (1 - self.q) / (self.p - self.q)


class TwoSided(FrequencyOracle):
    """An oracle whose report favours one of two answers by exactly epsilon, or the other, or says nothing about them.

    The probabilities are the same for any two answers.
    """

    @property
    def telling(self) -> Fraction:
        """The probability that a report favours one of two answers."""
        return two_sided(self)

    def supporting(self, payload: bytes, values: Iterable[int]) -> set[int] | None:
        """Return which of some values a payload supports; None if the domain is too large to be looked through."""
        return self.supported(payload) & {*values} if self.domain_size <= _LOOKED_THROUGH else None


class Scored(Mechanism):
    """A mechanism from whose reports means are estimated, not the shares of single values.

    Each answer has *quantities*: numbers whose means over all people are wanted. Each report has *scores*, one for each quantity.
    For every answer, the mean of a score over the draws is the quantity. So the mean score of all reports is unbiased.
    """

    @abstractmethod
    def quantities(self, value: int) -> tuple[Fraction, ...]:
        """Return the numbers of a value in [0, domain_size) whose means are estimated."""

    @abstractmethod
    def scores(self, payload: bytes) -> tuple[Fraction, ...]:
        """Return the unbiased estimates of all quantities from one payload. This is the plain definition, and slow."""


def mean_variance(p: Fraction, q: Fraction, domain_size: int) -> Fraction:
    """Exact variance of one report's estimate, averaged over a domain whose frequencies sum to 1."""
    return (p * (1 - p) + (domain_size - 1) * q * (1 - q)) / (domain_size * (p - q) ** 2)


def two_sided(mechanism: FrequencyOracle) -> Fraction:
    """Return the probability that a report favours one of two answers by exactly epsilon, if it else says nothing about them."""
    # It favours the true answer with probability x and the other one with x / ratio. It supports the true answer, but not the
    # other, if and only if it favours the true one. So p - q = x - x / ratio.
    ratio = mechanism.ratio
    return (mechanism.p - mechanism.q) * (ratio + 1) / (ratio - 1)


def _remake(cls: type[Mechanism], domain_size: int, requested: Fraction, chosen: dict[str, Any]) -> Mechanism:
    return cls(domain_size=domain_size, epsilon=requested, **chosen)  # type: ignore[arg-type] # read exactly, then a float
