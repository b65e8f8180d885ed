"""What the sums of a registry take in the store at most, and what to change where that is too much."""

from __future__ import annotations

import pytest

from deniable import registry
from deniable.commands import registry as command
from deniable.errors import ConfigurationError, ParameterError
from deniable.forecast import space
from deniable.frozen import replace
from deniable.wire.layout import Layout

HEAD = 'format = 1\napp = "shop"\n'
BODY = 'description = "d"\nowner = "o@shop.example"\nexpires = 2999-01-01\n'
LARGE = (
    f'[metrics."ui.search"]\ntype = "string"\ncandidates = "words.txt"\nmechanism = "rappor"\nepsilon = 0.01\nperiod = "day"\n'
    f'parameters = {{ cohorts = 64, bits = 128 }}\nsegments = ["platform"]\n{BODY}'
)
SMALL = f'[metrics."export.used"]\ntype = "boolean"\nepsilon = 1.0\nother = false\nperiod = "month"\n{BODY}'


@pytest.fixture
def path(tmp_path):
    """Write a registry of a large and a small metric; return its path."""
    written = tmp_path / "metrics.toml"
    (tmp_path / "words.txt").write_text("one\ntwo\n", "utf-8")
    written.write_text(
        f'{HEAD}[segments]\nplatform = ["linux", "macos"]\n[budget]\n{SMALL.replace("other = false", "")}{LARGE}', "utf-8"
    )
    return written


@pytest.fixture
def linted(capsys):
    """Return what runs `deniable registry lint` and returns its status and its last line."""
    import argparse

    def run(*arguments):
        parser = argparse.ArgumentParser()
        status = command.registry(parser)(parser.parse_args(["lint", *map(str, arguments)]))
        return status, capsys.readouterr().out.splitlines()[-1]

    return run


def test_a_sum_is_bounded_by_its_layout():
    """By its reports where they are few, and by its cells where they are many."""
    index, bits = Layout(4, 100, "index"), Layout(4, 100, "bits")
    assert space.stratum(index, 1) == 700 + 20
    assert space.stratum(index, 10**9) == space.stratum(index) == 700 + 20 * 400
    assert space.stratum(bits, 1) == 1400 + 20 * (101 + 1)
    assert space.stratum(bits, 10**9) == space.stratum(bits) == 1400 + 20 * (4 * 101 + 101)


def test_what_is_written_at_once_has_no_room_to_grow():
    """A long text is written in pieces, with a mebibyte at most."""
    assert [space.text(800, grows=grows) for grows in (False, True)] == [1000, 2000]
    assert space.text(4 << 20, grows=False) == space.text(4 << 20, grows=True) == 5 * (5 << 20) // 4


def test_the_largest_comes_first(path):
    """All segments that may come, also those that are not listed, and cells that leave one open; with what makes most of it."""
    large, small = space.spaces(registry.load(path))
    assert (large.name, small.name) == ("ui.search@1", "export.used@1")
    assert (large.segments, large.cells) == (3, 4)
    assert (small.segments, small.cells) == (1, 1)
    # 30 days after 2 of grace, and three hours of lateness: 33 whole days, and the parts of one at both ends
    assert "x (3 segments x 34 periods of exact sums, kept for 30 days)" in large.made_of()
    assert "x (4 x 1,099 of releases, for 1095)" in large.made_of()
    assert "export.used@1 1 MiB" in space.summary([small, large]).partition("most of it for ui.search@1 ")[2]
    other = replace(small, app="games")
    assert f"export.used@1 of {small.app} 1 MiB, export.used@1 of games 1 MiB" in space.summary([large, small, other])
    assert space.summary([small, small]) == "sums and releases take at most 1 MiB in the store"


def test_an_app_in_parts_has_sums_in_each(path):
    """Releases are made once."""
    (one, _), (three, _) = space.spaces(registry.load(path)), space.spaces(registry.load(path), 3)
    assert three.sums == 3 * one.sums
    assert three.releases(100) == one.releases(100)


def test_general_values_are_cells(path):
    """Of a segment whose values generalise."""
    text = path.read_text("utf-8").replace("[budget]", '[generalize.platform]\nlinux = "desktop"\nmacos = "desktop"\n[budget]')
    path.write_text(text, "utf-8")
    assert space.spaces(registry.load(path))[0].cells == 5


def test_each_remedy_is_enough(path):
    """The shorter retention and the larger `maxmemory`: a day more, or a mebibyte less, would not do."""
    taken = space.spaces(registry.load(path))
    doubt = space.doubt(taken, 256 << 20)
    assert doubt is not None
    days = int(doubt.partition("releases = ")[2].split()[0])
    enough = space.read(doubt.partition("set maxmemory ")[2])
    assert space.doubt(taken, enough) is None
    assert space.doubt(taken, enough - (1 << 20))
    for count, fits in ((days, True), (days + 1, False)):
        path.write_text(path.read_text("utf-8").partition("[retention]")[0], "utf-8")
        shorter = f"{path.read_text('utf-8')}[retention]\nreleases = {count}\n"
        path.write_text(shorter, "utf-8")
        assert (space.doubt(space.spaces(registry.load(path)), 256 << 20) is None) == fits
    none = space.doubt(taken, 1 << 20)
    assert none is not None
    assert "[retention]" not in none


@pytest.mark.parametrize(
    ("text", "size"), [("1048576", 1 << 20), ("512mb", 512 << 20), ("2GB", 2 << 30), ("3k", 3000), ("1g", 10**9), ("64b", 64)]
)
def test_sizes_are_read_as_the_store_reads_them(text, size):
    """With its units."""
    assert space.read(text) == size


@pytest.mark.parametrize("text", ["", "0", "0mb", "-1", "2 gb", "2tb", "1.5gb", "half"])
def test_what_is_no_size(text):
    """It is told what one is."""
    with pytest.raises(ParameterError, match="512mb or 2gb"):
        space.read(text)


def test_lint_tells_the_figure(linted, path):
    """And compares it with a store's memory if it is told that."""
    status, output = linted(path)
    assert status == 0
    assert output.startswith(f"{path}: sums and releases take at most ")
    status, output = linted(path, "--maxmemory", "100gb")
    assert (status, "warning" in output) == (0, False)
    status, output = linted(path, "--maxmemory", "256mb")
    assert status == 0
    assert output.startswith(f"{path}: warning: sums and releases take at most ")
    assert "beyond 75% of a maxmemory of 256 MiB no uploads are accepted: write releases = " in output
    with pytest.raises(ConfigurationError, match="--maxmemory"):
        linted(path, "--maxmemory", "much")
