"""Limits hold across processes, without an address being kept."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex
from time import monotonic, sleep

import requests
from tests.server.test_limits import key_of_the_day, statuses  # noqa: F401 - a fixture

from deniable_aggregator.process.ports import free_port


@contextmanager
def gunicorns(settings, log):
    """Run two servers, each a process of gunicorn; yield their addresses."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("DENIABLE_")}
    binds = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    options = ["-c", "python:deniable_server.gunicorn_conf", "-w", "1", "--log-level", "debug"]
    with ExitStack() as running, log.open("wb") as output:
        for bind in binds:
            command = [sys.executable, "-m", "gunicorn", *options, "-b", bind, "deniable_server:create_app()"]
            process = subprocess.Popen(command, env=environment | settings.environment(), stdout=output, stderr=output)
            running.callback(process.wait, 600)
            running.callback(process.terminate)
        for bind in binds:
            await_answer(f"http://{bind}/healthz")
        yield [f"http://{bind}" for bind in binds]


def await_answer(url):
    deadline = monotonic() + 600
    while True:
        try:
            return requests.get(url, timeout=300)
        except (requests.ConnectionError, requests.Timeout):  # it may still be starting
            assert monotonic() < deadline
            sleep(0.05)


def test_limits_hold_across_processes_and_no_address_is_kept(settings, real_redis, tmp_path):
    """Two processes let through together what one may; no dump of the store, no file of it and no log has an address."""
    address, agent = "198.51.100.177", f"agent-{token_hex(8)}"
    limits = replace(settings, trusted_proxies=1, rate_limit_source="20/hour", rate_limit_key="50/hour")

    def ask(url, source):
        headers = {"Authorization": "Bearer rk_test_12345678", "X-Forwarded-For": source, "User-Agent": agent}
        return requests.get(f"{url}/api/v1/metrics", headers=headers, timeout=600)

    with gunicorns(limits, tmp_path / "log") as urls:
        assert statuses(ask(urls[i % 2], address) for i in range(30)) == {200: 20, 429: 10}
        # The key has 30 left; each of its neighbours' networks has 20.
        assert statuses(ask(urls[i % 2], f"2001:db8:0:{i // 2}::1") for i in range(40)) == {200: 30, 429: 10}
        counters = [key for key in real_redis.scan_iter() if b":rate:" in key]
        assert len(counters) == 22  # the key, the address and 20 networks
        assert all(0 < real_redis.ttl(key) <= 3600 for key in counters)
        stored = b"".join(key + (real_redis.dump(key) or b"") for key in real_redis.scan_iter())
    folder = Path(real_redis.config_get("dir")["dir"])
    written = b"".join(path.read_bytes() for path in folder.rglob("*.aof"))
    assert counters[0] in written
    logged = (tmp_path / "log").read_bytes()
    assert b"gunicorn" in logged
    for canary in (b"198.51.100", b"2001:db8", ip_address("2001:db8:0:7::").packed[:8], agent.encode()):
        assert canary not in stored + written + logged
