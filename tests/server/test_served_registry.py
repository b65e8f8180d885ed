"""The registry of `deniable serve`: a copy of the last one without faults, and what has become of the file since."""

from __future__ import annotations

import pytest

from deniable.errors import RegistryError
from deniable_server.local.served_registry import ServedRegistry
from deniable_server.settings import Settings

TEXT = """
format = 1
app = "shop"

[metrics.theme]
type = "boolean"
epsilon = 1.0
period = "month"
description = "Whether it is dark"
owner = "a@shop.example"
expires = 2090-12-31

[metrics.page]
type = "string"
candidates = "../pages.txt"
max_length = 40
epsilon = 2.0
period = "month"
description = "Which page"
owner = "a@shop.example"
expires = 2090-12-31
"""


@pytest.fixture
def file(tmp_path):
    folder = tmp_path / "app"
    folder.mkdir()
    (tmp_path / "pages.txt").write_text("a.example\nb.example\n", "utf-8")
    (folder / "metrics.toml").write_text(TEXT, "utf-8")
    return folder / "metrics.toml"


def look(registry):
    """Look twice: what was edited is looked at when it has been the same at two looks."""
    assert registry.look() is None
    return registry.look()


def epsilon(registry):
    (loaded,) = registry.settings.registries().values()
    return loaded.metrics["theme"].epsilon


def test_what_is_served_is_a_copy_of_the_last_file_without_faults(file):
    """A valid edit replaces it, with the lists beside it; a fault is told once, and does not; nothing is told of no edit."""
    with ServedRegistry(Settings(registry=str(file))) as registry:
        path = registry.settings.registry
        assert path != str(file)
        assert registry.look() is None
        half = TEXT.replace("epsilon = 1.0", "epsilon = 0.5\nversion = 2")
        file.write_text(half, "utf-8")
        seen = look(registry)
        assert seen.changed
        assert seen.line.startswith(
            "metrics.toml was edited, and the processes read it: theme: version 1 -> 2: a new count begins; "
        )
        assert (registry.settings.registry, epsilon(registry)) == (path, "0.5")
        file.write_text(TEXT.replace("epsilon = 1.0", "epsilon = -1"), "utf-8")
        seen = look(registry)
        assert (seen.changed, bool(seen.fault)) == (False, True)
        assert "stays in use: " in seen.line
        assert "theme: epsilon = -1: write a number of nats above 0" in seen.line
        assert registry.look() is None
        assert epsilon(registry) == "0.5"
        file.write_text(half, "utf-8")
        seen = look(registry)
        assert (seen.changed, seen.fault, seen.line) == (False, "", "metrics.toml was edited, and is again what is in use")
        (file.parent.parent / "pages.txt").write_text("c.example\n", "utf-8")
        assert look(registry).line == "pages.txt was edited, and the processes read it: no metric has changed"
        (loaded,) = registry.settings.registries().values()
        assert len(loaded.candidates(loaded.metrics["page"])) == 1
        file.unlink()
        assert "the registry is missing" in look(registry).line
        assert epsilon(registry) == "0.5"


def test_a_breaking_edit_is_refused(file):
    """The registry in use stays, the line says what to write, and whoever goes back is told that all is well."""
    refused = "metrics.toml was edited and cannot be used, so what was served before stays in use: "
    with ServedRegistry(Settings(registry=str(file))) as registry:
        file.write_text(TEXT.replace("epsilon = 1.0", "epsilon = 0.5"), "utf-8")
        seen = look(registry)
        assert (seen.changed, epsilon(registry)) == (False, "1")
        words = f"{file}: theme: epsilon was '1', is '0.5'; raise version to 2, or write it as it was"
        assert (seen.line, seen.fault) == (refused + words, words)
        file.write_text(TEXT, "utf-8")
        assert look(registry).line == "metrics.toml was edited, and is again what is in use"


def test_a_fault_of_an_app_that_is_off_keeps_no_other_from_its_edit(file):
    """An app whose file had a fault at the start is off, and comes when its file is mended."""
    other = file.with_name("blog.toml")
    good = TEXT.replace('"shop"', '"blog"')
    other.write_text(good.replace("epsilon = 1.0", "epsilon = -1"), "utf-8")
    with ServedRegistry(Settings(registry=f"{file}:{other}")) as registry:
        assert (list(registry.registries), list(registry.files.off)) == (["shop"], ["blog"])
        file.write_text(TEXT.replace("Whether it is dark", "Dark or not"), "utf-8")
        assert look(registry).changed
        other.write_text(good, "utf-8")
        assert look(registry).line == "blog.toml was edited, and the processes read it: blog is on"
        assert list(registry.registries) == ["shop", "blog"]
        for path, text in ((file, TEXT), (other, good)):
            path.write_text(text.replace("Whether it is dark", "Whether it is light"), "utf-8")
        assert look(registry).line.startswith("blog.toml and metrics.toml were edited, and the processes read them: theme: ")


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("epsilon = 1.0", "epsilon = 1.0\nmechanism = 'window'", "theme: "),  # of numbers only
        ('app = "shop"', 'app = "blog"', "app was shop, is blog"),
        ("pages.txt", "none.txt", "page: candidates = "),
    ],
)
def test_what_stops_a_start_stops_an_edit(file, before, after, words):
    """Whatever a start refuses is refused under a running server, in the same words."""
    with ServedRegistry(Settings(registry=str(file))) as registry:
        file.write_text(TEXT.replace(before, after), "utf-8")
        seen = look(registry)
        assert (seen.changed, words in seen.fault, words in seen.line) == (False, True, True), seen.line
    if "app" not in before:
        with pytest.raises(RegistryError, match=words):
            ServedRegistry(Settings(registry=str(file)))


def test_what_an_app_refuses_is_refused(file):
    """A metric that would be off in the app stops an edit, in the words of the app."""
    with ServedRegistry(Settings(registry=str(file))) as registry:
        file.write_text(TEXT.replace("epsilon = 1.0", "epsilon = 1.0\nper_period = 31"), "utf-8")
        seen = look(registry)
        assert (seen.changed, bool(seen.fault)) == (False, True)
        assert "of 32: write " in seen.line
