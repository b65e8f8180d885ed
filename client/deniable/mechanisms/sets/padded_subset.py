"""Sets of at most s options: a report names some of the options, of which at least one is likely to be chosen."""

from __future__ import annotations

from fractions import Fraction
from itertools import count, pairwise
from math import comb, prod
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, weight
from deniable.frozen import dataclass
from deniable.mechanisms.bounds import Bounds
from deniable.mechanisms.sets import OfSets
from deniable.messages.plural import plural
from deniable.wire.layout import Layout

if TYPE_CHECKING:
    from deniable.mechanisms import Mechanism
    from deniable.source import Source

_ONE = ord("1")


@dataclass(frozen=True, kw_only=True)
class PaddedSubset(OfSets):
    """Report a subset of the padded set. A subset with any of the answer is e^eps times as likely as one without.

    To the m options s blanks are added. An answer of r options has s - r of the blanks as well, so each answer has s of M = m + s
    places. A subset of k places is drawn: its weight is e^eps if it meets the answer, else 1. The blanks in it are not sent.

    An answer of more than s options is cut on the device: s of them are drawn, all alike. So what is estimated of an option is
    the share of people whose answer has it once it is cut.

    k has the least exact variance for an option that nobody chooses. A report has one bit for each option.

    Parameters
    ----------
    most
        s, the most options that an answer keeps: from 1 to m - 1.

    Attributes
    ----------
    size : int
        k.

    References
    ----------
    S. Wang et al.: Set-valued data publication with local privacy: tight error bounds and efficient mechanisms. VLDB 13(8),
    2020. S. Wang, L. Huang, Y. Nie, P. Wang, H. Xu, W. Yang: PrivSet: set-valued data analyses with local differential privacy.
    INFOCOM 2018, section IV.
    """

    name = "padded_subset"
    summary = "name some of the options, one of yours more likely among them"
    options = ("most",)
    sizeless = ()

    most: int = 1
    size: int = 0
    telling: Fraction = Fraction(1)  # the probability of a subset with places of just one of two answers, which may be apart
    meets: tuple[tuple[int, int], ...] = ()  # by own places: the weight of subsets, and of those with more, too
    _orders: int = 0  # ways to cut the longest answer

    def _parameters(self) -> dict[str, Any]:
        options, most = self._options_listed(), self.most
        if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most < options:
            raise ParameterError(f"most: write a whole number from 1 to {options - 1}, one less than the options", most)
        places, true_weight = options + most, weight(self.requested)
        size = _best_size(places, most, true_weight)
        total, chosen, other = _weights(places, most, size, true_weight)
        weights = [
            (true_weight if own else UNIT) * comb(most, own) * comb(places - most, size - own)
            for own in range(min(most, size) + 1)
        ]
        # If k - 2 others are drawn: the subsets with two places of the answer or one, and those with none, which also miss it.
        two = true_weight * comb(places - 2, size - 2) if size > 1 else 0
        missing = comb(places - most - 2, size - 2) if size > 1 else 0
        none = two - (true_weight - UNIT) * missing
        return {
            "ratio": Fraction(true_weight, UNIT),
            "layout": Layout(1, options, "bits"),
            "options_listed": options,
            "about": Fraction(1),
            "yes": (Fraction(chosen, total), Fraction(other, total)),
            "both": (Fraction(none, total), Fraction(two, total), Fraction(two, total)),
            "size": size,
            "telling": Fraction((true_weight + UNIT) * (comb(places - most, size) - comb(places - 2 * most, size)), total),
            "meets": tuple((each, sum(weights[own:])) for own, each in enumerate(weights)),
            "_orders": prod(range(most + 1, options + 1)),
        }

    @property
    def constants(self) -> dict[str, Any]:
        """The places of a subset and of an answer; the chance of 0, 1, ... of the answer's places, each if it is not fewer."""
        own = {f"own_{number}": Fraction(each, left) for number, (each, left) in enumerate(self.meets[:-1])}
        return {"size": self.size, "most": self.most, **own}

    @property
    def _agreed(self) -> str:
        return f"{self.most} {self.size} {self.yes[0]} {self.yes[1]}"

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw how an answer would be cut, and each subset: of the answer's places, in order, and of the others."""
        orders = [source.below(self._orders) for _ in range(count)]
        coins = zip(*(source.bits(each, left, count) for each, left in self.meets[:-1]), strict=True)
        met = [(*digits, _ONE).index(_ONE) for digits in coins]
        own = source.subsets(self.most, met)
        others = source.subsets(self.options_listed, [self.size - each for each in met])
        return list(zip(map(self._cut, orders), own, others, strict=True))

    def _cut(self, number: int) -> tuple[int, ...]:
        """Return the place that each further option of an answer takes, from s on none: so the answer keeps any s, all alike."""
        # A. G. Waterman's reservoir, in D. E. Knuth: The Art of Computer Programming, volume 2, 3.4.2, algorithm R.
        places = [*range(self.most)]
        for options in range(self.most + 1, self.options_listed + 1):
            number, place = divmod(number, options)
            places.append(min(place, self.most))
        return tuple(places)

    def respond(self, value: int, noise: Any) -> bytes:
        """Move the subset's places to those of the answer, and to the others; drop the blanks."""
        cut, own, subset = noise
        for number, place in enumerate(self._held(value, cut)):
            others = subset & ((1 << place) - 1)
            subset = (subset - others << 1) | others | (own >> number & 1) << place
        return self.layout.pack(0, subset & self.domain_size - 1)

    def _held(self, value: int, cut: tuple[int, ...]) -> list[int]:
        """Return the s places of an answer, in order: its options, some of more, and blanks instead of fewer."""
        options, most = self.options_listed, self.most
        held = [*range(options, options + most), 0]  # the last one is for options that the answer does not have or keep
        # As many steps for any answer, of numbers of one length.
        bits, chosen = value | 1 << options, 0
        for option in range(options):
            has = bits >> option & 1
            held[cut[chosen] if has else most] = option
            chosen += has
        return sorted(held[:most])

    def options_of(self, payload: bytes) -> dict[int, bool]:
        """Return all options, each with its bit."""
        bits = self.layout.unpack(payload)[1]
        return {option: bool(bits >> option & 1) for option in range(self.options_listed)}

    def likelihood(self, payload: bytes, value: int) -> Fraction:
        """Compute the probability of a payload, times a number that is the same for all answers."""
        named = self.layout.unpack(payload)[1]
        blanks, chosen = self.size - named.bit_count(), value.bit_count()
        if (
            chosen <= self.most
        ):  # it is missed if it has none of the options that are named, and none of the blanks that were dropped
            missed = Fraction(comb(chosen, blanks), comb(self.most, blanks)) if not named & value else Fraction(0)
        else:  # it is missed if it is cut to options that are not named
            missed = Fraction(comb((value & ~named).bit_count(), self.most), comb(chosen, self.most))
        return missed + (1 - missed) * self.ratio

    def bounds(self) -> Bounds:
        """Return the probability of an option's bit if nobody chooses it, and if everybody does."""
        return Bounds(self.yes[1], self.yes[0], counts=tuple(map(self._counts, range(self.most + 1))))

    def _counts(self, chosen: int) -> tuple[Fraction, ...]:
        """Return the probability of each number of ones, for an answer of so many options."""
        options, most, total = self.options_listed, self.most, self.meets[0][1]
        counts = [Fraction(0)] * (options + 1)
        for blanks in range(min(most, self.size) + 1):
            ones = self.size - blanks
            # All subsets of so many blanks, and those with none of the answer's places.
            subsets = comb(most, blanks) * comb(options, ones)
            missing = comb(chosen, blanks) * comb(options - chosen, ones)
            counts[ones] = (subsets * self.ratio - missing * (self.ratio - 1)) * UNIT / total
        return tuple(counts)

    def quantities(self, value: int) -> tuple[Fraction, ...]:
        """Return, for each option, the chance that the answer names it once it is cut."""
        chance = Fraction(self.most, max(value.bit_count(), self.most))
        return tuple(chance * (value >> option & 1) for option in range(self.options_listed))

    def scores(self, payload: bytes) -> tuple[Fraction, ...]:
        """Return the score of each option."""
        bits = self.layout.unpack(payload)[1]
        chosen, other = self.yes
        return tuple(((bits >> option & 1) - other) / (chosen - other) for option in range(self.options_listed))

    def resized(self, domain_size: int) -> Mechanism:
        """Make the same mechanism for another number of options, with as many in an answer or one less than all."""
        most = min(self.most, domain_size.bit_length() - 2)
        return type(self)(domain_size=domain_size, epsilon=self.requested, most=most)  # type: ignore[arg-type] # read exactly

    @property
    def says(self) -> str:
        """What one report says, in words."""
        true, other = (f"{float(each):.3f}" for each in self.yes)
        count = "one of them counts" if self.most == 1 else f"{self.most} of them count"
        return (
            f"If you chose more than {plural(self.most, 'option')}, {count}, drawn at random on this device. "
            f"A report names an option that you chose with probability {true}, and any one other option with {other}."
        )


def _weights(places: int, most: int, size: int, true_weight: int) -> tuple[int, int, int]:
    """Return the weights of all subsets, of those with a place of the answer, and of those with a place of the others."""
    total = true_weight * comb(places, size) - (true_weight - UNIT) * comb(places - most, size)
    chosen = true_weight * comb(places - 1, size - 1)
    return total, chosen, chosen - (true_weight - UNIT) * comb(places - most - 1, size - 1)


def _best_size(places: int, most: int, true_weight: int) -> int:
    """Return the size of subsets after which the variance for an option that nobody chooses does not fall."""
    sizes = pairwise(_absent_variance(*_weights(places, most, size, true_weight)) for size in count(1))
    return next(size for size, (now, after) in enumerate(sizes, 1) if after[0] * now[1] >= now[0] * after[1])


def _absent_variance(total: int, chosen: int, other: int) -> tuple[int, int]:
    """Return the variance of one report's estimate of an option that nobody chooses, as a numerator and a denominator."""
    return other * (total - other), (chosen - other) ** 2
