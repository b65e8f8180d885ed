"""Devices that answer one question repeatedly, with the SDK's own mechanisms and the operating system's generator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from deniable.errors import ParameterError
from deniable.source import OS

if TYPE_CHECKING:
    from deniable.mechanisms import Mechanism


class Device(Protocol):
    """One device with one value that never changes."""

    def report(self) -> bytes:
        """Answer once more."""
        ...


class Forgetful:
    """A device that randomises its answer anew each time."""

    def __init__(
        self,
        mechanism: Mechanism,  # what it runs
        value: int,  # its answer
    ) -> None:
        self._mechanism, self._value = mechanism, value

    def report(self) -> bytes:
        """Randomise the answer."""
        return self._mechanism.randomize(self._value)


class Remembering:
    """A device that draws its row and its permanent response once, and reports this response each time."""

    def __init__(
        self,
        mechanism: Mechanism,  # the permanent mechanism that it runs
        value: int,  # its answer
    ) -> None:
        permanent = mechanism.in_two_steps
        if permanent is None:
            raise ParameterError("mechanism: choose a permanent one, whose response a device keeps", mechanism.name)
        self._mechanism, self._row = permanent, OS.below(permanent.layout.rows)
        self._response = permanent.respond_permanently(self._row, value, OS)

    def report(self) -> bytes:
        """Report the kept response, with fresh noise."""
        return self._mechanism.respond_instantly(self._row, self._response, OS)


class Losing:
    """A device that regularly loses what it keeps, and then draws its row and its permanent response again."""

    def __init__(
        self,
        mechanism: Mechanism,  # the permanent mechanism that it runs
        value: int,  # its answer
        every: int,  # reports between two losses, at least 1
    ) -> None:
        self._mechanism, self._value, self._every = mechanism, value, every
        self._reports = 0

    def report(self) -> bytes:
        """Report the present response, with fresh noise."""
        if self._reports % self._every == 0:
            self._device = Remembering(self._mechanism, self._value)
        self._reports += 1
        return self._device.report()
