"""`<deniable-receipt>` in a real browser: what it shows, its switch, and whether everybody can use it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from webpage import age, record, until, visit

PAGE = """<!doctype html><html lang="en"><title>A page</title><main><h1>What this page sends</h1>
<deniable-receipt></deniable-receipt></main><script type="module" src="/page.js"></script>"""
AXE = """async () => (await axe.run({
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], resultTypes: ["violations"],
  })).violations.map((each) => each.id + ": " + each.nodes.map((node) => node.html).join("; "))"""


@pytest.fixture
def page(site, context):
    """Return a page with a receipt, under a policy that allows no styles."""
    site.files["/"] = ("text/html", PAGE.encode())
    page = visit(context, site)
    page.wait_for_selector("deniable-receipt table")
    return page


def text(page):
    page.evaluate("document.querySelector('deniable-receipt').refresh()")
    return " ".join(page.inner_text("deniable-receipt").split())


def test_it_shows_what_is_asked_sent_and_left(page):
    """The questions with their answers, each report as it left, and the month's budget."""
    before = text(page)
    assert "Which theme do you use? light; dark At most 3 reports a week" in before
    assert "What do you do most? a; b; c At most" in before
    assert "100%" in before
    assert "Nothing was sent from this browser yet." in before
    assert record(page)
    assert "Reports that wait to be sent: 1" in text(page)
    page.evaluate("telemetry.flush()")
    after = text(page)
    (report,) = page.evaluate("telemetry.sent()")
    assert re.search(rf"do you use\? {report['period']} says “(light|dark)”, sent as bytes {report['payload']}", after)
    assert after.count("In a month all answers together may give away") == after.count("With an upload the server sees") == 1
    assert "100%" not in after
    assert "Reports that wait to be sent: 0" in after


def test_it_shows_by_itself_what_was_sent(page):
    """Whoever looks at it while the page records is shown the truth; what did not change is not drawn anew."""
    assert "Nothing was sent from this browser yet." in page.inner_text("deniable-receipt")
    page.evaluate("document.querySelector('deniable-receipt table').mark = 1")
    assert record(page)
    page.evaluate("telemetry.flush()")
    until(page, "!document.querySelector('deniable-receipt').textContent.includes('Nothing was sent')")
    page.evaluate("document.querySelector('deniable-receipt table').mark = 2")
    page.wait_for_timeout(4500)
    assert page.evaluate("document.querySelector('deniable-receipt table').mark") == 2


def test_its_switch_ends_collection_and_tells_the_page(page):
    """By keyboard: what waits is deleted, a status is read out, and the page hears the choice, to keep it."""
    assert record(page)
    page.evaluate("document.addEventListener('deniable-consent', (event) => (window.choice = event.detail.consent))")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.role") == "switch"
    page.keyboard.press("Space")
    until(page, "document.querySelector('[role=status]').textContent !== ''")
    assert page.inner_text("[role=status]") == "Nothing is sent. What was waiting is deleted."
    assert page.evaluate("[choice, telemetry.agreed()]") == [False, False]
    assert page.evaluate("telemetry.waiting()") == 0
    assert not record(page)
    assert page.evaluate("document.activeElement.role") == "switch"  # the focus stays
    page.keyboard.press("Space")
    until(page, "window.choice")
    assert page.evaluate("telemetry.agreed()")


def test_where_the_browser_says_no_it_says_so(site, context):
    """The switch can not be turned, and the reason stands beside it."""
    context.add_init_script("Object.defineProperty(Navigator.prototype, 'globalPrivacyControl', { get: () => true })")
    site.files["/"] = ("text/html", PAGE.encode())
    page = visit(context, site)
    page.wait_for_selector("deniable-receipt table")
    assert page.is_disabled("[role=switch]")
    assert page.inner_text("[role=status]") == "Telemetry is off here: globalPrivacyControl is set"


@pytest.mark.parametrize("width", [1280, 320])
def test_everybody_can_use_it(page, width):
    """No rule of WCAG 2.2 at level AA is broken, and a narrow window does not scroll sideways for a report."""
    assert record(page)
    age(page, 30)
    assert record(page, "habit", "a")
    page.evaluate("telemetry.flush()")
    text(page)
    page.set_viewport_size({"width": width, "height": 700})
    brought = pytest.importorskip("axe_playwright_python", reason="no axe-core (pip install axe-playwright-python)")
    page.evaluate(Path(brought.__file__).with_name("axe.min.js").read_text("utf-8"))
    assert page.evaluate(AXE) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_its_looks_are_the_pages(page):
    """It has no style, no class, no shadow and no markup of a text; the page's own words can stand in it."""
    html = page.inner_html("deniable-receipt")
    assert "style" not in html
    assert "class" not in html
    assert page.evaluate("document.querySelector('deniable-receipt').shadowRoot") is None
    page.evaluate(
        """() => {
        const receipt = document.querySelector("deniable-receipt");
        receipt.questions = { theme: "<b>Hell oder dunkel?</b>" };
        receipt.texts = { asked: "Was gefragt wird" };
    }"""
    )
    page.wait_for_selector("text=Was gefragt wird")
    assert "<b>Hell oder dunkel?</b>" in text(page)
    assert page.evaluate("faults") == []
