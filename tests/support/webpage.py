"""A page with the SDK for browsers, a server of its origin and of another one, and what tests do there."""

from __future__ import annotations

import json
import re
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import monotonic, sleep

import requests
from npm import ROOT
from waiting import eventually

from deniable.commands.sheet import sheet
from deniable.registry import parse
from deniable.testing.stub import StubServer

FLAGS = ["--disable-background-networking", "--disable-gpu", "--no-first-run", "--no-sandbox"]
POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'; frame-src 'self'; img-src 'self'"
REGISTRY = parse(
    """
format = 1
app = "shop"

[metrics.theme]
type = "categorical"
values = ["light", "dark"]
epsilon = 1
per_period = 3
period = "week"
description = "Which theme do you use?"
owner = "o@shop.example"

[metrics.habit]
type = "categorical"
values = ["a", "b", "c"]
epsilon = 1
epsilon_permanent = 2
period = "week"
description = "What do you do most?"
owner = "o@shop.example"
"""
)
SCRIPT = """
import {{ init, Receipt }} from "./all.js";
const at = new URLSearchParams(location.search);
window.faults = [];
addEventListener("securitypolicyviolation", (event) => window.faults.push(event.violatedDirective));
addEventListener("error", (event) => window.faults.push(event.message));
addEventListener("unhandledrejection", (event) => window.faults.push(String(event.reason)));
let agreed = at.get("consent") !== "no";
window.agree = (yes) => (agreed = yes);
window.shift = 0; // milliseconds by which the page's clock is ahead
window.shows = [];
addEventListener("pageshow", (event) => window.shows.push(event.persisted));
window.telemetry = init({{
  dsn: `http://pk_page@${{location.host}}/shop`,
  registry: {sheet},
  consent: () => agreed,
  now: () => Date.now() + window.shift,
  ...(at.get("state") ? {{ state: at.get("state") }} : {{}}),
  ...(at.get("key") ? {{ registryKey: at.get("key") }} : {{}}),
}});
const receipt = document.querySelector("deniable-receipt");
if (receipt instanceof Receipt) receipt.telemetry = window.telemetry;
"""
READ = {"Authorization": "Bearer rk_example_key"}


class Site:
    """A page, and a server of the same origin that takes its reports."""

    def __init__(self, bundle):
        self.stub = StubServer(key="pk_page")
        self.policy = POLICY
        self.results = []  # what pages said of themselves
        self.files = {
            "/": ("text/html", b'<!doctype html><title>A page</title><script type="module" src="/page.js"></script>'),
            "/other": ("text/html", b"<!doctype html><title>Another page</title>"),
            "/frame": ("text/html", b'<!doctype html><iframe sandbox="allow-scripts" src="/"></iframe>'),
            "/page.js": ("text/javascript", SCRIPT.format(sheet=json.dumps(sheet(REGISTRY))).encode()),
            "/all.js": ("text/javascript", bundle),
        }
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, self))
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, site, *arguments):
        self.site = site
        super().__init__(*arguments)

    def do_GET(self):
        if self.path == "/v1/registry" and self.site.stub.envelope is not None:
            self.answer(200, {"Content-Type": "application/json"}, self.site.stub.envelope)
            return
        kind, content = self.site.files.get(self.path.partition("?")[0], ("text/plain", b""))
        self.answer(
            200, {"Content-Type": kind, "Content-Security-Policy": self.site.policy, "Access-Control-Allow-Origin": "*"}, content
        )

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/result":
            self.site.results.append(json.loads(body))
            self.answer(204, {}, b"")
            return
        status, headers, document = self.site.stub.answer(self.headers, body)
        self.answer(status, headers | {"Content-Type": "application/json"}, json.dumps(document).encode())

    def answer(self, status, headers, content):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def guide(name, language):
    """Read an example of docs/how-to/web-page.md."""
    text = (ROOT / "docs" / "how-to" / "web-page.md").read_text("utf-8")
    return re.search(rf"<!-- {name} -->\n```{language}\n(.*?)```", text, re.DOTALL)[1]


def visit(context, site, query=""):
    page = context.new_page()
    page.goto(f"{site.url}/{query}")
    until(page, "window.telemetry !== undefined")
    return page


def until(page, expression):
    """Wait until a page says yes. `wait_for_function` evaluates in the page, which the policy forbids from the second time on."""
    assert eventually(lambda: page.evaluate(expression)), expression


def record(page, metric="theme", answer="dark"):
    return page.evaluate("([metric, answer]) => telemetry.record(metric, answer)", [metric, answer])


def stats(page):
    return page.evaluate("telemetry.stats()")


def age(page, days):
    """Let the state be older by some days, as if the browser had been here before."""
    page.evaluate(
        """(days) => new Promise((resolve, reject) => {
            const request = indexedDB.open("deniable shop");
            request.onupgradeneeded = () => reject(new Error("there is no state yet"));
            request.onsuccess = () => {
                const transaction = request.result.transaction("state", "readwrite");
                const store = transaction.objectStore("state");
                store.get("state").onsuccess = (event) => {
                    const state = event.target.result;
                    store.put({ ...state, born: state.born - days * 86400000 }, "state");
                };
                transaction.oncomplete = () => { request.result.close(); resolve(); };
                transaction.onerror = reject;
            };
        })""",
        days,
    )


def databases(page):
    return page.evaluate("indexedDB.databases().then((each) => each.map(({ name }) => name))")


def ask(stack, metric, **parameters):
    return requests.get(f"{stack.url}/api/v1/metrics/{metric}", headers=READ, params=parameters, timeout=60).json()


def until_counted(stack, metrics, n):
    """Wait until so many reports of each metric are counted."""
    deadline = monotonic() + 300
    while any(ask(stack, metric)["n"] != n for metric in metrics):
        stack.check()
        assert monotonic() < deadline
        sleep(0.5)
