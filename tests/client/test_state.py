"""The device's file: made whole or not at all, readable by its owner only, and never silently replaced."""

from __future__ import annotations

import gc
import os
import re
import sqlite3
import stat
import sys
from contextlib import closing
from pathlib import Path
from shutil import rmtree

import pytest

from deniable.device.state import State
from deniable.errors import StateError
from deniable.process.surroundings import state_root

posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="modes and owners are those of POSIX")


def lifetime(state: State) -> int:
    with state.transaction() as db:
        (value,) = db.execute("SELECT value FROM facts WHERE name = 'lifetime'").fetchone()
        return value


def write_and_fail(state: State) -> None:
    with state.transaction() as db:
        db.execute("UPDATE facts SET value = 99 WHERE name = 'lifetime'")
        raise ZeroDivisionError


@pytest.fixture
def state(tmp_path):
    """Give a state that has begun."""
    begun = State(tmp_path / "shop")
    for number in (6, 7):  # SQLite's own file comes with the second transaction
        with begun.transaction() as db:
            db.execute("UPDATE facts SET value = ? WHERE name = 'lifetime'", (number,))
    return begun


@posix
def test_only_the_owner_reads_it(state):
    """The directory has mode 0700 and the files 0600, whatever the umask; beside the file there is an empty one of SQLite's."""
    assert stat.S_IMODE(state.directory.stat().st_mode) == 0o700
    assert [entry.name for entry in state.directory.parent.iterdir() if "shop" in entry.name] == ["shop"]
    files = {entry.name: entry.stat() for entry in state.directory.iterdir()}
    assert {stat.S_IMODE(status.st_mode) for status in files.values()} == {0o600}
    assert set(files) == {"state.db", "state.db-journal"}
    assert files["state.db-journal"].st_size == 0


@posix
def test_folders_above_it_are_the_owners(tmp_path):
    """Folders that are made for it can be looked into by nobody else: what lies there tells which apps somebody uses."""
    lifetime(State(tmp_path / "state" / "deniable" / "shop"))
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "state" / "deniable").stat().st_mode) == 0o700


@posix
def test_the_umask_opens_nothing(tmp_path):
    """Where a umask takes nothing away, all that is made is the owner's alone all the same."""
    before = os.umask(0)
    try:
        for number in (6, 7):
            with State(tmp_path / "deep" / "shop").transaction() as db:
                db.execute("UPDATE facts SET value = ? WHERE name = 'lifetime'", (number,))
    finally:
        os.umask(before)
    paths = [tmp_path / "deep", *(tmp_path / "deep").rglob("*")]
    assert len(paths) == 4
    assert {stat.S_IMODE(each.stat().st_mode) for each in paths if each.is_dir()} == {0o700}
    assert {stat.S_IMODE(each.stat().st_mode) for each in paths if each.is_file()} == {0o600}


@posix
def test_a_planted_directory_is_not_used(tmp_path):
    """A directory that everybody can write, with a file in it, may be another one's work: neither read nor written."""
    planted = tmp_path / "shop"
    lifetime(State(planted))
    planted.chmod(0o777)
    (planted / "state.db").chmod(0o666)
    content = (planted / "state.db").read_bytes()
    state = State(planted)
    with pytest.raises(StateError, match=f"{planted} has mode 0777: .* chmod go-w {planted}"):
        lifetime(state)
    assert "chmod go-w" in state.trouble
    assert (planted / "state.db").read_bytes() == content


@posix
@pytest.mark.parametrize("name", ["", "state.db", "state.db-journal", "spool"])
@pytest.mark.parametrize("mode", [0o720, 0o602, 0o777])
def test_what_others_can_write_is_refused(state, name, mode):
    """Neither the directory nor anything in it may be written by others; when that is mended, it is as it was."""
    (state.directory / "spool").mkdir(mode=0o700)
    path = state.directory / name
    usual = stat.S_IMODE(path.stat().st_mode)
    path.chmod(usual | mode & 0o022)
    with pytest.raises(StateError, match=r"others can write.*chmod go-w"):
        lifetime(state)
    path.chmod(usual)
    assert lifetime(state) == 7


@posix
@pytest.mark.parametrize("name", ["", "state.db"])
def test_what_belongs_to_others_is_refused(state, name, given_away):
    """What somebody else made is not used; what root made is."""
    given_away(state.directory / name)
    with pytest.raises(
        StateError, match=r"must belong to its user or to root.*belongs to user \d+: remove it, or name another place"
    ):
        lifetime(state)


@posix
def test_a_link_of_somebody_else_is_refused(state, tmp_path, given_away):
    """A link leads where its owner wants, today here and tomorrow elsewhere."""
    link = tmp_path / "link"
    link.symlink_to(state.directory)
    assert lifetime(State(link)) == 7
    given_away(link)
    with pytest.raises(StateError, match=f"{link} belongs to user"):
        lifetime(State(link))


@posix
def test_a_folder_of_somebody_else_or_of_a_group(tmp_path, monkeypatch):
    """The owner of a folder can replace what lies in it, and so can who may write it. A group without other members may."""
    folder = tmp_path / "a"
    folder.mkdir()
    state = State(folder / "shop")
    real = os.stat

    def belongs(path, *arguments, **more):
        status = real(path, *arguments, **more)
        return os.stat_result((*status[:4], 4711, *status[5:])) if str(path) == str(folder) else status

    monkeypatch.setattr("deniable.platform.owners.os.stat", belongs)
    with pytest.raises(StateError, match=f"{folder} belongs to user 4711"):
        lifetime(state)
    monkeypatch.undo()
    folder.chmod(0o775)
    for private, fits in ((False, False), (True, True)):
        monkeypatch.setattr("deniable.platform.owners._is_private", lambda _, private=private: private)
        if fits:
            assert lifetime(state) == 0
        else:
            with pytest.raises(StateError, match="mode 0775 and no sticky bit"):
                lifetime(state)


@posix
def test_a_folder_that_holds_a_link_on_the_way(tmp_path):
    """Who can replace a link decides where the state lies: the folders of its name are looked at, too."""
    open_, closed = tmp_path / "open", tmp_path / "kept"
    open_.mkdir()
    closed.mkdir()
    (open_ / "link").symlink_to(closed)
    open_.chmod(0o777)
    with pytest.raises(StateError, match=f"{open_} has mode 0777"):
        lifetime(State(open_ / "link" / "shop"))
    open_.chmod(0o755)
    assert lifetime(State(open_ / "link" / "shop")) == 0


@posix
@pytest.mark.parametrize("above", ["a", "a/b"])
def test_a_folder_in_which_everybody_may_replace_it(tmp_path, above):
    """Where everybody can remove the directory, a new device can begin at any time; the sticky bit forbids that, as in /tmp."""
    folder = tmp_path / above
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    state = State(tmp_path / "a" / "b" / "shop")
    with pytest.raises(StateError, match=f"{folder} has mode 0777 .* chmod go-w {folder}"):
        lifetime(state)
    assert not state.directory.exists()
    folder.chmod(0o1777)
    assert lifetime(state) == 0
    folder.chmod(0o777)
    with pytest.raises(StateError, match="sticky"):
        lifetime(state)


def test_a_commit_outlives_a_power_failure(state):
    """What SQLite keeps to undo a transaction undoes none that has ended, even if the disk forgets that it was removed."""
    journal = state.directory / "state.db-journal"
    copy = state.directory / "kept"
    with state.transaction() as db:
        db.execute("UPDATE facts SET value = 8 WHERE name = 'lifetime'")
        os.link(journal, copy)
    copy.replace(journal)
    assert lifetime(state) == 8


def test_what_is_forgotten_is_overwritten(state):
    """A row that was deleted leaves no bytes behind, in no file."""
    canary = b"canary-9f1c" * 20
    with state.transaction() as db:
        db.execute("INSERT INTO responses VALUES (?, ?, ?)", (b"key", "tag", canary))
    assert canary in (state.directory / "state.db").read_bytes()
    with state.transaction() as db:
        db.execute("DELETE FROM responses")
    assert not any(b"canary" in entry.read_bytes() for entry in state.directory.iterdir())


def test_nothing_is_written_before_it_is_used(tmp_path):
    """A state that nobody used has no directory, and none that a look makes."""
    state = State(tmp_path / "shop")
    assert not state.begun
    assert not (tmp_path / "shop").exists()
    assert lifetime(state) == 0
    assert state.begun


def test_it_lasts(state):
    """Another state on the same directory reads what was written."""
    assert lifetime(State(state.directory)) == 7


def test_memory_does_not_last():
    """Without a directory it lasts as long as the object."""
    state = State(None)
    assert not state.begun
    with state.transaction() as db:
        db.execute("UPDATE facts SET value = 7 WHERE name = 'lifetime'")
    assert (state.begun, lifetime(state), lifetime(State(None))) == (True, 7, 0)


@pytest.mark.parametrize("in_a_cycle", [False, True])
def test_memory_is_closed_with_the_state(in_a_cycle):
    """The connection is closed when nobody has the state any more. One that is left open is warned of by newer Pythons."""
    state = State(None)
    with state.transaction() as db:
        pass
    if in_a_cycle:
        state.owner = state
    del state
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        db.execute("SELECT 1")


def test_a_transaction_is_on_disk_when_it_ends(state):
    """SQLite waits for the disk at each commit, and leaves no journal that could undo it."""
    with state.transaction() as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
        assert db.execute("PRAGMA journal_mode").fetchone() == ("truncate",)


def test_an_error_rolls_back(state):
    """Nothing of a transaction that failed is kept, in a file or in memory."""
    for opened in (state, State(None)):
        before = lifetime(opened)
        with pytest.raises(ZeroDivisionError):
            write_and_fail(opened)
        assert lifetime(opened) == before


def test_a_deleted_file_is_no_fresh_start(state):
    """If the file alone is gone, what was spent is unknown: refused, with what to do, until the directory is gone, too."""
    (state.directory / "state.db").unlink()
    for _ in range(2):
        with pytest.raises(StateError, match=r"was deleted.*remove"), state.transaction():
            pass
    rmtree(state.directory)
    assert lifetime(state) == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda _: b"not a database, but long enough to be looked at" * 50,
        lambda content: content[: len(content) // 2],
        lambda content: content[:4096] + b"\xff" * (len(content) - 4096),
        lambda content: content[:60] + b"\0\0\0\1" + content[64:],  # user_version
    ],
    ids=["empty", "foreign", "half", "overwritten", "another version"],
)
def test_a_damaged_file_is_refused(state, damage):
    """A file that is not as it was left is neither used nor mended nor replaced."""
    file = state.directory / "state.db"
    broken = damage(file.read_bytes())
    file.write_bytes(broken)
    with pytest.raises(StateError, match=f"; .*remove {re.escape(str(state.directory))}$"):
        lifetime(state)
    assert file.read_bytes() == broken


def test_a_directory_that_cannot_be_made(tmp_path):
    """Where nothing can be written, the error says where."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="file"):
        lifetime(State(tmp_path / "file" / "shop"))


def test_a_link_is_not_followed_to_a_new_file(tmp_path):
    """A directory somebody else prepared, without a file, is not filled."""
    (tmp_path / "shop").mkdir(mode=0o700)
    with pytest.raises(StateError, match="was deleted"):
        lifetime(State(tmp_path / "shop"))


def test_another_may_begin_between_two_looks(tmp_path, monkeypatch):
    """A process that finds nothing, and a moment later what another has made meanwhile, does not take it for a deleted file."""
    look, looks = Path.exists, 0

    def exists(path: Path) -> bool:
        nonlocal looks
        there = look(path)
        looks += 1
        if looks == 1:
            lifetime(State(tmp_path / "shop"))
        return there

    monkeypatch.setattr(Path, "exists", exists)
    late = State(tmp_path / "shop")
    late.begin(lambda db: db.execute("UPDATE facts SET value = value + 2 WHERE name = 'lifetime'"))
    assert looks > 1
    assert lifetime(late) == 2


def test_what_the_dead_left_is_removed(tmp_path, monkeypatch):
    """A directory that a process was making when it died goes with a beginning an hour later, and nothing of another name."""
    with monkeypatch.context() as dying:
        dying.setattr("deniable.device.state._remove", lambda *_args, **_options: None)
        dying.setattr(Path, "rename", lambda *_: (tmp_path / "nothing").stat())
        with pytest.raises(StateError):
            lifetime(State(tmp_path / "shop"))
    (left,) = [entry.name for entry in tmp_path.iterdir() if "shop" in entry.name]
    others = {f".shop.x.{'0' * 16}", ".shop.backup", f"{left}.backup", f".shop.{'0' * 15}g"}
    for name in others:
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (0, 0))
    young = State(tmp_path / "shop")
    assert lifetime(young) == 0
    assert (tmp_path / left).exists()  # somebody may be making it
    os.utime(tmp_path / left, (0, 0))
    rmtree(tmp_path / "shop")
    assert lifetime(young) == 0
    assert {entry.name for entry in tmp_path.iterdir() if "shop" in entry.name} == {"shop"} | others


def test_a_directory_closed_to_us(tmp_path, monkeypatch):
    """To ask whether anything was kept, where we may not even look, is no error."""

    def exists(_path: Path) -> bool:
        raise PermissionError

    monkeypatch.setattr(Path, "exists", exists)
    state = State(tmp_path / "shop")
    assert state.begun
    with pytest.raises(StateError, match="PermissionError"):
        lifetime(state)


def test_another_process_is_waited_for_only_briefly(state):
    """A file that somebody holds is an error within a second, and usable when they let go."""
    with closing(sqlite3.connect(state.directory / "state.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StateError, match="locked"):
            lifetime(state)
        holder.execute("ROLLBACK")
    assert lifetime(state) == 7


@pytest.mark.skipif(hasattr(os, "geteuid"), reason="Windows has its own place")
def test_the_place_for_states_on_windows(monkeypatch, tmp_path):
    """It is the part of the user's profile that stays on the machine."""
    monkeypatch.delenv("DENIABLE_STATE_DIR")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert state_root() == tmp_path / "deniable"
    monkeypatch.delenv("LOCALAPPDATA")
    assert state_root().parts[-3:] == ("AppData", "Local", "deniable")


@pytest.mark.skipif(sys.platform != "linux" or not hasattr(os, "geteuid"), reason="each system has its own place")
def test_the_place_for_states(monkeypatch, tmp_path):
    """It is XDG's, or where XDG says it is without being asked."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("DENIABLE_STATE_DIR")
    assert state_root() == tmp_path / "deniable"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert str(state_root()) == "/home/somebody/.local/state/deniable"
