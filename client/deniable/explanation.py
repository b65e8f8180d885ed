"""What would be sent, in words a user can read."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING

from deniable.mechanisms.chain import Chain

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
    summary
        What it does, in words.
    epsilon
        Privacy loss of one report, in nats.
    epsilon_permanent
        Privacy loss of all reports of one answer together, in nats; None where reports are independent, and each adds its own.
    epsilon_lifetime
        Privacy loss of all reports ever, whatever the answers, in nats, between histories of answers that change at the same
        times: that an answer changed at all may show. None likewise.
    sample
        Share of answers that are recorded at all, in (0, 1].
    p, q
        Probability that a report points to the true answer, and that it points to a given other one.
    report_bytes
        Size of every report.
    report
        A report as it might be sent, in hexadecimal; None where no answer was given.
    """

    metric: str
    description: str
    mechanism: str
    summary: str
    epsilon: float
    epsilon_permanent: float | None
    epsilon_lifetime: float | None
    sample: float
    p: float
    q: float
    report_bytes: int
    report: str | None

    @classmethod
    def of(cls, metric: Metric, mechanism: Mechanism, value: object = None) -> Explanation:
        """Explain a metric, with an example of a report when an answer is given."""
        kept = metric.kept and isinstance(mechanism, Chain)
        permanent = mechanism.epsilon_permanent if kept and isinstance(mechanism, Chain) else None
        responses = mechanism.kept_responses if isinstance(mechanism, Chain) else 0
        return cls(
            metric=metric.id,
            description=metric.description,
            mechanism=mechanism.name,
            summary=mechanism.summary,
            epsilon=mechanism.epsilon,
            epsilon_permanent=permanent,
            epsilon_lifetime=None if permanent is None else responses * permanent,
            sample=float(metric.sample),
            p=float(mechanism.p),
            q=float(mechanism.q),
            report_bytes=mechanism.layout.payload_size,
            report=None if value is None else mechanism.randomize(metric.position(value)).hex(),
        )

    def __str__(self) -> str:
        lines = [
            f"{self.metric}: {self.description}",
            f"How it is randomised on this device: {self.summary} ({self.mechanism}).",
            f"A report points to the true answer with probability {self.p:.3f}, and to any given other one with {self.q:.3f}.",
            f"Whoever sees it can raise the odds between two answers {_odds(self.epsilon)}.",
        ]
        if self.epsilon_permanent is None:
            lines.append("Every report adds to that: this device counts them, and stops when its budget is spent.")
        else:
            lines.append(
                "It is asked again every period, and a noisy answer is kept for that: whoever sees all reports of one answer, "
                f"however many, can raise the odds {_odds(self.epsilon_permanent)}."
            )
        if self.sample < 1:
            lines.append(f"Only a share of {self.sample:g} of the answers, drawn at random, is recorded at all.")
        size = f"{self.report_bytes} byte{'s' * (self.report_bytes != 1)}"
        lines.append(f"Every report has {size}, whatever the answer.")
        if self.report is not None:
            lines.append(f"It might look like this: {self.report}")
        return "\n".join(lines)


def _odds(epsilon: float) -> str:
    return f"at most {exp(epsilon):.3g} times (epsilon {epsilon:.4g})"
