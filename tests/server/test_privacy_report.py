"""The privacy report: all of it is there, its figures are those of the libraries, and nobody writes into it what is not text."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from fractions import Fraction
from hashlib import sha256
from html.parser import HTMLParser
from itertools import combinations, pairwise
from math import comb, exp, log
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from deniable import cli, mechanisms, registry
from deniable.lint import lint
from deniable.mechanisms.chain import Chain
from deniable.proof import distribution
from deniable_aggregator.accounting.plan import plan
from deniable_aggregator.accounting.statement import statement
from deniable_aggregator.observer import Observer
from deniable_server.keys import ROLES
from deniable_server.privacy import compose, gather, render, words
from deniable_server.privacy.access import KEYS, USERS
from deniable_server.privacy.document import Note, Points, Table, Text, ToFill
from deniable_server.privacy.guess import SURE, guesses, posterior
from deniable_server.privacy.proofs import attempt

ROOT = Path(__file__).parents[2]
MADE = datetime(2026, 11, 21, 12, tzinfo=UTC)
HEADINGS = [
    "Summary",
    "How to read the figures",
    "The metrics",
    "What all reports of a device come to",
    "What is published, and small groups",
    "Releases made so far",
    "Questions of analysts, and their budget",
    "What is stored, where and for how long",
    "Who can read what",
    "What is proved, what is claimed and what is not",
    "Risks that remain",
    "For the controller to fill in",
    "GDPR, article 35: data protection impact assessment",
    "GDPR, article 25: data protection by design and by default",
    "GDPR, article 5(1)(c): data minimisation",
    "GDPR, article 5(1)(e): storage limitation",
    "PIPL, article 55: when an impact assessment is made beforehand",
    "PIPL, article 56: what the assessment contains",
]
HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(1)> | a | b | [go](javascript:alert(1)) "
    "![p](https://evil.example/p.png) https://evil.example/q www.evil.example <https://evil.example> `code` *bold* {{ 7 * "
    "7 }} {% raw %} &lt;b&gt; '\" \u202etxt\u0007"
)
VOID = {"meta", "link", "img", "br", "hr", "input", "base"}


class Page(HTMLParser):
    """What is in an HTML page."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.open, self.words = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return squeezed(" ".join(self.words))

    def named(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def squeezed(text):
    return re.sub(r"\s+", "", text)


def tokens(markdown):
    """Read Markdown as GitHub would; all tokens, those within lines too."""
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    for token in reader.parse(markdown):
        yield token
        yield from token.children or ()


def document(path, **given):
    return compose(gather(Path(path)), made=MADE, software="1.2.3", **given)


@pytest.fixture
def written(tmp_path):
    """Write a registry and return its path."""

    def write(text):
        path = tmp_path / "written.toml"
        path.write_text(text, "utf-8")
        return path

    return write


@pytest.fixture(scope="module")
def shipped():
    """Gather what the example registry comes to."""
    return gather(ROOT / "deploy" / "metrics.toml")


@pytest.fixture(scope="module")
def report(shipped):
    """Compose the report of the example registry, with proofs."""
    proved = [attempt(each.metric, each.mechanism) for each in shipped.metrics]
    return compose(shipped, made=MADE, software="1.2.3", proved=proved)


# Completeness


def test_everything_is_there(report, shipped):
    """Each required heading and each metric has its section, in both formats, and headings can be linked to."""
    titles = [section.title for section in report.walk()]
    assert [title for title in titles if title in HEADINGS] == [HEADINGS[0], *HEADINGS[1:3], *HEADINGS[3:]]
    page, marks = Page(render(report, "html")), render(report, "md")
    for each in shipped.metrics:
        assert each.metric.id in titles
        for text in (page.text, squeezed(marks.replace("\\", ""))):
            assert squeezed(each.metric.description) in text
            assert squeezed(each.metric.owner) in text
            assert squeezed(f"{each.metric.expires} at the latest") in text
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {attributes["href"] for attributes in page.named("a")} == {f"#{section.id}" for section in report.walk()}


def texts(section):
    """Go through all texts of a section."""
    yield section.title
    for block in section.blocks:
        if isinstance(block, Text | Note):
            yield block.text
        elif isinstance(block, ToFill):
            yield block.asks
        elif isinstance(block, Points):
            for point in block.points:
                yield from point
        else:
            assert isinstance(block, Table)
            yield from (block.caption, *block.heads)
            for row in block.rows:
                yield from row


def test_both_formats_are_equally_complete(report):
    """Whatever the document says stands in the HTML and in the Markdown, in the same order."""
    page = Page(render(report, "html")).text
    plain = squeezed("".join(token.content for token in tokens(render(report, "md")) if token.type in ("text", "text_special")))
    plain = plain.replace("[]", "")
    for read in (page[page.index("Summary", page.index("Contents") + 100) :], plain):
        at = 0
        for section in report.walk():
            for text in texts(section):
                found = read.find(squeezed(text), at)
                assert found >= 0, text
                at = found


def test_nothing_is_filled_in_for_the_controller(report):
    """The law's headings have places to fill, marked as not filled in, and say that they are no legal advice."""
    law = report.sections[-1]
    assert "not legal advice" in law.blocks[0].text
    for part in law.parts:
        assert [type(block) for block in part.blocks if not isinstance(block, Text)] != []
        assert all(isinstance(block, Text | ToFill) for block in part.blocks)
    fills = sum(isinstance(block, ToFill) for part in law.parts for block in part.blocks)
    assert render(report, "html").count("<strong>Not filled in.</strong>") == fills
    assert render(report, "md").count("**NOT FILLED IN.**") == fills


def test_roles_are_those_there_are():
    """The report knows each role of a key and each user of the store that is shipped."""
    assert set(KEYS) == set(ROLES)
    users = [line.split()[1] for line in (ROOT / "deploy" / "users.acl").read_text("utf-8").splitlines()]
    assert set(USERS) == set(users) - {"default"}


# Where it comes from


def test_digest_version_and_date(written, registry_file):
    """The report has the digest of the file, the version and the date; another file has another digest."""
    first = document(registry_file)
    facts = dict(first.facts)
    assert facts["SHA-256 of the registry"] == sha256(registry_file.read_bytes()).hexdigest()
    assert (facts["Software"], facts["Made"][:20]) == ("deniable 1.2.3", "2026-11-21 12:00 UTC")
    other = document(written(registry_file.read_text("utf-8").replace("Which country", "Which land")))
    assert dict(other.facts)["SHA-256 of the registry"] != facts["SHA-256 of the registry"]
    for form in ("html", "md"):
        assert facts["SHA-256 of the registry"] in render(first, form)


def test_a_list_of_candidates_has_its_digest(report):
    """What is looked for is named by its number and the digest of its file."""
    digest = sha256((ROOT / "deploy" / "search-engines.txt").read_bytes()).hexdigest()
    assert digest in render(report, "md")


# Figures


def rows(document, caption):
    """Find the rows of the one table whose caption begins so."""
    blocks = [block for section in document.walk() for block in section.blocks]
    (found,) = (block for block in blocks if isinstance(block, Table) and block.caption.startswith(caption))
    return found.rows


def test_figures_of_metrics_are_those_of_the_mechanisms(report, shipped):
    """Epsilons are the mechanisms' own, exactly; what is kept adds up as the chain says."""
    glance = {row[0]: row for row in rows(report, "The metrics at a glance")}
    for each in shipped.metrics:
        made = mechanisms.of(each.metric)
        told = dict(rows_of(report, each.metric.id, "What is asked"))
        assert told["Epsilon of one report"].startswith(f"{made.epsilon:.12g} nats")
        assert glance[each.metric.id][5] == words.nats(made.epsilon)
        if each.metric.kept:
            assert isinstance(made, Chain)
            assert told["Epsilon of all reports of one answer"].startswith(f"{made.epsilon_permanent:.12g} nats")
            few = f"at most 2 different ones in any 30 days and {made.kept_responses} ever, of this version: together at most "
            assert told["Answers kept on a device"].startswith(f"{few}{words.nats(made.kept_responses * made.epsilon_permanent)}")
            assert "but for when answers change and return" in told["Answers kept on a device"]
        else:
            assert glance[each.metric.id][6] == "none kept"


@pytest.mark.parametrize("title", ["What all reports of a device come to", "What is proved, what is claimed and what is not"])
def test_what_kept_answers_show_stands_beside_the_figures(report, title):
    """Sums of kept answers have their condition beside them: a change shows, and so does a return to an earlier answer."""
    (section,) = (section for section in report.walk() if section.title == title)
    told = " ".join(texts(section))
    assert "between histories that change, and return to an earlier answer, at the same times" in told
    assert "a return to an earlier" in told


def rows_of(document, title, caption):
    (section,) = (section for section in document.walk() if section.title == title)
    (table,) = (block for block in section.blocks if isinstance(block, Table) and block.caption.startswith(caption))
    return table.rows


def test_totals_are_those_of_the_accounting(report, shipped):
    """Totals over a day, a month and a year are those of `deniable account`, and the lifetime's is the budget's."""
    found = rows(report, "Epsilon of all metrics together")
    for row, days in zip(found, (1, 30, 365), strict=False):
        planned = plan(shipped.registry, days=days)
        account = statement(planned.spends, [1e-6], devices=4, plan=planned)
        (each,), (theirs,) = account.accounts, account.theirs
        assert row == (
            f"{days} day{'s' * (days > 1)}",
            words.nats(each.basic),
            words.nats(planned.allowed),
            words.nats(min(each.basic, planned.allowed)),
            words.nats(min(each.epsilon, planned.allowed)),
            words.nats(min(theirs.basic, 4 * planned.allowed)),
        )
    assert found[3][2] == words.nats(shipped.registry.budget.lifetime)
    by_metric = {row[0]: row for row in rows(report, "Epsilon of each metric by itself")}
    (use,) = plan(shipped.registry, metrics=["cart.size"], days=365).uses
    assert by_metric["cart.size"][4] == words.nats(use.occasions * use.spend.epsilon)


def test_what_publishing_takes(report):
    """Each metric's least number of reports is in the report, and when it is published."""
    least = {row[0]: row for row in rows(report, "What anything published")}
    assert least["ui.theme"][1:3] == ("1,000", "at the close")
    assert least["export.used"][2].startswith("at the close, and before")


ONE = """
format = 1
app = "shop"
[metrics.m]
type = "categorical"
values = [{values}]
epsilon = 1.0
mechanism = "{name}"
{kept}
description = "d"
owner = "o"
"""


def of(name, size, *, kept=False):
    """Make a metric and its mechanism."""
    values = ", ".join(f'"{value}"' for value in "abcdefgh"[:size])
    text = ONE.format(values=values, name=name, kept="epsilon_permanent = 2.0" if kept else "")
    metric = registry.parse(text).metrics["m"]
    return metric, mechanisms.of(metric)


def best(mechanism, weights):
    """Compute how often the best guess from one report is right, by walking all draws."""
    masses = [distribution(lambda tape, v=value: mechanism.randomize(v, source=tape)) for value in range(mechanism.domain_size)]
    outputs = set().union(*masses)
    joint = [[weight * mass.get(output, 0) for weight, mass in zip(weights, masses, strict=True)] for output in outputs]
    return float(sum(map(max, joint)))


@pytest.mark.parametrize("name", ["grr", "oue", "sue", "subset", "local_hash", "hadamard", "pgr"])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_the_best_guess_is_bounded(name, size):
    """No guess from one report is right more often than the report says, by walking all draws; GRR's bound is met."""
    metric, mechanism = of(name, size)
    (one,) = (each for each in guesses(metric, mechanism) if each.reports == 1)
    alike = best(mechanism, [Fraction(1, size)] * size)
    even = max(
        best(mechanism, [Fraction(int(value in pair), 2) for value in range(size)]) for pair in combinations(range(size), 2)
    )
    rest = (1 - Fraction(9, 10)) / (size - 1)
    sure = best(mechanism, [Fraction(9, 10)] + [rest] * (size - 1))
    for truth, bound in ((alike, one.alike), (even, one.even), (sure, one.sure)):
        assert truth <= bound + 1e-12
    if name == "grr":
        assert one.alike == pytest.approx(alike, abs=1e-6)
        assert one.even == pytest.approx(even, abs=1e-6)


def test_the_best_guess_from_many_reports():
    """From k reports of a yes or no the best guess is the majority's, and the report says how often that is right."""
    metric, mechanism = of("binary", 2)
    p = float(mechanism.p)
    found = {each.reports: each for each in guesses(metric, mechanism)}
    assert sorted(found) == [0, 1, 10, 100, 365]
    right = sum(comb(365, k) * p**k * (1 - p) ** (365 - k) for k in range(183, 366))
    assert found[365].even == pytest.approx(right, abs=1e-9)
    right = sum(comb(10, k) * p**k * (1 - p) ** (10 - k) * (1 if k > 5 else 0.5 if k == 5 else 0) for k in range(11))
    assert found[10].even == pytest.approx(right, abs=1e-6)
    beliefs = (max(0.9 * p**k * (1 - p) ** (10 - k), 0.1 * (1 - p) ** k * p ** (10 - k)) * comb(10, k) for k in range(11))
    assert found[10].sure == pytest.approx(sum(beliefs), abs=1e-6)


def test_kept_responses_bound_the_guess():
    """However many reports of one answer are seen, the guess is no better than from the kept response; fresh noise wears off."""
    metric, mechanism = of("l_grr", 2, kept=True)
    nothing, one, kept, fresh = guesses(metric, mechanism)
    assert (nothing.even, nothing.alike, nothing.sure) == (0.5, 0.5, SURE)
    assert one.even == pytest.approx(exp(1) / (1 + exp(1)), abs=1e-6)
    assert kept.even == pytest.approx(exp(2) / (1 + exp(2)), abs=1e-6)
    assert (kept.reports, kept.fresh, fresh.reports, fresh.fresh) == (None, False, 365, True)
    assert fresh.even > 0.999999
    metric, mechanism = of("l_osue", 4, kept=True)
    _, _, kept, _ = guesses(metric, mechanism)
    assert kept.alike == pytest.approx(min(Observer(mechanism).bound().success, kept.alike))
    assert Observer(mechanism).bound().success <= kept.alike + 1e-12


def test_posteriors():
    """Odds before times e^epsilon are odds after."""
    assert posterior(0.5, log(3)) == pytest.approx(0.75)
    assert posterior(0.9, log(2)) == pytest.approx(18 / 19)
    assert posterior(0.01, 0.0) == pytest.approx(0.01)
    assert posterior(0.01, float("inf")) == 1


def test_numbers_are_rounded_up():
    """Bounds are written no smaller than they are."""
    assert (words.nats(1.0986122886681098), words.nats(0.9999999999535163), words.nats(None)) == ("1.0987", "1", "no bound")
    assert (words.percent(0.70001), words.percent(0.75), words.percent(0.9999), words.percent(1.0)) == (
        "70.1%",
        "75.0%",
        "100%",
        "100%",
    )
    assert (words.odds(1.0), words.odds(20.0), words.odds(None)) == ("2.72", "e^20", "any number")
    assert words.chance(1e-6) == "0.000001"


def test_proofs_are_those_of_the_mechanisms(report, shipped):
    """With --prove the table has what walking all draws showed, and says where it was another domain, or none."""
    found = {row[0]: row for row in rows(report, "Proofs by enumeration")}
    assert found["return.regretted"][3] == f"{mechanisms.of(shipped.registry.metrics['return.regretted']).epsilon:.12g}"
    assert found["ui.theme"][5] == "proved"
    assert "its own mechanism" in found["cart.size"][1]
    assert "fewer answers" in found["search.engine"][1]
    assert found["crash.site"][5].startswith("not run")
    assert "No proof was run" in render(compose(shipped, made=MADE, software="1"), "md")


def test_doubts_are_those_of_lint(written, registry_file):
    """What lint warns of, a budget that does not suffice and a trial stand out."""
    path = written(registry_file.read_text("utf-8").replace("epsilon = 1.0", "epsilon = 6.0"))
    made = document(path)
    text = "".join(token.content for token in tokens(render(made, "md")))
    for warning in lint(path).warnings:
        assert words.plain(warning.rule) in text
    assert "This registry is a trial" in text
    assert "asks for more than the budget has" in text


TEXTS = """
format = 1
app = "shop"
[analysts]
epsilon = 0
[metrics.home]
type = "string"
candidates = "list.txt"
epsilon = 1.0
epsilon_permanent = 3.0
description = "d"
owner = "o"
"""


def test_texts_and_kept_texts(written):
    """Answers that nobody can list have no column of all answers, and those kept are bounded by what is reserved."""
    path = written(TEXTS)
    (path.parent / "list.txt").write_text("one\ntwo\n", "utf-8")
    made = document(path)
    assert [len(row) for row in rows_of(made, "home", "How often")] == [3] * 4
    told = dict(rows_of(made, "home", "What is asked"))
    assert told["Collected until"] == "no end is declared"
    assert told["Answers kept on a device"].startswith("at most 2 different ones in any 30 days and 20 ever")
    assert "allows no questions" in render(made, "md")


# Escaping


HOSTILE_REGISTRY = """
format = 1
app = "shop"
[segments]
platform = ["linux", "mac"]
[metrics.a]
type = "categorical"
epsilon = 1.0
values = ["x", "TEXT"]
segments = ["platform"]
description = "TEXT"
owner = "TEXT"
"""


@pytest.fixture
def hostile(written):
    """Write a registry whose texts are none."""
    toml = HOSTILE.replace("\\", "\\\\").replace('"', '\\"').replace("\u202e", "\\u202e").replace("\u0007", "\\u0007")
    return document(written(HOSTILE_REGISTRY.replace("TEXT", toml)))


def test_hostile_texts_are_text_in_html(hostile):
    """Whatever a registry says, it makes no element of the page and names no address; it is shown as it was written."""
    written = render(hostile, "html")
    page = Page(written)
    assert not {"script", "img", "link", "iframe", "object", "base", "form", "svg"} & {tag for tag, _ in page.tags}
    assert all(attributes["href"].startswith("#") for attributes in page.named("a"))
    assert not any(name.startswith("on") or name in ("src", "style") for _, attributes in page.tags for name in attributes)
    shown = squeezed(words.plain(HOSTILE))
    assert page.text.count(shown) >= 3
    assert "\u202e" not in written
    assert "\u0007" not in written
    assert html.escape("{{ 7 * 7 }}") in written


def test_hostile_texts_are_text_in_markdown(hostile):
    """The same in Markdown: no HTML, links, pictures or code, and no table grows a column."""
    written = render(hostile, "md")
    found = list(tokens(written))
    assert not [
        token for token in found if token.type in ("html_block", "html_inline", "link_open", "image", "code_inline", "fence")
    ]
    shown = squeezed(words.plain(HOSTILE))
    cells = [squeezed("".join(child.content for child in token.children)) for token in found if token.type == "inline"]
    assert sum(shown in cell for cell in cells) >= 3
    assert "https://evil" not in written.replace("https\\://evil", "")
    assert not re.search(r"(?<!\\)www\.evil", written.replace("www\\.", ""))
    (row,) = (line for line in written.splitlines() if line.startswith("| a | ") and line.endswith("% |"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 9


@pytest.mark.parametrize("text", ["- a", "+ a", "1. a", "2) a", "# a", "===", "---", "> a"])
def test_a_paragraph_stays_one(text):
    """A paragraph whose text begins like a list, a heading or a quotation remains a paragraph."""
    from deniable_server.privacy.render import paragraph

    parsed = MarkdownIt().parse(f"before\n\n{paragraph(text)}\n")
    assert [token.type for token in parsed][3:] == ["paragraph_open", "inline", "paragraph_close"]
    assert MarkdownIt().parse(paragraph(text))[1].content.replace("\\", "").replace("&gt;", ">") == text


# The page


def test_the_page_is_one_file(report):
    """Nothing is fetched, nothing is run; the page says so to the browser, too."""
    written = render(report, "html")
    page = Page(written)
    assert not {"script", "link", "img", "iframe", "object", "svg"} & {tag for tag, _ in page.tags}
    assert not re.search(r"url\(|@import|https?://", written)
    (policy,) = (each["content"] for each in page.named("meta") if each.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_the_page_is_accessible(report):
    """It has a language, a title, one first heading and a caption and heads for each table; headings skip no level."""
    written = render(report, "html")
    page = Page(written)
    assert page.named("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    tables = sum(isinstance(block, Table) for section in report.walk() for block in section.blocks)
    assert len(page.named("table")) == len(page.named("caption")) == tables
    assert all(each.get("scope") in ("row", "col") for each in page.named("th"))
    assert "<title>Privacy report: shop</title>" in written


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_contrast(report):
    """Each colour of text has a contrast of 4.5 at least with the paper that it stands on, by day and by night."""
    themes = re.findall(r":root \{(.*?)\}", render(report, "html"), re.DOTALL)
    assert len(themes) == 2
    for theme in themes:
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", theme))
        for ink, paper in (("ink", "paper"), ("soft", "paper"), ("accent", "paper"), ("warn", "warn-paper"), ("warn", "paper")):
            light, dark = sorted((luminance(colours[ink]), luminance(colours[paper])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, paper)


# The command


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the command; return its status, output and errors."""
    for name in ("DENIABLE_REDIS_URL", "DENIABLE_REGISTRY"):
        monkeypatch.delenv(name, raising=False)

    def main(*arguments):
        status = cli.main(["report", "privacy", *map(str, arguments)])
        return status, *capsys.readouterr()

    return main


def test_the_command_writes_both(run, registry_file, tmp_path):
    """It needs a registry and nothing else; the end of the file's name says in what format."""
    for name in ("report.html", "report.md"):
        status, out, err = run("--registry", registry_file, "--output", tmp_path / name)
        assert (status, err) == (0, "")
        assert "5 metrics" in out
    assert (tmp_path / "report.html").read_text("utf-8").startswith("<!doctype html>")
    status, out, _ = run("--registry", registry_file, "--prove")
    assert status == 0
    assert out.startswith("# Privacy report")
    assert "Proofs by enumeration" in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--output", "report.pdf"], "--output ends with"),
        (["--registry", "nowhere.toml"], "nowhere.toml"),
        (["--devices", "1"], "--devices"),
        (["--delta", "0"], "delta"),
        (["--registry", "a.toml:b.toml"], "one registry"),
        (["--redis-url", "http://127.0.0.1"], "--redis-url"),
        (["--output", "nowhere/report.md"], "cannot be written"),
    ],
)
def test_wrong_usage(run, registry_file, arguments, told, monkeypatch, tmp_path):
    """What cannot be is refused with status 2, and says why."""
    monkeypatch.chdir(tmp_path)
    status, _, err = run(*(() if "--registry" in arguments else ("--registry", registry_file)), *arguments)
    assert status == 2
    assert told in err


def test_a_store_that_is_away(run, registry_file, unused_port):
    """With a store that cannot be used the status is 3; --offline does without it."""
    url = f"redis://127.0.0.1:{unused_port}"
    assert run("--registry", registry_file, "--redis-url", url)[0] == 3
    assert run("--registry", registry_file, "--redis-url", url, "--offline")[0] == 0


@pytest.fixture
def unused_port():
    """Find a port that nobody listens at."""
    from deniable_server.stack import free_port

    return free_port()
