"""What a report is made of: sections of paragraphs, lists and tables. Both templates write the same document."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Block", "Document", "Note", "Points", "Section", "Table", "Text", "ToFill"]


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph.

    Parameters
    ----------
    text
        Plain.
    """

    kind: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """A paragraph that nobody is to overlook.

    Parameters
    ----------
    text
        Plain.
    """

    kind: ClassVar[str] = "note"
    text: str


@dataclass(frozen=True, slots=True)
class Points:
    """A list.

    Parameters
    ----------
    points
        One or more, each with a few words to begin with, maybe none, and the rest.
    """

    kind: ClassVar[str] = "points"
    points: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first cell of a row is its head.

    Parameters
    ----------
    caption
        What it shows, with units.
    heads
        Of the columns.
    rows
        As many cells each.
    numbers
        Columns of numbers, from 0.
    short
        Columns of words that are not to be broken into lines.
    """

    kind: ClassVar[str] = "table"
    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int] = field(default_factory=frozenset)
    short: frozenset[int] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.heads) for row in self.rows), self.caption  # noqa: S101 - rows are made by us alone


@dataclass(frozen=True, slots=True)
class ToFill:
    """A place that the controller has to fill.

    Parameters
    ----------
    asks
        What belongs there.
    """

    kind: ClassVar[str] = "fill"
    asks: str


Block = Text | Note | Points | Table | ToFill


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands under it.

    Parameters
    ----------
    id
        Of the heading, for links.
    title
        The heading.
    blocks
        What stands under it.
    parts
        Sections of the next level.
    """

    id: str
    title: str
    blocks: tuple[Block, ...]
    parts: tuple[Section, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report.

    Parameters
    ----------
    title
        Its own.
    lede
        What it is, in a sentence or two.
    facts
        Where it comes from: names and texts.
    sections
        In their order.
    """

    title: str
    lede: str
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]

    def walk(self) -> Iterator[Section]:
        """Go through all sections and their parts."""
        for section in self.sections:
            yield section
            yield from section.parts
