"""Who may read what: the roles of keys, and the users of the store."""

from __future__ import annotations

__all__ = ["KEYS", "USERS"]

KEYS = {
    "ingest": "is in every app, so it is public. Sends reports, and gets the signed registry. Reads nothing",
    "read": (
        "reads estimates made from releases, over HTTP and on the pages; asks for withheld numbers of reports with noise, "
        "within the app's budget"
    ),
    "admin": (
        "reads the same, and what is counted and not published yet, exact; lists the keys of its app (never the keys themselves) "
        "and revokes them"
    ),
}
"""By role."""

USERS = {
    "ingest": (
        "the server that takes uploads: appends batches, remembers uploads and counts what was refused; reads no batch, no sum "
        "and no release"
    ),
    "query": (
        "the server that answers queries: reads releases; sums, for admin keys and for questions about withheld segments; "
        "alarms, for admin keys; no batch"
    ),
    "server": "a server that does both: what these two may, together",
    "worker": "the process that counts: reads batches and sums, writes releases; sees no key and no source",
    "operator": (
        "commands of the operator: keys, batches that could not be counted, the audit log, erasure; reads no waiting batch, "
        "no sum"
    ),
}
"""By name, as `deploy/users.acl` has them."""
