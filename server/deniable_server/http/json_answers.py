"""How answers are written as JSON."""

from __future__ import annotations

from datetime import date
from math import isnan
from typing import Any

from flask.json.provider import DefaultJSONProvider
from msgspec import Struct
from msgspec.structs import astuple


def _written(value: Any) -> Any:
    """Return a struct as its members, with null for nan, which JSON lacks, and dates and times as in ISO 8601."""
    if isinstance(value, Struct):
        return dict(zip(value.__struct_encode_fields__, map(_number, astuple(value)), strict=True))
    return value.isoformat() if isinstance(value, date) else DefaultJSONProvider.default(value)


def _number(value: Any) -> Any:
    if type(value) is tuple:
        return [_number(each) for each in value]
    return None if type(value) is float and isnan(value) else value


class JSONAnswers(DefaultJSONProvider):
    """Flask's JSON, with structs."""

    default = staticmethod(_written)
