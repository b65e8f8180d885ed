"""A worker that is killed, stopped or cut off at the worst moments: ``python victim.py SEED RATE RECORD worker ...``.

It is ``deniable worker`` itself. At each of some points it may kill itself as ``kill -9`` does, or stop as SIGSTOP does until
somebody has it go on; or it loses the answer to a commit. What it does it first writes to the file RECORD.
"""

from __future__ import annotations

import os
import random
import signal
import sys

import redis
from redis.connection import AbstractConnection

from deniable.commands.entry import main
from deniable_aggregator.store import Partition
from deniable_aggregator.store.sums import deltas


def arm(seed: str, rate: float, record: str) -> None:
    chance = random.Random(f"{seed}:{os.getpid()}")
    log = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    commit, read_response = Partition.commit, AbstractConnection.read_response
    inside = False
    if chance.random() < 0.5:  # nearly every commit is made in pieces
        deltas.AT_ONCE, deltas._PIECE = 5, 4

    def perhaps(point: str) -> None:
        if chance.random() >= rate:
            return
        number = signal.SIGKILL if chance.random() < 0.5 else signal.SIGSTOP
        os.write(log, f"{number.name} {point}\n".encode())
        os.kill(os.getpid(), number)

    def dangerous_commit(self, *arguments, **options):
        nonlocal inside
        perhaps("before")
        inside = True
        try:
            stale = commit(self, *arguments, **options)
        finally:
            inside = False
        perhaps("after")
        return stale

    def dangerous_read(self, *arguments, **options):
        if inside:  # the commit is sent, and its answer not read
            perhaps("inside")
            if chance.random() < rate:
                os.write(log, b"CUT inside\n")
                read_response(self, *arguments, **options)
                self.disconnect()
                raise redis.ConnectionError("the answer is lost")
        return read_response(self, *arguments, **options)

    Partition.commit = dangerous_commit
    AbstractConnection.read_response = dangerous_read
    if "--archive" in sys.argv:
        from deniable_aggregator.archive.folder import Folder

        write = Folder.write

        def dangerous_write(self, *arguments, **options):
            name = write(self, *arguments, **options)
            perhaps("files")
            return name

        Folder.write = dangerous_write


if __name__ == "__main__":
    seed, rate, record, *arguments = sys.argv[1:]
    arm(seed, float(rate), record)
    sys.exit(main(arguments))
