"""Registries as text: what a test is about is written there, and what every metric must have is added here."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

ABOUT = {"description": "A question of the tests", "owner": "o@shop.example"}


def metric_toml(id_: str, /, **keys: Any) -> str:
    """Return the table of a metric: of yes or no unless its keys tell another type, and of epsilon 1 where none is told."""
    type_ = "categorical" if "values" in keys else "number" if "range" in keys else "boolean"
    epsilon = {} if "epsilon" in keys or keys.get("mechanism") == "coin" else {"epsilon": 1.0}
    about = {key: keys.pop(key, default) for key, default in ABOUT.items()}
    return _table(f'metrics."{id_}"', {"type": type_} | keys | epsilon | about)


def registry_toml(*metrics: str, app: str = "shop", **tables: dict[str, Any]) -> str:
    """Return a registry of metrics, with other tables before them, such as ``segments``."""
    return "\n".join([f'format = 1\napp = "{app}"\n', *(_table(name, keys) for name, keys in tables.items()), *metrics])


def _table(name: str, keys: dict[str, Any]) -> str:
    tables = {key: value for key, value in keys.items() if isinstance(value, dict)}
    lines = [f"{key} = {_value(value)}\n" for key, value in keys.items() if key not in tables]
    return f"[{name}]\n{''.join(lines)}" + "".join(f"\n{_table(f'{name}.{key}', value)}" for key, value in tables.items())


def _value(value: object) -> str:
    return str(value) if isinstance(value, date | float) else json.dumps(value, ensure_ascii=False)
