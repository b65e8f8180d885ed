"""A parameter of a page that is one of a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import request

from deniable.messages.lookalike import did_you_mean
from deniable_server.api.answers.parameters import LONGEST_SHOWN
from deniable_server.http.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Collection


def choice_asked(
    name: str,  # of the parameter
    choices: Collection[str],
) -> str:
    """Read a parameter that is one of a few words; empty if it is not given."""
    text = request.args.get(name, "")
    if text and text not in choices:
        text = text[:LONGEST_SHOWN]
        raise Problem(400, "choice", f"{name} is one of {', '.join(choices)}; this is {text}{did_you_mean(text, choices)}")
    return text
