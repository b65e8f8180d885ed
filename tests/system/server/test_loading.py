"""A store that was started and reads its file: nobody takes it for one with wrong settings, or for one that is down."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import redis
from machines import wait

from deniable.commands import entry as cli
from deniable_aggregator.store import errors
from deniable_aggregator.store.server.durability import Durability
from deniable_server import create_app, gunicorn_conf

KEYS, MICROSECONDS = 20_000, 10_000
"""So many, and so long for each: minutes, unless the store is let go on."""


@pytest.fixture
def loading(machines):
    """Start a store that reads its file until it is let go on. Its user `shy`, as those of servers, may not see settings."""
    settings = ("--appendonly", "yes", "--rdbcompression", "no", "--user", "shy on >pw ~* &* +@all -config")
    store = machines.start(*settings)
    store.client.mset({f"key-{number}": "x" * 1024 for number in range(KEYS)})
    store.client.bgrewriteaof()
    wait(lambda: not store.client.info("persistence")["aof_rewrite_in_progress"])
    store.kill()
    store.settings += ("--key-load-delay", str(MICROSECONDS), "--loading-process-events-interval-bytes", "1024")
    return store.start(loads=False)


def test_a_store_that_reads_its_file_is_waited_for(loading, settings, monkeypatch, capsys, caplog):
    """The settings it shows meanwhile are not believed; servers start, and `/readyz` and the doctor say what it does."""
    url = f"redis://shy:pw@127.0.0.1:{loading.port}"
    with redis.Redis.from_url(url) as shy:
        assert not shy.info("persistence")["aof_enabled"]  # although it has one
        with pytest.raises(errors.StoreLoading):
            Durability().check(shy)
    here = replace(settings, redis_url=url)
    for name, value in here.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")  # which gunicorn sets
    gunicorn_conf.on_starting(
        SimpleNamespace(cfg=SimpleNamespace(address=[], reuse_port=False))
    )  # it ends with status 2 where the settings are wrong
    gunicorn_conf.on_exit(None)
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR")
    flask = create_app(here)
    ready = flask.test_client().get("/readyz")
    part = ready.get_json()["parts"]["store"]
    assert (ready.status_code, part["reason"]) == (503, "loading")
    assert part["detail"].startswith("the store cannot be used: it has started and is reading its file")
    assert "To mend that: wait: it answers when it has read its file" in caplog.text
    assert "appendonly" not in caplog.text
    assert cli.main(["doctor"]) == 3
    assert "store: it has started and is reading its file" in capsys.readouterr().out
    loading.client.config_set("key-load-delay", 0)
    wait(lambda: flask.test_client().get("/readyz").status_code == 200)
