"""deploy/Caddyfile: the proxy in front hands on what the servers need, and keeps nothing of who asked."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import ExitStack
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import requests
from service import clean, spawn
from shipped import DEPLOY, compose
from waiting import eventually

from deniable_aggregator.process.ports import free_port

pytestmark = pytest.mark.skipif(shutil.which("caddy") is None, reason="no caddy on PATH")

CANARY = "canary-3b1f"


@pytest.fixture
def upstream():
    """Stand for both servers, and keep what they are asked."""
    arrivals = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            arrivals.append((self.path, dict(self.headers)))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port, arrivals
        server.shutdown()
        thread.join()


def proxied(undo, folder, ingest, query):
    """Start Caddy with the file shipped, without TLS; return its address. A port may be taken meanwhile: try others."""
    for _ in range(5):
        url = f"http://127.0.0.1:{free_port()}"
        env = {
            "TELEMETRY_HOST": url,
            "TELEMETRY_INGEST": f"127.0.0.1:{ingest}",
            "TELEMETRY_QUERY": f"127.0.0.1:{query}",
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder),
            "XDG_DATA_HOME": str(folder),
        }
        command = ["caddy", "run", "--config", DEPLOY / "Caddyfile", "--adapter", "caddyfile"]
        process = spawn(undo, folder / "caddy.log", command, env)

        def answers(process=process, url=url):
            return process.poll() is not None or requests.get(f"{url}/metrics", timeout=300).status_code == 404

        assert eventually(answers)
        log = (folder / "caddy.log").read_text()
        if process.poll() is None:
            return url
        assert "address already in use" in log, log
    pytest.fail("no port stayed free")


def test_what_compose_tells_the_proxy_is_what_it_asks_for(tmp_path):
    """Caddy takes the file with its defaults, which are names of services in compose.yaml with the servers' port."""
    command = ["caddy", "validate", "--config", DEPLOY / "Caddyfile", "--adapter", "caddyfile"]
    env = clean() | {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    text = (DEPLOY / "Caddyfile").read_text("utf-8")
    for name in ("ingest", "query"):
        assert f"{{$TELEMETRY_{name.upper()}:{name}:8080}}" in text
        assert name in compose()["services"]
    assert set(compose()["services"]["proxy"]["environment"]) == {"TELEMETRY_HOST"}


def test_requests_reach_their_server_whole(upstream, tmp_path):
    """Uploads go to ingest, all else to query, with every header they need and the address that they really came from."""
    port, arrivals = upstream
    headers = {
        "Authorization": "Bearer pk_x",
        "Idempotency-Key": "one",
        "Content-Encoding": "gzip",
        "Content-Type": "application/json",
        "Origin": "https://shop.example",
        "X-Forwarded-For": "203.0.113.7",  # as a client would claim
    }
    with ExitStack() as undo:
        url = proxied(undo, tmp_path, port, 9)
        assert requests.post(f"{url}/v1/reports", data=b"{}", headers=headers, timeout=300).status_code == 200
        assert requests.get(f"{url}/api/v1/metrics", timeout=300).status_code == 502
    ((path, arrived),) = arrivals
    assert path == "/v1/reports"
    arrived = {name.title(): text for name, text in arrived.items()}
    for name in set(headers) - {"X-Forwarded-For"}:
        assert arrived[name] == headers[name]
    assert (arrived["X-Forwarded-For"], arrived["X-Forwarded-Proto"]) == ("127.0.0.1", "http")
    with ExitStack() as undo:
        url = proxied(undo, tmp_path, 9, port)
        assert requests.get(f"{url}/api/v1/metrics", timeout=300).status_code == 200
        for inside in ("/metrics", "/healthz", "/readyz"):
            assert requests.get(url + inside, timeout=300).status_code == 404
    assert [path for path, _ in arrivals] == ["/v1/reports", "/api/v1/metrics"]


def test_the_proxy_keeps_nothing_of_who_asked(tmp_path):
    """No log of the proxy has a client's address, browser, key or path, also when the servers are away."""
    with ExitStack() as undo:
        url = proxied(undo, tmp_path, 9, 9)
        headers = {
            "User-Agent": CANARY,
            "Authorization": f"Bearer {CANARY}",
            "Idempotency-Key": CANARY,
            "X-Forwarded-For": "203.0.113.7",
        }
        for path in (f"/v1/{CANARY}", f"/{CANARY}"):
            assert requests.get(url + path, headers=headers, timeout=300).status_code == 502
    log = (tmp_path / "caddy.log").read_text()
    assert "serving initial configuration" in log
    for trace in (CANARY, "203.0.113.7", "remote_ip", "user-agent", "User-Agent"):
        assert trace not in log


def test_what_stays_inside_is_reached_in_no_spelling(composed, tmp_path):
    """However an address of the inside is written, the real servers behind the proxy do not answer it."""
    spellings = set()
    for path in ("/metrics", "/readyz", "/healthz"):
        spellings |= {f"{path}/", f"/{path}", f"/.{path}", f"/v1/..{path}", f"/v1/%2e%2e{path}", f"/v1{path}", f"/v1/{path}"}
        spellings |= {
            path.upper(),
            f"/%{ord(path[1]):x}{path[2:]}",
            f"{path}?x",
            f"{path};x",
            f"{path}%00",
            f"{path}%2f",
            f"/%2f{path}",
        }
        spellings |= {f"{path}#x", f"\\{path}", f"/x/..{path}", f"/api/v1/..%2f..{path}"}
    key = composed.private.path("private/deniable-metrics-key").read_text()
    for name in ("ingest", "query"):
        assert eventually(lambda name=name: composed.healthy(name))
    with ExitStack() as undo:
        url = proxied(undo, tmp_path, composed.ports["ingest"], composed.ports["query"])
        for path in sorted(spellings | {f"{url}{path}" for path in spellings}):
            connection = HTTPConnection(url.removeprefix("http://"), timeout=300)
            connection.putrequest("GET", path, skip_host=True)
            connection.putheader("Host", url.removeprefix("http://"))
            connection.putheader("Authorization", f"Bearer {key}")
            connection.endheaders()
            answer = connection.getresponse()
            body = answer.read()
            connection.close()
            assert answer.status != 200, path
            assert b"deniable_" not in body, path
            assert b'"parts"' not in body, path
