"""Devices, a relay and a server in one process: what tests of mixed reports share."""

from __future__ import annotations

from datetime import UTC, datetime

from deniable.declared import Declared
from deniable.registry import period
from deniable.wire.report import Report, Stratum, encode
from deniable.wire.sealing import Sealer
from deniable_relay.app import Web, create_app
from deniable_relay.forwarding import Forwarder
from deniable_relay.limits import Limits
from deniable_relay.uploads import Reader
from deniable_server.access.keys import KeyStore

REGISTRY = """
format = 1
app = "shop"
segments = {{ platform = ["linux", "macos"] }}

[budget]
per_month = 1000
lifetime = 100000

[relay]
operator = "Example Foundation"
key = "1:{key}"

[metrics.theme]
type = "categorical"
values = ["light", "dark", "other"]
epsilon = 3
segments = ["platform"]
shuffled = {{ min = 5, delta = 1e-9, central = 2.9 }}
description = "d"
owner = "o@shop.example"
min_reports = 5

[metrics.plain]
type = "boolean"
epsilon = 1
description = "d"
owner = "o@shop.example"
min_reports = 4
"""
DEVICE_KEY = "pk_device_123456"
DAYS = 86_400


class World:
    """Devices, a relay and a server, with the time of the relay."""

    def __init__(self, served, pools, private):
        self.served, self.pools, self.private = served, pools, private
        self.registry = served.app.registry
        relay = self.registry.relay
        self.sealer = Sealer("shop", relay.number, relay.public_key)
        self.key = KeyStore(served.store).create("relay", "Example Foundation")[0]
        self.now = datetime.now(UTC).timestamp()
        self.forwarder = Forwarder("shop", pools, self.forward, self.key)
        self.answers = []
        self.start()

    def start(self, registry=None, limits=None, proxies=0):
        """Start the relay, perhaps with another registry or limits."""
        web = Web(DEVICE_KEY, Reader(registry or self.registry), self.pools, self.forwarder, limits or Limits(0, 0))
        self.relay = create_app(web, proxies).test_client()

    def forward(self, body, headers, _):
        """Send an upload of the relay to the server."""
        response = self.served.http.post("/v1/pools", data=body, headers=headers)
        self.answers.append(response.get_json())
        return response.status_code, response.headers, response.get_json()

    def stratum(self, metric, segment="platform=linux"):
        declared = Declared.of(self.registry.metrics[metric])
        name = period.of(datetime.fromtimestamp(self.now, UTC), declared.metric.period)
        return Stratum(metric, 1, declared.fingerprint, name, segment if declared.metric.segments else "")

    def reports(self, metric, values, segment="platform=linux"):
        """Make honest reports, sealed."""
        stratum, mechanism = self.stratum(metric, segment), self.served.mechanism(metric)
        return [self.sealer(Report(stratum, mechanism.randomize(value))) for value in values]

    def send(self, body, key="an upload", **headers):
        headers = {"Authorization": f"Bearer {DEVICE_KEY}", "Content-Type": "application/json", "Idempotency-Key": key} | headers
        return self.relay.post("/v1/reports", data=body if isinstance(body, bytes) else encode("shop", body), headers=headers)

    def close(self, days=2):
        """Let so much time pass for the relay that pools close and go."""
        self.forwarder.turn(self.now + days * DAYS)

    def counted(self, metric):
        """Count what waits, and return the number of reports of each segment."""
        self.served.drain()
        layout = self.served.mechanism(metric).layout
        strata = self.served.store.strata(metric)
        return {stratum.segment: int(self.served.store.read(layout, [stratum]).n) for stratum in strata}
