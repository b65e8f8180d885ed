"""Texts that look alike to people, although a program counts them apart.

Two texts are alike if they become equal in two steps. First, case, white space and invisible characters are removed (NFKC and
case folding). Then letters and digits are replaced by the Latin letters that look like them. The table is small: it finds
mistakes, not attacks.

References
----------
Unicode Technical Standard 39, Unicode Security Mechanisms, section 4: confusable detection.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from unicodedata import category, normalize

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_DRAWN_LIKE = (
    # Cyrillic
    ("\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u04bb\u0501\u051b\u051d\u04cf\u0475", "aeopcyxijshdqwlv"),
    ("\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u0406\u0408\u0405\u04c0", "ABEKMHOPCTYXIJSI"),
    # Greek
    ("\u03b1\u03b3\u03b9\u03ba\u03bd\u03bf\u03c1\u03c5\u03c7\u03c9\u03f3", "ayikvopuxwj"),
    ("\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7", "ABEZHIKMNOPTYX"),
    # Latin: without a dot, of phonetics, a click
    ("\u0131\u0251\u0261\u01c0", "iagl"),
    ("01|", "oll"),
)
_TABLE = {ord(other): latin for others, latins in _DRAWN_LIKE for other, latin in zip(others, latins, strict=True)}
_UNSEEN = frozenset(map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10))))
"""Invisible characters that Unicode counts among letters and marks. Others are known by their category."""
_LETTERS_A_SLIP = 4  # of so many letters one may be mistyped
_LEAST_LETTERS = 3  # of a text that may have a slip
_PARTS = re.compile(r"[^\W_]+")
_LONGEST = 100  # characters that are looked at of a text that is not known
_VARIATIONS = range(0xE0100, 0xE01F0)


def alike(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Find texts that look like an earlier one; yield the earlier text and the later one."""
    seen: dict[str, str] = {}
    for text in texts:
        forms = _forms(text)
        earlier = next((seen[form] for form in forms if form in seen), None)
        if earlier is not None:
            yield earlier, text
        for form in forms:
            seen.setdefault(form, text)


def nearest(text: object, known: Iterable[str]) -> str | None:
    """Return the known text that a mistaken one is most like; None if none is like it."""
    if type(text) is not str:
        return None
    mistaken, texts = text[:_LONGEST], list(known)
    looks = (earlier for earlier, later in alike([*texts, mistaken]) if later == mistaken)
    if look := next(looks, None):
        return look
    slips = [
        (number, at) for at, each in enumerate(texts) if (number := _slips(mistaken.casefold(), each.casefold())) is not None
    ]
    if slips:
        return texts[min(slips)[1]]
    return next((each for each in texts if mistaken in _PARTS.findall(each)), None)  # such as "month" of "per_month"


def did_you_mean(text: object, known: Iterable[str]) -> str:
    """Ask for the known text that a mistaken one is most like; empty if none is like it."""
    near = nearest(text, known)
    return f"; did you mean {near!r}?" if near else ""


def spelt(text: str) -> str:
    """Write a text in printable ASCII, so that look-alikes differ. Other characters are written as their code points."""
    return "".join(each if " " <= each <= "~" else f"<U+{ord(each):04X}>" for each in text)


def _slips(mistaken: str, known: str) -> int | None:
    """Return how many letters were mistyped, left out, added or swapped; None if it is more than anybody does by mistake."""
    most = max(1, max(len(mistaken), len(known)) // _LETTERS_A_SLIP)
    if max(len(mistaken), len(known)) < _LEAST_LETTERS or abs(len(mistaken) - len(known)) > most:
        return None
    if len(set(mistaken) ^ set(known)) > 2 * most:  # each slip changes two letters at most: most texts end here
        return None
    digits = [[each for each in text if each.isdigit()] for text in (mistaken, known)]
    if all(digits) and digits[0] != digits[1]:  # another number is another thing
        return None
    # The distance of Damerau and Levenshtein, row by row (optimal string alignment).
    before, row = [0], list(range(len(known) + 1))
    for i, letter in enumerate(mistaken, 1):
        after = [i]
        for j, other in enumerate(known, 1):
            cost = min(row[j] + 1, after[j - 1] + 1, row[j - 1] + (letter != other))
            if min(i, j) > 1 and letter == known[j - 2] and mistaken[i - 2] == other:
                cost = min(cost, before[j - 2] + 1)
            after.append(cost)
        before, row = row, after
    return row[-1] if row[-1] <= most else None


def _forms(text: str) -> tuple[str, ...]:
    """Return the forms in which a text is compared. A capital I may be read as an l or as an i."""
    normal = normalize("NFKC", text)
    latin = normal.translate(_TABLE)
    return tuple(map(_bare, (normal, latin, latin.replace("I", "l"))))


def _bare(text: str) -> str:
    return "".join(each for each in normalize("NFKC", text.casefold()) if not _unseen(each))


def _unseen(char: str) -> bool:
    return char.isspace() or char in _UNSEEN or ord(char) in _VARIATIONS or category(char) in ("Cc", "Cf")
