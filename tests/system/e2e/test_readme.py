"""The README's promises: its example runs against real processes, and what it says exists does."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from deniable.commands.entry import main
from deniable.lint import lint
from deniable.registry import load
from deniable_aggregator.process.ports import free_port
from deniable_query import Query
from deniable_server.local.stack import Stack
from deniable_server.settings import Settings

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text("utf-8")


def block(marker, language):
    match = re.search(rf"<!-- {marker} -->\n```{language}\n(.*?)```", README, re.DOTALL)
    assert match, f"the README has no block marked {marker}"
    return match[1]


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """Run the whole service with the README's registry, as whoever tries it out does."""
    folder = tmp_path_factory.mktemp("stack")
    (folder / "metrics.toml").write_text(f"{block('registry', 'toml')}\n{block('trial', 'toml')}", "utf-8")
    settings = Settings(
        registry=str(folder / "metrics.toml"),
        ingest_keys="shop:pk_example_key",
        read_keys="shop:rk_example_key",
        dashboard="open",
    )
    with Stack(settings, bind=f"127.0.0.1:{free_port()}", log_file=folder / "log") as running:
        yield running


def read(stack, path):
    return requests.get(f"{stack.url}{path}", headers={"Authorization": "Bearer rk_example_key"}, timeout=300)


def test_the_sdk_example_reaches_the_page(stack, tmp_path):
    """The example, with this server's address, sends two reports that a trial shows at once, and explains itself."""
    example = block("sdk example", "python").replace(
        "https://PUBLIC_KEY@telemetry.example.org/", f"http://pk_example_key@{stack.bind}/"
    )
    (tmp_path / "metrics.toml").write_text(block("registry", "toml"), "utf-8")
    done = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "at most 2.72 times" in done.stdout
    assert done.stderr == ""
    deadline = time.monotonic() + 120  # the first count of all compiles its kernel
    while read(stack, "/api/v1/metrics/export.used").json()["n"] < 1:
        stack.check()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    theme = read(stack, "/api/v1/metrics/ui.theme").json()
    assert (theme["n"], theme["segments"]) == (1, [])
    frame = Query(stack.url, "rk_example_key").metric("ui.theme").by("time").frame()
    assert (frame["n"][0], frame["state"][0]) == (1, "published")
    page = requests.get(f"{stack.url}/m/ui.theme", timeout=300)
    assert page.status_code == 200
    assert "Which theme people use" in page.text


def test_the_first_report_of_a_served_app(stack, tmp_path):
    """The lines with which an operator tries the service say what the page says of them."""
    page = (ROOT / "docs" / "how-to" / "operate" / "first-service.md").read_text("utf-8")
    (lines,) = re.findall(r"<!-- first report -->\n```python\n(.*?)```", page, re.DOTALL)
    here = lines.replace("https://pk_...@telemetry.shop.example/", f"http://pk_example_key@{stack.bind}/")
    (tmp_path / "metrics.toml").write_text(block("registry", "toml"), "utf-8")
    done = subprocess.run([sys.executable, "-c", here], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.stderr) == ("arrived: 1 report (ui.theme)\n", "")
    assert done.stdout.strip() in lines


def test_the_first_page_of_the_site_has_the_same_example():
    """So it can be read in a checkout, and the README's tests are also about it."""
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    assert f"```python\n{block('sdk example', 'python')}```" in index


@pytest.mark.parametrize(
    "page", ["README.md", "docs/index.md", "docs/tutorials/first-trend.md", "docs/how-to/operate/install.md"]
)
def test_before_the_first_release_a_clone_stands_for_it(page):
    """Where the package is to be installed from PyPI, the page says what to do until it is there, and no longer."""
    unreleased = "## 0.1.0 (not released yet)" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    text = (ROOT / page).read_text("utf-8")
    assert "pip install 'deniable[serve]'" in text
    assert ("pip install '.[serve]'" in text) is unreleased


def test_the_registry_is_sound(tmp_path):
    """The README's registry has neither faults nor warnings."""
    path = tmp_path / "metrics.toml"
    path.write_text(block("registry", "toml"), "utf-8")
    report = lint(path)
    assert (report.faults, report.warnings) == ((), ())


def test_the_registry_is_what_init_writes(tmp_path, monkeypatch):
    """`deniable init`, as the README has it, writes the registry that the README shows."""
    (command,) = re.findall(r"^deniable (init .*)", README, re.MULTILINE)
    (tmp_path / "readme.toml").write_text(f"{block('registry', 'toml')}\n{block('trial', 'toml')}", "utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 0
    readme, written = load("readme.toml"), load("metrics.toml")
    assert (readme.app, readme.budget, readme.publication) == (written.app, written.budget, written.publication)
    assert list(readme.metrics) == list(written.metrics)
    for id_, metric in readme.metrics.items():
        assert replace(metric, expires=None) == replace(written.metrics[id_], expires=None)


def test_the_example_is_ten_statements_at_most():
    """It stays an example of ten lines or so."""
    assert len([line for line in block("sdk example", "python").splitlines() if line.strip()]) <= 12


def test_links_lead_somewhere():
    """Every link is absolute, so that it works on the package's page, and leads to a page of the site or a file of ours."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    site, files = project["urls"]["Documentation"], f"{project['urls']['Source']}/blob/main/"
    pictures = f"{project['urls']['Source'].replace('github.com', 'raw.githubusercontent.com')}/main/"
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) > 10
    docs = ROOT / "docs"
    pages = {page.relative_to(docs).with_suffix("").as_posix().removesuffix("index").rstrip("/") for page in docs.rglob("*.md")}
    for link in links:
        if link.startswith(site):
            assert link.removeprefix(site).rstrip("/") in pages, link
        else:
            base = files if link.startswith(files) else pictures
            assert link.startswith(base), link
            assert (ROOT / link.removeprefix(base)).is_file(), link
    assert site in (ROOT / "docs" / "conf.py").read_text("utf-8")
    assert site in (ROOT / "client" / "deniable" / "commands" / "init.py").read_text("utf-8")


def test_the_readme_is_short():
    """It is for a newcomer: depth lives on the site."""
    prose = re.sub(r"```.*?```|\(http[^)]*\)", "", README, flags=re.DOTALL)
    assert len(prose.split()) <= 620


def test_pages_of_a_served_instance(stack):
    """Each address of a served instance answers, and gunicorn gives away neither its version nor a trace."""
    assert requests.get(f"{stack.url}/healthz", timeout=300).json() == {"status": "ok"}
    assert requests.get(f"{stack.url}/readyz", timeout=300).json()["status"] == "ok"
    assert read(stack, "/api/v1/metrics").status_code == 200
    assert requests.get(f"{stack.url}/", timeout=300).status_code == 200
    empty = requests.post(f"{stack.url}/v1/reports", data=b"", headers={"Authorization": "Bearer pk_example_key"}, timeout=300)
    assert empty.json()["code"] == "idempotency_key"
