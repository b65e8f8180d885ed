"""The sections of what is proved, claimed and not claimed, and of the risks that remain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable_server.privacy.document import Points, Section, Table, Text
from deniable_server.privacy.words import plural, precise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable_server.privacy.document import Block
    from deniable_server.privacy.proofs import Proved

__all__ = ["claims", "risks"]

_CLAIMED = (
    (
        "One report.",
        (
            "Against everybody outside the device, the server and its operator included: whatever two answers one "
            "compares, a report is at most e^epsilon times as likely under one as under the other."
        ),
    ),
    (
        "All reports of one answer,",
        (
            "where the metric declares epsilon_permanent: together they tell no more than that, however many there are, "
            "and from several kept answers no more than the sum, between histories that change, and return to an earlier "
            "answer, at the same times."
        ),
    ),
    ("All metrics together", "stay within the budget, which the device itself enforces."),
    (
        "Silence, size and time",
        (
            "say nothing about the answer: reports of a metric have one size, sampling is drawn before the answer is "
            "looked at, and uploads are batched by number and never by content."
        ),
    ),
    ("What is published", "has the guarantees of the section on small groups, and no others."),
)

_NOT_CLAIMED = (
    ("Shuffling.", "The server sees who sends, so nothing here counts on reports being mixed, and no epsilon is smaller for it."),
    ("Sampling.", "The server sees who reports, so no epsilon is smaller where only a share of the answers is recorded."),
    ("Anonymity.", "Whoever operates the server can see that a device of this app sends, and when."),
    ("That an answer changed.", "Kept responses do not hide that it did, nor when, nor a return to an earlier answer."),
    ("Whether the law is complied with.", "This document states facts about software; it is no legal advice."),
)

_RISKS = (
    (
        "Metadata.",
        (
            "While an upload comes, the server and whatever stands before it see its address, its time, which metrics it "
            "has, how many reports, and their segments. None of the address is stored, but a changed server could keep it."
        ),
    ),
    (
        "Rows.",
        (
            "A metric with kept responses may have rows (cohorts, hash functions): a device's row stays the same and is "
            "part of its reports, so it links them, to as many devices as share the row."
        ),
    ),
    (
        "Budgets are refilled.",
        (
            "The window slides, and a device goes on telling. What was told is told; over a lifetime the lifetime's bound "
            "holds, and it is large for anybody who must not be guessed."
        ),
    ),
    ("A spent budget shows.", "When a device falls silent on some metrics, the server can notice that its budget is spent."),
    (
        "Small groups and outliers.",
        (
            "What is published rests on enough reports, but who knows most members of a group knows more about the rest. "
            "Segments are sent in the clear with every report."
        ),
    ),
    (
        "Agreement.",
        (
            "If all but all members of a group give one answer, the estimate tells it of each of them. And what is true of "
            "a population is learned of those, too, who never took part."
        ),
    ),
    (
        "Made-up reports.",
        (
            "Anybody can send reports, since the ingest key is public. Local privacy makes that easier and not harder; "
            "alarms tell of some attacks and not of all. Decisions should not rest on estimates that somebody has an "
            "interest to forge."
        ),
    ),
    (
        "A lost or copied state.",
        (
            "A new installation, a removed directory or a copied device is a new device with a new budget and new noise; "
            "with the old reports it tells more than one device would."
        ),
    ),
    (
        "The device and the app.",
        "The app sees the raw answer. Whoever controls the device, or another program of its user, is outside.",
    ),
    (
        "Several reports of one person.",
        "Devices of a person or a household add up, and whoever knows that they belong together gains from all of them.",
    ),
    ("The operating system's generator.", "All of it rests on its being random."),
)


def claims(proved: Sequence[Proved] | None) -> Section:
    """Write what is proved, claimed and not claimed; None where no proof was asked for."""
    return Section("claims", "What is proved, what is claimed and what is not", tuple(_claims(proved)))


def _claims(proved: Sequence[Proved] | None) -> Iterator[Block]:
    yield Text(
        "A mechanism is proved by walking every draw that it can make, with exact fractions: the worst ratio of any two "
        "answers' probabilities is compared with the one declared. Probabilities are ratios of integers, and code that "
        "runs on devices is the code that is walked."
    )
    if proved is None:
        yield Text("No proof was run for this report. Make it with --prove, or run 'deniable prove' yourself.")
    else:
        rows = tuple(_proof(each) for each in proved)
        heads = ("Metric", "walked", "payloads", "exact epsilon (nats)", "of all reports of an answer", "outcome")
        yield Table("Proofs by enumeration, run for this report", heads, rows, frozenset({2, 3, 4}))
    yield Text("Claimed:")
    yield Points(_CLAIMED)
    yield Text("Not claimed:")
    yield Points(_NOT_CLAIMED)


def _proof(each: Proved) -> tuple[str, ...]:
    proof = each.proof
    if proof is None:
        return each.metric, "-", "-", "-", "-", "not run: it has too many draws to be walked here, also with few answers"
    what = f"{proof.name}, {plural(proof.domain_size, 'answer')}"
    whole = "its own mechanism" if each.own else "the same mechanism with fewer answers, its own having too many draws"
    permanent = "-" if proof.permanent is None else precise(proof.epsilon_permanent)
    outcome = "proved" if proof.holds else f"NOT PROVED: {'; '.join(proof.faults)}"
    return each.metric, f"{what}: {whole}", f"{proof.outputs:,}", precise(proof.epsilon), permanent, outcome


def risks() -> Section:
    """Write which risks remain."""
    words = "What no setting of this software takes away. Whether these are acceptable is for the controller to say."
    return Section("risks", "Risks that remain", (Text(words), Points(_RISKS)))
