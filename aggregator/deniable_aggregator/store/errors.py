"""What the store raises, under names that say what happened."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import redis

from deniable_aggregator.store import url as urls

if TYPE_CHECKING:
    from collections.abc import Mapping

StoreError = redis.RedisError
"""The store cannot be used. All others are kinds of it."""
CommandRefused = redis.ResponseError
"""It answers with an error."""
CommandForbidden = redis.exceptions.NoPermissionError
"""Its user may not do this."""
StoreFull = redis.OutOfMemoryError
"""It has no memory left."""
AWAY = (redis.ConnectionError, redis.TimeoutError, redis.InvalidResponse)
"""It does not answer. Perhaps it did what was asked for."""
StoreLoading = redis.BusyLoadingError
"""It was started, and reads its file. It did nothing of what was asked for."""


class NoRoom(redis.RedisError):
    """The rest of its memory is reserved for what must always work, so nothing was done."""


class Redivided(redis.ConnectionError):
    """It was emptied, and the app has another number of partitions since, so nothing was done."""


class PromiseBroken(redis.ResponseError):
    """The store does not keep the promised durability. Its text is ours, and says which setting is wrong."""


class BrokenSnapshot(redis.ConnectionError):
    """The store sent something else than a whole copy."""


_REDIRECTED = (redis.exceptions.ClusterError, redis.exceptions.AskError, redis.exceptions.TryAgainError)
_TRANSIENT = (*AWAY, StoreFull, redis.ReadOnlyError, *_REDIRECTED)
_UNBLOCKED: Final = "UNBLOCKED force unblock"
"""Said to those that wait for something while the store becomes a replica."""
_TRANSIENT_WORDS = ("MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY ", _UNBLOCKED)


def transient(error: Exception) -> bool:
    """Tell whether the store is away, full, failing over, or moving keys to another server."""
    return isinstance(error, _TRANSIENT) or (isinstance(error, StoreError) and str(error).startswith(_TRANSIENT_WORDS))


REASONS: Final[Mapping[str, str]] = {
    "away": "it does not answer",
    "loading": "it has started and is reading its file",
    "login": "it refuses the user or the password",
    "certificate": "its TLS certificate is not accepted",
    "copy": "it sent no whole copy",
    "file": "a file that its URL names cannot be read",
    "forbidden": "its user may not do this",
    "full": "it has no memory left",
    "disk": "what it writes does not get to its disk",
    "replica": "it is a replica",
    "replicas": "too few of its replicas keep up",
    "durability": "it does not keep the promised durability",
    "refused": "it answers with an error",
}
"""Why the store cannot be used."""

MAKE_ROOM_ON_DISK: Final = "make room on the store's disk: it goes on by itself"
WAIT_FOR_FILE: Final = "wait: it answers when it has read its file"

_KINDS: Final = {
    BrokenSnapshot: "copy",
    redis.AuthenticationError: "login",  # a kind of ConnectionError, although the store has answered
    StoreLoading: "loading",
    redis.ConnectionError: "away",
    redis.TimeoutError: "away",
    redis.InvalidResponse: "away",
    CommandForbidden: "forbidden",
    StoreFull: "full",
    NoRoom: "full",
    redis.ReadOnlyError: "replica",
    redis.exceptions.MasterDownError: "replica",
    PromiseBroken: "durability",
}
_WORDS: Final = {"MISCONF ": "disk", "NOREPLICAS ": "replicas", _UNBLOCKED: "replica"}

_EXPIRED, _EARLY, _STRANGE, _NAMED = (
    "it has expired",
    "it is not valid yet",
    "its issuer is not known here",
    "it is for another name",
)
_REJECTED: Final = {
    "has expired": _EXPIRED,
    "not yet valid": _EARLY,
    "self-signed": _STRANGE,
    "unable to get": _STRANGE,
    "ismatch": _NAMED,
    "not valid for": _NAMED,
}
"""Why a certificate is not accepted, by what OpenSSL says."""
_CLOSED: Final = ("Connection reset by peer", "Connection closed by server")
_PLACE: Final = "DENIABLE_REDIS_URL or --redis-url"
_HANGS: Final = (
    "see from its log whether it hangs or is busy; restart it if it hangs; "
    f"if another program is at this port, correct host and port in {_PLACE}"
)


class _Away(NamedTuple):
    """Why a store does not answer as it should."""

    pattern: re.Pattern[str]  # what the error says, or an error that led to it
    words: str  # the cause
    remedy: str  # what to do


_UNREACHED: Final = (
    _Away(
        re.compile("WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|record layer failure|UNEXPECTED_MESSAGE|packet length too long"),
        "it does not speak TLS",
        f"write redis:// in {_PLACE}, or redis+ for several servers",
    ),
    _Away(
        re.compile("handshake operation timed out"),
        "it does not answer with TLS",
        f"if it does not speak TLS, write redis:// in {_PLACE}, or redis+ for several servers; otherwise {_HANGS}",
    ),
    _Away(re.compile("Protocol error, got"), "something other than a store answers there", f"correct host and port in {_PLACE}"),
    _Away(
        re.compile("gaierror|Name or service not known"),
        "its host name is not found",
        f"correct the name in {_PLACE}, or have this machine's DNS know it",
    ),
    _Away(re.compile("Cluster mode is not enabled"), "it is no cluster", f"write redis:// in {_PLACE}"),
    _Away(re.compile("unknown command 'SENTINEL'"), "no Sentinel answers there", f"name the Sentinels in {_PLACE}"),
    _Away(
        re.compile("No master found"),
        "no Sentinel names its primary",
        f"start the Sentinels, or correct their addresses and the name of the primary in {_PLACE}",
    ),
    _Away(re.compile("Error 13 connecting to /"), "this process may not open its socket", "let its user open the socket"),
    _Away(
        re.compile("Timeout connecting|Error 1(10|13) connecting|No route to host"),
        "its machine does not answer",
        f"start the machine, open its firewall for this one, or correct {_PLACE}",
    ),
    _Away(re.compile("Timeout reading|timed out"), "it takes connections and does not answer in time", _HANGS),
)
"""The first whose pattern fits counts."""
_LONGEST_CHAIN: Final = 8
_FORBIDDEN: Final = ("The user executing the script can't ", "ACL failure in script")  # without the code NOPERM
_UNREADABLE: Final = re.compile(r"^Error (2|13) connecting to (?!unix|/)")  # no server answers so, but the opening of a file


def reason(error: Exception) -> str:
    """Return the key of `REASONS` for an error of the store."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "certificate"
    if _UNREADABLE.search(str(error)):
        return "file"
    if str(error).startswith(_FORBIDDEN):
        return "forbidden"
    by_word = next((key for words, key in _WORDS.items() if str(error).startswith(words)), "refused")
    return next((key for kind, key in _KINDS.items() if isinstance(error, kind)), by_word)


def cause(error: Exception) -> str:
    """Say in a few words why the store cannot be used. The text of the error itself may contain an address or a password."""
    key = reason(error)
    if key == "certificate" and (why := _rejected(error)):
        return f"{REASONS[key]}: {why}"
    if known := _unreached(error):
        return known.words
    if key == "refused":
        return f"{REASONS[key]}: {type(error).__name__}"
    return f"{REASONS[key]}: {error}" if isinstance(error, PromiseBroken) else REASONS[key]


def _rejected(error: Exception) -> str:
    """Say why a certificate is not accepted; empty if OpenSSL says something else."""
    return next((words for phrase, words in _REJECTED.items() if phrase in str(error)), "")


def _unreached(error: Exception) -> _Away | None:
    """Return why the store does not answer as it should; None if nothing more is known."""
    if reason(error) not in ("away", "refused") or "Connection refused" in str(error):
        return None
    chain: list[BaseException] = [error]
    while isinstance(error, AWAY) and len(chain) < _LONGEST_CHAIN and (before := chain[-1].__cause__ or chain[-1].__context__):
        chain.append(before)
    text = " ".join(f"{type(each).__name__}: {each}" for each in chain)
    return next((each for each in _UNREACHED if each.pattern.search(text)), None)


def unusable(error: Exception) -> str:
    """Say to anybody that the store cannot be used, and why."""
    return f"the store cannot be used: {REASONS[reason(error)]}"


def user(url: str) -> str:
    """Name the store's user of a URL, in words."""
    parts = urls.parts(url)
    name = f"the user {parts.username!r}" if parts.username else "the user 'default'"
    return name if parts.password else f"{name} without a password"


def remedy(
    error: StoreError,
    url: str,  # with which the store was opened
    needed: str,  # the user of deploy/users.acl that may do it
) -> str:
    """Say what to do about an error of the store, as a sentence."""
    forbidden = f"this ran as {user(url)}: run it as {needed!r}, with the environment of deploy/private/{needed}.env"
    if urls.parts(url).username == needed:
        forbidden = (
            f"{user(url)} of this store has not the rights of the user in deploy/users.acl: load that file into the store anew"
        )
    certificates = {
        _EXPIRED: "renew the store's certificate, and restart the store",
        _EARLY: "have both machines keep time (NTP)",
        _STRANGE: "name its issuer's certificate in DENIABLE_REDIS_URL: ?ssl_ca_certs=FILE",
        _NAMED: "name the store in DENIABLE_REDIS_URL as its certificate does",
    }
    if known := _unreached(error):
        return known.remedy
    away = f"start it, or correct {_PLACE}"
    if url.startswith("redis://") and any(words in str(error) for words in _CLOSED):
        away = "something closes the connection there: if the store speaks TLS, write rediss:// in DENIABLE_REDIS_URL"
    remedies = {
        "away": away,
        "loading": WAIT_FOR_FILE,
        "login": (
            f"DENIABLE_REDIS_URL, or --redis-url, names {user(url)}: correct it and start this process again, or let the "
            "store read its users.acl again"
        ),
        "certificate": certificates.get(
            _rejected(error), "renew it, or name its issuer in DENIABLE_REDIS_URL by ?ssl_ca_certs=FILE"
        ),
        "file": f"correct ?{urls.files(url)} in DENIABLE_REDIS_URL, or let this process read the file",
        "forbidden": forbidden,
        "full": "make room first: https://deniable.github.io/deniable/how-to/operate/mend-the-store/#make-room",
        "disk": MAKE_ROOM_ON_DISK,
        "replica": "name its primary in DENIABLE_REDIS_URL or --redis-url",
        "replicas": "start its replicas",
        "copy": "look into the store's log: it may have no memory or no disk for a copy; then copy again",
        "refused": "look into the store's log",
        "durability": "correct the settings of the store, or promise less: https://deniable.github.io/deniable/reference/durability/",
    }
    return remedies[reason(error)]
