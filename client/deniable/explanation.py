"""An explanation of what a metric sends, for users."""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

from deniable.declared import Declared
from deniable.device.journal import in_words
from deniable.errors import ParameterError
from deniable.evidence import report_names
from deniable.frozen import dataclass
from deniable.limits.allowance import MICRO, Allowance
from deniable.limits.exposure import Exposure
from deniable.registry import text
from deniable.registry.answers.axis import BINS
from deniable.registry.answers.number import plain
from deniable.registry.period import MOST_IN_MONTH
from deniable.source import OS

if TYPE_CHECKING:
    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric, Registry
    from deniable.registry.relay import Shuffled
    from deniable.registry.tables import Budget

__all__ = ["Explanation"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What recording a metric sends, and what a report reveals.

    Parameters
    ----------
    metric
        The metric's id.
    description
        What is asked, from the registry.
    mechanism
        The mechanism's name.
    summary
        What it does, in words.
    epsilon
        Privacy loss of one report at most, in nats, as the registry declares it.
    epsilon_permanent
        Privacy loss of all reports of one permanent response together at most, in nats, as declared. None if no response is kept;
        then each report adds its own loss.
    answers_per_month
        Most permanent responses that are reported in a calendar month; 0 if none is kept.
    reserved_month, reserved_lifetime
        What the metric may spend in a calendar month, and ever, in nats. `reserved_lifetime` is None if there is no bound.
    budget_month
        What all metrics together may spend in a calendar month, in nats. None if there is no bound.
    per_period, period
        Most reports in a period, and the length of a period.
    sample
        Share of answers that are recorded, in (0, 1].
    delay
        For how long a report waits on the device at most, such as ``12h``; None if it may travel at once.
    shuffled
        What is claimed besides once a relay has mixed the reports; None if they go to the server as they are.
    relay
        Who runs the relay; empty if there is none.
    says
        What one report says of the answer, in a sentence.
    report_bytes
        Size of every report.
    row_bits, segment_bits
        Exposure of all metrics together, in bits: by the rows of permanent responses, and by segments.
    report
        An example of a report, in hexadecimal; None if no answer was given.
    report_names
        The answers that the example names, not always the true one; empty if it names none.
    beyond
        That the answer is a number beyond the range or too long a text, and what is reported in its place; else empty.
    """

    metric: str
    description: str
    mechanism: str
    summary: str
    epsilon: float
    epsilon_permanent: float | None
    answers_per_month: int
    reserved_month: float
    reserved_lifetime: float | None
    budget_month: float | None
    per_period: int
    period: str
    sample: float
    delay: str | None
    shuffled: Shuffled | None
    relay: str
    says: str
    report_bytes: int
    row_bits: float
    segment_bits: float
    report: str | None
    report_names: str
    beyond: str

    @classmethod
    def of(cls, registry: Registry, id_: str, budget: Budget, value: object = None, *, instead: bool = False) -> Explanation:
        """Explain a metric. If an answer is given, draw an example of a report.

        Parameters
        ----------
        registry
            The registry that declares it.
        id_
            The metric's id.
        budget
            The device's budget.
        value
            An answer; None for no example.
        instead
            Whether the example for an undeclared answer is what a device reports instead. Else such an answer is an error.

        Raises
        ------
        ParameterError
            If the metric is not declared, or the answer is not. The message does not repeat the answer.
        """
        metric = registry.metrics.get(id_)
        if metric is None:
            from deniable.messages.lookalike import did_you_mean  # noqa: PLC0415 - only a mistake needs it

            raise ParameterError(f"{id_!r} is not declared in the registry{did_you_mean(id_, registry.metrics)}")
        declared = Declared.of(metric)
        mechanism = declared.mechanism
        allowance, exposure = Allowance.of(declared, budget), Exposure.of(registry)
        report = None if value is None else mechanism.randomize(_value(metric, value, instead=instead))
        return cls(
            metric=metric.id,
            description=metric.description,
            mechanism=mechanism.name,
            summary=mechanism.summary,
            epsilon=float(metric.epsilon),
            epsilon_permanent=float(metric.epsilon_permanent) if metric.epsilon_permanent else None,
            answers_per_month=allowance.answers,
            reserved_month=allowance.month / MICRO,
            reserved_lifetime=None if allowance.lifetime is None else allowance.lifetime / MICRO,
            budget_month=budget.per_month,
            per_period=metric.per_period,
            period=metric.period,
            sample=float(metric.sample),
            delay=metric.delay,
            shuffled=metric.shuffled,
            relay=registry.relay.operator if registry.relay and metric.shuffled else "",
            says=_says(metric, mechanism),
            report_bytes=mechanism.layout.payload_size,
            row_bits=exposure.row_bits,
            segment_bits=exposure.segment_bits,
            report=None if report is None else report.hex(),
            report_names="" if report is None else report_names(declared, report),
            beyond=_beyond(metric, value),
        )

    def __str__(self) -> str:
        lines = [
            f"{self.metric}: {self.description}",
            f"Your answer is randomised on this device before it is sent, by {self.mechanism}: {self.summary}.",
            self.says,
            f"Anyone who sees one report can shift the odds between two answers {_odds(self.epsilon)}.",
            *([mixed(self.shuffled, self.relay)] if self.shuffled else []),
            *(self._repeated() if self.epsilon_permanent is None else self._permanent(self.epsilon_permanent)),
        ]
        if self.sample < 1:
            lines.append(f"Of all answers only {100 * self.sample:.4g}%, drawn at random, are reported at all.")
        if self.delay is not None:
            lines.append(
                f"A report waits on this device for a random time of up to {self.delay}, drawn before your answer is looked at, "
                "before it is sent."
            )
        sealed = "; sealed it is longer, always by as much" if self.shuffled else ""
        lines.append(f"Every report has {_number(self.report_bytes, 'byte')}, whatever the answer{sealed}.")
        lines += self._exposed()
        if self.report is not None:
            lines += [self.beyond] if self.beyond else []
            verb = "" if self.report_names else "is "
            lines.append(f"A report of this answer might look like this: it {verb}{in_words(self.report_names, self.report)}")
        return "\n".join(lines)

    def _repeated(self) -> list[str]:
        """Tell how often the metric is reported, and that the losses of independent reports add up."""
        ever = "" if self.reserved_lifetime is None else f", and all reports ever at most epsilon {self.reserved_lifetime:.4g}"
        most = MOST_IN_MONTH[self.period] * self.per_period
        return [
            f"At most {_number(self.per_period, 'report')} a {self.period}. Each is randomised anew, so their epsilons add up.",
            (
                f"In a calendar month there {'is' if most == 1 else 'are'} at most {_number(most, 'report')}, "
                f"with at most epsilon {self.reserved_month:.4g} together{self._of_budget()}{ever}. "
                "Beyond that nothing is reported."
            ),
        ]

    def _of_budget(self) -> str:
        """Say of how much that is a part: of what all answers to all questions may give away."""
        return "" if self.budget_month is None else f" (all questions together may have {self.budget_month:.4g})"

    def _permanent(self, epsilon: float) -> list[str]:
        """Tell what all reports of a kept response give away."""
        ever = "" if self.reserved_lifetime is None else f", and ever at most epsilon {self.reserved_lifetime:.4g}"
        return [
            f"At most {_number(self.per_period, 'report')} a {self.period}.",
            "A noisy answer is kept, and every report is a noisy copy of it.",
            f"Anyone who sees all reports of one answer, however many, can shift the odds {_odds(epsilon)}.",
            "Reports may show that your answer has changed, and that it has returned to an earlier one.",
            (
                f"In a calendar month at most {_number(self.answers_per_month, 'different answer')} "
                f"{'is' if self.answers_per_month == 1 else 'are'} reported, with at most epsilon {self.reserved_month:.4g} "
                f"together{self._of_budget()}{ever}. Beyond that the last one is reported again."
            ),
        ]

    def _exposed(self) -> list[str]:
        """Tell what reports show besides answers."""
        identifiers = []
        if self.row_bits:
            identifiers.append(f"which of {round(2**self.row_bits)} rows this device drew and keeps ({self.row_bits:.1f} bits)")
        if self.segment_bits:
            identifiers.append(
                f"which of {round(2**self.segment_bits)} kinds of device it is ({self.segment_bits:.1f} bits, segments)"
            )
        return [f"Besides answers, the reports of all metrics together show {' and '.join(identifiers)}."] if identifiers else []


def mixed(
    shuffled: Shuffled,
    operator: str,  # who runs the relay
    central: str = "",  # the epsilon to say; empty for the declared one
) -> str:
    """Say what is claimed of a report once a relay has mixed it. Say before what a report reveals alone."""
    odds, delta = _odds(float(central or shuffled.central)), f"{float(shuffled.delta):g}"
    return (
        f"It is sealed on this device, and {operator} mixes it with at least {shuffled.min - 1:,} others before the server can "
        f"open it. Then the server can shift the odds {odds}, but for a chance of {delta}. This needs that {operator} and the "
        "server do not work together, which nobody can check, and that so many of these reports are honest; what stands before "
        f"holds in any case."
    )


def _value(metric: Metric, answer: object, *, instead: bool) -> int:
    """Return the value that a device randomises for an answer; for a rounded one, with a fresh point."""
    if instead:
        reported, _ = metric.kind.reported(metric, answer)
        position = metric.stand_in(OS) if reported is None else reported
    else:
        position = metric.position(answer)
    return metric.round_at(position, OS.below(metric.axis.steps)) if metric.axis and metric.rounded else position


def _beyond(metric: Metric, answer: object) -> str:
    """Say what is reported in place of a number beyond the range, or of too long a text; empty of any other answer."""
    if isinstance(answer, str) and metric.open and metric.clips(answer):
        start = text.visible(text.fit(answer, metric.max_length))
        limit = _number(metric.max_length, "byte")
        return f"The text is longer than {limit}, so its beginning {start!r} is reported in its place."
    axis, number = metric.axis, plain(answer)
    if axis is None or number is None or axis.low <= number <= axis.high:
        return ""
    side, end = ("below", axis.low) if number < axis.low else ("above", axis.high)
    return f"{float(number):.12g} {metric.unit} is {side} the range, so {float(end):.12g} {metric.unit} is reported in its place."


def _says(metric: Metric, mechanism: Mechanism) -> str:
    """Tell what one report says, and what happens to the answer before."""
    beyond = f"Numbers beyond {' to '.join(metric.range)} {metric.unit} count as the nearer end. " if metric.axis else ""
    if metric.rounded:
        return beyond + (
            "Your number is rounded to one end of its range, at a point that this device drew once and tells nobody. "
            + mechanism.says.replace("your true answer", "this end").replace("any one wrong answer", "the other end")
        )
    first = f"Your number counts as one of {BINS} equal parts of its range. " if metric.binned else ""
    return beyond + first + mechanism.says


def _odds(epsilon: float) -> str:
    times = f"{exp(epsilon):.3g}"
    return f"at most {times} times (epsilon {epsilon:.4g}): even odds become {times} to 1"


def _number(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
