"""What one address may send to a relay: so many uploads in a minute, and so many reports of one pool in a day."""

from __future__ import annotations

import sys

import pytest
from relays import crowd

from deniable.upload_rules import Refused
from deniable_relay.limits import Limits

NOON = 1_800_000_000.0
ONE, OTHER = "192.0.2.1", "192.0.2.2"


def refused(limits, address, now=NOON, reports=()):
    try:
        limits.take(address, now, reports)
    except Refused as refusal:
        return refusal.code
    return ""


def test_uploads_of_a_minute():
    """The next minute is free, and so is another address."""
    limits = Limits(uploads=2, reports=0)
    assert [refused(limits, ONE) for _ in range(3)] == ["", "", "rate_limited"]
    assert refused(limits, OTHER) == ""
    assert refused(limits, ONE, NOON + 60) == ""


def test_reports_of_a_pool():
    """In one upload or in many; of another pool, at another address, or on another day there are as many again."""
    limits = Limits(uploads=0, reports=3)
    assert [refused(limits, ONE, reports=[(crowd(), 2)]) for _ in range(2)] == ["", "pool_share"]
    assert refused(limits, ONE, reports=[(crowd(), 1), (crowd("other"), 3)]) == ""
    assert refused(limits, ONE, reports=[(crowd(), 1)]) == "pool_share"
    assert refused(limits, OTHER, reports=[(crowd(), 3)]) == ""
    assert refused(limits, ONE, NOON + 86_400, [(crowd(), 3)]) == ""


def test_what_is_refused_is_not_counted():
    """An upload that is too large does not use up what is left."""
    limits = Limits(uploads=0, reports=3)
    assert refused(limits, ONE, reports=[(crowd(), 4)]) == "pool_share"
    assert refused(limits, ONE, reports=[(crowd(), 3)]) == ""


@pytest.mark.parametrize(
    ("address", "alike", "other"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", "2001:db8:1:3::1"),
        ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.3"),
        (None, "", "192.0.2.1"),
    ],
)
def test_a_household_is_one_address(address, alike, other):
    """An IPv6 network of 64 bits; and all uploads of a proxy that names no address."""
    limits = Limits(uploads=1, reports=0)
    assert [refused(limits, each) for each in (address, alike, other)] == ["", "rate_limited", ""]


def test_a_segment_is_no_pool_of_its_own():
    """A client may write any text as its segment; what an address may send does not grow by it."""
    limits = Limits(uploads=0, reports=3)
    others = [crowd()._replace(stratum=crowd().stratum._replace(segment=str(number))) for number in range(4)]
    assert [refused(limits, ONE, reports=[(each, 1)]) for each in others] == ["", "", "", "pool_share"]


def test_memory_does_not_grow():
    """However many addresses send however many reports, the tables are as large as at the start."""

    def size():
        return [sys.getsizeof(each) for each in (limits._uploads, limits._reports)]

    limits = Limits(uploads=9, reports=9)
    before = size()
    for number in range(3000):
        refused(limits, f"2001:db8:{number:x}::1", reports=[(crowd(f"m{number}"), 1)])
    assert size() == before
    assert sum(size()) < 20 << 20
    assert not [name for name, each in vars(limits).items() if isinstance(each, dict | set | list)]


def test_who_shares_a_cell_is_counted_together(monkeypatch):
    """Nobody may send more than the limit, also if all cells are full."""
    monkeypatch.setattr("deniable_relay.limits._CELLS", 1)
    limits = Limits(uploads=0, reports=3)
    assert [refused(limits, address, reports=[(crowd(), 2)]) for address in (ONE, OTHER)] == ["", "pool_share"]


def test_no_address_is_in_memory():
    """Sums in cells, which a key names that is drawn anew each day; no digest of an address is kept."""
    limits = Limits(uploads=9, reports=9)
    refused(limits, "203.0.113.77", reports=[(crowd(), 1)])
    content = repr(vars(limits))
    assert "203.0.113.77" not in content
    assert set(limits._uploads) == set(limits._reports) == {0, 1}
    key, place = limits._key, limits._reports.index(1)
    refused(limits, "203.0.113.77", NOON + 86_400, [(crowd(), 1)])
    assert limits._key != key
    assert limits._reports.index(1) != place
