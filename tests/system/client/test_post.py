"""Requests of forked children, and by a certificate that openssl made."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest
from loopback import ACCEPTED, say, server

from deniable.transport.http import HttpPost

OPEN_FILES = Path("/proc/self/fd")
HEADERS = {"Content-Type": "application/json"}


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_has_no_socket_of_its_parent(in_child):
    """A child closes the connection that its parent has open, and the parent's goes on."""
    reached = threading.Event()

    def behave(connection, over) -> None:
        reached.set()
        if not over.wait(0):
            answer.wait(60)
        connection.sendall(ACCEPTED)

    answer = threading.Event()
    statuses: list[int] = []
    with server(behave) as (url, _):
        port = url.rpartition(":")[2]
        http = HttpPost(url)
        thread = threading.Thread(target=lambda: statuses.append(http(b"{}", HEADERS, 60)[0]))
        thread.start()
        assert reached.wait(60)
        while not http.http._wire._connection.sock._io_refs:  # until it reads, when a close alone would close nothing
            thread.join(0.01)

        def child() -> bytes:
            http.http.forget()
            peers = []
            for name in [path.name for path in OPEN_FILES.iterdir()]:
                try:
                    with socket.socket(fileno=os.dup(int(name))) as peer:
                        if peer.family == socket.AF_INET:  # the fork server of other tests is reached by another kind
                            peers.append(str(peer.getpeername()[1]))
                except OSError:
                    continue
            return str(port in peers).encode()

        assert in_child(child) == b"False"
        answer.set()
        thread.join(60)
    assert statuses == [202]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Make a certificate for the loopback that only those trust who are told to."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("this system has no openssl")
    directory = tmp_path_factory.mktemp("certificate")
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
            *("-keyout", str(key), "-out", str(certificate), "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_certificates_of_the_environment(certificate, monkeypatch, name):
    """A company's certificate is trusted when the environment names it, and only then."""
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(variable, raising=False)
    context, path = certificate
    with server(say(ACCEPTED), context) as (url, requests):
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            HttpPost(url)(b"{}", HEADERS, 60)
        assert not requests
        monkeypatch.setenv(name, str(path))
        assert HttpPost(url)(b"{}", HEADERS, 60)[0] == 202
        assert len(requests) == 1


def test_a_folder_of_certificates(certificate, monkeypatch, tmp_path):
    """The environment may name a folder as OpenSSL keeps it, each file by the hash of its subject."""
    context, path = certificate
    command = [shutil.which("openssl"), "x509", "-in", str(path), "-noout", "-hash"]
    name = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    shutil.copy(path, tmp_path / f"{name}.0")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path))
    with server(say(ACCEPTED), context) as (url, _):
        assert HttpPost(url)(b"{}", HEADERS, 60)[0] == 202
