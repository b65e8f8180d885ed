"""A store of several servers for chaos: a cluster, or a primary that Sentinels watch. A proxy stands before each server.

Clients and other servers find a server through its proxy only, so what is cut off or held back may also be what replicas get.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal

from machines import REPLICA_TIMEOUT, Machine, Machines, await_replicas, move, wait
from proxy import Proxy

from deniable_aggregator.store import connect
from deniable_aggregator.store.server.servers import primary

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
    timeout
        Milliseconds after which a node of a cluster is taken for dead.
    """

    def __init__(self, binary: Path, folder: Path, kind: Kind, keys: Sequence[str], timeout: int = 1000) -> None:
        self._undo = ExitStack()
        self._proxies: list[Proxy] = []
        self._machines = Machines(str(binary), folder / "servers", self._way)
        self.kind, self._keys, self._timeout = kind, keys, timeout
        self.replica_timeout = REPLICA_TIMEOUT * timeout // 1000
        """Seconds after which a replica that was away cannot be elected."""
        self.url = ""

    def _way(self, port: int) -> int:
        self._proxies.append(self._undo.enter_context(Proxy(port)))
        return self._proxies[-1].port

    def start(self) -> None:
        """Start all."""
        self._undo.callback(self._machines.close)
        if self.kind == "cluster":
            self.url = self._machines.cluster(3, REPLICAS, "--appendonly", "yes", "--cluster-node-timeout", str(self._timeout))
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

    def die(self, chance: random.Random, *, at_once: bool = False) -> None:
        """Kill the primary that has a key, and start it again.

        Parameters
        ----------
        chance
            Of all choices.
        at_once
            Whether it is there again before another takes its place. Else it comes back as a replica of that one.
        """
        key = chance.choice(self._keys)
        dying = self._primary(key)
        self._until_replicated(key)
        dying.kill()
        if at_once:
            time.sleep(chance.uniform(0, 1.5))
            dying.start()
        else:
            self._machines.await_promotion(dying)
            time.sleep(chance.uniform(0, 1))
            dying.start()
            wait(lambda: not dying.primary, _SECONDS)
        self._until_replicated(key)

    def pause(self, chance: random.Random) -> None:
        """Stop the primary that has a key for 1 to 20 seconds; it goes on as if nothing had been."""
        key = chance.choice(self._keys)
        pausing = self._primary(key)
        self._until_replicated(key)
        pausing.stop()
        time.sleep(chance.uniform(1, 20))
        pausing.go_on()
        self._until_replicated(key)

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
        machines: list[Machine] = []

        def find() -> bool:
            self._client.exists(key)  # so that the client knows: a replica that was the primary would answer what follows
            client = primary(self._client, key)
            machines[:] = [machine for machine in self._machines.all if self._at(client, machine)]
            return bool(machines and machines[0].primary)

        wait(find, _SECONDS)
        return machines[0]

    def _at(self, client, machine: Machine) -> bool:
        """Tell whether a client reaches a server."""
        return bool(machine.process) and client.info("server")["tcp_port"] == machine.port

    def _until_replicated(self, key: str) -> None:
        """Wait until two replicas have all that the primary of a key has, whichever that is: one machine fails at a time."""
        deadline = time.monotonic() + 2 * _SECONDS
        while True:
            try:
                return await_replicas(self._primary(key), REPLICAS, 1.0)
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
