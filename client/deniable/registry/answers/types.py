"""The types of metrics: what an answer of each is, where it stands in the domain, and what the registry declares of it.

A type answers for itself, as `Metric.kind`. Nothing else compares types by name. A new type is a class here and one of `TYPES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.exact.hashing import KEY_SPACE
from deniable.registry import text
from deniable.registry.answers import domain
from deniable.registry.answers.axis import BINS, Axis, read_number
from deniable.registry.answers.base import Type
from deniable.registry.answers.number import LARGEST, plain

if TYPE_CHECKING:
    from deniable.registry.metric import Metric, Value
    from deniable.source import Source

_MOST_UNDECLARED = 1000  # options of an answer beyond the declared ones; with more, it would take long to read


class Categorical(Type):
    """One of the values that are listed."""

    name = "categorical"
    members = ("none", "other")


class Ordinal(Type):
    """One of the values that are listed, which are in order."""

    name = "ordinal"
    faults = staticmethod(domain.ordinal_faults)
    members = ("none", "other", "estimate")
    ordered = True
    ranked = False

    def mechanism(self, metric: Metric) -> str:
        return "window" if metric.estimate else ""


class Boolean(Type):
    """Yes or no."""

    name = "boolean"
    faults = staticmethod(domain.boolean_faults)
    ranked = False
    expected = "True or False"
    written = "yes or no"

    def example(self, metric: Metric) -> str:
        return "True"

    def values(self, table: Mapping[str, Any]) -> tuple[Value, ...]:
        return False, True

    def parse(self, written: str) -> object:
        return {"yes": True, "true": True, "no": False, "false": False}.get(written.lower(), written)


class Product(Type):
    """An answer to each of several questions at once. Its values are all combinations of theirs."""

    name = "product"
    faults = staticmethod(domain.product_faults)
    members = ("factors",)
    expected = "a declared value each of {factors}"
    between = "; "
    answers = "one of these combinations"

    def values(self, table: Mapping[str, Any]) -> tuple[Value, ...]:
        return tuple(product(*table["factors"].values()))

    def position(self, metric: Metric, answer: object) -> int:
        factors, parts = len(metric.factors), list[Any]()
        if isinstance(answer, Mapping) and len(answer) == factors:
            parts = [answer.get(name) for name, _ in metric.factors]
        elif isinstance(answer, list | tuple):
            base: Any = list if isinstance(answer, list) else tuple  # a method of it: a subclass may define its own
            parts = base.__getitem__(answer, slice(factors + 1))
        declared = len(parts) == factors and all(type(part) is str and len(part) <= metric.longest for part in parts)
        return super().position(metric, tuple(parts) if declared else None)

    def parse(self, written: str) -> object:
        return written.split(",")


class Set(Type):
    """Any of the options that are listed, none to all of them. Bit i of a position is 1 if the answer has option i."""

    name = "set"
    faults = staticmethod(domain.set_faults)
    members = ("other", "joint", "most")
    options = True
    clipped = "cut"
    noun = "option"
    expected = "a set or list of options"
    answers = "any of these options, none to all{metric.cap}"

    def size(self, metric: Metric) -> int:
        return 1 << len(metric.values)

    def estimated(self, metric: Metric) -> int:
        return len(metric.values)

    def position(self, metric: Metric, answer: object) -> int:
        chosen, undeclared = self._chosen(metric, answer)
        if undeclared is not None:
            raise undeclared
        return chosen

    def reported(self, metric: Metric, answer: object) -> tuple[int | None, ParameterError | None]:
        try:
            chosen, undeclared = self._chosen(metric, answer)
        except ParameterError as error:  # no set at all
            return None, error
        return None if undeclared is not None and metric.other is None else chosen, undeclared

    def _chosen(self, metric: Metric, answer: object) -> tuple[int, ParameterError | None]:
        """Return the options of an answer, with `other` for undeclared ones, and the error of the first of those."""
        base: Any = next((each for each in (set, frozenset, list, tuple) if isinstance(answer, each)), None)
        if base is None or base.__len__(answer) > len(metric.values) + _MOST_UNDECLARED:
            raise self.refusal(metric, answer)
        positions, longest = metric.positions, metric.longest
        other = 0 if metric.other is None else 1 << positions[metric.other]
        chosen, undeclared = 0, None
        for option in base.__iter__(answer):  # a method of its base class: a subclass of the host app may define its own
            position = positions.get(option) if type(option) is str and len(option) <= longest else None
            if position is None and undeclared is None:
                kind = type(option).__name__
                rule = f"an option of {metric.id} must be one of the {len(metric.values)} declared"
                undeclared = ParameterError(rule, kind, f"an undeclared {kind}")
            chosen |= other if position is None else 1 << position
        return chosen, undeclared

    def stand_in(self, metric: Metric, source: Source) -> int:
        return source.below(self.size(metric)) if metric.other is None else 1 << metric.positions[metric.other]

    def parse(self, written: str) -> object:
        return [option for option in written.split(",") if option]

    def clips(self, metric: Metric, answer: object) -> bool:
        return bool(metric.most) and self._chosen(metric, answer)[0].bit_count() > metric.most

    def mechanism(self, metric: Metric) -> str:
        return "sampled_pair" if metric.joint else "padded_subset" if metric.most else "sampled_options"


class Number(Type):
    """A number in a range, as a position on its axis; if its distribution is kept, as a part of the axis."""

    name = "number"
    faults = staticmethod(domain.number_faults)
    members = ("none", "range", "unit", "scale", "step", "whole", "estimate")
    decimals = ("none", "step")
    clipped = "clipped"
    expected = "a number"
    written = "a number, such as {metric.range[1]}"
    answers = "a number from {metric.range[0]} to {metric.range[1]} {metric.unit}"

    def derived(self, metric: Metric) -> dict[str, object]:
        low, high = map(Fraction, metric.range)
        return {"axis": Axis(low, high, metric.scale)}

    def size(self, metric: Metric) -> int:
        return BINS if metric.binned else _axis(metric).steps + 1

    def position(self, metric: Metric, answer: object) -> int:
        axis = _axis(metric)
        if answer is not None:
            position = axis.position(self._number(metric, answer))
        else:
            position = axis.position(Fraction(metric.none)) if metric.none else 0
        return min(position * BINS // axis.steps, BINS - 1) if metric.binned else position

    def _number(self, metric: Metric, answer: Any) -> float | Fraction:
        kind = type(answer)
        if (kind is float or kind is int) and -LARGEST < answer < LARGEST:  # so most answers are read fast; NaN is not among them
            number: float | Fraction = answer
            return number
        read = plain(answer)
        if read is None:
            raise self.refusal(metric, answer)
        return read

    def reported(self, metric: Metric, answer: object) -> tuple[int | None, ParameterError | None]:
        if answer is None and metric.none is None:
            return self.position(metric, answer), self.refusal(metric, answer)
        return super().reported(metric, answer)

    def stand_in(self, metric: Metric, source: Source) -> int:
        return self.position(metric, None)

    def clips(self, metric: Metric, answer: object) -> bool:
        return answer is not None and not _axis(metric).covers(self._number(metric, answer))

    def example(self, metric: Metric) -> str:
        return str(metric.range[0])

    def parse(self, written: str) -> object:
        try:
            return read_number(written)
        except ParameterError:
            return written

    def mechanism(self, metric: Metric) -> str:
        return "window" if not metric.permanent else "l_grr" if metric.rounded else "l_osue"


class String(Type):
    """A text."""

    name = "string"
    faults = staticmethod(domain.open_faults)
    members = ("candidates", "discover", "max_length", "none")
    open = True
    clipped = "shortened"
    expected = "a text"
    answers = "any text of at most {metric.max_length} bytes"

    def derived(self, metric: Metric) -> dict[str, object]:
        return {"max_length": metric.max_length or (16 if metric.discover else 64)}

    def size(self, metric: Metric) -> int:
        return text.domain_size(metric.max_length)

    def position(self, metric: Metric, answer: object) -> int:
        value = metric.none if answer is None else answer
        if not isinstance(value, str):
            raise self.refusal(metric, value)
        return text.encode(text.fit(value, metric.max_length), metric.max_length)

    def clips(self, metric: Metric, answer: object) -> bool:
        return isinstance(answer, str) and text.is_longer(answer, metric.max_length)

    def value(self, metric: Metric, position: int) -> Value:
        return text.decode(position, metric.max_length)

    def candidate(self, metric: Metric, line: str) -> int:
        if not line:
            raise ParameterError("write an answer, or remove the line", ...)
        return text.encode(line, metric.max_length)


class Key(Type):
    """A whole number below 2^64."""

    name = "key"
    faults = staticmethod(domain.key_faults)
    members = ("candidates", "discover", "max_length")
    open = True
    expected = "a whole number in [0, 2^64)"
    answers = "any whole number below 2^64"

    def size(self, metric: Metric) -> int:
        return KEY_SPACE

    def position(self, metric: Metric, answer: object) -> int:
        if isinstance(answer, int) and not isinstance(answer, bool):
            key = int.__index__(answer)  # a plain number, since a subclass may redefine comparisons
            if 0 <= key < KEY_SPACE:
                return key
        raise self.refusal(metric, answer)

    def value(self, metric: Metric, position: int) -> Value:
        return position

    def parse(self, written: str) -> object:
        return int(written) if written.isdecimal() else written

    def candidate(self, metric: Metric, line: str) -> int:
        try:
            key = int(line)
        except ValueError:
            raise ParameterError("a key must be a whole number in [0, 2^64)", ...) from None
        return self.position(metric, key)


_ALL = (Boolean(), Categorical(), Ordinal(), Product(), Set(), Number(), String(), Key())
TYPES: dict[str, Type] = {kind.name: kind for kind in _ALL}


def of(name: object) -> Type:
    """Return a type by its name; raise `ParameterError` if there is no such type."""
    kind = TYPES.get(name) if isinstance(name, str) else None
    if kind is None:
        from deniable.messages.lookalike import did_you_mean  # noqa: PLC0415 - only a mistake needs it

        raise ParameterError(f"type: write one of {', '.join(TYPES)}{did_you_mean(domain.type_meant(name, TYPES), TYPES)}", name)
    return kind


def having(member: str) -> list[str]:
    """Return the names of the types that have a key of a metric's table; none if all have it."""
    return [kind.name for kind in _ALL if member in kind.members]


def _axis(metric: Metric) -> Axis:
    return metric.axis  # type: ignore[return-value]  # every number has one
