"""All that is kept of people's reports and of those who read them: what, where, and for how long.

This is the one place where it is listed. A test runs a service, looks at every key that its store then has, and finds each of
them here, and none of these missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

__all__ = ["DEVICE", "SERVERS", "STORE", "Kept", "find"]


@dataclass(frozen=True, slots=True)
class Kept:
    """One kind of thing that is kept.

    Parameters
    ----------
    name
        Of a key of the store, with a star for what differs; ``{app}`` stands for the app. Elsewhere a name in words.
    what
        What it says.
    until
        How long it is kept; ``{tallies}``, ``{releases}`` and ``{alarms}`` stand for the days of `Retention`. What is of a metric
        goes before that if the metric is erased.
    """

    name: str
    what: str
    until: str


_HANDED = "until it is counted: seconds as a rule; its trace in the store's append-only file within an hour more"
_EXACT = "{tallies} days after its period has closed, once it is published; {releases} days if too few reports come"
_PUBLISHED = "{releases} days after its period has closed"
_FOR_GOOD = "for good"
_WINDOW = "until the window of the limit ends: a minute by default, a day at most"

STORE = (
    Kept("{app}:reports", "batches that wait to be counted: randomised reports, under the hour in which they came", _HANDED),
    Kept(
        "{app}:dead",
        "batches that could not be counted (randomised reports), with the reason",
        "{tallies} days, or until an operator has them counted or purges them; at most some 10,000",
    ),
    Kept("{app}:seen:secret", "32 random bytes, the key of the digests of Idempotency-Keys", _FOR_GOOD),
    Kept(
        "{app}:seen:*",
        (
            "of an upload, under its day: a keyed hash of its Idempotency-Key, eight bytes of a hash of its bytes and that key, "
            "and how many of its reports were accepted and rejected"
        ),
        "72 hours (DENIABLE_IDEMPOTENCY_TTL), rounded up to the day; less where the store has no room",
    ),
    Kept("{app}:tally:*", "exact sums of randomised reports by metric, period and segment", _EXACT),
    Kept("{app}:tallies:*", "which sums there are, with the hour in which each was last added to", _EXACT),
    Kept("{app}:weights:*", "how many reports set how many bits, by metric, period and segment", _EXACT),
    Kept(
        "{app}:snapshot:*",
        "of a period that may be published before it closes: its exact sums as they were, which are published next",
        "until the period closes and is published",
    ),
    Kept("{app}:release:*", "what was published: sums of enough reports each", _PUBLISHED),
    Kept("{app}:releases:*", "which releases there are, of how many reports, and the hour of each", _PUBLISHED),
    Kept("{app}:published", "how many reports of each metric were published, up to which period, and the last hour", _FOR_GOOD),
    Kept("{app}:answers:*", "questions about withheld cells and the noisy answers that they got", _PUBLISHED),
    Kept("{app}:spent", "by month, what all keys and what each key has spent on questions about its reports", _FOR_GOOD),
    Kept(
        "{app}:alarms",
        "alarms of made-up reports, by version of a metric: numbers to two digits",
        "{alarms} days after their period has closed",
    ),
    Kept("{app}:refused:*", "how many reports were refused on a day, by metric and reason", "7 days after the last of them"),
    Kept("{app}:watched", "when made-up reports were last looked for", "until the next look"),
    Kept(
        "{app}:staged:*",
        "sums on their way into the above, where these are too large for one step",
        "for seconds; an hour at most",
    ),
    Kept("{app}:redo", "how many commits were made in pieces", _FOR_GOOD),
    Kept("{app}:faults", "what fails of a worker's chores, by metric, with the kind of error", "until it passes; two hours"),
    Kept("{app}:metrics", "names of the metrics that any registry of a worker had", "until the metric is erased"),
    Kept("{app}:expired", "by definition of a metric, the last period whose sums were deleted", _FOR_GOOD),
    Kept("{app}:erased", "digests of the metrics that were erased, so that nothing of them is counted again", _FOR_GOOD),
    Kept("{app}:workers", "names of processes that count, with their last sign of life", "for a minute after the last one"),
    Kept("{app}:caught", "up to when everything is counted", "until the next time"),
    Kept("{app}:keys", "SHA-256 of each key, its role, name and the day it was made", "until the key is revoked"),
    Kept("{app}:keys:used", "the day on which each key was last used", "until the key is revoked"),
    Kept(
        "{app}:audit",
        "what operators did and analysts asked, with the time to the second and the id of the key; nothing of devices",
        "until it is moved to files ('deniable audit-log rotate')",
    ),
    Kept("{app}:audit:served", "digest of the registry that is served", "until another one is served"),
    Kept("{app}:rate:key:*", "how often a key was used in this window, and how many bytes its uploads took", _WINDOW),
    Kept(
        "{app}:rate:source:*",
        "how often a source sent, and how many bytes, under 20 bits of an HMAC of its address with the key of the day",
        _WINDOW,
    ),
    Kept("{deniable}:rate:source:*", "the same, of requests without a good key", _WINDOW),
    Kept("{deniable}:rate:login:*", "the same, of attempts to sign in", _WINDOW),
    Kept("{app}:session:*", "which key signed in to the dashboard, under a hash of the session's number", "twelve hours"),
    Kept("{deniable}:session:secret", "32 random bytes that the dashboard's cookies are signed with", _FOR_GOOD),
    Kept("{deniable}:source:*", "the key of the day, drawn at random", "until five minutes after midnight (UTC)"),
)
"""In the store, by key."""

SERVERS = (
    Kept(
        "the store's append-only file",
        (
            "all that is written to the store, so that it survives a crash; batches already counted, too, with the "
            "millisecond at which a process was handed them, until it is rewritten"
        ),
        "rewritten at least every hour, while a worker runs",
    ),
    Kept(
        "files of the audit log",
        "entries that were moved out of the store",
        "as the operator says ('deniable audit-log rotate --retain DAYS'); for ever without it",
    ),
    Kept(
        "logs of the processes",
        "no address, key, header or content at any level; at level info one line for each request, with its time",
        "as the operator's system keeps them",
    ),
    Kept("backups", "whatever the operator copies of the above", "not known to this software"),
)
"""On servers, outside the store."""

DEVICE = (
    Kept("permanent responses", "a noisy answer for each answer given to a metric that keeps them, under a digest", "for good"),
    Kept("ledger", "what was spent, in any window and ever", "for good; single spends for 400 days at least"),
    Kept("row", "the cohort, hash function or set of buckets that the device uses for a metric", "for good"),
    Kept(
        "journal",
        "the last 1,000 reports sent, as they were sent, for the person to look at",
        "until newer ones take their place",
    ),
    Kept("spool", "batches that could not be sent yet", "48 hours, or 5 MB, whatever comes first"),
    Kept("registry", "the last one that the server handed out, with its signature", "until a newer one comes"),
)
"""On the device, in a directory that only its owner may read: everything but the spool and the registry in one file."""


def find(key: str, app: str) -> Kept | None:
    """Find what a key of the store is, or None for one that is not listed.

    Parameters
    ----------
    key
        As the store has it.
    app
        Whose store is looked at.
    """
    for kept in STORE:
        prefix, _, rest = kept.name.partition(":")
        tag, _, name = key.partition(":")
        if tag == prefix.replace("{app}", f"{{{app}}}") and fnmatchcase(name, rest):
            return kept
    return None
