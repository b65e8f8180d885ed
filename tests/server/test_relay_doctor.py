"""The doctor of a relay: each thing that may be wrong is found, with what to do, and nothing is changed by looking."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from contextlib import closing
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
from mixing import mixed_toml, relay_toml

from deniable import registry
from deniable.errors import ConfigurationError
from deniable_aggregator.process.ports import free_port
from deniable_relay import doctor
from deniable_relay.pools import FILE, Pools
from deniable_relay.settings import Settings
from deniable_server.doctor import relays

MIN = 10_000


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "metrics.toml").write_text(relay_toml(mixed_toml("m"), mixed_toml("other")), "utf-8")
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    options = {"registry": str(tmp_path / "metrics.toml"), "server": "https://telemetry.example", "data": str(data)}
    keys = {"DENIABLE_RELAY_INGEST_KEY": "pk_12345678", "DENIABLE_RELAY_SERVER_KEY": "xk_12345678"}
    return Settings.of(options | {"bind": f"127.0.0.1:{free_port()}"}, keys)


@pytest.fixture
def mounts(tmp_path):
    path = tmp_path / "mounts"
    path.write_text("/dev/sda1 / ext4 rw 0 0\nproc /proc proc rw 0 0\n", "utf-8")
    return path


class Server:
    """Answers pools as a server does, but for what a test changes."""

    def __init__(self, codes=None, least=MIN, late=0.0):
        self.codes, self.least, self.late = codes or {}, least, late
        self.bodies = []

    def __call__(self, body, headers, timeout):
        assert headers["Authorization"] == "Bearer xk_12345678"
        assert 0 < timeout < 60
        sent = json.loads(body)
        self.bodies.append(sent)
        code = self.codes.get(sent["group"]["metric"]) or self.codes.get("")
        status = 400
        if isinstance(code, OSError):
            raise code
        if code is None:
            code = "pool_too_small" if sent["pool"] < self.least else "payload_length"
            status = 422 if code == "pool_too_small" else 400
        return status, {"Date": formatdate(time.time() + self.late, usegmt=True)}, {"code": code}


def findings(settings, server, mounts):
    results = list(doctor.examine(settings, server, mounts=mounts))
    for finding in results:
        assert bool(finding.meaning) == bool(finding.remedy) == (finding.status != "ok"), finding
    return {each.check: each for each in results}


def test_all_is_well_but_that_none_runs(settings, mounts):
    """Registry, folder, disk, server, clock and agreement are well; that no relay answers is a fault, with what to do."""
    server = Server()
    results = findings(settings, server, mounts)
    assert {name for name, each in results.items() if each.status != "ok"} - {"disk"} == {"relay"}
    assert "--bind" in results["relay"].remedy
    assert "Example Foundation" in results["registry"].seen
    assert "2 metrics alike" in results["agreement"].seen


def test_looking_counts_nothing(settings, mounts):
    """What it sends has no report, and is a pool that the server must refuse; the folder is as before."""
    server = Server()
    findings(settings, server, mounts)
    assert [(each["pool"], each["group"]["count"], each["group"]["payloads"]) for each in server.bodies] == [
        (MIN, 0, ""),
        (MIN - 1, 0, ""),
    ] * 2
    assert list(settings.data.iterdir()) == []


@pytest.mark.parametrize(
    ("codes", "check", "words"),
    [
        ({"": OSError("refused")}, "server", "check the address"),
        ({"": "not_found"}, "server", "takes uploads"),
        ({"": "unknown_key"}, "key", "--role relay"),
        ({"": "other_app"}, "key", "--role relay"),
        ({"": "no_sealing_key"}, "sealing key", "DENIABLE_SEALING_KEYS"),
        ({"other": "definition_mismatch"}, "agreement", "same metrics.toml"),
        ({"m": "unknown_metric"}, "agreement", "same metrics.toml"),
        ({"": "no_relay"}, "agreement", "same metrics.toml"),
    ],
)
def test_what_the_server_refuses_is_found(settings, mounts, codes, check, words):
    """The key, its registry, its private key, or that nobody answers: each has a name and a remedy."""
    finding = findings(settings, Server(codes), mounts)[check]
    assert (finding.status, words in finding.remedy) == ("fault", True)


@pytest.mark.parametrize(("least", "status"), [(MIN + 1, "fault"), (MIN - 1, "warning"), (MIN, "ok")])
def test_smallest_pools_are_compared(settings, mounts, least, status):
    """A server that wants larger ones refuses ours; one that takes smaller ones would take them from another."""
    assert findings(settings, Server(least=least), mounts)["agreement"].status == status


@pytest.mark.parametrize(("late", "status"), [(0, "ok"), (60, "warning"), (-60, "warning"), (7200, "fault")])
def test_clocks_are_compared(settings, mounts, late, status):
    """By the header Date."""
    assert findings(settings, Server(late=late), mounts)["clock"].status == status


@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("https://telemetry.example", "ok"),
        ("http://telemetry.example", "warning"),
        ("http://127.0.0.1:8080", "ok"),
        ("http://[::1]:8080", "ok"),
        ("http://10.0.0.2", "warning"),
    ],
)
def test_tls_is_asked_for_beyond_this_machine(url, status):
    """The key would be seen."""
    assert doctor.transport(url).status == status


@pytest.mark.parametrize(("kind", "status"), [("ext4", "ok"), ("tmpfs", "fault"), ("overlay", "fault")])
def test_a_folder_that_does_not_last(settings, tmp_path, kind, status):
    """Memory, or a container's own layer."""
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nx {settings.data.resolve()} {kind} rw 0 0\n", "utf-8")
    assert doctor.folder(settings.data, mounts).status == status


def test_a_folder_that_others_read(settings, mounts):
    """Its mode is named, and mended by what is said."""
    settings.data.chmod(0o755)
    finding = doctor.folder(settings.data, mounts)
    assert (finding.status, finding.remedy) == ("warning", f"chmod 700 {settings.data}")
    assert doctor.folder(settings.data / "none", mounts).status == "warning"


def test_a_file_with_a_write_ahead_log(settings):
    """Its head says which journal it has; a relay that starts sets it back."""
    path = settings.data / FILE
    Pools(path).close()
    assert doctor.journal(path).status == "ok"
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA journal_mode = WAL")
    assert doctor.journal(path).status == "fault"
    Pools(path).close()
    assert doctor.journal(path).status == "ok"
    path.write_bytes(b"something else that is long enough")
    assert doctor.journal(path).status == "fault"


def test_a_full_disk(settings, monkeypatch):
    """Before it is full, and when it is."""
    for free, status in ((2 << 30, "ok"), (1 << 29, "warning"), (1 << 20, "fault")):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert doctor.disk(settings.data).status == status


@pytest.fixture
def running(settings):
    """Answer as a relay does."""
    answers = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = answers[self.path]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    host, port = settings.bind.split(":")
    with ThreadingHTTPServer((host, int(port)), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield answers
        server.shutdown()
        thread.join()


NUMBERS = """# HELP deniable_relay_too_few_reports_total x
deniable_relay_too_few_reports_total {few}
deniable_relay_forwarded_reports_total 1000.0
deniable_relay_waiting_reports 12.0
deniable_relay_held_pools{{answer="401 unknown_key"}} 2.0
"""


@pytest.mark.parametrize(("few", "status"), [(0, "ok"), (100, "ok"), (200, "warning")])
def test_pools_that_stay_too_small(settings, running, few, status):
    """More than a tenth of what came is dropped: the author of the app must know."""
    running |= {"/readyz": (200, '{"status": "ok", "held": {}}'), "/metrics": (200, NUMBERS.format(few=few))}
    results = {each.check: each for each in doctor.process(settings.bind)}
    assert {name: each.status for name, each in results.items()} == {"relay": "ok", "pools": status, "held": "ok"}
    assert "12 reports wait" in results["pools"].seen


def test_pools_that_the_server_does_not_take(settings, running):
    """How many, since when and why; and a relay whose file fails."""
    held = {"401 unknown_key": {"pools": 2, "since": "2026-11-27T10:00+00:00"}}
    running |= {"/readyz": (200, json.dumps({"status": "ok", "held": held})), "/metrics": (200, NUMBERS.format(few=0))}
    finding = {each.check: each for each in doctor.process(settings.bind)}["held"]
    assert finding.status == "warning"
    assert "2 pools since 2026-11-27T10:00+00:00: 401 unknown_key" in finding.seen
    running["/readyz"] = (503, "{}")
    (finding,) = doctor.process(settings.bind)
    assert (finding.check, finding.status) == ("relay", "fault")


def test_a_registry_that_it_cannot_start_with(settings, mounts):
    """A fault in it, or no [relay]: the server is not asked then."""
    path = Path(settings.registry)
    for text in ("format = 1", relay_toml(mixed_toml("m")).replace("[relay]", "[relay")):
        path.write_text(text, "utf-8")
        server = Server()
        assert findings(settings, server, mounts)["registry"].status == "fault"
        assert not server.bodies


def test_an_address_is_host_and_port():
    """Another text is refused with what to write."""
    keys = {"DENIABLE_RELAY_INGEST_KEY": "pk_12345678", "DENIABLE_RELAY_SERVER_KEY": "xk_12345678"}
    with pytest.raises(ConfigurationError, match="host:port"):
        Settings.of({"server": "https://x", "bind": "8090"}, keys)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_somebody_else(settings, mounts):
    """No report could be taken."""
    settings.data.chmod(0o500)
    assert doctor.folder(settings.data, mounts).status == "fault"


def test_every_finding_is_documented(settings, running, mounts):
    """The tables of the page have each finding of a relay's doctor, and those of the server's, and no others."""
    held = '{"status": "ok", "held": {}}'
    running |= {"/readyz": (200, held), "/metrics": (200, NUMBERS.format(few=0))}
    every = set(findings(settings, Server(), mounts))
    every |= set(findings(settings, Server({"": "unknown_key"}), mounts))
    every |= set(findings(settings, Server({"": "no_sealing_key"}), mounts))
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "operate" / "relay.md").read_text("utf-8")
    section = page.partition("## Check it")[2].partition("\n## ")[0]
    own, servers = (
        re.findall(r"^\| (?!finding)([A-Za-z ]+) \|", part, re.MULTILINE) for part in section.split("The server's own")
    )
    assert set(own) == every
    assert servers == list(relays.checks(None, registry.load(settings.registry), None))
