"""A relay that dies at each of its steps, in turn: what it has answered is forwarded, and nothing is counted twice."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from base64 import b64decode
from itertools import count
from multiprocessing import get_context
from random import Random

import pytest
from relays import FIRST, LAST, SIZE, crowd, sealed

from deniable_relay import pools as module
from deniable_relay.forwarding import Forwarder
from deniable_relay.pools import Pools

FORK = get_context("fork")
THIRDS = 3  # each test has every third step


class Steps:
    """Counts steps, and kills the process at one of them."""

    def __init__(self, last):
        self.left = last

    def __call__(self):
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1


def relay(folder, uploads, channel, last):
    """Take uploads, close pools twice, and forward them; say each upload that is durable. Die at a step."""
    step = Steps(last)

    class Dying(sqlite3.Connection):
        def execute(self, *arguments):
            step()
            return super().execute(*arguments)

        def executemany(self, *arguments):
            step()
            return super().executemany(*arguments)

    def post(body, headers, _):
        step()
        channel.send(("post", headers["Idempotency-Key"], body))
        answer = channel.recv()
        step()
        if answer is None:
            raise TimeoutError
        return answer, {}, {}

    module.sqlite3 = type(
        "sqlite", (), {"connect": lambda *a, **k: sqlite3.connect(*a, **k, factory=Dying), "Error": sqlite3.Error}
    )
    pools = Pools(folder / "pools.db")
    forwarder = Forwarder("shop", pools, post, "key")
    for number, (reports, closes) in enumerate(uploads):
        pools.add(reports)
        channel.send(("kept", number))
        if closes:
            forwarder.turn(closes)
    for later in count():
        forwarder.turn(LAST + 3600 * later)
        if not pools.parts():
            break
    channel.send(("totals", pools.totals()))
    pools.close()


class Server:
    """Counts each sealed report once, as the real one does; sometimes its answer is lost, or it refuses for a while."""

    def __init__(self, chance):
        self.chance = chance
        self.reports, self.parts = {}, {}

    def answer(self, key, body):
        luck = self.chance.random()
        if luck < 0.2:
            return 503
        group = json.loads(body)["group"]
        data = b64decode(group["payloads"])
        assert self.parts.setdefault(key, body) == body  # each attempt has the same bytes
        for start in range(0, len(data), SIZE):
            self.reports[data[start : start + SIZE]] = group["metric"]
        return None if luck < 0.4 else 202


def run(folder, uploads, server, last):
    """Run a relay until it dies or ends; return which uploads it has answered, and its totals if it ended."""
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=relay, args=(folder, uploads, theirs, last))
    process.start()
    theirs.close()
    answered, totals = set(), None
    try:
        while True:
            kind, *more = ours.recv()
            if kind == "post":
                ours.send(server.answer(*more))
            elif kind == "kept":
                answered.add(more[0])
            else:
                totals = more[0]
    except (EOFError, OSError):
        process.join()
    return answered, totals


def world():
    """Return uploads: three crowds, one of them too small, with repeated reports, some of them after the first closing."""
    early, late, again = sealed(8), sealed(4), sealed(3)
    return [
        ([(crowd("a"), early[:5]), (crowd("b"), again)], 0),
        ([(crowd("a"), early[3:]), (crowd("few"), sealed(1))], FIRST),
        ([(crowd("a"), late), (crowd("b"), again)], FIRST + 60),
        ([(crowd("a"), early)], LAST),
    ]


@pytest.mark.parametrize("first", range(THIRDS))
def test_a_relay_that_dies_at_each_step(tmp_path, first):
    """Uploads that were answered are forwarded, cell by cell, or counted as too few; those that were not are sent again."""
    uploads = world()
    for step in count(first, THIRDS):
        folder, server = tmp_path / str(step), Server(Random(step))
        folder.mkdir()
        answered, totals = run(folder, uploads, server, step)
        if totals is not None:  # it ended before that step
            check(uploads, server, totals)
            assert step > 60
            return
        # What was answered is there, whatever died: nobody sends it again.
        left = [upload for number, upload in enumerate(uploads) if number not in answered]
        check(uploads, server, run(folder, left, server, -1)[1])


def check(uploads, server, totals):
    sent = {report: of.stratum.metric for reports, _ in uploads for of, group in reports for report in group}
    expected = {report: metric for report, metric in sent.items() if metric != "few"}
    assert server.reports == expected
    assert totals == {"forwarded": len(expected), "too_few": 1}
