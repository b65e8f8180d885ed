"""What is logged of uploads tells no finer time than the hour, at any level."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from uuid import UUID

import pytest
import requests

import deniable
from deniable_aggregator.process.ports import free_port

TIMES = {
    "a time of day": r"\d:[0-5]\d:[0-5]\d|T\d\d:(?!00Z)|T\d{4,}|\d:(?!00Z)[0-5]\d\b",
    "a number of seconds or milliseconds since 1970": r"\b[12]\d{9}(?:\.\d+)?\b|\b[12]\d{12}\b|\b[12]\d{15}\b",
    "a duration": r"\d ?(?:ms|us|µs)\b|\b\d+\.\d+ ?s\b|[\"' ](?:ms|seconds|duration)[\"']?[:=]",
}


REGISTRY = """\
format = 1
budget.per_month = 10000
budget.lifetime = 100000
app = "shop"

[metrics."export.used"]
type = "boolean"
epsilon = 1.0
description = "Whether the export was used"
owner = "export@shop.example"
"""


def finer(text):
    """Return what a text tells of a time finer than the hour."""
    times = [(what, each) for what, pattern in TIMES.items() for each in re.findall(pattern, text)]
    hours = {3600 * 10**power for power in (0, 3, 6)}
    times = [(what, each) for what, each in times if not (each.isdigit() and any(int(each) % hour == 0 for hour in hours))]
    numbers = re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", text)
    return times + [("a number with a time in it", each) for each in numbers if UUID(each).version != 4]


@pytest.mark.parametrize("form", ["console", "json"])
def test_no_line_tells_when_an_upload_came(tmp_path, form):
    """All processes of an installation at `debug`, with an access log, while devices send, are refused and are counted."""
    registry_file = tmp_path / "metrics.toml"
    registry_file.write_text(REGISTRY, "utf-8")
    bind = f"127.0.0.1:{free_port()}"
    command = [
        sys.executable,
        "-m",
        "deniable",
        "serve",
        "--registry",
        registry_file,
        "--bind",
        bind,
        "--data",
        tmp_path / "data",
    ]
    settings = {"DENIABLE_LOG_LEVEL": "debug", "DENIABLE_LOG_FORMAT": form, "GUNICORN_CMD_ARGS": "--access-logfile -"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DENIABLE_")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment | settings)
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(process.stdout))
    reader.start()

    def await_(words):
        deadline = time.monotonic() + 120
        while not any(words in line for line in list(lines)):
            assert process.poll() is None, lines
            assert time.monotonic() < deadline, "\n".join(lines[-25:])
            time.sleep(0.05)

    try:
        await_("Ctrl-C")
        dsn = re.search(r"DSN: +(\S+)", "".join(lines))[1]
        first = len(lines)
        with deniable.Client(dsn=dsn, registry=registry_file, consent=True, state=None, strict=True) as client:
            client.record("export.used", value=True)
            assert client.flush(60)
        requests.post(f"http://{bind}/v1/reports", data=b"x", timeout=300)
        requests.post(f"http://{bind}/v1/reports", headers={"X-Long": "x" * 5000}, timeout=300)
        await_("counted 1 report")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        reader.join()
        process.stdout.close()
    text = "".join(lines[first:])
    assert "/v1/reports" in text  # of the server
    assert re.search(r"POST 202 \d+ bytes", text)  # of the access log
    assert "counted 1 report" in text  # of the worker
    assert finer("".join(each for each in lines if bind not in each)) == []


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-21T20:15Z",
        "2026-11-21T20:00:00.123Z",
        "[21/Nov/2026:20:15:04 +0000]",
        "1795291204",
        "1795291204123-0",
        "took 1.9 ms",
        '"ms": 1.9',
        "0193546e-2d70-7c55-9a5b-0f5b3c1f4a52",
    ],
)
def test_a_finer_time_would_be_noticed(line):
    """A time of day, a moment since 1970, a duration, and a number that was made from a time."""
    assert finer(line) != []
    assert finer("2026-11-21T20:00Z info 1795291200000-7 0b6c7f0e-7d0f-4c55-9a5b-0f5b3c1f4a52 counted 10 reports") == []
