"""Headers of answers, of a server and of a relay: what every answer carries, and what scripts of other origins may do."""

from __future__ import annotations

from deniable.frozen import NamedTuple
from deniable.wire import addresses

_PREFLIGHT_SECONDS = 3600

EVERYWHERE = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
"""Of every answer."""

NO_PAGE = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    **EVERYWHERE,
}
"""Of every answer that is no page; a page has a policy of its own."""


class Shared(NamedTuple):
    """What scripts of other origins may do at an address."""

    method: str  # the only method
    headers: tuple[str, ...]  # headers they may send


SHARED = {
    addresses.REPORTS: Shared("POST", ("Authorization", "Content-Type", "Content-Encoding", "Idempotency-Key")),
    addresses.REGISTRY: Shared("GET", ("Authorization",)),
    addresses.SCRIPT: Shared("GET", ()),
}
"""By address. At all others they may do nothing."""


def cross_origin(
    shared: Shared,
    method: str,  # of the request
    origin: str,  # that may read the answer; * for any
    *exposed: str,  # headers of the answer that it may read, beside Retry-After
) -> dict[str, str]:
    """Return the headers that let scripts of another origin read an answer, and send what it is asked for (CORS)."""
    headers = {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Expose-Headers": ", ".join(("Retry-After", *exposed)),
    }
    if method == "OPTIONS":
        headers["Access-Control-Allow-Methods"] = shared.method
        headers["Access-Control-Allow-Headers"] = ", ".join(shared.headers)
        headers["Access-Control-Max-Age"] = str(_PREFLIGHT_SECONDS)
    return headers
