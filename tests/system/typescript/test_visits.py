"""What visits to a page bring about: going back, a day without a network, a page that forbids the server, and another origin."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from urllib.parse import quote

import pytest
from webpage import age, ask, guide, record, stats, until, until_counted, visit

from deniable.commands.entry import main
from deniable.commands.sheet import sheet
from deniable.registry import load
from deniable.served_registry.restrictions import Limit, Restriction
from deniable.served_registry.signature import generate, seal
from deniable_server.api import script

DAY = 86_400_000
VISITORS = 2000


def test_a_page_that_comes_back_goes_on(site, context):
    """The back button brings a page with its client: it records and sends, and what left with it counts once."""
    page = visit(context, site)
    assert record(page)
    age(page, 30)
    page.evaluate("window.mark = 1")
    page.goto(f"{site.url}/other")
    page.go_back(wait_until="commit")  # a page that was kept is not loaded again
    until(page, "window.shows.includes(true)")
    assert page.evaluate("window.mark") == 1  # the page itself, and no new one
    assert record(page)
    page.evaluate("telemetry.flush()")
    assert page.evaluate("telemetry.waiting()") == 0
    site.stub.wait(2, 10.0)
    assert len(site.stub.reports) == 2
    assert page.evaluate("faults") == []


def test_a_day_offline_costs_nothing_and_two_more_are_given_up(site, context):
    """What waits for a day arrives under its key. After two days a server may not know the key any more, so it is dropped."""
    page = visit(context, site)
    context.set_offline(True)
    assert record(page)
    assert page.evaluate("telemetry.flush()") == {"sent": 0, "left": 1, "why": "no_answer"}
    page.evaluate(f"window.shift = {DAY}")
    assert page.evaluate("telemetry.flush()") == {"sent": 0, "left": 1, "why": "no_answer"}
    context.set_offline(False)
    assert page.evaluate("telemetry.flush()") == {"sent": 1, "left": 0, "why": ""}
    assert len(site.stub.reports) == 1
    age(page, 30)
    assert record(page)
    context.set_offline(True)
    assert page.evaluate("telemetry.flush()") == {"sent": 0, "left": 1, "why": "no_answer"}
    page.evaluate(f"window.shift = {4 * DAY}")
    context.set_offline(False)
    assert page.evaluate("telemetry.flush()") == {"sent": 0, "left": 0, "why": "too_old"}
    assert stats(page)["dropped"] == {"too_old": 1}
    assert len(site.stub.reports) == 1


def test_a_policy_that_forbids_the_server_keeps_reports(site, context):
    """The page is not disturbed, and a later page that may send does."""
    site.policy = site.policy.replace("connect-src 'self'", "connect-src 'none'")
    page = visit(context, site)
    assert record(page)
    assert page.evaluate("telemetry.flush()") == {"sent": 0, "left": 1, "why": "no_answer"}
    assert set(page.evaluate("faults")) == {"connect-src"}
    site.policy = site.policy.replace("connect-src 'none'", "connect-src 'self'")
    page = visit(context, site)
    assert page.evaluate("telemetry.flush()") == {"sent": 1, "left": 0, "why": ""}


def served(site, context, *metrics):
    """Visit a page that pins a key, of a site that serves which metrics stay on; return the page when it has asked."""
    private, public = generate()
    text = Restriction("shop", 6, {id_: Limit("1", None) for id_ in metrics}).write()
    site.stub.envelope = seal(text, private)[0].write()
    page = visit(context, site, f"?key={quote(public)}")
    page.evaluate("telemetry.flush()")
    return page


def test_a_served_registry_turns_a_metric_off(site, context):
    """Also in another tab of the page, and when the page is opened again; nothing else ends."""
    page = served(site, context, "habit")
    for each in (page, context.new_page()):
        each.goto(page.url)
        until(each, "window.telemetry !== undefined")
        assert not record(each)
        assert (stats(each)["dropped"], stats(each)["disabled"]) == ({"off": 1}, None)
        assert each.evaluate("faults") == []


def test_a_served_registry_of_another_key_ends_all_until_the_next_visit(site, context):
    """The browser itself checks signatures. What waits is kept."""
    page = served(site, context, "habit", "theme")
    assert record(page)
    page = visit(context, site, f"?key={quote(generate()[1])}")
    arrival = page.evaluate("telemetry.flush()")
    assert (arrival["sent"], arrival["left"]) == (0, 1)
    assert "its signature is of another text, or by another key" in stats(page)["disabled"]
    assert not record(page)
    assert site.stub.attempts == []


VISIT = """async ([dsn, answers, visitors]) => {
  const totals = { sent: 0, left: 0, faults: window.faults };
  const one = async (number) => {
    const segments = { platform: "linux", version: "2.4" };
    const telemetry = deniable.init({ dsn, registry, consent: true, state: "memory", segments });
    for (const [metric, listed] of Object.entries(answers)) await telemetry.record(metric, listed[number % listed.length]);
    const { sent, left } = await telemetry.flush();
    telemetry.close();
    totals.sent += sent;
    totals.left += left;
  };
  for (let number = 0; number < visitors; number += 20) {
    await Promise.all(Array.from({ length: 20 }, (_, i) => one(number + i)));
  }
  return totals;
}"""
ANSWERS = {"grr": ["0", "0", "3+"], "local_hash": ["j", "a"]}
TRUTH = {"grr": {"0": 2 / 3, "3+": 1 / 3}, "local_hash": {"j": 0.5, "a": 0.5}}


def test_two_thousand_visitors_of_another_origin(site, context, stack):
    """A plain page loads the script from the server by its hash. Its visitors' reports are counted, with the truth inside."""
    site.policy = f"default-src 'none'; script-src 'self' {stack.url}; connect-src {stack.url}; img-src 'self'"
    faults = b'window.faults = []; addEventListener("securitypolicyviolation", (event) => faults.push(event.violatedDirective));'
    site.files["/faults.js"] = ("text/javascript", faults)
    written = json.dumps(sheet(load(stack.settings.registry)))
    site.files["/registry.js"] = ("text/javascript", f"var registry = {written};".encode())
    lines = ['<script src="/faults.js"></script>', script.tag(stack.url), '<script src="/registry.js"></script>']
    site.files["/plain"] = ("text/html", f"<!doctype html><title>A plain page</title>{''.join(lines)}".encode())
    page = context.new_page()
    page.goto(f"{site.url}/plain")
    dsn = f"{stack.url.replace('http://', 'http://pk_public@')}/shop"
    assert page.evaluate(VISIT, [dsn, ANSWERS, VISITORS]) == {"sent": VISITORS * len(ANSWERS), "left": 0, "faults": []}
    until_counted(stack, ANSWERS, VISITORS)
    for metric, truth in TRUTH.items():
        for row in ask(stack, metric, level=0.999999)["estimates"]:
            low, high = row["simultaneous"]
            assert low <= truth.get(row["value"], 0) <= high, (metric, row)
    page.goto(stack.url)
    page.fill("#key", "rk_example_key")
    page.click("main button")
    page.goto(f"{stack.url}/m/grr")
    assert "2,000" in page.inner_text("main")


@pytest.mark.parametrize("change", ["content", "hash"])
def test_another_script_than_the_page_names_does_not_run(site, context, stack, change):
    """Whoever serves the script cannot serve another one to a page that names the hash."""
    tag = script.tag(stack.url)
    if change == "hash":
        start = tag.index("sha384-") + len("sha384-")
        tag = tag[:start] + ("B" if tag[start] == "A" else "A") + tag[start + 1 :]
    site.policy = f"default-src 'none'; script-src {stack.url}"
    site.files["/plain"] = ("text/html", f"<!doctype html><title>A plain page</title>{tag}".encode())
    page = context.new_page()
    if change == "content":
        headers = {"Access-Control-Allow-Origin": "*"}
        page.route(
            "**/sdk/*", lambda route: route.fulfill(body="var deniable = 1;", headers=headers, content_type="text/javascript")
        )
    page.goto(f"{site.url}/plain")
    assert page.evaluate("typeof deniable") == "undefined"


def test_the_plain_page_of_the_guide(site, context, tmp_path):
    """From `deniable init --web` to a report, with the page that docs/how-to/web-page.md shows."""
    assert main(["init", "--app", "shop", "--web", "--trial", "--file", str(tmp_path / "metrics.toml")]) == 0
    written = StringIO()
    with redirect_stdout(written):
        assert main(["registry", "show", "--script", str(tmp_path / "metrics.toml")]) == 0
    html = guide("plain example", "html").replace("http://127.0.0.1:8080", site.url)
    html = html.replace("sha384-...", script.integrity())
    code = guide("plain script", "js").replace("PUBLIC_KEY@127.0.0.1:8080", f"pk_page@{site.url.removeprefix('http://')}")
    site.files |= {
        "/": ("text/html", html.encode()),
        "/registry.js": ("text/javascript", written.getvalue().encode()),
        "/page.js": ("text/javascript", code.encode()),
        "/sdk/deniable.js": ("text/javascript", script.content()),
    }
    page = context.new_page()
    page.goto(site.url)
    page.wait_for_selector("deniable-receipt table")
    page.click("text=Use the dark theme")
    assert page.evaluate("telemetry.flush()") == {"sent": 0, "left": 0, "why": "no_consent"}
    page.click("[role=switch]")
    until(page, "telemetry.agreed()")
    page.click("text=Use the dark theme")
    until(page, "telemetry.stats().recorded === 1")
    assert page.evaluate("telemetry.flush()") == {"sent": 1, "left": 0, "why": ""}
    assert [report.metric for report in site.stub.reports] == ["ui.theme"]
    page.goto(f"{site.url}/other")
    page.goto(site.url)
    page.wait_for_selector("deniable-receipt table")
    assert page.evaluate("telemetry.agreed()")  # the page has kept the choice
