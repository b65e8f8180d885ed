"""Texts as numbers, so that a mechanism for a large domain takes strings.

A text is padded with zero bytes to the metric's longest text, and its UTF-8 bytes are read as a number. So texts of up to L bytes
are a domain of 256^L values. A prefix of a text is a prefix of its number. Other modules only see numbers.
"""

from __future__ import annotations

from pathlib import Path

from deniable.errors import ParameterError

MAX_LENGTH = 256
"""Bytes of UTF-8 of the longest text that a metric may allow."""

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # Unicode categories: control, format and direction, surrogates, line ends
_JOINERS = "\u200c\u200d"  # Persian and Hindi words need them, and so do many emoji


def domain_size(length: int) -> int:
    """Return the number of values of texts of up to `length` bytes."""
    return 1 << 8 * length


def fit(
    text: str,  # Any text. An object of a subclass is read as the plain text that it holds.
    length: int,  # bytes of the longest text
) -> str:
    """Return the text that a device reports for a text. `encode` takes every such text."""
    # It is cut after the last whole character that fits. Characters that UTF-8 or the padding cannot hold become `"?"`.
    start = str.__getitem__(text, slice(length))  # first of all, so that what is cut off costs no time
    return _bytes(start)[:length].decode(errors="ignore")


def is_longer(
    text: str,  # as for `fit`
    length: int,
) -> bool:
    """Return whether `fit` cuts a text."""
    return len(_bytes(str.__getitem__(text, slice(length + 1)))) > length


def _bytes(text: str) -> bytes:
    return text.replace("\0", "?").encode(errors="replace")


def encode(
    text: str,  # a text without U+0000
    length: int,  # bytes of the longest text
) -> int:
    """Write a text as a number in [0, 256**length), 0 if empty; raise `ParameterError` if it is too long or not UTF-8."""
    # The message does not repeat the text, which may be an answer.
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = b"\0"
    if len(data) > length or 0 in data:
        raise ParameterError(f"a text must have at most {length} bytes of UTF-8, none of them zero, and no lone surrogates", ...)
    return int.from_bytes(data.ljust(length, b"\0"), "big")


def lines(path: str | Path) -> list[str]:
    """Read a file with one text on each line, with or without a byte order mark; raise `UnicodeDecodeError` if not UTF-8."""
    # `str.splitlines` would also split at characters that a text may have.
    content = Path(path).read_text("utf-8-sig").removesuffix("\n")
    return content.split("\n") if content else []


def decode(value: int, length: int) -> str:
    """Return the text of a number; raise `ParameterError` if the number stands for no text."""
    data = value.to_bytes(length, "big").rstrip(b"\0")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ParameterError("a number that stands for a text must hold UTF-8, padded with zero bytes", ...)
    return text


def unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Say why a file cannot be read, and what to do."""
    if isinstance(error, UnicodeDecodeError):
        line = error.object[: error.start].count(b"\n") + 1
        return f"line {line} has bytes that are not UTF-8; save the file as UTF-8"
    if isinstance(error, IsADirectoryError):
        return "it is a folder; name a file"
    return error.strerror or str(error)


def visible(
    text: str,  # any text
    *,
    keep: str = "",  # characters that stay as they are
) -> str:
    r"""Escape control and direction characters as in JSON, e.g. ``\u202e``, so that people see all of a text."""
    # Joiners stay between two characters that are not ASCII. A text without such characters does not change. JSON stays JSON of
    # the same values.
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep or not _is_unseen(text, place) else _escaped(char)
        for place, char in enumerate(text)
    )


def _is_unseen(text: str, place: int) -> bool:
    from unicodedata import category  # noqa: PLC0415 - apps import this module, and few call this

    around = text[max(0, place - 1) : place] + text[place + 1 : place + 2]
    joins = text[place] in _JOINERS and len(around) == 2 and not any(map(str.isascii, around))  # noqa: PLR2004
    return not joins and category(text[place]) in _UNSEEN


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
