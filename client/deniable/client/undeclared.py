"""What is told of an answer that is undeclared or clipped, with the answer, while the app is developed."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeGuard

from deniable.errors import ParameterError
from deniable.messages.plural import plural
from deniable.registry.metric import PER_SECOND
from deniable.registry.text import fit

if TYPE_CHECKING:
    from collections.abc import Collection

    from deniable.registry import Metric

_LONGEST = 60  # characters of a text
_MOST = 5  # members of a list
_MOST_BITS = 200  # of a whole number
_LISTS = (list, tuple, set, frozenset)


def undeclared(
    metric: Metric,
    answer: object,  # an answer that it does not declare
    fault: ParameterError,  # why
) -> ParameterError:
    """Return the error that names an answer, and says what to record instead. Nobody but a developer may see it."""
    from deniable.messages.lookalike import did_you_mean  # noqa: PLC0415 - only a mistake needs it

    kind = metric.kind
    rule = fault.rule if kind.written or kind.open else kind.allowed(metric, fault.rule)
    declared = [value for value in metric.values if isinstance(value, str)]
    lost = ""
    if _is_list(answer) and _is_of_option(metric, answer, fault):
        lost = _lost(metric, len(answer))
        answer = next((option for option in answer if type(option) is not str or option not in declared), None)
    parts = list(islice(answer, _MOST)) if _is_list(answer) else [answer]
    mistaken = next((part for part in parts if type(part) is str and part not in declared), None)
    more = _none_of(metric) if answer is None else _of_another_type(metric, answer)
    words = f"{_seen(answer)} is not declared: {rule}{more or did_you_mean(mistaken, declared)}"
    return ParameterError(f"{words}{'' if words.endswith('?') or not lost else '.'}{lost}")


def _lost(
    metric: Metric,
    options: int,  # of the answer, one of which is undeclared
) -> str:
    """Say that an undeclared option takes the others along; empty where they stay, or where there are none."""
    if metric.other is not None or options == 1:
        return ""
    return " The whole answer is lost with it: declare `other` in metrics.toml, so that the other options stay"


def became(
    metric: Metric,
    answer: object,
    fault: ParameterError,  # as for `undeclared`
) -> str:
    """Say what is reported instead of an undeclared answer."""
    if metric.other is not None and _is_of_option(metric, answer, fault):
        return f"It counts as {metric.other!r}, and the other options stay"
    if metric.axis:
        instead = "What stands for none" if metric.none else "The low end of its range"
    elif metric.other is not None:
        instead = "Its other"
    else:
        instead = "A random set" if metric.kind.options else "A random one"
    return f"{instead} was reported instead"


def _is_of_option(metric: Metric, answer: object, fault: ParameterError) -> bool:
    """Return whether an answer is a list of options, one of which is the undeclared one."""
    return metric.kind.options and fault.rule != metric.kind.refusal(metric, answer).rule


def clipped(
    metric: Metric,
    answer: object,  # one that `Metric.clips`
    *,
    reported: bool,  # whether there is a report
) -> str:
    """Say why an answer is clipped, and what became of it. Nobody but a developer may see it."""
    if metric.most:
        rule, became = f"has more than {plural(metric.most, 'option')}", f"{metric.most} of them, drawn at random, counted"
    elif isinstance(answer, str):
        rule = f"is longer than {plural(metric.max_length, 'byte')}"
        became = f"its beginning {_seen(fit(answer, metric.max_length))} was reported"
    else:
        low, high = metric.range
        unit = f" {metric.unit}" if metric.unit else ""
        rule = f"is beyond the range, {low} to {high}{unit}{_in_unit(metric, answer)}"
        became = "the nearer end was reported instead"
    return f"{_seen(answer)} {rule}: {became if reported else 'this time nothing was reported'}"


def _in_unit(metric: Metric, answer: object) -> str:
    """Say what a time beyond the range is if it was measured in another unit, and is within it then; else empty."""
    if metric.unit not in PER_SECOND or type(answer) not in (int, float):
        return ""
    for unit in ("s", "ms", "us"):
        number = float(answer) / PER_SECOND[unit] * PER_SECOND[metric.unit]  # type: ignore[arg-type] # a number, see above
        if unit != metric.unit and not metric.clips(number):
            return f" ({_seen(answer)} {unit} are {number:g} {metric.unit})"
    return ""


def _of_another_type(metric: Metric, answer: object) -> str:
    """Ask whether a text meant one option, or a number; empty if not."""
    if type(answer) in (int, float):
        return _with_number(metric, answer)  # type: ignore[arg-type] # see above
    if type(answer) is not str:
        return ""
    if metric.kind.options and answer in metric.values:
        return f"; did you mean [{answer!r}]?"
    number = metric.kind.parse(answer) if metric.axis else answer
    return "" if type(number) is str else f"; did you mean {answer.strip()[:_LONGEST]}, without quotes?"


def _with_number(
    metric: Metric,
    number: float,  # an answer
) -> str:
    """Ask whether a boolean was meant, or the one text that begins with a number; empty if not."""
    import re  # noqa: PLC0415 - only a mistake needs it

    if metric.kind.name == "boolean":
        return f"; did you mean {bool(number)}?" if number in (0, 1) else ""
    numbers = {each: re.match(r"[-+]?\d+(?:\.\d+)?", each) for each in metric.values if isinstance(each, str)}
    meant = [each for each, begins in numbers.items() if begins and float(begins[0]) == number]
    return f"; did you mean {meant[0]!r}?" if len(meant) == 1 else ""


def _none_of(metric: Metric) -> str:
    if "none" in metric.kind.members:
        return "; declare `none` for no answer"
    if metric.kind.name == "boolean":
        return "; for no answer, make it categorical with three `values`, one of which is its `none`"
    return ""


def _seen(answer: object, *, within: bool = False) -> str:
    """Write an answer, cut; of what is no plain value the type alone."""
    if type(answer) is str:
        return repr(answer[:_LONGEST])
    if answer is None or type(answer) is bool or type(answer) is float:
        return repr(answer)
    if type(answer) is int and answer.bit_length() <= _MOST_BITS:
        return repr(answer)
    if _is_list(answer) and not within:
        return f"[{', '.join(_seen(part, within=True) for part in islice(answer, _MOST))}]"
    return f"an object of type {type(answer).__name__}"


def _is_list(answer: object) -> TypeGuard[Collection[object]]:
    return any(type(answer) is kind for kind in _LISTS)  # `in` would call methods of a class of the host app
