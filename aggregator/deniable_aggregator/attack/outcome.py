"""Outcomes of calls: what a function returned or raised, as a kind and as numbers that can be compared.

The length of an output is a part of its kind. So is the class of an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import singledispatch
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_SHOWN = 40  # characters of an output that are shown
_SMALL = 127  # whole numbers up to this one fit in a byte


class Outcome(NamedTuple):
    """What a call gave."""

    kind: str  # what it is, with its length, in words
    part: str  # what its parts are called: `bit`, `character`, `element`, `number`, or `whole` for a whole number and its bits
    code: str  # how `data` is read: as bits, as a whole number, or the type of numbers in numpy's words
    data: bytes  # its parts

    def name(self, place: int) -> str:
        """Return what one of the parts is called."""
        if self.part == "whole":
            return f"bit {place - 1}" if place else "its size"
        return "the number" if self.part == "number" else f"{self.part} {place}"


def observe(call: Callable[[], object]) -> tuple[Outcome, object]:
    """Call a function; return the outcome, and what it returned or raised."""
    try:
        output = call()
    except Exception as error:  # noqa: BLE001 - whatever it raises is an output
        return _text(f"{type(error).__name__} raised, with a message", str(error)), error.with_traceback(None)
    return _outcome(output), output


def shortened(output: object) -> str:
    """Write an output for people, cut if it is long."""
    text = repr(output)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def parts(outcomes: Sequence[Outcome]) -> NDArray[Any]:
    """Return the parts of outcomes of one kind as numbers, (outcomes, parts)."""
    data = [outcome.data for outcome in outcomes]
    if outcomes[0].code == "bits":
        return np.unpackbits(_rows(data, np.dtype(np.uint8)), axis=1, bitorder="little")
    if outcomes[0].code == "whole":
        longest = max(map(len, data))
        numbers = [int.from_bytes(each, "little", signed=True) for each in data]
        bits = [number.to_bytes(longest, "little", signed=True) for number in numbers]
        sizes = np.array([_float(number) for number in numbers])
        return np.hstack([sizes[:, None], np.unpackbits(_rows(bits, np.dtype(np.uint8)), axis=1, bitorder="little")])
    return np.vstack([np.frombuffer(each.data, each.code) for each in outcomes])


def _rows(data: Sequence[bytes], of: np.dtype[Any]) -> NDArray[Any]:
    return np.frombuffer(b"".join(data), of).reshape(len(data), -1)


def _float(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


@singledispatch
def _outcome(output: object) -> Outcome:
    return _text(type(output).__name__, repr(output))


@_outcome.register
def _(output: int) -> Outcome:
    name = "a yes or no" if isinstance(output, bool) else "a whole number"
    return Outcome(name, "whole", "whole", int(output).to_bytes(output.bit_length() // 8 + 1, "little", signed=True))


@_outcome.register
def _(output: float) -> Outcome:
    return Outcome("a number", "number", "<f8", np.array([output]).tobytes())


@_outcome.register
def _(output: bytes | bytearray | memoryview) -> Outcome:
    data = bytes(output)
    return Outcome(f"{len(data)} bytes", "bit", "bits", data)


@_outcome.register
def _(output: str) -> Outcome:
    return _text("a text", output)


@_outcome.register
def _(output: np.generic) -> Outcome:
    return _outcome(output.item())


@_outcome.register
def _(output: np.ndarray) -> Outcome:
    if output.dtype.kind not in "biuf":
        return _outcome(output.tolist())
    return Outcome(f"an array of the shape {output.shape}", "element", *_numbers(output.ravel()))


@_outcome.register
def _(output: Mapping) -> Outcome:  # type: ignore[type-arg]
    return _elements("a mapping", [each for item in output.items() for each in item])


@_outcome.register
def _(output: AbstractSet) -> Outcome:  # type: ignore[type-arg]
    return _elements("a set", sorted(output, key=repr))


@_outcome.register
def _(output: list | tuple) -> Outcome:  # type: ignore[type-arg]
    return _elements(f"a {type(output).__name__}", output)


def _text(name: str, text: str) -> Outcome:
    return Outcome(f"{name} of {len(text)} characters", "character", "<u4", np.array([*map(ord, text)], "<u4").tobytes())


def _elements(name: str, elements: Sequence[Any]) -> Outcome:
    """Lay the parts of all elements in a row. If one is no plain number, the kinds of all are part of the kind."""
    kind = f"{name} of {len(elements)} elements"
    if all(isinstance(each, bool | int | float | np.generic) for each in elements):
        return Outcome(kind, "element", *_numbers(np.array(list(map(_number, elements)), np.float64)))
    inner = [_outcome(each) for each in elements]
    numbers = [parts([each])[0].astype(np.float64) for each in inner]
    return Outcome(f"{kind} ({', '.join(each.kind for each in inner)})", "part", *_numbers(np.concatenate(numbers)))


def _number(value: Any) -> float:
    return _float(value) if isinstance(value, int) else float(value)


def _numbers(values: NDArray[Any]) -> tuple[str, bytes]:
    """Write numbers, in a byte each if all of them fit there."""
    if np.all((values == np.round(values)) & (np.abs(values) <= _SMALL)):
        return "<i1", values.astype("<i1").tobytes()
    return "<f8", values.astype("<f8").tobytes()
