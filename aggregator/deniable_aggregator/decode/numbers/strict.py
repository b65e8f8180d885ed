"""Strict bands of quantiles: they hold for every population and every number of reports, and are much wider than others."""

from __future__ import annotations

from math import log, sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, diags_array

from deniable.errors import ParameterError
from deniable.mechanisms.window import Window
from deniable_aggregator.decode.multiple_testing import tail

if TYPE_CHECKING:
    from collections.abc import Callable

    from deniable.mechanisms import Mechanism
    from deniable_aggregator.tally import Tally


def strict_quantile(
    mechanism: Mechanism,  # what the devices ran: `Window`
    tally: Tally,  # the sum of their reports
    share: float,  # the share of the answers below the quantile, in (0, 1)
    level: float = 0.95,  # confidence of the bands of all quantiles together, in (0, 1)
    *,
    repeats: float = 0.0,  # how many other reports a device has made, at most
) -> tuple[float, float]:
    """Compute a band of a quantile, as places in [0, 1], that holds at least with this confidence, without any approximation."""
    # The cumulative shares of the cells named are all within `sqrt(ln(2 / alpha) / (2 n))` of their probabilities (Dvoretzky,
    # Kiefer and Wolfowitz, with Massart's constant). Where a device has made at most R reports, the reports are R groups, each of
    # other devices. The bound holds for all groups together with alpha / R. The mean over groups is farthest off if they are of
    # equal size, so n becomes n / R. Of all distributions over the points with such probabilities, linear programs find the
    # greatest and the least share at or below a point. An answer between two points was rounded to one of them. So the band ends
    # at the next point.
    # P. Massart: The tight constant in the Dvoretzky-Kiefer-Wolfowitz inequality. Annals of Probability 18(3), 1990.
    if not isinstance(mechanism, Window):
        raise ParameterError("mechanism: choose a window, of whose reports there are strict bands", mechanism.name)
    tally.check_decoder(mechanism)
    alpha, steps = 2 * tail(level), mechanism.points - 1
    if not tally.n:
        return 0.0, 1.0
    reach = sqrt(log(2 * (1 + repeats) / alpha) / (2 * tally.n / (1 + repeats)))
    seen = np.cumsum(tally.counts[0])[:-1] / tally.n
    bounds = [*[(0.0, 1.0)] * steps, (1.0, 1.0), *zip(seen - reach, seen + reach, strict=True)]
    rule, rises = _rule(mechanism, len(bounds)), diags_array([1.0, -1.0], offsets=[0, 1], shape=(steps, len(bounds)))
    right = np.full(rule.shape[0], float(mechanism.outside))

    def least_share(point: int, sign: int) -> float:
        """Return the least share at or below a point, or with sign -1 the greatest."""
        below = sign * (np.arange(len(bounds)) == point)
        program = linprog(below, rises, np.zeros(steps), rule, right, bounds)
        return sign * float(program.fun) if program.success else float(sign < 0)  # made-up reports may fit no distribution

    low = _first(steps, lambda point: least_share(point, -1) >= share)
    high = _first(steps, lambda point: least_share(point, 1) >= share) + 1
    return max(low - 1, 0) / steps, min(high, steps) / steps


def _first(last: int, holds: Callable[[int], bool]) -> int:
    """Return the first whole number that something holds for, as it does from there on; at most `last`."""
    first = 0
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if holds(middle) else (middle + 1, last)
    return first


def _rule(mechanism: Window, variables: int) -> csr_array:
    """Return the equations between the shares at or below each point, and the probabilities of the first cells, 1, 2, ...."""
    # With C the former and H the latter, `H[j] - H[j - 1] - (inside - outside) (C[j] - C[j - w]) = outside`: the points that have
    # cell j in their windows are j - w + 1 to j.
    points, w, gain = mechanism.points, mechanism.length, float(mechanism.inside - mechanism.outside)
    cell = np.arange(mechanism.layout.width - 1)
    entries = [
        (cell, points + cell, 1.0),
        (cell[1:], points + cell[:-1], -1.0),
        (cell, np.minimum(cell, points - 1), -gain),
        (cell[w:], cell[w:] - w, gain),
    ]
    rows, columns = (np.concatenate([entry[side] for entry in entries]) for side in (0, 1))
    values = np.concatenate([np.full(len(row), value) for row, _, value in entries])
    return csr_array((values, (rows, columns)), (len(cell), variables))
