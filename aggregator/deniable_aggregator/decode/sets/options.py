"""Sets: shares of options, and how many options people choose."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ParameterError
from deniable_aggregator.decode.channel import Channel
from deniable_aggregator.decode.families import family_of
from deniable_aggregator.decode.families.sets import Options
from deniable_aggregator.decode.sets.option_estimate import OptionShares

if TYPE_CHECKING:
    from deniable.mechanisms import Mechanism
    from deniable_aggregator.tally import Tally


def option_shares(
    mechanism: Mechanism,  # of sets
    tally: Tally,  # the sum of their reports
) -> OptionShares:
    """Estimate the share of people who chose each option: of capped answers, those whose answer has it once it is cut."""
    family = options_of(mechanism)
    tally.check_decoder(mechanism)
    support, covering = family.count_options(tally)
    yes, both = ([float(each) for each in chances] for chances in (family.mechanism.yes, family.mechanism.both))
    common = (lambda places: family.common(tally, places)) if both else None
    return OptionShares(tally.n, support, covering, Channel(*yes), tuple(both), common)


def chosen(
    mechanism: Mechanism,
    tally: Tally,
    *,
    repeats: float = 0.0,  # other reports of a report's device, at most: see `panel`
) -> tuple[float, float]:
    """Estimate how many options people chose on average, with its standard error; nan without reports about some option."""
    shares = option_shares(mechanism, tally)
    total = float(shares.frequency.sum())
    if not np.isfinite(total):
        return float("nan"), float("nan")
    # What two reports of a person share is how many options the person chose. It varies most if people who choose a rare option
    # choose all that are more frequent.
    falling = np.sort(shares.plausible)[::-1]
    most = float(falling @ (2 * np.arange(len(falling)) + 1)) - float(falling.sum()) ** 2
    variance = options_of(mechanism).total_variance(tally, shares)
    return total, sqrt(variance + repeats * most / tally.n)


def options_of(mechanism: Mechanism) -> Options:
    """Return the family of a mechanism for sets; refuse others."""
    family = family_of(mechanism)
    if not isinstance(family, Options):
        raise ParameterError("mechanism: choose one of sets, whose reports show shares of options", mechanism.name)
    return family
