"""Every report is one payload of one layout, and what no device could have sent is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable.errors import ParameterError, PayloadError
from deniable.wire.layout import MAX_CELLS, Layout

layouts = st.one_of(
    st.builds(Layout, st.integers(1, 700), st.integers(2, 700), st.just("index")),
    st.builds(Layout, st.integers(1, 700), st.integers(1, 700), st.just("bits")),
)


def content_of(layout: Layout) -> st.SearchStrategy[int]:
    return st.integers(0, layout.width - 1 if layout.kind == "index" else (1 << layout.width) - 1)


@given(layout=layouts, data=st.data())
def test_pack_and_unpack(layout, data):
    """What is packed is unpacked, and its size is the layout's."""
    row, content = data.draw(st.integers(0, layout.rows - 1)), data.draw(content_of(layout))
    payload = layout.pack(row, content)
    assert len(payload) == layout.payload_size
    assert layout.unpack(payload) == (row, content)


@given(layout=layouts, data=st.data())
def test_bytes_are_refused_or_packed_again(layout, data):
    """Any bytes either are the only encoding of a report or are refused with a code."""
    payload = data.draw(st.binary(min_size=layout.payload_size, max_size=layout.payload_size))
    try:
        row, content = layout.unpack(payload)
    except PayloadError as error:
        code = error.code
    else:
        assert layout.pack(row, content) == payload
        return
    assert code in {"row_range", "index_range", "padding_bits"}


@given(layout=layouts, payload=st.binary(max_size=100))
def test_only_one_length(layout, payload):
    """A payload of another length is refused whatever it holds."""
    if len(payload) != layout.payload_size:
        with pytest.raises(PayloadError) as caught:
            layout.unpack(payload)
        assert caught.value.code == "payload_length"


@given(layout=layouts)
def test_no_shorter_payload_would_do(layout):
    """The size is the least that tells all reports of the kind apart."""
    if layout.kind == "index":
        assert 256 ** (layout.payload_size - 1) < layout.rows * layout.width <= 256**layout.payload_size
    else:
        assert 8 * (layout.payload_size - layout.row_size) - layout.width in range(8)
        assert layout.rows <= 256**layout.row_size
        assert layout.row_size == 0 or layout.rows > 256 ** (layout.row_size - 1)


@pytest.mark.parametrize(
    ("layout", "payload", "code"),
    [
        (Layout(1, 3, "index"), b"\x03", "index_range"),
        (Layout(2, 3, "index"), b"\x06", "index_range"),
        (Layout(1, 3, "index"), b"", "payload_length"),
        (Layout(1, 3, "bits"), b"\x08", "padding_bits"),
        (Layout(1, 3, "bits"), b"\x07\x00", "payload_length"),
        (Layout(3, 8, "bits"), b"\x03\xff", "row_range"),
        (Layout(3, 4, "bits"), b"\x03\xff", "row_range"),
    ],
)
def test_refusals(layout, payload, code):
    """Each refusal has its code."""
    with pytest.raises(PayloadError) as caught:
        layout.unpack(payload)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("rows", "width", "kind", "rule", "value"),
    [
        (0, 2, "index", "rows = 0: write 1 or more", 0),
        (-1, 2, "bits", "rows = -1: write 1 or more", -1),
        (1, 1, "index", "width = 1: write 2 or more for indices, 1 or more for bits", 1),
        (1, 0, "bits", "width = 0: write 2 or more for indices, 1 or more for bits", 0),
        (1, 2, "sketch", "kind = 'sketch': write 'index' or 'bits'", "sketch"),
        (2, MAX_CELLS // 2 + 1, "bits", f"2 rows of {MAX_CELLS // 2 + 1} are too many: use 4194304 cells at most", ...),
    ],
)
def test_dimensions_out_of_range(rows, width, kind, rule, value):
    """A layout that breaks a rule is refused with the rule and the value."""
    with pytest.raises(ParameterError, match=rule) as caught:
        Layout(rows, width, kind)
    assert caught.value.value == value


def test_the_largest_tally_is_allowed():
    """The limit itself is within the limit."""
    assert Layout(2, MAX_CELLS // 2, "index").payload_size == 3


def test_bits_are_little_endian():
    """Bit i is bit i % 8 of byte i // 8, after the row."""
    layout = Layout(300, 12, "bits")
    for i in range(12):
        payload = layout.pack(258, 1 << i)
        assert payload[:2] == b"\x02\x01"
        assert payload[2 + i // 8] == 1 << i % 8


def test_derived_sizes_are_no_part_of_equality():
    """Layouts are equal when rows, width and kind are."""
    assert Layout(1, 9, "bits") == Layout(1, 9, "bits") != Layout(1, 9, "index")
    assert len({Layout(1, 9, "bits"), Layout(1, 9, "bits")}) == 1
