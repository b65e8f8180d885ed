"""A relay that dies at its steps, in a time that runs fast: ``python mixer.py SEED RATE RECORD CLOCK relay ...``.

It is ``deniable relay`` itself. At each statement to its file, and before and after each upload to the server, it may kill itself
as ``kill -9`` does, or it loses the server's answer. What it does it first writes to the file RECORD. Its time follows from the
file CLOCK: see `read_clock`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from deniable.commands.entry import main
from deniable.transport.http import HttpPost
from deniable_relay import app, forwarding, pools


def read_clock(path: Path) -> float:
    """Return the time by a file of four numbers: at a moment it was so late, it runs so fast, and stops at last."""
    moment, then, speed, last = json.loads(path.read_text())
    return min(then + speed * (time.time() - moment), last)


def arm(seed: str, rate: float, record: str, clock: Path) -> None:
    log = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    chances: dict[int, random.Random] = {}  # of this process, and of each that is forked from it

    def perhaps(point: str, name: str = "SIGKILL") -> bool:
        chance = chances.setdefault(os.getpid(), random.Random(f"{seed}:{os.getpid()}"))
        if chance.random() >= rate:
            return False
        os.write(log, f"{name} {point}\n".encode())
        if name == "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    class Dying(sqlite3.Connection):
        def execute(self, sql, *arguments):
            perhaps(f"before-{sql.split()[0].lower()}")
            return super().execute(sql, *arguments)

        def executemany(self, sql, *arguments):
            perhaps("before-many")
            return super().executemany(sql, *arguments)

    post = HttpPost.__call__

    def dangerous_post(self, *arguments):
        perhaps("before-post")
        answer = post(self, *arguments)
        perhaps("after-post")
        if perhaps("post", "CUT"):
            raise TimeoutError
        return answer

    pools.sqlite3 = SimpleNamespace(
        connect=lambda *arguments, **options: sqlite3.connect(*arguments, **options, factory=Dying), Error=sqlite3.Error
    )
    HttpPost.__call__ = dangerous_post
    app.time = forwarding.time = SimpleNamespace(time=lambda: read_clock(clock))
    forwarding._EVERY = 0.1


if __name__ == "__main__":
    seed, rate, record, clock, *arguments = sys.argv[1:]
    arm(seed, float(rate), record, Path(clock))
    sys.exit(main(arguments))
