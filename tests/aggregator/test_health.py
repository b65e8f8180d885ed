"""The health of an app: what waits, for how long, and who works on it."""

from __future__ import annotations

import json
import time
from threading import Event, Thread

import pytest
from machines import wait
from workers import running

from deniable.commands.entry import main
from deniable_aggregator.counting.counter import WorkerSettings
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.publish.timetable import Pass
from deniable_aggregator.store import GROUP, Store, Upload, errors
from deniable_aggregator.store.uploads import health

pytestmark = pytest.mark.both_stores


@pytest.fixture
def store(real_redis):
    return Store(real_redis, "shop")


def append(store, key):
    store.append(Upload(b"not a batch", key=str(key), remember=b"-", cap=10, ttl=60))


def test_an_app_that_nobody_uses(store):
    """Nothing waits, nobody works."""
    assert health.read(store) == health.Health(0, 0, 0.0, 0, 0)


def test_what_waits_for_a_worker_that_never_came(store):
    """Nobody can tell how long it waits."""
    append(store, 1)
    assert health.read(store) == health.Health(1, 0, None, 0, 0, known=False)


def waits(store, seconds):
    """Have what is noted of an app be older by some seconds."""
    words = store._client.get(store.partitions[0].caught).decode().split()
    times = [word if word == "-" else f"{float(word) - seconds:.3f}" for word in words[:2]]
    store._client.set(store.partitions[0].caught, " ".join(times + words[2:]))


def test_lag_is_since_everything_was_counted(store):
    """What waits came after that, so it bounds how long anything waits, whether it is in a worker's hands or not."""
    health.beat(store.partitions[0], "w")
    waits(store, 30)
    assert health.read(store).lag == 0
    append(store, 1)
    assert 29.99 <= health.read(store).lag < 40  # times are kept in milliseconds
    store.partitions[0].join()
    ((_, ((id_, _),)),) = store._client.xreadgroup(GROUP, "w", {store.partitions[0].stream: ">"})
    for _ in range(3):  # however often it changes hands
        health.beat(store.partitions[0], "w")
        store._client.xclaim(store.partitions[0].stream, GROUP, "w", 0, [id_])
        waits(store, 30)
    state = health.read(store)
    assert (state.pending, state.workers, state.known) == (1, 1, True)
    assert 119.99 <= state.lag < 140


def test_lag_is_small_where_all_is_counted_while_more_comes(store):
    """Under load, when the stream is never empty, what came before the last beats is counted, and the lag says so."""
    store.partitions[0].join()
    health.beat(store.partitions[0], "w")
    for number in range(4):
        append(store, number)
        store._client.xreadgroup(GROUP, "w", {store.partitions[0].stream: ">"})
        ids = [id_ for id_, _ in store._client.xrange(store.partitions[0].stream)][:-1]
        assert store.partitions[0].commit("w", ids, {}, 0) == []
        waits(store, 100)
        health.beat(store.partitions[0], "w")
    waits(store, 7)
    assert 106.99 <= health.read(store).lag < 120


def test_what_waits_for_workers_that_came_late_has_waited_at_least_since(store):
    """Before a worker has ever had everything counted, nobody knows more; nothing may rely on it."""
    append(store, 1)
    health.beat(store.partitions[0], "w")
    waits(store, 50)
    state = health.read(store)
    assert 49.99 <= state.lag < 60
    assert not state.known


def test_a_clock_that_was_set_back_hides_no_lag(store):
    """What waits since is told from then on, and not taken for counted; once it is counted, all is known again."""
    health.beat(store.partitions[0], "gone")
    waits(store, -3600)  # as if the store's clock had been an hour ahead
    store._client.zadd(store.partitions[0].workers, {"gone": time.time() + 3600})
    append(store, 1)
    state = health.read(store)
    assert (state.lag, state.known, state.workers) == (None, False, 0)
    health.beat(store.partitions[0], "w")
    waits(store, 50)
    state = health.read(store)
    assert (49.99 <= state.lag < 60, state.known, state.workers) == (True, False, 1)
    store.partitions[0].join()
    ((_, ((id_, _),)),) = store._client.xreadgroup(GROUP, "w", {store.partitions[0].stream: ">"})
    assert store.partitions[0].commit("w", [id_], {}, 0) == []
    health.beat(store.partitions[0], "w")
    append(store, 2)
    state = health.read(store)
    assert (state.lag < 10, state.known) == (True, True)


def test_workers_are_believed_for_a_minute(store):
    """One that gave no sign of life for longer is not counted; one that left is not, at once. Machines' clocks do not matter."""
    store._client.zadd(store.partitions[0].workers, {"old": store._client.time()[0] - 90})
    assert health.read(store).workers == 0
    health.beat(store.partitions[0], "new")
    assert store._client.zrange(store.partitions[0].workers, 0, -1) == [b"new"]
    assert health.read(store).workers == 1
    health.stop(store.partitions[0], "new")
    assert health.read(store).workers == 0
    health.beat(store.partitions[0], "new")
    assert 0 < store._client.ttl(store.partitions[0].workers) <= health.LIFE_SECONDS


def test_who_gives_no_sign_of_life_is_silent(store, monkeypatch):
    """A worker is silent once its sign of life, or that it has none, has not changed for so long by our own clock."""
    now, signs = [1000.0], health.Signs(store.partitions[0])
    monkeypatch.setattr(health.time, "monotonic", lambda: now[0])
    health.beat(store.partitions[0], "lives")
    health.beat(store.partitions[0], "died")
    assert signs.silent([], 60) == signs.silent(["lives", "died", "left"], 60) == []
    for _ in range(4):
        now[0] += 20
        health.beat(store.partitions[0], "lives")
        silent = signs.silent(["lives", "died", "left"], 60)
    assert silent == ["died", "left"]
    now[0] += 1
    health.beat(store.partitions[0], "died")  # it was stopped, and goes on
    assert signs.silent(["lives", "died"], 60) == []


def test_a_worker_shows_and_leaves(store):
    """A running worker is seen, and is not once it has stopped."""
    worker = Worker([store], WorkerSettings(block_ms=50))
    with running(worker):
        wait(lambda: health.read(store).workers == 1)
    assert (health.read(store).workers, worker.cut_off) == (0, False)


def test_a_worker_counts_as_alive_until_its_successor_is_there(store):
    """One that ends for another to start in its place leaves its last sign of life, so that a restart is no alarm."""
    stop, successor = Event(), Event()
    worker = Worker([store], WorkerSettings(block_ms=50))
    thread = Thread(target=worker.run, args=[stop], kwargs={"successor": successor})
    thread.start()
    wait(lambda: health.read(store).workers == 1)
    successor.set()
    stop.set()
    thread.join()
    assert (health.read(store).workers, worker.cut_off) == (1, False)


def test_status_tells(store, store_url, capsys, monkeypatch):
    """`deniable status` shows each app; its exit status is 1 while batches wait for nobody."""
    monkeypatch.setenv("DENIABLE_APPS", "shop,blog")
    options = ["status", "--redis-url", store_url, "--app", "shop", "--app", "blog"]
    assert main(options) == 0
    append(store, 1)
    assert main(options) == 1
    assert "\nshop: 1 batch waits, and no worker runs to count what comes: start" in capsys.readouterr().out
    health.beat(store.partitions[0], "w")
    capsys.readouterr()
    assert main([*options, "--json"]) == 0
    shop, blog = map(json.loads, capsys.readouterr().out.splitlines())
    assert (shop["app"], shop["backlog"], shop["workers"], blog["backlog"]) == ("shop", 1, 1, 0)
    assert main(options) == 0
    header, first, _, empty, *verdicts, legend = capsys.readouterr().out.splitlines()
    assert legend.startswith("Backlog, in hand and dead letters are batches")
    assert empty == ""
    idle = "nothing waits, and no worker runs to count what comes: start `deniable worker`, or `deniable serve`"
    assert verdicts == ["shop: 1 batch waits for a worker that runs", f"blog: {idle}"]
    assert header.split()[:3] == ["app", "workers", "backlog"]
    assert first.split()[:3] == ["shop", "1", "1"]
    Pass(at=1_795_867_200, next=1_795_870_800, n=1200).note(store)
    assert main(options) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0].endswith("counted"), lines[1].endswith("  1,200")) == (True, True)
    assert lines[-1] == (
        "shop: the 1,200 reports were counted by 12:00 UTC, in periods that still take some; "
        "what was counted since then shows at 13:00 or soon after"
    )
    with Faults(store).alone(health.MEMORY):
        raise errors.NoRoom
    Pass(at=1_795_867_200, next=1_795_870_800, n=0).note(store)
    assert main(options) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (lines[1].split()[-2:], "0" in lines[1].split()[-1]) == (["memory", "-"], False)
    assert "shop: 1 batch waits; counting is held up by memory: `deniable doctor` says what to do" in lines
    assert lines[-1] == (
        "shop: how many are counted shows at 13:00 UTC or soon after, and results when a period closes "
        "(of a metric without segments also in steps before that, unless `early` is false)"
    )
    assert main([*options, "--json"]) == 0
    row = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (row["counted"], row["counted_at"]) == (None, "2026-11-28T12:00Z")


def test_status_of_a_trial_says_of_which_second_it_is(store, store_url, capsys, monkeypatch):
    """A number that is older than what is published already would look like a loss."""
    monkeypatch.setenv("DENIABLE_APPS", "shop")
    Pass(at=1_795_867_297, next=1_795_867_297, n=30).note(store)
    options = ["status", "--redis-url", store_url, "--app", "shop"]
    assert main(options) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "shop: the 30 reports were counted by 12:01:37 UTC, in periods that still take some; a worker looks again every 2 seconds"
    )
    assert main([*options, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["counted"], row["counted_at"]) == (30, "2026-11-28T12:01:37Z")
    health.beat(store.partitions[0], "w")
    monkeypatch.setattr(Store, "now", lambda _: 1_795_867_340)
    assert main(options) == 0
    assert "shop: all that came by 12:02:20 UTC is counted" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("localhost:8210", "DENIABLE_REDIS_URL, --redis-url: write redis://localhost:8210/0; this is localhost:8210"),
        ("u:secret@localhost:8210", "DENIABLE_REDIS_URL, --redis-url: write redis://, unix://, redis+cluster://"),
    ],
)
def test_an_address_without_its_scheme(url, words, capsys):
    """It is said how it is written, and a password is never repeated."""
    assert main(["status", "--redis-url", url, "--app", "shop"]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert "secret" not in err


def test_a_worker_without_a_store_is_told_how_one_is_named(capsys, monkeypatch):
    monkeypatch.delenv("DENIABLE_REDIS_URL", raising=False)
    assert main(["worker", "--app", "shop"]) == 2
    assert "no store is named: set DENIABLE_REDIS_URL, or give --redis-url; " in capsys.readouterr().err


def test_a_worker_without_a_usable_registry_says_which_file_and_why(store_url, tmp_path, capsys, monkeypatch):
    """That it could be given an app's name is no help: the file is wrong."""
    monkeypatch.delenv("DENIABLE_APPS", raising=False)
    gone, bad = tmp_path / "gone.toml", tmp_path / "bad.toml"
    bad.write_text('format = 1\n[metrics.page]\ntype = "nope"\n', "utf-8")
    for paths in ([gone], [bad], [gone, bad]):
        for more in ([], ["--app", "shop"]):
            assert main(["worker", "--redis-url", store_url, "--registry", ":".join(map(str, paths)), *more]) == 2
            lines = capsys.readouterr().err.removeprefix("deniable worker: ").splitlines()
            assert list(dict.fromkeys(line.partition(":")[0] for line in lines)) == list(map(str, paths))
            assert gone not in paths or lines[0].endswith(": name another file, or have `deniable init` write one")


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["audit-log", "verify"],
        ["audit-log", "verify", "--files", "."],
        ["dead-letters", "list"],
        ["erase"],
        ["erase", "--metric", "ui.theme"],
        ["keys", "list"],
        ["recount", "--archive", "."],
    ],
)
def test_an_app_that_nobody_knows(store, store_url, words, capsys, monkeypatch):
    """A mistyped name is no app that is well: status 2, with the apps that are known. One that the store has is known."""
    command, *more = words
    app = ["--app", "shpo"]
    outcome = main([command, "--redis-url", store_url, *app, *more]), capsys.readouterr().err
    assert outcome == (
        2,
        f"deniable {command}: no app 'shpo': no registry declares it, and the store has nothing of it; {NAMED}\n",
    )
    monkeypatch.setenv("DENIABLE_APPS", "shop,blog")
    assert main([command, "--redis-url", store_url, *app, *more]) == 2
    assert "no app 'shpo' (did you mean 'shop'?)" in (err := capsys.readouterr().err)
    assert err.endswith("known apps are shop, blog\n")
    Store(store._client, "shpo").divide()
    assert main([command, "--redis-url", store_url, *app, *more]) == {"recount": 1, "erase": 2}.get(command, 0)


NAMED = "DENIABLE_REGISTRY names none"
