"""Turns a report into an HTML page: one file without scripts or external resources."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_WIDE = 5  # columns, above which a table is printed smaller
_ALIGNED = {"text-align:right": "number", "text-align:center": "short"}


def page(
    text: str,  # markdown as `compose` returns it, with all values escaped
) -> str:
    """Return a report as HTML."""
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(text)
    body = reader.renderer.render(list(_adapted(tokens)), reader.options, {})
    environment = Environment(loader=PackageLoader("deniable_server.privacy"), autoescape=True, undefined=StrictUndefined)
    title = "".join(child.content for child in tokens[1].children or ())
    return environment.get_template("report.html.jinja").render(title=title, body=Markup(body))  # noqa: S704 - without HTML


def _adapted(tokens: Sequence[Token]) -> Iterator[Token]:
    """Give headings an id, tables a caption and headers, and foreign texts their own direction."""
    head, caption = False, 0
    for place, token in enumerate(tokens):
        following = tokens[place + 3] if place + 3 < len(tokens) else None
        if token.type == "paragraph_open" and following is not None and following.type == "table_open":
            caption = place  # the paragraph before a table becomes its caption
        if caption and caption <= place < caption + 3:
            continue
        if token.type == "heading_open":
            token.attrSet("id", _slug(tokens[place + 1].content))
        elif token.type in ("paragraph_open", "list_item_open"):
            token.attrSet("dir", "auto")
        elif token.type == "table_open":
            yield from _opened(token, tokens[caption + 1], tokens[place:])
            caption = 0
            continue
        elif token.type in ("thead_open", "thead_close"):
            head = token.type == "thead_open"
        elif token.type in ("th_open", "td_open"):
            _cell(tokens, place, head=head)
        yield token
        if token.type == "table_close":
            yield Token("div_close", "div", -1)


def _opened(table: Token, caption: Token, tokens: Sequence[Token]) -> Iterator[Token]:
    columns = next(place for place, token in enumerate(tokens) if token.type == "tr_close") // 3 - 1
    label = "".join(child.content for child in caption.children or ())
    attributes: dict[str, str | int | float] = {"class": "table", "role": "region", "aria-label": label, "tabindex": "0"}
    yield Token("div_open", "div", 1, attrs=attributes)
    if columns > _WIDE:
        table.attrSet("class", "wide")
    yield from (table, Token("caption_open", "caption", 1), caption, Token("caption_close", "caption", -1))


def _cell(tokens: Sequence[Token], place: int, *, head: bool) -> None:
    token = tokens[place]
    aligned = token.attrs.pop("style", None)
    if aligned is not None:
        token.attrSet("class", _ALIGNED[str(aligned)])
    token.attrSet("dir", "auto")
    if head or tokens[place - 1].type == "tr_open":
        token.tag = tokens[place + 2].tag = "th"
        token.attrSet("scope", "col" if head else "row")


def _slug(title: str) -> str:
    """Return the anchor of a heading as GitHub writes it, so that links to it also work there."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
