"""Prometheus, as shipped, asks at the ports that the units bind."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_prometheus_asks_each_unit_that_the_guide_starts():
    """Servers and workers under systemd, with the ports of their units, or of their own file as the guide writes it."""
    guide = (DEPLOY / "README.md").read_text("utf-8")
    (started,) = re.findall(r"^systemctl enable --now (.+)$", guide, re.MULTILINE)
    own = dict(re.findall(r"^echo PORT=(\d+) >> /etc/deniable/private/(\w+)\.env", guide, re.MULTILINE))
    ports = {name: port for port, name in own.items()}
    bound = {"deniable-server": [], "deniable-worker": []}
    for kind, name in re.findall(r"(deniable-\w+)@(\w+)", started):
        unit = (DEPLOY / "systemd" / f"{kind}@.service").read_text("utf-8")
        (port,) = re.findall(r"^Environment=(?:PORT=|DENIABLE_METRICS_BIND=127\.0\.0\.1:)(\S+)", unit, re.MULTILINE)
        bound[kind].append(f"127.0.0.1:{ports.get(name) or port.replace('%i', name)}")
    scraped = yaml.safe_load((DEPLOY / "prometheus.yml").read_text("utf-8"))["scrape_configs"]
    assert {job["job_name"]: job["static_configs"][0]["targets"] for job in scraped} == bound
