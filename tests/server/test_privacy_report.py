"""The privacy report: all of it is there, its figures are those of the libraries, and nobody writes into it what is not text."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from fractions import Fraction
from hashlib import sha256
from html.parser import HTMLParser
from inspect import signature
from itertools import combinations, pairwise
from math import comb, exp, log
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from mixing import RELAY, relay_toml
from registries import metric_toml, registry_toml

from deniable import mechanisms, registry
from deniable.commands import entry as cli
from deniable.commands.parser import Parser
from deniable.declared import Declared
from deniable.limits.allowance import MICRO
from deniable.limits.guess import right
from deniable.lint import lint
from deniable.mechanisms.permanent import Permanent
from deniable.proof import distribution
from deniable.registry.text import visible
from deniable_aggregator.accounting.crowds import readers
from deniable_aggregator.accounting.losses import together
from deniable_aggregator.accounting.plan import plan
from deniable_aggregator.accounting.spend import Spend
from deniable_aggregator.accounting.statement import statement
from deniable_aggregator.attack.observer import Observer
from deniable_server.access.roles import ROLES
from deniable_server.commands.report import report as command
from deniable_server.privacy import compose, gather, page, words
from deniable_server.privacy.compose import escape
from deniable_server.privacy.guess import SURE, guesses, posterior
from deniable_server.privacy.proofs import attempt

ROOT = Path(__file__).parents[2]
MADE = datetime(2026, 11, 21, 12, tzinfo=UTC)
HEADINGS = [
    "What needs your decision",
    "What is asked, of whom, and what it tells",
    "What a device may spend in all",
    "What is stored, and for how long",
    "What is published, and to whom",
    "What is not protected",
    "How to check it",
    "Annex",
    "1. The questions",
    "2. How answers are randomised",
    "3. What the reports of a metric tell",
    "4. What all reports of a device come to",
    "5. What is published",
    "6. What is stored, where and for how long",
    "7. Who can read what",
    "8. What is proved and what is claimed",
    "9. What is not protected, in full",
    "10. For the controller to fill in",
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


def document(path, **options):
    return compose(gather(Path(path)), now=MADE, software="1.2.3", **options)


def plainly(inline):
    """Return the text of a token as it is read."""
    return "".join(child.content for child in inline.children)


def table(text, caption):
    """Find the rows of the one table whose caption begins so, as cells that are read."""
    results, cells, latest = [], None, ""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "table_open" and latest.startswith(caption):
            cells = []
            results.append(cells)
        elif token.type == "table_close":
            cells = None
        elif token.type == "tr_open" and cells is not None:
            cells.append([])
        elif token.type == "inline":
            latest = plainly(token)
            if cells is not None:
                cells[-1].append(latest)
    ((_, *rows),) = results
    return [tuple(row) for row in rows]


def sections(text):
    """Return what is read under each heading, by heading."""
    results, title, heading = {}, "", False
    for token in tokens(text):
        if token.type == "heading_open":
            heading = True
        elif token.type == "inline" and heading:
            title, heading = plainly(token), False
            assert title not in results
            results[title] = ""
        elif token.type in ("inline", "fence"):
            results[title] += " " + (plainly(token) if token.children else token.content)
    return results


def first_page(text):
    return text[: text.index("## Annex")]


def number_of_words(text):
    return len([word for word in text.split() if re.search(r"\w", word)])


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
    return compose(shipped, now=MADE, software="1.2.3", proved=proved)


# Completeness


def test_everything_is_there(report, shipped):
    """Each required heading and each metric is there, in both formats, and links go to headings."""
    assert list(sections(report)) == ["Privacy report: shop", *HEADINGS]
    rows = {row[0]: row for row in table(report, "What is asked")}
    parsed = Page(page(report))
    assert list(rows) == [metric.metric.id for metric in shipped.metrics]
    for metric in shipped.metrics:
        assert rows[metric.metric.id][2:5] == (metric.metric.description, metric.metric.owner, str(metric.metric.expires))
        for text in rows[metric.metric.id]:
            assert squeezed(text) in parsed.text
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {attributes["href"] for attributes in parsed.named("a")}
    assert len(links) == 10
    assert links <= {f"#{id_}" for id_ in ids}
    assert {attributes for token in tokens(report) if token.type == "link_open" for attributes in token.attrs.values()} == links


def test_both_formats_are_equally_complete(report):
    """Whatever the Markdown says stands in the HTML, in the same order."""
    read, at = Page(page(report)).text, 0
    texts = [plainly(token) for token in tokens(report) if token.type == "inline"]
    assert len(texts) > 500
    for text in texts:
        results = read.find(squeezed(text), at)
        assert results >= 0, text
        at = results


def test_nothing_is_filled_in_for_the_controller(report):
    """What the law asks for is marked as not filled in, and the report says that it is no legal advice."""
    rows = table(report, "Impact assessment")
    assert {row[3] for row in rows} == {"NOT FILLED IN"}
    laws = " ".join(row[0] for row in rows)
    assert all(law in laws for law in ("GDPR 35", "GDPR 25", "GDPR 5(1)(c)", "GDPR 5(1)(e)", "PIPL 55", "PIPL 56"))
    assert "This is not legal advice" in sections(report)["10. For the controller to fill in"]
    numbers = {int(number) for row in rows for number in re.findall(r"\d+", row[2])}
    assert max(numbers) < 10


def test_roles_are_those_there_are(report):
    """The report knows each role of a key and each user of the store that is shipped."""
    assert {row[0] for row in table(report, "Keys of the app")} == set(ROLES)
    users = [line.split()[1] for line in (ROOT / "deploy" / "users.acl").read_text("utf-8").splitlines()]
    assert {row[0] for row in table(report, "Users of the store")} == set(users) - {"default"}


# The first page


MANY = """
format = 1
app = "shop"
"""
ONE_OF_MANY = """
[metrics.m{number}]
type = "categorical"
values = ["a{number}", "b{number}", "c{number}"]
epsilon = {epsilon}
description = "{words}"
owner = "o"
"""


def many(number):
    """Write a registry of so many metrics, with long descriptions and much that lint warns of; the last one tells most."""
    words = "a long description of a question " * 20
    return MANY + "".join(ONE_OF_MANY.format(number=n, epsilon=4 + n / 1000, words=words) for n in range(number))


def test_the_command_has_the_defaults_of_the_report():
    """What the options say is what is computed where nothing is given."""
    parser = Parser(prog="deniable report")
    command(parser)
    arguments = parser.parse_args(["privacy"])
    defaults = {name: each.default for name, each in signature(gather).parameters.items() if name != "path"}
    assert defaults == {name: getattr(arguments, name) for name in ("delta", "devices")}


def test_the_first_page_is_short(report):
    """It has at most 600 words for the seven metrics of the example, and the whole report at most 5,000."""
    assert number_of_words(first_page(report)) <= 600
    assert number_of_words(report) <= 5000


def test_the_first_page_stays_short(written):
    """However many metrics there are, and warnings of them, the page names few: those that tell most. The annex has all."""
    text = document(written(many(25)))
    rows = table(first_page(text), "The 15 metrics that tell most")
    assert [row[0] for row in rows] == [f"m{number}" for number in range(24, 9, -1)]
    assert all(len(row[1]) <= 50 for row in rows)
    assert number_of_words(first_page(text)) <= 850
    assert "m0 (4), " not in first_page(text)
    decision = sections(text)["What needs your decision"]
    assert "Further warnings: 26, in annex 1." in decision
    assert "m4 and 20 more" in decision
    assert len(table(text, "What is asked")) == 25
    assert "m24" in sections(text)["1. The questions"]
    assert "more than a device may spend" in sections(text)["What needs your decision"]


def test_metrics_stand_with_what_they_tell(report, shipped):
    """The table of the page has each metric, worst first, with the odds of a report and how often a guess is right."""
    rows = table(first_page(report), "The metrics")
    assert {row[0] for row in rows} == {item.metric.id for item in shipped.metrics}
    by_id = {item.metric.id: item for item in shipped.metrics}
    answer = []
    for id_, question, reports, odds, one, year in rows:
        item = by_id[id_]
        (first,) = (guess for guess in item.guesses if guess.reports == 1)
        assert question == item.metric.description
        assert odds == words.odds(item.mechanism.epsilon)
        assert (one, year) == (words.percent(first.even), words.percent(item.guesses[-1].even))
        assert ("kept" in reports, "sample" in reports) == (item.metric.permanent, item.metric.sample != "1")
        mechanism = item.mechanism
        answer.append(mechanism.epsilon_permanent if item.metric.permanent else item.guesses[-1].reports * mechanism.epsilon)
    assert answer == sorted(answer, reverse=True)


def test_a_year_has_as_many_reports_as_a_device_makes(written, shipped):
    """What a year tells counts every report that `deniable account` counts, of metrics with several in a period, too."""
    often = gather(written(MANY + ONE_OF_MANY.format(number=0, epsilon=1, words="d") + 'period = "month"\nper_period = 3\n'))
    for facts in (often, shipped):
        for metric in facts.metrics:
            (use,) = plan(facts.registry, metrics=[metric.metric.id], days=365).uses
            assert metric.metric.permanent or metric.guesses[-1].reports == use.occasions
    assert often.metrics[0].guesses[-1].reports == 39


def test_what_is_to_be_decided_stands_first(shipped, written):
    """A failed proof, each warning and each metric with noise anew is named before anything else, with what to do."""
    title = "What needs your decision"
    answer = sections(compose(shipped, now=MADE, software="1"))[title]
    for metric in shipped.metrics:
        assert (metric.metric.id in answer) != metric.metric.permanent
    assert "No store was looked at" in answer
    assert "Not proved" not in answer
    failed = [attempt(metric.metric, metric.mechanism) for metric in shipped.metrics]
    object.__setattr__(failed[0].proof, "faults", ("broken",))
    answer = sections(compose(shipped, now=MADE, software="1", proved=failed))[title]
    assert answer.startswith(f" Not proved: {failed[0].metric}. Do not use this registry before the proof holds.")
    path = written(many(1))
    text = document(path)
    assert list(sections(text)).index(title) == 1
    for warning in lint(path).warnings:
        assert words.plain(warning.rule) in sections(text)[title]


def test_the_page_has_what_the_registry_says(written, shipped):
    """Days and least numbers of reports on the page are those of the registry."""
    text = first_page(compose(shipped, now=MADE, software="1"))
    more = "[publication]\nmin_reports = 321\n[retention]\ntallies = 7\nreleases = 800\n[analysts]\nepsilon = 0\n"
    answer = sections(document(written(many(1) + more)))
    assert "7 days after their period has closed, once published; else 800" in answer["What is stored, and for how long"]
    assert "at least 321 reports" in answer["What is published, and to whom"]
    assert "noisy numbers" not in answer["What is published, and to whom"]
    assert "noisy numbers" in text


def test_the_commands_of_the_page_work(written, capsys):
    """Each command that the page gives for checking runs, and the digest that it tells is that of the report."""
    file = written(many(1).replace("epsilon = 4", "epsilon = 1"))
    report = document(file)
    (fence,) = (token for token in tokens(report) if token.type == "fence")
    lines = [line.replace("FILE", str(file)).split() for line in fence.content.splitlines()]
    assert [line[0] for line in lines] == ["deniable"] * 3 + ["sha256sum"]
    for _, *arguments in lines[:3]:
        assert cli.main(arguments) == 0
    assert sha256(file.read_bytes()).hexdigest() in first_page(report)
    capsys.readouterr()


def test_sentences_are_short(report, shipped, written):
    """No sentence has more than 30 words."""
    for text in (report, compose(shipped, now=MADE, software="1"), first_page(document(written(many(3))))):
        for token in tokens(text):
            if token.type == "inline":
                for sentence in re.split(r"[.;:!?](?:\s|$)", plainly(token)):
                    assert number_of_words(sentence) <= 30, sentence


# Where it comes from


def test_digest_version_and_date(written, registry_file):
    """The report has the digest of the file, the version and the date; another file has another digest."""
    first, digest = document(registry_file), sha256(registry_file.read_bytes()).hexdigest()
    for answer in ("Made 2026-11-21 12:00 UTC by deniable 1.2.3", f"SHA-256 {digest}"):
        assert answer in first_page(first)
        assert squeezed(answer) in Page(page(first)).text
    assert digest not in document(written(registry_file.read_text("utf-8").replace("Which country", "Which land")))


def test_a_list_of_candidates_has_its_digest(report):
    """What is looked for is named by its number and the digest of its file."""
    assert sha256((ROOT / "deploy" / "search-engines.txt").read_bytes()).hexdigest() in report


# Figures


def test_figures_of_metrics_are_those_of_the_mechanisms(report, shipped):
    """Epsilons are the mechanisms' own, exactly; what is kept adds up as the mechanism says."""
    randomised = {row[0]: row for row in table(report, "Mechanisms and their")}
    spent = {row[0]: row for row in table(report, "Each metric by itself")}
    guessed = {row[:2]: row[2:] for row in table(report, "How often the best")}
    for metric in shipped.metrics:
        result = mechanisms.of(metric.metric)
        _, _, name, _, _, _, one, exact, stored = randomised[metric.metric.id]
        assert (name.split(",")[0], one, exact) == (result.name, f"{result.epsilon:.12g}", str(result.ratio))
        assert f"{result.name}: {result.summary}." in sections(report)["2. How answers are randomised"]
        assert guessed[metric.metric.id, "1 report"][0] == words.nats(result.epsilon)
        if metric.metric.permanent:
            assert isinstance(result, Permanent)
            assert stored == f"{result.epsilon_permanent:.12g}"
            assert guessed[metric.metric.id, "reports of one kept answer"][0] == words.nats(result.epsilon_permanent)
            assert spent[metric.metric.id][4] == words.nats(result.kept_responses * result.epsilon_permanent)
            assert spent[metric.metric.id][5] == f"2 and {result.kept_responses}"
        else:
            assert (stored, spent[metric.metric.id][5]) == ("none", "none")


@pytest.mark.parametrize("title", ["4. What all reports of a device come to", "8. What is proved and what is claimed"])
def test_what_kept_answers_show_stands_beside_the_figures(report, title):
    """Sums of kept answers have their condition beside them; page and annex say that a change or a return shows."""
    answer = sections(report)
    assert "people whose answers change, and return to an earlier one, at the same times" in answer[title]
    assert "a return to an earlier" in answer["4. What all reports of a device come to"]
    assert "a return to an earlier" in answer["9. What is not protected, in full"]
    assert "it shows that a kept answer changed or returned" in answer["What is not protected"]


def test_totals_are_those_of_the_accounting(report, shipped):
    """Totals over a day, a month and a year are those of `deniable account`, and the lifetime's is the budget's."""
    rows = table(report, "All metrics together")
    for row, days in zip(rows, (1, 30, 365), strict=False):
        planned = plan(shipped.registry, days=days)
        account = statement(planned.spends, [1e-6], devices=4, plan=planned)
        (item,), (theirs,) = account.accounts, account.theirs
        assert row == (
            f"{days} day{'s' * (days > 1)}",
            words.nats(item.basic),
            words.nats(planned.allowed),
            words.nats(min(item.basic, planned.allowed)),
            words.nats(min(item.epsilon, planned.allowed)),
            words.nats(min(theirs.basic, 4 * planned.allowed)),
        )
    budget = shipped.registry.budget
    assert rows[3][2] == words.nats(budget.lifetime)
    by_metric = {row[0]: row for row in table(report, "Each metric by itself")}
    (use,) = plan(shipped.registry, metrics=["cart.size"], days=365).uses
    assert by_metric["cart.size"][2] == words.nats(use.occasions * use.spend.epsilon)
    answer = sections(report)["What a device may spend in all"]
    assert f"at most {words.nats(budget.per_month)} in a calendar month and {words.nats(budget.lifetime)} ever" in answer
    assert f"come to {rows[2][3]} in a year" in answer


def test_what_publishing_takes(report):
    """Each metric's least number of reports is in the report, and when it is published."""
    least = {row[0]: row for row in table(report, "What a release rests on")}
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


def of(name, size, *, permanent=False):
    """Make a metric and its mechanism."""
    values = ", ".join(f'"{value}"' for value in "abcdefgh"[:size])
    text = ONE.format(values=values, name=name, kept="epsilon_permanent = 2.0" if permanent else "")
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
    (one,) = (each for each in guesses(Declared.of(metric)) if each.reports == 1)
    alike = best(mechanism, [Fraction(1, size)] * size)
    even = max(
        best(mechanism, [Fraction(int(value in pair), 2) for value in range(size)]) for pair in combinations(range(size), 2)
    )
    remainder = (1 - Fraction(9, 10)) / (size - 1)
    sure = best(mechanism, [Fraction(9, 10)] + [remainder] * (size - 1))
    for truth, bound in ((alike, one.alike), (even, one.even), (sure, one.sure)):
        assert truth <= bound + 1e-12
    if name == "grr":
        assert one.alike == pytest.approx(alike, abs=1e-6)
        assert one.even == pytest.approx(even, abs=1e-6)


def test_the_best_guess_from_many_reports():
    """From k reports of a yes or no the best guess is the majority's, and the report says how often that is right."""
    metric, mechanism = of("binary", 2)
    p = float(mechanism.p)
    results = {each.reports: each for each in guesses(Declared.of(metric))}
    assert sorted(results) == [0, 1, 10, 100, 365]
    right = sum(comb(365, k) * p**k * (1 - p) ** (365 - k) for k in range(183, 366))
    assert results[365].even == pytest.approx(right, abs=1e-9)
    right = sum(comb(10, k) * p**k * (1 - p) ** (10 - k) * (1 if k > 5 else 0.5 if k == 5 else 0) for k in range(11))
    assert results[10].even == pytest.approx(right, abs=1e-6)
    beliefs = (max(0.9 * p**k * (1 - p) ** (10 - k), 0.1 * (1 - p) ** k * p ** (10 - k)) * comb(10, k) for k in range(11))
    assert results[10].sure == pytest.approx(sum(beliefs), abs=1e-6)


def test_kept_responses_bound_the_guess():
    """However many reports of one answer are seen, the guess is no better than from the kept response."""
    metric, mechanism = of("l_grr", 2, permanent=True)
    nothing, one, stored = guesses(Declared.of(metric))
    assert (nothing.even, nothing.alike, nothing.sure) == (0.5, 0.5, SURE)
    assert one.even == pytest.approx(exp(1) / (1 + exp(1)), abs=1e-6)
    assert stored.even == pytest.approx(exp(2) / (1 + exp(2)), abs=1e-6)
    assert (stored.reports, stored.epsilon) == (None, mechanism.epsilon_permanent)
    metric, mechanism = of("l_osue", 4, permanent=True)
    _, _, stored = guesses(Declared.of(metric))
    assert stored.alike == pytest.approx(min(Observer(mechanism).bound().success, stored.alike))
    assert Observer(mechanism).bound().success <= stored.alike + 1e-12


def test_lint_plan_and_report_say_the_same_guess(shipped, capsys):
    """What a year reveals of one answer is one figure, wherever a developer or a reviewer reads it."""
    years = {item.metric.id: words.percent(item.lasting.even) for item in shipped.metrics}
    headings, *rows = lint(shipped.registry.file).spending
    column = headings.index("right guess in a year")
    assert {row[0]: row[column] for row in rows if row[0] != "all"} == years
    assert cli.main(("plan", shipped.registry.file, "--users", "1e5")) == 0
    (line,) = re.findall("^Right guess in a year.*: (.*); 50% is luck", capsys.readouterr().out, re.MULTILINE)
    assert dict(each.split() for each in line.split(", ")) == years
    assert len(set(years.values())) > 2


def test_plan_and_report_say_what_readers_learn(shipped, report, capsys):
    """The central epsilon of one report, with its condition, and never without the local one."""
    assert cli.main(("plan", shipped.registry.file, "--users", "1e5")) == 0
    (line,) = re.findall("^Central epsilon of one report, with delta 1e-06: (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert "cart.size 0.06, " in line
    assert line.endswith(readers.CONDITION)
    text = squeezed(report)
    assert squeezed("a year if operator and reports are honest") in text


@pytest.mark.parametrize("share", [1.0, 0.999, 0.3, 0.01])
@pytest.mark.parametrize("reports", [1, 2, 13, 365, 8760])
@pytest.mark.parametrize("epsilon", [0.01, 1, 4])
def test_the_guess_is_that_of_the_distribution_of_losses(epsilon, reports, share):
    """The sum of a few lines is what the exact total of the accounting says."""
    spend = Spend(round(epsilon * MICRO), reports, share)
    assert right(spend.cost, reports, share) == pytest.approx((1 + together([spend]).delta(0)) / 2, abs=1e-6)


def test_of_a_metric_that_a_relay_mixes_the_local_epsilon_is_said_first(written):
    """Then what the server learns, with its delta and condition, with half of the reports honest, and in a year."""
    page = first_page(document(written(relay_toml(relay=RELAY | {"operator": "<b>Example</b>"}))))
    (line,) = [plainly(token) for token in tokens(page) if token.type == "inline" and token.content.startswith("**m is mixed")]
    parts = [
        "A report alone: at most ε = 3, whoever sees it, also if <b>Example</b> and the server work together.",
        "at most ε = 0.3 of it, with delta 1e-08; with half of them 0.42.",
        "All 13 reports of a year together: 39 as a plain sum",
    ]
    places = [line.index(part) for part in parts]
    assert places == sorted(places)
    assert "is mixed by a relay" not in document(written(registry_toml(metric_toml("m"))))


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
    rows = {row[0]: row for row in table(report, "Proofs by enumeration")}
    assert rows["return.regretted"][3] == f"{mechanisms.of(shipped.registry.metrics['return.regretted']).epsilon:.12g}"
    assert rows["ui.theme"][5] == "proved"
    assert "its own mechanism" in rows["cart.size"][1]
    assert "fewer answers" in rows["search.engine"][1]
    assert rows["crash.site"][5].startswith("not run")
    assert "No proof was run" in compose(shipped, now=MADE, software="1")


def test_doubts_are_those_of_lint(written, registry_file):
    """What lint warns of, a budget that does not suffice and a trial stand out."""
    text = registry_file.read_text("utf-8").replace("per_month = 10000", "per_month = 20")
    path = written(text.replace("epsilon = 1.0", "epsilon = 6.0"))
    answer = sections(document(path))
    text = " ".join(answer.values())
    findings = lint(path)
    assert findings.faults
    for finding in (*findings.faults, *findings.warnings):
        assert words.plain(finding.rule) in text
    assert "This is a trial" in answer["What is published, and to whom"]
    assert "asks for more than a device may spend" in answer["What needs your decision"]
    assert "This registry is a trial" in text
    assert "asks for more than the budget has" in text


NUMBERS = registry_toml(
    metric_toml("search.ms", range=[1, 60000], unit="ms", scale="log", estimate="distribution", period="month"),
    metric_toml("steps", range=[0, 20000], unit="steps", estimate="mean", epsilon_permanent=2, description="Steps a day"),
    metric_toml("load", range=[0, 100], unit="percent", estimate="distribution", epsilon_permanent=2, description="Load"),
    metric_toml("plugins", type="set", values=["git", "spelling", "preview", "other"], other="other", period="month"),
    metric_toml(
        "tools", type="set", values=["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"], joint=True, period="month"
    ),
    metric_toml("mood", type="ordinal", values=["bad", "fair", "good"], estimate="mean", period="month"),
)


def test_numbers_and_sets(written):
    """What is asked of a number and a set is told in words; each is proved; guesses of a number are not among all numbers."""
    facts = gather(written(NUMBERS))
    proved = [attempt(each.metric, each.mechanism) for each in facts.metrics]
    result = compose(facts, now=MADE, software="1", proved=proved)
    rows = {row[0]: row[5] for row in table(result, "What is asked")}
    assert rows["search.ms"] == "a number of ms from 1 to 60000; what is beyond counts as the nearer end"
    assert rows["steps"].endswith("the nearer end; rounded to an end of the range on the device")
    assert rows["load"].endswith("the nearer end; told as one of equal parts of the range")
    assert rows["plugins"] == "any of 4 options: git, spelling, preview, other"
    assert rows["mood"] == "3: bad; fair; good"
    table_rows = {row[0]: row for row in table(result, "Proofs by enumeration")}
    assert {row[5] for row in table_rows.values()} == {"proved"}
    assert "window, 3 answers: fewer answers" in table_rows["search.ms"][1]
    assert "sampled_pair, 8 answers: fewer answers" in table_rows["tools"][1]
    assert {each.metric: each.own for each in proved} == {
        "search.ms": False, "steps": True, "load": False, "plugins": True, "tools": False, "mood": True,
    }  # fmt: skip
    guessed = [row for row in table(result, "How often the best") if row[0] in ("search.ms", "steps", "load")]
    assert {row[4] for row in guessed} == {"none"}
    assert squeezed("a number of ms from 1 to 60000") in Page(page(result)).text


TEXTS = registry_toml(metric_toml("home", type="string", candidates="list.txt", epsilon_permanent=3.0), analysts={"epsilon": 0})


def test_texts_and_kept_texts(written):
    """Answers that nobody can list have no column of all answers, and those kept are bounded by what is reserved."""
    path = written(TEXTS)
    (path.parent / "list.txt").write_text("one\ntwo\n", "utf-8")
    result = document(path)
    assert [row[4] for row in table(result, "How often")] == ["none"] * 2
    ((*_, until, answers, _),) = table(result, "What is asked")
    assert until == "no end"
    assert "only 2 candidates" in answers
    ((*_, rows),) = table(result, "Each metric by itself")
    assert rows == "2 and 20"
    assert "this registry allows none about withheld segments" in result


# Escaping


HOSTILE_REGISTRY = registry_toml(
    metric_toml("a", values=["x", "TEXT"], segments=["platform"], description="TEXT", owner="TEXT"),
    segments={"platform": ["linux", "mac"]},
)


@pytest.fixture
def hostile(written):
    """Write a registry whose texts are none."""
    toml = HOSTILE.replace("\\", "\\\\").replace('"', '\\"').replace("\u202e", "\\u202e").replace("\u0007", "\\u0007")
    return document(written(HOSTILE_REGISTRY.replace("TEXT", toml)))


def test_hostile_texts_are_text_in_html(hostile):
    """Whatever a registry says, it makes no element of the page and names no address; it is shown as it was written."""
    written = page(hostile)
    parsed = Page(written)
    assert not {"script", "img", "link", "iframe", "object", "base", "form", "svg"} & {tag for tag, _ in parsed.tags}
    assert all(attributes["href"].startswith("#") for attributes in parsed.named("a"))
    assert not any(name.startswith("on") or name in ("src", "style") for _, attributes in parsed.tags for name in attributes)
    text = squeezed(words.plain(HOSTILE))
    assert parsed.text.count(text) >= 2  # purpose and owner
    assert squeezed(visible(HOSTILE)) in parsed.text  # an answer
    assert "\u202e" not in written
    assert "\u0007" not in written
    assert html.escape("{{ 7 * 7 }}") in written


def test_hostile_texts_are_text_in_markdown(hostile):
    """The same in Markdown: no HTML, links, pictures or code, and no table grows a column."""
    written = hostile
    results = list(tokens(written))
    assert not [token for token in results if token.type in ("html_block", "html_inline", "image", "code_inline")]
    assert all(token.attrs["href"].startswith("#") for token in results if token.type == "link_open")
    assert [token.content.split()[0] for token in results if token.type == "fence"] == ["deniable"]
    text = squeezed(words.plain(HOSTILE))
    cells = [squeezed("".join(child.content for child in token.children)) for token in results if token.type == "inline"]
    assert sum(text in cell for cell in cells) >= 2
    assert any(squeezed(visible(HOSTILE)) in cell for cell in cells)
    assert "https://evil" not in written.replace("https\\://evil", "")
    assert not re.search(r"(?<!\\)www\.evil", written.replace("www\\.", ""))
    lines = [line for line in written.splitlines() if line.startswith("| a | ") and "script" in line]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in lines] == [7, 8]


@pytest.mark.parametrize("text", ["- a", "+ a", "1. a", "2) a", "# a", "===", "---", "> a"])
def test_a_paragraph_stays_one(text):
    """A paragraph whose text begins like a list, a heading or a quotation remains a paragraph."""
    parsed = MarkdownIt().parse(f"before\n\n{escape(text)}\n")
    assert [token.type for token in parsed][3:] == ["paragraph_open", "inline", "paragraph_close"]
    assert MarkdownIt().parse(escape(text))[1].content.replace("\\", "").replace("&gt;", ">") == text


# The page


def test_the_page_is_one_file(report):
    """Nothing is fetched, nothing is run; the page says so to the browser, too."""
    written = page(report)
    parsed = Page(written)
    assert not {"script", "link", "img", "iframe", "object", "svg"} & {tag for tag, _ in parsed.tags}
    assert not re.search(r"url\(|@import|https?://", written)
    (policy,) = (each["content"] for each in parsed.named("meta") if each.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_the_page_is_accessible(report):
    """It has a language, a title, one first heading and a caption and heads for each table; headings skip no level."""
    written = page(report)
    parsed = Page(written)
    assert parsed.named("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _ in parsed.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    tables = [token for token in tokens(report) if token.type == "table_open"]
    assert len(parsed.named("table")) == len(parsed.named("caption")) == len(tables) == 15
    assert all(each.get("scope") in ("row", "col") for each in parsed.named("th"))
    assert len([each for each in parsed.named("th") if each["scope"] == "row"]) == written.count("<tr>") - len(tables)
    assert "<title>Privacy report: shop</title>" in written


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_contrast(report):
    """Each colour of text has a contrast of 4.5 at least with the paper that it stands on, by day and by night."""
    themes = re.findall(r":root \{(.*?)\}", page(report), re.DOTALL)
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
    ("arguments", "complaint"),
    [
        (["--output", "report.pdf"], "write a name that ends with .html"),
        (["--registry", "nowhere.toml"], "nowhere.toml"),
        (["--devices", "1"], "--devices"),
        (["--delta", "0"], "delta"),
        (["--registry", "a.toml:b.toml"], "one registry"),
        (["--redis-url", "http://127.0.0.1"], "--redis-url"),
        (["--output", "nowhere/report.md"], "cannot be written"),
    ],
)
def test_wrong_usage(run, registry_file, arguments, complaint, monkeypatch, tmp_path):
    """What cannot be is refused with status 2, and says why."""
    monkeypatch.chdir(tmp_path)
    status, _, err = run(*(() if "--registry" in arguments else ("--registry", registry_file)), *arguments)
    assert status == 2
    assert complaint in err


def test_a_store_that_is_away(run, registry_file, unused_port):
    """With a store that cannot be used the status is 3; --offline does without it."""
    url = f"redis://127.0.0.1:{unused_port}"
    assert run("--registry", registry_file, "--redis-url", url)[0] == 3
    assert run("--registry", registry_file, "--redis-url", url, "--offline")[0] == 0


@pytest.fixture
def unused_port():
    """Find a port that nobody listens at."""
    from deniable_aggregator.process.ports import free_port

    return free_port()
