"""Real store servers of a test: single ones, Sentinels, and clusters. They listen on loopback and end with the test."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import redis
from redis.crc import key_slot

from deniable_aggregator.store.server import about
from deniable_aggregator.store.server.servers import primaries, primary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Self

    from deniable_aggregator.store.server.cluster import Cluster

SLOTS = 16_384
REPLICA_TIMEOUT = 10
"""Seconds after which a replica of such a cluster that was away cannot be elected: (5 + 1) x 1 s and one ping are 7."""


def wait(until: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait until something is so."""
    deadline, last = time.monotonic() + seconds, ""
    while True:
        try:
            if until():
                return
        except redis.RedisError as error:
            last = repr(error)
        assert time.monotonic() < deadline, f"it did not come about in time; last error: {last}"
        time.sleep(0.02)


def cluster_port() -> int:
    """Choose a port that is free together with that of the cluster's bus, and that no outgoing connection is given meanwhile."""
    while True:
        # The bus is at the port 10,000 above. No port is another server's bus, and Linux gives connections 32768 and above.
        port = 12_000 + secrets.randbelow(10_000)
        with socket.socket() as tried, socket.socket() as bus, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            bus.bind(("127.0.0.1", port + 10_000))
            return port


@dataclass
class Machine:
    """A store server with a folder and a port of its own."""

    program: str
    folder: Path
    port: int
    settings: tuple[str, ...]
    reached: int
    """The port at which clients and other servers find it."""
    process: subprocess.Popen[bytes] | None = None

    def start(self, *, loads: bool = True) -> Self:
        """Start it, with what its folder has; without waiting until it has loaded that, if the caller looks at it meanwhile."""
        command = [self.program, *self.settings, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        wait(self.client.ping if loads else lambda: self.client.info("persistence")["loading"])
        return self

    @property
    def client(self) -> redis.Redis:
        """A client of it."""
        return redis.Redis(port=self.port, socket_timeout=20, decode_responses=True)

    @property
    def primary(self) -> bool:
        """Whether it takes writes."""
        return self.client.info("replication")["role"] == "master"

    def kill(self) -> None:
        """End it, as a power cut does."""
        self._signal(signal.SIGKILL)
        if self.process:
            self.process.wait()
        self.process = None

    def stop(self) -> None:
        """Stop it in the middle of what it does, until `go_on`."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self.process:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)


class Machines:
    """All that a test has started.

    Parameters
    ----------
    program
        The server.
    folder
        Where each has a folder of its own.
    way
        Opens a way to a port and returns its own port: there clients and other servers find the server. Without it, at its port.
    """

    def __init__(self, program: str, folder: Path, way: Callable[[int], int] = int) -> None:
        self._program, self._folder, self._way, self.all = program, folder, way, []

    def start(self, *settings: str) -> Machine:
        """Start a server."""
        port = cluster_port()
        reached = self._way(port)
        # A replica that has come tells what it has when the next ping goes round, which is after ten seconds otherwise.
        own = ["--save", "", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"]
        own += ["--replica-announce-port", str(reached), "--cluster-announce-port", str(reached)]
        folder = self._folder / str(port)
        folder.mkdir(parents=True)
        file = folder / "store.conf"  # Sentinels have a server write down whose replica it is, and it is so when it starts again
        file.write_text(_written([*own, *settings]), "utf-8")
        machine = Machine(self._program, folder, port, (str(file),), reached)
        self.all.append(machine)
        return machine.start()

    def cluster(self, primaries: int, replicas: int, *settings: str) -> str:
        """Start a cluster with so many replicas of each primary; return its URL."""
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"]
        options += ["--cluster-replica-validity-factor", "5", *settings]
        nodes, buses = [], []
        while len(nodes) < primaries * (1 + replicas):
            buses.append(str(cluster_port()))
            nodes.append(self.start(*options, "--cluster-port", buses[-1]))
        names = [node.client.cluster("MYID") for node in nodes]
        first = nodes[0]
        for number, node in enumerate(nodes):
            node.client.cluster("SET-CONFIG-EPOCH", number + 1)
            if number < primaries:
                node.client.cluster("ADDSLOTSRANGE", SLOTS * number // primaries, SLOTS * (number + 1) // primaries - 1)
            node.client.cluster("MEET", "127.0.0.1", first.port, buses[0])
        wait(lambda: all(len(node.client.cluster("NODES")) == len(nodes) for node in nodes))
        for number, node in enumerate(nodes[primaries:]):
            of = names[number % primaries]
            wait(lambda node=node, of=of: node.client.cluster("REPLICATE", of))
        wait(lambda: all(node.client.cluster("INFO")["cluster_state"] == "ok" for node in nodes))
        for node in nodes[primaries:]:
            wait(lambda node=node: node.client.info("replication")["master_link_status"] == "up")
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.reached}" for node in nodes)

    def sentinels(self, number: int, replicas: int, *settings: str) -> str:
        """Start a primary with replicas, and Sentinels that watch it; return their URL."""
        primary = self.start(*settings)
        for _ in range(replicas):
            replica = self.start("--replicaof", "127.0.0.1", str(primary.reached), *settings)
            wait(lambda replica=replica: replica.client.info("replication")["master_link_status"] == "up")
        ports = []
        for _ in range(number):
            watching = self._watch(primary.reached, number // 2 + 1)
            ports.append(watching.port)
        wait(lambda: all(len(_sentinel(port, "SENTINELS")) == number - 1 for port in ports))
        wait(lambda: all(len(_sentinel(port, "REPLICAS")) == replicas for port in ports))
        return "redis+sentinel://" + ",".join(f"127.0.0.1:{port}" for port in ports) + "/shop"

    def _watch(self, port: int, quorum: int) -> Machine:
        """Start a Sentinel. It keeps what it knows in its configuration file."""
        own = cluster_port()
        folder = self._folder / f"sentinel-{own}"
        folder.mkdir()
        file = folder / "sentinel.conf"
        file.write_text(
            f"sentinel monitor shop 127.0.0.1 {port} {quorum}\n"
            "sentinel down-after-milliseconds shop 500\nsentinel failover-timeout shop 3000\n"
        )
        machine = Machine(self._program, folder, own, (str(file), "--sentinel"), own)
        self.all.append(machine)
        return machine.start()

    def at(self, client: redis.Redis) -> Machine:
        """Return the server that a client reaches."""
        reached = about.connection(client)["port"]
        return next(machine for machine in self.all if machine.reached == reached)

    def await_promotion(self, killed: Machine) -> None:
        """Wait until another server takes the writes of one that was killed."""
        others = [each for each in self.all if each is not killed and each.process and "--sentinel" not in each.settings]
        before = sum(each.primary for each in others)
        wait(lambda: sum(each.primary for each in others) > before)

    def close(self) -> None:
        """End all."""
        for machine in self.all:
            machine.go_on()
            machine.kill()


def await_replicas(of: Machine, number: int, seconds: float = 120.0) -> None:
    """Wait until so many replicas have all that a server has now."""
    now = max(1, of.client.info("replication")["master_repl_offset"])

    def have() -> bool:
        replication = of.client.info("replication")
        there = [replication[f"slave{each}"] for each in range(replication["connected_slaves"])]
        return sum(each["state"] == "online" and each["offset"] >= now for each in there) >= number

    wait(have, seconds)


def move(client: Cluster, key: str) -> redis.Redis:
    """Move the slot of a key to another primary of a cluster, keys first, as redis-cli does; return a client of it."""
    client.refresh()
    client.exists(key)  # if it was moved since then, the client knows now
    slot, old = key_slot(key.encode()), primary(client, key)
    new = next(server for server in primaries(client) if server is not old)
    new_id, old_id = (server.execute_command("CLUSTER MYID").decode() for server in (new, old))
    new.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", old_id)
    old.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", new_id)
    port = about.connection(new)["port"]
    while keys := old.execute_command("CLUSTER GETKEYSINSLOT", slot, 10):
        old.execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5000, "REPLACE", "KEYS", *keys)
    for server in (new, old, *primaries(client)):
        server.execute_command("CLUSTER SETSLOT", slot, "NODE", new_id)
    return new


def _written(settings: Sequence[str]) -> str:
    """Write settings of the command line as a file."""
    words = [f"\n{word.removeprefix('--')}" if word.startswith("--") else word or '""' for word in settings]
    return " ".join(words) + "\n"


def _sentinel(port: int, what: str) -> list[object]:
    return redis.Redis(port=port, decode_responses=True, socket_timeout=20).execute_command(f"SENTINEL {what}", "shop")
