"""deploy/README.md, two machines and Debian's store: its lines are run as they are, but for addresses and folders."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from contextlib import ExitStack

import pytest
import redis
from service import clean, spawn
from shipped import DEPLOY, environment
from waiting import eventually

from deniable_aggregator.process.ports import free_port
from deniable_aggregator.store import connect

pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server on PATH")

README = (DEPLOY / "README.md").read_text("utf-8")


def block(name):
    """Return the shell lines of the README under a mark."""
    return re.search(rf"<!-- {name} -->\n```sh\n(.*?)```", README, re.DOTALL)[1]


def run(lines):
    subprocess.run(["sh", "-e", "-c", lines], cwd=DEPLOY.parent, env=clean(), capture_output=True, timeout=300, check=True)


def draw(folder, *words):
    command = [sys.executable, DEPLOY / "passwords.py", DEPLOY / "users.acl", "--folder", folder, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def installed(tmp_path):
    """Write the store's file as an operator on Debian does."""
    for folder in ("etc/redis", "lib/redis", "etc/deniable"):
        (tmp_path / folder).mkdir(parents=True)
    written, _ = block("store").split("systemctl")
    run(written.replace("/etc/", f"{tmp_path}/etc/").replace("/var/lib/", f"{tmp_path}/lib/"))
    return tmp_path / "etc" / "redis" / "redis.conf"


def served(url):
    try:
        with connect(url) as client:
            return client.ping()
    except redis.RedisError:
        return False


def test_the_store_of_debian_has_its_files_where_it_may_write(tmp_path):
    """It is started in another folder, as by Debian's unit, which has none."""
    file, port = installed(tmp_path), free_port()
    assert draw(tmp_path / "etc" / "deniable" / "private", "--store", f"127.0.0.1:{port}").returncode == 0
    url = environment(tmp_path / "etc" / "deniable" / "private" / "operator.env")["DENIABLE_REDIS_URL"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with ExitStack() as undo:
        spawn(undo, tmp_path / "log", ["redis-server", file, "--port", str(port)], {}, cwd=elsewhere)
        assert eventually(lambda: served(url)), (tmp_path / "log").read_text()
    assert [path.name for path in (tmp_path / "lib" / "redis").iterdir()] == ["appendonlydir"]
    assert list(elsewhere.iterdir()) == []


def test_a_store_on_another_machine_speaks_tls(tmp_path):
    """Each user reaches it with the certificate, nobody without one or in the clear, and a copy is made over TLS."""
    file, port, private = installed(tmp_path), free_port(), tmp_path / "etc" / "deniable" / "private"
    lines = block("certificate").replace("chown redis", "chmod 600").replace("/etc/redis", f"{tmp_path}/etc/redis")
    run(lines.replace("127.0.0.1 10.0.0.2", "127.0.0.1").replace("10.0.0.2", "127.0.0.1"))
    certificate = tmp_path / "etc" / "redis" / "store.crt"
    assert draw(private, "--store", f"127.0.0.1:{port}", "--tls", certificate).returncode == 0
    urls = {user: environment(private / f"{user}.env")["DENIABLE_REDIS_URL"] for user in ("ingest", "worker", "backup")}
    assert all(url.startswith("rediss://") for url in urls.values())
    with ExitStack() as undo:
        spawn(undo, tmp_path / "log", ["redis-server", file, "--tls-port", str(port)], {})
        assert eventually(lambda: served(urls["worker"])), (tmp_path / "log").read_text()
        assert served(urls["ingest"])
        assert not served(urls["ingest"].partition("?")[0])
        assert not served(urls["ingest"].partition("?")[0].replace("rediss", "redis"))
        command = ["sh", DEPLOY / "backup.sh", tmp_path / "copies"]
        env = clean() | {"DENIABLE_REDIS_URL": urls["backup"]}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (copy,) = (tmp_path / "copies").iterdir()
    assert copy.read_bytes().startswith(b"REDIS")


def test_what_tls_needs_is_said(tmp_path):
    """A path that depends on the folder, and a second answer to what the files in use say, are refused."""
    assert "write the whole path" in draw(tmp_path / "new", "--tls", "store.crt").stderr
    assert draw(tmp_path / "old").returncode == 0
    done = draw(tmp_path / "new", "--keep", tmp_path / "old", "--tls", "/etc/store.crt")
    assert "leave one of them out" in done.stderr
    assert not (tmp_path / "new").exists()
