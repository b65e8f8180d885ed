"""Commits and releases that are too large for one script: in pieces, exactly once whoever dies between any two of them."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from hashlib import sha1
from itertools import count

import numpy as np
import pytest
from redis import ConnectionError, RedisError  # noqa: A004 - as the store raises it
from redis.connection import AbstractConnection

from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator import tally
from deniable_aggregator.counting.counter import WorkerSettings
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.store import GROUP, Store, Upload, Weights, connect
from deniable_aggregator.store.sums import deltas, staging, tallies
from deniable_aggregator.store.uploads import batch
from deniable_aggregator.store.uploads.batch import Group
from deniable_aggregator.tally import set_bits

pytestmark = pytest.mark.both_stores

BITS, INDEX = Layout(3, 20, "bits"), Layout(1, 5, "index")
ONE = Stratum("one", 1, "f" * 16, "2026-11-21", "")
TWO = Stratum("two", 1, "e" * 16, "2026-11-21", "platform=linux")
HOUR = 3600


@pytest.fixture
def shop(real_redis, monkeypatch):
    """Open an app's store in which nearly every commit is made in pieces."""
    monkeypatch.setattr(deltas, "AT_ONCE", 5)
    monkeypatch.setattr(deltas, "_PIECE", 16)
    return Store(real_redis, "shop")


def reports(number):
    """Make reports with bits."""
    rng = np.random.default_rng(number)
    return b"".join(bytes([rng.integers(3)]) + int(rng.integers(1 << 20)).to_bytes(3, "little") for _ in range(4))


def send(shop, number):
    groups = [Group(ONE, BITS, reports(number)), Group(TWO, INDEX, b"\1\4")]
    body = batch.encode(groups)
    assert shop.append(Upload(body, key=str(number), remember=b"-", cap=1000, ttl=60)).outcome == "appended"


def expected(number):
    return tally.count(BITS, b"".join(map(reports, range(number)))), set_bits.count(BITS, b"".join(map(reports, range(number))))


def assert_counted(shop, number):
    """See that so many uploads are counted, each once, and that nothing is left."""
    bits, weighed = expected(number)
    assert shop.read(BITS, [ONE]) == bits
    assert shop.read_weights(BITS, [ONE]).tolist() == weighed.tolist()
    assert shop.read(INDEX, [TWO]).counts.tolist() == [[0, number, 0, 0, number]]
    assert (shop.backlog(), shop.settled() is not None) == (0, True)
    assert list(shop._client.scan_iter("*:staged:*")) == []


def recover(shop):
    Worker([shop], WorkerSettings(batch=3, min_idle_ms=1, claim_every=0.0)).run(threading.Event(), burst=True)


def test_a_large_commit_is_made_in_pieces(shop, real_redis):
    """It adds what it would have added at once, and its strata are listed."""
    for number in range(10):
        send(shop, number)
    recover(shop)
    assert_counted(shop, 10)
    assert shop.settled() >= 4
    assert shop.strata("one")[ONE] % HOUR == 0
    last = {sha1(metric).hexdigest().encode() for metric in (b"one", b"two")}
    assert real_redis.hgetall("{shop}:redo").keys() == {b"decided", b"done", *last}
    assert (shop.settled("one") > 0, shop.settled("three")) == (True, 0)


class Died(BaseException):
    """The process is no more."""


@pytest.mark.parametrize("heard", [False, True])
@pytest.mark.slow("dies at each point in turn")
def test_whoever_dies_between_any_two_pieces_another_goes_on(shop, store_url, monkeypatch, heard):
    """Dead at each answer of the store in turn, before or after hearing it: everything is counted once in the end."""
    at = 0
    died = True
    while died:
        at += 1
        shop._client.flushall()
        for number in range(3):
            send(shop, number)
        shop.partitions[0].join()
        doomed = Store(connect(store_url), "shop")
        (counter,) = Worker([doomed], WorkerSettings(batch=3)).look()
        counter.join(threading.Event())
        (partition,) = doomed.partitions
        entries = counter._read(block=False)[partition.stream]
        with monkeypatch.context() as patch:
            patch.setattr(AbstractConnection, "read_response", deadly(at, heard))
            try:
                counter._settle(partition, entries, threading.Event())
                died = False
            except Died:
                pass
        doomed._client.close()
        time.sleep(0.005)
        recover(shop)
        for key in shop._client.scan_iter("*:staged:*"):  # what was not decided yet goes by itself
            assert 0 < shop._client.ttl(key) <= HOUR
            shop._client.delete(key)
        assert_counted(shop, 3)
    assert at > 40


@pytest.mark.slow("loses each answer in turn")
def test_an_answer_that_is_lost_loses_no_report(shop, store_url, monkeypatch):
    """A worker that loses an answer of the store, each in turn, and sends again, counts everything once in the end."""
    read, at, answered = AbstractConnection.read_response, 0, True
    while answered:
        at += 1
        shop._client.flushall()
        for number in range(3):
            send(shop, number)
        shop.partitions[0].join()
        hasty, answers = Store(connect(store_url), "shop"), count(1)
        (counter,) = Worker([hasty], WorkerSettings(batch=3)).look()
        counter.join(threading.Event())
        (partition,) = hasty.partitions
        entries = counter._read(block=False)[partition.stream]

        def lossy(self, *arguments, at=at, answers=answers, **options):
            mine = next(answers) == at
            answer = read(self, *arguments, **options)
            if mine:
                self.disconnect()
                raise ConnectionError("the answer is lost")
            return answer

        with monkeypatch.context() as patch:
            patch.setattr(AbstractConnection, "read_response", lossy)
            counter._settle(partition, entries, threading.Event())
        answered = next(answers) > at
        hasty._client.close()
        time.sleep(0.005)
        recover(shop)
        for key in shop._client.scan_iter("*:staged:*"):
            assert 0 < shop._client.ttl(key) <= HOUR
            shop._client.delete(key)
        assert_counted(shop, 3)
    assert at > 40


def deadly(at, heard):
    """Make what reads answers, and dies at one of them."""
    read, answers = AbstractConnection.read_response, count(1)

    def read_response(self, *arguments, **options):
        if next(answers) != at:
            return read(self, *arguments, **options)
        if heard:
            with suppress(RedisError):
                read(self, *arguments, **options)
        self.disconnect()
        raise Died

    return read_response


def test_what_was_taken_over_meanwhile_is_not_decided(shop):
    """Where another worker took over an entry nothing is written, and nothing stays staged."""
    send(shop, 0)
    shop.partitions[0].join()
    ((_, ((id_, _),)),) = shop._client.xreadgroup(GROUP, "slow", {shop.partitions[0].stream: ">"})
    shop._client.xclaim(shop.partitions[0].stream, GROUP, "quick", 0, [id_])
    added = {ONE: expected(1)[0].cells, Weights(ONE): expected(1)[1]}
    assert shop.partitions[0].commit("slow", [id_], added, 0) == [id_]
    assert shop.strata("one") == {}
    assert list(shop._client.scan_iter("*:staged:*")) == []
    assert shop.settled() == 0


def test_pieces_that_are_gone_are_staged_again(shop, monkeypatch):
    """Where not all pieces are there nothing is decided: they are staged anew."""
    send(shop, 0)
    shop.partitions[0].join()
    ((_, ((id_, _),)),) = shop._client.xreadgroup(GROUP, "w", {shop.partitions[0].stream: ">"})
    decide, lost = shop.partitions[0].staging._decide, [True]

    def lossy(keys, args):
        if lost.pop():
            shop._client.lpop(keys[2], 2)
            lost.append(False)
        return decide(keys, args)

    monkeypatch.setattr(shop.partitions[0].staging, "_decide", lossy)
    assert shop.partitions[0].commit("w", [id_], {ONE: expected(1)[0].cells}, 0) == []
    assert shop.read(BITS, [ONE]) == expected(1)[0]
    assert list(shop._client.scan_iter("*:staged:*")) == []


def test_a_piece_is_added_where_its_own_header_says(shop, store_url, monkeypatch):
    """Two workers add: one reads how a piece begins, the other one adds it, and then the first one goes on."""
    other = Store(connect(store_url), "shop")
    monkeypatch.setattr(deltas, "_PIECE", 64)
    cells = np.arange(1, 257)
    apply, lindex, quick = shop.partitions[0].staging.apply, shop._client.lindex, []
    monkeypatch.setattr(shop.partitions[0].staging, "apply", lambda: None)
    assert shop.partitions[0].commit("w", [], {ONE: cells}, 0) == []
    token = shop._client.hget("{shop}:redo", "1").decode()

    def overtaken(*arguments):
        answer = lindex(*arguments)
        if len(quick) < 3:
            quick.append(answer)
            other.partitions[0].staging._add(1, token)
        return answer

    monkeypatch.setattr(shop._client, "lindex", overtaken)
    apply()
    other._client.close()
    assert len(set(quick)) == 3
    assert shop.read(Layout(1, 256, "index"), [ONE]).cells.tolist() == cells.tolist()
    assert shop.settled() == 1


def test_pieces_of_what_was_erased_are_dropped(shop, monkeypatch):
    """A metric that is erased between the decision and the adding stays erased; the rest is added."""
    send(shop, 0)
    shop.partitions[0].join()
    ((_, ((id_, _),)),) = shop._client.xreadgroup(GROUP, "w", {shop.partitions[0].stream: ">"})
    apply = shop.partitions[0].staging.apply
    monkeypatch.setattr(shop.partitions[0].staging, "apply", lambda: None)
    added = {ONE: expected(1)[0].cells, TWO: np.array([0, 1, 0, 0, 1])}
    assert shop.partitions[0].commit("w", [id_], added, 0) == []
    assert shop.settled() is None
    shop.erased.put({sha1(b"one").hexdigest(): 1})
    apply()
    assert shop.strata("one") == {}
    assert not shop._client.exists(shop.partitions[0].tallies.key(tallies.name(ONE)))
    assert shop.read(INDEX, [TWO]).n == 2
    assert shop.settled() == 1


def test_a_full_store_adds_the_rest_when_it_has_room(shop):
    """What was decided counts; a store without room adds nothing in part, and a worker goes on with it later."""
    send(shop, 0)
    shop.partitions[0].join()
    ((_, ((id_, _),)),) = shop._client.xreadgroup(GROUP, "w", {shop.partitions[0].stream: ">"})
    decide = shop.partitions[0].staging._decide

    def full_after(keys, args):
        outcome = decide(keys, args)
        shop._client.config_set("maxmemory", 1)
        return outcome

    shop.partitions[0].staging._decide = full_after
    added = {ONE: expected(1)[0].cells, Weights(ONE): expected(1)[1], TWO: np.array([0, 1, 0, 0, 1])}
    try:
        assert shop.partitions[0].commit("w", [id_], added, 0) == []
        assert shop.settled() is None
    finally:
        shop._client.config_set("maxmemory", 0)
    recover(shop)
    assert_counted(shop, 1)


def test_strings_are_staged_whole_and_leave_nothing(shop):
    """A string of several chunks arrives as it was; what is not moved goes."""
    value = np.random.default_rng(1).bytes((5 << 19) + 3)
    shop.staging.replace("{shop}:snapshot:x", value)
    assert shop._client.get("{shop}:snapshot:x") == value
    assert shop._client.ttl("{shop}:snapshot:x") == -1
    with shop.staging.strings([value, b"x"]) as keys:
        assert shop._client.mget(keys) == [value, b"x"]
        assert 0 < shop._client.ttl(keys[0]) <= HOUR
    assert list(shop._client.scan_iter("*:staged:*")) == []


@pytest.mark.parametrize("heard", [False, True])
def test_a_worker_that_dies_while_it_replaces_leaves_nothing_for_long(shop, monkeypatch, heard):
    """Dead at each answer in turn, and tidying up nothing: what is staged goes by itself, and the key has all or nothing."""
    monkeypatch.setattr(staging, "CHUNK", 4)
    monkeypatch.setattr(shop._client, "delete", lambda *_: None)
    at, died = 0, True
    while died:
        at += 1
        shop._client.flushall()
        with monkeypatch.context() as patch:
            patch.setattr(AbstractConnection, "read_response", deadly(at, heard))
            try:
                shop.staging.replace("{shop}:snapshot:x", b"12345678")
                died = False
            except Died:
                pass
        assert all(shop._client.ttl(key) > 0 for key in shop._client.scan_iter("*:staged:*"))
        assert shop._client.get("{shop}:snapshot:x") in (None, b"12345678")
    assert shop._client.get("{shop}:snapshot:x") == b"12345678"
    assert shop._client.ttl("{shop}:snapshot:x") == -1
    assert at > 3


def test_a_string_that_was_lost_in_part_replaces_nothing(shop, monkeypatch):
    """Where the store forgot the beginning, by a failover for instance, the key stays as it was."""
    monkeypatch.setattr(staging, "CHUNK", 4)
    shop.staging.replace("{shop}:snapshot:x", b"12345678")
    stage = shop.staging._stage

    def lossy(keys, args):
        stage(keys, args)
        if args[2] == 0:
            shop._client.delete(*keys)

    monkeypatch.setattr(shop.staging, "_stage", lossy)
    shop.staging.replace("{shop}:snapshot:x", b"abcdefgh")
    assert shop._client.get("{shop}:snapshot:x") == b"12345678"


@pytest.mark.parametrize(
    ("cells", "most"), [([(1 << 22) - 5], 1), (range(0, 1 << 22, 83), 200), (range(1 << 16), 10), (range(10), 0)]
)
def test_no_piece_is_large(cells, most):
    """Whatever a delta is, its pieces together are it, and none takes long."""
    delta = np.zeros(1 << 22, np.int64)
    delta[list(cells)] = 3
    pieces = list(deltas.pieces({ONE: delta}, 0))
    total = np.zeros_like(delta)
    for piece in pieces:
        if piece.first == "":
            additions = np.frombuffer(piece.deltas, ">i4").reshape(-1, 2)
            total[additions[:, 0]] += additions[:, 1]
            assert deltas._NAMED * len(additions) <= deltas._PIECE
        else:
            chunk = tallies.cells(piece.deltas)
            total[piece.first : piece.first + len(chunk)] += chunk
            assert len(chunk) <= deltas._PIECE
    assert (total == delta).all()
    assert len(pieces) <= most + 10
