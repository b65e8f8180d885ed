"""Every page in a real browser: wide and light, on a telephone and dark, by keyboard, and without script."""

from __future__ import annotations

import csv
import json
import re
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest
from waiting import new_profile

from .conftest import READ

MOST_BYTES = 200_000
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
LOOKS = {"wide": (WIDE, "light"), "phone": (PHONE, "dark")}
METRICS = (
    "ui.theme",
    "export.used",
    "cart.and.coupon",
    "plugins",
    "search.ms",
    "session.length",
    "usage.hour",
    "page",
    "rare.flag",
    "way.home",
)
PAGES = [
    "/",
    "/?q=nothing",
    *(f"/m/{id_}" for id_ in METRICS),
    "/m/search.ms?view=cumulative",
    "/m/ui.theme?view=consistent&level=0.99",
    "/m/ui.theme/compare?a=platform%3Dlinux&b=platform%3Dmacos",
    "/m/session.length/compare",
    "/m/way.home/compare",
]
REFUSED = ["/m/nothing", "/m/ui.theme?period=never", "/m/ui.theme?segment=platform%3Dbeos"]
LEFT = "net::ERR_ABORTED"  # the next page was asked for before this one had all
LIVE = ["/live", "/m/ui.theme/live"]
UNSEEN = "Failed to load resource: the server responded with a status of"  # what a browser says of any page that is refused
# By the rules of WCAG 2.2, levels A and AA. Serious: some people cannot use it. The rest needs a person to look.
AXE = """async () => (await axe.run({
        runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], resultTypes: ["violations"],
    })).violations
    .filter(each => ["serious", "critical"].includes(each.impact))
    .map(each => each.id + ": " + each.nodes.map(node => node.html + " " + node.failureSummary).join("; "))"""

NARROW = """[...document.querySelectorAll("p")]
    .filter(each => each.innerText.length > 40 && each.checkVisibility() && each.clientWidth < 120)
    .map(each => each.innerText)"""
"""Sentences that stand a word or two to a line."""


BOXES = "each => each.map(one => one.getBoundingClientRect()).map(box => [box.left, box.top, box.right, box.bottom])"


def overlapping(boxes):
    """Return the pairs of boxes that run over one another."""
    return [
        (one, other)
        for one, other in combinations(boxes, 2)
        if max(one[0], other[0]) < min(one[2], other[2]) and max(one[1], other[1]) < min(one[3], other[3])
    ]


class Visitor(NamedTuple):
    """A browser's window, and what it complained of."""

    page: object
    address: str
    complaints: list[str]
    pictures: Path | None

    def go(self, path, status=200):
        answer = self.page.goto(self.address + path)
        assert answer.status == status
        assert len(answer.body()) < MOST_BYTES, f"{path} has {len(answer.body())} bytes"

    def check(self, axe):
        """See that nothing is wrong with the page as it stands: at a desk, and on a telephone at night."""
        assert self.complaints == []
        self.page.evaluate(axe)
        for look in reversed(LOOKS):
            self.look(look)
            if self.pictures:
                name = re.sub(r"\W+", "-", f"{look} {self.page.url.removeprefix(self.address)}").strip("-")
                self.page.screenshot(path=self.pictures / f"{name}.png", full_page=True)
            assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"it scrolls sideways, {look}"
            assert self.page.evaluate(NARROW) == [], f"text without room, {look}"
            violations = self.page.evaluate(AXE)
            assert not violations, f"{look}: {json.dumps(violations, indent=1)}"

    def look(self, name):
        """Look as at a desk, or on a telephone at night."""
        size, scheme = LOOKS[name]
        self.page.set_viewport_size(size)
        self.page.emulate_media(color_scheme=scheme)


def signed(browser, address, key):
    """Sign in; return the cookies."""
    context = new_profile(browser)
    page = context.new_page()
    page.goto(address)
    page.fill("#key", key)
    page.click("main button")
    page.wait_for_selector(".groups")
    cookies = context.storage_state()
    context.close()
    return cookies


@pytest.fixture(scope="module")
def reader(browser, address):
    """Sign in as an analyst."""
    return signed(browser, address, READ)


@pytest.fixture(scope="module")
def owner(browser, address, admin_key):
    """Sign in as the owner."""
    return signed(browser, address, admin_key)


@pytest.fixture(scope="module")
def axe():
    """Read the checks of axe-core."""
    brought = pytest.importorskip("axe_playwright_python", reason="no axe-core (pip install axe-playwright-python)")
    return Path(brought.__file__).with_name("axe.min.js").read_text("utf-8")


@pytest.fixture(scope="module")
def windows(browser, address, pytestconfig):
    """Keep a window open for each kind of visitor, at a desk."""
    visitors = {}
    pictures = pytestconfig.getoption("pictures")
    if pictures:
        pictures.mkdir(exist_ok=True)

    def window(cookies=None, *, script=True):
        kind = script, json.dumps(cookies)
        if kind not in visitors:
            page = new_profile(browser, storage_state=cookies, java_script_enabled=script).new_page()
            complaints = []
            page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("requestfailed", lambda request: complaints.append(request.url) if request.failure != LEFT else None)
            visitors[kind] = Visitor(page, address, complaints, pictures)
        visitors[kind].complaints.clear()
        visitors[kind].look("wide")
        return visitors[kind]

    return window


@pytest.fixture
def visitor(windows, reader):
    """Look as an analyst does."""
    return windows(reader)


@pytest.mark.parametrize("path", PAGES)
def test_pages(visitor, axe, path):
    """Each page is small, fits any screen, has no serious fault that axe finds, and nothing in the console."""
    visitor.go(path)
    visitor.check(axe)


@pytest.mark.parametrize("path", REFUSED)
def test_refused(visitor, axe, path):
    """A refusal is a page that says why, and leads back; of a form that was filled in wrongly the page with the form."""
    status = {"/m/nothing": 404, "/m/ui.theme?period=never": 400}.get(path, 403)
    visitor.go(path, status)
    visitor.complaints[:] = [each for each in visitor.complaints if not each.startswith(UNSEEN)]
    visitor.check(axe)
    if status == 400:
        assert "never" in visitor.page.locator("main [role=alert]").inner_text()
    else:
        visitor.page.click("main .door a")
    assert visitor.page.locator("h1").inner_text() in ("shop", "ui.theme")


@pytest.mark.parametrize("path", LIVE)
def test_live(windows, owner, axe, path):
    """The owner's pages are marked as live."""
    visitor = windows(owner)
    visitor.go(path)
    visitor.check(axe)
    assert visitor.page.get_by_role("heading", name="These numbers are live").is_visible()


def test_login(windows, axe):
    """The door, and what it says to a wrong key."""
    visitor = windows()
    visitor.go("/login")
    visitor.check(axe)
    visitor.page.fill("#key", "rk_wrong_1234")
    visitor.page.click("main button")
    assert "not known" in visitor.page.get_by_role("alert").inner_text()


def test_download(windows, reader):
    """A link at the end gives each table as a file."""
    visitor = windows(reader)
    visitor.go("/m/ui.theme?segment=platform%3Dmacos")
    for link, name in (("Values (CSV)", "values"), ("Weeks (CSV)", "series")):
        with visitor.page.expect_download() as begun:
            visitor.page.get_by_role("link", name=link).click()
        assert begun.value.suggested_filename == f"shop-ui.theme-{name}.csv"
        with begun.value.path().open(newline="") as file:
            assert "light" in {row["value"] for row in csv.DictReader(file)}
    assert visitor.complaints == []


def test_a_link_restores_the_view(browser, windows, reader):
    """What a form chose stands in the address, and opens the same page elsewhere, after signing in."""
    visitor = windows(reader)
    visitor.go("/m/ui.theme")
    visitor.page.get_by_role("combobox", name="Segment").select_option("platform=macos")
    visitor.page.get_by_label("Confidence").select_option("99%")
    visitor.page.get_by_role("button", name="Show").click()
    visitor.page.get_by_role("link", name="As declared").click()
    visitor.page.get_by_role("link", name="Consistent").click()
    visitor.page.wait_for_url("**view=consistent**")
    text = visitor.page.locator("main").inner_text()
    other = new_profile(browser).new_page()
    other.goto(visitor.page.url)
    other.fill("#key", READ)
    other.press("#key", "Enter")
    other.wait_for_url(visitor.page.url)
    assert other.locator("main").inner_text() == text
    assert "99% interval" in text
    other.context.close()


def test_search(windows, reader):
    """Metrics are found by a word, and each leads to the next one."""
    visitor = windows(reader)
    visitor.look("phone")
    visitor.go("/")
    assert not visitor.page.get_by_role("searchbox").is_visible()
    visitor.page.get_by_text("Find and filter").click()
    visitor.page.get_by_role("searchbox").fill("search")
    visitor.page.get_by_role("searchbox").press("Enter")
    visitor.page.wait_for_url("**q=search**")
    assert visitor.page.locator(".metrics h3").all_inner_texts() == ["search.ms"]
    visitor.page.locator(".metrics h3 a").click()
    visitor.page.locator("[rel=next]").click()
    visitor.page.wait_for_url("**/m/session.length")


def test_metrics_are_found_while_somebody_types(windows, reader, address):
    """Cards without these words go, in any order of them; without words all are there. The server is not asked."""
    visitor = windows(reader)
    visitor.go("/")
    addresses = []
    # The browser asks for the icon by itself, at a time of its own.
    visitor.page.on("request", lambda request: request.url.endswith("/icon.svg") or addresses.append(request.url))
    box, cards = visitor.page.get_by_role("searchbox"), visitor.page.locator(".metrics h3:visible")
    every = cards.all_inner_texts()
    box.press_sequentially("TAKES how")
    assert cards.all_inner_texts() == ["search.ms"]
    assert visitor.page.get_by_role("status").inner_text() == f"1 of {len(every)} metrics"
    box.fill("core@shop.example")
    assert set(cards.all_inner_texts()) == {"export.used", "plugins", "session.length", "usage.hour", "rare.flag", "way.home"}
    for words in ("logo", "median", "settings"):  # an answer, and what stands in a row, but is not searched
        box.fill(words)
        typed = cards.all_inner_texts()
        assert typed == re.findall(r'<h3><a href="/m/([^"]+)"', visitor.page.request.get(f"{address}/?q={words}").text())
        assert (typed == ["way.home"]) == (words == "logo")
    box.fill("")
    assert cards.all_inner_texts() == every
    assert visitor.page.get_by_role("status").inner_text() == ""
    assert addresses == []


def test_a_part_of_the_metrics_is_not_filtered(windows, reader):
    """What was sought is a part: another word is looked for among all, by the server."""
    visitor = windows(reader)
    visitor.go("/?q=used")
    visitor.page.get_by_role("searchbox").fill("search")
    assert visitor.page.locator(".metrics h3:visible").count() > 1


def test_values_over_time_by_pointer_and_by_key(windows, reader, axe):
    """The period nearest to the pointer is told with its estimate and interval; arrow keys go from one to the next."""
    visitor = windows(reader)
    visitor.go("/m/ui.theme")
    picture = visitor.page.get_by_role("slider").first
    caption = visitor.page.locator(".courses figcaption").first.locator(".told")
    assert caption.inner_text() == ""
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    for place in (0.5, 3.5, 10.5):  # of eleven weeks
        visitor.page.mouse.move(box["x"] + box["width"] * place / 11 + 2, box["y"] + 5)
        assert re.fullmatch(r"week of \d+ \w+ \d{4}: \d\S*% \(\S+ to \S+%?\)", caption.inner_text())
        assert float(picture.locator("line.at").get_attribute("x1").removesuffix("%")) == pytest.approx(100 * place / 11)
    last = caption.inner_text()
    visitor.page.mouse.move(2, 2)
    assert caption.inner_text() == ""
    picture.focus()
    assert caption.inner_text() == picture.get_attribute("aria-valuetext") == last
    visitor.page.keyboard.press("ArrowLeft")
    before = caption.inner_text()
    assert before != last
    visitor.page.keyboard.press("Home")
    assert picture.get_attribute("aria-valuenow") == "1"
    visitor.page.keyboard.press("ArrowLeft")
    assert picture.get_attribute("aria-valuenow") == "1"
    visitor.page.keyboard.press("End")
    assert caption.inner_text() == last
    visitor.check(axe)


@pytest.mark.parametrize("path", ["/", "/m/ui.theme", "/m/ui.theme/compare", "/m/way.home/experiment"])
def test_what_is_chosen_is_folded_on_a_telephone(visitor, path):
    """It opens by a key, and hides nothing at a desk; what is chosen already is open."""
    visitor.go(path)
    button = visitor.page.locator(".controls button")
    fold = visitor.page.locator(".controls > summary")
    assert (button.is_visible(), fold.is_visible()) == (True, False)
    visitor.look("phone")
    assert (button.is_visible(), fold.is_visible()) == (False, True)
    fold.press("Enter")
    assert button.is_visible()
    visitor.go("/?type=boolean")
    assert button.is_visible()


def test_a_period_of_many_is_told_where_it_is_drawn(visitor):
    """Of more periods than the table has, too."""
    visitor.go("/m/export.used?by=day")
    picture, caption = visitor.page.get_by_role("slider"), visitor.page.locator(".told")
    hits = visitor.page.locator(".hit text").all_text_contents()
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    for at in (0, len(hits) // 2, len(hits) - 1):
        visitor.page.mouse.move(box["x"] + box["width"] * (at + 0.5) / len(hits), box["y"] + 5)
        assert caption.inner_text() == hits[at]


def test_picture(browser, address, reader, windows):
    """The README's picture: the page of a metric begins with what its reports say, and all of this is seen at once."""
    page = new_profile(browser, storage_state=reader, viewport={"width": 1280, "height": 1080}).new_page()
    page.goto(f"{address}/m/ui.theme")
    assert re.match(r"“light” is the most frequent answer: .*%\)$", page.locator(".headline").inner_text())
    assert re.search(r"“dark” rose by .* points, ", page.locator(".changed").inner_text())
    for seen in (".facts", ".controls form", "#values", ".timeline figure"):
        assert page.locator(seen).first.bounding_box()["y"] < 1040, f"{seen} is below the picture"
    picture = page.screenshot()
    assert len(picture) < MOST_BYTES
    if windows().pictures:
        (windows().pictures / "dashboard.png").write_bytes(picture)
    page.context.close()


def test_compare(windows, reader, axe):
    """Two segments are chosen and compared; what cannot be compared says so on a page with pairs that can."""
    visitor = windows(reader)
    visitor.go("/m/ui.theme")
    visitor.page.get_by_role("link", name="Compare", exact=True).click()
    visitor.page.get_by_role("link", name="segments", exact=True).click()
    form = visitor.page.get_by_role("form", name="Compare two segments")
    form.get_by_label("with").select_option("platform=macos")
    form.get_by_role("button").click()
    visitor.page.wait_for_url("**b=platform%3Dmacos**")
    assert " than with linux, by " in visitor.page.locator(".headline").inner_text()
    offered = visitor.page.get_by_role("form", name="Compare two segments").get_by_label("with").get_by_role("option")
    assert "platform = linux" not in offered.all_inner_texts()
    visitor.go("/m/ui.theme/compare?a=platform%3Dlinux&b=platform%3Dlinux")
    assert "Both sides are the same" in visitor.page.get_by_role("alert").inner_text()
    visitor.check(axe)
    visitor.page.get_by_role("link", name="platform linux with platform macos").click()
    visitor.page.wait_for_url("**b=platform%3Dmacos**")


def test_what_does_not_differ_stands_in_the_columns_of_what_does(visitor):
    """Both parts of a comparison are one table, so all pictures share their axes."""
    visitor.go("/m/ui.theme/compare?a=platform%3Dlinux&b=platform%3Dmacos")
    groups = visitor.page.locator(".compared tbody").all()
    assert [group.locator("tr:not(.head)").count() for group in groups] == [2, 4]
    edges = "each => each.map(one => one.getBoundingClientRect()).map(box => [box.left, box.right].join())"
    for look in LOOKS:
        visitor.look(look)
        for column in (2, 5):
            pictures = [group.locator(f".plot:nth-child({column}) > svg").evaluate_all(edges) for group in groups]
            assert len({edge for group in pictures for edge in group}) == 1, pictures


@pytest.mark.parametrize("width", [390, 500, 600, 800, 1000, 1200, 1600])
def test_a_comparison_fits_any_width(visitor, width):
    """However long the names of the sides are: nothing is cut off, and all pictures share one zero line and have room."""
    visitor.go("/m/way.home/compare?a=platform%3Dlinux,arm%3Dold&b=platform%3Dlinux,arm%3Dnew")
    visitor.page.set_viewport_size({"width": width, "height": 900})
    edges = "each => each.map(one => one.getBoundingClientRect()).map(box => [box.left, box.right])"
    for table in visitor.page.locator(".compared").all():
        if not table.is_visible():
            continue
        for column in (2, 5):  # both sides, and their difference
            pictures = table.locator(f"tbody .plot:nth-child({column}) > svg").evaluate_all(edges)
            assert len({tuple(map(round, each)) for each in pictures}) == 1, pictures
            assert pictures[0][1] - pictures[0][0] >= 90
    cells = visitor.page.locator(".compared tbody tr > *").evaluate_all(edges)
    assert min(left for left, _ in cells) >= 0
    assert max(right for _, right in cells) <= width
    wide = "each => each.filter(one => one.scrollWidth > one.clientWidth).map(one => one.innerText)"
    assert visitor.page.locator(".compared tbody tr > :not(.plot)").evaluate_all(wide) == []


def test_heads_of_a_comparison_stand_apart(visitor):
    """Beside the names of the sides, the ends of the scale of differences have room."""
    visitor.go("/m/session.length/compare")
    visitor.look("wide")
    heads = visitor.page.locator(".compared thead :is(th, text)").evaluate_all(BOXES)
    assert overlapping(heads) == []


def test_notes_in_a_picture_are_whole_and_stand_apart(visitor):
    visitor.go("/m/search.ms")
    for look in LOOKS:
        visitor.look(look)
        notes = visitor.page.locator(".quantiles thead .far").evaluate_all(BOXES)
        assert len(notes) == 3
        assert overlapping(notes) == []
        (picture,) = visitor.page.locator(".quantiles thead .plot").evaluate_all(BOXES)
        assert all(picture[0] <= left and right <= picture[2] for left, _, right, _ in notes)


def test_the_list_leads_to_segments_that_differ(visitor):
    """Its link is not hidden by that of the row, and a change stands on one line and its days on another."""
    visitor.go("/")
    visitor.look("wide")
    height = "each => each.getBoundingClientRect().height / parseFloat(getComputedStyle(each).lineHeight)"
    row = visitor.page.locator(".metrics > li", has_text="export.used")
    assert round(row.locator(".moved .up").first.evaluate(height)) == 1
    visitor.page.get_by_role("link", name="is less frequent with platform macos than with linux").click()
    visitor.page.wait_for_url("**/m/ui.theme?value=light&base=platform%3Dlinux#segments")


def test_arms_lead_to_their_comparison(visitor):
    """What is said of an experiment stands apart from the facts below it, and leads to the arms side by side."""
    visitor.go("/m/way.home")
    arms, facts = (visitor.page.locator(each).bounding_box() for each in (".arms", ".facts"))
    assert facts["y"] - arms["y"] - arms["height"] >= 8
    visitor.page.get_by_role("link", name="Compare arm old with arm new").click()
    visitor.page.wait_for_url("**/compare?a=arm%3Dold&b=arm%3Dnew")
    assert "arms of an experiment" in visitor.page.locator("main").inner_text()


def test_about(windows, axe):
    """Everybody may read what is asked, and toss coins."""
    visitor = windows()
    visitor.page.context.clear_cookies()
    visitor.go("/about")
    visitor.page.get_by_label("no", exact=True).check()
    visitor.page.get_by_role("button", name="Toss the coins").click()
    status = visitor.page.get_by_role("status")
    assert re.fullmatch(
        r"Heads: you tell the truth, and say no\.|Tails, then \w+: you say \w+, whatever is true\.", status.inner_text()
    )
    visitor.page.get_by_role("button", name="Ask 1,000 people").click()
    answer = re.fullmatch(r"300 of 1,000 would truly say yes\. (\d+) said it: .* 50% = (-?[\d.]+)%\.", status.inner_text())
    assert float(answer[2]) == pytest.approx(2 * int(answer[1]) / 10 - 50, abs=0.01)
    assert abs(float(answer[2]) - 30) < 20  # six standard deviations
    visitor.check(axe)
    assert visitor.page.context.cookies() == []


def test_about_without_script(windows):
    """Where there is no script, there are no coins to toss, but the table of what they do."""
    visitor = windows(script=False)
    visitor.go("/about")
    assert not visitor.page.get_by_role("button").count()
    assert "75%" in visitor.page.get_by_role("table").inner_text()


def step(page, text):
    """Press Tab until something of this text has the focus."""
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText") == text:
            return
    pytest.fail(f"nobody gets to {text!r} by keyboard")


def test_keyboard(windows, reader):
    """Without a mouse: past the head of the page to a metric, and to another period of it."""
    visitor = windows(reader)
    visitor.go("/")
    press = visitor.page.keyboard.press
    step(visitor.page, "Skip to the content")
    press("Enter")
    step(visitor.page, "ui.theme")
    outline = "getComputedStyle(document.activeElement.closest('li')).outlineStyle"
    assert visitor.page.evaluate(outline) == "solid", "nobody sees where the focus is"
    press("Enter")
    visitor.page.wait_for_url("**/m/ui.theme")
    visitor.page.get_by_role("combobox", name="Period").focus()
    press("ArrowDown")
    step(visitor.page, "Show")
    press("Enter")
    visitor.page.wait_for_url("**period=2*")
    assert visitor.page.get_by_role("combobox", name="Period").input_value()


def test_without_script(windows, reader):
    """Pages say the same without script."""
    visitor, other = windows(reader, script=False), windows(reader)
    for path in ("/", "/m/ui.theme"):
        visitor.go(path)
        other.go(path)
        assert visitor.page.locator("main").inner_text() == other.page.locator("main").inner_text()
    visitor.go("/m/ui.theme")
    visitor.page.get_by_role("combobox", name="Segment").select_option("platform=macos")
    visitor.page.get_by_role("button", name="Show").click()
    assert "segment=platform%3Dmacos" in visitor.page.url
    assert visitor.complaints == []
