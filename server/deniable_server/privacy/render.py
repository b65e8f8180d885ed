"""Writes a document, as HTML or Markdown, with everything in it escaped."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined

if TYPE_CHECKING:
    from deniable_server.privacy.document import Document

__all__ = ["Format", "render"]

Format = Literal["html", "md"]

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$]|:(?=//)|(?<=www)\.)")
_NAMED = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_AT_THE_START = re.compile(r"^([-+=#]|\d+[.)](?=\s|$))")


def render(document: Document, form: Format) -> str:
    """Write a document.

    Parameters
    ----------
    document
        What to write.
    form
        ``"html"``, one file without a script or anything fetched; or ``"md"``, Markdown with the tables of GitHub.
    """
    return _environment(form).get_template(f"report.{form}.jinja").render(document=document)


@lru_cache(maxsize=2)
def _environment(form: Format) -> Environment:
    made = Environment(
        loader=PackageLoader("deniable_server.privacy"),
        autoescape=form == "html",  # noqa: S701 - Markdown has an escape of its own, which its template calls
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["markdown"] = markdown
    made.filters["paragraph"] = paragraph
    return made


def markdown(text: str) -> str:
    """Escape a text amid a line, so that Markdown shows it as it is, and makes no address to go to, picture or HTML of it."""
    return _SPECIAL.sub(lambda found: _NAMED.get(found[1], f"\\{found[1]}"), text.replace("&", "&amp;"))


def paragraph(text: str) -> str:
    """Escape a text that begins a line."""
    return _AT_THE_START.sub(lambda found: f"{found[1][:-1]}\\{found[1][-1]}", markdown(text))
