"""What a few rows say, each in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deniable_query.table import figure

if TYPE_CHECKING:
    from deniable_query.answer import Answer, Row

_MOST = 4  # rows; of more the table says it better
_JOINT = ".."
_MEANS = {"mean": "The mean", "geometric_mean": "The geometric mean", "p50": "The median"}


def sentences(answer: Answer) -> list[str]:
    """Say what each row estimates, of few rows of one time."""
    rows = [row for row in answer.rows if row["estimate"] is not None and "value" in row]
    if len(rows) > _MOST or any("time" in row for row in rows):
        return []
    names = [each["name"] for each in answer.columns]
    segments = names[names.index("to") + 1 : names.index("value")] if "value" in names else []
    metrics = {each["id"]: each for each in answer.metrics}
    says = [f"{_reports(row, segments)}{_sentence(row, metrics[str(row['metric'])])}" for row in rows]
    return list(dict.fromkeys(says))  # several rows of a group may say together that they detect nothing


def _reports(row: Row, segments: list[str]) -> str:
    named = [f"{name}={row[name]}" for name in segments if row.get(name)]
    return f"{', '.join(named)}: " if named else ""


def _sentence(row: Row, metric: dict[str, Any]) -> str:
    value, unit = str(row["value"]), str(row["unit"])
    if unit == "share" and row["detected"] is False and _tells_nothing(row):
        return f"{row['n']:,} {'report detects' if row['n'] == 1 else 'reports detect'} no answer."
    estimate, low, high = (figure(row[name], unit, row["low"], row["high"]) for name in ("estimate", "low", "high"))
    interval = f"({100 * float(row['level'] or 0):g}% interval {low} to {high})"
    if unit != "share":
        start = f"{_MEANS[value]} is" if value in _MEANS else f"{int(value[1:])}% of answers are at most"
        return f"{start} {estimate} {interval}."
    if metric["unit"] != "share":
        return f"{estimate} of answers are {_range(value)} {metric['unit']} {interval}."
    return f"\u201c{value}\u201d has a share of {estimate} {interval}."


def _tells_nothing(row: Row) -> bool:
    """Return whether the interval of a share has all shares that are possible."""
    return float(row["low"] or 0) <= 0 and float(row["high"] or 0) >= 1


def _range(text: str) -> str:
    above, _, at_most = text.partition(_JOINT)
    return " and ".join([*([f"above {above}"] if above else []), *([f"at most {at_most}"] if at_most else [])])
