"""The client in Firefox, which nobody drives here: a page tries everything by itself, and says what it saw."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time

import pytest
from npm import ROOT

WAIT = 120  # seconds for a browser to start and to say what it saw
SETTINGS = """
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("toolkit.telemetry.enabled", false);
user_pref("app.update.enabled", false);
user_pref("browser.aboutwelcome.enabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
"""
TRIAL = """
import "/page.js";
const seen = { faults: window.faults };
const ask = async (name, block) => { try { seen[name] = await block(); } catch (error) { seen[name] = String(error); } };
const receipt = document.querySelector("deniable-receipt");
await ask("recorded", () => telemetry.record("theme", "dark"));
await ask("kept", () => telemetry.record("habit", "a"));
await ask("flushed", () => telemetry.flush());
await ask("sent", () => telemetry.sent().then((reports) => reports.length));
await ask("locks", () => typeof navigator.locks.request);
await ask("zips", () => typeof CompressionStream);
await ask("databases", () => indexedDB.databases().then((each) => each.map(({ name }) => name)));
await ask("receipt", async () => { await receipt.refresh(); return receipt.querySelectorAll("table").length; });
receipt.querySelector("input").click();
await new Promise((resolve) => setTimeout(resolve, 500));
await ask("withdrawn", () => telemetry.agreed());
seen.stats = telemetry.stats();
seen.agent = navigator.userAgent;
await fetch("/result", { method: "POST", body: JSON.stringify(seen) });
"""
PAGE = '<!doctype html><title>A page</title><deniable-receipt></deniable-receipt><script type="module" src="/trial.js"></script>'


@pytest.fixture
def firefox(tmp_path):
    """Return a function that opens an address in a new profile, until the test ends."""
    program = next(filter(None, map(shutil.which, ("firefox-esr", "firefox"))), None)
    if program is None:
        pytest.skip("no firefox on PATH (Debian: apt-get install firefox-esr)")
    profile = tmp_path / "profile"
    profile.mkdir()
    (profile / "user.js").write_text(SETTINGS, "utf-8")
    started = []

    def visit(address):
        command = [program, "--headless", "--no-remote", "--profile", profile, address]
        environment = os.environ | {"HOME": str(tmp_path), "MOZ_HEADLESS": "1"}
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment))

    yield visit
    for process in started:
        process.terminate()
        process.wait(60)


def until(site, count):
    deadline = time.monotonic() + WAIT
    while len(site.results) < count:
        assert time.monotonic() < deadline, "the page said nothing"
        time.sleep(0.2)
    return site.results[count - 1]


def test_firefox_records_and_sends(site, firefox):
    """Under a strict policy: a report arrives, a new state is not asked for kept responses, the receipt shows, a no is a no."""
    site.files["/"] = ("text/html", PAGE.encode())
    site.files["/trial.js"] = ("text/javascript", TRIAL.encode())
    firefox(f"{site.url}/")
    seen = until(site, 1)
    assert "Firefox/" in seen["agent"]
    assert {name: seen[name] for name in ("recorded", "kept", "flushed", "sent", "faults")} == {
        "recorded": True,
        "kept": False,
        "flushed": {"sent": 1, "left": 0, "why": "budget"},
        "sent": 1,
        "faults": [],
    }
    assert (seen["receipt"], seen["withdrawn"], seen["locks"], seen["zips"]) == (2, False, "function", "function")
    assert seen["stats"]["dropped"] == {"budget": 1}
    assert seen["databases"] == ["deniable shop"]
    assert [report.metric for report in site.stub.reports] == ["theme"]


def test_the_laws_hold_in_firefox(site, firefox):
    """The demo's page, which draws 6,000 reports: shares are near the truth in this engine, too."""
    folder = ROOT / "server" / "deniable_server" / "web" / "demo"
    site.policy += "; style-src 'self'"
    watch = b"""addEventListener("load", () => setTimeout(() => {
      const rows = [...document.querySelectorAll("#charts tbody tr")].map((row) => row.cells[2].innerText);
      fetch("/result", { method: "POST", body: JSON.stringify(rows) });
    }, 500));"""
    page = (folder / "demo.html").read_bytes().replace(b"</head>", b'<script src="watch.js"></script></head>')
    site.files |= {
        "/": ("text/html", page),
        "/demo.js": ("text/javascript", (folder / "demo.js").read_bytes()),
        "/demo.css": ("text/css", (folder / "demo.css").read_bytes()),
        "/watch.js": ("text/javascript", watch),
    }
    firefox(f"{site.url}/")
    shares = [float(text.removesuffix("%")) for text in until(site, 1)]
    truth = [85, 15, 35, 45, 20, 25, 40, 25, 10]
    assert all(abs(share - true) < 20 for share, true in zip(shares, truth, strict=True)), json.dumps(shares)
