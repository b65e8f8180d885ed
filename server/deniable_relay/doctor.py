"""The doctor of a relay: whether what it is told, its folder, its process and the server fit together. It changes nothing.

It sends the server two pools of each metric that have no report: one of the right size, and one that is too small. Both must be
refused. By the refusals it learns whether key, registry and smallest pools agree.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from deniable import registry
from deniable.declared import Declared
from deniable.errors import DeniableError
from deniable.messages.finding import Finding
from deniable.messages.plural import few, plural
from deniable.registry import period
from deniable.transport.dsn import is_loopback
from deniable.transport.http import Http, HttpPost
from deniable.wire import addresses
from deniable.wire.report import Stratum
from deniable_relay import forwarding
from deniable_relay.pools import FILE, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from deniable.registry import Registry
    from deniable.transport.http import Post
    from deniable_relay.settings import Settings

_SECONDS = 10.0  # that the server may take for an answer
_LOCAL_SECONDS = 3.0
_LEAST_FREE, _TIGHT = 64 << 20, 1 << 30  # bytes of the disk
_OFF, _TOO_FAR = 5.0, 3600.0  # seconds between the clocks; a period is one hour or longer
_SHARE = 0.1  # of dropped reports that needs attention
_PASSING = ("tmpfs", "ramfs", "overlay")  # file systems that end with the machine or the container
_MAGIC, _ROLLBACK = b"SQLite format 3\0", 1
_JOURNALS = 18  # place of the two bytes that say which journal a file has
_CLOCKS = "a relay with a wrong clock closes pools early or late; a server takes none after its own time for late reports"
_NTP = "have both machines keep time (NTP)"
_AS_USER = "run this as the relay's user"
_REGISTRY = ("unknown_metric", "unknown_version", "definition_mismatch", "no_relay")
_UNKNOWN_KEY = "the server does not know the relay's key"
_OTHER_KEY = {
    "missing_key": _UNKNOWN_KEY,
    "unknown_key": _UNKNOWN_KEY,
    "other_app": "the relay's key is of another app than its registry",
}
_AGREE = ("payload_length",)  # all that is wrong is that no report is there


def examine(
    settings: Settings,
    post: Post | None = None,  # sends an upload to the server; None for HTTP
    now: Callable[[], float] = time.time,
    mounts: Path = Path("/proc/self/mounts"),
) -> Iterator[Finding]:
    """Run all checks."""
    yield folder(settings.data, mounts)
    yield journal(settings.data / FILE)
    yield disk(settings.data)
    yield from process(settings.bind)
    yield transport(settings.server)
    declared, finding = loaded(settings.registry)
    yield finding
    if declared is not None:
        send = post or HttpPost(f"{settings.server}{addresses.POOLS}")
        yield from server(declared, settings, send, now)


def loaded(path: Path) -> tuple[Registry | None, Finding]:
    """Read the registry."""
    try:
        declared = registry.load(path)
    except DeniableError as error:
        meaning, remedy = "the relay does not start", f"`deniable registry lint {path}` names all faults; ask the app's author"
        return None, Finding("registry", "fault", str(error).partition("\n")[0], meaning, remedy)
    if declared.relay is None:
        meaning = "nothing is sealed, so the relay does not start"
        return None, Finding("registry", "fault", f"{path} has no [relay]", meaning, "take the file that ships with the app")
    relay = declared.relay
    seen = f"{declared.app}, {plural(len(declared.metrics), 'metric')}; {relay.operator} mixes; sealed to key {relay.number}"
    return declared, Finding("registry", "ok", seen)


def folder(data: Path, mounts: Path) -> Finding:
    """Check the folder of what waits: that it is there, is kept, and is nobody else's."""
    if not data.is_dir():
        remedy = "`deniable relay` makes it at its start; if one has run, look at --data or DENIABLE_RELAY_DATA"
        return Finding("folder", "warning", f"{data} is not there", "nothing waits here", remedy)
    if not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        remedy = f"{_AS_USER}; if that is who you are, let the relay's user have the folder (chown)"
        return Finding("folder", "fault", f"{data} cannot be written by this user", "no report is taken", remedy)
    kind = _file_system(data, mounts)
    if kind in _PASSING:
        meaning = "what was answered 202 is lost when the machine or the container is started anew"
        return Finding("folder", "fault", f"{data} is on {kind}", meaning, "put it on a volume or a disk that stays")
    mode = stat.S_IMODE(data.stat().st_mode)
    if mode & 0o077:
        meaning = "other users of this machine may see which pools wait, and how large they are"
        return Finding("folder", "warning", f"{data} has mode {mode:03o}", meaning, f"chmod 700 {data}")
    return Finding("folder", "ok", f"{data}, of this user alone" + (f", on {kind}" if kind else ""))


def _file_system(data: Path, mounts: Path) -> str:
    """Return the kind of the file system that a folder is on; empty where the system does not say."""
    try:
        lines = [line.split() for line in mounts.read_text("utf-8").splitlines()]
    except OSError:
        return ""
    place = data.resolve()
    above = [(Path(words[1]), words[2]) for words in lines if len(words) > 2 and place.is_relative_to(words[1])]  # noqa: PLR2004
    return max(above, key=lambda pair: len(pair[0].parts), default=(Path(), ""))[1]


def journal(path: Path) -> Finding:
    """Check that the file of pools has a rollback journal: a write-ahead log has the order in which reports came."""
    try:
        with path.open("rb") as file:
            head = file.read(_JOURNALS + 2)
    except FileNotFoundError:
        return Finding("file", "ok", f"{path} is made at the first start")
    except OSError as error:
        return Finding("file", "skipped", f"{path} cannot be read: {error.strerror}", "its journal is not known", _AS_USER)
    if not head:
        return Finding("file", "ok", f"{path} is empty")
    if not head.startswith(_MAGIC):
        meaning, remedy = "the relay does not start, or keeps nothing", "move it away: what it has is lost; then look at the disk"
        return Finding("file", "fault", f"{path} is no file of SQLite", meaning, remedy)
    log = path.with_name(f"{path.name}-wal")
    if set(head[_JOURNALS:]) != {_ROLLBACK} or log.exists():
        meaning = f"{log} has the order in which reports came"
        remedy = "start `deniable relay` once, which sets it back; nothing else may write to this file"
        return Finding("file", "fault", f"{path} has a write-ahead log", meaning, remedy)
    return Finding("file", "ok", f"{path} has a rollback journal, and {path.stat().st_size >> 20:,} MiB")


def disk(data: Path) -> Finding:
    """Check how much room the disk has."""
    if not data.is_dir():
        meaning, remedy = "its disk is not known", "do what the finding folder says"
        return Finding("disk", "skipped", "the folder is not there yet", meaning, remedy)
    free = shutil.disk_usage(data).free
    seen = f"{free >> 20:,} MiB left; a report that waits takes some 100 bytes"
    meaning = "without room reports are refused with 503, and devices keep them"
    if free >= _TIGHT:
        return Finding("disk", "ok", seen)
    return Finding("disk", "fault" if free < _LEAST_FREE else "warning", seen, meaning, "make room")


def process(
    bind: str,  # the relay's own address
) -> Iterator[Finding]:
    """Ask the relay that runs what waits, and why the server has not taken it."""
    host, _, port = bind.rpartition(":")
    url = f"http://{'127.0.0.1' if host in ('', '0.0.0.0', '[::]') else host}:{port}"  # noqa: S104 - it is asked here
    try:
        status, _, answer = Http()("GET", f"{url}/readyz", {}, _LOCAL_SECONDS)
        _, _, numbers = Http()("GET", f"{url}/metrics", {}, _LOCAL_SECONDS)
        held: Mapping[str, Any] = json.loads(answer or b"")["held"] if status == 200 else {}  # noqa: PLR2004 - HTTP's
    except (OSError, ValueError, KeyError):
        remedy = "start it; if it runs at another address, give --bind or DENIABLE_RELAY_BIND"
        yield Finding("relay", "fault", f"no relay answers at {url}", "devices keep their reports, for two days", remedy)
        return
    if status != 200:  # noqa: PLR2004 - HTTP's
        meaning = "no report is taken: devices keep theirs"
        yield Finding("relay", "fault", f"{url}/readyz answers {status}", meaning, "its log says why the file cannot be used")
        return
    yield Finding("relay", "ok", f"answers at {url}")
    yield pools(_samples((numbers or b"").decode()))
    yield refused(held)


def pools(numbers: Mapping[str, int]) -> Finding:
    """Check how many reports were dropped, because their pools stayed too small."""
    waiting, closed, forwarded, few, late = (
        numbers.get(f"deniable_relay_{name}", 0)
        for name in (
            "waiting_reports",
            "closed_reports",
            "forwarded_reports_total",
            "too_few_reports_total",
            "too_late_reports_total",
        )
    )
    seen = (
        f"{plural(waiting, 'report')} wait for their pool to close, {closed:,} of closed pools for the server; "
        f"{forwarded:,} forwarded so far, {few:,} dropped as too few, {late:,} as too late"
    )
    if few <= _SHARE * (few + forwarded):
        return Finding("pools", "ok", seen)
    meaning = "the server never sees what is dropped: it is not counted, and nobody else says so"
    remedy = "let the app's author know: longer periods, fewer segments, or a smaller `min`, whose central epsilon is larger"
    return Finding("pools", "warning", seen, meaning, remedy)


def refused(
    held: Mapping[str, Any],  # by why the server has not taken pools: how many, and since when
) -> Finding:
    """Check for pools that the server has not taken."""
    if not held:
        return Finding("held", "ok", "the server takes what is sent")
    words = [f"{plural(each['pools'], 'pool')} since {each['since']}: {why}" for why, each in held.items()]
    meaning = "nothing is lost; what a server takes after the period's time for late reports is over, it refuses"
    remedy = "do what the findings server, key and registry say; the relay tries again by itself"
    return Finding("held", "warning", "; ".join(words), meaning, remedy)


def transport(server: str) -> Finding:
    """Check that nobody between relay and server can read along."""
    parts = urlsplit(server)
    if parts.scheme == "https":
        return Finding("TLS", "ok", f"{server} is asked by HTTPS, with its certificate checked")
    if is_loopback(parts.hostname or ""):
        return Finding("TLS", "ok", f"{server} is this machine")
    meaning = "anyone between the two sees the relay's key and could send pools with it; reports stay sealed"
    return Finding("TLS", "warning", f"{server} is asked without TLS", meaning, "write https:// into DENIABLE_RELAY_SERVER")


def server(declared: Registry, settings: Settings, post: Post, now: Callable[[], float]) -> Iterator[Finding]:
    """Ask the server, metric by metric, whether it refuses pools without a report for no other reason."""
    differing: dict[str, str] = {}
    loose: list[str] = []
    is_first = True
    for metric in declared.metrics.values():
        moment = datetime.fromtimestamp(now(), UTC)
        if metric.expires and metric.expired(moment.date()):
            continue
        segment = declared.segment(metric, {name: declared.segments[name][0] for name in metric.segments})
        current = period.of(moment, metric.period)
        stratum = Stratum(metric.id, metric.version, Declared.of(metric).fingerprint, current, segment)
        try:
            status, headers, code = _ask(post, settings.server_key, declared.app, stratum, metric.crowd)
        except OSError as error:
            meaning, remedy = "pools stay here, and are sent again", "check the address, the firewall and the certificate"
            yield Finding("server", "fault", f"{settings.server} does not answer: {error}", meaning, remedy)
            return
        if is_first:
            yield from _first(settings, status, headers, code, now())
            is_first = False
        if code in _REGISTRY or code == "pool_too_small":
            differing[metric.id] = "a larger pool is wanted" if code == "pool_too_small" else code
        elif code not in _AGREE:  # it never came so far
            return
        elif metric.crowd > 1 and _ask(post, settings.server_key, declared.app, stratum, metric.crowd - 1)[2] != "pool_too_small":
            loose.append(metric.id)
    if is_first:
        meaning, remedy = "whether it takes pools is not known", "take the metrics.toml of the app's newest release"
        yield Finding("server", "skipped", "no metric is collected any more, so there is nothing to ask for", meaning, remedy)
        return
    yield agreement(declared, differing, loose)


def _ask(post: Post, key: str, app: str, stratum: Stratum, size: int) -> tuple[int, Mapping[str, str], str]:
    """Send a pool without a report; return the answer's status, its headers, and the code of the refusal."""
    part = Part(0, f"doctor-{token_hex(16)}.0", stratum, size, 0.0, ())
    status, headers, answer = post(forwarding.encode(app, part), forwarding.headers(part, key), _SECONDS)
    return status, headers, str(answer.get("code", "")) if isinstance(answer, dict) else ""


def _first(settings: Settings, status: int, headers: Mapping[str, str], code: str, now: float) -> Iterator[Finding]:
    """Say what the first answer shows: whether a server is there, takes the key and can open reports, and its clock."""
    seen = f"{settings.server} answers {status} {code}".rstrip()
    if code in _OTHER_KEY:
        yield Finding("server", "ok", f"{settings.server} answers")
        remedy = (
            "ask its operator for a key of this app: `deniable keys create --role relay`; give it in DENIABLE_RELAY_SERVER_KEY"
        )
        yield Finding("key", "fault", _OTHER_KEY[code], "it takes no pool; they stay here", remedy)
    elif code == "no_sealing_key":
        yield Finding("server", "ok", f"{settings.server} answers, and takes the relay's key")
        meaning, remedy = "it takes no pool; they stay here", "its operator names the private key in DENIABLE_SEALING_KEYS"
        yield Finding("sealing key", "fault", "the server cannot open what is sealed to the app's key", meaning, remedy)
    elif code in (*_REGISTRY, *_AGREE, "pool_too_small"):
        yield Finding("server", "ok", f"{settings.server} answers, takes the relay's key, and can open reports")
        yield clock(headers, now)
    else:
        meaning = "pools stay here, and are sent again"
        remedy = "look whether this is the address of a server of deniable that takes uploads; its operator's log says more"
        yield Finding("server", "fault", seen, meaning, remedy)


def clock(headers: Mapping[str, str], now: float) -> Finding:
    """Check how far this machine's clock and the server's are apart."""
    try:
        theirs = parsedate_to_datetime(headers.get("Date") or "").timestamp()
    except ValueError:
        return Finding("clock", "skipped", "the server does not say what time it is", _CLOCKS, _NTP)
    difference = abs(now - theirs)
    if difference < _OFF:
        return Finding("clock", "ok", f"within {_OFF:.0f} s of the server's")
    seen = f"{difference:,.0f} s {'ahead of' if now > theirs else 'behind'} the server's"
    return Finding("clock", "fault" if difference >= _TOO_FAR else "warning", seen, _CLOCKS, _NTP)


def agreement(
    declared: Registry,
    differing: Mapping[str, str],  # by metric: what the server said
    loose: list[str],  # metrics of which the server takes smaller pools
) -> Finding:
    """Say whether relay and server have the same registry, as far as refusals show it."""
    if differing:
        named = few([f"{metric} ({code})" for metric, code in differing.items()])
        meaning = "the server refuses their pools, which stay here"
        remedy = "have relay and server read the same metrics.toml; both read it at their start"
        return Finding("agreement", "fault", f"the server declares them differently: {named}", meaning, remedy)
    if loose:
        meaning = "this relay sends none, but the server would take them from another"
        remedy = "have the server read the metrics.toml that ships with the app"
        seen = f"the server takes smaller pools of {few(loose)} than this registry allows"
        return Finding("agreement", "warning", seen, meaning, remedy)
    seen = f"the server declares all {plural(len(declared.metrics), 'metric')} alike, and refuses pools that are too small"
    return Finding("agreement", "ok", seen)


def _samples(text: str) -> dict[str, int]:
    """Read numbers without labels in Prometheus' text format."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#") and "{" not in line)
    return {name: int(float(number)) for name, _, number in (line.partition(" ") for line in lines)}
