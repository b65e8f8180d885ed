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
    about: object,  # all that the answer depends on beside the version of the code, in a form whose `repr` is equal if it is
    write: Callable[[], Response],  # makes the answer, if the client lacks it
) -> Response:
    """Answer a question, or 304 if the client has the answer. A POST is always answered."""
    if request.method == "POST":
        return _with_vary(write())
    tag = quote_etag(sha256(repr((deniable.__version__, about)).encode()).hexdigest()[:32])
    known = request.if_none_match.contains_weak(tag.strip('"'))
    answer = _with_vary(Response(status=304) if known else write())
    answer.headers["ETag"] = tag
    answer.headers["Cache-Control"] = "private, no-cache"  # stored by the client only, which asks each time if it is the latest
    return answer


def _with_vary(answer: Response) -> Response:
    answer.vary.update(("Accept", "Accept-Encoding", "Authorization"))
    return answer
