"""People from a CSV file, one a line: its columns are metrics, and segments."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ConfigurationError
from deniable.messages.lookalike import did_you_mean
from deniable.messages.plural import few, plural
from deniable.source import OS
from deniable_aggregator.people.crowd import NOTHING, Crowd, Told
from deniable_aggregator.people.plausible import members
from deniable_aggregator.planning.population import in_lines, reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from deniable.registry import Metric, Registry

    Integers = NDArray[np.int64]


def crowd(
    registry: Registry,
    path: Path,  # of the file
    people: int | None,  # how many are picked from the file, again and again if it has fewer; None for each line once
    chance: np.random.SeedSequence,  # who is picked follows from it, and segments that have no column
) -> Crowd:
    """Read people, who give their answers in every period; who leaves a cell empty does not answer that metric."""
    columns, lines = _read(path, registry)
    rng = np.random.default_rng(chance)
    picked = np.arange(len(lines)) if people is None else rng.choice(len(lines), people, replace=people > len(lines))
    segments = members(registry, len(picked), rng)
    answers, silent = {}, []
    others, faults = list[str](), list[tuple[int, str]]()
    for name, cells in columns.items():
        if name in registry.segments:
            segments[name] = _segment(name, registry.segments[name], lines, cells, faults)[picked]
        else:
            values, held, unlisted = _answers(registry.metrics[name], lines, cells, faults)
            others += _of_others(registry.metrics[name], unlisted)
            answers[name] = Told(registry.metrics[name], values, held[picked])
            if registry.metrics[name].kind.options and (held == NOTHING).any():
                silent.append(name)
    if faults:
        raise ConfigurationError(in_lines([f"{path}, line {line}: {fault}" for line, fault in sorted(faults)]))
    left = sorted(registry.metrics.keys() - answers.keys())
    description = f"{len(picked):,} people of {path} give the same answers in all periods"
    if left:
        description += f"; it has no column {', '.join(left)}"
    if silent:
        description += f"; who leaves {', '.join(silent)} empty does not answer it: a set of nothing is a comma in quotes"
    return Crowd(len(picked), segments, answers, "; ".join([description, *others]))


def _of_others(metric: Metric, unlisted: Sequence[tuple[int, str]]) -> Iterator[str]:
    """Say how many rows have an answer that is not declared, what it counts as, and the first ones."""
    if unlisted:
        first = few([f"{written!r} in line {line}" for line, written in unlisted])
        yield f"column {metric.id} is not declared in {plural(len(unlisted), 'row')}, and counts as {metric.other!r}: {first}"


def _read(path: Path, registry: Registry) -> tuple[dict[str, Sequence[str]], Sequence[int]]:
    """Read the cells of each column, and the number of the line of each row."""
    rows, lines = list[list[str]](), list[int]()
    with reading(path), path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        header = next(reader, [])
        _check(path, header, registry)
        for row in reader:
            if row and len(row) != len(header):
                raise _wrong(
                    path,
                    reader.line_num,
                    f"the line has {plural(len(row), 'cell')}: write one for each of the {len(header)} columns",
                )
            if row:
                rows.append(row)
                lines.append(reader.line_num)
    if not rows:
        raise ConfigurationError(f"{path} has no line below its header: each line is a person")
    return dict(zip(header, zip(*rows, strict=True), strict=True)), lines


def _check(path: Path, header: Sequence[str], registry: Registry) -> None:
    """Refuse a header that names anything but metrics and segments, or no metric."""
    known, faults = [*registry.metrics, *registry.segments], list[str]()
    for name in dict.fromkeys(header):
        if name not in known:
            meant = did_you_mean(name, known)
            faults.append(f"column {name!r} is no metric and no segment of {registry.file}{meant or ': leave it out'}")
        elif header.count(name) > 1 or (name in registry.metrics and name in registry.segments):
            faults.append(f"each column is one metric or one segment; {name!r} is not")
    if faults:
        faults.append(f"columns may be {', '.join(known)}")
    elif not any(name in registry.metrics for name in header):
        faults.append(f"at least one column is a metric of {registry.file}: {', '.join(registry.metrics)}")
    if faults:
        raise ConfigurationError(in_lines([f"{path}, line 1: {fault}" for fault in faults]))


def _answers(
    metric: Metric,
    lines: Sequence[int],
    cells: Sequence[str],
    faults: list[tuple[int, str]],  # to which those of cells are added, each with its line
) -> tuple[list[object], Integers, list[tuple[int, str]]]:
    """Return the answers that occur, the place of each person's among them, and the lines and texts of those not declared."""
    places, values, undeclared = dict[str, int](), list[object](), set[str]()
    for line, written in zip(lines, cells, strict=True):
        if written in places:
            continue
        places[written] = len(values) if written else NOTHING
        if written:
            try:
                value, declared = _answer(metric, written)
            except ConfigurationError as error:
                faults.append((line, str(error)))
                continue
            values.append(value)
            if not declared:
                undeclared.add(written)
    unlisted = [(line, written) for line, written in zip(lines, cells, strict=True) if written in undeclared]
    return values, np.array([places[written] for written in cells], np.int64), unlisted


def _answer(metric: Metric, written: str) -> tuple[object, bool]:
    """Read an answer, and whether it is declared; one that is not is the metric's `other`, as on a device."""
    value = metric.kind.parse(written)
    position, undeclared = metric.kind.reported(metric, value)
    if undeclared is None:
        return value, True
    if metric.other is None:
        joined = (
            "; several options are joined by commas, such as " + ",".join(map(str, metric.values[:2]))
            if metric.kind.options
            else ""
        )
        allowed = metric.kind.allowed(metric, undeclared.rule)
        listed = [value for value in metric.values if isinstance(value, str)]
        raise ConfigurationError(f"column {metric.id} has {written!r}: {allowed}{joined}{did_you_mean(written, listed)}")
    if isinstance(value, list):  # the options of a set: each that is not declared counts as the other one
        return list(dict.fromkeys(option if option in metric.values else metric.other for option in value)), False
    return metric.value(metric.stand_in(OS) if position is None else position), False


def _segment(
    name: str,
    values: Sequence[str],
    lines: Sequence[int],
    cells: Sequence[str],
    faults: list[tuple[int, str]],  # as for `_answers`
) -> Integers:
    places = {value: place for place, value in enumerate(values)}
    for line, written in zip(lines, cells, strict=True):
        if written not in places:
            places[written] = 0
            meant = did_you_mean(written, values)
            faults.append((line, f"column {name} has {written!r}: write one of {', '.join(values)}{meant}"))
    return np.array([places[written] for written in cells], np.int64)


def _wrong(path: Path, line: int, rule: str) -> ConfigurationError:
    return ConfigurationError(f"{path}, line {line}: {rule}")
