"""Files of reports of other collectors: the columns of each variable, one device to a line."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ParameterError
from deniable_aggregator.decode.tables.likelihood import pack

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class BitColumn:
    """The columns of a file of reports that belong to one variable."""

    # Heading of the column with the report's bits: `width` digits 0 or 1, the highest bit first, so bit 0 is the last digit. Or
    # `0x` and hexadecimal digits of the same number. Of width 1 also `false` and `true`.
    bits: str
    width: int  # bits of a report, at least 1
    cohort: str | None = None  # heading of the column with the cohort, a whole number; None if there is one cohort
    cohorts: int = 1  # number of cohorts

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ParameterError("width: write 1 or more, the bits of a report", self.width)
        if self.cohorts < 1 or (self.cohort is None and self.cohorts > 1):
            raise ParameterError("cohorts: write 1 or more, and where there are more name the column of the cohort", self.cohorts)

    def number(self, text: str) -> int:
        """Read the bits of a report as an integer, bit i being bit i."""
        if len(text) == self.width and not text.strip("01"):
            return int(text, 2)
        if self.width == 1 and text.lower() in ("false", "true"):
            return int(text.lower() == "true")
        try:
            number = int(text, 16) if text[:2].lower() == "0x" and "_" not in text else -1
        except ValueError:
            number = -1
        if not 0 <= number < 1 << self.width:
            digits = f"{self.bits}: write {self.width} digits 0 or 1, highest bit first"
            raise ParameterError(f"{digits}, or 0x and a hexadecimal number below 2^{self.width}", text)
        return number

    def place(self, text: str) -> int:
        """Read a cohort."""
        if not (text.isascii() and text.isdigit() and int(text) < self.cohorts):
            raise ParameterError(f"{self.cohort}: write a whole number from 0 to {self.cohorts - 1}", text)
        return int(text)


def read(
    lines: Iterable[str],  # of comma-separated values, the first of which has the headings; a file opened with `newline=""`
    columns: Sequence[BitColumn],  # the variables
) -> list[tuple[NDArray[np.int64], NDArray[np.uint8]]]:
    """Read randomised reports, one device to a line: of each variable cohorts, (n,), and bits, (n, bytes)."""
    table = csv.reader(lines, strict=True)
    headings = [heading.strip() for heading in next(table, [])]
    for column in columns:
        for heading in (column.bits, column.cohort):
            if heading is not None and headings.count(heading) != 1:
                wrong = f"line 1: the headings are {','.join(headings)!r}"
                raise ParameterError(f"{wrong}: write {heading!r} once among them")
    places = [(c, headings.index(c.bits), None if c.cohort is None else headings.index(c.cohort)) for c in columns]
    cohorts: list[list[int]] = [[] for _ in columns]
    bits: list[list[int]] = [[] for _ in columns]
    try:
        for row in table:
            if not row:
                continue
            if len(row) != len(headings):
                wrong = f"the line has {len(row)} fields: write {len(headings)}, as many as headings"
                raise ParameterError(wrong)  # noqa: TRY301 - its line is added below
            for number, (column, at, cohort) in enumerate(places):
                cohorts[number].append(0 if cohort is None else column.place(row[cohort].strip()))
                bits[number].append(column.number(row[at].strip()))
    except ParameterError as error:
        raise ParameterError(f"line {table.line_num}: {error}", ...) from None
    except csv.Error as error:
        raise ParameterError(f"line {table.line_num}: {error}: write comma-separated values", ...) from None
    return [(np.array(where, np.int64), pack(what, c.width)) for where, what, c in zip(cohorts, bits, columns, strict=True)]
