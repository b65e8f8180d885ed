"""Paging: which part of a long list the ``page`` of a request shows."""

from __future__ import annotations

import re
from math import ceil
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from flask import request

from deniable_server.http.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

Item = TypeVar("Item")

_MOST_PAGES = 1_000_000


class PageSlice(NamedTuple, Generic[Item]):
    """One page of a list."""

    items: Sequence[Item]  # of this page
    page: int  # its number, from 1
    pages: int  # of the list


def part(items: Sequence[Item], most: int) -> PageSlice[Item]:
    """Return the page of a list that the request names, of at most so many items."""
    page, pages = number(), max(1, ceil(len(items) / most))
    check(page, pages)
    return PageSlice(items[most * (page - 1) : most * page], page, pages)


def number() -> int:
    """Return the number of the page that the request names. A text that is no number gives one that no list has."""
    text = request.args.get("page", "1")
    return int(text) if re.fullmatch("[1-9][0-9]{0,5}", text) else _MOST_PAGES


def check(page: int, pages: int) -> None:
    """Refuse the number of a page that the list does not have."""
    if page > pages:
        raise Problem(404, "unknown_page", f"there {f'are {pages} pages' if pages > 1 else 'is one page'}")
