"""Proof by exhaustion: walk every draw a mechanism can make, with exact fractions.

A tape replaces the operating system's generator. It answers each draw with a chosen outcome and multiplies the probabilities
of these outcomes. One walk is one run of the mechanism with such a tape. All walks together give the exact distribution of
payloads for a value. The worst likelihood ratio of two such distributions is the exact privacy loss. The proof uses no
sampling, no floats, and no formula of the mechanism's author.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from math import inf, lcm, log
from operator import mul
from typing import TYPE_CHECKING, TypeVar

from deniable.errors import ParameterError, PayloadError
from deniable.frozen import dataclass
from deniable.mechanisms.base import FrequencyOracle, Scored
from deniable.mechanisms.permanent import Permanent
from deniable.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from deniable.mechanisms import Mechanism

__all__ = ["Proof", "Tape", "distribution", "prove"]

MAX_WALKS = 2_000_000
_MAX_PRODUCTS = 1 << 25  # with more, only pairs of equal reports are checked

_Output = TypeVar("_Output")
_Masses = dict[bytes, Fraction]  # the exact distribution of payloads


class Tape(Source):
    """A source that replays prescribed outcomes. Each further draw has its first outcome.

    Parameters
    ----------
    prescribed
        The numbers of the outcomes, one for each draw.

    Attributes
    ----------
    taken : list of (int, int)
        Of each draw, the number of its outcome and how many outcomes it had.
    chance : tuple of (int, int)
        The probability of the whole walk, as a numerator and a denominator. They are not reduced: that would take most of the
        time.
    """

    def __init__(self, prescribed: list[int]) -> None:
        self._prescribed = prescribed
        self.taken: list[tuple[int, int]] = []
        self.chance = (1, 1)

    def _take(self, outcomes: int) -> int:
        position = len(self.taken)
        outcome = self._prescribed[position] if position < len(self._prescribed) else 0
        self.taken.append((outcome, outcomes))
        return outcome

    def bernoulli(self, num: int, den: int) -> bool:
        """Take both outcomes in turn, or the only possible one."""
        if not 0 <= num <= den or den < 1:
            raise ParameterError("a probability: write a number in [0, 1]", f"{num}/{den}")
        if num in (0, den):
            return num == den
        happened = self._take(2) == 0
        numerator, denominator = self.chance
        self.chance = (numerator * (num if happened else den - num), denominator * den)
        return happened

    def below(self, n: int) -> int:
        """Take each of n outcomes in turn."""
        if n < 1:
            raise ParameterError("the outcomes of a uniform draw: write 1 or more", n)
        if n == 1:
            return 0
        numerator, denominator = self.chance
        self.chance = (numerator, denominator * n)
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
        A function that draws from the given source only, and returns the output.

    Raises
    ------
    ParameterError
        If there are more than two million walks. Use a smaller domain.
    """
    return _walked(randomize)


def _walked(draw: Callable[[Source], _Output]) -> dict[_Output, Fraction]:
    """Return the distribution of what is made of draws, such as a payload or the noise of one."""
    # Numerators, by the denominators that they have.
    masses: dict[_Output, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    walk: list[int] | None = []
    walks = 0
    while walk is not None:
        tape = Tape(walk)
        output = draw(tape)
        numerator, denominator = tape.chance
        masses[output][denominator] += numerator
        walk = tape.next()
        walks += 1
        if walks > MAX_WALKS:
            raise ParameterError(f"a proof would take {walks} walks: use a smaller domain, with {MAX_WALKS} walks at most", ...)
    return {
        output: sum((Fraction(numerator, denominator) for denominator, numerator in mass.items()), Fraction(0))
        for output, mass in masses.items()
    }


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of a proof.

    Parameters
    ----------
    name, domain_size, requested
        The mechanism's name, its domain size and the requested epsilon.
    outputs
        Number of different payloads.
    ratio
        Worst likelihood ratio of two values; None if a payload is possible for one value and not for another.
    declared
        The ratio that the mechanism declares.
    faults
        Every false claim, in words; empty if all claims are true.
    permanent
        Worst likelihood ratio of the permanent response; None if it has no bound, or the mechanism has no permanent response.
    """

    name: str
    domain_size: int
    requested: Fraction
    outputs: int
    ratio: Fraction | None
    declared: Fraction
    faults: tuple[str, ...]
    permanent: Fraction | None = None

    @property
    def holds(self) -> bool:
        """Whether all claims are true."""
        return not self.faults

    @property
    def epsilon(self) -> float:
        """The exact privacy loss in nats; infinite if a payload is impossible for some value."""
        return inf if self.ratio is None else log(self.ratio)

    @property
    def epsilon_permanent(self) -> float:
        """The exact privacy loss of the permanent response in nats."""
        return inf if self.permanent is None else log(self.permanent)


def prove(mechanism: Mechanism, values: Sequence[int] | None = None) -> Proof:
    """Check every claim of a mechanism against its exact distributions.

    Parameters
    ----------
    mechanism
        A mechanism with few enough draws.
    values
        The values of the proof; by default the whole domain.

    Notes
    -----
    The claims are:

    - Probabilities sum to 1.
    - Every payload is possible for every value or for none.
    - The worst likelihood ratio is the declared one. Its logarithm is at most the requested epsilon.
    - Payloads have the declared size and unpack.
    - A payload supports the true value and every other one with the declared probabilities. So the estimator is unbiased and has
      the declared variance. Of a mechanism that scores, the mean of each score is its quantity.

    A permanent mechanism also claims:

    - The worst likelihood ratio of the permanent response, over all rows, is the declared one and at most e^permanent.
    - Values of one response key have the same permanent response, and no row has more keys than declared.
    - In every row, a report drawn from a permanent response is distributed as `randomize` of that row.
    - Two reports from one permanent response have no larger likelihood ratio together than the permanent response. All pairs are
      checked. If there are very many, only pairs of equal reports are checked.
    """
    values = range(mechanism.domain_size) if values is None else values
    masses = _of_each(mechanism, values)
    faults = []
    weights, denominator = _over_one_denominator(masses)
    if any(sum(weight.values()) != denominator for weight in weights):
        faults.append("probabilities do not sum to 1")
    outputs = set().union(*masses)
    ratio = _worst(masses)
    if ratio is None:
        faults.append("a payload is possible for one value and impossible for another: no finite epsilon")
    else:
        if ratio != mechanism.ratio:
            faults.append(f"the worst likelihood ratio is {float(ratio):.12g}, declared is {float(mechanism.ratio):.12g}")
        if log(ratio) > float(mechanism.requested) * (1 + 1e-15):
            faults.append(f"epsilon is {log(ratio):.12g}, above the {float(mechanism.requested):.12g} asked for")
    if any(len(payload) != mechanism.layout.payload_size for payload in outputs):
        faults.append(f"a payload does not have {mechanism.layout.payload_size} bytes")
    misfits = _misfits(mechanism, outputs)
    faults += misfits
    if isinstance(mechanism, FrequencyOracle):
        faults += _biased_support(mechanism, values, masses, outputs)
    elif isinstance(mechanism, Scored) and not misfits:
        faults += _biased_scores(mechanism, values, masses, outputs)
    permanent = None
    if isinstance(mechanism, Permanent) and not misfits:
        permanent, more = _steps(mechanism, values, masses)
        faults += more
    size = mechanism.domain_size
    return Proof(mechanism.name, size, mechanism.requested, len(outputs), ratio, mechanism.ratio, tuple(faults), permanent)


def _of_each(mechanism: Mechanism, values: Sequence[int]) -> list[_Masses]:
    """Return the distribution of payloads of each value."""
    # `randomize` draws noise, which is given no value, and then only computes. So one walk of all draws serves all values.
    (weights,), denominator = _over_one_denominator([_walked(lambda tape: mechanism.noise(tape, 1)[0])])
    distributions = []
    for value in values:
        sums: dict[bytes, int] = defaultdict(int)
        for noise, weight in weights.items():
            sums[mechanism.respond(value, noise)] += weight
        distributions.append({payload: Fraction(weight, denominator) for payload, weight in sums.items()})
    return distributions


def _steps(mechanism: Permanent, values: Sequence[int], masses: list[_Masses]) -> tuple[Fraction | None, list[str]]:
    """Check the claims of a permanent mechanism; return the worst ratio of its permanent response, and the false claims."""
    faults: dict[str, None] = {}  # a set that keeps its order
    worst: Fraction | None = Fraction(1)
    declared = mechanism.permanent_ratio
    rows = mechanism.layout.rows
    in_row = [_by_row(mechanism, mass) for mass in masses]
    for row in range(rows):
        responses = [_permanent(mechanism, row, value) for value in values]
        keys: dict[int, _Masses] = {}
        for value, mass in zip(values, responses, strict=True):
            if keys.setdefault(mechanism.response_key(row, value), mass) != mass:
                faults["values of one response_key have different permanent responses"] = None
        if len(keys) > mechanism.kept_responses:
            faults[f"a device keeps {len(keys)} permanent responses, declared are {mechanism.kept_responses}"] = None
        ratio = _worst(responses)
        worst = None if worst is None or ratio is None else max(worst, ratio)
        reports = {response: _instant(mechanism, row, response) for response in set().union(*responses)}
        for value, mass, one_step in zip(values, responses, in_row, strict=True):
            if _together(mass, reports) != {payload: share * rows for payload, share in one_step.get(row, {}).items()}:
                faults[f"a report in two steps of answer {value} is not distributed as in one"] = None
        if ratio is not None and (twice := _twice(responses, reports)) > ratio:
            faults[f"two reports have a likelihood ratio of {float(twice):.12g}, the permanent response {float(ratio):.12g}"] = (
                None
            )
    if worst != declared:
        words = ["no bound" if bound is None else f"{float(bound):.12g}" for bound in (worst, declared)]
        faults[f"the worst likelihood ratio of the permanent response is {words[0]}, declared is {words[1]}"] = None
    if worst is not None and log(worst) > mechanism.permanent * (1 + 1e-15):
        faults[f"the permanent epsilon is {log(worst):.12g}, above the {mechanism.permanent:.12g} asked for"] = None
    return worst, list(faults)


def _permanent(mechanism: Permanent, row: int, value: int) -> _Masses:
    return distribution(lambda tape: mechanism.layout.pack(row, mechanism.respond_permanently(row, value, tape)))


def _instant(mechanism: Permanent, row: int, response: bytes) -> _Masses:
    content = mechanism.layout.unpack(response)[1]
    return distribution(lambda tape: mechanism.respond_instantly(row, content, tape))


def _by_row(mechanism: Permanent, mass: _Masses) -> dict[int, _Masses]:
    rows: dict[int, _Masses] = defaultdict(dict)
    for payload, share in mass.items():
        rows[mechanism.layout.unpack(payload)[0]][payload] = share
    return rows


def _worst(masses: Sequence[_Masses]) -> Fraction | None:
    """Return the worst likelihood ratio of some distributions; None if an outcome is impossible in only some of them."""
    outcomes = set().union(*masses)
    if any(set(mass) != outcomes for mass in masses):
        return None
    weights, _ = _over_one_denominator(masses)
    return max(Fraction(max(weight[y] for weight in weights), min(weight[y] for weight in weights)) for y in outcomes)


def _together(first: _Masses, second: dict[bytes, _Masses]) -> _Masses:
    (shares,), denominator = _over_one_denominator([first])
    weights, parts = _over_one_denominator([second[response] for response in shares])
    both: dict[bytes, int] = defaultdict(int)
    for share, chances in zip(shares.values(), weights, strict=True):
        for payload, chance in chances.items():
            both[payload] += share * chance
    return {payload: Fraction(weight, denominator * parts) for payload, weight in both.items()}


def _twice(permanent: Sequence[_Masses], reports: dict[bytes, _Masses]) -> Fraction:
    """Return the worst likelihood ratio of two reports from one permanent response."""
    responses = list(reports)
    payloads = list(set().union(*reports.values()))
    chances = [_integers([reports[response].get(payload, Fraction(0)) for response in responses]) for payload in payloads]
    weights = [[weight[response] for response in responses] for weight in _over_one_denominator(permanent)[0]]
    pairs: Iterable[tuple[int, int]] = ((i, j) for i in range(len(payloads)) for j in range(i + 1))
    if len(permanent) * len(responses) * len(payloads) ** 2 // 2 > _MAX_PRODUCTS:
        pairs = ((i, i) for i in range(len(payloads)))
    worst = Fraction(1)
    for i, j in pairs:
        both = list(map(mul, chances[i], chances[j]))
        likely = [sum(map(mul, weight, both)) for weight in weights]
        if max(likely):
            worst = max(worst, Fraction(max(likely), min(likely)))
    return worst


def _over_one_denominator(masses: Sequence[dict[_Output, Fraction]]) -> tuple[list[dict[_Output, int]], int]:
    """Return the numerators of distributions over their least common denominator, and this. Many sums are faster so."""
    denominator = lcm(*{chance.denominator for mass in masses for chance in mass.values()})
    return [
        {output: chance.numerator * (denominator // chance.denominator) for output, chance in mass.items()} for mass in masses
    ], denominator


def _integers(shares: list[Fraction]) -> list[int]:
    denominator = lcm(*(share.denominator for share in shares))
    return [share.numerator * (denominator // share.denominator) for share in shares]


def _biased_support(mechanism: FrequencyOracle, values: Sequence[int], masses: list[_Masses], payloads: set[bytes]) -> list[str]:
    """Return the pairs of values for which the probability of support is not the declared one, in words."""
    supports = {payload: _support(mechanism, payload) for payload in payloads}
    faults = []
    weights, denominator = _over_one_denominator(masses)
    for true, weight in zip(values, weights, strict=True):
        sums: dict[int, int] = defaultdict(int)
        for payload, share in weight.items():
            for value, sign in supports[payload].items():
                sums[value] += share * sign
        for value in values:
            support = Fraction(sums[value], denominator)
            claimed, name = mechanism.support(value, true), "p" if value == true else "q"
            if support != claimed:
                chance = f"{float(support):.12g}, not {name} = {float(claimed):.12g}"
                faults.append(f"answer {true} supports {value} with probability {chance}")
    return faults


def _support(mechanism: FrequencyOracle, payload: bytes) -> dict[int, int]:
    """Return which values a payload supports (1) and opposes (-1); none if it does not unpack."""
    try:
        return dict.fromkeys(mechanism.supported(payload), 1) | dict.fromkeys(mechanism.opposed(payload), -1)
    except PayloadError:
        return {}


def _biased_scores(mechanism: Scored, values: Sequence[int], masses: list[_Masses], payloads: set[bytes]) -> list[str]:
    """Return the values of which a mean score is not the quantity, in words."""
    scores = {payload: mechanism.scores(payload) for payload in payloads}
    faults = []
    for value, mass in zip(values, masses, strict=True):
        for number, quantity in enumerate(mechanism.quantities(value)):
            mean = sum((share * scores[payload][number] for payload, share in mass.items()), Fraction(0))
            if mean != quantity:
                faults.append(f"score {number} of answer {value} is {float(mean):.12g} on average, not {float(quantity):.12g}")
    return faults


def _misfits(mechanism: Mechanism, payloads: set[bytes]) -> list[str]:
    """Return the payloads that do not unpack, in words."""
    misfits = []
    for payload in payloads:
        try:
            mechanism.layout.unpack(payload)
        except PayloadError as error:
            misfits.append(f"a payload does not unpack: {error}")
    return misfits
