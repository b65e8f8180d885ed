"""Texts as numbers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable.errors import ParameterError
from deniable.registry import text

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)


@given(TEXTS, st.integers(80, 256))
def test_a_text_is_read_back(written, length):
    """Every text of a domain is the number of one place, and no other."""
    number = text.encode(written, length)
    assert 0 <= number < text.domain_size(length)
    assert text.decode(number, length) == written


@given(TEXTS, TEXTS)
def test_a_prefix_of_a_text_is_a_prefix_of_its_number(start, end):
    """The highest bits are the first bytes."""
    long, short = text.encode(start + end, 160), start.encode()
    assert long >> 8 * (160 - len(short)) == int.from_bytes(short, "big")


@pytest.mark.parametrize("bad", ["a" * 9, "\0", "a\0", "\ud800"])
def test_texts_that_cannot_be_written(bad):
    """What is no text of the domain is refused without being repeated, not even its length."""
    with pytest.raises(ParameterError, match="a text must have at most 8 bytes of UTF-8"):
        text.encode(bad, 8)


@pytest.mark.parametrize("number", [0xFF << 56, 0x61006200 << 32])
def test_numbers_that_write_no_text(number):
    """A number that no text has is refused."""
    with pytest.raises(ParameterError, match="must hold UTF-8, padded with zero bytes"):
        text.decode(number, 8)


@given(st.text(st.characters()), st.integers(1, 24))
def test_any_text_fits(written, length):
    """Whatever a text is, something of it can be written: its beginning, to the last whole character that fits."""
    fitted = text.fit(written, length)
    assert text.decode(text.encode(fitted, length), length) == fitted
    assert text.fit(fitted, length) == fitted
    if "\0" not in written and not any("\ud800" <= each <= "\udfff" for each in written):
        assert written.startswith(fitted)
        cut = written[: len(fitted) + 1]
        assert fitted == written or len(cut.encode()) > length


def test_a_subclass_of_text_is_read_as_text():
    """What a host's own class makes of its methods does not matter."""

    class Loud(str):
        __slots__ = ()

        def encode(self, *_):
            raise RuntimeError

        def __getitem__(self, _):
            raise RuntimeError

    assert text.fit(Loud("words"), 3) == "wor"


def test_the_empty_text():
    """It is a text like any other, and the first of all."""
    assert (text.encode("", 8), text.decode(0, 8), text.fit("", 8)) == (0, "", "")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("plain größer 例え", "plain größer 例え"),
        ("a\x00b\x1b[31m\x7f\x9b", r"a\u0000b\u001b[31m\u007f\u009b"),
        ("\u202egpj.exe\u2066\u200e\u061c", r"\u202egpj.exe\u2066\u200e\u061c"),
        ("line\nand\ttab\u2028", r"line\u000aand\u0009tab\u2028"),
        ("\ud800\ufeff\U000e0041", r"\ud800\ufeff\udb40\udc41"),
        ("zero\u200bwidth da\u200drk", r"zero\u200bwidth da\u200drk"),
        ("می\u200cخواهم 👩\u200d🚀", "می\u200cخواهم 👩\u200d🚀"),  # noqa: RUF001 - these need their joiners
        ("\u200cخ\u200d", r"\u200cخ\u200d"),
        ("1\u00a0000\u202f€", "1\u00a0000\u202f€"),  # blanks that do not break
    ],
)
def test_what_steers_is_shown(written, words):
    """Control and direction characters are written out; letters, signs, blanks and the joiners within words stay."""
    assert text.visible(written) == words


@given(TEXTS)
def test_what_is_shown_can_be_read_as_json(written):
    """Nothing but such characters changes, each to what JSON writes for it."""
    assert json.loads(text.visible(json.dumps(written, ensure_ascii=False))) == written
