"""ETags: whether the client has this answer already."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from flask import Response, request
from werkzeug.http import quote_etag

import deniable

if TYPE_CHECKING:
    from collections.abc import Callable


def answered(
    about: object,  # all that the answer depends on, beside this code; its `repr` tells it
    write: Callable[[], Response],  # makes the answer, if the client lacks it
) -> Response:
    """Answer a question, or say that the client has the answer: 304. An answer to POST cannot be asked for so."""
    if request.method == "POST":
        return _with_vary(write())
    tag = quote_etag(sha256(repr((deniable.__version__, about)).encode()).hexdigest()[:32])
    known = request.if_none_match.contains_weak(tag.strip('"'))
    answer = _with_vary(Response(status=304) if known else write())
    answer.headers["ETag"] = tag
    answer.headers["Cache-Control"] = "private, no-cache"
    return answer


def _with_vary(answer: Response) -> Response:
    answer.vary.update(("Accept", "Accept-Encoding", "Authorization"))
    return answer
