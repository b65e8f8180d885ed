"""What a relay and its server take for sealed reports, in CPU time of one run.

    python benchmarks/relay.py
    python benchmarks/relay.py --uploads 4000 --folder /var/tmp

relay     an upload of 10 sealed reports of 10 metrics, from the request to the disk, with 16 threads that share commits
no-op     the same request to a view of the same framework that returns at once: what no relay of this framework can do without
server    opening and checking a report of a part of 500, without the store
agree     an X25519 agreement, which no opening can do without
"""

from __future__ import annotations

import argparse
import shutil
import sys
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from tempfile import mkdtemp
from time import process_time, time
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from flask import Flask
from werkzeug.test import EnvironBuilder

from deniable.declared import Declared
from deniable.registry import parse, period
from deniable.wire.report import Report, Stratum, encode
from deniable.wire.sealing import Sealer
from deniable_relay.app import Web, create_app
from deniable_relay.forwarding import Forwarder
from deniable_relay.limits import Limits
from deniable_relay.pools import Pools
from deniable_relay.uploads import Reader
from deniable_server.access.sealing_keys import Opener

if TYPE_CHECKING:
    from collections.abc import Callable

KEY, THREADS, METRICS, PART, ROUNDS = "pk_of_devices", 16, 10, 500, 3
REGISTRY = """
format = 1
app = "shop"
[budget]
per_month = 2000
lifetime = 1000000
[relay]
operator = "Example Foundation"
key = "1:{key}"
"""
METRIC = """
[metrics.m{number}]
type = "categorical"
values = ["a", "b", "c", "d"]
epsilon = 2
description = "d"
owner = "o@shop.example"
"""


def cpu(call: Callable[[], object], number: int) -> float:
    """Return the CPU time of each of so many steps of a call in microseconds: that of the best round."""
    times = []
    for _ in range(ROUNDS):
        start = process_time()
        call()
        times.append((process_time() - start) / number)
    return 1e6 * min(times)


def requests(bodies: list[bytes]) -> list[dict[str, Any]]:
    """Return the WSGI environment of each upload."""
    headers = {"Authorization": f"Bearer {KEY}", "Idempotency-Key": "a", "Content-Type": "application/json"}
    return [EnvironBuilder("/v1/reports", method="POST", data=body, headers=headers).get_environ() for body in bodies]


def send(flask: Flask, environs: list[dict[str, Any]]) -> None:
    """Hand the requests to an app, in several threads."""

    def one(environ: dict[str, Any]) -> None:
        environ["wsgi.input"] = BytesIO(environ["wsgi.input"].getvalue())
        b"".join(flask.wsgi_app(environ, lambda status, _: statuses.append(status)))

    statuses: list[str] = []
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(one, environs))
    if set(statuses) != {"202 ACCEPTED"}:
        raise SystemExit(f"answered {sorted(set(statuses))}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uploads", type=int, default=1000, metavar="N", help="of each round")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="on the disk to use")
    arguments = parser.parse_args()
    private = X25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    text = REGISTRY.format(key=b64encode(public).decode()) + "".join(METRIC.format(number=number) for number in range(METRICS))
    registry = parse(text)
    today = period.of(datetime.fromtimestamp(time(), UTC), "day")
    declared = [Declared.of(metric) for metric in registry.metrics.values()]
    strata = [Stratum(each.metric.id, 1, each.fingerprint, today, "") for each in declared]
    sealer = Sealer("shop", 1, public)
    sealed = {stratum: sealer(Report(stratum, b"\1")).sealed for stratum in strata}
    folder = Path(mkdtemp(dir=arguments.folder))
    try:
        pools = Pools(folder / "pools.db")
        relay = create_app(Web(KEY, Reader(registry), pools, Forwarder("shop", pools, None, ""), Limits(0, 0)))  # type: ignore[arg-type]
        no_op = Flask("no_op")
        no_op.add_url_rule("/v1/reports", view_func=lambda: ({}, 202), methods=["POST"])
        # A relay cannot tell a sealed report from random bytes of its length.
        number = iter(range(1 << 40))
        bodies = [
            encode("shop", [Report(s, b"\1", b"\1" + next(number).to_bytes(8) + sealed[s][9:]) for s in strata])
            for _ in range(arguments.uploads)
        ]
        environs = requests(bodies)
        least = cpu(lambda: send(no_op, environs), len(environs))
        start = process_time()
        send(relay, environs)
        upload = 1e6 * (process_time() - start) / len(environs)
        pools.close()
    finally:
        shutil.rmtree(folder)
    part = [sealer(Report(strata[0], b"\1")).sealed for _ in range(PART)]
    opener, layout = Opener([private]), declared[0].layout
    opening = cpu(lambda: [layout.unpack(payload or b"") for payload in opener.open("shop", strata[0], part)], PART)
    peer = X25519PrivateKey.generate().public_key()
    agree = cpu(lambda: [private.exchange(peer) for _ in range(PART)], PART)
    print(f"relay: {upload:.0f} us of CPU for an upload of {METRICS} reports, {1e6 / upload:,.0f} uploads a second of a core")
    print(f"no-op: {least:.0f} us; the relay takes {upload / least:.1f} times that")
    print(f"server: {opening:.0f} us of CPU for a report; an agreement takes {agree:.0f} us, so {opening / agree:.1f} times that")
    return 0


if __name__ == "__main__":
    sys.exit(main())
