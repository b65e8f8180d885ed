"""A request that is read from its bytes is read as gunicorn reads it, or left to gunicorn."""

from __future__ import annotations

import socket

import pytest
from gunicorn import http
from gunicorn.config import Config
from gunicorn.http import wsgi
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deniable_server import gunicorn_conf
from deniable_server.serving.plain_request import BEGINNING, Limits, read

PEER, SERVER = ("198.51.100.7", 4711), ("127.0.0.1", 8080)
MOST = Limits(1000, gunicorn_conf.limit_request_fields, gunicorn_conf.limit_request_field_size)
USUAL = {"Host": "telemetry.example.org", "Content-Type": "application/json", "Idempotency-Key": "k", "Content-Length": "2"}


def request(headers, body=b"{}", line=BEGINNING):
    return line + "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("latin-1") + b"\r\n" + body


def by_gunicorn(held):
    """Return the environment that gunicorn makes of a request, with its body, and whether it keeps the connection."""
    config = Config()
    for name in ("limit_request_line", "limit_request_fields", "limit_request_field_size"):
        config.set(name, getattr(gunicorn_conf, name))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(held)
        theirs.shutdown(socket.SHUT_WR)
        query = next(http.get_parser(config, ours, PEER))
        _, environ = wsgi.create(query, ours, PEER, SERVER, config)
        body = environ["wsgi.input"].read()
        remainder = query.unreader.read()
    assert remainder == b""
    return environ, body, not query.should_close()


def same(held):
    """Compare both; return whether the request was read at all."""
    plain = read(held, PEER, SERVER, MOST)
    if plain is None:
        return False
    theirs, body, keep = by_gunicorn(held)
    assert plain.keep is keep
    assert plain.environ["wsgi.input"].read() == body
    ours = {name: value for name, value in plain.environ.items() if not name.startswith("wsgi.")}
    assert ours == {name: value for name, value in theirs.items() if name in ours}
    assert {name for name in theirs if name.startswith(("HTTP_", "CONTENT_"))} <= ours.keys()
    return True


def test_a_plain_upload_is_read():
    """As `requests` sends it, and as other clients may."""
    assert same(request(USUAL))
    more = {"User-Agent": "x/1 (y)", "Accept-Encoding": "gzip, deflate", "Accept": "*/*", "Connection": "keep-alive"}
    assert same(request(more | USUAL | {"Authorization": "Bearer  pk ", "X-Forwarded-For": "203.0.113.9, 10.0.0.1"}))
    assert same(request(USUAL | {"Connection": "Close"}))
    assert same(request(USUAL | {"Host": "127.0.0.1:8080"}))
    assert same(request(USUAL | {"Content-Length": "0"}, b""))
    line = "Idempotency-Key: "
    assert same(request(USUAL | {"Idempotency-Key": "k" * (MOST.header - len(line) - 2)}))
    assert same(request({name.lower(): value for name, value in USUAL.items()}))


@pytest.mark.parametrize(
    "held",
    [
        pytest.param(request(USUAL, line=b"POST /v1/reports HTTP/1.0\r\n"), id="HTTP/1.0"),
        pytest.param(request(USUAL, line=b"POST /v1/reports?a HTTP/1.1\r\n"), id="a query"),
        pytest.param(request(USUAL, line=b"GET /v1/reports HTTP/1.1\r\n"), id="another method"),
        pytest.param(request(USUAL, b"{}GET / HTTP/1.1\r\n\r\n"), id="another request behind it"),
        pytest.param(request(USUAL, b"{"), id="a part of the body"),
        pytest.param(request(USUAL)[:-4], id="a part of the headers"),
        pytest.param(request(USUAL | {"Content-Length": "+2"}), id="a sign"),
        pytest.param(request(USUAL | {"Content-Length": "02"}), id="a zero before it"),
        pytest.param(request(USUAL | {"Content-Length": "2, 2"}), id="two lengths in a line"),
        pytest.param(
            request(USUAL).replace(b"Content-Length: 2\r\n", b"Content-Length: 2\r\ncontent-length: 3\r\n"), id="two lengths"
        ),
        pytest.param(request({name: value for name, value in USUAL.items() if name != "Content-Length"}, b""), id="no length"),
        pytest.param(request(USUAL | {"Content-Length": "1001"}, bytes(1001)), id="too long"),
        pytest.param(request(USUAL | {"Transfer-Encoding": "chunked"}), id="chunks"),
        pytest.param(request(USUAL | {"Expect": "100-continue"}), id="an expectation"),
        pytest.param(request(USUAL | {"Upgrade": "h2c", "Connection": "Upgrade"}), id="an upgrade"),
        pytest.param(request(USUAL | {"Origin": "https://example.org"}), id="a web page"),
        pytest.param(request(USUAL | {"Content_Length": "7"}), id="an underscore"),
        pytest.param(request(USUAL | {"SCRIPT_NAME": "/v1"}), id="a name of WSGI"),
        pytest.param(request(USUAL).replace(b"Host:", b"Host :"), id="a space before the colon"),
        pytest.param(request(USUAL).replace(b"\r\nIdempotency-Key: k", b"\r\nIdempotency-Key: k\r\n folded"), id="a folded line"),
        pytest.param(request(USUAL).replace(b"\r\nIdempotency-Key", b"\nIdempotency-Key"), id="a bare newline"),
        pytest.param(request(USUAL | {"Idempotency-Key": "k\x00"}), id="a zero byte"),
        pytest.param(request(USUAL | {"Idempotency-Key": "é"}), id="a letter beyond ASCII"),
        pytest.param(request(USUAL | {"Idempotency-Key": "k" * 5000}), id="a long line"),
        pytest.param(request(USUAL | {"Idempotency-Key": "k" * (MOST.header - 18)}), id="a line that is longer by one byte"),
        pytest.param(request({f"X-{number}": "x" for number in range(30)} | USUAL), id="many headers"),
        pytest.param(request(USUAL | {"Host": ""}), id="an empty host"),
        pytest.param(request(USUAL | {"Host": "a..b"}), id="no host"),
        pytest.param(request(USUAL | {"Host": "[::1]"}), id="an address of IPv6"),
        pytest.param(request(USUAL | {"X-Forwarded-SSL": "on"}), id="another word of a proxy"),
        pytest.param(b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n" + request(USUAL), id="the PROXY protocol"),
        pytest.param(b"\r\n" + request(USUAL), id="an empty line before it"),
    ],
)
def test_what_is_odd_is_left_to_gunicorn(held):
    """Nothing is guessed at."""
    assert read(held, PEER, SERVER, MOST) is None


names = st.sampled_from(
    [*USUAL, "content-length", "Connection", "Transfer-Encoding", "X-Forwarded-For", "Accept", "Te", "A", "Content-Encoding"]
)
values = st.sampled_from(
    ["", "2", "3", "close", "keep-alive", "a, b", " x\t", "gzip", "é", "\x7f", "identity", "example.org:1"]
) | st.text(st.characters(max_codepoint=255), max_size=8)


@settings(max_examples=300)
@given(
    more=st.lists(st.tuples(names, values), max_size=4),
    body=st.binary(max_size=4),
    cut=st.lists(st.tuples(st.integers(0, 120), st.binary(max_size=2)), max_size=1),
)
@example(more=[("Content-Length", "2"), ("Content-Length", "2")], body=b"{}", cut=[])
def test_whatever_is_read_is_read_alike(more, body, cut):
    """Headers that are doubled, odd or broken, and bytes that are others."""
    lines = [*USUAL.items(), *more]
    held = BEGINNING + "".join(f"{name}: {value}\r\n" for name, value in lines).encode("latin-1") + b"\r\n" + body
    for place, bytes_ in cut:
        held = held[:place] + bytes_ + held[place + len(bytes_) :]
    same(held)


def test_a_client_without_a_name_is_left_to_gunicorn():
    """On a Unix socket that Linux names by bytes, nobody is told apart."""
    assert read(request(USUAL), b"\x00abstract", "/run/server.sock", MOST) is None
    assert read(request(USUAL), "", "/run/server.sock", MOST).environ["SERVER_NAME"] == "telemetry.example.org"
