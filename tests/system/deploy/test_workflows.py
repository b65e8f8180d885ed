""".github: what GitHub runs, as far as it can be read without GitHub."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml
from schemas import check_files
from shipped import DEPLOY, ROOT, stages

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
ACTIONS = sorted(GITHUB.glob("actions/*/action.yml"))
FORMS = sorted(each for each in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if each.name != "config.yml")
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "custom.github-workflows-require-timeout": WORKFLOWS,
    "vendor.github-actions": ACTIONS,
    "vendor.dependabot": [GITHUB / "dependabot.yml"],
    "vendor.github-issue-forms": FORMS,
    "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@cache
def workflow(name: str) -> dict:
    """Read a workflow; `on` is a truth value in YAML 1.1, so its key is put right."""
    read = yaml.safe_load((GITHUB / "workflows" / f"{name}.yml").read_text("utf-8"))
    return {"on" if key is True else key: value for key, value in read.items()}


def jobs():
    """List every job: its workflow's name, its own, and what it says."""
    return [(path.stem, name, job) for path in WORKFLOWS for name, job in workflow(path.stem)["jobs"].items()]


def lines(name: str) -> str:
    """Join all that the jobs of a workflow run."""
    return "\n".join(step.get("run", "") for of, _, job in jobs() if of == name for step in job.get("steps", ()))


def tasks(text: str) -> set[str]:
    """Find the tasks that lines have `just` do; an argument would be taken for one, so there is none."""
    return {task for names in re.findall(r"^\s*just (.+)$", text, re.MULTILINE) for task in names.split()}


def needed(job: str) -> set[str]:
    """Return the jobs of a release that have succeeded when this one begins."""
    named = workflow("release")["jobs"][job].get("needs", [])
    direct = {named} if isinstance(named, str) else set(named)
    return direct.union(*map(needed, direct))


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_file_keeps_the_schema(schema):
    """Workflows, with a time limit for each job, our action, Dependabot's settings, and the forms of issues."""
    assert SCHEMAS[schema]
    check_files(schema, *SCHEMAS[schema])


def test_zizmor_finds_nothing():
    """No workflow lets what others wrote run, keeps a password where a later step finds it, or takes a release from a cache."""
    command = [Path(sys.executable).parent / "zizmor", "--offline", "--no-progress", "--color", "never", GITHUB]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout


def test_what_others_make_is_pinned_to_the_byte():
    """Each action of somebody else has a commit for machines and a version for people, one for all; ours are there."""
    pinned: dict[str, set[str]] = {}
    for path in [*WORKFLOWS, *ACTIONS]:
        for uses in re.findall(r"^ *(?:- )?uses: (.+)$", path.read_text("utf-8"), re.MULTILINE):
            if uses.startswith("./"):
                assert (ROOT / uses).exists(), uses
                continue
            pin = re.fullmatch(r"([\w-]+/[\w-]+)@([0-9a-f]{40} # v\d+\.\d+\.\d+)", uses)
            assert pin, f"{path.name}: {uses}"
            pinned.setdefault(pin[1], set()).add(pin[2])
    assert pinned
    assert {action: each for action, each in pinned.items() if len(each) > 1} == {}


def test_a_job_may_read_the_source_and_no_more():
    """A workflow has no permission; each job names its own. Only jobs of a release write, and none of them before the checks."""
    for path in WORKFLOWS:
        assert workflow(path.stem)["permissions"] == {}, path.name
    may = {(of, name): job["permissions"] for of, name, job in jobs()}
    writing = {key for key, permissions in may.items() if set(permissions.values()) - {"read"}}
    assert {of for of, _ in writing} == {"release"}
    assert all("checks" in needed(name) for _, name in writing)
    assert all(permissions == {"contents": "read"} for key, permissions in may.items() if key not in writing)


def test_what_publishes_needs_all_checks():
    """A push, a pull request and a release have the same checks; none of them may fail, be left out, or run only at times."""
    for name in ("ci", "release"):
        checks = workflow(name)["jobs"]["checks"]
        assert checks["uses"] == "./.github/workflows/checks.yml"
        assert "if" not in checks
    assert set(workflow("ci")["on"]) == {"push", "pull_request"}
    assert set(workflow("checks")["on"]) == {"workflow_call"}
    text = (GITHUB / "workflows" / "checks.yml").read_text("utf-8")
    assert not re.search(r"continue-on-error|^ +(- )?if:|paths(-ignore)?:|\|\|", text, re.MULTILINE)
    assert {"image", "provenance", "pypi"} <= needed("release")
    assert {"npm", "pypi"} <= needed("release")
    assert {"image", "provenance", "checks"} <= needed("pypi") & needed("npm")


def test_every_promised_python_and_system_is_tested():
    """The suite runs on each Python that the package names; the SDK on the three systems, on the lowest and the newest."""
    promised = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    checks = workflow("checks")["jobs"]
    assert checks["test"]["strategy"]["matrix"]["python"] == promised
    assert {"python": checks["sdk"]["strategy"]["matrix"]["python"]} == {"python": [promised[0], promised[-1]]}
    assert {each.partition("-")[0] for each in checks["sdk"]["strategy"]["matrix"]["system"]} == {"ubuntu", "macos", "windows"}
    [action] = [yaml.safe_load(path.read_text("utf-8")) for path in ACTIONS]
    image = re.search(r"^ARG PYTHON=python:(\d+\.\d+)\.", (DEPLOY / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert action["inputs"]["python"]["default"] == image[1]


def test_jobs_do_tasks_that_there_are():
    """Each `just` names tasks of the justfile, and each script is one that can be run."""
    listed = subprocess.run(
        [Path(sys.executable).parent / "just", "--summary"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
    )
    every = "\n".join([*(lines(path.stem) for path in WORKFLOWS), *(path.read_text("utf-8") for path in ACTIONS)])
    assert tasks(every)
    assert tasks(every) <= set(listed.stdout.split())
    scripts = set(re.findall(r"(?:^|\s)(\.ci/\S+)", every))
    assert scripts == {".ci/notes.py", ".ci/sdk", ".ci/tools"}
    assert all((ROOT / each).is_file() for each in scripts)
    assert all((ROOT / each).stat().st_mode & 0o111 for each in scripts if not each.endswith(".py"))


def test_every_check_has_its_job():
    """What must pass before a commit, and what .ci/run does beside the tests, is checked on GitHub, too."""
    local = set(re.findall(r'for tasks in (".+); do', (ROOT / ".ci" / "run").read_text("utf-8"))[0].replace('"', "").split())
    assert {"lint", "types", "contracts", "docs", "wheel", "scan"} <= local
    assert tasks(lines("checks")) == local | {"test", "test-system", "sbom", "npm"}
    assert tasks(lines("nightly")) == {"nightly", "scan"}


@pytest.mark.parametrize("name", ["checks", "release"])
def test_all_images_are_built(name):
    """What is built before a release is what a release publishes: these stages, and no other."""
    job = workflow(name)["jobs"]["image"]
    assert set(job["strategy"]["matrix"]["target"]) == {"ingest", "full", "relay"} <= set(stages())
    [built] = [step["with"] for step in job["steps"] if step.get("uses", "").startswith("docker/build-push-action@")]
    assert (built["context"], built["file"], built["target"]) == (".", "deploy/Dockerfile", "${{ matrix.target }}")
    assert built.get("push", False) == (name == "release")
    if name == "release":
        assert (built["provenance"], built["sbom"]) == ("mode=max", True)


def test_what_is_published_is_what_was_checked():
    """What goes to PyPI, npm and the release are files that the checks left, and a release names none that nobody made."""
    uploads = {
        step["with"]["name"]
        for of in ("checks", "release")
        for job in workflow(of)["jobs"].values()
        for step in job.get("steps", ())
        if step.get("uses", "").startswith("actions/upload-artifact@")
    }
    taken = [
        step["with"]
        for job in workflow("release")["jobs"].values()
        for step in job.get("steps", ())
        if step.get("uses", "").startswith("actions/download-artifact@")
    ]
    names = {name for each in taken for name in re.findall(r"\w+", each.get("name") or each["pattern"])}
    assert names == uploads == {"dist", "notes", "npm", "sbom"}
    assert "just wheel" not in lines("release")


def test_dependabot_looks_at_every_kind():
    """Actions, packages, and the images of Dockerfile, Compose and Kubernetes; each folder is there."""
    updates = yaml.safe_load((GITHUB / "dependabot.yml").read_text("utf-8"))["updates"]
    assert {each["package-ecosystem"] for each in updates} == {"github-actions", "pip", "npm", "docker", "docker-compose"}
    folders = {folder for each in updates for folder in each.get("directories") or [each["directory"]]}
    assert all((ROOT / folder.lstrip("/")).is_dir() for folder in folders)
    with_images = {
        f"/{path.parent.relative_to(ROOT)}"
        for path in DEPLOY.rglob("*.yaml")
        if "private" not in path.parts and re.search(r"^ *(?:- )?image: \S+@sha256:", path.read_text("utf-8"), re.MULTILINE)
    }
    assert with_images <= folders


def test_forms_ask_for_no_answers():
    """Whoever reports a fault is told what not to show, and where a vulnerability belongs: at the project's own address."""
    text = (GITHUB / "ISSUE_TEMPLATE" / "bug.yml").read_text("utf-8")
    assert all(word in text for word in ("keys", "DSNs", "passwords", "answers"))
    source = PROJECT["urls"]["Source"]
    config = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / "config.yml").read_text("utf-8"))
    addresses = [link["url"] for link in config["contact_links"]]
    assert addresses[0] == f"{source}/security/advisories/new"
    assert addresses[0] in text
    assert all(each.startswith((source, PROJECT["urls"]["Documentation"])) for each in addresses)
    assert "CHANGELOG.md" in (GITHUB / "PULL_REQUEST_TEMPLATE.md").read_text("utf-8")
