"""Proof by exhaustion: walk every draw a mechanism can make, with exact fractions.

A tape replaces the operating system's generator. It answers each draw with a chosen outcome and multiplies up the outcome's
probability; the walk then visits every other outcome in turn. The sum over all walks is the mechanism's exact distribution
of payloads for a value, and the worst ratio of two such distributions is its exact privacy loss: no sampling, no floats, no
trust in the formulas of the mechanism's author.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from math import log
from typing import TYPE_CHECKING

from deniable.errors import ParameterError, PayloadError
from deniable.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deniable.mechanisms import Mechanism

__all__ = ["Proof", "Tape", "distribution", "prove"]

MAX_WALKS = 2_000_000


class Tape(Source):
    """A source that replays a prescribed sequence of outcomes, then takes the first of each further draw.

    Parameters
    ----------
    prescribed
        Outcome numbers, one for each draw.

    Attributes
    ----------
    taken : list of (int, int)
        Each draw's outcome number and how many outcomes it had.
    probability : Fraction
        Probability of the whole walk.
    """

    def __init__(self, prescribed: list[int]) -> None:
        self._prescribed = prescribed
        self.taken: list[tuple[int, int]] = []
        self.probability = Fraction(1)

    def _take(self, outcomes: int) -> int:
        position = len(self.taken)
        outcome = self._prescribed[position] if position < len(self._prescribed) else 0
        self.taken.append((outcome, outcomes))
        return outcome

    def bernoulli(self, num: int, den: int) -> bool:
        """Take both outcomes in turn; an impossible one is not an outcome."""
        if not 0 <= num <= den or den < 1:
            raise ParameterError("a probability lies in [0, 1]", f"{num}/{den}")
        if num in (0, den):
            return num == den
        happened = self._take(2) == 0
        self.probability *= Fraction(num if happened else den - num, den)
        return happened

    def below(self, n: int) -> int:
        """Take each of n outcomes in turn."""
        if n < 1:
            raise ParameterError("a uniform draw has at least one outcome", n)
        if n == 1:
            return 0
        self.probability /= n
        return self._take(n)

    def next(self) -> list[int] | None:
        """Return the walk after this one, or None after the last."""
        taken = list(self.taken)
        while taken:
            outcome, outcomes = taken.pop()
            if outcome + 1 < outcomes:
                return [*(done for done, _ in taken), outcome + 1]
        return None


def distribution(randomize: Callable[[Source], bytes]) -> dict[bytes, Fraction]:
    """Compute the exact distribution of a randomized output by walking all draws.

    Parameters
    ----------
    randomize
        Draws from the given source only, and returns the output.

    Raises
    ------
    ParameterError
        If there are more than two million walks: prove it on a smaller domain.
    """
    masses: dict[bytes, Fraction] = defaultdict(Fraction)
    walk: list[int] | None = []
    walks = 0
    while walk is not None:
        tape = Tape(walk)
        masses[randomize(tape)] += tape.probability
        walk = tape.next()
        walks += 1
        if walks > MAX_WALKS:
            raise ParameterError(f"a proof by exhaustion takes at most {MAX_WALKS} walks: use a smaller domain", walks)
    return dict(masses)


@dataclass(frozen=True, slots=True)
class Proof:
    """What walking every draw of a mechanism has shown.

    Parameters
    ----------
    name, domain_size, requested
        The mechanism, and the epsilon it was asked for.
    outputs
        Number of different payloads.
    ratio
        Worst likelihood ratio between two values; None when a payload is possible for one value and not for another.
    declared
        The ratio that the mechanism declares.
    faults
        Every claim that turned out false, in words; empty when all hold.
    """

    name: str
    domain_size: int
    requested: Fraction
    outputs: int
    ratio: Fraction | None
    declared: Fraction
    faults: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Tell whether every claim was found true."""
        return not self.faults

    @property
    def epsilon(self) -> float:
        """The exact worst-case loss in nats; infinite when some payload gives a value away."""
        return float("inf") if self.ratio is None else log(self.ratio)


def prove(mechanism: Mechanism, values: Sequence[int] | None = None) -> Proof:
    """Check every claim of a mechanism against its exact distributions.

    Parameters
    ----------
    mechanism
        With few enough draws to be walked.
    values
        What the device may hold; by default the whole domain. The proof is about these values.

    Notes
    -----
    The claims: probabilities sum to 1; every payload is possible for every value or for none; the worst likelihood ratio
    is the declared one, whose logarithm is at most the epsilon asked for; payloads have the declared size and unpack; a
    payload supports the true value and every other one with the probability stated, so that the estimator is unbiased with
    the variance stated.
    """
    values = range(mechanism.domain_size) if values is None else values
    masses = [distribution(lambda tape, v=value: mechanism.randomize(v, source=tape)) for value in values]  # type: ignore[misc]
    faults = []
    if any(sum(mass.values()) != 1 for mass in masses):
        faults.append("probabilities do not sum to 1")
    outputs = set().union(*masses)
    ratio: Fraction | None = None
    if any(set(mass) != outputs for mass in masses):
        faults.append("a payload is possible for one value and impossible for another: no finite epsilon")
    else:
        ratio = max(max(m[y] for m in masses) / min(m[y] for m in masses) for y in outputs)
        if ratio != mechanism.ratio:
            faults.append(f"the worst likelihood ratio is {float(ratio):.12g}, declared is {float(mechanism.ratio):.12g}")
        if log(ratio) > float(mechanism.requested) * (1 + 1e-15):
            faults.append(f"epsilon is {log(ratio):.12g}, above the {float(mechanism.requested):.12g} asked for")
    if any(len(payload) != mechanism.layout.payload_size for payload in outputs):
        faults.append(f"a payload does not have {mechanism.layout.payload_size} bytes")
    supports, misfits = _supports(mechanism, outputs)
    faults += misfits
    for true, mass in zip(values, masses, strict=True):
        for value in values:
            support = sum((share * supports[payload].get(value, 0) for payload, share in mass.items()), Fraction(0))
            claimed, name = mechanism.support(value, true), "p" if value == true else "q"
            if support != claimed:
                chance = f"{float(support):.12g}, not {name} = {float(claimed):.12g}"
                faults.append(f"answer {true} supports {value} with probability {chance}")
    size = mechanism.domain_size
    return Proof(mechanism.name, size, mechanism.requested, len(outputs), ratio, mechanism.ratio, tuple(faults))


def _supports(mechanism: Mechanism, payloads: set[bytes]) -> tuple[dict[bytes, dict[int, int]], list[str]]:
    """Return what each payload supports (1) and opposes (-1), nothing where it does not unpack; and such payloads, in words."""
    supports: dict[bytes, dict[int, int]] = {}
    misfits = []
    for payload in payloads:
        try:
            supports[payload] = dict.fromkeys(mechanism.supported(payload), 1) | dict.fromkeys(mechanism.opposed(payload), -1)
        except PayloadError as error:
            supports[payload] = {}
            misfits.append(f"a payload does not unpack: {error}")
    return supports, misfits
