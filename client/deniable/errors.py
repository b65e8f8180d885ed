"""Everything that deniable raises, as one tree.

DeniableError
├── ParameterError        a parameter breaks a rule (also a ValueError)
├── RegistryError         a metrics.toml has faults; has the list of them (also a ValueError)
│   └── ServedRegistryError   one from a server is not signed, is outdated, or is written in another form
├── PayloadError          bytes that no device could have sent (also a ValueError)
├── ConfigurationError    a DSN, setting or environment variable is unusable (also a ValueError)
└── StateError            the state of a device is missing, damaged or cannot be written

Messages say what is wrong, with the value, and what to do. If an answer cannot be recorded, the message names its metric.
None contains a raw answer, but that of an undeclared one in strict mode, which is for development.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.frozen import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ConfigurationError",
    "DeniableError",
    "Fault",
    "ParameterError",
    "PayloadError",
    "RegistryError",
    "ServedRegistryError",
    "StateError",
    "without_locals",
]


_IN_SUBJECT = " _.@()-"  # beside letters and digits
_LONGEST = 200  # characters of a value in a message


def sentence(rule: str, value: object) -> str:
    """Say first what is wrong, and then what must hold or what to write.

    A rule that names what it is about, such as ``period: write day or week``, becomes ``period = 'year': write day or week``,
    or ``period is missing: write day or week`` for None. Any other rule follows the value. Without a value it says all.
    """
    if value is ...:
        return rule
    subject, colon, mended = rule.partition(": ")
    written = str(value).lower() if isinstance(value, bool) else repr(value)  # as TOML has it
    if len(written) > _LONGEST:
        written = f"{written[:_LONGEST]}..."
    if colon and all(char.isalnum() or char in _IN_SUBJECT for char in subject):
        return f"{f'{subject} is missing' if value is None else f'{subject} = {written}'}: {mended}"
    return f"{written}: {rule}"


class DeniableError(Exception):
    """Base of all errors raised by deniable. They can be pickled, so that other processes can hand them on."""

    def __reduce__(self) -> tuple[object, ...]:
        """Return how a copy is made: with the same message and attributes."""
        return _copied, (type(self), self.args, self.__dict__)


def _copied(kind: type[DeniableError], arguments: tuple[object, ...], attributes: dict[str, object]) -> DeniableError:
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


class ParameterError(DeniableError, ValueError):
    """A parameter breaks a rule.

    Parameters
    ----------
    rule
        What to write, such as ``period: write day or week``. The message puts the value into it.
    value
        What was given instead. Without one the rule says all.
    got
        The value in words, where it must not be repeated.
    """

    def __init__(self, rule: str, value: object = ..., got: str = "") -> None:
        super().__init__(f"{rule}; this is {got}" if got else sentence(rule, value))
        self.rule = rule
        self.value = value


class PayloadError(DeniableError, ValueError):
    """A payload that does not fit its layout.

    Parameters
    ----------
    code
        Stable code, e.g. ``"payload_length"``.
    detail
        The rule and what broke it.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class ConfigurationError(DeniableError, ValueError):
    """A DSN, setting or environment variable is unusable."""


class StateError(DeniableError):
    """The state of a device (ledger, permanent responses) is missing, damaged or cannot be written. Nothing may be recorded."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a registry file.

    Parameters
    ----------
    file
        The file.
    metric
        The metric concerned, or ``"-"`` for the file as a whole.
    rule
        What to write, such as ``period: write day or week``.
    value
        The value in the file; None if it is missing. Without one the rule says all.
    line
        Its line; 0 if unknown.
    """

    file: str
    metric: str
    rule: str
    value: object = ...
    line: int = field(default=0, compare=False)

    def __str__(self) -> str:
        where = f"{self.file}{f':{self.line}' if self.line else ''}"
        return f"{where}: {'' if self.metric == '-' else f'{self.metric}: '}{self.words}"

    @property
    def words(self) -> str:
        """What is wrong and what to do, without the place."""
        return sentence(self.rule, self.value)


class RegistryError(DeniableError, ValueError):
    """A registry file has faults.

    Parameters
    ----------
    faults
        Every fault found, in the order of the file.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults: tuple[Fault, ...] = tuple(faults)


class ServedRegistryError(RegistryError):
    """A registry from a server must not be used: it is not signed, is outdated, or is written in another form."""


def without_locals(error: BaseException) -> BaseException:
    """Clear the local variables in the traceback of an error, and of the errors that caused it.

    An app may log these variables, and one may hold an answer. The lines of the traceback stay.
    """
    from traceback import clear_frames  # noqa: PLC0415 - slow to import, and only strict clients raise

    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        current = left.pop()
        if current is not None and id(current) not in seen:
            seen.add(id(current))
            clear_frames(current.__traceback__)
            left += [current.__cause__, current.__context__]
    return error
