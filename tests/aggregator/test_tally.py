"""Tallies: counting, validity and the laws of merging."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable import mechanisms
from deniable.errors import ParameterError, PayloadError
from deniable.wire.layout import Layout
from deniable_aggregator import tally

LAYOUTS = [
    Layout(1, 2, "index"),
    Layout(1, 300, "index"),
    Layout(6859, 19, "index"),
    Layout(1, 1, "bits"),
    Layout(1, 12, "bits"),
    Layout(1, 128, "bits"),
    Layout(8, 32, "bits"),
    Layout(300, 13, "bits"),
]


def plain_count(layout, payloads):
    """Count report by report, from the definition of the layout."""
    counts = np.zeros((layout.rows, layout.width), np.int64)
    reports = np.zeros(layout.rows, np.int64)
    for payload in payloads:
        row, content = layout.unpack(payload)
        reports[row] += 1
        if layout.kind == "index":
            counts[row, content] += 1
        else:
            for bit in range(layout.width):
                counts[row, bit] += content >> bit & 1
    return counts, reports


@st.composite
def reports(draw):
    layout = draw(st.sampled_from(LAYOUTS))
    most = layout.width - 1 if layout.kind == "index" else (1 << layout.width) - 1
    payload = st.builds(layout.pack, st.integers(0, layout.rows - 1), st.integers(0, most))
    return layout, draw(st.lists(payload, max_size=40))


@given(reports())
def test_few_reports_are_counted_by_their_cells(given_reports):
    """The same cells, without those that are 0; where reports are not few beside the cells, nobody is told any."""
    layout, payloads = given_reports
    few = tally.count_few(layout, b"".join(payloads))
    if few is None:
        assert len(payloads) * 64 > layout.rows
        return
    cells, counts = few
    expected = tally.count(layout, b"".join(payloads)).cells
    assert cells.tolist() == np.flatnonzero(expected).tolist()
    assert counts.tolist() == expected[cells].tolist()


def test_few_reports_that_no_device_sent_are_refused():
    """As many are."""
    for layout, payload in ((Layout(6859, 19, "index"), b"\xff" * 3), (Layout(300, 13, "bits"), b"\xff" * 4)):
        with pytest.raises(PayloadError):
            tally.count_few(layout, payload)


@given(reports())
def test_count_equals_the_plain_definition(given_reports):
    """Counting many reports at once gives what counting them one by one gives."""
    layout, payloads = given_reports
    counted = tally.count(layout, b"".join(payloads))
    counts, n = plain_count(layout, payloads)
    assert np.array_equal(counted.counts, counts)
    assert np.array_equal(counted.reports, n)
    assert counted.n == len(payloads)


@given(st.sampled_from([*LAYOUTS, Layout(1, 256, "index"), Layout(1, 70_000, "index"), Layout(256, 8, "bits")]), st.data())
def test_what_is_sifted_out_no_device_could_have_sent(layout, data):
    """Of any bytes those payloads are kept that the layout reads one by one, and the first of the others is the reason."""
    size = layout.payload_size
    high = st.builds(lambda low, top: low + bytes([top]), st.binary(min_size=size - 1, max_size=size - 1), st.integers(0, 9))
    payloads = data.draw(st.lists(st.binary(min_size=size, max_size=size) | high, max_size=20))
    good, reasons = [], []
    for payload in payloads:
        try:
            layout.unpack(payload)
            good.append(payload)
        except PayloadError as error:
            reasons.append(error.code)
    for payload in payloads:
        if all(payload[place] in allowed for place, allowed in tally.valid_bytes(layout)):
            assert payload in good
    accepted, bad, reason = tally.sift(layout, b"".join(payloads))
    assert accepted == b"".join(good)
    assert bad == len(reasons)
    assert (reason.code if reason else None) == (reasons[0] if reasons else None)


@given(reports(), st.data())
def test_merging_is_order_free(given_reports, data):
    """Any split of the reports, merged in any order, gives the tally of all of them."""
    layout, payloads = given_reports
    cut = data.draw(st.integers(0, len(payloads)))
    first = tally.count(layout, b"".join(payloads[:cut]))
    second = tally.count(layout, b"".join(payloads[cut:]))
    total = tally.count(layout, b"".join(data.draw(st.permutations(payloads))))
    assert tally.merge(first, second) == total
    assert tally.merge(second, first) == total
    assert tally.merge(first, tally.empty(layout), second) == total


@given(reports())
def test_cells_round_trip(given_reports):
    """A tally written as one vector of cells is read back, also when trailing zeros were never stored."""
    layout, payloads = given_reports
    counted = tally.count(layout, b"".join(payloads))
    assert tally.from_cells(layout, counted.cells) == counted
    assert tally.from_cells(layout, np.trim_zeros(counted.cells, "b")) == counted


def test_from_cells_refuses_a_longer_vector():
    """Cells of another layout are not squeezed in."""
    with pytest.raises(ParameterError, match="cells of this layout = 3: write 2 at most"):
        tally.from_cells(Layout(1, 2, "index"), np.zeros(3, np.int64))


def test_merge_refuses_another_layout():
    """Reports of different shapes are never added up."""
    with pytest.raises(ParameterError, match="merge tallies of one, here"):
        tally.merge(tally.empty(Layout(1, 2, "index")), tally.empty(Layout(1, 3, "index")))


@pytest.mark.parametrize(
    ("layout", "payloads", "good", "code"),
    [
        (Layout(1, 3, "index"), b"\0\1\3\2", [True, True, False, True], "index_range"),
        (Layout(1, 256, "index"), b"\0\xff", [True, True], None),
        (Layout(3, 100, "index"), b"\x2b\x01\x2c\x01", [True, False], "index_range"),
        (Layout(1, 12, "bits"), b"\xff\x0f\xff\x1f", [True, False], "padding_bits"),
        (Layout(1, 8, "bits"), b"\xff\x00", [True, True], None),
        (Layout(3, 8, "bits"), b"\2\xff\3\xff", [True, False], "row_range"),
    ],
)
def test_validity_is_that_of_the_layout(layout, payloads, good, code):
    """Bulk validation agrees with unpacking each payload, and a bad payload stops the count with its reason."""
    assert tally.valid(layout, payloads).tolist() == good
    if code is None:
        assert tally.count(layout, payloads).n == len(good)
        return
    with pytest.raises(PayloadError) as caught:
        tally.count(layout, payloads)
    assert caught.value.code == code


def test_part_of_a_payload_is_refused():
    """Bytes that are not whole payloads are refused."""
    with pytest.raises(PayloadError) as caught:
        tally.valid(Layout(1, 300, "index"), b"\0\0\0")
    assert caught.value.code == "payload_length"


def test_merging_leaves_its_tallies_as_they_were():
    """A tally is a value: adding makes a new one."""
    layout = Layout(1, 4, "bits")
    first, second = tally.empty(layout), tally.count(layout, b"\x0f")
    assert tally.merge(first, second) == second
    assert first == tally.empty(layout)
    assert tally.merge(second) == second


def test_devices_and_tallies_agree_on_layouts():
    """Whatever a mechanism answers can be counted."""
    for name in mechanisms.names():
        mechanism = mechanisms.make(name, domain_size=2, epsilon=1.2)
        payloads = b"".join(mechanism.randomize(i % 2) for i in range(100))
        assert tally.count(mechanism.layout, payloads).n == 100
