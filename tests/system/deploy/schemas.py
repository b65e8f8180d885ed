"""Whether files keep the schemas of Kubernetes, Compose and GitHub."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

if TYPE_CHECKING:
    from pathlib import Path


@cache
def _module(name: str) -> Any:
    """Import a checker, when it is needed first."""
    # To make a grammar of web addresses would take three seconds in each process. Addresses have tests of their own.
    sys.modules.setdefault("rfc3987_syntax", None)
    return import_module(name)


def check_resource(resource: dict[str, Any], version: str = "") -> None:
    """Refuse a resource that has a member which Kubernetes does not know, in a version or in the latest that is known."""
    kubernetes = _module("kubernetes_validate")
    kubernetes.validate(resource, version or kubernetes.latest_version(), strict=True)


def check_files(schema: str, *paths: Path) -> None:
    """Refuse files that break a schema that check-jsonschema brings."""
    done = CliRunner().invoke(_module("check_jsonschema").main, ["--builtin-schema", schema, *map(str, paths)])
    assert done.exit_code == 0, done.output
