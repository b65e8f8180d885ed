"""The proof catches what it is there to catch: each planted bug has a sound twin that passes."""

from __future__ import annotations

from fractions import Fraction
from math import inf, log
from typing import TYPE_CHECKING, Any

import pytest

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.mechanisms.direct import Grr
from deniable.mechanisms.subset import Subset
from deniable.mechanisms.unary import Sue
from deniable.proof import Tape, distribution, prove
from deniable.weight import UNIT, weight

if TYPE_CHECKING:
    from deniable.source import Source


class GrrThatMayHitTheTruthAgain(Grr):
    """The classic: not kept, it answers uniformly over all values, the truth among them."""

    def noise(self, source: Source, count: int) -> list[Any]:
        d = self.domain_size
        keep = source.bits(self._kept, self._kept + (d - 1) * UNIT, count)
        return [0 if digit == ord("1") else other for digit, other in zip(keep, source.indices(d, count), strict=True)]


class GrrByRejection(Grr):
    """The sound twin: the same two draws, the second over the others only."""

    def noise(self, source: Source, count: int) -> list[Any]:
        d = self.domain_size
        keep = source.bits(self._kept, self._kept + (d - 1) * UNIT, count)
        return [0 if digit == ord("1") else 1 + other for digit, other in zip(keep, source.indices(d - 1, count), strict=True)]


class SueWithAllOfEpsilonOnEachBit(Sue):
    """The other classic: two bits differ, so this spends twice what was asked."""

    def _bits(self) -> tuple[Fraction, Fraction]:
        kept = weight(self.requested)
        return Fraction(kept, kept + UNIT), Fraction(UNIT, kept + UNIT)


class SueWithHalfOnEachBit(Sue):
    """The sound twin."""

    def _bits(self) -> tuple[Fraction, Fraction]:
        kept = weight(self.requested / 2)
        return Fraction(kept, kept + UNIT), Fraction(UNIT, kept + UNIT)


class SubsetAlwaysWithTheTruth(Subset):
    """A set without the value then proves that it is not the answer."""

    def noise(self, source: Source, count: int) -> list[Any]:
        return [others << 1 | 1 for others in source.subsets(self.domain_size - 1, [self.size - 1] * count)]


class SubsetSometimesWithTheTruth(Subset):
    """The sound twin: the truth by an exact coin."""

    def noise(self, source: Source, count: int) -> list[Any]:
        drawn = []
        for _ in range(count):
            truth = source.bernoulli(self.p.numerator, self.p.denominator)
            drawn.append(source.subsets(self.domain_size - 1, [self.size - truth])[0] << 1 | truth)
        return drawn


class GrrWithNumbersAsShortAsTheyGo(Grr):
    """The size of a payload then says something about the answer."""

    def respond(self, value: int, noise: Any) -> bytes:
        number = (value + noise) % self.domain_size
        return number.to_bytes((number.bit_length() + 7) // 8, "little")


class GrrWithNumbersOfOneSize(Grr):
    """The sound twin."""

    def respond(self, value: int, noise: Any) -> bytes:
        return ((value + noise) % self.domain_size).to_bytes(1, "little")


class GrrThatDeclaresLess(Grr):
    """Right in what it does and wrong in what it claims."""

    def _parameters(self) -> dict[str, Any]:
        return super()._parameters() | {"ratio": Fraction(weight(self.requested / 2), UNIT)}


class GrrWithSwappedClaims(Grr):
    """Its estimates would be biased."""

    def _parameters(self) -> dict[str, Any]:
        right = super()._parameters()
        return right | {"p": right["q"], "q": right["p"]}


def faults(kind, d: int = 4, epsilon: str = "1") -> str:
    return "; ".join(prove(kind(domain_size=d, epsilon=epsilon)).faults)


@pytest.mark.parametrize("twin", [GrrByRejection, SueWithHalfOnEachBit, SubsetSometimesWithTheTruth, GrrWithNumbersOfOneSize])
@pytest.mark.parametrize("d", [2, 3, 5])
def test_sound_twins_hold(twin, d):
    """What differs from a planted bug by the bug alone is proved."""
    assert faults(twin, d) == ""


def test_others_that_include_the_truth():
    """Telling the truth more often than claimed shows in p, q and the ratio, which is above e^epsilon."""
    proof = prove(GrrThatMayHitTheTruthAgain(domain_size=4, epsilon="1"))
    assert not proof.holds
    words = "; ".join(proof.faults)
    assert "not p" in words
    assert "not q" in words
    assert "the worst likelihood ratio is" in words
    assert proof.epsilon > 1
    assert "above the 1 asked for" in words


def test_epsilon_on_each_bit():
    """The whole epsilon on each bit spends exactly twice."""
    proof = prove(SueWithAllOfEpsilonOnEachBit(domain_size=3, epsilon="1"))
    assert not proof.holds
    assert proof.ratio == Fraction(weight(Fraction(1)), UNIT) ** 2
    assert proof.epsilon == pytest.approx(2, abs=1e-8)
    assert any("above the 1 asked for" in fault for fault in proof.faults)


def test_a_set_that_always_has_the_truth():
    """A payload that is impossible for some value has no finite epsilon."""
    proof = prove(SubsetAlwaysWithTheTruth(domain_size=5, epsilon="0.5"))
    assert not proof.holds
    assert proof.ratio is None
    assert proof.epsilon == inf
    assert any("no finite epsilon" in fault for fault in proof.faults)


def test_a_size_that_tells():
    """A payload of another size is a fault in words, not a crash."""
    proof = prove(GrrWithNumbersAsShortAsTheyGo(domain_size=3, epsilon="1"))
    assert not proof.holds
    assert any("does not have 1 bytes" in fault for fault in proof.faults)


def test_false_claims():
    """A ratio that is declared too small, or p and q swapped, is found."""
    assert "declared is" in faults(GrrThatDeclaresLess)
    swapped = faults(GrrWithSwappedClaims)
    assert "not p" in swapped
    assert "not q" in swapped


def test_what_a_proof_tells():
    """A proof names its mechanism and carries the exact ratio and the number of payloads."""
    proof = prove(mechanisms.make("oue", domain_size=3, epsilon="1"))
    assert (proof.name, proof.domain_size, proof.requested, proof.outputs) == ("oue", 3, Fraction(1), 8)
    assert proof.ratio == proof.declared
    assert proof.epsilon == log(proof.ratio)
    assert proof.holds


def test_a_tape_walks_every_draw():
    """The walk visits each sequence of outcomes once, with its probability."""
    seen = distribution(
        lambda tape: bytes([tape.bernoulli(1, 3), tape.below(3), tape.below(1), tape.bernoulli(0, 5), tape.bernoulli(5, 5)])
    )
    assert sum(seen.values()) == 1
    assert seen == {bytes([a, b, 0, 0, 1]): (Fraction(1, 9) if a else Fraction(2, 9)) for a in (0, 1) for b in range(3)}


def test_a_tape_walks_draws_that_depend_on_draws():
    """The number of draws may depend on earlier ones."""
    seen = distribution(lambda tape: bytes([tape.below(2)]) if tape.bernoulli(1, 2) else b"none")
    assert seen == {b"none": Fraction(1, 2), b"\0": Fraction(1, 4), b"\1": Fraction(1, 4)}


@pytest.mark.parametrize(("num", "den"), [(-1, 2), (3, 2), (0, 0), (1, 0), (1, -1)])
def test_no_such_probability(num, den):
    """A mechanism that asks for an impossible probability is stopped."""
    with pytest.raises(ParameterError, match=r"a probability lies in \[0, 1\]"):
        Tape([]).bernoulli(num, den)


@pytest.mark.parametrize("n", [0, -1])
def test_no_such_choice(n):
    """A choice among nothing is stopped."""
    with pytest.raises(ParameterError, match="at least one outcome"):
        Tape([]).below(n)


def test_too_many_walks(monkeypatch):
    """A proof that would take too long says so."""
    monkeypatch.setattr("deniable.proof.MAX_WALKS", 50)
    with pytest.raises(ParameterError, match="use a smaller domain"):
        prove(mechanisms.make("oue", domain_size=6, epsilon=1))
