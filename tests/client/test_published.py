"""The folder of published registries: all of them read as one, and none of them ever changed in what it means."""

from __future__ import annotations

import os
from datetime import date
from hashlib import sha256

import pytest
from registries import metric_toml, registry_toml

from deniable import registry
from deniable.errors import ConfigurationError, RegistryError
from deniable.registry import published

FIRST = registry_toml(
    metric_toml(
        "theme", version=1, values=["light", "dark"], period="month", segments=["version", "arch"], description="Which theme"
    ),
    metric_toml("export", period="month"),
    segments={"version": ["1.0", "1.1"], "arch": ["arm", "x86"]},
    publication={"min_reports": 50},
)
SECOND = registry_toml(
    metric_toml(
        "theme",
        version=2,
        values=["light", "dark", "system"],
        period="month",
        segments=["version"],
        description="Which theme people use",
    ),
    segments={"version": ["1.1", "2.0"]},
    generalize={"version": "."},
)


@pytest.fixture
def folder(tmp_path):
    """Fill a folder with registries."""

    def fill(*texts):
        for number, text in enumerate(texts, 1):
            (tmp_path / f"{number:04d}.toml").write_text(text, "utf-8")
        return tmp_path

    return fill


def test_a_folder_is_one_registry(folder):
    """The last file says what there is today; versions and metrics that only earlier ones declare are there, too."""
    releases = published.load(folder(FIRST, SECOND))
    assert [(each.id, each.version) for each in releases.metrics.values()] == [("theme", 2), ("export", 1)]
    assert [(each.id, each.version) for each in releases.older] == [("theme", 1)]
    assert {(each.id, each.version): each.min_reports for each in releases.definitions} == {
        ("theme", 2): 100,
        ("export", 1): 100,
        ("theme", 1): 100,
    }
    assert releases.segments == {"version": ("1.1", "2.0"), "arch": ("arm", "x86")}
    assert releases.generalize == {"version": {"1.1": "1", "2.0": "2"}}
    assert releases.digest == sha256((FIRST + SECOND).encode()).hexdigest()


def test_a_folder_of_one_file_is_that_file(folder):
    """And the registry of today is the last file alone."""
    at = folder(FIRST)
    assert published.load(at) == published.load(at / "0001.toml") == registry.load(at / "0001.toml")
    folder(FIRST, SECOND)
    assert published.newest(at) == registry.load(at / "0002.toml")
    assert published.newest(at / "0001.toml") == registry.load(at / "0001.toml")


def test_what_may_change_is_as_in_the_last_file_that_declares_it(folder):
    """An end, or another number of reports, reaches a version that is no longer the highest."""
    later = FIRST.replace("version = 1", "min_reports = 70\nexpires = 2027-01-01")
    (older,) = published.load(folder(FIRST, later, SECOND)).older
    assert (older.min_reports, older.expires) == (70, date(2027, 1, 1))


def test_the_last_file_says_how_everything_is_published(folder):
    """Number of reports and grace of its [publication] are those of every version that has none of its own."""
    own = FIRST.replace("version = 1", 'version = 1\ngrace = "24h"')
    last = SECOND + '\n[publication]\nmin_reports = 1000\ngrace = "12h"\n'
    publications = {
        (each.id, each.version): (each.min_reports, each.grace) for each in published.load(folder(own, last)).definitions
    }
    assert publications == {("theme", 1): (1000, "24h"), ("theme", 2): (1000, "12h"), ("export", 1): (1000, "12h")}


def test_a_version_that_comes_back_is_no_second_one(folder):
    """A registry may declare again what an earlier one did."""
    registry = published.load(folder(FIRST, SECOND, SECOND + FIRST[FIRST.index('[metrics."export"]') :]))
    assert [(each.id, each.version) for each in registry.metrics.values()] == [("theme", 2), ("export", 1)]
    assert [(each.id, each.version) for each in registry.older] == [("theme", 1)]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ((FIRST, FIRST.replace('"dark"]', '"dark", "system"]')), r"theme: values = .*: raise version, or write it as in "),
        ((FIRST, FIRST.replace("epsilon = 1.0", "epsilon = 2.0")), r"theme: epsilon = '2': raise version, or write it as in "),
        ((SECOND, FIRST), "theme: version = 1: write 2 or more; an earlier file has version 2"),
        (
            (FIRST, SECOND.replace('"shop"', '"other"')),
            "app = 'other': keep each app in a folder of its own; this one is of 'shop'",
        ),
        ((FIRST, "format = 1"), "app is missing: write a lower-case name in quotes, such as 'shop'"),
        (
            (),
            r"the folder has no registry: add registries with `deniable registry publish`",
        ),
    ],
)
def test_what_does_not_fit_is_refused(folder, texts, words):
    """What was published is not changed by what comes after."""
    with pytest.raises(RegistryError, match=words):
        published.load(folder(*texts))


def test_other_names_are_refused(folder):
    """Their order would be anybody's guess."""
    (folder(FIRST) / "metrics.toml").write_text(SECOND, "utf-8")
    with pytest.raises(RegistryError, match=r"add registries with `deniable registry publish`"):
        published.load(folder())


def test_many_other_names_are_one_fault(folder):
    """A folder of other files is one mistake, not one for each file."""
    place = folder(FIRST)
    for at in range(30):
        (place / f"f{at:02}.toml").write_text(SECOND, "utf-8")
    with pytest.raises(RegistryError) as caught:
        published.load(folder())
    assert len(caught.value.faults) == 1
    assert str(caught.value).count("the folder has f00.toml, f01.toml, f02.toml, f03.toml and 26 more: add registries with ") == 1


def test_one_app_has_one_registry(folder, tmp_path):
    """Several paths are of several apps."""
    at = folder(FIRST)
    other = tmp_path / "other.txt"
    other.write_text(SECOND.replace('"shop"', '"other"'), "utf-8")
    assert list(published.load_all(f"{at}{os.pathsep}{other}")) == ["shop", "other"]
    assert published.load_all("") == {}
    with pytest.raises(ConfigurationError, match="or one folder of all that were published; shop has two"):
        published.load_all(f"{at}{os.pathsep}{at / '0001.toml'}")


# The command


@pytest.fixture
def command(capsys):
    from deniable.commands.entry import main

    def run(*arguments):
        status = main(["registry", *map(str, arguments)])
        return status, capsys.readouterr().out

    return run


@pytest.fixture
def proposed(tmp_path):
    """Write a registry that is to be published."""

    def write(text):
        path = tmp_path / "metrics.toml"
        path.write_text(text, "utf-8")
        return path

    return write


def test_registries_are_published_one_after_the_other(command, proposed, tmp_path):
    """Each has the next number; the same one is not published twice."""
    at = tmp_path / "registries"
    status, out = command("publish", proposed(FIRST), at)
    assert status == 0
    assert f"published as {at / '0001.toml'}; start the server and the worker anew with DENIABLE_REGISTRY={at}\n" in out
    status, out = command("publish", proposed(FIRST), at)
    assert (status, "is published already" in out) == (0, True)
    status, out = command("publish", proposed(SECOND), at)
    assert status == 0
    assert "segments.version no longer has 1.0; reports of it will count as (other)" in out
    assert sorted(each.name for each in at.iterdir()) == ["0001.toml", "0002.toml"]
    assert (at / "0002.toml").read_text("utf-8") == SECOND
    assert command("lint", at)[0] == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SECOND.replace('"system"]', '"auto"]'), "BREAKING theme: values"),
        (SECOND.replace('app = "shop"', 'app = "other"'), "BREAKING app was shop"),
        (
            SECOND.replace("version = 2\n", ""),
            "BREAKING theme: version went back from 2 to 1; write 3, also for what it meant before",
        ),
        (FIRST.replace("epsilon = 1.0", "epsilon = 99.0"), "error: "),
    ],
)
def test_nothing_published_is_changed(command, proposed, tmp_path, text, words):
    """Whatever breaks a version that any app may use, also one that today's registry has no more, is not added."""
    at = tmp_path / "registries"
    for source in (FIRST, SECOND):
        assert command("publish", proposed(source), at)[0] == 0
    status, out = command("publish", proposed(text), at)
    assert status == 1
    assert words in out
    assert sorted(source.name for source in at.iterdir()) == ["0001.toml", "0002.toml"]


def test_what_is_breaking_is_told_first(command, proposed, tmp_path):
    """Whoever may not publish reads why in the first line: before what may change, and before what lint has to say."""
    at = tmp_path / "registries"
    assert command("publish", proposed(FIRST), at)[0] == 0
    text = FIRST.replace("epsilon = 1.0", "epsilon = 2.0").replace('version = ["1.0", "1.1"]', 'version = ["1.1"]')
    status, out = command("publish", proposed(text), at)
    assert status == 1
    assert out.startswith("BREAKING ")
    lines = out.splitlines()
    breaking = [line.startswith("BREAKING ") for line in lines]
    assert breaking == sorted(breaking, reverse=True)
    assert lines[-1] == "nothing was published: mend what is BREAKING"
    assert lines[2] == f"3 changes, 2 breaking; all of them: deniable registry diff {at} {tmp_path / 'metrics.toml'}"
    assert len(lines) == 5


def test_publish_says_where_lint_says_more(command, proposed, tmp_path):
    """Its own lines are few: faults and warnings, and what they are of each metric is a command away."""
    file, at = proposed(FIRST), tmp_path / "registries"
    for text, wrong in ((FIRST, 0), (FIRST.replace("epsilon = 1.0", "epsilon = 99.0"), 1)):
        status, out = command("publish", proposed(text), at)
        assert status == wrong
        assert "mechanism" not in out
        assert f"; more about each metric: deniable registry lint {file}\n" in out


def test_lint_reads_a_folder_as_the_server_does(command, folder):
    """A fault between files is an error, and so is one in a file."""
    status, out = command("lint", folder(FIRST, FIRST.replace("epsilon = 1.0", "epsilon = 2.0")))
    assert status == 1
    assert ": epsilon = '2': raise version, or write it as in" in out
    assert command("lint", folder(FIRST, "format = 1"))[0] == 1
    assert command("lint", folder(FIRST, SECOND))[0] == 0


STRINGS = registry_toml(
    metric_toml("page", type="string", candidates="pages.txt", period="month", description="Which page"), caps={}
)


def test_candidates_go_along(command, proposed, tmp_path):
    """The list of answers to look for may grow; it lies beside the registries."""
    at, pages = tmp_path / "registries", tmp_path / "pages.txt"
    for number, lines in enumerate(("home\n", "home\nabout\n"), 1):
        pages.write_text(lines, "utf-8")
        assert command("publish", proposed(f"{STRINGS}# {number}\n"), at)[0] == 0
        registry = published.load(at)
        assert len(registry.candidates(registry.metrics["page"])) == number


def contents(folder):
    return {each.name: each.read_text("utf-8") for each in folder.iterdir()}


def other_strings(length):
    """Declare another metric whose candidates are in a file of the same name."""
    return STRINGS.replace('"page"', '"lang"').replace("epsilon", f"max_length = {length}\nepsilon")


def test_candidates_of_another_metric_stay(command, proposed, tmp_path):
    """Two registries of an app may name their candidates alike; the second one is not published before it renames its file."""
    at, lists = tmp_path / "registries", tmp_path / "pages.txt"
    lists.write_text("home\n", "utf-8")
    assert command("publish", proposed(STRINGS), at)[0] == 0
    before = contents(at)
    lists.write_text("german\nfrench\n", "utf-8")
    with pytest.raises(ConfigurationError, match=r"has the candidates of page, which 0001\.toml declares; give the new file"):
        published.add(proposed(other_strings(32)), at)
    assert command("publish", proposed(other_strings(32)), at)[0] == 2
    assert contents(at) == before
    (tmp_path / "languages.txt").write_text("german\nfrench\n", "utf-8")
    assert command("publish", proposed(other_strings(32).replace("pages.txt", "languages.txt")), at)[0] == 0
    registry = published.load(at)
    assert {id_: len(registry.candidates(metric)) for id_, metric in registry.metrics.items()} == {"page": 1, "lang": 2}


def test_metrics_may_share_their_candidates(command, proposed, tmp_path):
    """The same list under the same name is one file."""
    at = tmp_path / "registries"
    (tmp_path / "pages.txt").write_text("home\n", "utf-8")
    for text in (STRINGS, other_strings(32)):
        assert command("publish", proposed(text), at)[0] == 0
    registry = published.load(at)
    assert [len(registry.candidates(metric)) for metric in registry.definitions] == [1, 1]


def test_a_list_that_an_older_version_cannot_read_is_not_published(command, proposed, tmp_path):
    """Two versions have one list: what is too long for the first one would stop the server."""
    at, pages = tmp_path / "registries", tmp_path / "pages.txt"
    short = STRINGS.replace("epsilon", "max_length = 8\nepsilon")
    pages.write_text("home\n", "utf-8")
    assert command("publish", proposed(short), at)[0] == 0
    before = contents(at)
    pages.write_text("home\na much longer page\n", "utf-8")
    longer = short.replace("max_length = 8", "max_length = 32\nversion = 2")
    with pytest.raises(RegistryError, match="a much longer page") as caught:
        published.add(proposed(longer), at)
    assert {fault.file for fault in caught.value.faults} == {str(at / "pages.txt")}
    assert contents(at) == before


def test_a_delay_is_covered_by_the_grace_of_the_last_file(folder):
    """An older version without a grace of its own has that of the last file, which must not be shorter than its delay."""
    old = FIRST.replace("version = 1", 'version = 1\ndelay = "12h"', 1)
    for grace, sound in (("13h", True), ("12h", False)):
        at = folder(old, SECOND + f'\n[publication]\nmin_reports = 1000\ngrace = "{grace}"\n')
        if sound:
            assert published.load(at)
        else:
            with pytest.raises(
                RegistryError,
                match=r"theme: delay = '12h': write at least an hour less than the grace of .*0002\.toml, which is '12h'",
            ):
                published.load(at)


def test_candidates_do_not_replace_a_registry(tmp_path):
    """Nor do they take the name of one to come."""
    for name in ("0001.toml", "0002.toml", "pages.toml"):
        (tmp_path / name).write_text("home\n", "utf-8")
        path = tmp_path / "metrics.toml"
        path.write_text(STRINGS.replace("pages.txt", name), "utf-8")
        with pytest.raises(ConfigurationError, match=f"the file of candidates '{name}' has the name of a registry"):
            published.add(path, tmp_path / "registries")
    assert not list((tmp_path / "registries").iterdir())


def test_nothing_is_written_outside_the_folder(tmp_path):
    """A list that lies elsewhere would be copied there."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "pages.txt").write_text("home\n", "utf-8")
    path = tmp_path / "sub" / "metrics.toml"
    path.write_text(STRINGS.replace("pages.txt", "../pages.txt"), "utf-8")
    with pytest.raises(
        ConfigurationError,
        match=r"the file of candidates '\.\./pages\.txt' is in another folder: put it beside",
    ):
        published.add(path, tmp_path / "registries")
    assert not list((tmp_path / "registries").iterdir())
