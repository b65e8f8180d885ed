"""What no honest report can help: bounds on the probabilities of its parts, whatever the answer behind it.

A mechanism names each cell of a row, or sets each bit, with a probability between two that are known; and the number of ones
among bits has one of few known distributions. Nothing here depends on what people hold, so what a sum of reports shows beyond
these bounds was not made by devices that follow the mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln, xlog1py, xlogy

from deniable.mechanisms.coin import Coin
from deniable.mechanisms.dbitflip import DBitFlip
from deniable.mechanisms.direct import Grr
from deniable.mechanisms.general_hadamard import GeneralHadamard
from deniable.mechanisms.hadamard import Hadamard
from deniable.mechanisms.local_hash import LocalHash
from deniable.mechanisms.projective import Projective, points
from deniable.mechanisms.rappor import Bloom
from deniable.mechanisms.sketch import Cms, FastLocalHash, Hcms
from deniable.mechanisms.subset import Subset
from deniable.mechanisms.unary import Oue, Sue

if TYPE_CHECKING:
    from collections.abc import Iterable
    from fractions import Fraction

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism

__all__ = ["Law", "of"]


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """Bounds that hold for every honest report, of any answer.

    Parameters
    ----------
    low, high
        Least and greatest probability, given the row, that a cell is named or a bit set.
    weights
        float array (kinds, width + 1): the distributions of the number of ones, of which each report has one, depending on its
        answer; None where a report names a cell.
    direct
        Whether there is one row, and each cell or bit stands for the value of its number.
    """

    low: float
    high: float
    weights: NDArray[np.float64] | None = None
    direct: bool = False


@singledispatch
def of(mechanism: Mechanism) -> Law | None:  # noqa: ARG001
    """Return the law of a mechanism's reports; None where none is known."""
    return None


def _bits(one: Fraction, other: Fraction, width: int, held: Iterable[int] = (1,), *, direct: bool = False) -> Law:
    """Return the law of `width` independent bits, of which as many as one of `held` belong to the answer."""
    high, low = float(one), float(other)
    weights = [np.convolve(_binomial(k, high), _binomial(width - k, low)) for k in held]
    return Law(low, high, np.array(weights), direct)


def _binomial(of: int, chance: float) -> NDArray[np.float64]:
    k = np.arange(of + 1.0)
    choices = gammaln(of + 1) - gammaln(k + 1) - gammaln(of - k + 1)
    return np.asarray(np.exp(choices + xlogy(k, chance) + xlog1py(of - k, -chance)), np.float64)


@of.register(Oue)
@of.register(Sue)
def _(mechanism: Oue | Sue) -> Law:
    return _bits(mechanism.p, mechanism.q, mechanism.layout.width, direct=True)


@of.register(Bloom)
def _(mechanism: Bloom) -> Law:
    """Return the law of a filter: hash functions of a cohort may share a bit, so an answer has from one to all of them."""
    held = range(1, mechanism.hashes + 1)
    return _bits(mechanism.one, mechanism.other, mechanism.layout.width, held, direct=mechanism.basic)


@of.register(DBitFlip)
def _(mechanism: DBitFlip) -> Law:
    """Return the law of a device whose answer is in its set, and of one whose is not."""
    everywhere = mechanism.layout.rows == 1
    return _bits(mechanism.one, mechanism.other, mechanism.layout.width, (1,) if everywhere else (0, 1), direct=everywhere)


@of.register(Cms)
def _(mechanism: Cms) -> Law:
    return _bits(mechanism.p, mechanism.other, mechanism.layout.width)


@of.register(Subset)
def _(mechanism: Subset) -> Law:
    weights = np.zeros((1, mechanism.layout.width + 1))
    weights[0, mechanism.size] = 1
    return Law(float(mechanism.q), float(mechanism.p), weights, direct=True)


@of.register(Coin)
@of.register(Grr)
def _(mechanism: Coin | Grr) -> Law:
    return Law(float(mechanism.q), float(mechanism.p), direct=True)


@of.register(LocalHash)
def _(mechanism: LocalHash) -> Law:
    return Law(float((1 - mechanism.p) / (mechanism.layout.width - 1)), float(mechanism.p))


@of.register(FastLocalHash)
def _(mechanism: FastLocalHash) -> Law:
    return Law(float(mechanism.other), float(mechanism.p))


@of.register(Hcms)
def _(mechanism: Hcms) -> Law:
    """Return the law of one sign of one of `width` coefficients, all of them alike."""
    return Law(float((1 - mechanism.p) / mechanism.width), float(mechanism.p / mechanism.width))


@of.register(Hadamard)
def _(mechanism: Hadamard) -> Law:
    half = mechanism.layout.width // 2
    return Law(float((1 - mechanism.p) / half), float(mechanism.p / half))


@of.register(GeneralHadamard)
def _(mechanism: GeneralHadamard) -> Law:
    half, columns = mechanism.size // 2, mechanism.layout.width
    total = half * (mechanism.ratio - 1) + columns
    return Law(float(1 / total), float(mechanism.ratio / total))


@of.register(Projective)
def _(mechanism: Projective) -> Law:
    on = points(mechanism.field.order, mechanism.dimension - 1)
    return Law(float((1 - mechanism.p) / (mechanism.layout.width - on)), float(mechanism.p / on))
