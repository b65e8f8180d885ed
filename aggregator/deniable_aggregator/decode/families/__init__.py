"""One family for each form of tally. What depends on how a mechanism's reports are counted is asked of its family.

A mechanism's family is that of the first of its classes that is listed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deniable.mechanisms.listed.coin import Coin
from deniable.mechanisms.listed.direct import Grr
from deniable.mechanisms.listed.general_hadamard import GeneralHadamard
from deniable.mechanisms.listed.hadamard import Hadamard
from deniable.mechanisms.listed.local_hash import LocalHash
from deniable.mechanisms.listed.projective import Projective
from deniable.mechanisms.listed.subset import Subset
from deniable.mechanisms.listed.unary import Unary
from deniable.mechanisms.permanent.dbitflip import DBitFlip
from deniable.mechanisms.sets.padded_subset import PaddedSubset
from deniable.mechanisms.sets.sampled_options import Sampled
from deniable.mechanisms.texts.prefix import PrefixTree
from deniable.mechanisms.texts.rappor import Bloom
from deniable.mechanisms.texts.sketch import Cms, FastLocalHash, Hcms
from deniable.mechanisms.window import Window
from deniable_aggregator.decode.families import (
    bloom,
    buckets,
    direct,
    hadamard,
    hashed,
    projective,
    scored,
    sets,
)

if TYPE_CHECKING:
    from deniable.mechanisms import Mechanism
    from deniable_aggregator.decode.families.family import Family

__all__ = ["family_of"]

_FAMILIES: dict[type, type[Family[Any]]] = {
    Coin: direct.Named,
    Grr: direct.Named,
    Unary: direct.Marked,
    Subset: direct.Sets,
    Hadamard: hadamard.OneMatrix,
    GeneralHadamard: hadamard.Blocks,
    Projective: projective.Points,
    LocalHash: hashed.Hashed,
    FastLocalHash: hashed.Hashed,
    Cms: hashed.HashedBits,
    Hcms: hashed.HashedSigns,
    Bloom: bloom.Filters,
    DBitFlip: buckets.Buckets,
    Sampled: sets.Rows,
    PaddedSubset: sets.Padded,
    Window: scored.Cells,
    PrefixTree: hashed.Levels,
}


def family_of(mechanism: Mechanism) -> Family[Any]:
    """Return the family of a mechanism, which reads its tallies."""
    return next(_FAMILIES[each] for each in type(mechanism).__mro__ if each in _FAMILIES)(mechanism)
