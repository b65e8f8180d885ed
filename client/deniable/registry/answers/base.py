"""What every type of metrics answers for; see `types`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.registry.answers import domain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from deniable.registry.answers.domain import Broken
    from deniable.registry.metric import Metric, Value
    from deniable.source import Source

_LISTED = 20  # answers that a message lists at most


class Type:
    """A type of metrics. Of this one an answer is one of the values that are listed; the others override what differs."""

    name: str
    faults: Callable[[dict[str, Any]], Iterator[Broken]] = staticmethod(domain.listed_faults)  # of the table, about its answers
    members: tuple[str, ...] = ()  # keys of a metric's table that only some types have
    decimals: tuple[str, ...] = ()  # those of them that are a number, kept as it is written
    open = False  # whether there are too many possible answers for a list
    ordered = False  # whether the listed values have an order
    ranked = True  # whether people see the most frequent values first, not in the order of the registry
    clipped = ""  # how an answer is reported as another one that is allowed, as in `messages.reasons.INSTEAD`; empty if none is
    options = False  # whether an answer has any of the values, none to all: then their shares need not sum to 1
    noun = "value"  # what one of the values is called
    expected = "one of the {metric.domain_size} declared values"  # what an app records
    written = ""  # what a person writes, if not one of the values
    between = ", "  # what stands between answers in a list of them
    answers = "one of these answers"  # for people who see the values beside it

    def values(self, table: Mapping[str, Any]) -> tuple[Value, ...]:
        """Return the values that a table without faults declares, in the order of the domain."""
        return tuple(table.get("values", ()))

    def derived(self, metric: Metric) -> dict[str, object]:
        """Return the fields of a metric that follow from others."""
        return {}

    def size(self, metric: Metric) -> int:
        """Return the number of possible answers."""
        return len(metric.values)

    def estimated(self, metric: Metric) -> int:
        """Return of how many values shares are estimated, if all are listed."""
        return self.size(metric)

    def position(self, metric: Metric, answer: object) -> int:
        """Return the position of an answer; see `Metric.position`."""
        value: Any = metric.none if answer is None else answer
        # The type is checked first: as keys of a dict True == 1 == 1.0, and an object of the host app must not be hashed.
        # A longer text than any declared one is not hashed, since that takes as long as it is.
        if type(value) is type(metric.values[0]) and (type(value) is not str or len(value) <= metric.longest):
            position = metric.positions.get(value)
            if position is not None:
                return position
        raise self.refusal(metric, value)

    def refusal(self, metric: Metric, answer: object) -> ParameterError:
        """Return the error of what is no answer. It does not repeat it."""
        expected = self.expected.format(metric=metric, factors=", ".join(name for name, _ in metric.factors))
        kind = type(answer).__name__
        return ParameterError(f"an answer to {metric.id} must be {expected}", kind, f"an undeclared {kind}")

    def stand_in(self, metric: Metric, source: Source) -> int:
        """Return the position of what is reported for an undeclared answer; see `Metric.stand_in`."""
        return source.below(self.size(metric)) if metric.other is None else metric.positions[metric.other]

    def reported(self, metric: Metric, answer: object) -> tuple[int | None, ParameterError | None]:
        """Return the position that a device reports for an answer, None for `stand_in`; and the error if it is undeclared."""
        try:
            return self.position(metric, answer), None
        except ParameterError as error:
            return None, error

    def clips(self, metric: Metric, answer: object) -> bool:
        """Return whether an answer is reported as another one that is allowed; see `Metric.clips`."""
        return False

    def value(self, metric: Metric, position: int) -> Value:
        """Return what a position stands for; see `Metric.value`."""
        return metric.values[position]

    def parse(self, written: str) -> object:
        """Read an answer that a person wrote. What is none stays a text, which `position` refuses."""
        return written

    def candidate(self, metric: Metric, line: str) -> int:
        """Read a line of a file of candidates, as a position; raise `ParameterError` if no device reports it as it is."""
        return self.position(metric, self.parse(line))

    def allowed(self, metric: Metric, rule: str) -> str:
        """Say what an answer is as `parse` reads it, with the answers or the first of many; `rule` is that of the refusal."""
        if self.written:
            return f"an answer to {metric.id} must be {self.written.format(metric=metric)}"
        listed = [",".join(value) if isinstance(value, tuple) else str(value) for value in metric.values[:_LISTED]]
        if len(metric.values) > _LISTED:
            listed.append(f"and {len(metric.values) - _LISTED} more")
        return f"{rule}: {self.between.join(listed)}"

    def described(self, metric: Metric) -> str:
        """Say what an answer is, to people who see the values beside it."""
        return self.answers.format(metric=metric)

    def example(self, metric: Metric) -> str:
        """Return an answer as an app's code has it; an ellipsis where each app has its own."""
        return "…"

    def mechanism(self, metric: Metric) -> str:
        """Return the only mechanism that fits a metric; empty if there is a choice."""
        return ""
