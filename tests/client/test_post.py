"""One request over real sockets: nothing of the host app in it, and nothing that a server does can run away with it."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from time import monotonic

import pytest
from loopback import ACCEPTED, say, server

from deniable.transport.http import Http, HttpPost, UnreachedError

OPEN_FILES = Path("/proc/self/fd")
NO_ANSWER = (OSError,)  # what a sender understands
HEADERS = {"Content-Type": "application/json"}


def hang(_connection, over) -> None:
    over.wait(300)


def drip(text: bytes):
    def behave(connection, over) -> None:
        for byte in text * 10_000:
            connection.sendall(bytes([byte]))
            if over.wait(0.02):
                return

    return behave


def flood(connection, over) -> None:
    connection.sendall(b"HTTP/1.1 202 Accepted\r\nConnection: close\r\n\r\n")
    while not over.is_set():
        connection.sendall(b"x" * 65536)


def post(url: str, timeout: float = 10):
    return HttpPost(f"{url}/v1/reports")(b"{}", HEADERS, timeout)


def test_what_is_sent(monkeypatch):
    """A request says nothing about the device's software, has no cookie and takes no way through the host's proxies."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with server(say(ACCEPTED)) as (url, requests):
        sender = HttpPost(f"{url}/prefix/v1/reports")
        for _ in range(2):
            assert sender(b"{}", {**HEADERS, "Idempotency-Key": "k"}, 10)[::2] == (202, {"accepted": 1})
    assert requests[0] == requests[1], "no cookie was kept, and each came by a connection of its own"
    head, _, body = requests[0].partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    assert (first, body) == (b"POST /prefix/v1/reports HTTP/1.1", b"{}")
    assert sorted(line.split(b": ")[0].lower() for line in lines) == [
        b"accept-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"idempotency-key",
        b"user-agent",
    ]
    assert b"User-Agent: deniable" in lines
    assert b"Accept-Encoding: identity" in lines


def test_an_address_with_other_letters():
    """The path of a DSN may have any letters. Its own percent signs stay."""
    with server(say(ACCEPTED)) as (url, requests):
        HttpPost(f"{url}/größe 1/a%20b/v1")(b"{}", HEADERS, 10)
    assert requests[0].startswith(b"POST /gr%C3%B6%C3%9Fe%201/a%20b/v1 HTTP/1.1\r\n")


def test_no_credentials_of_the_host(monkeypatch, tmp_path):
    """A .netrc for the server is not read."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with server(say(ACCEPTED)) as (url, requests):
        post(url)
    assert b"uthorization" not in requests[0]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(status):
    """The key and the reports go where the address says and nowhere else; headers are looked up in any case."""
    answer = b"HTTP/1.1 %d Moved\r\nLocation: /elsewhere\r\nRetry-After: 7\r\nContent-Length: 6\r\n\r\n<html>" % status
    with server(say(answer)) as (url, requests):
        answered, headers, document = post(url)
    assert (answered, document, headers["retry-after"], len(requests)) == (status, None, "7", 1)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 202 Accepted\r\nContent-Length: 999\r\n\r\n{}",
        b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}",
        b"HTTP/1.1 202 Accepted\r\n" + b"x-y: z\r\n" * 5000 + b"\r\n",
        b"HTTP/1.1 202 Accepted\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
    ids=["nothing", "garbage", "truncated", "half a chunk", "many headers", "a long header"],
)
def test_answers_that_are_none(answer):
    """What is no whole answer is an OSError, whatever is wrong with it."""
    with server(say(answer)) as (url, _), pytest.raises(NO_ANSWER):
        post(url)


@pytest.mark.parametrize("body", [b"<html>", b"", b"\xff\xfe", b"[" * 60_000, b'{"accepted": NaN'])
def test_answers_without_sense(body):
    """An answer that is no JSON is an answer without a document."""
    with server(say(b"HTTP/1.1 202 Accepted\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))) as (url, _):
        assert post(url)[::2] == (202, None)


def test_a_compressed_answer_does_not_swell():
    """A small answer that would inflate to a large one is not inflated."""
    import zlib

    bomb = zlib.compress(bytes(20_000_000))
    head = b"HTTP/1.1 202 Accepted\r\nContent-Encoding: deflate\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    with server(say(head + bomb)) as (url, _):
        assert Http()("POST", url, HEADERS, 10, b"{}", largest=100_000)[2] == bomb


def test_an_answer_without_end():
    """Of an answer that never ends no more is read than an answer has."""
    with server(flood) as (url, _):
        assert post(url)[::2] == (202, None)


def test_a_redirect_without_end():
    """Nor of the body of a redirect, which is not followed either."""

    def behave(connection, over) -> None:
        connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nConnection: close\r\n\r\n")
        while not over.is_set():
            connection.sendall(b"x" * 65536)

    with server(behave) as (url, requests):
        assert Http()("POST", url, HEADERS, 5, b"{}", total=5)[::2] == (302, None)
    assert len(requests) == 1


def test_a_server_that_hangs():
    """A server that says nothing is waited for as long as the timeout."""
    began = monotonic()
    with server(hang) as (url, _), pytest.raises(NO_ANSWER):
        post(url, 0.2)
    assert monotonic() - began < 60


@pytest.mark.parametrize(
    "text", [b"HTTP/1.1 202 Accepted\r\nx: y", b"HTTP/1.1 202 Accepted\r\nContent-Length: 50000\r\n\r\n"], ids=["headers", "body"]
)
def test_a_server_that_drips(text):
    """A server that sends a byte now and then is cut off when the total is over, though it never exceeds the timeout."""
    began = monotonic()
    with server(drip(text)) as (url, _), pytest.raises(NO_ANSWER):
        Http()("POST", url, HEADERS, 60, b"{}", total=0.3)
    assert monotonic() - began < 60


def test_another_thread_may_cut():
    """A request under way ends when another thread says so, and the next one is made as ever."""
    reached = threading.Event()

    def behave(connection, over) -> None:
        if reached.is_set():
            connection.sendall(ACCEPTED)
        else:
            reached.set()
            over.wait(300)

    errors: list[OSError] = []
    with server(behave) as (url, _):
        http = HttpPost(url)

        def send() -> None:
            try:
                http(b"{}", HEADERS, 30)
            except OSError as error:
                errors.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        assert reached.wait(60)
        http.http.cut()
        thread.join(60)
        assert not thread.is_alive()
        assert len(errors) == 1
        assert http(b"{}", HEADERS, 10)[0] == 202
    http.http.cut()


def test_cut_before_there_is_a_connection(monkeypatch):
    """A request cut while the name is looked up, which nothing can interrupt, is not sent when the look-up ends."""
    looking, go_on = threading.Event(), threading.Event()
    look_up = socket.getaddrinfo

    def slow(*args, **kwargs):
        looking.set()
        assert go_on.wait(60)
        return look_up(*args, **kwargs)

    with server(say(ACCEPTED)) as (url, requests):
        http = HttpPost(url)
        monkeypatch.setattr("socket.getaddrinfo", slow)
        errors: list[Exception] = []

        def send() -> None:
            try:
                http(b"{}", HEADERS, 10)
            except OSError as error:
                errors.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        assert looking.wait(60)
        http.http.cut()
        go_on.set()
        thread.join(60)
    assert len(errors) == 1
    assert not any(requests_with_body.endswith(b"{}") for requests_with_body in requests)


def test_no_server_at_all():
    """Where nobody listens, the error is an OSError."""
    with pytest.raises(OSError, match="refused"):
        post("http://127.0.0.1:9", 5)


def test_what_nobody_can_have_seen():
    """Without a connection, or TLS where it is asked for, no byte of the request was sent, and the error says so."""
    for url in ("http://127.0.0.1:9", "http://no.such.name.invalid", "https://127.0.0.1:9"):
        with pytest.raises(UnreachedError):
            post(url, 5)
    with server(say(ACCEPTED)) as (url, _), pytest.raises(UnreachedError):
        post(url.replace("http://", "https://"), 0.3)  # it does not speak TLS, and waits for the end of a request
    for answer in (b"", b"HTTP/1.1 2", b"nonsense\r\n\r\n"):
        with server(say(answer)) as (url, _), pytest.raises(OSError, match=r".") as caught:
            post(url, 5)
        assert not isinstance(caught.value, UnreachedError)


def test_what_is_cut_before_it_begins_is_not_sent():
    """Whoever gave up an answer may rely on it that the server has not seen the request. The next one is sent."""
    with server(say(ACCEPTED)) as (url, requests):
        http = HttpPost(url)
        http.http.prepare()
        assert not http.http.cut()
        with pytest.raises(UnreachedError):
            http(b"{}", HEADERS, 60)
        http.http.prepare()
        assert http(b"[]", HEADERS, 60)[0] == 202
        assert not any(request.endswith(b"{}") for request in requests)


def test_no_socket_is_left_open(open_files):
    """After a request, whatever came of it, the process has nothing open that it had not before."""
    post_ = HttpPost("http://127.0.0.1:9/")
    before = open_files()
    with pytest.raises(OSError, match="refused"):
        post_(b"{}", HEADERS, 5)
    assert not open_files() - before
    with server(say(ACCEPTED)) as (url, _):
        post(url)
    with server(flood) as (url, _):
        post(url)
    assert not open_files() - before


# certificates


@pytest.fixture
def _no_bundle(monkeypatch):
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("_no_bundle")
def test_a_bundle_that_is_missing(monkeypatch, tmp_path):
    """A file of certificates that is not there is no answer, never a request without checking."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(OSError, match="certificate"):
        post("https://127.0.0.1:9", 5)


def _extensions(hello: bytes) -> list[int]:
    """Return the kinds of extensions in a record of TLS that says hello (RFC 8446, 4.1.2)."""
    at = 5 + 4 + 2 + 32
    for width in (1, 2, 1):  # session, ciphers, compression
        at += width + int.from_bytes(hello[at : at + width], "big")
    at, kinds = at + 2, []
    while at < len(hello):
        kinds.append(int.from_bytes(hello[at : at + 2], "big"))
        at += 4 + int.from_bytes(hello[at + 2 : at + 4], "big")
    return kinds


@pytest.mark.usefixtures("_no_bundle")
def test_no_two_connections_are_linked():
    """What a device says to agree on TLS is the same for each upload, and takes up nothing of an earlier connection."""
    hellos: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            for _ in range(2):
                with listener.accept()[0] as connection:
                    hellos.append(connection.recv(65536))

        thread = threading.Thread(target=listen)
        thread.start()
        http = HttpPost(f"https://127.0.0.1:{listener.getsockname()[1]}")
        for body in (b"{}", b'{"longer": true}'):
            with pytest.raises(UnreachedError):
                http(body, HEADERS, 60)
        thread.join(60)
    first, second = map(_extensions, hellos)
    assert first == second
    assert len(hellos[0]) == len(hellos[1])
    session_ticket, pre_shared_key = 35, 41
    assert not {session_ticket, pre_shared_key} & set(first)


@pytest.mark.usefixtures("_no_bundle")
def test_a_handshake_that_hangs():
    """A server that never ends the handshake is cut off, too."""
    began = monotonic()
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, pytest.raises(NO_ANSWER):
        Http()("POST", f"https://127.0.0.1:{listener.getsockname()[1]}", HEADERS, 300, b"{}", total=0.3)
    assert monotonic() - began < 60
