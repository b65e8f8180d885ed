"""What would be sent, in words a user can read."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric

__all__ = ["Explanation"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What recording a metric sends, and what that gives away.

    Parameters
    ----------
    metric
        The metric's id.
    description
        What is asked, from the registry.
    mechanism
        The mechanism's name.
    epsilon
        Privacy loss of one report, in nats.
    p, q
        Probability that a report points to the true answer, and that it points to a given other one.
    report_bytes
        Size of every report.
    sample
        A report as it might be sent, in hexadecimal; None where no answer was given.
    """

    metric: str
    description: str
    mechanism: str
    summary: str
    epsilon: float
    p: float
    q: float
    report_bytes: int
    sample: str | None

    @classmethod
    def of(cls, metric: Metric, mechanism: Mechanism, value: object = None) -> Explanation:
        """Explain a metric, with a sample report when an answer is given."""
        return cls(
            metric=metric.id,
            description=metric.description,
            mechanism=mechanism.name,
            summary=mechanism.summary,
            epsilon=mechanism.epsilon,
            p=float(mechanism.p),
            q=float(mechanism.q),
            report_bytes=mechanism.layout.payload_size,
            sample=None if value is None else mechanism.randomize(metric.position(value)).hex(),
        )

    def __str__(self) -> str:
        odds = exp(self.epsilon)
        lines = [
            f"{self.metric}: {self.description}",
            f"How it is randomised on this device: {self.summary} ({self.mechanism}).",
            f"A report points to the true answer with probability {self.p:.3f}, and to any given other one with {self.q:.3f}.",
            f"Whoever sees it can raise the odds between two answers at most {odds:.3g} times (epsilon {self.epsilon:.4g}).",
            f"Every report has {self.report_bytes} bytes, whatever the answer.",
        ]
        if self.sample is not None:
            lines.append(f"It might look like this: {self.sample}")
        return "\n".join(lines)
