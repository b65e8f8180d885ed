"""The audit log in the store: appended to by many at once, and whatever is done to it by hand shows."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import redis
from stores import EVERY, fake

from deniable_aggregator.audit.entry import LogEntry, genesis, intact_entry
from deniable_aggregator.audit.files import verify
from deniable_aggregator.audit.log import AuditLog
from deniable_aggregator.audit.verify import Chain
from deniable_aggregator.store import Store, connect, schema
from deniable_aggregator.store.values.collections import StoreCommand

ID = {"id": "3f9c2b7a51e0d486"}


@pytest.fixture(params=EVERY)
def log(request, start_store):
    """Open an app's log on each server in turn."""
    client = fake() if request.param == "fake" else connect(start_store(request.param))
    client.flushall()
    yield AuditLog(Store(client, "shop"))
    client.close()


@pytest.fixture
def ten():
    """Give a log of ten entries, in memory: what is done to a list is the same everywhere."""
    log = AuditLog(Store(fake(), "shop"))
    fill(log, 10)
    return log


def fill(log, count, first=0):
    for number in range(first, first + count):
        assert log.append("key.revoked", "command", {"id": f"{number:016x}"})


def entries(log):
    return [intact_entry(line) for line in log.store._client.lrange(log.key, 0, -1)]


# Appending


def test_entries_make_a_chain(log):
    """Entries are numbered from 1, and each has the hash of the one before it."""
    appended = [log.append("key.created", "command", {"id": f"{i:016x}", "role": "read", "name": "Zoë"}) for i in range(3)]
    assert entries(log) == appended
    assert [entry.number for entry in appended] == [1, 2, 3]
    assert [entry.previous for entry in appended] == [genesis("shop"), appended[0].hash, appended[1].hash]
    assert log.last() == appended[-1]
    verification = verify(log)
    assert (verification.entries, verification.number, verification.hash, verification.faults, verification.notes) == (
        3,
        3,
        appended[-1].hash,
        (),
        (),
    )


def test_like_entries_of_one_second_are_two(log, monkeypatch):
    """The same thing done twice in a second is logged twice, with different hashes."""
    monkeypatch.setattr("time.time", lambda: 1795290000.9)
    one, other = (log.append("query.answered", "open", {"by": "page"}) for _ in range(2))
    assert one.time == other.time == 1795290000
    assert one.hash != other.hash


def test_what_another_process_appended_is_followed(log):
    """Who has an old end in mind goes on from the new one."""
    other = AuditLog(log.store)
    for writer in (log, other, other, other, log, log, other):
        fill(writer, 1)
    assert verify(log).entries == 7
    assert not verify(log).faults


def test_a_command_is_done_with_its_entry_or_not_at_all(log):
    """What changes nothing is not logged; what is logged is done."""
    keys = log.store.table(schema.KEYS)
    assert log.append("key.created", "command", ID, change=keys.adding("a", "x"))
    assert log.append("key.revoked", "command", ID, change=keys.dropping("b")) is None
    assert keys.all() == {b"a": b"x"}
    assert log.append("key.revoked", "command", ID, change=keys.dropping("a"))
    assert keys.all() == {}
    assert [entry.event for entry in entries(log)] == ["key.created", "key.revoked"]
    assert log.append("registry.served", "server", {}, change=StoreCommand(keys.key, "SET", ("x", "NX")))
    assert log.append("registry.served", "server", {}, change=StoreCommand(keys.key, "SET", ("y", "NX"))) is None
    with pytest.raises(redis.RedisError):
        log.append("key.revoked", "command", ID, change=keys.dropping("a"))  # of the wrong type by now
    assert verify(log).entries == 3


def test_an_answer_that_was_lost_appends_once(log):
    """A script that was sent twice, because its first answer did not arrive, leaves one entry."""
    fill(log, 1)

    def twice(seen, line):
        log._append([log.key], [seen, line])
        return log._append([log.key], [seen, line])

    assert log.append("key.revoked", "command", ID, along=twice).number == 2
    fill(log, 1)
    assert [entry.number for entry in entries(log)] == [1, 2, 3]


def test_nothing_is_appended_when_it_is_not_to_be(log):
    """Whether an entry is still wanted is asked before each try, after others were let in."""
    other = AuditLog(log.store)
    fill(log, 1)
    fill(other, 1)
    calls = []
    assert log.append("key.revoked", "command", ID, unless=lambda: bool(calls.append(1) or len(calls) > 1)) is None
    assert len(calls) == 2
    assert log.store._client.llen(log.key) == 2


def test_who_cannot_be_appended_fails(log):
    """An entry that is never the next one is an error of the store in the end, not a wait without one."""
    with pytest.raises(redis.RedisError, match="shop"):
        log.append("key.revoked", "command", ID, along=lambda _seen, _line: [])


def test_the_chain_goes_on_after_what_is_no_entry(log):
    """Something that somebody else put at the end is told of, and keeps nobody from logging."""
    fill(log, 3)
    log.store._client.rpush(log.key, *[f"foreign {i}" for i in range(2000)])
    fill(AuditLog(log.store), 2)
    fill(log, 2)
    verification = verify(log)
    assert verification.number == 7
    assert [fault.where for fault in verification.faults] == [f"store:{place}" for place in range(4, 2004)]


def test_a_log_that_begins_with_what_is_no_entry_begins_all_the_same(log):
    """Where nothing but foreign lines is, the first entry is number 1."""
    log.store._client.rpush(log.key, "foreign")
    fill(log, 1)
    assert entries(log)[1].number == 1
    assert [fault.where for fault in verify(log).faults] == ["store:1"]


def test_many_entries_are_read_in_pages(ten):
    """A log longer than a page is read whole."""
    fill(ten, 2040, 10)
    assert verify(ten).entries == 2050


# What is done to it by hand


def rewritten(entry, **changes):
    return replace(entry, **changes).line


def rechained(log, place, **changes):
    """Write entries anew from a place on, as somebody would who can hash."""
    chain = entries(log)
    chain[place] = replace(chain[place], **changes)
    for later in range(place + 1, len(chain)):
        chain[later] = replace(chain[later], previous=chain[later - 1].hash)
    log.store._client.delete(log.key)
    log.store._client.rpush(log.key, *(entry.line for entry in chain))


def edit(place, **changes):
    """StoreCommand members of an entry and leave its hash."""

    def tamper(log):
        line = log.store._client.lindex(log.key, place)
        log.store._client.lset(log.key, place, json.dumps(json.loads(line) | changes, separators=(",", ":")))

    return tamper


def put(place, line):
    return lambda log: log.store._client.lset(log.key, place, line)


def remove(*places):
    def tamper(log):
        for place in places:
            log.store._client.lset(log.key, place, "gone")
        log.store._client.lrem(log.key, 0, "gone")

    return tamper


def order(*places):
    def tamper(log):
        lines = log.store._client.lrange(log.key, 0, -1)
        log.store._client.delete(log.key)
        log.store._client.rpush(log.key, *(lines[place] for place in places))

    return tamper


def insert(place, make):
    def tamper(log):
        pivot = log.store._client.lindex(log.key, place)
        log.store._client.linsert(log.key, "before", pivot, make(entries(log)))

    return tamper


def honestly(place, **changes):
    """Write one entry anew, with the hash that it then has."""
    return lambda log: log.store._client.lset(log.key, place, rewritten(entries(log)[place], **changes))


def of_another_app(log):
    other = AuditLog(Store(log.store._client, "blog"))
    fill(other, 10)
    log.store._client.delete(log.key)
    log.store._client.rpush(log.key, *other.store._client.lrange(other.key, 0, -1))


LIKE = {"event": "key.revoked", "actor": "command", "details": ID, "nonce": "0" * 16}

TAMPERED = {
    "a detail": (edit(4, details={"id": "another"}), "store:5: entry 5 was changed"),
    "an event": (edit(4, event="key.created"), "store:5: entry 5 was changed"),
    "an actor": (edit(4, actor="worker"), "store:5: entry 5 was changed"),
    "a time": (edit(4, time="2020-01-01T00:00:00Z"), "store:5: entry 5 was changed"),
    "a nonce": (edit(4, nonce="0" * 16), "store:5: entry 5 was changed"),
    "a number": (edit(4, number=99), "store:5: entry 5 was changed"),
    "a previous hash": (edit(4, previous="0" * 64), "store:5: entry 5 was changed"),
    "a hash": (edit(4, hash="0" * 64), "store:5: entry 5 was changed"),
    "a hash that is none": (edit(4, hash=5), "store:5: this is no entry"),
    "a member more": (edit(4, more="x"), "store:5: this is no entry"),
    "an unknown event": (edit(4, event="key.lost"), "store:5: this is no entry"),
    "the first": (edit(0, actor="worker"), "store:1: entry 1 was changed"),
    "the last": (edit(9, actor="worker"), "store:10: entry 10 was changed"),
    "garbage": (put(4, b"\xff\x00"), "store:5: this is no entry"),
    "nothing": (put(4, b""), "store:5: this is no entry"),
    "its own hash, too": (honestly(4, actor="worker"), "store:6: entry 6 was made after another entry 5"),
    "a gap": (remove(4), "store:5: entry 5 is missing: entry 6 stands after entry 4"),
    "a wide gap": (remove(4, 5, 6), "store:5: entries 5 to 7 are missing: entry 8 stands after entry 4"),
    "two swapped": (order(0, 1, 2, 4, 3, 5, 6, 7, 8, 9), "store:4: entry 4 is missing: entry 5 stands after entry 3"),
    "one moved back": (order(0, 2, 3, 4, 5, 1, 6, 7, 8, 9), "store:2: entry 2 is missing"),
    "one repeated": (order(0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9), "store:5: entry 4 stands after entry 4"),
    "all backwards": (order(*range(9, -1, -1)), "store:1: the log begins with entry 10"),
    "the front cut": (lambda log: log.store._client.ltrim(log.key, 3, -1), "store:1: the log begins with entry 4"),
    "one put in": (
        insert(4, lambda all_: LogEntry(5, all_[3].time, previous=all_[3].hash, **LIKE).line),
        "store:6: entry 5 stands after entry 5",
    ),
    "one put in with the next number": (
        insert(4, lambda all_: LogEntry(11, all_[3].time, previous=all_[3].hash, **LIKE).line),
        "store:5: entries 5 to 10 are missing: entry 11 stands after entry 4",
    ),
    "one put at the end": (
        lambda log: log.store._client.rpush(log.key, LogEntry(11, 1, previous="0" * 64, **LIKE).line),
        "store:11: entry 11 was made after another entry 10",
    ),
    "something put at the front": (lambda log: log.store._client.lpush(log.key, "x"), "store:1: this is no entry"),
    "a false beginning": (lambda log: rechained(log, 0, previous="0" * 64), "store:1: entry 1 is not the first one of a log"),
    "another app's": (of_another_app, "store:1: entry 1 is not the first one of a log of shop"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_what_was_done_by_hand_is_found_where_it_was_done(log, what):
    """The first fault is the very place, on every server."""
    fill(log, 10)
    tamper, fault = TAMPERED[what]
    tamper(log)
    assert str(verify(log).faults[0]).startswith(fault)


ENDS = {
    "the end cut": lambda log: log.store._client.ltrim(log.key, 0, 5),
    "the last one cut": lambda log: log.store._client.rpop(log.key),
    "all removed": lambda log: log.store._client.delete(log.key),
    "all removed and begun anew": lambda log: (log.store._client.delete(log.key), fill(AuditLog(log.store), 3)),
    "the last one written anew": honestly(9, actor="worker"),
    "written anew from the middle": lambda log: rechained(log, 4, actor="worker"),
    "written anew from the first": lambda log: rechained(log, 0, actor="worker"),
    "begun anew and filled up": lambda log: (log.store._client.delete(log.key), fill(AuditLog(log.store), 12)),
}


@pytest.mark.parametrize("what", ENDS)
def test_an_anchor_shows_what_the_chain_cannot(ten, what):
    """An end that was cut off, or written anew with all hashes, shows against an anchor, and only against one."""
    last = ten.last()
    ENDS[what](ten)
    assert not verify(ten).faults
    (fault,) = verify(ten, anchors={last.number: last.hash}).faults
    assert "anchor" in fault.what


def test_anchors_of_a_whole_log_are_met(ten):
    """Any entry is an anchor, and more entries may have come since."""
    anchors = {entry.number: entry.hash for entry in entries(ten)}
    fill(ten, 3, 10)
    assert not verify(ten, anchors=anchors).faults


def test_every_byte_counts(ten):
    """Whatever byte of a line is changed, or left out, the first fault is at this line, and no fault is before it."""
    lines = ten.store._client.lrange(ten.key, 0, -1)
    line = lines[4]
    for place in range(len(line)):
        for other in (line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :], line[:place] + line[place + 1 :]):
            chain = Chain("shop")
            chain.add("store", [*lines[:4], other, *lines[5:]])
            chain.finish(with_files=True)
            assert chain.faults[0].where == "store:5", other


def test_an_edit_in_its_place_is_one_fault(ten):
    """What stands around a changed entry is whole, and so it is said."""
    edit(4, actor="worker")(ten)
    assert len(verify(ten).faults) == 1


def test_every_fault_is_told(ten):
    """An old break does not hide a new one."""
    edit(2, actor="worker")(ten)
    remove(7)(ten)
    assert [fault.where for fault in verify(ten).faults] == ["store:3", "store:8"]
