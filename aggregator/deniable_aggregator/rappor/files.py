"""The files of google/rappor: reading and writing of parameters, counts, maps and reports.

``params.csv``
    the header ``k,h,m,p,q,f`` and one row; or the same as JSON (``numBits``, ``numHashes``, ``numCohorts``, ``probIrr0``,
    ``probIrr1``, ``probPrr``);
``counts.csv``
    no header; a row for each cohort: its reports, then how often each bit was set, bit 0 first;
``map.csv``
    no header; a row for each candidate: its text, then its `deniable.mechanisms.texts.google_rappor.positions`;
``reports.csv``
    a header, then a row for each report, its bits as digits, the *highest* first.

All are UTF-8 text. A byte order mark, any line ends and quotes are accepted. Errors are ParameterError, with the file, the line,
the rule and the value.

References
----------
github.com/google/rappor, commit a13fa96: doc/data-flow.md, analysis/R/read_input.R, bin/sum_bits.py, bin/hash_candidates.py.
"""

from __future__ import annotations

import csv
import json
import re
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from deniable.errors import ParameterError, sentence
from deniable.mechanisms.texts.google_rappor import Params, positions
from deniable.messages.plural import plural
from deniable.wire.layout import Layout
from deniable_aggregator import tally

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from os import PathLike

    from numpy.typing import NDArray

_HEADER = ["k", "h", "m", "p", "q", "f"]
_KEYS = ["numBits", "numHashes", "numCohorts", "probIrr0", "probIrr1", "probPrr"]
_NUMBER = re.compile(r"[0-9]{1,60}(\.[0-9]{0,60})?([eE][+-]?[0-9]{1,2})?|\.[0-9]{1,60}", re.ASCII)
_DIGITS = 18  # a number of so many digits is surely below 2^63
_REPORT_COLUMNS = ("irr", "rappor")
_CHUNK = 1 << 16  # reports counted at a time


def load_params(
    path: str | PathLike[str],  # read as JSON if it begins with a brace
) -> Params:
    """Read parameters, from CSV or from JSON."""
    try:
        with opened(path) as file:
            text = file.read()
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    if text.lstrip().startswith("{"):
        return _params(path, 1, _json_values(path, text), _KEYS)
    rows = list(_rows(path))
    line, header = rows[0]
    if [name.strip() for name in header] != _HEADER:
        raise _fault(path, line, "write k,h,m,p,q,f in the first line, without row names", ",".join(header))
    if len(rows) != 2:  # noqa: PLR2004
        raise _fault(path, rows[-1][0], f"the file has {len(rows)} rows: write a header and one row of values", ...)
    line, values = rows[1]
    if len(values) != len(_HEADER):
        raise _fault(path, line, "write a value for each of k,h,m,p,q,f", ",".join(values))
    return _params(path, line, values, _HEADER)


def load_counts(
    path: str | PathLike[str],  # a counts file
    params: Params,  # parameters of the collection
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read the counts of bits, (m, k), bit i at index i, and the reports of each cohort, (m,)."""
    k, m = params.bits, params.cohorts
    table: list[list[int]] = []
    number = line = 0
    for number, (line, row) in enumerate(_rows(path), 1):
        if number == 1:
            _refuse_header(path, line, row)
        if number > m:
            continue  # further rows are only counted
        _check_columns(path, line, row, k + 1, f"k + 1 = {k + 1} columns, the reports of a cohort and the count of each bit")
        counts = _whole_numbers(path, line, row)
        if max(counts[1:]) > counts[0]:
            bit = counts.index(max(counts[1:]), 1)
            wrong = f"column {bit + 1} is {counts[bit]}, more than the {counts[0]} reports of the cohort (first column)"
            raise _fault(path, line, f"{wrong}: sum the reports again", ...)
        table.append(counts)
    if number != m:
        hint = " (or add up those whose numbers agree modulo m)" if number % m == 0 else ""
        wrong = f"the file has {plural(number, 'row')}, and m = {m}"
        raise _fault(path, line, f"{wrong}: write a row for each cohort, or correct the params file{hint}", ...)
    cells = np.array(table, np.int64)
    return cells[:, 1:].copy(), cells[:, 0].copy()


def save_counts(
    path: str | PathLike[str],  # file to write
    counts: NDArray[np.int64],  # (m, k), bit i at index i
    reports: NDArray[np.int64],  # (m,), at least the counts of the cohort
) -> None:
    """Write the counts of bits."""
    if counts.ndim != 2 or reports.shape != counts.shape[:1]:  # noqa: PLR2004
        raise ParameterError(f"counts have the shape {counts.shape} and reports {reports.shape}: give (m, k) and (m,)")
    bad = np.argwhere((counts < 0) | (counts > reports[:, None]))
    if len(bad):
        cohort, bit = bad[0].tolist()
        raise ParameterError(f"a count of cohort {cohort}: write 0 to {reports[cohort]}, its reports", int(counts[cohort, bit]))
    _write(path, np.column_stack([reports, counts]).tolist())


def load_map(
    path: str | PathLike[str],  # a map file
    params: Params,  # parameters of the collection
) -> list[str]:
    """Read the candidates of a map file, in its order, and check the positions of their bits."""
    k, h, m = params.bits, params.hashes, params.cohorts
    lines: dict[str, int] = {}
    foreign: list[str] = []
    for line, row in _rows(path):
        if not lines:
            _refuse_header(path, line, row[1:])
        _check_columns(path, line, row, h * m + 1, f"hm + 1 = {h * m + 1} columns, a candidate and the positions of its bits")
        candidate = row[0]
        if candidate in lines:
            raise _fault(path, line, f"{candidate!r} is on line {lines[candidate]} already: delete one of the two", ...)
        lines[candidate] = line
        while len(row) > 1 and not row[-1].strip():  # some tools write a bit that two hashes share only once, and fill up the row
            row.pop()
        listed, own = _whole_numbers(path, line, row, 1), positions(candidate.encode(), params)
        if listed != own:
            _check_range(path, line, listed, params)
            if set(listed) != set(own):  # order and repetition do not change the bits
                foreign.append(candidate)
    if foreign:
        wrong = (
            f"{len(foreign)} of {len(lines)} candidates, such as {foreign[0]!r}, have other positions than those of MD5 "
            f"with k = {k}, h = {h}, m = {m}"
        )
        raise _fault(path, lines[foreign[0]], f"{wrong}: correct the params file, or hash the candidates again", ...)
    return list(lines)


def save_map(
    path: str | PathLike[str],
    # different texts; the original removes white space around them before it hashes them, here it stays
    candidates: Sequence[str],
    params: Params,
) -> None:
    """Write a map file."""
    if not candidates or len(set(candidates)) != len(candidates):
        wrong = f"the map has {len(candidates)} candidates, {len(set(candidates))} different"
        raise ParameterError(f"{wrong}: list at least one, and each once")
    if candidates[0].startswith("\ufeff"):
        raise ParameterError(f"the first candidate {candidates[0]!r} begins with a byte order mark: put another first")
    _write(path, ([candidate, *positions(candidate.encode(), params)] for candidate in candidates))


def opened(path: str | PathLike[str]) -> TextIO:
    """Open a file of text, with or without a byte order mark; raise `ParameterError` if it cannot be read."""
    try:
        return Path(path).open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise ParameterError(f"{path}: a file is there, and can be read", error.strerror) from None


def sum_reports(
    path: str | PathLike[str],  # A reports file. Only two of its columns are used: `cohort`, and that of the reports.
    params: Params,  # parameters of the collection
    *,
    column: str | None = None,  # name of the column of the reports; by default `irr` or `rappor`
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the bits of a reports file, as `load_counts` has them."""
    # An error quotes no other column, because that may hold private data.
    layout = Layout(params.cohorts, params.bits, "bits")
    rows = _rows(path)
    line, header = next(rows)
    names = [name.strip() for name in header]
    choices = [name for name in (_REPORT_COLUMNS if column is None else (column,)) if names.count(name) == 1]
    if names.count("cohort") != 1 or len(choices) != 1:
        choice = " or ".join(_REPORT_COLUMNS) if column is None else column
        wrong = f"the first line names {plural(len(names), 'column')}"
        raise _fault(path, line, f"{wrong}: name the columns there, once cohort and once {choice}", ...)
    where = names.index("cohort"), names.index(choices[0])
    total = tally.empty(layout)
    payloads = (_payload(path, line, row, len(names), where, layout) for line, row in rows)
    while chunk := b"".join(islice(payloads, _CHUNK)):
        total = tally.merge(total, tally.count(layout, chunk))
    return total.counts, total.reports


def _payload(path: str | PathLike[str], line: int, row: list[str], width: int, where: tuple[int, int], layout: Layout) -> bytes:
    """Make the payload of a row of a reports file."""
    if len(row) != width:
        raise _fault(path, line, f"the row has {plural(len(row), 'column')}: write {width}, as in the header", ...)
    cohort, report = row[where[0]].strip(), row[where[1]].strip()
    if not (cohort.isascii() and cohort.isdigit() and len(cohort) <= _DIGITS) or int(cohort) >= layout.rows:
        raise _fault(
            path, line, f"cohort: write a whole number from 0 to {layout.rows - 1}, or correct m of the params file", cohort
        )
    if len(report) != layout.width or report.strip("01"):
        rule = f"report: write k = {layout.width} digits 0 or 1, leading zeros too (a spreadsheet drops them)"
        raise _fault(path, line, rule, report)
    return layout.pack(int(cohort), int(report, 2))


def _rows(path: str | PathLike[str]) -> Iterator[tuple[int, list[str]]]:
    """Read a CSV file: the line number where each row begins, and its cells. Empty lines are skipped."""
    empty, line = True, 1
    with opened(path) as file:
        reader = csv.reader(file, strict=True)
        try:
            for row in reader:
                if row:
                    empty = False
                    yield line, row
                line = reader.line_num + 1
        except UnicodeDecodeError:
            raise _not_utf8(path) from None
        except csv.Error as error:
            raise _fault(path, line, f"{error}: write comma-separated values, and close open quotes here or later", ...) from None
    if empty:
        raise _fault(path, 1, "the file is empty: write it to the end", ...)


def _write(path: str | PathLike[str], rows: Iterable[Sequence[Any]]) -> None:
    try:
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
    except OSError as error:
        raise ParameterError(f"{path} cannot be written: {error.strerror}") from None


def _fault(path: str | PathLike[str], line: int, rule: str, value: object) -> ParameterError:
    return ParameterError(f"{path}, line {line}: {sentence(rule, value)}", ...)


def _not_utf8(path: str | PathLike[str]) -> ParameterError:
    with Path(path).open("rb") as file:
        for line, content in enumerate(file, 1):
            try:
                content.decode()
            except UnicodeDecodeError as error:
                bad = content[error.start : error.start + 4]
                return _fault(path, line, f"{bad!r} is no UTF-8: save the file as UTF-8 text", ...)
    raise AssertionError(path)  # the file changed while it was read


def _refuse_header(path: str | PathLike[str], line: int, cells: list[str]) -> None:
    if any(cells) and not any(map(_numeric, cells[1:] or cells)):
        wrong = f"the line {','.join(cells[:4])} is a header, and this file has none"
        raise _fault(path, line, f"{wrong}: delete it (R: col.names = FALSE)", ...)


def _numeric(cell: str) -> bool:
    try:
        float(cell)  # nan and inf too: they are bad numbers, not names
    except ValueError:
        return False
    return True


def _check_columns(path: str | PathLike[str], line: int, row: list[str], width: int, rule: str) -> None:
    if len(row) != width:
        if len(row) == width + 1:
            rule += "; delete the row names, if that is the first (R: row.names = FALSE)"
        raise _fault(path, line, f"the row has {plural(len(row), 'column')}: write {rule}, or correct the params file", ...)


def _check_range(path: str | PathLike[str], line: int, listed: list[int], params: Params) -> None:
    k, h, m = params.bits, params.hashes, params.cohorts
    for column, position in enumerate(listed, 2):
        if not 1 <= position <= k * m:
            rule = f"column {column}: write a position from 1 to km = {k * m}, or correct the params file"
            raise _fault(path, line, rule, position)
        first = (column - 2) // h * k
        if len(listed) == h * m and not first < position <= first + k:
            block = f"cohort {(column - 2) // h}, positions {first + 1} to {first + k}"
            raise _fault(path, line, f"column {column}: write one of {block}, or correct k and h of the params file", position)


def _whole_numbers(path: str | PathLike[str], line: int, row: list[str], start: int = 0) -> list[int]:
    """Read the cells of a row, from column `start` on, as whole numbers of at least 0."""
    cells = row[start:]
    text = "".join(cells)
    if text.isascii() and text.isdigit() and all(cells) and max(map(len, cells)) <= _DIGITS:
        return list(map(int, cells))
    return [_whole_number(path, line, column, cell.strip()) for column, cell in enumerate(cells, start + 1)]


def _whole_number(path: str | PathLike[str], line: int, column: int, cell: str) -> int:
    number = Decimal(cell) if _NUMBER.fullmatch(cell) else None
    if number is None or number != number.to_integral_value() or number >= 1 << 63:  # R writes 100000 as 1e+05
        raise _fault(path, line, f"column {column}: write a whole number from 0 to 2^63 - 1", cell or None)
    return int(number)


def _params(path: str | PathLike[str], line: int, values: Sequence[str], names: Sequence[str]) -> Params:
    sizes: list[int] = []
    probabilities: list[Fraction] = []
    for name, value in zip(names, map(str.strip, values), strict=True):
        if not _NUMBER.fullmatch(value):
            raise _fault(path, line, f"{name}: write a number of at least 0", value)
        if len(sizes) < 3:  # noqa: PLR2004
            if not value.isdecimal():
                raise _fault(path, line, f"{name}: write a whole number", value)
            sizes.append(int(value))
        else:
            probabilities.append(Fraction(value))
    try:
        k, h, m = sizes
        p, q, f = probabilities
        return Params(bits=k, hashes=h, cohorts=m, prob_p=p, prob_q=q, prob_f=f)
    except ParameterError as error:
        raise _fault(path, line, error.rule, error.value) from None


def _json_values(path: str | PathLike[str], text: str) -> list[str]:
    """Read the numbers of the JSON form as they are written, in the order of `_KEYS`."""
    try:
        read = json.loads(text, parse_int=_Written, parse_float=_Written, parse_constant=_Written)
    except json.JSONDecodeError as error:
        raise _fault(path, error.lineno, f"{error.msg}: write JSON in a file that begins with a brace", ...) from None
    if sorted(read) != sorted(_KEYS):
        raise _fault(path, 1, f"the keys are {', '.join(read)}: write {', '.join(_KEYS)}", ...)
    for key, value in read.items():
        if not isinstance(value, _Written):
            raise _fault(path, 1, f"{key}: write a number, without quotes", value)
    return [read[key] for key in _KEYS]


class _Written(str):
    """A JSON number as it is written."""

    __slots__ = ()
