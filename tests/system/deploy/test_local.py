"""deploy/gunicorn.conf.py, Procfile and passwords.py: what they do when they are run as they are."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import stat
import subprocess
import sys
from contextlib import ExitStack, suppress
from hashlib import sha256
from urllib.parse import urlsplit

import pytest
import requests
from service import clean, end, spawn
from shipped import DEPLOY, ROOT, Private, environment
from waiting import eventually

from deniable_aggregator.process.ports import free_port
from deniable_aggregator.store import Store, Upload, connect
from deniable_aggregator.store.errors import StoreError
from deniable_aggregator.store.server import embedded


def test_gunicorn_takes_its_port_from_the_environment():
    """With the configuration shipped gunicorn listens on PORT, or on 8080, and has what deniable_server sets."""
    for env, bind in (({}, "0.0.0.0:8080"), ({"PORT": "9999"}, "0.0.0.0:9999")):
        command = ["gunicorn", "--print-config", "-c", DEPLOY / "gunicorn.conf.py", "deniable_server:create_app()"]
        done = subprocess.run(command, env=clean() | env, capture_output=True, text=True, timeout=300, check=False)
        settings = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
        settings = {name.strip(): text.strip() for name, text in settings.items()}
        assert settings["bind"] == f"['{bind}']", done.stderr
        assert settings["worker_class"] == "deniable_server.serving.worker.PatientWorker"
        assert settings["accesslog"] == "None"


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"DENIABLE_DURABILITY": "always"}, "durability always cannot be seen in this store"),
        ({"DENIABLE_REDIS_URL": ""}, "DENIABLE_REDIS_URL is not set"),
        ({"DENIABLE_REDIS_URL": "http://h"}, "DENIABLE_REDIS_URL, --redis-url: write redis://"),
        ({"DENIABLE_REGISTRY": "gone.toml"}, "the registry is missing"),
    ],
)
def test_a_wrong_configuration_is_status_2(composed, tmp_path, env, words):
    """Whatever starts a server again after it failed leaves that alone: it does not mend itself."""
    url = environment(composed.private.path("private/server.env"))["DENIABLE_REDIS_URL"]
    env = {"DENIABLE_REDIS_URL": url, "DENIABLE_REGISTRY": str(DEPLOY / "metrics.toml")} | env
    command = ["gunicorn", "-c", DEPLOY / "gunicorn.conf.py", "--bind", "127.0.0.1:0", "deniable_server:create_app()"]
    with ExitStack() as undo:
        process = spawn(undo, tmp_path / "log", command, env)
        assert process.wait(60) == 2, (tmp_path / "log").read_text()
    assert words in (tmp_path / "log").read_text()


def test_a_taken_port_is_status_2(composed, tmp_path):
    """It is said in one line, and nobody starts the server again and again."""
    env = {"DENIABLE_REDIS_URL": environment(composed.private.path("private/server.env"))["DENIABLE_REDIS_URL"]}
    env |= {"DENIABLE_REGISTRY": str(DEPLOY / "metrics.toml")}
    with ExitStack() as undo, socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        command = ["gunicorn", "-c", DEPLOY / "gunicorn.conf.py", "--bind", bind, "deniable_server:create_app()"]
        assert spawn(undo, tmp_path / "log", command, env).wait(60) == 2, (tmp_path / "log").read_text()
    assert (tmp_path / "log").read_text() == f"{bind} is taken: another process listens there; give another --bind or PORT\n"


def test_the_procfile_runs(composed, tmp_path):
    """Its commands, started in the project's folder with two variables, serve and count, and end well."""
    lines = (DEPLOY / "Procfile").read_text("utf-8").splitlines()
    commands = {name: shlex.split(command) for name, command in (line.split(": ", 1) for line in lines)}
    assert set(commands) == {"web", "worker"}
    user = environment(composed.private.path("private/server.env"))["DENIABLE_REDIS_URL"]
    urls = {"web": user, "worker": environment(composed.private.path("private/worker.env"))["DENIABLE_REDIS_URL"]}
    port = free_port()
    with ExitStack() as undo:
        processes = {}
        for name, command in commands.items():
            env = {"DENIABLE_REDIS_URL": urls[name], "DENIABLE_REGISTRY": "deploy/metrics.toml", "PORT": str(port)}
            env["GUNICORN_CMD_ARGS"] = f"--bind 127.0.0.1:{port}"
            env["NUMBA_CACHE_DIR"] = str(composed.kernels)
            processes[name] = spawn(undo, tmp_path / f"{name}.log", command, env, cwd=ROOT)
        url = f"http://127.0.0.1:{port}"

        def workers():
            parts = requests.get(f"{url}/readyz", timeout=300).json()["parts"]
            return parts.get("worker:shop", {}).get("workers", 0) >= 1

        assert eventually(lambda: requests.get(f"{url}/healthz", timeout=300).ok), (tmp_path / "web.log").read_text()
        assert eventually(workers), (tmp_path / "worker.log").read_text()
        assert {name: end(process) for name, process in processes.items()} == {"web": 0, "worker": 0}


def test_an_empty_folder_takes_passwords(tmp_path):
    """A folder that has something in it is left alone."""
    private = Private(tmp_path)
    assert private.output.startswith(f"wrote {tmp_path}: ")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o711
    with pytest.raises(subprocess.CalledProcessError):
        Private(tmp_path)


def test_passwords_are_for_their_process_alone(private):
    """Each user has a file that only its owner reads, the store's has hashes and what its probe asks with; nothing is shown."""
    files = {path.name: path for path in private.folder.iterdir()}
    users = {"ingest", "query", "server", "worker", "operator", "backup"}
    assert set(files) == {"users.acl", "probe", "deniable-metrics-key", *(f"{user}.env" for user in users)}
    for name, path in files.items():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == (0o044 if name in {"users.acl", "probe"} else 0)
    assert len(private.output.splitlines()) == 1
    assert not any(path.read_text("utf-8") in private.output for path in (files["probe"], files["deniable-metrics-key"]))
    urls = [environment(files[f"{user}.env"])["DENIABLE_REDIS_URL"] for user in users]
    passwords = {url.split(":")[2].partition("@")[0] for url in urls} | {files["probe"].read_text()}
    assert len(passwords) == len(users) + 1
    acl = files["users.acl"].read_text("utf-8")
    assert not any(password in acl for password in passwords)
    servers = {user: environment(files[f"{user}.env"]) for user in ("ingest", "query", "server")}
    assert {each["DENIABLE_SERVES"] for each in servers.values()} == {"ingest", "query", "all"}
    assert {each["DENIABLE_METRICS_KEY"] for each in servers.values()} == {files["deniable-metrics-key"].read_text()}


@pytest.mark.parametrize(
    ("options", "words"), [([], "--folder --show is required"), (["--show", "--folder", "new"], "not allowed with")]
)
def test_passwords_are_printed_only_if_somebody_asks(tmp_path, options, words):
    """Without a word where they go, nothing is drawn; with a folder, what is printed names it and has none of them."""
    command = [sys.executable, DEPLOY / "passwords.py", DEPLOY / "users.acl"]
    done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, words in done.stderr) == (2, "", True)
    assert not re.search("[0-9a-f]{48}", done.stderr)
    done = subprocess.run([*command, "--folder", "new"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert "NAME.env with a password for each process (mode 0600)" in done.stdout
    assert not re.search("[0-9a-f]{48}", done.stdout + done.stderr)
    assert (tmp_path / "new" / "worker.env").stat().st_mode & 0o777 == 0o600


def test_passwords_are_never_overwritten(private):
    """A folder that is there is left as it is: processes that run have its passwords."""
    before = {path: path.read_text() for path in private.folder.iterdir()}
    command = [sys.executable, DEPLOY / "passwords.py", DEPLOY / "users.acl", "--folder", private.folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "is not empty: name a new folder" in done.stderr
    assert {path: path.read_text() for path in private.folder.iterdir()} == before


def test_no_old_password_stays_valid(private, tmp_path):
    """The file in use has hashes. They would open the store beside the new ones, so it is refused, and nothing is written."""
    used = private.folder / "users.acl"
    command = [sys.executable, DEPLOY / "passwords.py", used, "--folder", tmp_path / "new", "--keep", private.folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "line 2 has a password already, which would stay valid beside the new one: give deploy/users.acl" in done.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("user more on resetpass >secret +@all", "line 1 has a password already"),
        ("user more on nopass +@all", "line 1 has a password already"),
        ("user more on +@all", "line 1 is not `user NAME on resetpass ...`"),
        ("", "has no users"),
    ],
)
def test_users_that_would_get_no_new_password_are_refused(tmp_path, line, words):
    """Who would keep another password, or have none, is named."""
    acl = tmp_path / "users.acl"
    acl.write_text(line)
    command = [sys.executable, DEPLOY / "passwords.py", acl, "--show"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, words in done.stderr) == (2, "", True)


def test_a_missing_parent_folder_is_named(tmp_path):
    """No traceback, and no folder with rights that nobody chose."""
    command = [sys.executable, DEPLOY / "passwords.py", DEPLOY / "users.acl", "--folder", tmp_path / "one" / "two"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert f"there is no folder {tmp_path / 'one'}: make it first" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("store", ["store:6390", "one:6379,two:6379,three:6379"])
def test_passwords_are_renewed_and_all_else_is_kept(tmp_path, store):
    """What an operator wrote into the files in use is in the new ones, too; no password is."""
    first = Private(tmp_path / "first", store)
    query = first.path("private/query.env")
    query.write_text("# ingest has 8080\nPORT=8081\n" + query.read_text("utf-8").replace("redis://", "rediss://"), "utf-8")
    first.path("private/worker.env").unlink()  # as of a user that came with a new version
    command = [
        sys.executable,
        DEPLOY / "passwords.py",
        DEPLOY / "users.acl",
        "--folder",
        tmp_path / "second",
        "--keep",
        first.folder,
    ]
    subprocess.run(command, check=True, timeout=120)
    old, new = environment(query), environment(tmp_path / "second" / "query.env")
    assert (tmp_path / "second" / "query.env").read_text("utf-8").startswith("# ingest has 8080\nPORT=8081\n")
    changed = {name for name in old if old[name] != new[name]}
    assert changed == {"DENIABLE_REDIS_URL"}
    assert new["DENIABLE_METRICS_KEY"] == (tmp_path / "second" / "deniable-metrics-key").read_text("utf-8")
    before, after = (urlsplit(each["DENIABLE_REDIS_URL"]) for each in (old, new))
    assert (before.scheme, before.username, before.path) == (after.scheme, after.username, after.path)
    assert before.netloc.partition("@")[2] == after.netloc.partition("@")[2] == store
    digest = sha256(after.netloc.partition("@")[0].removeprefix("query:").encode()).hexdigest()
    assert f"user query on resetpass #{digest} " in (tmp_path / "second" / "users.acl").read_text("utf-8")
    worker = environment(tmp_path / "second" / "worker.env")["DENIABLE_REDIS_URL"]
    assert worker.endswith(f"@{store}/0")
    assert worker.startswith("redis+cluster://worker:" if "," in store else "redis://worker:")


@pytest.mark.parametrize("user", ["ingest", "query", "server", "worker", "operator", "backup"])
def test_the_store_takes_the_passwords(composed, user):
    """Each drawn address opens the store that runs with the drawn users, and another password does not."""
    url = environment(composed.private.path(f"private/{user}.env"))["DENIABLE_REDIS_URL"]

    def opens(address):
        with connect(address) as client:
            return client.ping()

    with connect(url) as client:
        assert eventually(lambda: ready(client))
    import redis

    with pytest.raises(redis.AuthenticationError):
        opens(url.replace("@", "0@"))


@pytest.mark.parametrize("kind", ["redis-server", "wheel"])
def test_the_store_has_all_that_it_was_told_when_it_starts_again(kind, tmp_path):
    """With the settings and users shipped, what it wrote to its file is what it reads of it, whoever wrote it."""
    binary = shutil.which(kind) if kind == "redis-server" else embedded.find(None)[0]
    if binary is None:
        pytest.skip("no redis-server on PATH")
    secrets = Private(tmp_path / "private")
    (tmp_path / "data").mkdir()
    users = secrets.path("private/users.acl")
    command = [binary, DEPLOY / "redis.conf", "--port", str(secrets.port), "--dir", tmp_path / "data", "--aclfile", users]
    with ExitStack() as undo:
        process = spawn(undo, tmp_path / "log", command, {})
        with connect(environment(secrets.path("private/ingest.env"))["DENIABLE_REDIS_URL"]) as client:
            store = Store(client, "shop")
            assert eventually(lambda: ready(client))
            assert store.append(Upload(b"entry", key="one", remember=b"-", cap=10, ttl=3600)).outcome == "appended"
            process.terminate()  # killed, it may lose the last second: it writes once a second, and later if its disk is busy
            process.wait()
            spawn(undo, tmp_path / "log again", command, {})
            assert eventually(lambda: ready(client))
            assert store.backlog() == 1
            assert store.append(Upload(b"entry", key="one", remember=b"-", cap=10, ttl=3600)).outcome == "duplicate"


def ready(client):
    with suppress(StoreError):
        return client.ping()
    return False


def test_drawing_twice_draws_anew(private, tmp_path):
    """Two drawings have no password in common."""
    another = Private(tmp_path / "private")
    for path in private.folder.glob("*.env"):
        assert (
            environment(path)["DENIABLE_REDIS_URL"].split("@")[0]
            != environment(another.folder / path.name)["DENIABLE_REDIS_URL"].split("@")[0]
        )


def test_the_readme_names_every_file():
    """deploy/README.md says of each file and folder here what it is for."""
    text = (DEPLOY / "README.md").read_text("utf-8")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "deploy"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    names = {path.split("/")[1] for path in listed.stdout.splitlines()} or {path.name for path in DEPLOY.iterdir()}
    assert not sorted(name for name in names - {"README.md"} if f"`{name}" not in text)
