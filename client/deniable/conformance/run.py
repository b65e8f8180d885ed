"""Put all scripts to an adapter, and compare what it answers."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from deniable.conformance.adapter import PROTOCOL, Adapter
from deniable.conformance.scripts import LEVELS, Script, load
from deniable.errors import ConfigurationError
from deniable.testing.stub import StubServer
from deniable.wire import sealing
from deniable.wire.report import Stratum

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LONGEST = 600  # characters of a request or answer that a failure shows


class Failure(NamedTuple):
    """A request that was answered otherwise than it must be."""

    script: Script
    request: dict[str, Any]
    answer: dict[str, Any]
    expected: dict[str, Any]

    def __str__(self) -> str:
        parts = {"request": self.request, "answer": self.answer, "expected": self.expected}
        lines = [f"{name}: {json.dumps(part)[:_LONGEST]}" for name, part in parts.items()]
        return "\n  ".join([f"{self.script.file}, {self.script.about} (level {self.script.level})", *lines])


class Outcome(NamedTuple):
    """What an adapter's client has shown."""

    client: str  # as it calls itself
    claimed: int  # the level that it claims
    passed: dict[int, int]  # by level, how many scripts
    refused: dict[int, dict[str, int]]  # by level, how many scripts were refused, by metric or request
    failures: list[Failure]

    @property
    def conforms(self) -> bool:
        """Whether nothing was wrong, and nothing of the claimed level was refused."""
        return not self.failures and not any(self.refused[level] for level in LEVELS if level <= self.claimed)

    def lines(self) -> Iterator[str]:
        """Say what was seen."""
        yield f"{self.client}, which claims level {self.claimed}"
        for level, about in LEVELS.items():
            refused, wrong = self.refused[level], sum(each.script.level == level for each in self.failures)
            line = f"level {level} ({about}): {self.passed[level]} passed, {wrong} failed, {sum(refused.values())} refused"
            yield line + (f": {', '.join(sorted(refused))}" if refused else "")
        yield "it conforms" if self.conforms else "it does NOT conform"


def run(
    command: Sequence[str],  # what starts the adapter
    only: int | None = None,  # the level up to which scripts are put; None for all
) -> Outcome:
    """Put all scripts; raise `ConfigurationError` if the adapter does not answer."""
    passed, failures = dict.fromkeys(LEVELS, 0), list[Failure]()
    refused: dict[int, dict[str, int]] = {level: {} for level in LEVELS}
    with Adapter(command) as adapter:
        hello = adapter.ask({"do": "hello", "protocol": PROTOCOL})
        client, level = hello.get("client"), hello.get("level")
        if hello.get("protocol") != PROTOCOL or not isinstance(client, str) or level not in LEVELS:
            raise ConfigurationError(f"the adapter answers `hello` with protocol {PROTOCOL}, client and level, not {hello}")
        for script in load():
            if only is not None and script.level > only:
                continue
            outcome = _put(adapter, script)
            if outcome is None:
                passed[script.level] += 1
            elif isinstance(outcome, Failure):
                failures.append(outcome)
            else:
                refused[script.level][outcome] = refused[script.level].get(outcome, 0) + 1
    return Outcome(client, level, passed, refused, failures)


def _put(adapter: Adapter, script: Script) -> Failure | str | None:
    """Put one script; return what failed, the metric or request that was refused, or None."""
    refused = adapter.load(script.sheet)
    for metric in sorted(script.metrics):
        if metric in refused:
            return metric
    server = StubServer(key="pk_conformance")
    with server if any("server" in step["ask"] for step in script.steps) else nullcontext():
        for step in script.steps:
            request, expected = step["ask"], step["answer"]
            answer = _serve(server, request) if request.get("do") is None else adapter.ask(_addressed(request, server))
            if "opens" in step and sealing.lacking():
                return "without deniable[relay], which opens what is sealed"
            if "unsupported" in answer:
                return None if script.sheets else str(request["do"])
            if "opens" in step:
                answer = _opened(request, answer, bytes.fromhex(step["opens"]))
            if not _agrees(answer, expected):
                return Failure(script, request, answer, expected)
    return None


def _opened(request: dict[str, Any], answer: dict[str, Any], private: bytes) -> dict[str, Any]:
    """Return an answer with what its sealed reports have inside; null if one does not open."""
    # A client draws a key pair for each, so no sealed report is known before.
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - only sealed reports need it
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey  # noqa: PLC0415

    key, number = X25519PrivateKey.from_private_bytes(private), int(request["key"].partition(":")[0])
    info = sealing.binding(request["app"], Stratum(*(request[name] for name in Stratum._fields)), number)
    suite = sealing.suite()
    try:
        sealed = [bytes.fromhex(each) for each in answer["sealed"]]
        reports = [
            {"number": each[0], "bytes": len(each), "payload": suite.decrypt(each[1:], key, info=info).hex()} for each in sealed
        ]
    except (KeyError, TypeError, ValueError, IndexError, InvalidTag):
        return answer | {"reports": None}
    return answer | {"reports": reports, "differ": len({each[1:33] for each in sealed}) == len(sealed)}


def _addressed(request: dict[str, Any], server: StubServer) -> dict[str, Any]:
    """Return a request, with the address of our server where a device is to send there."""
    if not request.get("server"):
        return request
    # The stub has no registry, and so no name of an app.
    return request | {"dsn": server.dsn.rpartition("/")[0] + "/shop"}


def _serve(server: StubServer, request: dict[str, Any]) -> dict[str, Any]:
    if request["server"] == "serve":
        server.envelope = None if request["envelope"] is None else json.dumps(request["envelope"]).encode()
        return {}
    if request["server"] == "fail":
        server.fail(request["status"])
        return {}
    attempts = server.attempts
    statuses, keys = [int(each.status) for each in attempts], len({each.key for each in attempts})
    return {"statuses": statuses, "keys": keys, "reports": len(server.reports)}


def _agrees(answer: object, expected: object) -> bool:
    """Compare an answer with what it must have; it may have more members. A list of refused names is a part of the answer's."""
    if isinstance(expected, dict) and isinstance(answer, dict):
        return all(name in answer and _agrees(answer[name], each) for name, each in expected.items())
    if isinstance(expected, list) and isinstance(answer, dict):
        return set(expected) == set(answer)
    if isinstance(expected, list) and isinstance(answer, list):
        return len(expected) == len(answer) and all(map(_agrees, answer, expected))
    return type(answer) is type(expected) and answer == expected
