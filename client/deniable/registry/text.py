"""Texts as numbers: what lets a mechanism for a large domain take a string.

A text is the number that its UTF-8 bytes write, filled up with zero bytes to the metric's longest text. So texts of up to L bytes
are a domain of 256^L values, a prefix of a text is a prefix of its number, and nothing else in the house has to know of texts.
"""

from __future__ import annotations

from pathlib import Path

from deniable.errors import ParameterError

__all__ = ["MAX_LENGTH", "decode", "domain_size", "encode", "fit", "lines", "visible"]

MAX_LENGTH = 256
"""Longest text that a metric may take, in bytes of UTF-8."""

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # Unicode categories: control, format and direction, surrogates, line ends
_JOINERS = "\u200c\u200d"  # which Persian and Hindi words need, and many emoji


def domain_size(length: int) -> int:
    """Return the number of values of texts of up to `length` bytes."""
    return 1 << 8 * length


def fit(text: str, length: int) -> str:
    """Return the text that a device reports in place of any text: one that `encode` takes.

    It is cut after the last whole character that fits. What UTF-8 or the padding cannot hold becomes ``"?"``.

    Parameters
    ----------
    text
        Any text, however long or empty. A subclass is read as the plain text it holds.
    length
        Bytes of the longest text.
    """
    start = str.__getitem__(text, slice(length))  # before anything else: what is cut off costs no time
    data = start.replace("\0", "?").encode(errors="replace")
    return data[:length].decode(errors="ignore")


def encode(text: str, length: int) -> int:
    """Write a text as a number in [0, 256**length). The empty text is 0.

    Parameters
    ----------
    text
        Without U+0000.
    length
        Bytes of the longest text.

    Raises
    ------
    ParameterError
        If it is too long, or has a character that UTF-8 or the padding cannot hold. The message does not repeat it.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = b"\0"
    if len(data) > length or 0 in data:
        rule = f"a text has at most {length} bytes of UTF-8, none of them zero and no lone surrogates"
        raise ParameterError(rule, type(text).__name__)
    return int.from_bytes(data.ljust(length, b"\0"), "big")


def lines(path: str | Path) -> list[str]:
    """Read a file of texts, one to a line, with or without a byte order mark; none of an empty file.

    Not by `str.splitlines`, which also splits at characters that a text may have.

    Raises
    ------
    OSError, UnicodeDecodeError
        If it is no readable UTF-8.
    """
    content = Path(path).read_text("utf-8-sig").removesuffix("\n")
    return content.split("\n") if content else []


def decode(value: int, length: int) -> str:
    """Read the text back.

    Raises
    ------
    ParameterError
        If the number writes none.
    """
    data = value.to_bytes(length, "big").rstrip(b"\0")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ParameterError("a number that stands for a text holds UTF-8, padded with zero bytes", "another number")
    return text


def visible(text: str, *, keep: str = "") -> str:
    r"""Write a text so that people see all of it: control and direction characters as JSON escapes them, e.g. ``\u202e``.

    Joiners stay between two characters that are not ASCII. Where there is nothing to escape the text is the same; so JSON
    stays JSON of the same values.

    Parameters
    ----------
    text
        Whatever somebody wrote.
    keep
        Characters that stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep or not _is_unseen(text, place) else _escaped(char)
        for place, char in enumerate(text)
    )


def _is_unseen(text: str, place: int) -> bool:
    from unicodedata import category  # noqa: PLC0415 - apps import this module, and few need this

    around = text[max(0, place - 1) : place] + text[place + 1 : place + 2]
    joins = text[place] in _JOINERS and len(around) == 2 and not any(map(str.isascii, around))  # noqa: PLR2004
    return not joins and category(text[place]) in _UNSEEN


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
