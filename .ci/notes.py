"""Print what the changelog says of a version, as `notes.py v1.2.3`.

It fails if that is not the version of the package, or if the changelog does not have it as released.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def notes(tag: str, package: str, changelog: str) -> str:
    """Return the section of a version, given the source that has the package's version.

    Raises
    ------
    ValueError
        If the tag is not the package's version, or the changelog has no section of it with a date.
    """
    match = re.search(r'^__version__ = "(.+)"$', package, re.MULTILINE)
    if match is None or tag != f"v{match[1]}":
        raise ValueError(f"the tag is v and the package's version; got {tag} for {match and match[1]}")
    heading = rf"^## {re.escape(match[1])} \(\d{{4}}-\d{{2}}-\d{{2}}\)\n"
    section = re.search(rf"{heading}(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if section is None or not section[1].strip():
        raise ValueError(
            f"CHANGELOG.md tells what is in a version below its day; it has no '## {match[1]} (2026-12-31)' with text below"
        )
    return section[1].strip()


if __name__ == "__main__":
    try:
        print(
            notes(
                sys.argv[1],
                (ROOT / "client/deniable/__init__.py").read_text("utf-8"),
                (ROOT / "CHANGELOG.md").read_text("utf-8"),
            )
        )
    except ValueError as error:
        sys.exit(str(error))
