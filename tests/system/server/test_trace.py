"""A number for each request, in the log of gunicorn, too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
import requests

from deniable_aggregator.process.ports import free_port
from deniable_server.http.trace import HEADER


@contextmanager
def gunicorn(settings, *arguments, **environment):
    """Run gunicorn as it is deployed; yield its address and what it says on stderr, once it has ended."""
    bind = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "gunicorn", "-c", "python:deniable_server.gunicorn_conf", "-b", bind, "-w", "1", *arguments]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("DENIABLE_")}
    process = subprocess.Popen(
        [*command, "deniable_server:create_app()"],
        env=variables | settings.environment() | environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    output = []
    try:
        yield f"http://{bind}", process, output
    finally:
        process.terminate()
        output += process.communicate(timeout=600)[1].splitlines()


def answer_of(process, url, method="GET", **options):
    while True:
        assert process.poll() is None
        try:
            return requests.request(method, url, timeout=300, **options)
        except (requests.ConnectionError, requests.Timeout):  # it may still be starting
            time.sleep(0.05)


def test_gunicorn_logs_as_it_is_told(settings):
    """All lines of gunicorn and the app are JSON; requests that gunicorn refuses have a number, too; strays are told."""
    answer = {"DENIABLE_LOG_LEVEL": "debug", "DENIABLE_LOG_FORMAT": "json", "DENIABLE_MAX_BACKLOGS": "7"}
    with gunicorn(settings, **answer) as (url, process, output):
        good = answer_of(process, f"{url}/healthz")
        refused = requests.get(f"{url}/healthz", headers={"X-Long": "x" * 5000}, timeout=600)
    assert (good.status_code, refused.status_code) == (200, 431)
    records = [json.loads(line) for line in output]
    assert {"gunicorn.error", "deniable.request", "deniable.settings"} <= {each["logger"] for each in records}
    lines = {each.get("request"): each for each in records}
    assert lines[good.headers[HEADER]].items() >= {"route": "/healthz", "status": 200}.items()
    assert lines[refused.headers[HEADER]].items() >= {"status": 431, "code": "headers_too_large"}.items()
    assert refused.json()["instance"] == f"urn:uuid:{refused.headers[HEADER]}"
    (stray,) = [each for each in records if each["logger"] == "deniable.settings"]
    assert stray["event"] == "nothing reads DENIABLE_MAX_BACKLOGS; is DENIABLE_MAX_BACKLOG meant?"


@pytest.mark.parametrize(
    ("name", "value", "status", "message"),
    [
        ("DENIABLE_LOG_FORMAT", "yaml", 2, "DENIABLE_LOG_FORMAT = 'yaml': write console or json"),
        ("DENIABLE_CLOCK_SKEW", "soon", 2, "DENIABLE_CLOCK_SKEW = 'soon': write a whole number of at least 1"),
        ("DENIABLE_READ_KEYS", "rk_11111111", 2, "DENIABLE_READ_KEYS: one without a colon is no key: write app:key"),
        ("DENIABLE_REGISTRY", "/no/such.toml", 2, "/no/such.toml: the registry is missing"),
    ],
)
def test_gunicorn_does_not_start_on_a_bad_value(settings, name, value, status, message):
    """The start ends with the variable, the rule and the value, and no trace of the code; a key is not repeated."""
    with gunicorn(settings, **{name: value}) as (_, process, output):
        assert process.wait(600) == status
    text = "\n".join(output)
    assert message in text
    assert "Traceback" not in text
    assert "rk_1" not in text
