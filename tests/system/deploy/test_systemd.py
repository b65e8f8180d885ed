"""deploy/systemd: what systemd-analyze says of the units, and whether the processes get by with what they are left."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests
from service import BIN, children, clean, end, read_only, spawn
from shipped import DEPLOY, environment, variables
from units import STRACE, allowed, analyze, counted_calls, needs_strace, needs_systemd, unit
from waiting import eventually

from deniable_aggregator.process.ports import free_port

UNITS = {"deniable-server@.service": "ingest", "deniable-worker@.service": "1"}
RELAY = "deniable-relay.service"  # of somebody else
JOBS = {"deniable-backup", "deniable-audit-log@"}
INGEST = "deniable-server@ingest.service.d/ingest.conf"
OPT = "/opt/deniable/full/bin"


@needs_systemd
@pytest.mark.parametrize("name", sorted([*UNITS, RELAY]))
def test_a_unit_is_valid(name, tmp_path):
    """The units have only options that systemd knows, and it finds what they start."""
    text = (DEPLOY / "systemd" / name).read_text("utf-8").replace(OPT, BIN).replace("/opt/deniable/relay/bin", BIN)
    path = tmp_path / name.replace("@", f"@{UNITS.get(name)}")
    path.write_text(text, "utf-8")
    done = analyze("verify", "--man=no", "--recursive-errors=no", str(path))
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize("name", sorted(JOBS))
def test_a_job_and_its_timer_are_valid(name, tmp_path):
    """All their options are known, the timer starts the job, and the next night is a time that it can name."""
    paths = []
    for kind in ("service", "timer"):
        text = (DEPLOY / "systemd" / f"{name}.{kind}").read_text("utf-8").replace(OPT, BIN)
        paths.append(tmp_path / f"{name.replace('@', '@shop')}.{kind}")
        paths[-1].write_text(text, "utf-8")
    done = analyze("verify", "--man=no", "--recursive-errors=no", *map(str, paths))
    assert (done.returncode, done.stderr) == (0, "")
    assert analyze("calendar", *unit(f"{name}.timer", "Timer")["OnCalendar"]).returncode == 0


@pytest.mark.parametrize("name", sorted(JOBS))
def test_a_job_does_what_it_says(composed, tmp_path, name):
    """Its commands, with the files that it names, end well; a copy is there, or the log is whole."""
    job, env = unit(f"{name}.service"), {}
    for file in job["EnvironmentFile"]:
        env |= environment(composed.private.path(file.removeprefix("/etc/deniable/")))
    for line in job["ExecStart"]:
        here = re.sub("/var/backups/deniable|/var/lib/deniable-audit-log", str(tmp_path / "kept"), line)
        command = here.replace(OPT, BIN).replace("%i", "shop").split()
        done = subprocess.run(command, env=clean() | env, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700


@needs_systemd
@pytest.mark.parametrize("name", sorted([*UNITS, RELAY]))
def test_a_unit_is_locked_up(name):
    """What systemd measures as exposure is at most 1.5 of 10 ("OK")."""
    done = analyze("security", "--no-pager", "--offline=true", "--threshold=15", str(DEPLOY / "systemd" / name))
    if "Unknown" in done.stderr or "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze does not judge files")
    assert done.returncode == 0, done.stdout


def test_units_say_the_same():
    """All units lock their processes up alike; a relay needs nothing for kernels."""
    server, worker, relay = (
        {o: v for o, v in unit(name).items() if re.match("Protect|Private|Restrict|System|Cap|No", o)} for name in [*UNITS, RELAY]
    )
    assert server == worker == relay | {"SystemCallFilter": [*relay["SystemCallFilter"], "mbind"]}
    assert len(server) > 15


def test_what_a_unit_names_is_there(private):
    """Environment files are shipped or drawn, and say nothing that nobody reads; programs are those of the package."""
    for name, instance in UNITS.items():
        service = unit(name)
        for file in service["EnvironmentFile"]:
            path = private.path(file.removeprefix("/etc/deniable/").replace("%i", instance))
            assert set(environment(path)) <= variables()
        names = re.findall(r"(\w+)=", " ".join(service["Environment"]))
        assert set(names) <= variables()
        program = Path(service["ExecStart"][0].split()[0])
        assert program.parent == Path(OPT)
        assert (Path(BIN) / program.name).exists()


def test_what_faces_the_internet_runs_its_packages_alone():
    """The instance `ingest` is started alike, from its own packages; nothing else of the unit is loosened."""
    drop = unit(INGEST)
    (line,) = unit("deniable-server@.service")["ExecStart"]
    assert drop == {"ExecStart": ["", line.replace(OPT, "/opt/deniable/ingest/bin")], "MemoryDenyWriteExecute": ["yes"]}


def test_units_leave_time_to_end():
    """A process is killed only after the time in which it promises to end."""
    from deniable_aggregator.commands.worker import _STOP_SECONDS
    from deniable_server import gunicorn_conf

    assert int(unit("deniable-server@.service")["TimeoutStopSec"][0]) > gunicorn_conf.graceful_timeout
    assert int(unit("deniable-worker@.service")["TimeoutStopSec"][0]) > _STOP_SECONDS + 5
    for name in UNITS:
        assert unit(name)["RestartPreventExitStatus"] == ["2"]


def server_command(port):
    (words,) = unit("deniable-server@.service")["ExecStart"]
    line = words.replace(OPT, BIN).replace("/opt/deniable", str(DEPLOY)).replace("${PORT}", str(port))
    return line.split()


def environment_at(composed, name, port):
    env = composed.environment_of(name) | {"PORT": str(port)}
    del env["GUNICORN_CMD_ARGS"]
    return env


def test_the_server_tells_systemd_that_it_is_ready(composed, tmp_path):
    """gunicorn, started as the unit does, sends what Type=notify waits for."""
    assert unit("deniable-server@.service")["Type"] == ["notify"]
    with ExitStack() as undo, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        path = Path("/tmp", f"n{os.getpid()}.sock")
        undo.callback(path.unlink, missing_ok=True)
        supervisor.bind(str(path))
        supervisor.settimeout(40)
        port = free_port()
        process = spawn(
            undo, tmp_path / "log", server_command(port), environment_at(composed, "ingest", port) | {"NOTIFY_SOCKET": str(path)}
        )
        assert b"READY=1" in supervisor.recv(1024)
        assert end(process) == 0


@needs_systemd
@needs_strace
def test_the_server_makes_no_call_that_is_forbidden(composed, tmp_path):
    """What a server asks of the system from its start to its end, the unit's filter lets through."""
    port, trace = free_port(), tmp_path / "trace"
    with ExitStack() as undo:
        command = [*STRACE, trace, *server_command(port)]
        process = spawn(undo, tmp_path / "log", command, environment_at(composed, "ingest", port))
        assert eventually(lambda: requests.get(f"http://127.0.0.1:{port}/readyz", timeout=300).ok), (tmp_path / "log").read_text()
        for child in children(process.pid):
            os.kill(child, signal.SIGTERM)
        assert process.wait(120) == 0
    assert {"accept4", "execve"} & counted_calls(trace)
    assert counted_calls(trace) - allowed("deniable-server@.service") == set()


@needs_strace
def test_what_takes_reports_makes_no_code(composed, tmp_path):
    """A server of reports never asks for memory that it may write and run, nor makes any runnable later."""
    port, trace = free_port(), tmp_path / "trace"
    with ExitStack() as undo:
        command = ["strace", "-f", "-qq", "-e", "trace=mmap,mprotect,shmat", "-o", trace, *server_command(port)]
        process = spawn(undo, tmp_path / "log", command, environment_at(composed, "ingest", port))
        assert eventually(lambda: requests.get(f"http://127.0.0.1:{port}/readyz", timeout=300).ok), (tmp_path / "log").read_text()
        for child in children(process.pid):
            os.kill(child, signal.SIGTERM)
        assert process.wait(120) == 0
    calls = trace.read_text().splitlines()
    assert any("mmap(" in call and "PROT_READ|PROT_EXEC" in call for call in calls)
    assert not [call for call in calls if "PROT_EXEC" in call and ("PROT_WRITE" in call or "mprotect(" in call)]


@needs_systemd
@needs_strace
def test_the_worker_makes_no_call_that_is_forbidden(composed, tmp_path):
    """A worker compiles and runs its kernels within the unit's filter, on read-only packages and with nowhere to keep them."""
    trace = tmp_path / "trace"
    command = [*STRACE, str(trace), "deniable", "worker", "--burst"]
    env = composed.environment_of("worker") | {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent"}
    del env["NUMBA_CACHE_DIR"]
    env = clean() | env
    done = subprocess.run(read_only(command) or command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert {"connect", "mprotect"} <= counted_calls(trace)
    assert counted_calls(trace) - allowed("deniable-worker@.service") == set()
