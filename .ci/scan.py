"""Look at what the images are built of: whether it can be installed, its licences, and its known vulnerabilities.

The pins are tried on the lowest Python that is promised and that this machine has. Known vulnerabilities are asked for at
OSV, else at PyPI. Where neither can be reached, this is said, and is no failure; a finding is one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PINS = ("requirements.txt", "requirements-ingest.txt", "requirements-relay.txt", "requirements-build.txt")
SERVICES = ("osv", "pypi")
INSTALL_SECONDS, AUDIT_SECONDS = 1500, 15  # the first only ends what hangs: it runs beside all tests, at a low priority
NEWEST = 20  # minor version of Python 3 up to which one is looked for

# As packages write them. Before another is added, somebody reads it: it must allow use in a work under Apache-2.0.
LICENCES = frozenset(
    {
        "Apache Software License",
        "Apache-2.0",
        "Apache-2.0 AND BSD-2-Clause",
        "Apache-2.0 OR BSD-2-Clause",
        "Apache-2.0 OR BSD-3-Clause",
        "BSD License",
        "BSD-2-Clause",
        "BSD-2-Clause AND Apache-2.0 WITH LLVM-exception",
        "BSD-3-Clause",
        "BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0",
        "MIT",
        "MIT License",
        "MIT-0",
        "Mozilla Public License 2.0 (MPL 2.0)",  # certifi: a list of certificates, used as it is
        "MPL-2.0",
        "PSF-2.0",
    }
)
_UNREACHED = re.compile(r"ConnectionError|Timeout|ProxyError|SSLError|Failed to connect|Failed to resolve|Max retries|HTTPError")


class Audit(NamedTuple):
    """What an index of advisories knows."""

    findings: list[str]
    checked: int
    skipped: list[str]


def lowest_python() -> tuple[str, tuple[int, int]]:
    """Return the lowest Python on this machine that the project promises to run on, and its version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    match = re.fullmatch(r">=3\.(\d+)", project["requires-python"])
    if match is None:
        sys.exit(f"requires-python is read as >=3.N; got {project['requires-python']}")
    for minor in range(int(match[1]), NEWEST):
        name = f"python3.{minor}"
        try:
            done = subprocess.run(
                [name, "-c", "import venv, ensurepip"], capture_output=True, timeout=INSTALL_SECONDS, check=False
            )
        except OSError:
            continue
        if done.returncode == 0:  # a shim of pyenv may be there and have no Python behind it
            return name, (3, minor)
    sys.exit(f"no Python {project['requires-python']} with venv is on PATH")


def install(python: Path, what: str, *arguments: str | Path) -> None:
    """Have pip install something; end the program with what it says if it cannot."""
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        sys.exit(f"{what} cannot be installed: no end within {INSTALL_SECONDS} s")
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        sys.exit("\n".join([f"{what} cannot be installed:", *errors]))


def try_install(python: Path, pins: Path, report: Path) -> list[dict[str, Any]]:
    """Resolve a lock file as the image's build does, without installing; return each package's metadata."""
    only = ["--dry-run", "--ignore-installed", "--require-hashes", "--only-binary", ":all:"]
    install(python, str(pins), *only, "--report", report, "-r", pins)
    return [each["metadata"] for each in json.loads(report.read_text("utf-8"))["install"]]


def licence(metadata: dict[str, Any]) -> str:
    """Return what a package says of its licence: the expression, else the classifiers, else the field of free text."""
    if metadata.get("license_expression"):
        return str(metadata["license_expression"])
    classifiers = [each for each in metadata.get("classifier", ()) if each.startswith("License :: ")]
    named = sorted({each.rpartition(" :: ")[2] for each in classifiers} - {"OSI Approved"})
    return " AND ".join(named) or str(metadata.get("license") or "none stated").splitlines()[0]


def audited(stdout: str, stderr: str) -> Audit | str:
    """Read what pip-audit answered; a text says why nothing was checked.

    Raises
    ------
    ValueError
        If it failed for another reason than that no index could be reached.
    """
    try:
        packages = json.loads(stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (stderr.strip().splitlines() or ["it said nothing"])[-1]
        if _UNREACHED.search(stderr):
            return last[:120]
        raise ValueError(f"pip-audit failed: {last}") from None
    skipped = [f"{each['name']}: {each['skip_reason']}" for each in packages if "skip_reason" in each]
    if len(skipped) == len(packages):
        return f"it knows none of {len(packages)} packages, such as {skipped[0]}"[:120] if skipped else "no package was given"
    findings = [
        f"{each['name']} {each['version']}: {advisory['id']}, mended in {', '.join(advisory['fix_versions']) or 'no version yet'}"
        for each in packages
        for advisory in each.get("vulns", ())
    ]
    return Audit(findings, len(packages) - len(skipped), skipped)


def audit(python: Path, pins: list[Path]) -> Audit | str:
    """Ask each index of advisories in turn until one answers."""
    reasons = []
    for service in SERVICES:
        command = [python, "-m", "pip_audit", "--disable-pip", "--progress-spinner", "off", "--timeout", "5", "-s", service]
        command += ["-f", "json", *(argument for each in pins for argument in ("-r", each))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=AUDIT_SECONDS, check=False)
            answer = audited(done.stdout, done.stderr)
        except subprocess.TimeoutExpired:
            answer = f"no answer in {AUDIT_SECONDS} s"
        if isinstance(answer, Audit):
            return answer
        reasons.append(f"{service}: {answer}")
    return "; ".join(reasons)


def main() -> int:
    """Look at all three; return 1 for a finding."""
    name, version = lowest_python()
    pins = [ROOT / "deploy" / name for name in PINS]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        subprocess.run([name, "-m", "venv", home / "venv"], check=True, timeout=INSTALL_SECONDS)
        python = home / "venv" / "bin" / "python"
        # A pip older than 25 leaves the newer field of the licence out of its report.
        install(python, "what looks at them", "pip>=25", "pip-audit")
        installed = [package for lock in pins for package in try_install(python, lock, home / "report.json")]
        packages = {package["name"]: package for package in installed}.values()
        print(f"pins: {', '.join(PINS)} can be installed on Python {version[0]}.{version[1]}, the lowest promised one here")
        strange = sorted({f"{each['name']}: {licence(each)}" for each in packages if licence(each) not in LICENCES})
        print(f"licences: {len(packages)} packages, {len(strange)} of a licence that nobody has looked at")
        outcome = audit(python, pins)
    if isinstance(outcome, str):
        print(f"vulnerabilities: NOT CHECKED, as no index of advisories can be reached from here ({outcome})")
        findings = []
    else:
        findings = outcome.findings
        unchecked = outcome.skipped or "none"
        print(f"vulnerabilities: {outcome.checked} packages checked, {len(findings)} known; not checked: {unchecked}")
    for finding in (*strange, *findings):
        print(f"  {finding}")
    return 1 if strange or findings else 0


if __name__ == "__main__":
    sys.exit(main())
