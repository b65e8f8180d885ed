"""The scripts: requests to an adapter, each with the members that its answer must have. They stand beside this module as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from deniable.errors import ConfigurationError

LEVELS = {
    1: "metrics that keep nothing",
    2: "permanent responses",
    3: "numbers, sets, all mechanisms, served restrictions",
    4: "sealed reports for a relay",
}
_VERSION = 1
_FOLDER = Path(__file__).with_name("vectors")


class Script(NamedTuple):
    """Requests that belong together."""

    file: str  # the file it stands in
    about: str
    level: int  # the level that needs it
    sheet: dict[str, Any] | None  # what the adapter must have loaded before
    sheets: bool  # whether it is about how sheets are read; a client may have another way to its registry
    steps: list[dict[str, Any]]  # `ask` or `server`, and `answer`; with `opens` the private key of what is sealed

    @property
    def metrics(self) -> set[str]:
        """The metrics that it asks about."""
        return {step["ask"]["metric"] for step in self.steps if "metric" in step["ask"]}


def load(folder: Path = _FOLDER) -> list[Script]:
    """Read all files, in the order of their names."""
    scripts = []
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text("utf-8"))
        if document["version"] != _VERSION:
            raise ConfigurationError(f"{path.name} has version {document['version']}, and {_VERSION} is read here")
        for entry in document["scripts"]:
            sheet = document["sheets"][entry["sheet"]] if "sheet" in entry else None
            about, level = entry["about"], entry["level"]
            scripts.append(Script(path.stem, about, level, sheet, entry.get("sheets", False), entry["steps"]))
    return scripts
