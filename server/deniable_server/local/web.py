"""What ``deniable demo --web`` does: a page asks three questions, and a server counts the answers among those of others."""

from __future__ import annotations

import json
import sys
import tempfile
import time
import webbrowser
from contextlib import closing
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import as_file, files
from pathlib import Path
from secrets import token_urlsafe
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

import requests

from deniable import mechanisms, registry
from deniable.errors import ConfigurationError
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.store import Store, connect
from deniable_server.local import devices
from deniable_server.local.stack import Stack
from deniable_server.settings import Settings

if TYPE_CHECKING:
    import argparse

    from deniable.registry import Registry

OTHERS = 2000  # as client/typescript/demo/page.ts says
_SHARES: dict[str, tuple[float, ...]] = {
    "policy.read": (0.85, 0.15),
    "ui.theme": (0.35, 0.45, 0.2),
    "tabs.open": (0.25, 0.4, 0.25, 0.1),
}
_COUNT_SECONDS = 120.0
_FILES = {"/": ("demo.html", "text/html"), "/demo.js": ("demo.js", "text/javascript"), "/demo.css": ("demo.css", "text/css")}
_PLACE = "deniable_server"


def run(arguments: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C; return the exit status."""
    with tempfile.TemporaryDirectory(prefix="deniable-demo-") as folder, as_file(files(_PLACE) / "web" / "metrics.toml") as path:
        settings = Settings(
            redis_url=arguments.redis_url or "",
            registry=str(path),
            ingest_keys=f"demo:pk_{token_urlsafe(24)}",
            read_keys=f"demo:rk_{token_urlsafe(24)}",
            dashboard="open",
        )
        print("Starting a store, a server and a worker ...", file=sys.stderr, flush=True)
        with Stack(settings, bind="127.0.0.1:0", log_file=Path(folder, "log")) as stack, closing(Crowd(stack)) as crowd:
            print(f"{OTHERS:,} simulated people answer ...", file=sys.stderr, flush=True)
            crowd.answer()
            with Page(crowd, arguments.port or 0) as page:
                print(f"Answer here:  {page.url}/", flush=True)
                print(f"Look around:  {stack.url}/", flush=True)
                if arguments.keep is False:
                    return 0
                if sys.stdout.isatty():
                    webbrowser.open(f"{page.url}/")
                print("Ctrl-C stops everything.", flush=True)
                stack.wait()
    return 0


class Crowd:
    """The simulated people, and what the server estimates of all who answered."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.registry: Registry = registry.load(stack.settings.registry)
        app, _, key = stack.settings.ingest_keys.partition(":")
        self.dsn = f"http://{key}@{stack.bind}/{app}"
        self._client = connect(stack.store_url)
        self._store = Store(self._client, app)
        self._headers = {"Authorization": f"Bearer {stack.settings.read_keys.partition(':')[2]}"}

    def answer(self) -> None:
        """Let all of them answer through the SDK, and wait until they are counted."""
        names = [*_SHARES]
        columns = [_answers(self.registry.metrics[name].values, _SHARES[name]) for name in names]
        devices.answer(self.dsn, self.stack.settings.registry, names, list(zip(*columns, strict=True)))
        deadline = time.monotonic() + _COUNT_SECONDS
        while self._counted() < OTHERS * len(names):
            self.stack.check()
            if time.monotonic() > deadline:
                raise ConfigurationError(
                    f"{self._counted()} of {OTHERS * len(names)} reports were counted in {_COUNT_SECONDS:g} s"
                )
            time.sleep(0.1)

    def estimates(self) -> dict[str, Any]:
        """Return what is estimated now, as client/typescript/demo/count.ts has it."""
        Publisher(self._store, self.registry).publish(time.time())  # a worker would publish later
        return {name: self._estimate(name) for name in _SHARES}

    def _counted(self) -> int:
        every = self.registry.metrics.values()
        return sum(self._store.read(mechanisms.of(each).layout, list(self._store.strata(each.id))).n for each in every)

    def _estimate(self, name: str) -> dict[str, Any]:
        with requests.Session() as session:
            session.trust_env = False  # this machine's own server is not reached through a proxy
            answer = session.get(f"{self.stack.url}/api/v1/metrics/{name}", headers=self._headers, timeout=30)
        answer.raise_for_status()
        rows = answer.json()["estimates"]
        shares = [
            {"answer": str(row["value"]), "share": row["estimate"], "low": row["interval"][0], "high": row["interval"][1]}
            for row in rows
        ]
        return {"n": answer.json()["n"], "shares": shares}

    def close(self) -> None:
        """Leave the store."""
        self._client.close()


def _answers(values: tuple[Any, ...], shares: tuple[float, ...]) -> list[Any]:
    """Return the answers of all, as often as the shares say."""
    return [value for value, share in zip(values, shares, strict=True) for _ in range(round(share * OTHERS))]


class Page:
    """Serves the page's files, and the estimates, on this machine."""

    def __init__(
        self,
        crowd: Crowd,
        port: int,  # 0 for a free one
    ) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, crowd))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, crowd: Crowd, *arguments: Any) -> None:
        self._crowd = crowd
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """Send a file, or the estimates."""
        if self.path == "/estimates.json":
            self._send("application/json", json.dumps(self._crowd.estimates()).encode())
        elif self.path in _FILES:
            name, kind = _FILES[self.path]
            content = files(_PLACE).joinpath("web", "demo", name).read_bytes()
            # The page then sends to the server, and does not count by itself.
            live = content.replace(b'<html lang="en">', f'<html lang="en" data-dsn="{self._crowd.dsn}">'.encode())
            self._send(kind, live if name == "demo.html" else content)
        else:
            self.send_error(404)

    def _send(self, kind: str, content: bytes) -> None:
        policy = (
            f"default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self' {self._crowd.stack.url}"
        )
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Security-Policy", policy)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as there
        """Write no log."""
