"""Pools of a relay: whole or not at all, each report once, whatever dies when."""

from __future__ import annotations

import sqlite3
from collections import Counter
from hashlib import sha256
from itertools import pairwise
from threading import Semaphore, Thread
from time import monotonic, sleep

import pytest
from relays import FIRST, LAST, crowd, sealed

from deniable_relay.pools import PART, Pools


def forward(pools):
    """Take all parts that are ready, as a server does; return their reports."""
    reports = []
    while parts := pools.parts():
        for part in parts:
            reports += part.reports
            pools.settle(part)
    return reports


@pytest.fixture
def file(tmp_path):
    return tmp_path / "pools.db"


@pytest.fixture
def pools(file):
    pools = Pools(file)
    yield pools
    pools.close()


def test_a_pool_goes_as_a_whole_after_its_time(pools):
    """Not before the time, in the order of digests, in parts that share a random name and say the size of the pool."""
    reports = sealed(PART + 7)
    pools.add([(crowd(), reports)])
    pools.close_due(FIRST - 1)
    assert pools.parts() == []
    pools.close_due(FIRST)
    (part,) = pools.parts()
    assert part.size == PART + 7
    assert len(part.reports) == PART
    pools.settle(part)
    (second,) = pools.parts()
    assert second.size == PART + 7
    assert [name.partition(".")[0] for name in (part.name, second.name)] == [part.name.partition(".")[0]] * 2
    assert part.name != second.name
    assert [*part.reports, *second.reports] == sorted(reports, key=lambda report: sha256(report).digest())


def test_a_part_is_the_same_until_it_is_settled(file):
    """Also after a restart, and while other reports come; settled twice, it counts once."""
    pools = Pools(file)
    pools.add([(crowd(), sealed(5))])
    pools.close_due(FIRST)
    (part,) = pools.parts()
    pools.add([(crowd(), sealed(50))])
    pools.close()
    pools = Pools(file)
    assert pools.parts() == [part]
    pools.settle(part)
    pools.settle(part)
    assert pools.totals() == Counter(forwarded=5, waiting=50)
    pools.close()


def test_no_pool_is_smaller_than_a_crowd(pools):
    """What is too small waits for the last time, and is dropped then, and counted."""
    pools.add([(crowd("few"), sealed(2)), (crowd("many"), sealed(3))])
    pools.close_due(FIRST)
    assert [part.stratum.metric for part in pools.parts()] == ["many"]
    forward(pools)
    pools.add([(crowd("many"), sealed(2))])  # later ones are a crowd by themselves, or nothing
    pools.close_due(LAST)
    assert pools.parts() == []
    assert pools.totals() == Counter(forwarded=3, too_few=4)


def test_a_larger_minimum_holds_at_once(pools):
    """An operator may raise it, and never lower it."""
    pools.add([(crowd(least=3), sealed(3))])
    pools.add([(crowd(least=5), sealed(1))])
    pools.add([(crowd(least=2), sealed(0))])
    pools.close_due(FIRST)
    assert pools.parts() == []
    pools.add([(crowd(least=2), sealed(1))])
    pools.close_due(LAST)
    assert len(forward(pools)) == 5


def test_a_report_that_comes_again_counts_once(pools):
    """Before its pool goes, after it went, and under any other upload."""
    reports = sealed(4)
    pools.add([(crowd(), reports)])
    pools.add([(crowd(), reports[:2]), (crowd(), reports[2:])])
    pools.close_due(FIRST)
    assert sorted(forward(pools)) == sorted(reports)
    pools.add([(crowd(), reports)])
    pools.add([(crowd(), sealed(3))])
    pools.close_due(LAST)
    assert len(forward(pools)) == 3


def test_what_comes_after_the_last_time_is_not_lost(pools):
    """An upload that was checked just before it: forwarded if it is a crowd, else counted as too few."""
    pools.add([(crowd(), sealed(3))])
    pools.close_due(LAST)
    pools.add([(crowd(), sealed(3))])
    pools.close_due(LAST + 1)
    assert len(forward(pools)) == 6
    pools.close_due(LAST + 2)
    pools.add([(crowd(), sealed(1))])
    pools.close_due(LAST + 3)
    assert pools.totals() == Counter(forwarded=6, too_few=1)


def test_nothing_of_a_pool_that_is_over_stays(pools, file):
    """Neither reports nor digests, in no file; and bodies go as soon as the server has them."""
    reports = sealed(40)
    pools.add([(crowd(), reports)])
    pools.close_due(FIRST)
    forward(pools)
    assert not any(report[8:24] in file.read_bytes() for report in reports)
    assert all(sha256(report).digest()[:16] in file.read_bytes() for report in reports)
    pools.close_due(LAST)
    pools.close_due(LAST + 1)
    content = b"".join(each.read_bytes() for each in file.parent.iterdir())
    assert not any(sha256(report).digest()[:16] in content for report in reports)
    assert b"theme" not in content


def test_no_file_has_the_order_of_arrival(pools, file):
    """The journal is empty after each commit, and one commit has its reports in the order of digests."""
    reports = sealed(60)
    pools.add([(crowd(), reports)])
    assert all(each.stat().st_size == 0 for each in file.parent.iterdir() if each != file)
    content = file.read_bytes()
    places = [content.index(report) for report in sorted(reports, key=lambda report: sha256(report).digest())]
    # SQLite fills a page from its end. So places fall within each page, and say nothing beyond the digests.
    within = [pair for pair in pairwise(places) if pair[0] // 4096 == pair[1] // 4096]
    assert all(one > other for one, other in within) or all(one < other for one, other in within)


def test_many_threads_share_one_commit(pools):
    """Each upload is answered once it is durable, and all are there."""
    reports = [sealed(2) for _ in range(60)]
    threads = [Thread(target=pools.add, args=([(crowd(), each)],)) for each in reports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pools.close_due(FIRST)
    assert sorted(forward(pools)) == sorted(report for each in reports for report in each)


def test_an_upload_that_is_durable_does_not_wait_for_the_next_commit(pools, monkeypatch):
    """One thread writes for all that wait, and hands over to the first that came meanwhile. So commits are large."""
    begun, gate, transaction = Semaphore(0), Semaphore(0), pools._transaction

    def gated():
        begun.release()
        gate.acquire()
        return transaction()

    def start(number):
        threads = [Thread(target=pools.add, args=([(crowd(), sealed(1))],), daemon=True) for _ in range(number)]
        for thread in threads:
            thread.start()
        return threads

    def starts_to_wait(number):
        threads, deadline = start(number), monotonic() + 60
        while len(pools._waiting) < number and monotonic() < deadline:
            sleep(0.001)
        assert len(pools._waiting) == number
        return threads

    monkeypatch.setattr(pools, "_transaction", gated)
    first = start(1)
    assert begun.acquire(timeout=60)
    second = starts_to_wait(10)
    gate.release()
    assert begun.acquire(timeout=60)
    third = starts_to_wait(10)
    gate.release()
    assert begun.acquire(timeout=60)  # the third commit is on, and waits for its disk
    deadline = monotonic() + 60
    for thread in (*first, *second):
        thread.join(max(0.0, deadline - monotonic()))
    assert not any(thread.is_alive() for thread in (*first, *second))
    gate.release()
    for thread in third:
        thread.join(60)
    assert pools.totals() == {"waiting": 21}
    assert not begun.acquire(blocking=False)


def test_who_has_another_key_is_in_another_crowd(pools):
    """The server sees to which key a report was sealed. Few who have one of their own would be a crowd of few."""
    many, marked = sealed(5), sealed(2)
    pools.add([(crowd(), many), (crowd(number=2), marked)])
    pools.close_due(FIRST)
    (part,) = pools.parts()
    assert (part.size, sorted(part.reports)) == (5, sorted(many))
    pools.close_due(LAST)
    assert pools.totals() == {"closed": 5, "too_few": 2}


def test_a_full_disk_keeps_nothing_of_an_upload_and_everything_before_it(pools):
    """The upload fails as a whole, and the next one is taken when there is room."""
    before = sealed(3)
    pools.add([(crowd(), before)])
    ((pages,),) = pools._file.execute("PRAGMA page_count").fetchall()
    pools._file.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(sqlite3.Error):
        pools.add([(crowd(), sealed(3)), (crowd("other"), sealed(4000))])
    pools._file.execute("PRAGMA max_page_count = 1000000")
    after = sealed(1)
    pools.add([(crowd(), after)])
    pools.close_due(FIRST)
    assert sorted(forward(pools)) == sorted(before + after)


def test_one_process_has_a_file(file):
    """A second relay on the same folder would forward pools twice."""
    pools = Pools(file)
    pools.add([(crowd(), sealed(1))])
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        Pools(file, wait=0.0)
    pools.close()
