"""An explanation of what a metric sends, for users."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.limits.allowance import MICRO, Allowance
from deniable.limits.exposure import Exposure
from deniable.mechanisms.permanent import Permanent

if TYPE_CHECKING:
    from deniable.registry import Registry
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
        Privacy loss of one report, in nats.
    epsilon_permanent
        Privacy loss of all reports of one permanent response together, in nats. None if no response is kept; then each report
        adds its own loss.
    answers_per_window
        Most permanent responses that are reported in a window of the budget; 0 if none is kept.
    window
        Days of that window.
    reserved_window, reserved_lifetime
        What the metric may spend in any window, and ever, in nats. `reserved_lifetime` is None if there is no bound.
    per_period, period
        Most reports in a period, and the length of a period.
    sample
        Share of answers that are recorded, in (0, 1].
    p, q
        Probability that a report supports the true answer, and that it supports a given other one.
    report_bytes
        Size of every report.
    row_bits, segment_bits
        Exposure of all metrics together, in bits: by the rows of permanent responses, and by segments.
    report
        An example of a report, in hexadecimal; None if no answer was given.
    """

    metric: str
    description: str
    mechanism: str
    summary: str
    epsilon: float
    epsilon_permanent: float | None
    answers_per_window: int
    window: float
    reserved_window: float
    reserved_lifetime: float | None
    per_period: int
    period: str
    sample: float
    p: float
    q: float
    report_bytes: int
    row_bits: float
    segment_bits: float
    report: str | None

    @classmethod
    def of(cls, registry: Registry, id_: str, budget: Budget, value: object = None) -> Explanation:
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

        Raises
        ------
        ParameterError
            If the metric is not declared, or the answer is not. The message does not repeat the answer.
        """
        metric = registry.metrics.get(id_)
        if metric is None:
            raise ParameterError("a metric is declared in the registry", id_)
        mechanism = mechanisms.of(metric)
        allowance, exposure = Allowance.of(metric, mechanism, budget), Exposure.of(registry)
        return cls(
            metric=metric.id,
            description=metric.description,
            mechanism=mechanism.name,
            summary=mechanism.summary,
            epsilon=mechanism.epsilon,
            epsilon_permanent=mechanism.epsilon_permanent if metric.kept and isinstance(mechanism, Permanent) else None,
            answers_per_window=allowance.answers,
            window=budget.window,
            reserved_window=allowance.window / MICRO,
            reserved_lifetime=None if allowance.lifetime is None else allowance.lifetime / MICRO,
            per_period=metric.per_period,
            period=metric.period,
            sample=float(metric.sample),
            p=float(mechanism.p),
            q=float(mechanism.q),
            report_bytes=mechanism.layout.payload_size,
            row_bits=exposure.row_bits,
            segment_bits=exposure.segment_bits,
            report=None if value is None else mechanism.randomize(metric.position(value)).hex(),
        )

    def __str__(self) -> str:
        times = "once" if self.per_period == 1 else f"at most {self.per_period} times"
        lines = [
            f"{self.metric}: {self.description}",
            f"How it is randomised on this device: {self.summary} ({self.mechanism}).",
            f"A report points to the true answer with probability {self.p:.3f}, and to any given other one with {self.q:.3f}.",
            f"Whoever sees it can raise the odds between two answers {_odds(self.epsilon)}.",
            f"It is reported {times} a {self.period}.",
        ]
        if self.epsilon_permanent is None:
            lines.append("Every report adds to that.")
        else:
            lines.append(
                "A noisy answer is kept, and every report is a noisy copy of it: whoever sees all reports of one answer, "
                f"however many, can raise the odds {_odds(self.epsilon_permanent)}. That the answer has changed, and that it has "
                f"returned to an earlier one, may show. In {self.window:g} days at most {self.answers_per_window} different "
                "answers are reported; after that the last one is reported again."
            )
        ever = "" if self.reserved_lifetime is None else f", and {self.reserved_lifetime:.4g} nats ever"
        lines.append(f"It may spend {self.reserved_window:.4g} nats in any {self.window:g} days{ever}, and no more.")
        if self.sample < 1:
            lines.append(f"Only a share of {self.sample:g} of the answers, drawn at random, is recorded at all.")
        size = f"{self.report_bytes} byte{'s' * (self.report_bytes != 1)}"
        lines.append(f"Every report has {size}, whatever the answer.")
        if self.row_bits or self.segment_bits:
            lines.append(
                f"Besides answers, the reports of all metrics show {self.row_bits:.1f} bits of which device it is (rows), "
                f"and {self.segment_bits:.1f} bits of what kind it is (segments)."
            )
        if self.report is not None:
            lines.append(f"It might look like this: {self.report}")
        return "\n".join(lines)


def _odds(epsilon: float) -> str:
    return f"at most {exp(epsilon):.3g} times (epsilon {epsilon:.4g})"
