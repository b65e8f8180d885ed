"""The client in a real browser: consent, tabs, closing, what is forgotten or refused, being offline, and a strict page."""

from __future__ import annotations

import json
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from shutil import which
from threading import Thread

import pytest
from npm import run

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
description = "d"
owner = "o@shop.example"

[metrics.habit]
type = "categorical"
values = ["a", "b", "c"]
epsilon = 1
epsilon_permanent = 2
period = "week"
description = "d"
owner = "o@shop.example"
"""
)
SCRIPT = """
import {{ init }} from "./all.js";
const at = new URLSearchParams(location.search);
window.faults = [];
addEventListener("securitypolicyviolation", (event) => window.faults.push(event.violatedDirective));
addEventListener("error", (event) => window.faults.push(event.message));
addEventListener("unhandledrejection", (event) => window.faults.push(String(event.reason)));
let agreed = at.get("consent") !== "no";
window.agree = (yes) => (agreed = yes);
window.telemetry = init({{
  dsn: `http://pk_page@${{location.host}}/shop`,
  registry: {sheet},
  consent: () => agreed,
  ...(at.get("state") ? {{ state: at.get("state") }} : {{}}),
}});
"""


class Site:
    """A page, and a server of the same origin that takes its reports."""

    def __init__(self, bundle):
        self.stub = StubServer(key="pk_page")
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
        kind, content = self.site.files.get(self.path.partition("?")[0], ("text/plain", b""))
        self.answer(200, {"Content-Type": kind, "Content-Security-Policy": POLICY, "Access-Control-Allow-Origin": "*"}, content)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
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


@pytest.fixture(scope="module")
def bundle(package):
    run("npx", "esbuild", "--bundle", "dist/index.js", "--format=esm", "--minify", "--outfile=build/page.js", cwd=package)
    return (package / "build" / "page.js").read_bytes()


@pytest.fixture
def site(bundle):
    with Site(bundle) as running:
        yield running


@pytest.fixture(scope="module")
def browser():
    program = next(filter(None, map(which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no chromium on PATH (apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright (pip install playwright)")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def context(browser):
    """Make a new profile."""
    profile = browser.new_context()
    yield profile
    profile.close()


def visit(context, site, query=""):
    page = context.new_page()
    page.goto(f"{site.url}/{query}")
    page.wait_for_function("window.telemetry !== undefined")
    return page


def record(page, metric="theme", answer="dark"):
    return page.evaluate("([metric, answer]) => telemetry.record(metric, answer)", [metric, answer])


def stats(page):
    return page.evaluate("telemetry.stats()")


def age(page, days):
    """Let the state be older by some days, as if the browser had been here before."""
    page.evaluate(
        """(days) => new Promise((resolve, reject) => {
            const request = indexedDB.open("deniable shop");
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


def test_a_strict_page_reports_and_breaks_no_policy(site, context):
    """From a yes to a report, with a policy that forbids all but the page's own scripts and server."""
    page = visit(context, site)
    assert record(page)
    assert page.evaluate("telemetry.flush()") == {"sent": 1, "left": 0}
    assert [report.stratum.metric for report in site.stub.reports] == ["theme"]
    assert page.evaluate("telemetry.sent().then((each) => each.length)") == 1
    assert page.evaluate("faults") == []


def test_without_a_yes_nothing_is_stored_or_sent(site, context):
    """Also not where the browser says no by itself."""
    page = visit(context, site, "?consent=no")
    assert not record(page)
    assert page.evaluate("telemetry.flush()") == {"sent": 0, "left": 0}
    assert (databases(page), stats(page)["dropped"]) == ([], {"no_consent": 1})
    context.add_init_script("Object.defineProperty(Navigator.prototype, 'globalPrivacyControl', { get: () => true })")
    page = visit(context, site)
    assert not record(page)
    assert (databases(page), stats(page)["disabled"]) == ([], "the browser says no (globalPrivacyControl)")
    assert site.stub.attempts == []


def test_two_tabs_share_a_budget_and_send_once(site, context):
    """Of three reports of the period each is made once, whichever tab asks, and one batch has all of them."""
    first, second = visit(context, site), visit(context, site)
    assert record(first)
    age(first, 30)
    both = "Promise.all([1, 2, 3].map(() => telemetry.record('theme', 'dark')))"
    outcomes = first.evaluate(both) + second.evaluate(both)
    assert sum(outcomes) == 2
    for page in (first, second, first):
        page.evaluate("telemetry.flush()")
    assert len(site.stub.reports) == 3
    assert first.evaluate("telemetry.waiting()") == second.evaluate("telemetry.waiting()") == 0


@pytest.mark.parametrize("leave", ["close", "navigate"])
def test_a_page_that_is_left_sends_what_it_has(site, context, leave):
    """Nothing is lost and nothing counts twice: what has not arrived waits for the next page, under the same key."""
    for _ in range(3):
        profile = context.browser.new_context()
        page = visit(profile, site)
        assert record(page)
        if leave == "close":
            page.close(run_before_unload=True)
        else:
            page.goto(f"{site.url}/other")
        site.stub.wait(len(site.stub.reports) + 1, 2.0)
        again = visit(profile, site)
        again.evaluate("telemetry.flush()")
        assert again.evaluate("telemetry.waiting()") == 0
        profile.close()
    assert len(site.stub.reports) == 3


def test_a_browser_that_forgets_earns_its_budget(site, context):
    """A metric that keeps responses is not asked of a new state, and again not after the data are cleared."""
    page = visit(context, site)
    assert not record(page, "habit", "a")
    assert record(page)
    age(page, 30)
    assert record(page, "habit", "a")
    page.evaluate("telemetry.close()")
    devtools = context.new_cdp_session(page)
    devtools.send("Storage.clearDataForOrigin", {"origin": site.url, "storageTypes": "all"})
    page = visit(context, site)
    assert not record(page, "habit", "a")
    assert stats(page)["dropped"] == {"budget": 1}
    assert "it starts anew" in " ".join(page.evaluate("telemetry.explain('habit').lines"))


def test_where_storage_is_refused_nothing_is_recorded(site, context):
    """As in a frame of no origin; and the page never sees an error."""
    page = context.new_page()
    page.goto(f"{site.url}/frame")
    frame = page.frames[1]
    frame.wait_for_function("window.telemetry !== undefined")
    assert frame.evaluate("telemetry.record('theme', 'dark')") is False
    assert set(frame.evaluate("telemetry.stats()")["dropped"]) <= {"state", "disabled"}
    assert frame.evaluate("telemetry.flush()")["sent"] == 0
    assert frame.evaluate("faults") == []


def test_what_could_not_be_sent_arrives_later_under_the_same_key(site, context):
    """Blocked by an extension, and then offline: four tries, no other way, and one report when the way is free."""
    page = visit(context, site)
    keys = []
    page.route("**/v1/reports", lambda route: (keys.append(route.request.headers["idempotency-key"]), route.abort()))
    assert record(page)
    assert page.evaluate("telemetry.flush()") == {"sent": 0, "left": 1}
    page.unroute("**/v1/reports")
    context.set_offline(True)
    assert page.evaluate("telemetry.flush()") == {"sent": 0, "left": 1}
    context.set_offline(False)
    page = visit(context, site)
    assert page.evaluate("telemetry.flush()") == {"sent": 1, "left": 0}
    assert (len(keys), {*keys}) == (4, {site.stub.attempts[0].key})
    assert len(site.stub.reports) == 1


def test_a_withdrawal_deletes_what_is_unsent(site, context):
    """What was spent stays, so that another yes costs nothing again."""
    page = visit(context, site)
    assert record(page)
    page.evaluate("agree(false); telemetry.setConsent(() => false)")
    page.evaluate("telemetry.setConsent(true)")
    assert page.evaluate("telemetry.flush()") == {"sent": 0, "left": 0}
    assert site.stub.attempts == []
    assert not record(page)
