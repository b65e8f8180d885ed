"""What permanent responses bound over time, and what they do not: every history of a few answers, by exact enumeration.

A device keeps a response for each `response_key`. The *pattern* of a history says at which reports it uses the same one.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import groupby, product
from math import log

import pytest

from deniable import mechanisms
from deniable.mechanisms.permanent import Permanent
from deniable.proof import distribution

REPORTS = 3
CASES = [
    ("l_grr", 3, {"permanent": 1}),
    ("l_grr", 3, {"permanent": 2}),
    ("l_osue", 2, {"permanent": 1}),
    ("l_osue", 3, {"permanent": "1.5"}),
    ("rappor", 3, {"permanent": 1}),
    ("rappor", 2, {"permanent": 3}),
    ("rappor", 3, {"permanent": 2, "bits": 3, "hashes": 2, "cohorts": 2}),
    ("loloha", 4, {"permanent": 1}),
    ("loloha", 4, {"permanent": 2}),
    ("dbitflip", 4, {"buckets": 1}),
    ("dbitflip", 4, {"buckets": 2}),
    ("dbitflip", 3, {"buckets": 3}),
]


def make(name: str, d: int, **options) -> Permanent:
    mechanism = mechanisms.make(name, domain_size=d, epsilon=1, **options)
    assert isinstance(mechanism, Permanent)
    return mechanism


class Device:
    """The exact chances of what a device of one row sends, whatever its history.

    Parameters
    ----------
    mechanism
        Its mechanism.
    row
        As drawn; it is in each report.
    """

    def __init__(self, mechanism: Permanent, row: int) -> None:
        self.mechanism, self.row = mechanism, row
        self.first: dict[int, dict[bytes, Fraction]] = {}
        self.second: dict[bytes, dict[bytes, Fraction]] = {}
        self.parts: dict[tuple[int, tuple[bytes, ...]], Fraction] = {}

    def pattern(self, history: tuple[int, ...]) -> tuple[int, ...]:
        """Return which response each report is made from, by numbers given in the order of first use."""
        keys = [self.mechanism.response_key(self.row, value) for value in history]
        return tuple(list(dict.fromkeys(keys)).index(key) for key in keys)

    def permanent(self, value: int) -> dict[bytes, Fraction]:
        """Return the distribution of the response that is kept for a value."""
        mechanism = self.mechanism
        if value not in self.first:
            self.first[value] = distribution(
                lambda tape: mechanism.layout.pack(self.row, mechanism.respond_permanently(self.row, value, tape))
            )
        return self.first[value]

    def copies(self, response: bytes) -> dict[bytes, Fraction]:
        """Return the distribution of a report from a response."""
        content = self.mechanism.layout.unpack(response)[1]
        if response not in self.second:
            self.second[response] = distribution(lambda tape: self.mechanism.respond_instantly(self.row, content, tape))
        return self.second[response]

    def chance(self, history: tuple[int, ...], reports: tuple[bytes, ...]) -> Fraction:
        """Return the probability of exactly these reports."""
        seen: dict[int, list[bytes]] = defaultdict(list)
        holders = {}
        for value, report in zip(history, reports, strict=True):
            key = self.mechanism.response_key(self.row, value)
            seen[key].append(report)
            holders.setdefault(key, value)
        product_ = Fraction(1)
        for key, own_reports in seen.items():
            product_ *= self.part(holders[key], tuple(sorted(own_reports)))
        return product_

    def part(self, value: int, reports: tuple[bytes, ...]) -> Fraction:
        """Return the probability of these reports, in any one order, from the response that is kept for a value."""
        chance = self.parts.get((value, reports))
        if chance is None:
            chance = Fraction(0)
            for response, share in self.permanent(value).items():
                for report in reports:
                    share *= self.copies(response).get(report, Fraction(0))  # noqa: PLW2901
                chance += share
            self.parts[value, reports] = chance
        return chance

    def all_reports(self) -> list[tuple[bytes, ...]]:
        """Return every sequence of reports that is possible for some history."""
        payloads = {
            payload for value in range(self.mechanism.domain_size) for r in self.permanent(value) for payload in self.copies(r)
        }
        return list(product(sorted(payloads), repeat=REPORTS))

    def worst(self, histories: list[tuple[int, ...]]) -> Fraction | None:
        """Return the worst likelihood ratio of some histories; None where what one can send, another cannot."""
        worst = Fraction(1)
        for reports in self.all_reports():
            chances = {self.chance(history, reports) for history in histories}
            if 0 in chances:
                if len(chances) > 1:
                    return None
                continue
            worst = max(worst, max(chances) / min(chances))
        return worst


def devices(mechanism: Permanent) -> list[Device]:
    return [Device(mechanism, row) for row in range(mechanism.layout.rows)]


def histories(device: Device) -> list[list[tuple[int, ...]]]:
    """Return all histories of some reports, those of one pattern together."""
    every = sorted(product(range(device.mechanism.domain_size), repeat=REPORTS), key=device.pattern)
    return [list(group) for _, group in groupby(every, key=device.pattern)]


@pytest.mark.parametrize(("name", "d", "options"), CASES)
def test_what_kept_responses_bound(name, d, options):
    """Histories that use the same response at the same times: at most so many times epsilon_permanent as they use responses."""
    mechanism = make(name, d, **options)
    for device in devices(mechanism):
        for group in histories(device):
            responses = 1 + max(device.pattern(group[0]))
            ratio = device.worst(group)
            assert ratio is not None
            assert ratio <= mechanism.permanent_ratio**responses


def test_the_bound_is_reached():
    """Where a report is the response itself, each response tells all of epsilon_permanent: no smaller bound would do."""
    mechanism = make("l_grr", 3, permanent=1)
    (device,) = devices(mechanism)
    ratios = {device.pattern(group[0]): device.worst(group) for group in histories(device)}
    assert ratios == {pattern: mechanism.permanent_ratio ** (1 + max(pattern)) for pattern in ratios}
    assert set(ratios) == {(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 1, 2)}


@pytest.mark.parametrize(
    ("name", "d", "options"),
    [("l_grr", 3, {"permanent": 1}), ("l_osue", 3, {"permanent": 1}), ("rappor", 3, {"permanent": 1}), ("dbitflip", 3, {})],
)
def test_a_return_to_an_earlier_answer_shows(name, d, options):
    """Of histories that change at the same times, one that returns and one that does not are told apart without a bound."""
    (device,) = devices(make(name, d, **options))
    assert device.worst([(0, 1, 0), (0, 1, 2)]) is None
    assert device.worst([(0, 0, 0), (0, 0, 1)]) is None, "so does a change"


@pytest.mark.parametrize(("name", "d", "options"), [("loloha", 4, {"permanent": 1}), ("dbitflip", 4, {"buckets": 1})])
def test_a_change_from_cell_to_cell_shows(name, d, options):
    """A change within a cell, or among the values outside the buckets, is none; against one that leaves it there is no bound."""
    mechanism = make(name, d, **options)
    changes = 0
    for device in devices(mechanism):
        cells = defaultdict(list)
        for value in range(d):
            cells[mechanism.response_key(device.row, value)].append(value)
        for cell, others in product(cells.values(), repeat=2):
            if len(cell) > 1 and others is not cell:
                first, second = cell[:2]
                assert device.worst([(first, second, first), (first, first, first)]) == 1
                assert device.worst([(first, second, first), (first, others[0], first)]) is None
                changes += 1
    assert changes


def test_fresh_noise_does_not_hide_a_return():
    """With noise in the second step twelve reports that change each time tell 11.2 nats, where three responses come to 6."""
    mechanism = make("l_grr", 3, permanent=2)
    (device,) = devices(mechanism)
    sent = tuple(bytes([answer]) for answer in (0, 1, 2)) * 4
    ratio = device.chance((0, 1, 2) * 4, sent) / device.chance((0, 1) * 6, sent)
    assert log(ratio) == pytest.approx(11.2, abs=0.05)
    assert ratio > mechanism.permanent_ratio**3
    assert log(mechanism.permanent_ratio**3) == pytest.approx(6, abs=1e-8)
    again = device.chance((0, 1, 2) * 4, sent) / device.chance((1, 2, 0) * 4, sent)
    assert 1 < again <= mechanism.permanent_ratio**3, "but of histories that return at the same times"
