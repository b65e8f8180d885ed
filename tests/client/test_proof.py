"""The proof catches what it is there to catch: each planted bug has a sound twin that passes."""

from __future__ import annotations

from fractions import Fraction
from math import inf, log
from typing import TYPE_CHECKING, Any

import pytest

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, weight
from deniable.mechanisms.base import Mechanism
from deniable.mechanisms.listed.direct import Grr, shifts
from deniable.mechanisms.listed.subset import Subset
from deniable.mechanisms.listed.unary import Sue
from deniable.mechanisms.permanent import second_flip
from deniable.mechanisms.permanent.l_grr import LGrr
from deniable.mechanisms.permanent.l_osue import LOsue
from deniable.mechanisms.texts.rappor import Rappor
from deniable.proof import Tape, _of_each, distribution, prove

if TYPE_CHECKING:
    from deniable.source import Source


class GrrThatMayHitTheTruthAgain(Grr):
    """The classic: not kept, it answers uniformly over all values, the truth among them."""

    def noise(self, source: Source, count: int) -> list[Any]:
        d = self.domain_size
        keep = source.bits(self._true_weight, self._true_weight + (d - 1) * UNIT, count)
        return [0 if digit == ord("1") else other for digit, other in zip(keep, source.indices(d, count), strict=True)]


class GrrByRejection(Grr):
    """The sound twin: the same two draws, the second over the others only."""

    def noise(self, source: Source, count: int) -> list[Any]:
        d = self.domain_size
        keep = source.bits(self._true_weight, self._true_weight + (d - 1) * UNIT, count)
        return [0 if digit == ord("1") else 1 + other for digit, other in zip(keep, source.indices(d - 1, count), strict=True)]


class SueWithAllOfEpsilonOnEachBit(Sue):
    """The other classic: two bits differ, so this spends twice what was asked."""

    def _bits(self) -> tuple[Fraction, Fraction]:
        kept_weight = weight(self.requested)
        return Fraction(kept_weight, kept_weight + UNIT), Fraction(UNIT, kept_weight + UNIT)


class SueWithHalfOnEachBit(Sue):
    """The sound twin."""

    def _bits(self) -> tuple[Fraction, Fraction]:
        kept_weight = weight(self.requested / 2)
        return Fraction(kept_weight, kept_weight + UNIT), Fraction(UNIT, kept_weight + UNIT)


class SubsetAlwaysWithTheTruth(Subset):
    """A set without the value then proves that it is not the answer."""

    def noise(self, source: Source, count: int) -> list[Any]:
        return [others << 1 | 1 for others in source.subsets(self.domain_size - 1, [self.size - 1] * count)]


class SubsetSometimesWithTheTruth(Subset):
    """The sound twin: the truth by an exact coin."""

    def noise(self, source: Source, count: int) -> list[Any]:
        noise = []
        for _ in range(count):
            truth = source.bernoulli(self.p.numerator, self.p.denominator)
            noise.append(source.subsets(self.domain_size - 1, [self.size - truth])[0] << 1 | truth)
        return noise


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


class ChainThatDrawsAnewForEachReport(LGrr):
    """No permanent response: what is kept is the answer."""

    def respond_permanently(self, row: int, value: int, source: Source) -> int:  # noqa: ARG002
        return value

    def respond_instantly(self, row: int, response: int, source: Source) -> bytes:  # noqa: ARG002
        return self.randomize(response, source=source)


class ChainWithTooMuchNoise(LGrr):
    """The second step as published, which spends less than epsilon: private, but not what the decoder takes it for."""

    def _parameters(self) -> dict[str, Any]:
        right = super()._parameters()
        share, unit = right["_again"]
        return right | {"_again": (share, 2 * unit)}


class ChainThatKeepsMoreThanDeclared(LGrr):
    """Right in all it does, but a device spends more in its lifetime than is said."""

    @property
    def kept_responses(self) -> int:
        return self.domain_size - 1


class ChainThatSharesResponses(LGrr):
    """Two values share a response that is drawn for one of them."""

    def response_key(self, row: int, value: int) -> int:
        return super().response_key(row, value) // 2

    def respond_permanently(self, row: int, value: int, source: Source) -> int:  # noqa: ARG002
        (shift,) = shifts(source, self._permanent_weight, self.domain_size, 1)
        return (value + shift) % self.domain_size


class ChainThatDeclaresLess(LOsue):
    """Its reports are right, its permanent response tells more than it says."""

    def _parameters(self) -> dict[str, Any]:
        return super()._parameters() | {"permanent_ratio": Fraction(weight(self.requested), UNIT)}


class ChainWithAllOfItOnEachBit(Rappor):
    """The permanent response spends twice what was asked."""

    def _parameters(self) -> dict[str, Any]:
        right = super()._parameters()
        all_of_it = Fraction(UNIT, weight(self.requested_permanent) + UNIT)
        return right | {
            "permanent_ratio": ((1 - all_of_it) / all_of_it) ** 2,
            "flip_permanent": all_of_it,
            "_flip": second_flip(all_of_it, right["other"]),
        }


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


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (ChainThatDrawsAnewForEachReport, "the worst likelihood ratio of the permanent response is no bound, declared is 7.389"),
        (ChainWithTooMuchNoise, "a report in two steps of answer 0 is not distributed as in one"),
        (ChainThatKeepsMoreThanDeclared, "a device keeps 4 permanent responses, declared are 3"),
        (ChainThatSharesResponses, "values of one response_key have different permanent responses"),
        (ChainThatDeclaresLess, "the worst likelihood ratio of the permanent response is 7.389"),
        (ChainWithAllOfItOnEachBit, "the permanent epsilon is 3.99999999999, above the 2 asked for"),
    ],
)
def test_permanent_mechanisms_that_do_not_hold(kind, fault):
    """Each false claim about two steps is found, and the mechanism without it is proved."""
    assert fault in faults(kind)
    assert faults(kind.__base__) == ""


def test_two_reports_that_tell_more_than_what_is_kept(monkeypatch):
    """Two reports from one response are walked together: were they to tell more than it, the proof would say so."""
    monkeypatch.setattr("deniable.proof._twice", lambda *_: Fraction(8))
    assert "two reports have a likelihood ratio of 8, the permanent response 7.389" in faults(LGrr)


def test_two_reports_tell_less_than_what_is_kept():
    """Two reports tell more than one and less than the permanent response; equal ones tell as much as any two."""
    from deniable import proof

    for mechanism in (LGrr(domain_size=3, epsilon=1), LOsue(domain_size=3, epsilon=1), Rappor(domain_size=3, epsilon=1)):
        responses = [proof._permanent(mechanism, 0, value) for value in range(3)]
        reports = {response: proof._instant(mechanism, 0, response) for response in responses[0]}
        all_pairs = proof._twice(responses, reports)
        assert mechanism.ratio < all_pairs < mechanism.permanent_ratio
        pairs = [
            [sum(mass[r] * reports[r][y] * reports[r][z] for r in mass) for mass in responses] for y in reports for z in reports
        ]
        assert all_pairs == max(max(pair) / min(pair) for pair in pairs)


def test_many_pairs_are_compared_as_equal_ones(monkeypatch):
    """Where there are too many pairs of reports, each report seen twice is what is compared, and it is the worst pair here."""
    monkeypatch.setattr("deniable.proof._MAX_PRODUCTS", 0)
    assert faults(LGrr) == faults(LOsue) == ""


def test_what_a_proof_tells():
    """A proof names its mechanism and carries the exact ratio and the number of payloads."""
    proof = prove(mechanisms.make("oue", domain_size=3, epsilon="1"))
    assert (proof.name, proof.domain_size, proof.requested, proof.outputs) == ("oue", 3, Fraction(1), 8)
    assert proof.ratio == proof.declared
    assert proof.epsilon == log(proof.ratio)
    assert proof.holds
    assert (proof.permanent, proof.epsilon_permanent) == (None, inf)
    assert prove(LGrr(domain_size=3, epsilon=1)).epsilon_permanent == pytest.approx(2)


@pytest.mark.parametrize(
    ("name", "size", "options"),
    [
        *((name, 2, {}) for name in mechanisms.names()),
        ("window", 3, {"blocks": 1, "length": 2}),
        ("padded_subset", 8, {"most": 2}),
        ("sampled_options", 8, {}),
    ],
)
def test_what_is_proved_is_what_devices_call(name, size, options):
    """One walk of the noise gives each value the distribution that all draws of `randomize` give it."""
    mechanism = mechanisms.make(name, domain_size=size, epsilon=2, **options)
    assert type(mechanism).randomize is Mechanism.randomize
    of_draws = [distribution(lambda tape, v=value: mechanism.randomize(v, source=tape)) for value in range(mechanism.domain_size)]
    assert _of_each(mechanism, range(mechanism.domain_size)) == of_draws


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
    with pytest.raises(ParameterError, match=rf"a probability = '{num}/{den}': write a number in \[0, 1\]"):
        Tape([]).bernoulli(num, den)


@pytest.mark.parametrize("n", [0, -1])
def test_no_such_choice(n):
    """A choice among nothing is stopped."""
    with pytest.raises(ParameterError, match=f"the outcomes of a uniform draw = {n}: write 1 or more"):
        Tape([]).below(n)


def test_too_many_walks(monkeypatch):
    """A proof that would take too long says so."""
    monkeypatch.setattr("deniable.proof.MAX_WALKS", 50)
    with pytest.raises(ParameterError, match="use a smaller domain"):
        prove(mechanisms.make("oue", domain_size=6, epsilon=1))
