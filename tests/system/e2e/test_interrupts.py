"""Ctrl-C in a terminal: every command says that it stops, and shows no traceback."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time


def interrupted(command, ready):
    """Run a command in a terminal, press Ctrl-C once it is ready, and return its status and all that it said."""
    screen, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "deniable", *command],
        preexec_fn=lambda: os.login_tty(theirs),  # noqa: PLW1509 - no other thread runs here
    )
    os.close(theirs)
    try:
        output = ready(process, screen)
        os.killpg(process.pid, signal.SIGINT)
        while True:
            try:
                read = os.read(screen, 4096)
            except OSError:  # nobody has the other end any more
                break
            if not read:
                break
            output += read
        process.wait(60)
    finally:
        process.kill()
        os.close(screen)
    return process.returncode, output.decode()


def test_a_command_that_computes():
    """It ends with the status that shells know."""
    command = ["prove", "subset", "--domain-size", "6", "--epsilon", *(f"{i / 1000}" for i in range(1, 15_000))]
    status, output = interrupted(command, lambda _, screen: os.read(screen, 1))
    assert status == 130, output
    assert output.endswith("Stopping ...\r\n")
    assert "Traceback" not in output


def test_a_worker(start_store):
    """A worker ends what it has in hand, and well."""
    from redis import Redis

    from deniable_aggregator.store import Store
    from deniable_aggregator.store.uploads import health

    url = start_store("wheel")

    def alive(process, screen):
        with Redis.from_url(url) as client:
            deadline = time.monotonic() + 120
            while not health.read(Store(client, "interrupted")).workers:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
        output = b""
        while b"Ctrl-C" not in output:
            output += os.read(screen, 4096)
        return output

    status, output = interrupted(["worker", "--redis-url", url, "--app", "interrupted"], alive)
    assert status == 0, output
    assert "Counts reports of interrupted, and waits for more until Ctrl-C." in output.splitlines()
    assert "Stopping ..." in output
    assert "Traceback" not in output
