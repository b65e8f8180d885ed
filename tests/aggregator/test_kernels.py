"""Both backends count what a plain loop counts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from deniable.wire.layout import Layout
from deniable_aggregator.tally import kernels

BACKENDS = ["numba", "numpy"]


@pytest.fixture(params=BACKENDS)
def backend(request):
    if request.param == "numba":
        pytest.importorskip("numba")
    return request.param


def histogram(backend, payloads, size, cells):
    getattr(kernels, f"_histogram_{backend}")(payloads, size, cells)


def popcount(backend, payloads, layout, cells, reports):
    count = getattr(kernels, f"_popcount_{backend}")
    count(payloads, layout.row_size, layout.payload_size, layout.width, cells, reports)


def draw(layout, number, *, skewed=False):
    """Random reports: their payloads, rows and bits of shape (number, width)."""
    rng = np.random.default_rng([layout.rows, layout.width, number])
    rows = rng.integers(0, layout.rows, number)
    if skewed:  # all but a few reports are of the last row
        rows = np.where(rng.random(number) < 0.01, rows, layout.rows - 1)
    bits = rng.random((number, layout.width)) < rng.random(layout.width)
    heads = (rows[:, None] >> (8 * np.arange(layout.row_size)) & 255).astype(np.uint8)
    payloads = np.concatenate([heads, np.packbits(bits, axis=1, bitorder="little")], axis=1)
    return payloads.reshape(-1), rows, bits


def miscounted(backend, layout, number, *, skewed=False):
    """Tell whether some reports are counted wrongly."""
    payloads, rows, bits = draw(layout, number, skewed=skewed)
    assert len(payloads) == number * layout.payload_size
    cells = np.arange(layout.rows * layout.width).reshape(layout.rows, layout.width)  # counts are added to what is there
    reports = np.arange(layout.rows)
    expected = cells.copy()
    expected += np.bincount((rows[:, None] * layout.width + np.arange(layout.width))[bits], minlength=cells.size).reshape(
        cells.shape
    )
    expected_reports = reports + np.bincount(rows, minlength=layout.rows)
    popcount(backend, payloads, layout, cells, reports)
    return not (np.array_equal(cells, expected) and np.array_equal(reports, expected_reports))


def test_bits_of_one_row(backend):
    """Bits of one row are counted by position, whatever the width and the number of reports."""
    cases = product([1, 7, 8, 9, 64, 105, 128], [0, 1, 15, 16, 17, 255, 256, 1000, 4099])
    assert [each for each in cases if miscounted(backend, Layout(1, each[0], "bits"), each[1])] == []


@pytest.mark.parametrize(("rows", "number"), [(1, 777), (3, 3 * 512 + 5)])
def test_bits_of_every_width(backend, rows, number):
    """No width is miscounted where a report does not end with a word or a byte."""
    assert [width for width in range(1, 131) if miscounted(backend, Layout(rows, width, "bits"), number)] == []


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("width", [1000, 1024, 2041, 2048, 2049, 2112, 2113, 4096, 5001])
def test_bits_that_take_several_passes(backend, rows, width):
    """Reports wider than one pass of the adder are counted whole."""
    assert [number for number in (1, 16, 50, 123) if miscounted(backend, Layout(rows, width, "bits"), number)] == []


@pytest.mark.parametrize(("rows", "width"), [(2, 1), (2, 16), (5, 64), (16, 105), (32, 128), (7, 200), (300, 20)])
def test_bits_of_many_rows(backend, rows, width):
    """Each report is counted in its own row, in small batches and large ones."""
    layout, cases = Layout(rows, width, "bits"), product([0, 1, 2, 511, 1500, 20_001], [False, True])
    assert [each for each in cases if miscounted(backend, layout, each[0], skewed=each[1])] == []


@pytest.mark.parametrize(("rows", "width"), [(256, 256), (257, 192), (1022, 1021), (1024, 1024)])
def test_bits_of_many_wide_rows(backend, rows, width):
    """Sketch rows are counted where most rows have a report or none, and where all have several."""
    assert [number for number in (1, 7, rows, 3 * rows) if miscounted(backend, Layout(rows, width, "bits"), number)] == []


def any_case(seed):
    """Draw a layout, a number of reports, and whether one row takes most of them."""
    rng = np.random.default_rng(seed)
    rows, width = int(2 ** rng.uniform(0, 10)), int(2 ** rng.uniform(0, 9))
    number = int(rng.choice([0, 1, 2, 254, 255, 256, 509, 510, 511, 765, 1021])) + int(rng.choice([0, rng.integers(2000)]))
    return Layout(rows, width, "bits"), number, seed % 2 == 0


def test_bits_of_any_layout(backend):
    """No combination of rows, width and reports is miscounted, whatever share of the reports one row takes."""
    cases = map(any_case, range(60))
    assert [each for each in cases if miscounted(backend, each[0], each[1], skewed=each[2])] == []


@pytest.mark.parametrize("number", [254, 255, 256, 509, 510, 511, 765, 766])
@pytest.mark.parametrize("width", [8, 64, 65, 128, 129, 1000])
def test_a_bit_of_a_row_set_by_as_many_reports_as_a_byte_counts(backend, width, number):
    """Counters of a byte are emptied before they overflow, and the rows beside them are left alone."""
    layout = Layout(4, width, "bits")
    payloads = np.frombuffer(layout.pack(2, (1 << width) - 1) * number, np.uint8)
    cells, reports = np.zeros((4, width), np.int64), np.zeros(4, np.int64)
    popcount(backend, payloads, layout, cells, reports)
    np.testing.assert_array_equal(cells, np.array([[0], [0], [number], [0]]) * np.ones(width))
    assert reports.tolist() == [0, 0, number, 0]


def test_bits_of_more_rows_than_there_is_memory_for_counters(monkeypatch):
    """Where counters of a byte would take more memory than they are given, the same is counted without them."""
    pytest.importorskip("numba")
    monkeypatch.setattr(kernels, "_COUNTERS", 64 * 4)
    assert not miscounted("numba", Layout(4, 64, "bits"), 1000)
    assert not miscounted("numba", Layout(4, 65, "bits"), 1000)
    assert not miscounted("numba", Layout(5, 3, "bits"), 1000)
    assert not miscounted("numba", Layout(1, 3, "bits"), 1000)


def test_bits_of_rows_that_take_three_bytes(backend):
    """Row numbers of several bytes are read whole."""
    assert not miscounted(backend, Layout(70_000, 3, "bits"), 1000)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("number", [65_535, 65_536, 70_001, 300_000])
def test_bits_set_by_all_of_many_reports(backend, rows, number):
    """A bit that every report sets is counted exactly at and around the powers of two."""
    layout = Layout(rows, 11, "bits")
    payloads = np.frombuffer(layout.pack(rows - 1, 0b101_1111_1111) * number, np.uint8)
    cells, reports = np.zeros((rows, 11), np.int64), np.zeros(rows, np.int64)
    popcount(backend, payloads, layout, cells, reports)
    assert cells[-1].tolist() == [number] * 9 + [0, number]
    assert reports[-1] == number
    assert cells[:-1].sum() == reports[:-1].sum() == 0


@pytest.mark.parametrize("number", [4079, 4080, 4081, 4095, 4096, 4097, 8160, 8161, 16**4 + 16**2 + 5])
def test_as_many_lines_as_the_planes_count(backend, number):
    """A line holds one report of this width: its count is read out before the planes overflow, and then goes on."""
    layout = Layout(1, 8 * 130, "bits")
    payloads = np.broadcast_to(np.frombuffer(layout.pack(0, 1 | 1 << 1039), np.uint8), (number, 130)).reshape(-1)
    cells, reports = np.zeros((1, 1040), np.int64), np.zeros(1, np.int64)
    popcount(backend, payloads, layout, cells, reports)
    assert (cells[0, 0], cells[0, -1], cells.sum(), reports[0]) == (number, number, 2 * number, number)


@pytest.mark.parametrize("number", [0, 1, 2, 3, 100, 70_001])
@pytest.mark.parametrize(
    ("size", "cells"), [(1, 2), (1, 256), (2, 257), (2, 1024), (2, 65_536), (3, 65_537), (3, 280_000), (4, 1 << 22), (4, 9)]
)
def test_indices(backend, size, cells, number):
    """Indices of every size are counted, and added to what was there."""
    numbers = np.random.default_rng(number).integers(0, cells, number)
    numbers[: number // 3] = cells - 1
    payloads = np.frombuffer(b"".join(int(index).to_bytes(size, "little") for index in numbers), np.uint8)
    counts = np.arange(cells)
    expected = counts + np.bincount(numbers, minlength=cells)
    histogram(backend, payloads, size, counts)
    np.testing.assert_array_equal(counts, expected)


def test_indices_of_more_than_a_chunk(backend, monkeypatch):
    """The fallback counts across the borders of its chunks."""
    monkeypatch.setattr(kernels, "_CHUNK", 1000)
    counts = np.zeros(300, np.int64)
    histogram(backend, np.tile(np.arange(300, dtype="<u2"), 100).view(np.uint8), 2, counts)
    assert counts.tolist() == [100] * 300


def test_payloads_may_begin_anywhere_in_a_message(backend):
    """Payloads need not be aligned in memory."""
    message = np.frombuffer(b"#" + bytes([1, 0, 2, 1]) * 600, np.uint8)[1:]
    counts = np.zeros(300, np.int64)
    histogram(backend, message, 2, counts)
    assert (counts[1], counts[258]) == (600, 600)
    payloads, rows, bits = draw(layout := Layout(3, 9, "bits"), 5000)
    cells, reports = np.zeros((3, 9), np.int64), np.zeros(3, np.int64)
    popcount(backend, np.concatenate([payloads[:1], payloads])[1:], layout, cells, reports)
    np.testing.assert_array_equal(cells.sum(axis=0), bits.sum(axis=0))
    np.testing.assert_array_equal(reports, np.bincount(rows))


def test_payloads_and_what_surrounds_the_cells_are_left_alone(backend):
    """Counting writes to its own cells and to nothing else."""
    payloads, *_ = draw(layout := Layout(2, 13, "bits"), 5000)
    before = payloads.copy()
    surrounding = np.zeros((4, 13), np.int64)
    popcount(backend, payloads, layout, surrounding[1:3], np.zeros(2, np.int64))
    assert not surrounding[[0, 3]].any()
    np.testing.assert_array_equal(payloads, before)
    assert payloads.flags.writeable


def test_the_backend_in_use_counts():
    """The public functions count with whichever backend is in use."""
    assert kernels.backend() in BACKENDS
    cells, reports = np.zeros((1, 2), np.int64), np.zeros(1, np.int64)
    kernels.popcount(np.array([1, 3], np.uint8), 0, 1, 2, cells, reports)
    assert (cells.tolist(), reports.tolist()) == ([[2, 1]], [2])
    counts = np.zeros(4, np.int64)
    kernels.histogram(np.array([1, 3], np.uint8), 1, counts)
    assert counts.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("number", [0, 1, 2, 3, 70_001])
@pytest.mark.parametrize("cells", [2, 7, 32])
@pytest.mark.parametrize("begin", [0, 1])
def test_indices_counted_in_pairs(monkeypatch, number, cells, begin):
    """Few cells of many reports are counted two reports at a time, with the same counts, odd numbers and all."""
    pytest.importorskip("numba")
    monkeypatch.setattr(kernels, "_WORTH_PAIRING", 0)
    payloads = np.random.default_rng(number).integers(0, cells, number + begin).astype(np.uint8)[begin:]
    counted = np.arange(cells, dtype=np.int64)
    kernels._histogram_numba(payloads, 1, counted)
    assert np.array_equal(counted, np.arange(cells) + np.bincount(payloads, minlength=cells))


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_numbers_of_any_length_are_widened(size):
    """Numbers that lie end to end, or are the beginnings of longer rows, keep their values."""
    numbers = np.random.default_rng(9).integers(0, 256, (50, size), np.uint8)
    rows = np.hstack([numbers, numbers])
    values = [int.from_bytes(row.tobytes(), "little") for row in numbers]
    assert kernels.widen(numbers).tolist() == kernels.widen(rows[:, :size]).tolist() == values
