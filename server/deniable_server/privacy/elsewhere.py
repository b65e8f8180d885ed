"""Everything that is stored outside the store: what, where, and how long."""

from __future__ import annotations

from deniable_aggregator.store.schema import StorageRule

SERVERS = (
    StorageRule(
        "the store's append-only file",
        (
            "all that is written to the store, so that it survives a crash; batches already counted, too, with the "
            "millisecond at which a process was handed them, until it is rewritten"
        ),
        "rewritten at least every hour, while a worker runs",
    ),
    StorageRule(
        "files of the archive",
        (
            "only with DENIABLE_ARCHIVE: the randomised reports of bits layouts, by metric, period and segment; for some two "
            "hours a file for each commit, with its time; then by the hour; once the period is closed in random order; files "
            "of the same time may be of the same devices"
        ),
        "as their exact sums, up to 25 hours longer; a folder of a store that was lost until the operator deletes it",
    ),
    StorageRule(
        "files of the audit log",
        "entries that were moved out of the store",
        "as the operator says ('deniable audit-log rotate --retain DAYS'); for ever without it",
    ),
    StorageRule(
        "logs of the processes",
        "no address, key, header or content at any level; at level info one line for each request, with its time",
        "as the operator's system keeps them",
    ),
    StorageRule(
        "backups",
        "whatever the operator copies of the above",
        "as the operator keeps them; a week, with what is shipped (deploy/backup.sh)",
    ),
)
"""On servers, outside the store."""

DEVICE = (
    StorageRule(
        "permanent responses", "a noisy answer for each answer to a metric with kept responses, under a digest", "for good"
    ),
    StorageRule("ledger", "what was spent, by metric and month and in all", "for good"),
    StorageRule("row", "the cohort, hash function or set of buckets that the device uses for a metric", "for good"),
    StorageRule("rounding point", "where the device rounds a number whose mean is estimated from kept responses", "for good"),
    StorageRule(
        "journal",
        "the last 1,000 reports sent, as they were sent, for the person to look at",
        "until newer ones replace them",
    ),
    StorageRule("spool", "batches that could not be sent yet", "48 hours, or 5 MB, whatever comes first"),
    StorageRule("registry", "the last one that the server handed out, with its signature", "until a newer one comes"),
)
"""On the device, in a directory that only its owner may read. One file has everything but the spool and the registry."""
