"""The package for npm, built once from its lock file in a folder of the test run's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from npm import ROOT, SOURCE, run
from waiting import new_profile
from webpage import FLAGS, Site

OLDEST = 20
MADE = ("node_modules", "build", "dist")


@pytest.fixture(scope="session")
def node():
    """Return Node. CI fails without one: tests that skip themselves would pass unseen."""
    program = shutil.which("node")
    if program is None or shutil.which("npm") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("node and npm are not on PATH; .ci/tools brings them")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=300, check=True).stdout
    assert int(version[1:].partition(".")[0]) >= OLDEST, f"{program} is {version}"
    return program


@pytest.fixture(scope="session")
def package(node, tmp_path_factory):  # noqa: ARG001
    """Return the folder of the package, with its tools and built; tests that run beside each other share it."""
    import fcntl

    folder = tmp_path_factory.getbasetemp().parent / "typescript"
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns(*MADE))
            run("npm", "ci", "--ignore-scripts", cwd=folder)
            run("npm", "run", "build", cwd=folder)
            run("npx", "tsc", "-p", "tsconfig.json", cwd=folder)  # of the tests, and so of the types
            (folder / "done").touch()
    return folder


@pytest.fixture(scope="module")
def bundle(package):
    run("npx", "esbuild", "--bundle", "dist/script.js", "--format=esm", "--minify", "--outfile=build/page.js", cwd=package)
    return (package / "build" / "page.js").read_bytes()


@pytest.fixture
def site(bundle):
    with Site(bundle) as running:
        yield running


@pytest.fixture(scope="module")
def browser():
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no chromium on PATH (apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright (pip install playwright)")
    with playwright.sync_playwright() as driver:
        # Playwright would switch off the cache that "back" reads.
        hidden = ["--disable-back-forward-cache"]
        started = driver.chromium.launch(executable_path=program, args=FLAGS, ignore_default_args=hidden)
        yield started
        started.close()


@pytest.fixture
def context(browser):
    """Make a new profile."""
    profile = new_profile(browser)
    yield profile
    profile.close()


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """Run the whole service with the registry of the vectors."""
    from deniable_aggregator.process.ports import free_port
    from deniable_server.local.stack import Stack
    from deniable_server.settings import Settings

    folder = tmp_path_factory.mktemp("stack")
    (folder / "metrics.toml").write_text((ROOT / "tests" / "vectors" / "wire.toml").read_text("utf-8"), "utf-8")
    for name, content in (("words.txt", "word\n"), ("short.txt", "word\n"), ("numbers.txt", "42\n")):
        (folder / name).write_text(content, "utf-8")
    settings = Settings(
        registry=str(folder / "metrics.toml"),
        ingest_keys="shop:pk_public",
        read_keys="shop:rk_example_key",
        rate_limit_source="off",
    )
    with Stack(settings, bind=f"127.0.0.1:{free_port()}", log_file=folder / "log") as running:
        yield running
