""".ci: tools that cannot be had end CI, and a release without notes does not begin; and the bill of materials has every pin."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shipped import DEPLOY, ROOT

TOOLS = (
    "redis-server",
    "redis-cli",
    "strace",
    "openssl",
    "systemd-analyze",
    "chromium",
    "firefox",
    "ssconvert",
    "cc",
    "node",
    "npm",
    "promtool",
    "caddy",
)
SPEC = importlib.util.spec_from_file_location("notes", ROOT / ".ci" / "notes.py")
notes = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(notes)


def bring(folder, *, there, apt="exit 0"):
    """Run .ci/tools where nothing is on PATH but these tools and an apt-get that does as it is told; return how it ended."""
    path = folder / "bin"
    path.mkdir()
    for name in ("bash", "env", "id", "mkdir"):
        (path / name).symlink_to(shutil.which(name))
    for name, does in ({"apt-get": f'echo "$*" >>{folder}/asked; {apt}', "dpkg": "exit 0", "sudo": 'exec "$@"'} | there).items():
        (path / name).write_text(f"#!{shutil.which('bash')}\n{does}\n")
        (path / name).chmod(0o755)
    command = [path / "bash", ROOT / ".ci" / "tools", folder / "tools"]
    return subprocess.run(command, env={"PATH": str(path)}, capture_output=True, text=True, timeout=300, check=False)


def present(*names):
    return dict.fromkeys(names, "exit 0")


def test_nothing_is_asked_for_where_all_is_there(tmp_path):
    """On a machine with every tool it ends at once."""
    done = bring(tmp_path, there=present(*TOOLS))
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("missing", TOOLS)
def test_a_tool_that_is_missing_after_installing_fails(tmp_path, missing):
    """Apt says that all is well, and still the tool is not there: this names it."""
    done = bring(tmp_path, there=present(*(each for each in TOOLS if each != missing)))
    assert done.returncode == 1
    assert done.stderr.startswith(f"not on PATH after installing: {missing} ")


@pytest.mark.parametrize("step", ["update", "install", "download"])
def test_an_error_of_apt_ends_it(tmp_path, step):
    """Whichever step fails, what apt says is the end."""
    done = bring(tmp_path, there={}, apt=f'case "$*" in *{step}*) exit 100 ;; esac')
    assert done.returncode == 100
    assert (tmp_path / "asked").read_text("utf-8").splitlines()[-1].find(step) >= 0


CHANGELOG = "# Changelog\n\n## 0.2.0 (2027-01-31)\n\n- New.\n\n### More\n\n- Text.\n\n## 0.1.0 (not released yet)\n\nThe first.\n"


def test_notes_are_a_versions_section_of_the_changelog():
    """With its parts, up to the version before."""
    assert notes.notes("v0.2.0", '__version__ = "0.2.0"\n', CHANGELOG) == "- New.\n\n### More\n\n- Text."


@pytest.mark.parametrize(
    ("tag", "version", "message"),
    [
        ("v0.2.0", "0.2.1", "got v0.2.0 for 0.2.1"),
        ("0.2.0", "0.2.0", "got 0.2.0 for 0.2.0"),
        ("v0.1.0", "0.1.0", "no '## 0.1.0 "),
        ("v0.3.0", "0.3.0", "no '## 0.3.0 "),
    ],
)
def test_a_tag_that_is_no_released_version_is_refused(tag, version, message):
    """Another version than the package's, one that the changelog does not know, and one that it calls not released."""
    with pytest.raises(ValueError, match=re.escape(message)):
        notes.notes(tag, f'__version__ = "{version}"\n', CHANGELOG)


def test_the_bill_of_materials_has_every_pin(tmp_path):
    """`just sbom` writes CycloneDX: each package of the lock file in its version, with its hashes."""
    just = [Path(sys.executable).parent / "just", "--justfile", ROOT / "justfile", "--working-directory", tmp_path, "sbom"]
    (tmp_path / "deploy").symlink_to(DEPLOY)
    (tmp_path / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    subprocess.run(just, env=environment, check=True, capture_output=True, timeout=300)
    bill = json.loads((tmp_path / "sbom" / "deniable.cdx.json").read_text("utf-8"))
    pinned = re.findall(r"^([\w.-]+)==(\S+)", (DEPLOY / "requirements.txt").read_text("utf-8"), re.MULTILINE)
    assert sorted((each["name"], each["version"]) for each in bill["components"]) == sorted(pinned)
    assert all(each["externalReferences"][0]["hashes"] for each in bill["components"])
    assert bill["metadata"]["component"]["name"] == "deniable"
