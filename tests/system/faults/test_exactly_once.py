"""Whatever dies when, accepted reports are counted, and counted once. `just chaos` does more of the same."""

from __future__ import annotations

import pytest

pytest.importorskip("flask")

SECONDS = 2.5


@pytest.fixture(scope="module", params=["redis-server", "wheel"])
def stage(request):
    """Start the service on each server in turn."""
    from chaos import Stage
    from processes import servers

    programs = servers()
    if request.param not in programs:
        pytest.skip(f"no {request.param} here")
    with Stage(programs[request.param]) as stage:
        yield stage


@pytest.mark.campaign
@pytest.mark.parametrize("seed", [1001, pytest.param(1002, marks=pytest.mark.nightly)])
def test_accepted_is_counted(stage, seed):
    """Workers, server processes and the store are killed, stopped and cut off under load; no report is lost or counted twice."""
    run = stage.run(seed, SECONDS)
    assert run.faults == []
    assert run.accepted == run.counted
    assert run.unary == run.weighed
    assert run.weighed.total() > 0
    assert run.done["uploads"] > 0


@pytest.mark.campaign
def test_each_point_of_a_commit_survives_a_kill(stage):
    """Workers that die before, inside and after their commits lose nothing and count nothing twice."""
    run = stage.run(2000, SECONDS, rate=0.2)
    assert run.faults == []
    assert run.done["at before"] + run.done["at inside"] + run.done["at after"] > 0


@pytest.mark.campaign
def test_the_archive_is_what_was_counted(stage):
    """Whoever dies between the files of a commit and its end, a recount of the files that count is the tally."""
    pytest.importorskip("pyarrow")
    run = stage.run(2100, SECONDS, rate=0.15, archive=True)
    assert run.faults == []
    assert run.accepted == run.counted
    assert run.done["orphans"] > 0


@pytest.mark.campaign
def test_logs_hold_no_payload(stage):
    """Neither the server nor the workers, which have just been through everything, logged a report, a key or an upload's name."""
    from chaos import KEY

    def read():
        written = [stage.folder / "server.log", stage.folder / "workers.log"]
        return "".join(path.read_text() for path in written if path.exists())

    for seed in range(3000, 3010):  # the tests above may have run on another stage
        if stage.uploads and ("taken over by another worker" in read() or "cannot be used" in read()):
            break
        stage.run(seed, SECONDS, rate=0.2)
    else:
        pytest.fail("there was nothing to log")
    logs = read()
    for upload in stage.uploads:
        assert upload.key not in logs
        assert upload.body.decode()[:80] not in logs
    assert KEY not in logs


@pytest.fixture(scope="module")
def relayed():
    """Start the service with a relay."""
    from processes import servers
    from relayed import RelayStage

    with RelayStage(next(iter(servers().values()))) as stage:
        yield stage


@pytest.mark.campaign
@pytest.mark.parametrize(
    "seed", [4001, pytest.param(4002, marks=pytest.mark.nightly), pytest.param(4003, marks=pytest.mark.nightly)]
)
def test_what_a_relay_accepts_is_counted_or_too_few(relayed, seed):
    """Relay, server, workers and store die, lines are cut: each report counts once, in its place, and no address stays."""
    from relayed import ADDRESS, RELAY_TROUBLES

    run = relayed.run(seed, relayed.seconds, troubles=RELAY_TROUBLES)
    assert run.faults == []
    assert run.accepted == run.counted
    assert run.accepted.total() > 0
    assert run.done["relay kills"] + run.done["relay deaths"] > 0
    relayed.kill_relay()
    files = [path for path in relayed.folder.rglob("*") if path.is_file()]
    assert {"pools.db", "relay.log", "server.log", "workers.log"} <= {path.name for path in files}
    address = bytes(map(int, ADDRESS.split(".")))
    for path in files:
        content = path.read_bytes()
        assert ADDRESS.encode() not in content, path
        assert path.suffix != ".db" or address not in content, path
