"""Make a cluster of the nodes that DENIABLE_REDIS_URL names, as the user ``cluster`` of passwords.py.

Each three in a row become a primary and its two replicas. What is made already stays as it is, so this may be run at any time.
Run it again after all nodes were started anew at once and have other addresses: it tells them where the others are. Run it again
after a node has lost its disk: it takes the place that it had, as a replica.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import redis

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SLOTS = 16_384
GROUP = 3  # a primary and its replicas
SECONDS = 300.0
ATTACH_SECONDS = 20.0  # a primary waits 5 s for further replicas before it sends them what it has


class Node:
    """A node of the cluster.

    Parameters
    ----------
    place
        Host and port.
    user, password
        With which it is told what to do.
    """

    def __init__(self, place: str, user: str | None, password: str | None) -> None:
        self.place = place
        self.host, _, port = place.partition(":")
        self.port = int(port or 6379)
        self._client = redis.Redis(
            self.host, self.port, username=user, password=password, decode_responses=True, socket_timeout=5
        )

    def ask(self, *words: object) -> Any:
        """Give it a command of a cluster."""
        return self._client.cluster(*words)

    @property
    def known(self) -> list[dict[str, Any]]:
        """What it knows of itself and others."""
        return [each for each in self.ask("NODES").values() if "handshake" not in each["flags"]]

    @property
    def own(self) -> dict[str, Any]:
        """What it knows of itself."""
        return next(each for each in self.known if "myself" in each["flags"])

    @property
    def linked(self) -> bool:
        """Whether it is a replica that reaches its primary."""
        return self._client.info("replication").get("master_link_status") == "up"

    def meet(self, other: Node) -> None:
        """Tell it where another is; it takes addresses, and no names."""
        self.ask("MEET", socket.getaddrinfo(other.host, other.port, type=socket.SOCK_STREAM)[0][4][0], other.port)


def comes(done: Callable[[], object], seconds: float = SECONDS) -> bool:
    """Wait for something; return whether it came about."""
    deadline = time.monotonic() + seconds
    while True:
        with suppress(OSError, redis.RedisError):
            if done():
                return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)


def until(done: Callable[[], object], what: str) -> None:
    """Wait for something; end the program if it does not come about."""
    if not comes(done):
        sys.exit(f"within {SECONDS:g} s this did not come about: {what}")


def acquainted(nodes: Sequence[Node]) -> bool:
    """Return whether each node knows all others and nobody else. It forgets those that are dead and not among them."""
    names = {node.own["node_id"] for node in nodes}
    for node in nodes:
        for item in node.known:
            if item["node_id"] not in names and "fail" in item["flags"].split(","):
                node.ask("FORGET", item["node_id"])
    return all(len(node.known) == len(nodes) for node in nodes)


def holder(group: Sequence[Node]) -> Node | None:
    """Return the node of a group that has slots."""
    return next((node for node in group if node.own["slots"]), None)


def endow(group: Sequence[Node], first: int, last: int) -> bool:
    """See that a node of a group has slots: if none has, the first one gets some."""
    if holder(group) is None:
        group[0].ask("ADDSLOTSRANGE", first, last)
    return True


def attach(groups: Sequence[Sequence[Node]]) -> None:
    """Have the others of each group follow the one with slots. One that looks for it at an old address is told again.

    A primary that starts anew may lose its slots to a replica meanwhile, so who has them is asked each time.
    """
    deadline = time.monotonic() + SECONDS
    while loose := [group for group in groups if not comes(lambda group=group: followed(group), 0)]:
        if time.monotonic() > deadline:
            sys.exit(f"within {SECONDS:g} s these did not come together: {'; '.join(map(places, loose))}")
        for group in loose:
            comes(lambda group=group: gather(group), ATTACH_SECONDS)
        comes(lambda: all(map(followed, loose)), ATTACH_SECONDS)


def follows(node: Node, primary: Node) -> bool:
    """Return whether a node is the primary, or a replica that reaches it."""
    return node is primary or (node.own["master_id"] == primary.own["node_id"] and node.linked)


def followed(group: Sequence[Node]) -> bool:
    """Return whether one node of a group has slots, and all others reach it."""
    primary = holder(group)
    return primary is not None and all(follows(node, primary) for node in group)


def gather(group: Sequence[Node]) -> bool:
    """Have the others of a group follow the one with slots; return whether there is one."""
    primary = holder(group)
    if primary is None:
        return False
    for node in group:
        if not follows(node, primary):
            node.ask("REPLICATE", primary.own["node_id"])
    return True


def places(group: Sequence[Node]) -> str:
    """Name the nodes of a group."""
    return ", ".join(node.place for node in group)


def main() -> None:
    environment = urlsplit(os.environ["DENIABLE_REDIS_URL"])
    nodes = [
        Node(place, environment.username, environment.password) for place in environment.netloc.rpartition("@")[2].split(",")
    ]
    if len(nodes) < 3 * GROUP or len(nodes) % GROUP:
        sys.exit(f"{len(nodes)} nodes are too few: a cluster needs three primaries, and two replicas for each")
    for node in nodes:
        until(lambda node=node: node.own, f"{node.place} answers")
        until(lambda node=node: nodes[0].meet(node) or True, f"{node.place} has an address")
    until(lambda: acquainted(nodes), "each node knows all others, and nobody else")
    groups = [nodes[start : start + GROUP] for start in range(0, len(nodes), GROUP)]
    for number, group in enumerate(groups):
        share = SLOTS * number // len(groups), SLOTS * (number + 1) // len(groups) - 1
        until(lambda group=group, share=share: endow(group, *share), f"one of {places(group)} has slots")
    attach(groups)
    until(lambda: all(node.ask("INFO")["cluster_state"] == "ok" for node in nodes), "all nodes find the cluster well")
    sys.stdout.write(f"the cluster is made: {len(groups)} primaries, each with {GROUP - 1} replicas\n")


if __name__ == "__main__":
    main()
