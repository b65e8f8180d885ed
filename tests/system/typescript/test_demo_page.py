"""The page of `deniable demo --web`: what a visitor sees, where the page counts and where a server does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest
from npm import ROOT

FILE = ROOT / "server" / "deniable_server" / "web" / "demo" / "demo.html"
AXE = """async () => (await axe.run({
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], resultTypes: ["violations"],
  })).violations.map((each) => each.id + ": " + each.nodes.map((node) => node.html).join("; "))"""
TRUTH = [0.85, 0.15, 0.35, 0.45, 0.2, 0.25, 0.4, 0.25, 0.1]


@pytest.fixture
def page(context):
    """Return a page that keeps what it complained of, and what it asked for."""
    page = context.new_page()
    page.complaints, page.addresses = [], []
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("request", lambda request: page.addresses.append(f"{request.method} {request.url}"))
    return page


def answer(page):
    """Answer the questions; return the cells of what left."""
    page.check("input[name='ui.theme'][value='1']")
    page.click("button")
    page.wait_for_selector("text=2,001 people")
    return page.eval_on_selector_all("#left tbody tr", "rows => rows.map((row) => [...row.cells].map((cell) => cell.innerText))")


def count_late(page):
    """Let the server's second answer be its first one, as if the worker had not counted the visitor yet."""
    answers = []

    def respond(route):
        answers.append(route.fetch() if len(answers) != 1 else answers[0])
        route.fulfill(response=answers[-1])

    page.route("**/estimates.json", respond)


def shares(page):
    """Read each bar: its share and the half of its interval, in percent."""
    texts = page.eval_on_selector_all(
        "#charts tbody tr", "rows => rows.map((row) => row.cells[2].innerText + row.cells[3].innerText)"
    )
    return [tuple(map(float, re.fullmatch(r"(-?[\d.]+)%± ([\d.]+)", text).groups())) for text in texts]


def check(page):
    """See that the charts are near the truth, and that nothing is wrong with the page."""
    for (share, half), truth in zip(shares(page), TRUTH, strict=True):
        assert abs(share - 100 * truth) < 3 * half + 0.1  # the half of an interval at 95% is two standard errors
    assert page.complaints == []


def test_the_page_counts_by_itself(page):
    """As on the site: coins, payload, what it says, and 2,000 others; it asks for nothing but its own files."""
    page.goto(FILE.as_uri())
    page.wait_for_selector("text=2,000 people")
    (policy, theme, tabs) = answer(page)
    assert re.fullmatch("coin that says “truth” 73% of the time: (truth|another answer)", policy[1])
    assert re.fullmatch("coin .* 58% .*: (truth|another answer); die with 2 sides, thrown in either case: [12]", theme[1])
    assert "48%" in tabs[1]
    for row, names in ((policy, ["no", "yes"]), (theme, ["light", "dark", "system"])):
        assert names[int(row[2], 16)] == row[3]
        assert (row[3] == names[row is theme]) == ("truth" in row[1].partition(": ")[2])
    check(page)
    files = {f"GET {FILE.with_name(name).as_uri()}" for name in ("demo.html", "demo.css", "demo.js")}
    assert {each for each in page.addresses if not each.startswith("GET data:")} == files


@pytest.mark.parametrize(("width", "scheme"), [(1000, "light"), (390, "dark")])
def test_everybody_can_use_it(page, width, scheme):
    """No rule of WCAG 2.2 at level AA is broken, wide and narrow, light and dark."""
    brought = pytest.importorskip("axe_playwright_python", reason="no axe-core (pip install axe-playwright-python)")
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    page.goto(FILE.as_uri())
    answer(page)
    page.evaluate(Path(brought.__file__).with_name("axe.min.js").read_text("utf-8"))
    assert page.evaluate(AXE) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_server_counts(page):
    """`deniable demo --web`: the others are counted by the server, and so are the visitor's reports."""
    command = [sys.executable, "-m", "deniable", "demo", "--web", "--keep"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        lines = Queue()
        Thread(target=lambda: [lines.put(line) for line in process.stdout], daemon=True).start()
        try:
            line = lines.get(timeout=600)
            address = re.fullmatch(r"Answer here: +(http://127\.0\.0\.1:\d+/)\n", line)[1]
            count_late(page)
            page.goto(address)
            page.wait_for_selector("text=2,000 people")
            answer(page)
            check(page)
            (upload,) = [each for each in page.addresses if each.startswith("POST ")]
            assert upload.endswith("/v1/reports")
        finally:
            process.terminate()
            process.wait(60)
