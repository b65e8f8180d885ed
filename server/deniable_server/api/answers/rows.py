"""The query API: one question about several metrics, answered with flat rows, as JSON or as a file."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec
from flask import Blueprint, Response, request
from msgspec.structs import replace

from deniable_aggregator.answer.model.query import MOST_ROWS, RULES, Page, Query
from deniable_aggregator.answer.question import questions
from deniable_aggregator.answer.question.cells import with_columns
from deniable_aggregator.answer.select import Published, state_of
from deniable_aggregator.answer.table import rows
from deniable_aggregator.audit.entry import shortened
from deniable_server.api.answers import shape
from deniable_server.api.answers.export import FORMATS, JSON
from deniable_server.api.answers.parameters import only_parameters, versions_asked
from deniable_server.api.audit_trail import log_query
from deniable_server.api.auth import app_by_read_key
from deniable_server.http.etag import answered
from deniable_server.http.problem import Problem
from deniable_server.http.visit import visit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deniable.declared import Declared
    from deniable_aggregator.answer.model.query import Filter
    from deniable_aggregator.answer.question import Question
    from deniable_server.service import App

blueprint = Blueprint("rows", __name__)
blueprint.after_request(log_query)

_JOINED, _WRITTEN = ("metrics", "dimensions", "include"), ("filters", "compare")
_PAGE = ("limit", "offset")
_EFFORT = 4  # of gzip: more takes longer than it saves
_PLAIN = tuple(name for name in Query.__struct_fields__ if name not in (*_JOINED, *_WRITTEN, "pagination"))


@blueprint.post("/api/v1/query")
def post() -> Response:
    """Answer a query that is sent as JSON."""
    app = app_by_read_key()
    only_parameters("format")
    if request.mimetype != "application/json":
        raise Problem(415, "media_type", "a query's Content-Type is application/json")
    query, format_ = _read(_decoded("the body", request.get_data(cache=False)), strict=True), _format()
    return _answer(app, query, format_)


@blueprint.get("/api/v1/query")
def get() -> Response:
    """Answer the same query in the address: lists are joined by commas, filters and compare are JSON."""
    app = app_by_read_key()
    only_parameters(*_JOINED, *_WRITTEN, *_PLAIN, *_PAGE, "format")
    query, format_ = _read(_members(), strict=False), _format()
    return _answer(app, query, format_)


def _members() -> dict[str, Any]:
    """Return the members of the query in the address."""
    members: dict[str, Any] = {name: request.args[name] for name in _PLAIN if name in request.args}
    members |= {name: _list(request.args[name]) for name in _JOINED if name in request.args}
    members |= {name: _decoded(name, request.args[name]) for name in _WRITTEN if name in request.args}
    page = {name: request.args[name] for name in _PAGE if name in request.args}
    return members | ({"pagination": page} if page else {})


def _list(text: str) -> list[str]:
    return text.split(",") if text else []


def _decoded(
    name: str,  # of what it is, as a key of `_EXAMPLES`
    text: str | bytes,
) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        rule = f"{name} is not valid JSON, in which texts stand in double quotes: write it like {_EXAMPLES[name]}"
        raise Problem(400, "json", rule) from None


_EXAMPLES = {
    "the body": '{"metrics": ["ui.theme"]}',
    "filters": '[["is", "platform", ["linux"]]]',
    "compare": '{"dimension": "platform", "base": "linux"}',
}


def _read(table: Any, *, strict: bool) -> Query:
    try:
        return with_columns(msgspec.convert(table, Query, strict=strict))
    except msgspec.ValidationError as error:
        raise Problem(400, "query_shape", shape.fault(table, str(error), "a query", RULES, Query.__struct_fields__)) from None


def _format() -> str:
    """Return the format asked for by the parameter, else by the header Accept, else JSON."""
    if "format" in request.args:
        if request.args["format"] not in FORMATS:
            raise Problem(400, "format", f"format is one of {', '.join(FORMATS)}")
        return request.args["format"]
    media = {each.media: name for name, each in FORMATS.items()}
    return media[request.accept_mimetypes.best_match(list(media), JSON.media)]


def _answer(app: App, query: Query, name: str) -> Response:
    form = FORMATS[name]
    if not form.available():
        raise Problem(501, "no_export", f"this server writes no {name}: install it with 'deniable[export]'")
    query = replace(query, pagination=query.pagination or (Page() if form is JSON else Page(MOST_ROWS)))
    versions = [versions_asked(app, each) for each in query.metrics]
    visit().details = {"question": "rows", "metric": shortened(",".join(query.metrics))}
    parts = questions(app.registry, query, versions, datetime.now(UTC))
    visit().details |= _logged_details(query, versions, parts)
    published = [Published.of_each(app, each.versions) for each in parts]
    encoding = "gzip" if not form.packed and request.accept_encodings.quality("gzip") else "identity"
    spans = [(each.first, each.last) for each in parts]  # the last days are others tomorrow
    state = state_of(app, chain.from_iterable(published))

    def write() -> Response:
        answered_rows = rows(app, query, list(zip(parts, published, strict=True)))
        body = form.write(answered_rows)
        answer = Response(body if encoding == "identity" else gzip.compress(body, _EFFORT), mimetype=form.media)
        if encoding == "gzip":
            answer.headers["Content-Encoding"] = encoding
        if form is not JSON:
            file = "-".join([*query.metrics[: len(query.metrics) == 1], "rows", *app.marks])
            answer.headers["Content-Disposition"] = f'attachment; filename="{file}.{name}"'
        if answered_rows.next is not None and request.method != "POST":
            answer.headers["Link"] = f'<{_next(answered_rows.next)}>; rel="next"'
        return answer

    return answered((name, encoding, msgspec.json.encode(query), spans, state), write)


def _next(offset: int) -> str:
    """Return the address of the next page."""
    return f"{request.path}?{urlencode({**request.args.to_dict(), 'offset': offset})}"


def _logged_details(query: Query, versions: Sequence[Sequence[Declared]], questions: Sequence[Question]) -> dict[str, str]:
    """Return what the audit log says of a query beside its metrics: what the registry declares, and no other text."""
    compare, cells = query.compare, next(iter(questions[0].cells.values()))
    details = {
        "period": _periods((each.first, each.last) for each in questions) if query.date_range else "",
        "segment": ",".join(cells.dimensions),
        "filters": _filters(
            query.filters, searched=any(each.metric.discover for declarations in versions for each in declarations)
        ),
        "compare": f"{compare.dimension}={compare.base}" if compare else "",
        "pool": "true" if query.pool else "",
        "level": str(query.level),
    }
    if compare and compare.date_range:
        details["compare"] = _periods(
            (each.earlier.of(each.first), each.earlier.of(each.last)) for each in questions if each.earlier
        )
    return {name: shortened(text) for name, text in details.items() if text}


def _periods(ranges: Iterable[tuple[str, str]]) -> str:
    """Write the first and the last period, once for each length of periods."""
    return ",".join(dict.fromkeys(f"{first}/{last}" for first, last in ranges))


def _filters(filters: Sequence[Filter], *, searched: bool) -> str:
    """Write filters as in the query; of values that are searched for, which nobody declares, only how many there are."""
    if not filters:
        return ""
    written = [
        (each.op, each.dimension, len(each.values) if searched and each.dimension == "value" else each.values) for each in filters
    ]
    text = json.dumps(written, ensure_ascii=False, separators=(",", ":"))
    return text if text.isprintable() else json.dumps(written, separators=(",", ":"))
