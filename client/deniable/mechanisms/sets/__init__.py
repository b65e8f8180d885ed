"""Mechanisms of sets: what their reports say of single options.

An answer is a set of options. It is written as a whole number: bit i is 1 if option i is chosen.
"""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction

from deniable.errors import ParameterError
from deniable.mechanisms.base import Scored

HALF = Fraction(1, 2)


class OfSets(Scored):
    """A mechanism from whose reports the shares of the options of a set are estimated.

    Attributes
    ----------
    options_listed : int
        Number of options.
    about : Fraction
        The share of reports that are about an option.
    yes : tuple of Fraction
        Probability that a report about an option says that it is chosen: if it is, and if it is not.
    both : tuple of Fraction
        Probability that a report about two options says that both are chosen: if none is, if one is, and if both are. Empty if no
        report is about two.
    """

    options_listed: int
    about: Fraction
    yes: tuple[Fraction, Fraction]
    both: tuple[Fraction, ...]

    def _options_listed(self) -> int:
        """Return the number of options of a domain of sets."""
        options = self.domain_size.bit_length() - 1
        if self.domain_size != 1 << options:
            raise ParameterError("domain_size: write 2^m for a set of m options", self.domain_size)
        return options

    @property
    def answers(self) -> str:
        """The domain, in words."""
        return f"{self.domain_size} sets of {self.options_listed} options"

    @abstractmethod
    def options_of(self, payload: bytes) -> dict[int, bool]:
        """Return the options that a report is about, and whether it says of each that it is chosen."""

    def option_variance(self, share: Fraction) -> Fraction:
        """Compute the variance of one report's estimate of an option that this share of the population chooses."""
        chosen, other = self.yes
        says = other + share * (chosen - other)
        return says * (1 - says) / (chosen - other) ** 2 / self.about

    @property
    def worst_variance(self) -> Fraction:
        """The largest variance of one report's estimate of an option: where half of the reports about it say yes, or nearly."""
        chosen, other = self.yes
        return self.option_variance(min(max((HALF - other) / (chosen - other), Fraction(0)), Fraction(1)))

    @property
    def influence(self) -> Fraction:
        """By how many respondents one report that says yes raises the count of an option."""
        chosen, other = self.yes
        return (1 - other) / (chosen - other) / self.about
