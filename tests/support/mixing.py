"""Registries of which a relay mixes reports, and a key pair of the server, the same in every test."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from registries import metric_toml, registry_toml

PRIVATE = bytes.fromhex("4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8")  # of RFC 9180, A.1.1
PUBLIC = bytes.fromhex("3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d")
NUMBER = 7
RELAY = {"operator": "Example Foundation", "key": f"{NUMBER}:{b64encode(PUBLIC).decode()}"}
SHUFFLED = {"min": 10_000, "delta": 1e-8, "central": 0.3}


def mixed_toml(id_: str = "m", /, **keys: Any) -> str:
    """Return the table of a metric whose reports a relay mixes: of yes or no, of epsilon 3, a month."""
    return metric_toml(id_, **({"epsilon": 3, "period": "month", "shuffled": SHUFFLED} | keys))


def relay_toml(*metrics: str, **tables: Any) -> str:
    """Return a registry with a relay."""
    return registry_toml(*(metrics or (mixed_toml(),)), **({"relay": RELAY} | tables))
