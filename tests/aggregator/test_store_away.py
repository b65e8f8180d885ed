"""Why a store does not answer, with what to do: only a store that does not run is to be started."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from threading import Thread

import pytest
import redis

from deniable_aggregator.store import connect
from deniable_aggregator.store.errors import AWAY, StoreError, cause, remedy


@contextmanager
def listening(answer):
    """Listen at a port, and send the same to each that connects; nothing, if it is empty."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections = []

        def serve():
            while True:
                try:
                    connections.append(server.accept()[0])
                    connections[-1].sendall(answer)
                except OSError:
                    return

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in connections:
            connection.close()


@pytest.mark.parametrize(
    ("scheme", "answer", "words", "advice"),
    [
        ("rediss", b"-ERR unknown command\r\n", "it does not speak TLS", "write redis://"),
        ("rediss", b"", "it does not answer with TLS", "if it does not speak TLS, write redis://"),
        ("redis", b"HTTP/1.1 400 Bad Request\r\n\r\n", "something other than a store answers there", "correct host and port"),
        ("redis+cluster", b"HTTP/1.1 400 Bad\r\n\r\n", "something other than a store answers there", "correct host and port"),
        ("redis", b"", "it takes connections and does not answer in time", "restart it if it hangs"),
        ("redis", b"", "it takes connections and does not answer in time", "if another program is at this port, correct"),
    ],
)
def test_what_answers_otherwise_is_named(scheme, answer, words, advice):
    with listening(answer) as port:
        url = f"{scheme}://127.0.0.1:{port}/0"
        client = connect(url, timeout=0.05)
        with pytest.raises(AWAY) as caught:
            client.ping()
        client.close()
    assert cause(caught.value) == words
    assert advice in remedy(caught.value, url, "operator")
    assert "start it," not in remedy(caught.value, url, "operator")


@pytest.mark.parametrize(
    ("error", "words", "advice"),
    [
        ("Error -2 connecting to h:1. Name or service not known.", "its host name is not found", "correct the name"),
        ("Error 111 connecting to h:1. Connection refused.", "it does not answer", "start it, or correct"),
        ("Error 2 connecting to /run/redis.sock. No such file or directory.", "it does not answer", "start it, or correct"),
        ("Error 13 connecting to /run/redis.sock. Permission denied.", "this process may not open its socket", "let its user"),
        ("Timeout connecting to server", "its machine does not answer", "start the machine"),
        ("No master found for 'shop'", "no Sentinel names its primary", "start the Sentinels"),
        ("the cluster cannot be used: Cluster mode is not enabled on this node", "it is no cluster", "write redis://"),
    ],
)
def test_what_does_not_answer_is_named(error, words, advice):
    error = redis.ConnectionError(error)
    assert cause(error) == words
    assert advice in remedy(error, "redis://h/0", "operator")


def test_a_host_name_that_is_not_found(monkeypatch):
    """Each system has words of its own for that."""

    def fail(*_arguments, **_options):
        raise socket.gaierror(8, "nodename nor servname provided")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(StoreError) as caught:
        connect("redis://store.example").ping()
    assert cause(caught.value) == "its host name is not found"


def test_a_store_without_sentinels():
    """Its port was named in place of that of the Sentinels."""
    error = redis.ResponseError("unknown command 'SENTINEL', with args beginning with: 'MASTERS'")
    assert cause(error) == "no Sentinel answers there"
    assert "name the Sentinels" in remedy(error, "redis+sentinel://h/shop", "operator")


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("?ssl_ca_certs=/nope/ca.crt", "?ssl_ca_certs=/nope/ca.crt"),
        ("?ssl_certfile=/nope/own.crt&ssl_keyfile=/nope/own.key", "?ssl_certfile=/nope/own.crt&ssl_keyfile=/nope/own.key"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(query, named):
    """Without the password of the URL."""
    error = redis.ConnectionError("Error 2 connecting to h:1. No such file or directory.")
    assert cause(error) == "a file that its URL names cannot be read"
    advice = remedy(error, f"rediss://worker:secret@h:1/0{query}", "worker")
    assert advice == f"correct {named} in DENIABLE_REDIS_URL, or let this process read the file"
