"""The main jobs from end to end, with real processes: the demo, and a report's way from the SDK to the page."""

from __future__ import annotations

import json
import re
import subprocess

import programs
import pytest
import requests
from tests.system.e2e.test_demo import demo_inside
from tests.system.e2e.test_serve import count, serving, trial  # noqa: F401 - a fixture

import deniable

pytestmark = pytest.mark.starts_processes
SECONDS = 600
"""Only so that nothing hangs."""


@pytest.fixture(autouse=True, scope="module")
def forked_programs():
    """Have programs of ours forked, as in tests/system: most of the time of both jobs went into imports."""
    before = subprocess.Popen
    programs.install()
    yield
    subprocess.Popen = before


def test_the_demo_recovers_the_truth():
    """Every true figure of 100 flights lies in its interval."""
    done = demo_inside("--devices", 100)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["all_inside"]
    assert {metric["n"] for metric in outcome["metrics"]} == {100}


def test_what_is_recorded_is_on_the_page(trial, tmp_path):  # noqa: F811
    """Devices record with the SDK; a server takes the reports, a worker counts and publishes them, and the page has them."""
    with serving(trial, tmp_path / "data") as (dsn, key, url):
        for number in range(3):
            segments = {"platform": "linux"}
            with deniable.Client(dsn=dsn, registry=trial, consent=True, segments=segments, state=None, strict=True) as client:
                assert client.record("export.used", bool(number))
                assert client.flush(SECONDS)
                assert client.stats()["sent"] == 1
        assert count(url, key, 3, seconds=SECONDS) == 3
        with requests.Session() as reader:
            token = reader.get(f"{url}/login", timeout=SECONDS).text.partition('name="token" value="')[2].partition('"')[0]
            reader.post(f"{url}/login", {"token": token, "key": key}, timeout=SECONDS)
            page = reader.get(f"{url}/m/export.used", timeout=SECONDS)
        assert page.url.endswith("/m/export.used"), page.text
        assert "3 reports on 1 " in re.sub(r"<[^>]*>", "", page.text), page.text  # whatever was detected
