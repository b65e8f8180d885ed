"""The guide's promises: its example runs, its registry is sound, and every reason that it explains exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deniable import mechanisms, registry
from deniable.lint import lint
from deniable.testing import StubServer

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "how-to" / "embed.md").read_text("utf-8")


def block(language, after=""):
    match = re.search(rf"{after}.*?```{language}\n(.*?)```", GUIDE, re.DOTALL)
    assert match
    return match[1]


def test_the_registry_is_sound(tmp_path):
    """The guide's registry has neither faults nor warnings."""
    path = tmp_path / "metrics.toml"
    path.write_text(block("toml"), "utf-8")
    report = lint(path)
    assert (report.faults, report.warnings) == ((), ())


def test_the_example_runs(tmp_path):
    """The guide's example sends one report, explains it, counts the second as of the same period, and lists what was sent."""
    (tmp_path / "metrics.toml").write_text(block("toml"), "utf-8")
    with StubServer(registry.load(tmp_path / "metrics.toml")) as server:
        example = block("python", "<!-- embed example -->").replace("https://PUBLIC_KEY@telemetry.example.org/shop", server.dsn)
        done = subprocess.run(
            [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
    assert done.returncode == 0, done.stderr
    dropped, again = done.stderr.splitlines()
    assert dropped.startswith("deniable: ui.theme: this_period: ")
    assert again.startswith("deniable: while developing: this_period: ")
    assert "all reports of one answer, however many" in done.stdout
    assert "\n1 10.0\n" in done.stdout  # of this period already; spent over the lifetime: five kept responses at once
    assert re.search(r"ui.theme for \d{4}-W\d\d: says [a-z ]+, sent as bytes 0[0-4]$", done.stdout.strip())
    assert len(server.reports) == 1


@pytest.mark.parametrize(("host", "lines"), [("https://k@t.example", 0), ("http://k@localhost:9", 1), ("https://k@[::1]:9", 1)])
def test_who_sees_warnings_without_logging(tmp_path, host, lines):
    """An app that has set up no logging prints nothing on people's devices, and each reason once while it is developed."""
    (tmp_path / "metrics.toml").write_text(block("toml"), "utf-8")
    code = f"import deniable\ndeniable.init({host + '/shop'!r}, registry='metrics.toml', consent=False)\n"
    code += "for _ in range(3): assert not deniable.record('ui.theme', 'dark')\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == ""
    assert [line.startswith("deniable: all metrics: no_consent: ") for line in done.stderr.splitlines()] == [True] * lines


def test_the_table_of_reports_needed():
    """The numbers of reports in the guide are what the exact variance asks for."""
    for epsilon, written in re.findall(r"^\| ([\d.]+) \|.*\| ([\d,]+) \|$", GUIDE, re.MULTILINE):
        mechanism = mechanisms.choose(domain_size=8, epsilon=epsilon).mechanism
        needed = (1.96 / 0.02) ** 2 * (mechanism.variance(0.1, 1) + 0.1 * 0.9)
        assert abs(int(written.replace(",", "")) / needed - 1) < 0.03


def test_links_lead_somewhere():
    """Every relative link leads to a file of a checkout. Pages that only `just docs` makes are linked by their address."""
    only_built = re.compile(r"docs/reference/(mechanisms/|(commands|accuracy)\b)")
    for page in [*(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").glob("*.md"), *ROOT.glob("*.md")]:
        if only_built.match(page.relative_to(ROOT).as_posix()):
            continue
        links = re.findall(r"\]\(([^)#]+)", re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL))
        files = [os.path.normpath(page.parent / link) for link in links if "://" not in link]
        lost = [file for file in files if not Path(file).exists() or only_built.match(Path(file).relative_to(ROOT).as_posix())]
        assert lost == [], page
