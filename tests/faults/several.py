"""A store of several servers for chaos: a cluster, or a primary that Sentinels watch. A proxy stands before each server.

Clients and other servers find a server through its proxy only, so what is cut off or held back may also be what replicas get.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal

from machines import Machine, Machines, move, wait
from proxy import Proxy

from deniable_aggregator.store import connect
from deniable_aggregator.store.servers import primary

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from pathlib import Path

Kind = Literal["cluster", "sentinels"]
REPLICAS = 2
_SECONDS = 60.0


class Several:
    """Three primaries of a cluster, or one that three Sentinels watch, with two replicas each.

    Parameters
    ----------
    binary
        The store's server.
    folder
        Where each has a folder of its own.
    kind
        Which of the two.
    keys
        The faults are where one of these is.
    """

    def __init__(self, binary: Path, folder: Path, kind: Kind, keys: Sequence[str]) -> None:
        self._undo = ExitStack()
        self._proxies: list[Proxy] = []
        self._machines = Machines(str(binary), folder / "servers", self._way)
        self.kind, self._keys = kind, keys
        self.url = ""

    def _way(self, port: int) -> int:
        self._proxies.append(self._undo.enter_context(Proxy(port)))
        return self._proxies[-1].port

    def start(self) -> None:
        """Start all."""
        self._undo.callback(self._machines.close)
        if self.kind == "cluster":
            self.url = self._machines.cluster(3, REPLICAS, "--appendonly", "yes")
        else:
            self.url = self._machines.sentinels(3, REPLICAS, "--appendonly", "yes")
        self._client = connect(self.url)
        self._undo.callback(self._client.close)

    def kill(self) -> None:
        """End all."""
        self._undo.close()

    def empty(self) -> None:
        """Forget everything."""
        for machine in self._machines.all:
            if "--sentinel" not in machine.settings and machine.primary:
                machine.client.flushall()

    # What befalls it

    def die(self, chance: random.Random) -> None:
        """Kill the primary that has a key, and start it again, once another has taken over, as that one's replica."""
        key = chance.choice(self._keys)
        dying = self._primary(key)
        self._until_replicated(dying)
        dying.kill()
        self._machines.await_promotion(dying)
        if self.kind == "sentinels":
            # Back before, it would take writes still, and the other replica would follow it: a cluster's primary waits by itself.
            wait(lambda: self._followed(dying), _SECONDS)
        time.sleep(chance.uniform(0, 1))
        dying.start()
        wait(lambda: not dying.primary, _SECONDS)
        self._until_replicated(self._primary(key))

    def move(self, chance: random.Random) -> None:
        """Move a key, and what goes with it, to another primary."""
        key = chance.choice(self._keys)
        wait(lambda: move(self._client, key), _SECONDS)

    def drop(self) -> None:
        """Close every connection, also those of replicas."""
        for proxy in self._proxies:
            proxy.drop()

    @property
    def delay(self) -> float:
        """Seconds for which all that is sent is held back."""
        return self._proxies[0].delay

    @delay.setter
    def delay(self, seconds: float) -> None:
        for proxy in self._proxies:
            proxy.delay = seconds

    @property
    def deaf(self) -> bool:
        """Whether answers are thrown away."""
        return self._proxies[0].deaf

    @deaf.setter
    def deaf(self, deaf: bool) -> None:
        for proxy in self._proxies:
            proxy.deaf = deaf

    def _primary(self, key: str) -> Machine:
        found: list[Machine] = []

        def find() -> bool:
            self._client.exists(key)  # so that the client knows: a replica that was the primary would answer what follows
            client = primary(self._client, key)
            found[:] = [machine for machine in self._machines.all if self._at(client, machine)]
            return bool(found and found[0].primary)

        wait(find, _SECONDS)
        return found[0]

    def _followed(self, dead: Machine) -> bool:
        """Tell whether all Sentinels name the same new primary, and the other replica follows it."""
        watching = [each for each in self._machines.all if "--sentinel" in each.settings]
        named = {int(each.client.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", "shop")[1]) for each in watching}
        if len(named) > 1 or dead.reached in named:
            return False
        (new,) = (each for each in self._machines.all if each.reached in named)
        told = new.client.info("replication")
        return told["connected_slaves"] == REPLICAS - 1 and told["slave0"]["state"] == "online"

    def _at(self, client, machine: Machine) -> bool:
        """Tell whether a client reaches a server."""
        return bool(machine.process) and client.info("server")["tcp_port"] == machine.port

    @staticmethod
    def _until_replicated(of: Machine) -> None:
        """Wait until two replicas have all that a primary has now: one machine dies at a time."""
        now = of.client.info("replication")["master_repl_offset"]

        def have() -> bool:
            told = of.client.info("replication")
            there = [told[f"slave{number}"] for number in range(told["connected_slaves"])]
            return sum(each["state"] == "online" and each["offset"] >= now for each in there) >= REPLICAS

        wait(have, _SECONDS)
