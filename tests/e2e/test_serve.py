"""`deniable serve`: one command that runs everything, prints what an app needs, and keeps what it counted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

import deniable
from deniable_server.local.stack import free_port

REGISTRY = Path(__file__).parents[2] / "deploy" / "metrics.toml"


@pytest.fixture
def trial(tmp_path):
    """Write the example registry with a trial's publication."""
    path = tmp_path / "metrics.toml"
    path.write_text(REGISTRY.read_text("utf-8") + "\n[publication]\ntrial = true\n", "utf-8")
    (tmp_path / "search-engines.txt").write_bytes((REGISTRY.parent / "search-engines.txt").read_bytes())
    return path


@contextmanager
def serving(registry, data):
    """Serve until the block ends; yield the DSN, the read key and the address."""
    bind = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "deniable", "serve", "--registry", registry, "--bind", bind, "--data", data]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DENIABLE_")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        said = ""
        while "Ctrl-C" not in said:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            said += line
        yield re.search(r"DSN: +(\S+)", said)[1], re.search(r"Read key: +(\S+)", said)[1], f"http://{bind}"
    finally:
        process.send_signal(signal.SIGTERM)
        output = process.communicate(timeout=60)
        assert process.returncode == 0, output


def count(url, key, least, seconds=60.0):
    deadline = time.monotonic() + seconds
    while True:
        answer = requests.get(f"{url}/api/v1/metrics/export.used", headers={"Authorization": f"Bearer {key}"}, timeout=10)
        n = answer.json()["n"]
        if n >= least or time.monotonic() > deadline:
            return n
        time.sleep(0.1)


def test_counts_survive_a_restart(trial, tmp_path):
    """What was recorded with the printed DSN is published, read with the printed key, and still there after a restart."""
    data = tmp_path / "data"
    with serving(trial, data) as (dsn, key, url):
        for i in range(30):  # devices, each of which answers once a week
            platform = {"platform": "linux"}
            with deniable.Client(dsn=dsn, registry=trial, consent=True, segments=platform, state=None, strict=True) as client:
                assert client.record("export.used", i % 3 == 0)
                assert client.flush(30)
                assert client.stats()["sent"] == 1
        assert count(url, key, 30) == 30
        page = requests.get(f"{url}/m/export.used", timeout=10)
        assert page.url.endswith("/login")
        time.sleep(1.1)  # appendfsync everysec
    with serving(trial, data) as (again, same, url):
        assert same == key
        assert again.partition("@")[0] == dsn.partition("@")[0]
        assert count(url, key, 30) == 30


def test_a_faulty_registry_stops_the_start(tmp_path):
    """A server does not start on a registry with faults, and names each of them."""
    path = tmp_path / "metrics.toml"
    path.write_text(
        REGISTRY.read_text("utf-8").replace("epsilon = 0.8", "epsilon = -1").replace('type = "ordinal"', 'type = "ordnal"')
    )
    command = [sys.executable, "-m", "deniable", "serve", "--registry", path, "--bind", f"127.0.0.1:{free_port()}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("cart.size") == 2
    assert "Traceback" not in done.stderr
