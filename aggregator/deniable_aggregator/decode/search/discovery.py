"""Discovery: find the common answers that nobody listed, by prefixes that grow level by level.

The search goes through the levels one after another. At each level it tries every continuation of the prefixes that it kept, and
keeps some of these. What it finds at full length is estimated again from the reports of the confirmation. These had no part in
the search, so the selection does not bias the estimates, their errors or the tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deniable.errors import ParameterError
from deniable.forecast.search import KEEP, Cut, found_half
from deniable.mechanisms.texts.prefix import GOLDEN, MULTIPLIERS
from deniable_aggregator.decode.estimate import Estimate
from deniable_aggregator.decode.search.prefix_level import level_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from deniable.mechanisms.texts.prefix import PrefixTree
    from deniable_aggregator.decode.search.prefix_level import Joint, PrefixLevel
    from deniable_aggregator.tally import Tally

_BLOCK = 1 << 18  # candidates looked up at once: a few megabytes, for any number of candidates
_CLOSER = 16  # this many times the prefixes to keep are estimated a second time
_GLANCE = 8  # one of this many rows is enough to show the most frequent prefixes
_SAME = 1.1  # ratio of standard errors up to which another round is not worth it


@dataclass(frozen=True, slots=True)
class Level:
    """The search at one length."""

    length: int  # bits of the prefixes
    reports: int  # number of reports about prefixes of this length
    candidates: int  # number of prefixes tried
    survivors: int  # number of them that the search continued
    threshold: float  # least estimated frequency of a prefix that is kept
    stderr: float  # standard error of the estimated frequency of a prefix that nobody has; nan without reports


@dataclass(frozen=True, eq=False)
class Discovery(Estimate):
    """The values that a search has found, with frequencies from reports that it did not use.

    A value that was found need not exist. `detected` says which ones do, with a bound on error over all that were found. The
    others are mostly noise and are not to be shown. More values may exist below about `detection_frequency`.
    """

    n: int  # number of reports of all levels
    values: tuple[int, ...]  # what was found, by falling frequency, including what was not detected
    levels: tuple[Level, ...]  # the search, level by level
    n_confirm: int  # number of reports of the confirmation
    joint: Joint  # the estimate from these

    @property
    def reports(self) -> NDArray[np.int64]:
        """How many reports confirm: of these the frequencies are."""
        return np.full(len(self.values), self.n_confirm, np.int64)

    @property
    def frequency(self) -> NDArray[np.float64]:
        """Unbiased share of each value."""
        return self.joint.frequency

    @property
    def stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency in the population that the respondents were drawn from."""
        return np.sqrt(np.diag(self.joint.covariance))

    @property
    def absent_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency of each value if nobody held it."""
        return self.joint.absent_stderr

    @property
    def p_value(self) -> NDArray[np.float64]:
        """Chance of an estimate at least as large if nobody held the value: the larger of two tails."""
        # The binomial tail allows for few supports, the normal tail for what a pool of hash functions confuses.
        return np.maximum(super().p_value, self.joint.tail)

    def detection_frequency(self, alpha: float = 0.05) -> float:
        """Return the share at which a value would pass every level and be detected half of the time."""
        # It is nan without reports, and where a value would not be detected half of the time even if everybody held it. It is for
        # a value whose prefixes nobody else has. A value that shares prefixes with others is found more easily.
        if not self.n_confirm or not all(level.reports for level in self.levels):
            return float("nan")
        cuts = [Cut(level.threshold, level.stderr, level.reports) for level in self.levels if level.survivors < level.candidates]
        part, error = self.joint.part, self.joint.stderr
        cuts.append(Cut(part.noise(alpha / max(len(self.values), 1), error), error, self.n_confirm))
        return found_half(part.mechanism, cuts)

    @property
    def unallocated(self) -> tuple[float, float]:
        """The share of the population that none of the values found accounts for, and its standard error; nan without reports."""
        if not self.n_confirm:
            return float("nan"), float("nan")
        return float(1 - self.frequency.sum()), float(np.sqrt(max(self.joint.covariance.sum(), 0.0)))


def discover(
    mechanism: PrefixTree,
    tally: Tally,
    *,
    # most prefixes kept at a level, and most values found; `pem` keeps this many, `tree_hist` only significant ones
    keep: int = KEEP,
    alpha: float = 0.05,  # with `tree_hist`, the probability at each level of keeping any prefix that nobody has
    text: bool = False,  # whether the values are texts: then only UTF-8 is tried
) -> Discovery:
    """Search a tally for common values; the same tally always gives the same."""
    tally.check_decoder(mechanism)
    if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
        raise ParameterError("keep: write a whole number of at least 1", keep)
    if not 0 < alpha < 1:
        raise ParameterError("alpha: write a probability of error between 0 and 1", alpha)
    if text and mechanism.bits % 8:
        raise ParameterError("bits: write a multiple of 8; texts are numbers of whole bytes", mechanism.bits)
    confirming = level_of(mechanism, tally, len(mechanism.lengths) - 1)
    search = _Search(mechanism, tally, min(keep, max(confirming.freedom // 4, 1)), alpha, text)
    values, keys, levels = [0], np.zeros(1, np.uint64), []
    for number in range(len(mechanism.lengths) - 1):
        values, keys, level = _step(search, number, values, keys)
        levels.append(level)
    if not confirming.n:
        values, keys = [], keys[:0]
    order = np.argsort(-confirming.joint(keys).frequency, kind="stable")
    ranked = tuple(values[place] for place in order)
    return Discovery(tally.n, ranked, tuple(levels), confirming.n, confirming.joint(keys[order]))


def extend(keys: NDArray[np.uint64], chunks: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the keys of prefixes continued by chunks: `deniable.mechanisms.texts.prefix.extend` for arrays that broadcast."""
    word = keys + (chunks + np.uint64(1)) * np.uint64(GOLDEN)
    word = (word ^ word >> np.uint64(30)) * np.uint64(MULTIPLIERS[0])
    word = (word ^ word >> np.uint64(27)) * np.uint64(MULTIPLIERS[1])
    return np.asarray(word ^ word >> np.uint64(31))


class _Search(NamedTuple):
    mechanism: PrefixTree
    tally: Tally
    keep: int
    alpha: float
    text: bool


class _Tried(NamedTuple):
    """Prefixes: the place of the shorter one that each continues, its chunk, and its key."""

    parents: NDArray[np.intp]
    chunks: NDArray[np.uint64]
    keys: NDArray[np.uint64]

    def take(self, places: NDArray[np.intp]) -> _Tried:
        return _Tried(self.parents[places], self.chunks[places], self.keys[places])

    def join(self, other: _Tried) -> _Tried:
        return _Tried(
            np.concatenate([self.parents, other.parents]),
            np.concatenate([self.chunks, other.chunks]),
            np.concatenate([self.keys, other.keys]),
        )


_NOTHING = _Tried(np.zeros(0, np.intp), np.zeros(0, np.uint64), np.zeros(0, np.uint64))


def _step(
    search: _Search, number: int, values: list[int], keys: NDArray[np.uint64]
) -> tuple[list[int], NDArray[np.uint64], Level]:
    """Continue prefixes by one level, and keep some of them."""
    mechanism = search.mechanism
    since, length = (0, *mechanism.lengths)[number : number + 2]
    part = level_of(mechanism, search.tally, number)
    if not part.n:
        return [], keys[:0], Level(length, 0, 0, 0, float("nan"), float("nan"))
    candidates, plain, stderr = 0, _NOTHING, 0.0
    plain_frequency = np.zeros(0)
    # A few rows show the most frequent prefixes, which confuse the others most. These are cleared, and all rows are used. If the
    # prefixes found then confused so much that others may have been missed, this is repeated once.
    for glance in (part.sample(_GLANCE), part, part):
        if not glance.n:
            continue
        table, before = glance.cleared(plain.keys, plain_frequency)
        candidates, best = _best(search, glance, table, number, values, keys)
        best = best.join(plain)
        best = best.take(np.unique(best.keys, return_index=True)[1])
        once = 1 / max(candidates, 2)  # noise exceeds this quantile once on average among all candidates
        frequency, stderr = glance.closer(best.keys, once)
        there = np.flatnonzero(frequency > glance.noise(once, stderr))
        plain, plain_frequency = best.take(there), frequency[there]
        if glance is part and before < _SAME * stderr:
            break
    threshold = 0.0
    if mechanism.stands_out:
        threshold = part.noise(search.alpha / max(candidates, 1), stderr)
    order = np.argsort(-frequency, kind="stable")
    order = order[frequency[order] > threshold]
    if len(order) > search.keep:
        order = order[: search.keep]
        threshold = float(frequency[order[-1]])
    best = best.take(order)
    ends = zip(best.parents.tolist(), best.chunks.tolist(), strict=True)
    lengthened = [values[parent] << length - since | chunk for parent, chunk in ends]
    return lengthened, best.keys, Level(length, part.n, candidates, len(order), threshold, stderr)


def _best(
    search: _Search, part: PrefixLevel, table: NDArray[np.float64], number: int, values: list[int], keys: NDArray[np.uint64]
) -> tuple[int, _Tried]:
    """Try all continuations; return their number, and those with the most support."""
    candidates, best, support = 0, _NOTHING, np.zeros(0)
    for parents, chunks in _children(search, number, values):
        candidates += len(chunks)
        block = _Tried(parents, chunks, extend(keys[parents], chunks))
        best, support = best.join(block), np.concatenate([support, part.lookup(block.keys, table)])
        order = np.argsort(-support, kind="stable")[: _CLOSER * search.keep]
        best, support = best.take(order), support[order]
    return candidates, best


def _children(search: _Search, number: int, values: list[int]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.uint64]]]:
    """Yield all continuations of prefixes, in blocks: place of the prefix, and chunk."""
    mechanism = search.mechanism
    since, length = (0, *mechanism.lengths)[number : number + 2]
    width, left = length - since, mechanism.bits - length
    parents: list[NDArray[np.intp]] = []
    chunks: list[NDArray[np.uint64]] = []
    for parent, value in enumerate(values):
        if search.text:
            fitting = _texts(*_read(value, since), width, last=not left)
        else:
            most = (mechanism.domain_size - 1 >> left) - (value << width)
            fitting = np.arange(min(most + 1, 1 << width), dtype=np.uint64)
        parents.append(np.full(len(fitting), parent, np.intp))
        chunks.append(fitting)
        if sum(map(len, chunks)) >= _BLOCK or parent == len(values) - 1:
            yield np.concatenate(parents), np.concatenate(chunks)
            parents, chunks = [], []


# Valid UTF-8: the states of a decoder. Texts are padded with zero bytes.

_BEGIN, _BETWEEN, _FILL, _ONE, _TWO, _THREE, _E0, _ED, _F0, _F4, _NO = range(11)


@cache
def _follow() -> NDArray[np.intp]:
    """Return the next state for each state and byte; int array (states, 256)."""
    table = np.full((11, 256), _NO)
    for state in (_BEGIN, _BETWEEN):
        for first, last, after in (
            (0x01, 0x7F, _BETWEEN),
            (0xC2, 0xDF, _ONE),
            (0xE0, 0xEF, _TWO),
            (0xE0, 0xE0, _E0),  # overlong unless its next byte is high
            (0xED, 0xED, _ED),  # a surrogate unless its next byte is low
            (0xF0, 0xF0, _F0),
            (0xF1, 0xF3, _THREE),
            (0xF4, 0xF4, _F4),
        ):
            table[state, first : last + 1] = after
    table[_BETWEEN, 0] = table[_FILL, 0] = _FILL
    for state, first, last, after in (
        (_ONE, 0x80, 0xBF, _BETWEEN),
        (_TWO, 0x80, 0xBF, _ONE),
        (_THREE, 0x80, 0xBF, _TWO),
        (_E0, 0xA0, 0xBF, _ONE),
        (_ED, 0x80, 0x9F, _ONE),
        (_F0, 0x90, 0xBF, _TWO),
        (_F4, 0x80, 0x8F, _TWO),
    ):
        table[state, first : last + 1] = after
    return table


def _read(value: int, bits: int) -> tuple[int, int, int]:
    """Read a prefix of a text: the state after its whole bytes, the bits of an unfinished byte, and their number."""
    begun = bits % 8
    state = _BEGIN
    for byte in (value >> begun).to_bytes(bits // 8, "big"):
        state = int(_follow()[state, byte])
    return state, value & (1 << begun) - 1, begun


@lru_cache(maxsize=32)
def _texts(state: int, unfinished: int, begun: int, width: int, *, last: bool) -> NDArray[np.uint64]:
    """Return the chunks of `width` bits that may follow in a text; an unfinished byte may be anything."""
    chunks = np.arange(1 << width, dtype=np.uint64)
    words = np.uint64(unfinished << width) | chunks
    states = np.full(len(chunks), state)
    for to in range(begun + width - 8, -1, -8):
        states = _follow()[states, (words >> np.uint64(to) & np.uint64(0xFF)).astype(np.intp)]
    return chunks[np.isin(states, (_BETWEEN, _FILL)) if last else states != _NO]
