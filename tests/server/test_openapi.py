"""The document for programs says what the server does and what the pages of docs/reference/http say."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import jsonschema_rs
import pytest

from deniable_server.access.keys import KeyStore
from deniable_server.api import schemas
from deniable_server.api.openapi import ANYWHERE, KEYED, OPERATIONS, document
from deniable_server.api.uploads.batches import REJECTIONS
from deniable_server.serving import worker

ROOT = Path(__file__).parents[2]
API = (
    "ingest",
    "pools",
    "script",
    "query",
    "rows",
    "health",
    "analysts",
    "live",
    "pipeline",
    "admin",
    "openapi",
    "vitals",
)  # names of blueprints
PLACES = ("api/**/*.py", "http/gate.py", "access/rate_limits.py", "prometheus/counted.py")
SOURCES = [path.read_text("utf-8") for place in PLACES for path in (ROOT / "server" / "deniable_server").glob(place)]
ROUTES = {f"{each.method.upper()} {each.path}": each for each in OPERATIONS}


def pairs(codes):
    return {(status, code) for status, part in (codes or {}).items() for code in part}


def sections():
    """Return the sections of docs/reference/http by what their headings name."""
    results = {}
    pages = [page.read_text("utf-8") for page in (ROOT / "docs" / "reference" / "http").glob("*.md")]
    for part in (part for page in pages for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]):
        heading, _, text = part.partition("\n")
        for name in re.findall(r"`([^`]+)`", heading) or [heading]:
            results[name] = text
    return results


def table(text):
    """Read the statuses and codes of a section's tables; several in a row belong together in their order, or all to one."""
    results = set()
    for statuses, codes in re.findall(r"^\| ([0-9, ]+) \| ([^|]*) \|", text, re.MULTILINE):
        listed, named = [int(status) for status in statuses.split(", ")], re.findall(r"`(\w+)`", codes)
        results |= set(zip(listed * len(named) if len(listed) == 1 else listed, named, strict=True))
    return results


def test_every_route_is_in_the_document(served):
    """The document has the addresses and methods that the server has, and no others."""
    routes = {
        f"{method} {rule.rule.replace('<id_>', '{id}')}"
        for rule in served.flask.url_map.iter_rules()
        if rule.endpoint.partition(".")[0] in API
        for method in rule.methods - {"HEAD", "OPTIONS"}
    }
    assert routes == set(ROUTES)
    assert served.http.get("/openapi.json").get_json() == json.loads(json.dumps(document()))


@pytest.mark.parametrize("route", ROUTES)
def test_the_page_for_people_says_the_same(route):
    """Each address has its section in docs/reference/http, with the codes that the document has for it."""
    rows = table(sections()[route])
    own = pairs(ROUTES[route].codes)
    assert own - pairs(KEYED) <= rows
    assert {pair for pair in rows if pair[0] >= 400} <= own


def test_what_any_address_answers_is_told_once():
    """The codes of any address stand in a section of their own."""
    assert table(sections()["Any address"]) == pairs(ANYWHERE) | pairs(KEYED)


def test_every_code_has_its_place():
    """Each code in the source is in the document with its status, but for those of groups."""
    documented = pairs(ANYWHERE).union(*(pairs(operation.codes) for operation in OPERATIONS))
    used = {
        (int(status), code)
        for source in SOURCES
        for status, code in re.findall(r'Problem\(\s*(\d+),\s*"([a-z0-9_]+)"', source)
        if (int(status), code) in documented or code not in REJECTIONS  # told of a group, inside an answer
    }
    assert {(401, "unknown_key"), (503, "backlog_full"), (429, "rate_limited")} <= used
    assert used <= documented


def test_what_gunicorn_refuses_is_in_the_document():
    """The codes of requests that never reach the app are among those of any address."""
    refusals = {*worker._REFUSALS.values(), worker._MALFORMED, worker._FAILED}
    assert {(int(refusal.status), refusal.code) for refusal in refusals} <= pairs(ANYWHERE)


def test_every_reference_leads_somewhere():
    """All schemas that the document refers to are in it."""
    named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document())))
    assert named <= set(schemas.components())
    assert {"Batch", "Group", "Accepted", "Problem"} <= named


def members(schema, place):
    """Yield the members of a schema and of those inside, each with its place."""
    if isinstance(schema, dict):
        for name, member in schema.get("properties", {}).items():
            yield f"{place}.{name}", member
        for name, inner in schema.items():
            inside = inner.items() if name == "properties" else [(name, inner)]
            for step, item in inside:
                yield from members(item, f"{place}.{step}")
    elif isinstance(schema, list):
        for item in schema:
            yield from members(item, place)


def test_every_member_is_described():
    """Each member of each schema has a text of a few words: a plain one, for readers of JSON."""
    texts = {}
    for name, schema in schemas.components().items():
        texts |= {place: member.get("description", "") for place, member in members(schema, name)}
    assert {"Measurement.periods", "Answered.anyOf.interval", "Readiness.parts.additionalProperties.ok"} <= set(texts)
    assert not [place for place, text in texts.items() if len(text) < 8]
    assert not [place for place, text in texts.items() if re.search(r"``|\bNone\b|\n|---", text)]


def test_good_answers_have_the_shape_they_are_said_to_have(served):
    """What is answered when all is well, with and without reports counted, is what the document describes, and no less."""
    all_metrics, all_live = ([f"/api/v1/{each}/{id_}" for id_ in served.app.highest] for each in ("metrics", "live"))
    keys = KeyStore(served.store)
    admin, _ = keys.create("admin", "who asks")
    keys.create("read", "never used")
    for _ in range(2):
        for path in (
            "/api/v1/metrics",
            *all_metrics,
            "/api/v1/live",
            *all_live,
            "/api/v1/pipeline",
            "/api/v1/keys",
            "/healthz",
            "/readyz",
        ):
            answer = served.get(path, admin)
            assert answer.status_code == 200
            one = {*all_metrics, *all_live}
            operation = ROUTES[f"GET {path.rpartition('/')[0]}/{{id}}" if path in one else f"GET {path}"]
            check(operation.answers[200], answer.get_json())
        bad = served.group("ui.theme", [0], version=9)
        sent = served.post(
            {"format": 1, "app": "shop", "groups": [served.group("plugin", [0, 1]), served.group("country", [2]), bad]}
        )
        assert sent.status_code == 202
        check(ROUTES["POST /v1/reports"].answers[202], sent.get_json())
        served.drain()
    with pytest.raises(jsonschema_rs.ValidationError):
        check("Accepted", {"accepted": 1})


@cache
def validator(name):
    return jsonschema_rs.validator_for(schemas.ref(name) | {"components": {"schemas": schemas.components()}})


def check(name, answer):
    validator(name).validate(answer)
