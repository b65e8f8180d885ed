"""Texts as numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable import text
from deniable.errors import ParameterError

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)


@given(TEXTS, st.integers(80, 256))
def test_a_text_is_read_back(written, length):
    """Every text of a domain is the number of one place, and no other."""
    number = text.encode(written, length)
    assert 0 <= number < text.domain_size(length)
    assert text.decode(number, length) == written


@given(TEXTS, TEXTS)
def test_a_prefix_of_a_text_is_a_prefix_of_its_number(start, rest):
    """The highest bits are the first bytes."""
    long, short = text.encode(start + rest, 160), start.encode()
    assert long >> 8 * (160 - len(short)) == int.from_bytes(short, "big")


@pytest.mark.parametrize("bad", ["", "a" * 9, "\0", "a\0", "\ud800"])
def test_texts_that_cannot_be_written(bad):
    """What is no text of the domain is refused without being repeated, not even its length."""
    with pytest.raises(ParameterError, match="a text has 1 to 8 bytes") as caught:
        text.encode(bad, 8)
    assert caught.value.value == "str"


@pytest.mark.parametrize("number", [0, 0xFF << 56, 0x61006200 << 32])
def test_numbers_that_write_no_text(number):
    """A number that no text has is refused."""
    with pytest.raises(ParameterError, match="holds UTF-8"):
        text.decode(number, 8)
