"""deploy/ready.sh, run as the probe of a container runs it: a server of the store is ready when it is loaded and in step."""

from __future__ import annotations

import shutil
import socket
import subprocess
from contextlib import suppress

import pytest
from machines import await_replicas, wait
from service import clean
from shipped import DEPLOY


@pytest.fixture
def ready(tmp_path, machines):
    """Start servers with the user who is shipped for probes; return what starts them, and what asks one."""
    if shutil.which("redis-cli") is None:
        pytest.skip("no redis-cli on PATH")
    user = next(line for line in (DEPLOY / "users.acl").read_text("utf-8").splitlines() if line.startswith("user probe "))
    (tmp_path / "users.acl").write_text(f"user default on nopass ~* &* +@all -role\n{user} >secret\n")
    script = (DEPLOY / "ready.sh").read_text("utf-8").replace("/etc/store/probe", str(tmp_path / "probe"))
    (tmp_path / "ready.sh").write_text(script, "utf-8")

    def start(*settings):
        return machines.start("--aclfile", str(tmp_path / "users.acl"), *settings)

    def ask(machine, password="secret"):
        (tmp_path / "probe").write_text(password)
        tool = tmp_path / "valkey-cli"
        tool.write_text(f'#!/bin/sh\nexec redis-cli -p {machine.port} "$@"\n')
        tool.chmod(0o755)
        env = clean() | {"PATH": f"{tmp_path}:{clean()['PATH']}"}
        return (
            subprocess.run(["sh", tmp_path / "ready.sh"], env=env, capture_output=True, timeout=120, check=False).returncode == 0
        )

    return start, ask


def test_a_primary_is_ready_and_a_stranger_hears_nothing(ready):
    """With another password the answer is no, and where nobody answers."""
    start, ask = ready
    machine = start()
    assert ask(machine)
    assert not ask(machine, "other")
    machine.kill()
    assert not ask(machine)


def test_a_replica_is_ready_when_it_is_in_step(ready):
    """Not while its primary is away, and not before it has what the primary has."""
    start, ask = ready
    first = start()
    second = start("--replicaof", "127.0.0.1", str(first.port))
    await_replicas(first, 1)
    assert ask(second)
    first.kill()
    wait(lambda: second.client.info("replication")["master_link_status"] == "down")
    assert not ask(second)


def test_a_server_that_loads_is_not_ready(ready):
    """It answers, but it has not its data yet: an update that went on would take the next one away."""
    start, ask = ready
    machine = start("--loading-process-events-interval-bytes", "1024")
    with machine.client.pipeline(transaction=False) as pipeline:
        for number in range(1000):
            pipeline.set(f"key{number}", "x" * 100)
        pipeline.execute()
    machine.client.save()
    machine.kill()
    slowly = [machine.program, *machine.settings, "--port", str(machine.port), "--dir", str(machine.folder)]
    with (machine.folder / "log").open("ab") as log:  # each key takes 5 ms
        machine.process = subprocess.Popen([*slowly, "--key-load-delay", "5000"], stdout=log, stderr=log)
    wait(lambda: loads(machine))
    assert not ask(machine)
    wait(machine.client.ping)
    assert ask(machine)


def loads(machine):
    """Tell whether it says so. The client asks again and again until it does not."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", machine.port), 5) as asking:
        asking.sendall(b"PING\r\n")
        return asking.recv(100).startswith(b"-LOADING")
    return False
