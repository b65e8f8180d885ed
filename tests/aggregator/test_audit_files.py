"""The audit log in files: rotated, kept for a while, verified with what the store has; and the command."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import redis
from stores import fake

from deniable.commands.entry import main
from deniable.errors import ConfigurationError
from deniable.platform import files as disk
from deniable_aggregator.audit import files as audit_files
from deniable_aggregator.audit.entry import intact_entry
from deniable_aggregator.audit.files import expire, files, rotate, verify
from deniable_aggregator.audit.log import AuditLog, Rotated
from deniable_aggregator.store import Store

NOW = 1795290000
DAY = 86400


@pytest.fixture
def clock(monkeypatch):
    """Set the time of entries by hand."""
    now = [NOW]
    monkeypatch.setattr("deniable_aggregator.audit.log.time.time", lambda: now[0])
    return now


@pytest.fixture
def log():
    return AuditLog(Store(fake(), "shop"))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "audit"


@pytest.fixture
def days(log, clock):
    """Log three entries a day, for as many days as said."""

    def run(count):
        for _ in range(count):
            for number in range(3):
                assert log.append("key.revoked", "command", {"id": f"{number:016x}"})
            clock[0] += DAY

    return run


@pytest.fixture
def rotated(log, folder, days, clock):
    """Give a log of which two files are written: entries 1 to 9, and 10 to 19; the store has 20 to 25 and what tells of it."""
    days(3)
    rotate(log, folder, clock[0])
    days(3)
    rotate(log, folder, clock[0])
    days(2)
    return log


def numbers(lines):
    return [entry.number for entry in map(intact_entry, lines) if entry]


def stored(log):
    return log.store._client.lrange(log.key, 0, -1)


# Rotation


def test_what_is_old_is_moved_as_it_is(log, folder, days):
    """A file has the very lines that the store had; the store goes on with the entry that tells of it."""
    days(4)
    before = stored(log)
    (path,) = rotate(log, folder, NOW + 2 * DAY)
    assert path.name == "shop.audit.000000000001-000000000006.jsonl"
    assert path.read_bytes() == b"".join(line + b"\n" for line in before[:6])
    assert stored(log)[:-1] == before[6:]
    last = log.last()
    assert (last.event, last.number, last.actor) == ("audit.rotated", 13, "command")
    assert last.details == {"file": path.name, "first": 1, "last": 6, "hash": intact_entry(before[5]).hash}
    verification = verify(log, folder)
    assert (verification.entries, verification.number, verification.faults, verification.notes) == (13, 13, (), ())


def test_files_are_their_owners_alone(log, folder, days, clock):
    """Neither the folder nor a file is open to others, and nothing else is left beside it."""
    days(1)
    (path,) = rotate(log, folder, clock[0])
    assert (folder.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
    assert list(folder.iterdir()) == [path]


def test_a_store_that_was_emptied_by_rotation_goes_on(log, folder, days, clock):
    """All entries may be moved: what tells of it is what the store then has, and the chain goes on from it."""
    days(1)
    rotate(log, folder, clock[0])
    assert numbers(stored(log)) == [4]
    days(1)
    assert verify(log, folder).entries == 7
    assert not verify(AuditLog(log.store), folder).faults


def test_nothing_old_is_nothing_to_do(log, folder, days):
    """A rotation with nothing to move writes nothing, neither a file nor an entry."""
    assert rotate(log, folder, NOW) == []
    days(1)
    assert rotate(log, folder, NOW) == []
    assert numbers(stored(log)) == [1, 2, 3]
    assert not files(folder, "shop")


def test_what_is_younger_keeps_what_stands_after_it(log, folder, clock):
    """Order is never changed: where a clock was wrong, an old entry stays behind a young one."""
    for moment in (NOW, NOW + 9 * DAY, NOW + DAY, NOW + 10 * DAY):
        clock[0] = moment
        log.append("key.revoked", "command", {})
    rotate(log, folder, NOW + 5 * DAY)
    assert numbers(stored(log)) == [2, 3, 4, 5]


def test_files_hold_so_many_entries(log, folder, days, monkeypatch):
    """A long log becomes several files, each told of."""
    monkeypatch.setattr(audit_files, "_MOST", 4)
    days(3)
    paths = rotate(log, folder, NOW + 3 * DAY)
    assert [len(path.read_bytes().splitlines()) for path in paths] == [4, 4, 1]
    assert verify(log, folder).entries == 12
    assert not verify(log, folder).faults


def test_files_of_other_apps_are_left_alone(log, folder, clock):
    """Apps may share a folder, also where the name of one begins like that of the other."""
    for name in ("shop.audit", "shop"):
        other = AuditLog(Store(log.store._client, name))
        other.append("key.revoked", "command", {})
        clock[0] += DAY
        rotate(other, folder, clock[0])
    assert [len(files(folder, name)) for name in ("shop", "shop.audit", "blog")] == [1, 1, 0]
    assert not verify(log, folder).faults


@pytest.mark.parametrize("step", ["write_new", "sync", "append"])
def test_a_rotation_that_was_cut_short_is_ended_by_the_next(log, folder, days, clock, monkeypatch, step):
    """Wherever it stops, nothing is lost and nothing is broken; the next one comes to the same end."""
    days(2)
    before = stored(log)

    def stop(*_args, **_kwargs):
        raise OSError("no")

    with monkeypatch.context() as patched:
        patched.setattr(*((log, "append") if step == "append" else (disk, step)), stop)
        with pytest.raises(OSError, match="no"):
            rotate(log, folder, clock[0])
    assert stored(log) == before
    verification = verify(log, folder)
    assert (verification.entries, verification.faults) == (6, ())
    assert bool(verification.notes) == (step != "write_new")
    days(1)
    assert not verify(log, folder).faults
    rotate(log, folder, NOW + 2 * DAY)
    verification = verify(log, folder)
    assert (verification.entries, verification.faults, verification.notes) == (10, (), ())
    assert b"".join(path.read_bytes() for path in files(folder, "shop")) == b"".join(line + b"\n" for line in before)


def test_what_was_rotated_by_somebody_else_is_not_trimmed_again(log, folder, days, clock):
    """Two rotations at once take nothing away that is in no file: the slower one stops."""
    days(2)
    other = AuditLog(log.store)
    append = log.append

    def meanwhile(*arguments, **more):
        rotate(other, folder.with_name("other"), clock[0])
        return append(*arguments, **more)

    log.append = meanwhile
    with pytest.raises(Rotated):
        rotate(log, folder, clock[0])
    assert numbers(stored(log)) == [7]
    assert not verify(log, folder.with_name("other")).faults


def test_a_folder_of_another_log_is_refused(rotated, folder, days, clock):
    """Files that do not go on with what the store has are not added to."""
    rotated.store._client.delete(rotated.key)
    days(1)
    with pytest.raises(ConfigurationError, match="entry 19"):
        rotate(AuditLog(rotated.store), folder, clock[0])


def test_a_last_file_that_was_edited_is_no_reason_to_trim(log, folder, days, clock, monkeypatch):
    """What a rotation that was cut short has left is compared line by line before the store forgets anything."""
    days(2)
    with monkeypatch.context() as patched:
        patched.setattr(log, "append", lambda *_, **__: None)
        with pytest.raises(Rotated):
            rotate(log, folder, clock[0])
    (path,) = files(folder, "shop")
    lines = path.read_bytes().splitlines(keepends=True)
    for edited, words in (
        ([lines[0], b"x\n", *lines[2:]], "differ"),
        ([b"x\n", *lines[1:]], "end with entry 6"),
        ([b"x\n", *lines[1:-1], b"x\n"], "already"),
    ):
        path.write_bytes(b"".join(edited))
        with pytest.raises(ConfigurationError, match=words):
            rotate(log, folder, clock[0])
        assert len(stored(log)) == 6
        assert path.read_bytes() == b"".join(edited)
        assert verify(log, folder).faults


def test_what_is_no_entry_is_moved_too(log, folder, days, clock):
    """A log that is broken can be rotated, and the break is where it was, whatever bytes it is made of."""
    days(1)
    log.store._client.rpush(log.key, b"two\nlines\xff", b"\xff")
    days(1)
    rotate(log, folder, clock[0])
    days(1)
    verification = verify(log, folder)
    assert verification.entries == 10
    name = files(folder, "shop")[0].name
    assert [fault.where for fault in verification.faults] == [f"{name}:4", f"{name}:5"]


# Retention


def test_what_is_old_enough_is_deleted_and_told_of(rotated, folder):
    """A file goes when its last entry is old enough; the log says so, and where it begins from then on."""
    first, second = files(folder, "shop")
    end = intact_entry(first.read_bytes().splitlines()[-1])
    assert expire(rotated, folder, end.time) == []
    assert expire(rotated, folder, end.time + 1) == [first]
    assert files(folder, "shop") == [second]
    last = rotated.last()
    assert (last.event, last.details) == ("audit.expired", {"files": 1, "last": 9, "hash": end.hash})
    verification = verify(rotated, folder)
    assert not verification.faults
    assert verification.notes == (f"entries 1 to 9 were deleted when their time was over (entry {last.number})",)


def test_no_more_may_be_missing_than_was_told_of(rotated, folder):
    """That some files were deleted by right is no excuse for others."""
    first, second = files(folder, "shop")
    expire(rotated, folder, intact_entry(first.read_bytes().splitlines()[-1]).time + 1)
    second.unlink()
    (fault,) = verify(rotated, folder).faults
    assert str(fault) == "store:1: the log begins with entry 20: what was before it is missing"


def test_retention_goes_on_and_on(log, folder, days, clock):
    """However often old files are deleted, and what told of it with them, the log stays whole."""
    for _ in range(6):
        days(2)
        rotate(log, folder, clock[0] - DAY)
        expire(log, folder, clock[0] - 4 * DAY)
        verification = verify(log, folder)
        assert not verification.faults
    assert len(verification.notes) == 1
    assert verification.entries < verification.number


def test_a_deletion_that_was_cut_short_is_ended_by_the_next(rotated, folder, clock, monkeypatch):
    """Deleting is told of first: files that are still there after that are no fault."""
    unlink = Path.unlink

    def once(path, **_):
        if path == files(folder, "shop")[-1]:
            raise OSError("no")
        unlink(path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", once)
        with pytest.raises(OSError, match="no"):
            expire(rotated, folder, clock[0])
    verification = verify(rotated, folder)
    assert not verification.faults
    assert verification.notes[0].startswith("entries 1 to 9 were deleted")
    assert len(expire(rotated, folder, clock[0])) == 1
    assert verify(rotated, folder).notes[0].startswith("entries 1 to 19 were deleted")
    assert not verify(rotated, folder).faults


def test_nothing_is_deleted_that_cannot_be_told_of(rotated, folder, clock, monkeypatch):
    """Where the store is away, all files stay."""

    def away(*_args, **_kwargs):
        raise redis.ConnectionError("away")

    monkeypatch.setattr(rotated, "append", away)
    with pytest.raises(redis.ConnectionError):
        expire(rotated, folder, clock[0])
    assert len(files(folder, "shop")) == 2


# What is done to files by hand


def change(place, old, new):
    def tamper(path):
        lines = path.read_bytes().splitlines(keepends=True)
        assert old in lines[place]
        lines[place] = lines[place].replace(old, new, 1)
        path.write_bytes(b"".join(lines))

    return tamper


def reorder(path):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[1], lines[0], *lines[2:]]))


def keep(begin, end):
    def tamper(path):
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[begin:end]))

    return tamper


# By what was done: which file, what to it, and what is said: {0} and {1} are the files' names.
TAMPERED = {
    "a line edited": (0, change(4, b"command", b"worker"), "{0}:5: entry 5 was changed"),
    "a blank put in": (0, change(4, b'"number":5', b'"number": 5'), "{0}:5: entry 5 was changed"),
    "Windows line ends": (0, change(4, b"\n", b"\r\n"), "{0}:5: entry 5 was changed"),
    "an empty line": (0, change(4, b"\n", b"\n\n"), "{0}:6: this is no entry"),
    "lines out of order": (0, reorder, "{0}:1: the log begins with entry 2"),
    "a line removed": (0, change(4, b"\n", b""), "{0}:5: this is no entry"),
    "its front cut": (0, keep(3, None), "{0}:1: the log begins with entry 4"),
    "its end cut": (0, keep(0, 6), "{1}:1: entries 7 to 9 are missing"),
    "its end cut before the store": (1, keep(0, 6), "store:1: entries 16 to 19 are missing"),
    "half a line": (1, lambda path: path.write_bytes(path.read_bytes()[:-40]), "{1}:10: this is no entry"),
    "emptied": (0, lambda path: path.write_bytes(b""), "{0}:1: this is no entry"),
    "the first deleted": (0, Path.unlink, "{1}:1: the log begins with entry 10"),
    "the second deleted": (1, Path.unlink, "store:1: entries 10 to 19 are missing"),
    "renamed to be the last": (
        0,
        lambda path: path.rename(path.with_name("shop.audit.000000000099-000000000107.jsonl")),
        "{1}:1:",
    ),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_what_was_done_to_a_file_is_found_where_it_was_done(rotated, folder, what):
    """The first fault is the very place."""
    paths = files(folder, "shop")
    assert not verify(rotated, folder).faults
    which, tamper, fault = TAMPERED[what]
    tamper(paths[which])
    assert str(verify(rotated, folder).faults[0]).startswith(fault.format(*(path.name for path in paths)))


def test_a_store_that_lost_its_part_is_told(rotated, folder):
    """A rotation leaves an entry in the store: where none is, some were removed."""
    rotated.store._client.delete(rotated.key)
    (fault,) = verify(rotated, folder).faults
    assert fault.where == "end"


def test_files_that_nobody_looked_at_are_told_of(rotated):
    """Without the folder, what the store has is verified, and that the rest is elsewhere is said, not held against it."""
    verification = verify(rotated)
    assert not verification.faults
    assert verification.notes == ("entries 1 to 19 were moved to files, which were not read (entry 20)",)
    rotated.store._client.ltrim(rotated.key, 1, -1)  # the entry that tells of it, too
    assert str(verify(rotated).faults[0]).startswith("store:1: the log begins with entry 21")


def test_an_anchor_reaches_into_files(rotated, folder):
    """Anchors may be of entries in files; one whose entry was deleted still holds the next one."""
    lines = [line for path in files(folder, "shop") for line in path.read_bytes().splitlines()]
    anchors = {entry.number: entry.hash for entry in map(intact_entry, lines)}
    assert not verify(rotated, folder, anchors).faults
    assert verify(rotated, folder, anchors | {5: "0" * 64}).faults[0].what.startswith("entry 5 is another one")
    expire(rotated, folder, intact_entry(lines[8]).time + 1)
    assert not verify(rotated, folder, {9: anchors[9]}).faults
    assert verify(rotated, folder, {9: "0" * 64}).faults[0].what.startswith("entry 10 was made after another entry 9")
    assert verify(rotated, folder, {8: anchors[8]}).faults[0].where == "anchor"


# The command


@pytest.fixture
def command(real_redis, store_url, capsys, monkeypatch):
    """Run ``deniable audit-log`` on a log of three entries; return its exit status and what it printed."""
    monkeypatch.delenv("DENIABLE_REGISTRY", raising=False)
    monkeypatch.delenv("DENIABLE_APPS", raising=False)
    log = AuditLog(Store(real_redis, "shop"))
    for number in range(3):
        log.append("key.revoked", "command", {"id": f"{number:016x}"})

    def run(*words, app="shop"):
        status = main(["audit-log", "--redis-url", store_url, "--app", app, *map(str, words)])
        return status, *capsys.readouterr()

    return run


def test_the_command_verifies(command, real_redis):
    """0 and the head for a whole log, 1 and the places for a broken one; the same for programs."""
    head = command("head")[1].strip()
    assert command("verify") == (0, f"3 entries of shop, whole as far as {head}\n", "")
    assert command("verify", "--anchor", head)[0] == 0
    number, _, hash_ = head.partition(":")
    document = json.loads(command("verify", "--json")[1])
    assert document == {
        "app": "shop",
        "whole": True,
        "entries": 3,
        "number": int(number),
        "hash": hash_,
        "faults": [],
        "notes": [],
    }
    real_redis.lset("{shop}:audit", 1, b"x")
    status, printed, _ = command("verify")
    assert status == 1
    assert printed.splitlines()[0] == "store:2: this is no entry: somebody else put it there, or it was damaged"
    status, printed, _ = command("verify", "--json")
    assert (status, json.loads(printed)["whole"], json.loads(printed)["faults"][0]["where"]) == (1, False, "store:2")


def test_before_the_first_rotation_there_is_no_folder(command, tmp_path, monkeypatch):
    """The log is whole, and the note says who makes the folder. Once it is needed, a folder that is not there is a fault."""
    folder = tmp_path / "log"
    status, out, _ = command("verify", "--files", folder)
    assert status == 0
    assert f"note: there is no folder {folder}: `rotate` makes it" in out
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 60)
    assert command("rotate", "--to", folder, "--older-than", "0")[0] == 0
    assert command("verify", "--files", folder)[0] == 0
    assert command("verify", "--files", tmp_path / "other")[0] == 1


def test_the_command_tells_an_end_that_was_cut(command, real_redis):
    """The anchor that `head` printed shows it."""
    head = command("head")[1].strip()
    real_redis.rpop("{shop}:audit")
    assert command("verify")[0] == 0
    assert command("verify", "--anchor", head)[0] == 1


def test_the_command_lists(command):
    """One line for each entry, of all events or of one; as they are written for programs."""
    _, printed, _ = command("list")
    assert [line.split()[2:] for line in printed.splitlines()] == [
        ["key.revoked", "command", f"id={number:016x}"] for number in range(3)
    ]
    assert command("list", "--event", "key.created") == (0, "", "no entry of key.created in the store\n")
    assert [json.loads(line)["number"] for line in command("list", "--json")[1].splitlines()] == [1, 2, 3]


def test_the_list_says_which_entries_are_in_files(command, folder, monkeypatch):
    """What was moved is not lost: a list without it says so, apart from the entries."""
    begin = time.time
    monkeypatch.setattr(time, "time", lambda: begin() + 5 * DAY)
    assert command("rotate", "--to", folder, "--older-than", "2")[0] == 0
    status, printed, warning = command("list", "--event", "key.revoked")
    assert (status, printed, warning) == (
        0,
        "",
        "no entry of key.revoked in the store; entries 1 to 3 were moved to files by `rotate`\n",
    )
    assert command("list")[2] == "1 entry in the store; entries 1 to 3 were moved to files by `rotate`\n"


@pytest.fixture
def later(monkeypatch):
    """Let some days pass for this process."""
    begin = time.time

    def run(days):
        monkeypatch.setattr("time.time", lambda: begin() + days * DAY)

    return run


def test_the_command_rotates(command, folder, later):
    """What was moved and deleted is said, and the new head."""
    status, printed, _ = command("rotate", "--to", folder, "--older-than", 30)
    assert (status, printed) == (0, command("head")[1])
    later(40)
    status, printed, _ = command("rotate", "--to", folder, "--older-than", 30, "--retain", 50)
    assert status == 0
    assert printed.splitlines()[0] == f"moved to {folder / 'shop.audit.000000000001-000000000003.jsonl'}"
    assert printed.splitlines()[1:] == [command("head")[1].strip()]
    later(70)
    assert command("rotate", "--to", folder, "--older-than", 30, "--retain", 20)[0] == 2
    status, printed, _ = command("rotate", "--to", folder, "--older-than", 20, "--retain", 25)
    assert status == 0
    assert [line.split()[0] for line in printed.splitlines()[:-1]] == ["moved", "deleted", "deleted"]
    status, printed, _ = command("verify", "--files", folder)
    assert status == 0
    assert printed.startswith("note: entries 1 to 4 were deleted")


def test_a_restored_store_goes_on_without_the_lost_files(command, folder, real_redis, later):
    """Files of the lost time are put aside, which is logged; then entries are moved as before, and an anchor shows the loss."""
    log = AuditLog(Store(real_redis, "shop"))
    rotate = ("rotate", "--to", folder, "--older-than", 1)
    backups = []
    for day in (2, 4):
        later(day)
        assert command(*rotate)[0] == 0
        backups.append(real_redis.dump(log.key))
        log.append("key.revoked", "command", {"id": f"{day:016x}"})
    later(6)
    assert command(*rotate)[0] == 0
    anchor = command("head")[1].strip()
    lost = intact_entry(files(folder, "shop")[-1].read_bytes().splitlines()[-1])
    real_redis.restore(log.key, 0, backups[0], replace=True)
    status, _, error = command(*rotate)
    assert (status, "audit-log restored --files" in error) == (2, True)
    status, printed, _ = command("restored", "--files", folder)
    assert (status, printed.count("put aside: ")) == (0, 2)
    assert AuditLog(log.store).last().details == {"files": 2, "last": lost.number, "hash": lost.hash}
    assert command("verify", "--files", folder)[0] == 0
    assert command("verify", "--files", folder, "--anchor", anchor)[0] == 1
    later(8)
    assert command(*rotate)[0] == 0
    assert command("verify", "--files", folder)[0] == 0
    assert "no file is of a later time" in command("restored", "--files", folder)[1]


def test_files_of_a_broken_log_are_not_deleted(command, folder, real_redis, later):
    """What may be needed to see what happened stays, whatever its age."""
    later(1)
    command("rotate", "--to", folder, "--older-than", 0)
    real_redis.lset("{shop}:audit", 0, b"x")
    later(9)
    status, _, error = command("rotate", "--to", folder, "--older-than", 9, "--retain", 9)
    assert status == 1
    assert "nothing was deleted" in error
    assert len(files(folder, "shop")) == 1


def test_the_command_says_what_is_wrong(command, folder, real_redis):
    """An empty log has no head, a folder that is none cannot be read, and an anchor has its form."""
    Store(real_redis, "blog").divide()
    assert command("head", app="blog")[0] == 1
    assert command("verify", app="blog")[1].startswith("nothing was ever logged of blog")
    assert command("verify", "--files", folder, app="blog")[0] == 0  # before the first rotation there is no folder
    folder.write_text("", "utf-8")
    status, _, error = command("verify", "--files", folder)
    assert (status, "cannot be used" in error) == (2, True)
    for words in (["verify", "--anchor", "3"], ["rotate", "--to", folder, "--older-than", "-1"]):
        with pytest.raises(SystemExit) as caught:
            command(*words)
        assert caught.value.code == 2


def test_a_store_that_is_away_is_said(capsys):
    """Status 3, in a line, and what to do in another."""
    assert main(["audit-log", "--redis-url", "redis://127.0.0.1:1", "--app", "shop", "verify"]) == 3
    assert capsys.readouterr().err.startswith("the store cannot be used: it does not answer\n")
    assert main(["audit-log", "--redis-url", "redis://127.0.0.1:1", "--app", "shop", "--app", "blog", "verify"]) == 2
