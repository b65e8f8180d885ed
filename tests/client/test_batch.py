"""A batch: the same bytes under the same key, from the first attempt to the last, also through a file."""

from __future__ import annotations

import itertools
import json

import pytest

from deniable.errors import PayloadError
from deniable.wire.batch import Batch
from deniable.wire.report import Report, Stratum

FIRST = Stratum("m", 1, "0" * 16, "2026-01-01", "")
KEY = "6f0c2a9e-51b3-4784-9c3e-1234567890ab"
SECOND = Stratum("n", 2, "1" * 16, "2026-01-01", "platform=linux")


def batch(count: int = 5) -> Batch:
    return Batch.of("shop", tuple(Report((FIRST, SECOND)[i % 2], bytes([7 * i % 256, i % 256])) for i in range(count)))


def contents(batch_: Batch) -> list[tuple[Stratum, bytes]]:
    return sorted((report.stratum, report.payload) for report in batch_.reports)


def test_keys_are_random():
    """Two batches of the same reports have different keys, and these are random UUIDs, not of clock and machine."""
    first, second = batch(), batch()
    assert first.body == second.body
    assert first.key != second.key
    assert (first.key.count("-"), first.key[14]) == (4, "4")


def test_written_and_read():
    """What is read back has the same key, bytes, reports and, to the second, time."""
    before = batch()
    after = Batch.read(before.key, before.write())
    assert (after.key, after.body, after.created) == (before.key, before.body, int(before.created))
    assert contents(after) == contents(before)


def test_what_is_written():
    """A written batch has what a retry needs and nothing else."""
    document = json.loads(batch(3).write())
    assert sorted(document) == ["body", "format", "made", "reports"]
    assert document["reports"] == 3


def test_halves_hold_everything():
    """The halves of a batch have its reports, each once, and its time."""
    before = batch(7)
    first, second = before.halves()
    assert [len(half.reports) for half in (first, second)] == [3, 4]
    assert sorted(contents(first) + contents(second)) == contents(before)
    assert first.created == before.created < second.created < before.created + 0.01
    assert len({before.key, first.key, second.key}) == 3


def test_halves_are_the_same_each_time():
    """A batch split again after a restart gives the same bytes under the same keys, so that nothing counts twice."""
    before = batch(9)
    again = Batch.read(before.key, before.write())
    assert [(half.key, half.body) for half in before.halves()] == [(half.key, half.body) for half in again.halves()]


def _changed(**parts) -> bytes:
    return json.dumps(json.loads(batch(2).write()) | parts).encode()


def _group(**parts) -> bytes:
    document = json.loads(batch(1).write())
    body = json.loads(document["body"])
    body["groups"][0] |= parts
    return json.dumps(document | {"body": json.dumps(body)}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        _changed(format=2),
        _changed(made="yesterday"),
        _changed(made=None),
        _changed(made=float("nan")),
        _changed(made=float("inf")),
        _changed(made=10**400),
        _changed(reports=3),
        _changed(reports=0),
        _changed(body=None),
        _changed(body="<html>"),
        _changed(body='{"format":1,"app":"shop","groups":[]}'),
        _group(count=0),
        _group(count=3),
        _group(count="1"),
        _group(payloads="%%"),
        _group(payloads=""),
        _group(version="1"),
        _group(metric=None),
    ],
    ids=itertools.count(),
)
def test_what_is_no_batch(data):
    """Anything else is refused with one kind of error, whose message repeats nothing of it."""
    with pytest.raises(PayloadError, match="a batch holds when it was made") as caught:
        Batch.read(KEY, data)
    assert caught.value.code == "spool_file"
