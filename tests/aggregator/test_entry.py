"""Entries of the audit log: written in one way only, and hashed whole."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deniable.errors import ParameterError
from deniable_aggregator.audit.entry import EVENTS, LogEntry, genesis, intact_entry, read

ENTRY = LogEntry(7, 1795289999, "key.revoked", "command", {"id": "3f9c2b7a51e0d486"}, "0" * 16, "a" * 64)

texts = st.text(max_size=20).filter(str.isprintable)
numbers = st.integers(-(2**53), 2**53)


@st.composite
def entries(draw):
    event = draw(st.sampled_from(sorted(EVENTS)))
    members = draw(st.sets(st.sampled_from(sorted(EVENTS[event]))))
    return LogEntry(
        draw(st.integers(1, 2**53)),
        draw(st.integers(0, 253402300799)),
        event,
        draw(st.sampled_from(["key:0123456789abcdef", "open", "server", "worker", "command"])),
        {member: draw(texts | numbers) for member in members},
        draw(st.text("0123456789abcdef", min_size=16, max_size=16)),
        draw(st.text("0123456789abcdef", min_size=64, max_size=64)),
    )


@given(entries())
@settings(max_examples=50)
def test_an_entry_is_read_as_it_was_written(entry):
    """Nothing is lost or changed by writing and reading, and no line holds a line end."""
    assert intact_entry(entry.line) == entry
    assert read(entry.line) == (entry, entry.hash)
    assert b"\n" not in entry.line


@given(entries(), entries())
@settings(max_examples=50)
def test_different_entries_are_hashed_from_different_bytes(one, other):
    """Two entries that differ in anything have neither the same bytes nor the same hash."""
    assume(one != other)
    assert one.line != other.line
    assert one.hash != other.hash


@given(entries(), st.data())
@settings(max_examples=50)
def test_entries_that_differ_in_one_member_are_hashed_from_different_bytes(entry, data):
    """Whatever one member is changed to, the bytes that are hashed change."""
    member = data.draw(st.sampled_from(["number", "time", "event", "actor", "details", "nonce", "previous"]))
    value = getattr(data.draw(entries()), member)
    assume(value != getattr(entry, member))
    if member == "event":
        assume(entry.details.keys() <= EVENTS[value])
    if member == "details":
        assume(value.keys() <= EVENTS[entry.event])
    changed = replace(entry, **{member: value})
    assert changed.line != entry.line
    assert changed.hash != entry.hash


leaves = st.none() | st.booleans() | st.floats() | st.text(max_size=5)
documents = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=6)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode) | documents.map(lambda value: json.dumps(value).encode()))
def test_whatever_is_no_entry_is_none(line):
    """Any other bytes are no entry, and none of them fails otherwise."""
    assert read(line) is None


@pytest.mark.parametrize(
    "change",
    [
        {"number": 0},
        {"number": True},
        {"number": 7.0},
        {"number": 2**53 + 1},
        {"time": -1},
        {"time": 253402300800},
        {"time": 1.5},
        {"event": "key.lost"},
        {"event": ["key.revoked"]},
        {"actor": "203.0.113.7"},
        {"actor": "key:0123456789abcdef\n"},
        {"actor": None},
        {"details": {"address": "203.0.113.7"}},
        {"details": {"id": 1.5}},
        {"details": {"id": True}},
        {"details": {"id": None}},
        {"details": {"id": ["x"]}},
        {"details": {"id": "two\nlines"}},
        {"details": {"id": "x" * 1001}},
        {"details": {"id": "\ud83d"}},
        {"details": {"id": 2**53 + 1}},
        {"details": None},
        {"nonce": "0" * 15},
        {"nonce": "G" * 16},
        {"previous": "a" * 63},
        {"previous": "A" * 64},
    ],
)
def test_what_is_no_member_is_refused(change):
    """Only listed events with listed members, texts that can be printed and whole numbers make an entry."""
    with pytest.raises(ParameterError):
        replace(ENTRY, **change)


def test_a_refused_text_is_not_repeated():
    """The message of a detail that is refused has its kind, not what it was."""
    with pytest.raises(ParameterError) as caught:
        replace(ENTRY, details={"id": "secret\n"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"number":7', b'"number":8'),
        (b'"number":7', b'"number": 7'),
        (b'"number":7', b'"number":7,"number":7'),
        (b"T19:39:59Z", b"T19:39:58Z"),
        (b"T19:39:59Z", b"T19:39:59+00:00"),
        (b"T19:39:59Z", b"T19:39:59.5Z"),
        (b"key.revoked", b"query.answered"),
        (b'"command"', b'"worker"'),
        (b"3f9c", b"3f9d"),
        (b"3f9c", b"\\u0033f9c"),
        (b'"details":{', b'"details":{"role":"read",'),
        (b'"nonce":"0', b'"nonce":"1'),
        (b'"previous":"a', b'"previous":"b'),
        (b'"hash":"', b'"hash":"0'),
        (b'"}', b'"} '),
        (b"{", b" {"),
    ],
)
def test_a_line_that_was_edited_is_not_whole(old, new):
    """An edit shows, also one that says the same in another way."""
    line = ENTRY.line.replace(old, new, 1)
    assert line != ENTRY.line
    assert intact_entry(line) is None


def test_every_event_is_documented():
    """Each event, and each member that its details may have, stands in docs/reference/audit-log.md."""
    text = (Path(__file__).parents[2] / "docs" / "reference" / "audit-log.md").read_text("utf-8")
    for event, members in EVENTS.items():
        for word in (event, *members):
            assert f"`{word}`" in text, word


def test_apps_begin_with_different_hashes():
    """The first entry of one app does not fit into the log of another."""
    assert genesis("shop") != genesis("blog")
    assert len(genesis("shop")) == 64


def test_the_hash_is_what_the_documentation_says():
    """Anybody can compute the hash from the line: SHA-256 of a first line and the entry without its last member."""
    body = ENTRY.line[: ENTRY.line.rindex(b',"hash"')] + b"}"
    assert sha256(b"deniable audit 1\n" + body).hexdigest() == ENTRY.hash == json.loads(ENTRY.line)["hash"]
