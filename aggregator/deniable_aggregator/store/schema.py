"""The keys of the store: their names, what they contain, and how long.

No other module writes the name of a key. Documents that list keys read them here. A test runs a service, and compares all keys in
its store with this list, in both directions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class StorageRule:
    """Something that is stored: what it is, and for how long."""

    name: str  # Of a key of the store, with a star for what differs; `{app}` stands for the app. Elsewhere a name in words.
    what: str  # what it contains
    # How long it is stored; `{tallies}`, `{releases}` and `{alarms}` stand for the days of `Retention`. Data of a metric are
    # deleted earlier if the metric is erased.
    until: str


class Key(StorageRule):
    """A kind of key of the store."""

    # Keys of an app share a hash tag, so that one script may use them on a Redis Cluster, too. If an app has several partitions,
    # those of each share one of their own, such as ``{shop#2}``.

    __slots__ = ()

    def of(
        self,
        *parts: str,  # the app or a partition, if the key has one, then a text for each star
    ) -> str:
        """Write a key."""
        return self.name.replace("{app}", "{%s}").replace("*", "%s") % parts

    def names(self, key: str, app: str = "*") -> bool:
        """Return whether a key is of this kind, and of an app or one of its partitions."""
        return fnmatchcase(_PARTITION.sub(r"\1}", key), self.name.replace("{app}", f"{{{app}}}"))


_PARTITION = re.compile(r"^({[^}#]*)#[0-9a-f]+}")
_HANDED = "until it is counted, usually for seconds; in the store's append-only file up to an hour longer"
_EXACT = "{tallies} days after its period has closed, once it is published; {releases} days if too few reports come"
_PUBLISHED = "{releases} days after its period has closed"
_FOR_GOOD = "for good"
_WINDOW = "until the window of the limit ends: a minute by default, a day at most"

PARTITIONS = Key("{app}:partitions", "the number of the app's partitions", _FOR_GOOD)
REPORTS = Key("{app}:reports", "batches that wait to be counted: randomised reports, under the hour in which they came", _HANDED)
DEAD = Key(
    "{app}:dead",
    "batches that could not be counted (randomised reports), with the reason",
    "{tallies} days, or until an operator has them counted or purges them; at most some 10,000",
)
SEEN_SECRET = Key("{app}:seen:secret", "32 random bytes, the key of the digests of Idempotency-Keys", _FOR_GOOD)
SEEN_HOUR = Key("{app}:seen:hour", "the last hour in which an upload was accepted", _FOR_GOOD)
SEEN = Key(
    "{app}:seen:*",
    (
        "of an upload, under its day: a keyed hash of its Idempotency-Key, eight bytes of a hash of its bytes and that key, "
        "and how many of its reports were accepted and rejected"
    ),
    "72 hours (DENIABLE_IDEMPOTENCY_TTL), rounded up to the day; less if the store has no room",
)
OPENED = Key(
    "{app}:opened:*",
    "64 bits of a hash of each sealed report from a relay",
    "until the day after its period has closed",
)
TALLY = Key("{app}:tally:*", "exact sums of randomised reports by metric, period and segment", _EXACT)
TALLIES = Key("{app}:tallies:*", "which sums there are, with the hour in which each was last added to", _EXACT)
WEIGHTS = Key("{app}:weights:*", "how many reports set how many bits, by metric, period and segment", _EXACT)
COPY = Key(
    "{app}:copy:*",
    "exact sums of a period that still takes reports, after the last full hour: what administrators see",
    "until the next copy, or until the period is over",
)
COPIES = Key("{app}:copies:*", "which copies there are, with the hour of each", _EXACT)
COPIED = Key("{app}:copied", "that sums were copied in this hour", "until the next full hour, or the one after")
COPIED_AT = Key(
    "{app}:copied:at",
    "when sums were copied, when they will be next, and of how many reports",
    "until the next copy",
)
ARCHIVE = Key("{app}:archive", "a random number, the name of its folder in the archive, if there is one", _FOR_GOOD)
ARCHIVED = Key("{app}:archived:*", "random names of the archive's files, by metric, period and segment", _EXACT)
RECOUNTED = Key(
    "{app}:recounted",
    "when the archive was last counted again, of how many periods and segments, and how many differ",
    "until the next recount",
)
SNAPSHOT = Key(
    "{app}:snapshot:*",
    "of a period that may be published before it closes: its exact sums as they were, which are published next",
    "until the period closes and is published",
)
RELEASE = Key("{app}:release:*", "what was published: sums of enough reports each", _PUBLISHED)
RELEASES = Key("{app}:releases:*", "which releases there are, of how many reports, and the hour of each", _PUBLISHED)
PUBLISHED = Key(
    "{app}:published", "how many reports of each metric were published, up to which period, and the last hour", _FOR_GOOD
)
ANSWERS = Key("{app}:answers:*", "questions about withheld cells and the noisy answers that they got", _PUBLISHED)
SPENT = Key("{app}:spent", "by month, what all keys and what each key has spent on questions about its reports", _FOR_GOOD)
ALARMS = Key(
    "{app}:alarms",
    "alarms of made-up reports, by version of a metric: numbers to two digits",
    "{alarms} days after their period has closed",
)
REFUSED_HOURS = Key("{app}:refused:hours", "first and last hour of refusals, by metric and reason", "7 days after the last")
REFUSED = Key(
    "{app}:refused:*",
    "how many reports were refused on a day, by metric, reason, and the version and definition that they were made for",
    "7 days after the last",
)
LATEST = Key("{app}:latest", "in a trial: the last ten reports (randomised) and their times", "an hour")
REFUSALS = Key("{app}:refusals", "the same of all 7 days, as it was after the last full hour", "until the next hour")
WATCHED = Key("{app}:watched", "when made-up reports were last looked for", "until the next look")
STAGED = Key(
    "{app}:staged:*",
    "sums on their way into the above, where these are too large for one step",
    "for seconds; an hour at most",
)
REDO = Key("{app}:redo", "how many commits were made in pieces", _FOR_GOOD)
FAULTS = Key("{app}:faults", "chores of workers that fail, by metric, with the type of error", "until it passes; two hours")
METRICS = Key("{app}:metrics", "names of the metrics that any registry of a worker had", "until the metric is erased")
EXPIRED = Key("{app}:expired", "by definition of a metric, the last period whose sums were deleted", _FOR_GOOD)
ERASED = Key("{app}:erased", "digests of the metrics that were erased, so that nothing of them is counted again", _FOR_GOOD)
WORKERS = Key("{app}:workers", "names of processes that count, with their last sign of life", "for a minute after the last one")
CAUGHT = Key("{app}:caught", "up to when everything is counted", "until the next time")
REGISTRIES = Key(
    "{app}:registries",
    "names of processes, what they do, and the digest of the registry that each has loaded, with their last sign of life",
    "for a minute after the last one",
)
DEFINITIONS = Key(
    "{app}:definitions",
    "how each version of each metric was declared, and when replaced",
    "until the metric is erased",
)
KEYS = Key("{app}:keys", "SHA-256 of each key, its role, name, own budget and the day it was made", "until the key is revoked")
KEYS_USED = Key("{app}:keys:used", "the day on which each key was last used", "until the key is revoked")
KEYS_APPS = Key(
    "{deniable}:keys:apps",
    "by the first 64 bits of a key's SHA-256, its app, so that a server knows the key of an app that it does not serve",
    "until the key is revoked",
)
AUDIT = Key(
    "{app}:audit",
    "what operators did and analysts asked, to the second, and the id of the key; nothing of devices",
    "until it is moved to files ('deniable audit-log rotate')",
)
AUDIT_SERVED = Key(
    "{app}:audit:served",
    "digests of the registry that is served, and of what is signed for devices",
    "until another one is served",
)
HISTORY = Key("{app}:history", "what public metrics declared when", "until the app is erased")
SIMULATED = Key("{app}:simulated", "days with simulated reports (`deniable simulate --send`)", _FOR_GOOD)
RATE_KEY = Key("{app}:rate:key:*", "how often a key was used in this window", _WINDOW)
RATE_BYTES = Key(
    "{app}:rate:source:*:bytes",
    "how many bytes a source sent in this window, under 20 bits of an HMAC of its address with the key of the day",
    _WINDOW,
)
RATE_SOURCE = Key("{app}:rate:source:*", "how often it sent in this window, under the same bits", _WINDOW)
RATE_STRANGER = Key("{deniable}:rate:source:*", "the same, of requests without a good key", _WINDOW)
RATE_LOGIN = Key("{deniable}:rate:login:*", "the same, of attempts to sign in", _WINDOW)
SESSION = Key("{app}:session:*", "which key signed in to the dashboard, under a hash of the session's number", "twelve hours")
SESSION_SECRET = Key("{deniable}:session:secret", "32 random bytes that the dashboard's cookies are signed with", _FOR_GOOD)
BACKUP = Key(
    "{deniable}:backup",
    "when the store was last copied into a file, and when a later copy was begun",
    "until the next copy",
)
SOURCE = Key("{deniable}:source:*", "the key of the day, drawn at random", "until five minutes after midnight (UTC)")

ALL = tuple(each for each in list(globals().values()) if isinstance(each, Key))


def find(
    key: str,  # as in the store
    app: str,  # the app of the store
) -> Key | None:
    """Return the kind of a key, or None if it is not listed."""
    return next((each for each in ALL if each.names(key, app)), None)
