"""`deniable serve`: one command that runs everything, prints what an app needs, and keeps what it counted."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Timer
from types import SimpleNamespace

import pytest
import requests

import deniable
from deniable_aggregator.process import running
from deniable_aggregator.process.ports import free_port
from deniable_aggregator.store import Store, connect
from deniable_aggregator.store.uploads import registries

STARTS = "Starting a store, a server and a worker. This takes some seconds ...\n"
REGISTRY = Path(__file__).parents[3] / "deploy" / "metrics.toml"


@pytest.fixture
def trial(tmp_path):
    """Write the example registry with a trial's publication."""
    path = tmp_path / "metrics.toml"
    path.write_text(REGISTRY.read_text("utf-8") + "\n[publication]\ntrial = true\n", "utf-8")
    (tmp_path / "search-engines.txt").write_bytes((REGISTRY.parent / "search-engines.txt").read_bytes())
    return path


@contextmanager
def serving(registry, data, end=signal.SIGTERM, **more):
    """Serve until the block ends; yield the DSN, the read key and the address."""
    bind = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "deniable", "serve", "--registry", registry, "--bind", bind, "--data", data]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DENIABLE_")} | more
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        text = ""
        while "Ctrl-C" not in text:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            text += line
        (data.parent / "output").write_text(text, "utf-8")
        yield re.search(r"DSN: +(\S+)", text)[1], re.search(r"Read key: +(\S+)", text)[1], f"http://{bind}"
    finally:
        process.send_signal(end)
        output = process.communicate(timeout=300)
        assert process.returncode == 0, output
        assert "Stopping ..." in output[1]
        assert "Traceback" not in output[1]


def answered(url, key):
    answer = requests.get(f"{url}/api/v1/metrics/export.used", headers={"Authorization": f"Bearer {key}"}, timeout=300)
    return answer.json()


def count(url, key, least, seconds=600.0):
    deadline = time.monotonic() + seconds
    while True:
        n = answered(url, key)["n"]
        if n >= least or time.monotonic() > deadline:
            return n
        time.sleep(0.1)


@pytest.mark.starts_anew  # one instance is started as people do; all others are forked
def test_counts_survive_a_restart(trial, tmp_path):
    """What was recorded with the printed DSN is published, read with the printed key, and still there after a restart."""
    data = tmp_path / "data"
    with serving(trial, data) as (dsn, key, url):
        for i in range(6):  # devices, each of which answers once a week
            platform = {"platform": "linux"}
            with deniable.Client(dsn=dsn, registry=trial, consent=True, segments=platform, state=None, strict=True) as client:
                assert client.record("export.used", i % 3 == 0)
                assert client.flush(60)
                assert client.stats()["sent"] == 1
        assert count(url, key, 6) == 6
        page = requests.get(f"{url}/m/export.used", timeout=300)
        assert page.url.endswith("/login")
        time.sleep(1.1)  # appendfsync everysec
    with serving(trial, data) as (again, same, url):
        assert same == key
        assert again.partition("@")[0] == dsn.partition("@")[0]
        assert count(url, key, 6) == 6
    assert "Warning" not in (tmp_path / "output").read_text("utf-8")


def test_a_definition_that_hides_what_was_published_is_told(trial, tmp_path):
    """Whoever changes the epsilon of a version learns at the start why its page is empty, and what to do."""
    data = tmp_path / "data"
    with serving(trial, data) as (dsn, key, url):
        with deniable.Client(
            dsn=dsn, registry=trial, consent=True, segments={"platform": "linux"}, state=None, strict=True
        ) as client:
            assert client.record("export.used", value=True)
            assert client.flush(60)
        assert count(url, key, 1) == 1
        time.sleep(1.1)  # appendfsync everysec
    text = trial.read_text("utf-8")
    before, of, after = text.partition('[metrics."export.used"]')
    trial.write_text(before + of + re.sub(r"epsilon = \S+", "epsilon = 0.7", after, count=1), "utf-8")
    with serving(trial, data) as (_, key, url):
        output = (tmp_path / "output").read_text("utf-8")
        assert "\nWarning:   export.used version 1 was also published as " in output
        assert "what was counted before is shown apart from what comes now" in output
        assert "raise version to 2, or write it as it was" in output
        answer = answered(url, key)
        assert (answer["n"], [each["n"] for each in answer["earlier"]]) == (0, [1])


@contextmanager
def watched(registry, data):
    """Serve until the block ends; yield the process, and a function that waits for a line and returns it."""
    command = [sys.executable, "-m", "deniable", "serve", "--registry", registry, "--bind", "127.0.0.1:0", "--data", data]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DENIABLE_")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, **pipes, text=True, env=environment) as process:
        lines = []
        guard = Timer(300, process.kill)  # a line that never comes ends the test
        guard.start()

        def await_line(words):
            while words not in (line := process.stdout.readline()):
                assert line, lines
                lines.append(line)
            lines.append(line)
            return line

        try:
            await_line("Ctrl-C stops everything")
            text = "".join(lines)
            parts = (re.search(pattern, text)[1] for pattern in (r"DSN: +(\S+)", r"Read key: +(\S+)", r"Dashboard: (\S+)/"))
            yield SimpleNamespace(process=process, await_line=await_line, dsn_key_url=tuple(parts), lines=lines)
        finally:
            guard.cancel()
            process.send_signal(signal.SIGTERM)
            lines.append(process.communicate(timeout=600)[0])
            assert process.returncode == 0, lines
            assert "Traceback" not in "".join(lines)


def answer_once(dsn, registry):
    platform = {"platform": "linux"}
    with deniable.Client(dsn=dsn, registry=registry, consent=True, segments=platform, state=None, strict=True) as client:
        assert client.record("export.used", value=True)
        assert client.flush(600)
        assert client.stats()["sent"] == 1


def test_an_edited_registry_is_in_use_at_once_and_a_faulty_one_never(trial, tmp_path):
    """What changed is told in a line, and reports that are sent meanwhile are counted, each once."""
    text = trial.read_text("utf-8")
    about = 'description = "x"\nowner = "x@y.z"\nexpires = 2090-12-31\n'
    metric = f'[metrics.late]\ntype = "boolean"\nepsilon = 0.5\nperiod = "month"\n{about}'
    with watched(trial, tmp_path / "data") as service:
        dsn, key, url = service.dsn_key_url
        stop, number = Event(), []

        def send():
            while not stop.is_set():
                answer_once(dsn, REGISTRY)
                number.append(1)

        def look():
            """Look whether a worker counts as alive at all times after its start, also while it is started anew."""
            numbers = [0]
            while not stop.is_set():
                numbers.append(requests.get(f"{url}/readyz", timeout=300).json()["parts"]["worker:shop"]["workers"])
                assert numbers[-1] >= min(numbers[-2], 1)
                time.sleep(0.05)

        with ThreadPoolExecutor(2) as pool:
            sending, looking = pool.submit(send), pool.submit(look)
            for edition in range(3):
                trial.write_text(f"{text}\n# edition {edition}\n{metric}", "utf-8")
                line = service.await_line("was edited, and the processes read it")
                assert ("late: added" in line) == (edition == 0), line
                assert "2 servers, 1 worker have read it" in service.await_line("is in use from now on")
                trial.write_text(f"{text}\n# edition {edition}\n{metric.replace('0.5', '-1')}", "utf-8")
                assert "late: epsilon = -1: write a number of nats above 0" in service.await_line("stays in use")
            stop.set()
            sending.result(600)
            looking.result(600)
        assert count(url, key, len(number)) == len(number)
        headers = {"Authorization": f"Bearer {key}"}
        assert requests.get(f"{url}/api/v1/metrics/late", headers=headers, timeout=300).json()["epsilon"] == 0.5
        assert not requests.get(f"{url}/readyz", timeout=300).json()["parts"]["registry:shop"]["agrees"]


def living(data, role, before=()):
    """Wait until processes other than those before say that they run, as the doctor reads it; return their numbers."""
    store = Store(connect(running.find(data).environment["DENIABLE_REDIS_URL"]), "shop")
    with closing(store._client):
        while True:
            numbers = {int(each.process.rpartition(":")[2]) for each in registries.running(store) if each.role == role}
            if len(numbers - set(before)) == (2 if role == "server" else 1):  # gunicorn has two
                return numbers
            time.sleep(0.1)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("role", ["worker", "server"])
def test_a_process_that_dies_is_started_again(trial, tmp_path, role):
    """With a line that says so; what was accepted before is counted, and so is what comes after."""
    data = tmp_path / "data"
    with watched(trial, data) as service:
        dsn, key, url = service.dsn_key_url
        before = set()
        for pause in (1, 2):
            new = living(data, role, before) - before
            before |= new
            answer_once(dsn, trial)
            victim = new.pop()
            if role == "server":  # gunicorn, of which this is a process
                victim = int(Path(f"/proc/{victim}/stat").read_text("utf-8").rpartition(") ")[2].split()[1])
            os.kill(victim, signal.SIGKILL)
            line = service.await_line("is started again in")
            assert line.startswith(f"The {role} was killed by SIGKILL")
            assert f"in {pause} s." in line
        living(data, role, before)
        answer_once(dsn, trial)
        assert count(url, key, 3) == 3


def test_a_faulty_registry_stops_the_start(tmp_path):
    """A server does not start on a registry with faults, and names each of them."""
    path = tmp_path / "metrics.toml"
    path.write_text(
        REGISTRY.read_text("utf-8").replace("epsilon = 0.8", "epsilon = -1").replace('type = "ordinal"', 'type = "ordnal"')
    )
    command = [sys.executable, "-m", "deniable", "serve", "--registry", path, "--bind", f"127.0.0.1:{free_port()}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("cart.size") == 2
    assert "Traceback" not in done.stderr


def serve(*arguments, cwd):
    command = [sys.executable, "-m", "deniable", "serve", "--registry", REGISTRY, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=cwd)


@pytest.fixture
def listener():
    """Listen on a port, as another program does."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken.settimeout(0)
        yield taken


def test_a_file_that_cannot_be_served_is_said_before_a_start_is_announced(tmp_path):
    """Nothing was started."""
    done = serve("--registry", "none.toml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"deniable serve: {tmp_path / 'none.toml'}: the registry is missing: ")


def test_a_port_in_use_is_said_before_anything_is_started(listener, tmp_path):
    """A taken port ends the command with one line and a remedy, and no DSN is printed that leads elsewhere."""
    bind = f"127.0.0.1:{listener.getsockname()[1]}"
    done = serve("--bind", bind, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    mend = "stop that, or choose another port (serve --bind, demo --port)"
    assert done.stderr == f"{STARTS}deniable serve: {bind} is in use by another program: {mend}\n"
    with pytest.raises(BlockingIOError):
        listener.accept()


@pytest.mark.parametrize("bind", ["127.0.0.1:99999", "18099", "127.0.0.1:", ":8080", "203.0.113.1:8080", "nosuch.invalid:8080"])
def test_an_address_that_is_none_is_one_line(bind, tmp_path):
    """What cannot be listened on is refused in one line that says what can."""
    done = serve("--bind", bind, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{STARTS}deniable serve: ")
    assert done.stderr.count("\n") == 2
    assert re.search("such as 127.0.0.1:8080|choose an address of this machine", done.stderr), done.stderr


def test_a_second_server_of_a_folder_is_told_of_the_first(trial, tmp_path):
    """Whoever serves a folder twice learns where it is served, how to look at that, and how to stop it."""
    data = tmp_path / "data"
    with serving(trial, data) as (_, _, url):
        done = serve("--data", data, "--bind", "127.0.0.1:0", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        look = f"to look at it: deniable status --data {data};"
        assert line.startswith(f"deniable serve: {data} is served already, at {url}/; {look}")
        assert re.search(r"to stop it: Ctrl-C where it was started, or kill \d+$", line)


def test_an_archive_is_told_and_kept(tmp_path):
    """With the variable the worker keeps reports that have bits, and whoever starts it reads so."""
    pytest.importorskip("pyarrow")
    metric = 'type = "categorical"\nvalues = ["a", "b"]\nepsilon = 1.0\nmechanism = "oue"\ndescription = "x"\nowner = "x@y.z"\n'
    registry, archive = tmp_path / "metrics.toml", tmp_path / "archive"
    registry.write_text(f'format = 1\napp = "shop"\n[metrics.plugin]\n{metric}', "utf-8")
    with serving(registry, tmp_path / "data", DENIABLE_ARCHIVE=str(archive)) as (dsn, *_):
        assert f"Archive:   {archive} (randomised reports are kept there)\n" in (tmp_path / "output").read_text("utf-8")
        with deniable.Client(dsn=dsn, registry=registry, consent=True, state=None, strict=True) as client:
            assert client.record("plugin", "a")
            assert client.flush(60)
        deadline = time.monotonic() + 60
        while not list(archive.rglob("plugin/*/*/*.parquet")):
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_what_is_exported_is_what_programs_read(trial, tmp_path):
    """The lines to copy set the variables of the SDK and of `deniable query`."""
    with serving(trial, tmp_path / "data") as (dsn, key, url):
        lines = re.findall(r"^ +(export .*)$", (tmp_path / "output").read_text("utf-8"), re.MULTILINE)
        names = ["DENIABLE_URL", "DENIABLE_READ_KEY", "DENIABLE_DSN"]
        script = "; ".join([*lines, *(f"printenv {name}" for name in names)])
        read = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
        assert read.stdout.split() == [url, key, dsn]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not end a killed process's children")
def test_nothing_is_left_of_a_killed_server(trial, tmp_path):
    """Once the command is killed its address is free within seconds, no command takes it for running, and it starts anew."""
    data = tmp_path / "data"
    bind = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "deniable", "serve", "--registry", trial, "--bind", bind, "--data", data]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DENIABLE_")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        while "Ctrl-C" not in (line := process.stdout.readline()):
            assert line, process.stderr.read()
        process.kill()
    deadline = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", int(bind.partition(":")[2]))).close()
        except ConnectionRefusedError:
            break
        assert time.monotonic() < deadline
        time.sleep(0.1)
    status = [sys.executable, "-m", "deniable", "status", "--data", data]
    done = subprocess.run(status, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no `deniable serve` runs with --data" in done.stderr
    with serving(trial, data):
        pass


def test_ctrl_c_stops_with_a_word(trial, tmp_path):
    """Ctrl-C ends all in order, says so, and shows no traceback."""
    with serving(trial, tmp_path / "data", end=signal.SIGINT):
        assert (tmp_path / "data" / "serving.json").stat().st_mode & 0o077 == 0
    assert not (tmp_path / "data" / "serving.json").exists()


def test_the_commands_that_are_printed_look_at_what_is_served(trial, tmp_path):
    """With --data commands know keys, registry and store of the server that runs, from any folder and in any environment."""
    data = tmp_path / "data"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DENIABLE_")}

    def look(command):
        words = [sys.executable, "-m", "deniable", *shlex.split(command)]
        return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, cwd="/", env=environment)

    with serving(trial, data):
        printed = re.findall(r"deniable ((?:status|doctor) .*)", (tmp_path / "output").read_text("utf-8"))
        assert [line.split()[0] for line in printed] == ["status", "doctor"]
        status, doctor = (look(line) for line in printed)
        created = look(f"keys create --role read --data {data}")
        listed = look(f"keys list --data {data}")
    assert (status.returncode, status.stdout.splitlines()[1].split()[0]) == (0, "shop"), status.stderr
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    assert "1 ingest, 1 read" in doctor.stdout
    assert (created.returncode, listed.returncode) == (0, 0), created.stderr + listed.stderr
    assert created.stdout.strip().startswith(listed.stdout.splitlines()[1].split()[2])
    again = look(printed[1])
    assert again.returncode == 2
    assert "no `deniable serve` runs with" in again.stderr


def test_what_is_served_here_needs_no_option(trial, tmp_path):
    """In the folder of a server with the default data folder, commands need no option, and what it prints has none."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DENIABLE_")}
    options = {"cwd": tmp_path, "env": environment, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    serve = [sys.executable, "-m", "deniable", "serve", "--registry", trial, "--bind", "127.0.0.1:0"]
    with subprocess.Popen(serve, **options) as process:
        output = ""
        while "Ctrl-C" not in (line := process.stdout.readline()):
            assert line, process.stderr.read()
            output += line
        for command in ("status", "doctor", "keys list", "dead-letters list", "audit-log head"):
            done = subprocess.run([sys.executable, "-m", "deniable", *command.split()], timeout=300, check=False, **options)
            assert done.returncode == 0, (command, done)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)
    assert re.findall("deniable (?:status|doctor).*", output) == ["deniable status", "deniable doctor"]


def test_a_store_that_dies_ends_all_with_a_line(trial, tmp_path):
    """When its store is gone the command says so and ends, rather than answer 503 for ever."""
    data = tmp_path / "data"
    command = [sys.executable, "-m", "deniable", "serve", "--registry", trial, "--bind", "127.0.0.1:0", "--data", data]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DENIABLE_")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    while "Ctrl-C" not in (line := process.stdout.readline()):
        assert line, process.stderr.read()
    os.kill(int((data / "lock").read_text()), signal.SIGKILL)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "deniable serve: the store ended by itself with status -9; start this again: what it has on disk is kept\n" in err
    assert "Traceback" not in err


def test_without_a_registry_the_one_here_is_served(tmp_path):
    """The registry is that of this folder unless another is named; where there is none the command says how to get one."""
    command = [sys.executable, "-m", "deniable", "serve", "--bind", "127.0.0.1:0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DENIABLE_")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert "/metrics.toml: the registry is missing: " in done.stderr
    assert "deniable init" in done.stderr


@pytest.mark.parametrize(
    ("bind", "reached"),
    [
        ("0.0.0.0:80", "127.0.0.1:80"),
        ("[::]:80", "127.0.0.1:80"),
        ("127.0.0.1:80", "127.0.0.1:80"),
        ("10.0.0.7:80", "10.0.0.7:80"),
    ],
)
def test_the_dsn_is_one_that_works_here(bind, reached):
    """A server that listens on all addresses is reached at this machine's own."""
    from deniable_server.local.serve import _reached

    assert _reached(bind) == reached
