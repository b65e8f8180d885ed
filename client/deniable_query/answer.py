"""The answer to a query: rows, and frames of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal

from deniable_query.error import QueryError
from deniable_query.table import days_of, html, lines, remarks_of

Cell = str | int | float | bool | None
Row = dict[str, Cell]

_READ = {"date": date.fromisoformat, "time": datetime.fromisoformat}


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a query.

    Parameters
    ----------
    rows
        The rows of all pages, each by the names of `columns`.
    columns
        Of each column its ``name``, ``type`` and ``meaning``, in order.
    metrics
        What the metrics are: ``id``, ``type``, ``unit`` and so on.
    trial
        Whether everything is published at once, however few reports there are.
    simulated
        The days for which there are reports of simulated people; empty if there are none.
    together
        Which differences are tested together, in words; empty if nothing is compared.
    """

    rows: list[Row]
    columns: list[dict[str, str]]
    metrics: list[dict[str, Any]]
    trial: bool
    simulated: str = ""
    together: str = ""

    def __repr__(self) -> str:
        """Say how many rows there are, of which days, and why some have no estimate."""
        names = ", ".join(each["id"] for each in self.metrics)
        first, last = days_of(self)
        about = f", {first or 'the beginning'} to {last}" if last else ""
        reasons = Counter(row["reason"] for row in self.rows if row["reason"])
        remarks = "".join(f"; {_rows(n)}: {reason}" for reason, n in reasons.items())
        return f"<Answer: {_rows(len(self.rows))} of {names}{about}{remarks}>"

    def __str__(self) -> str:
        """Write the rows as a table: each estimate with its interval and its number of reports."""
        return "\n".join([*lines(self), *remarks_of(self)])

    def _repr_html_(self) -> str:
        """Show the same in a notebook."""
        return html(self)

    def frame(self, library: Literal["pandas", "polars"] | None = None) -> Any:
        """Return the rows as a data frame, each column with its type.

        Parameters
        ----------
        library
            Whose frame; None: of pandas, or of polars where there is no pandas.

        Raises
        ------
        ImportError
            If it is not there.
        QueryError
            If `library` is neither.
        """
        if library not in (None, "pandas", "polars"):
            raise QueryError(0, "", f"frame() takes 'pandas' or 'polars', or nothing; this is {library!r}")
        for name, make in (("pandas", self._pandas), ("polars", self._polars)):
            if library in (None, name):
                try:
                    return make()
                except ModuleNotFoundError:
                    continue
        rule = f"frame() needs {library or 'pandas or polars'}: pip install {library or 'pandas'}"
        raise ImportError(f"{rule}; rows() needs none")

    def _pandas(self) -> Any:
        import pandas as pd  # noqa: PLC0415 - it takes long, and rows need none

        kinds = {"text": "string", "integer": "Int64", "number": "float64", "boolean": "boolean"}
        columns = {column["name"]: pd.Series(self._column(column), dtype=kinds.get(column["type"])) for column in self.columns}
        for column in self.columns:
            if column["type"] in _READ:
                columns[column["name"]] = pd.to_datetime(columns[column["name"]], utc=column["type"] == "time")
        return pd.DataFrame(columns)

    def _polars(self) -> Any:
        import polars as pl  # noqa: PLC0415 - it takes long, and rows need none

        kinds: dict[str, Any] = {
            "text": pl.String(),
            "integer": pl.Int64(),
            "number": pl.Float64(),
            "boolean": pl.Boolean(),
            "date": pl.Date(),
            "time": pl.Datetime("us", "UTC"),
        }
        return pl.DataFrame([pl.Series(each["name"], self._column(each), kinds[each["type"]]) for each in self.columns])

    def _column(self, of: dict[str, str]) -> list[Any]:
        values, read = [row[of["name"]] for row in self.rows], _READ.get(of["type"])
        return [read(str(each)) if each else None for each in values] if read else values


def _rows(number: int) -> str:
    return f"{number} row{'s' * (number != 1)}"
