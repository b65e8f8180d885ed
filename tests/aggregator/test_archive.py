"""The archive: files that tell no order, and a recount of them on any executor."""

from __future__ import annotations

import io
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from errno import EACCES, ENOSPC
from pathlib import Path
from stat import S_IMODE
from zlib import crc32

import numpy as np
import pytest

from deniable.errors import ConfigurationError
from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator import tally

pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

from deniable_aggregator.archive import executor, mixture, recount  # noqa: E402
from deniable_aggregator.archive.errors import ArchiveError, MissingFileError, RecountDiffersError  # noqa: E402
from deniable_aggregator.archive.file import Head  # noqa: E402
from deniable_aggregator.archive.folder import COMMITS, HOURS, PERIOD, Folder  # noqa: E402

WIDE = Layout(64, 12, "bits")
PLUGIN = Stratum("ui.plugin", 2, "f" * 16, "2026-11-21", "platform=linux,version=2.4+x")
NOBODY = "a" * 32
KINDS = (COMMITS, HOURS, PERIOD)


def reports(n, layout=WIDE, seed=1):
    """Draw reports of a layout."""
    rng = np.random.default_rng(seed)
    rows, bits = rng.integers(0, layout.rows, n), rng.integers(0, 1 << layout.width, n)
    return b"".join(layout.pack(int(row), int(content)) for row, content in zip(rows, bits, strict=True))


@pytest.fixture
def folder(tmp_path):
    return Folder(str(tmp_path / "archive"), NOBODY)


def write(folder, payloads, kind=COMMITS, *, stratum=PLUGIN, layout=WIDE):
    return folder.write(stratum, layout, payloads, kind)


def lots(stratum, names):
    return {stratum: list(recount.cut((name, 1) for name in names))}


def test_a_file_has_the_reports_and_tells_what_they_are(folder):
    """Its column and its head say all that a count needs; there is nothing else in it."""
    payloads = reports(1000)
    name = write(folder, payloads)
    with folder.read(PLUGIN, name) as (head, groups):
        assert head == Head(PLUGIN, WIDE)
        assert tally.count(WIDE, b"".join(groups)) == tally.count(WIDE, payloads)
    contents = parquet.ParquetFile(folder.address(folder.path(PLUGIN, name)))
    column = contents.metadata.row_group(0).column(0)
    assert contents.schema_arrow.names == ["payload"]
    assert (column.compression, column.statistics, column.has_dictionary_page) == ("ZSTD", None, False)


def test_reports_that_end_in_zeros_are_kept(folder):
    """A payload's last bytes may be zero; so may all of them."""
    payloads = bytes(3) + b"\1\0\0" + b"\0\1\0" + bytes(3)
    with folder.read(PLUGIN, write(folder, payloads)) as (_, groups):
        assert b"".join(groups) == bytes(6) + b"\0\1\0" + b"\1\0\0"


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_does_not_tell_the_order(folder, kind):
    """The same reports make the same file, in whatever order they came."""
    payloads = reports(500)
    turned = b"".join(payloads[at : at + 3] for at in reversed(range(0, len(payloads), 3)))
    one, two = (folder.path(PLUGIN, write(folder, each, kind)) for each in (payloads, turned))
    assert payloads != turned
    assert Path(folder.address(one)).read_bytes() == Path(folder.address(two)).read_bytes()


def test_paths_tell_the_period_of_closed_files_only(folder):
    """Files are found by metric, whatever stands in their segment; names are random."""
    commit, hour, closed = (write(folder, b"\1\0\0", kind) for kind in KINDS)
    files = {each.name: each for each in folder.find()}
    assert set(files) == {commit, hour, closed}
    assert {(each.metric, each.version) for each in files.values()} == {("ui.plugin", 2)}
    assert "2026" not in files[commit].path + files[hour].path
    assert f"/period=2026-11-21/segment=platform%3Dlinux%2Cversion%3D2.4%2Bx/{closed}.parquet" in files[closed].path
    assert all(folder.path(PLUGIN, name) == each.path for name, each in files.items())
    assert (len(folder.find("ui.plugin")), folder.find("ui")) == (3, [])
    with pytest.raises(MissingFileError, match="is the disk"):
        folder.of("b").find()


def test_other_files_are_left_alone(folder, tmp_path):
    """What somebody else put there is not of the archive."""
    name = write(folder, b"\1\0\0")
    place = tmp_path / "archive" / NOBODY
    for path in ("x.parquet", "README", "ui.plugin/x.parquet", "ui.plugin/2-f/commits/mine.parquet", "ui.plugin/two-f/commits/x"):
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text("mine")
    assert [each.name for each in folder.find()] == [name]


def test_only_the_owner_may_read(folder, tmp_path):
    """Folders that are made here are closed to others."""
    write(folder, b"\1\0\0")
    folders = [path for path in (tmp_path / "archive", *(tmp_path / "archive").rglob("*")) if path.is_dir()]
    assert len(folders) == 5
    assert {S_IMODE(path.stat().st_mode) for path in folders} == {0o700}


def test_what_is_deleted_leaves_no_folder(folder, tmp_path):
    """Empty folders would tell of a metric that was erased."""
    names = [write(folder, b"\1\0\0", kind) for kind in KINDS]
    folder.delete([*(folder.path(PLUGIN, name) for name in names), "gone/1-f/commits/x.parquet"])
    assert list((tmp_path / "archive" / NOBODY).iterdir()) == []
    with pytest.raises(MissingFileError), folder.read(PLUGIN, names[0]):
        pass


def test_an_archive_in_another_place():
    """Whatever fsspec speaks, the archive speaks."""
    pytest.importorskip("fsspec")
    folder = Folder("fsspec+memory://reports", NOBODY)
    payloads = reports(50)
    folder.check()
    name = write(folder, payloads)
    path = folder.path(PLUGIN, name)
    with folder.read(PLUGIN, name) as (_, groups):
        assert tally.count(WIDE, b"".join(groups)) == tally.count(WIDE, payloads)
    assert [each.path for each in folder.find()] == [path]
    folder.delete([path])
    assert folder.find() == []


def test_an_address_shows_no_secret():
    """Other programs have keys of their own; what is printed may be kept."""
    for user, more in (("id:se/cret@", "/?region=eu-west-1"), ("", "?region=eu-west-1"), ("", "")):
        folder = Folder("/var/archive", NOBODY)
        folder.url = f"s3://{user}bucket/reports{more}"
        assert folder.address("x/y.parquet") == f"s3://bucket/reports/{NOBODY}/x/y.parquet"
    assert Folder("/var/archive", NOBODY).address("x") == f"/var/archive/{NOBODY}/x"


def test_what_cannot_be_used_is_said(tmp_path):
    """A URL of no known kind is refused at once; a place that cannot be written, when it is tried."""
    for url in ("nothing://x", "fsspec+nothing://x"):
        with pytest.raises(ConfigurationError, match="DENIABLE_ARCHIVE"):
            Folder(url)
    (tmp_path / "file").write_text("")
    broken = Folder(str(tmp_path / "file"), NOBODY)
    with pytest.raises(ArchiveError):
        broken.check()


def test_a_place_that_is_away_is_no_wrong_setting(monkeypatch):
    """It may come back: whoever uses it meanwhile is told."""

    def unreachable(*_):
        raise OSError("the bucket's region cannot be told: id:secret")

    monkeypatch.setattr("deniable_aggregator.archive.folder._place", unreachable)
    away = Folder("s3://id:secret@reports", NOBODY)
    for use in (away.check, away.find, lambda: away.delete(["x"]), lambda: write(away, b"\1\0\0")):
        with pytest.raises(ArchiveError) as caught:
            use()
        assert str(caught.value) == "OSError"


def test_a_path_means_the_same_in_every_process(monkeypatch, tmp_path):
    """A worker of Dask need not be in the folder from which the recount was started."""
    monkeypatch.chdir(tmp_path)
    assert Folder("archive").url == str(tmp_path / "archive")
    assert Folder("s3://key:secret@reports?region=eu").url == "s3://key:secret@reports?region=eu"


def test_why_a_disk_cannot_be_used_is_told(folder, monkeypatch):
    """In the system's words. Those of a library may contain a path or a password."""

    def full(*_):
        raise OSError(ENOSPC, "id:secret")

    monkeypatch.setattr("deniable_aggregator.archive.folder.file.write", full)
    with pytest.raises(ArchiveError) as caught:
        write(folder, b"\1\0\0")
    assert str(caught.value) == f"OSError: {os.strerror(ENOSPC)}"


def test_files_are_cut_into_lots():
    """No lot has too many bytes or files, and none is empty."""
    assert list(recount.cut([])) == []
    assert [len(lot) for lot in recount.cut((str(n), 1) for n in range(600))] == [256, 256, 88]
    assert list(recount.cut([("a", 1 << 40), ("b", 1), ("c", 1 << 25), ("d", 1 << 26)])) == [["a"], ["b", "c"], ["d"]]


def complete(expected):
    return recount.Counted(expected, {}, missing=False)


def counted(folder, files, run):
    done = []
    counts = recount.count(folder, files, run, lambda: done.append(1))
    assert len(done) == sum(map(len, files.values()))
    return counts


@pytest.fixture
def archived(folder):
    """Two strata in several files, and what a count of them must give."""
    other = PLUGIN._replace(segment="")
    names = {
        stratum: [write(folder, reports(300, seed=seed), stratum=stratum) for seed in range(3)] for stratum in (PLUGIN, other)
    }
    files = {stratum: [[name] for name in paths] for stratum, paths in names.items()}
    expected = tally.count(WIDE, b"".join(reports(300, seed=seed) for seed in range(3)))
    return files, dict.fromkeys(names, complete(expected))


def test_a_missing_file_is_named(folder, archived):
    """All others are counted."""
    files, expected = archived
    ((lost,),) = files[PLUGIN][1:2]
    folder.delete([folder.path(PLUGIN, lost)])
    others = tally.count(WIDE, reports(300, seed=0) + reports(300, seed=2))
    with ThreadPoolExecutor(1) as run:
        counts = counted(folder, files, run)
    assert counts == expected | {PLUGIN: recount.Counted(others, {lost: "a file is not there"}, missing=True)}


def spoil(folder, name, change):
    """Change the bytes of a file."""
    path = Path(folder.address(folder.path(PLUGIN, name)))
    path.write_bytes(change(path.read_bytes()))


def flip(data, bit):
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def rewritten(change):
    """Return what writes a file anew with another head, whose checksum is right."""

    def write(data):
        table = parquet.read_table(io.BytesIO(data))
        head = json.dumps(json.loads(parquet.ParquetFile(io.BytesIO(data)).metadata.metadata[b"deniable"]) | change)
        sink = io.BytesIO()
        with parquet.ParquetWriter(sink, table.schema) as writer:
            writer.add_key_value_metadata({"deniable": head, "deniable.crc32": str(crc32(head.encode()))})
            writer.write_table(table)
        return sink.getvalue()

    return write


def plain(column):
    """Return what writes a Parquet file of somebody else."""

    def write(_):
        sink = io.BytesIO()
        parquet.write_table(pa.table(column), sink)
        return sink.getvalue()

    return write


def beheaded(data):
    return rewritten({})(data).replace(b"deniable.crc32", b"deniable.crc33")


SPOILT = {
    "empty": (lambda _: b"", "it is empty, cut off, or no Parquet file"),
    "cut off at the footer": (lambda data: data[:-20], "it is empty, cut off, or no Parquet file"),
    "cut off in the middle": (lambda data: data[: len(data) // 2], "it is empty, cut off, or no Parquet file"),
    "no Parquet": (lambda _: b"Dear diary," * 100, "it is empty, cut off, or no Parquet file"),
    "a bit of a page": (lambda data: flip(data, 8 * 200), "it is damaged (OSError)"),
    "of somebody else": (plain({"payload": [b"abc"]}), "no worker wrote it"),
    "another format": (rewritten({"format": 2}), "its format is 2, and this version reads 1"),
    "another metric": (rewritten({"metric": "theme"}), "it has reports of something else"),
    "another definition": (rewritten({"fingerprint": "e" * 16}), "it has reports of something else"),
    "another segment": (rewritten({"segment": ""}), "it has reports of something else"),
    "fewer reports": (rewritten({"reports": 301}), "it has more or fewer reports than were written"),
    "another width": (rewritten({"width": 20}), "it has other columns"),
    "another layout": (rewritten({"rows": 32}), "it has reports that no device sends"),
    "no checksum": (beheaded, "its head is damaged"),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_a_spoilt_file_is_named_and_said_what_ails_it(folder, kind):
    """Whatever became of it; the others are counted."""
    names = [write(folder, reports(300, seed=seed)) for seed in range(3)]
    change, why = SPOILT[kind]
    spoil(folder, names[1], change)
    others = tally.count(WIDE, reports(300, seed=0) + reports(300, seed=2))
    for order in (names, names[::-1]):
        assert recount.count_files(folder.url, folder.number, PLUGIN, order) == recount.Counted(
            others, {names[1]: why}, missing=False
        )


def test_a_file_of_a_closed_period_has_no_other(folder):
    """Only in the file of a commit a late report may be of a period before the one it counts in."""
    for kind in KINDS:
        name = write(folder, reports(10), kind)
        spoil(folder, name, rewritten({"period": "2026-11-20"}))
        assert bool(recount.count_files(folder.url, folder.number, PLUGIN, [name]).failed) == (kind != COMMITS)


def test_a_file_that_may_not_be_read_is_named(folder, monkeypatch):
    """In the system's words."""

    def forbidden(_):
        raise PermissionError(EACCES, "id:secret")

    name = write(folder, reports(10))
    monkeypatch.setattr("deniable_aggregator.archive.folder.file.read", forbidden)
    count = recount.count_files(folder.url, folder.number, PLUGIN, [name])
    assert count.failed == {name: f"PermissionError: {os.strerror(EACCES)}"}


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.campaign) for first in (1, 2))])
def test_no_flipped_bit_changes_a_count_unseen(folder, first):
    """Wherever it is in the file: it is named, or nothing that counts has changed."""
    payloads = reports(40)
    name = write(folder, payloads)
    path = Path(folder.address(folder.path(PLUGIN, name)))
    data, expected = path.read_bytes(), tally.count(WIDE, payloads)
    named = 0
    for bit in range(first, 8 * len(data), 3):
        path.write_bytes(flip(data, bit))
        count = recount.count_files(folder.url, folder.number, PLUGIN, [name])
        named += bool(count.failed)
        assert count.failed or count.tally == expected, bit
    assert named > 4 * len(data) / 3


@pytest.mark.parametrize("name", ["", "dask", "ray://localhost:1", "processes"])
def test_an_unknown_executor_is_refused(name):
    """The message names the two that there are."""
    with pytest.raises(ConfigurationError, match="process or dask://HOST:PORT"), executor.start(name):
        pass


@pytest.mark.parametrize("size", [1 << 30, 500])
def test_a_mixture_has_all_reports_in_random_files(folder, monkeypatch, size):
    """As many files as are needed; with several, a report is in any of them."""
    monkeypatch.setattr(mixture, "_BYTES", size)
    monkeypatch.setattr(mixture, "_CHUNK", 64)
    commits = [reports(200, seed=seed) for seed in range(4)]
    expected = tally.count(WIDE, b"".join(commits))
    mixed = mixture.write(folder, PLUGIN, [write(folder, each) for each in commits], expected)
    assert len(mixed) == (1 if size > 500 else 5)
    with ThreadPoolExecutor(1) as run:
        assert counted(folder, lots(PLUGIN, mixed), run) == {PLUGIN: complete(expected)}
    if len(mixed) > 1:  # each file has some of each commit's reports
        first = {commits[0][at : at + 3] for at in range(0, len(commits[0]), 3)}
        for name in mixed:
            with folder.read(PLUGIN, name) as (_, groups):
                there = b"".join(groups)
            assert 20 < len({there[at : at + 3] for at in range(0, len(there), 3)} & first) < 70


def test_a_mixture_of_too_few_or_too_many_reports_is_refused(folder):
    """It is written only if the recount equals the tally, in every cell."""
    names = [write(folder, reports(200, seed=seed)) for seed in range(3)]
    expected = tally.count(WIDE, b"".join(reports(200, seed=seed) for seed in range(3)))
    for order in (names[:2], [*names, names[0]]):
        with pytest.raises(RecountDiffersError):
            mixture.write(folder, PLUGIN, order, expected)
    same_number = tally.count(WIDE, reports(600, seed=9))
    with pytest.raises(RecountDiffersError):
        mixture.write(folder, PLUGIN, names, same_number)
    other = Layout(64, 13, "bits")
    with pytest.raises(RecountDiffersError):
        mixture.write(folder, PLUGIN, names, tally.empty(other))
    names.append(write(folder, reports(1, other), layout=other))
    with pytest.raises(RecountDiffersError):
        mixture.write(folder, PLUGIN, names)
    assert {each.name for each in folder.find()} == set(names)


PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "archive-files.md").read_text("utf-8")


@pytest.mark.parametrize("program", ["duckdb", "polars"])
def test_other_programs_count_the_same(folder, tmp_path, monkeypatch, program):
    """What the page shows for them counts each bit as the recount does."""
    pytest.importorskip(program)
    layout = Layout(1, 12, "bits")
    names = [write(folder, reports(500, layout, seed), PERIOD, layout=layout) for seed in range(3)]
    (tmp_path / "files.txt").write_text("\n".join(folder.address(folder.path(PLUGIN, name)) for name in names))
    monkeypatch.chdir(tmp_path)
    variables = {}
    example = re.search(rf"^```python\nimport {program}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[0]
    exec(example.removeprefix("```python").removesuffix("```"), variables)
    count = variables["counts"]
    counts = [number for _, number in count] if program == "duckdb" else list(count.row(0))
    assert counts == tally.count(layout, b"".join(reports(500, layout, seed) for seed in range(3))).counts[0].tolist()
    assert len(example.splitlines()) <= 13
