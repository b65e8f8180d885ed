"""deploy/compose.yaml: valid, locked up, and a service that counts, run with its own commands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import requests
import yaml
from schemas import check_files
from service import Service, clean
from shipped import DEPLOY, ROOT, Private, compose, environment, stages, variables
from waiting import eventually

import deniable

OURS = ("ingest", "query", "worker", "operator")


def seconds(text):
    return int(re.fullmatch(r"(\d+)s", text)[1])


def test_it_is_a_compose_file():
    """The file follows the Compose specification, by the schema that check-jsonschema brings."""
    check_files("vendor.compose-spec", DEPLOY / "compose.yaml")


@pytest.mark.parametrize("name", sorted(compose()["services"]))
def test_a_service_is_locked_up(name):
    """Each service has a read-only root, no capability that it does not need, a limit of memory, and comes back by itself."""
    service = compose()["services"][name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service.get("cap_add", []) == (["NET_BIND_SERVICE"] if name == "proxy" else [])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "pids_limit"} <= set(service)
    assert service["restart"] == ("no" if name in ("operator", "backup", "restore") else "unless-stopped")


def test_files_are_there(private):
    """Each file that is named is shipped, or drawn by deploy/passwords.py; all else is declared."""
    project = compose()
    for config in project["configs"].values():
        assert private.path(config["file"]).is_file(), config
    for name, service in project["services"].items():
        for file in service.get("env_file", ()):
            assert private.path(file).is_file(), file
        assert {each["source"] for each in service.get("configs", ())} <= set(project["configs"]), name
        assert {volume.partition(":")[0] for volume in service.get("volumes", ())} <= set(project["volumes"]), name
        assert set(service.get("networks", ())) <= set(project["networks"]), name
        if build := service.get("build"):
            assert (DEPLOY / build["context"]).resolve() == ROOT
            assert (ROOT / build["dockerfile"]).is_file()
            assert build["target"] in stages()
            assert service["image"] == f"deniable-{build['target']}:{deniable.__version__}"


def test_variables_are_read_by_something(private):
    """No environment file sets what nothing reads."""
    for service in compose()["services"].values():
        for file in service.get("env_file", ()):
            assert set(environment(private.path(file))) <= variables(), file


@pytest.mark.parametrize("name", ["ingest", "query", "worker"])
def test_settings_have_no_fault(composed, name):
    """`deniable doctor --settings` finds nothing wrong with what a process is told."""
    env = composed.environment_of(name)
    done = subprocess.run(
        ["deniable", "doctor", "--settings"], env=clean() | env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_servers_are_reached_from_outside():
    """Store and workers are in a network without a way out; servers are published on loopback, the proxy alone to everybody."""
    assert compose()["networks"]["inside"]["internal"]
    for name, service in compose()["services"].items():
        assert ("networks" in service) != (service.get("network_mode") == "none"), name
        assert ("outside" in service.get("networks", ())) == (name in ("ingest", "query", "proxy")), name
        for port in service.get("ports", ()):
            assert name == "proxy" or port.startswith("127.0.0.1:"), port
            if name != "proxy":
                assert port.endswith(f":{stages()[service['build']['target']].last('EXPOSE')}")


def test_processes_have_the_time_they_need_to_end():
    """A service is killed only after the time in which it promises to end by itself."""
    from deniable_aggregator.commands.worker import _STOP_SECONDS
    from deniable_server import gunicorn_conf

    services = compose()["services"]
    for name in ("ingest", "query"):
        assert seconds(services[name]["stop_grace_period"]) > gunicorn_conf.graceful_timeout
    assert seconds(services["worker"]["stop_grace_period"]) > _STOP_SECONDS + 5


def test_the_store_is_well_when_it_is_ready(composed):
    """The store's health check asks as the user for it, with the files that the container has, and fails where nobody answers."""
    kind, *command = compose()["services"]["store"]["healthcheck"]["test"]
    assert (kind, command) == ("CMD", ["sh", "/etc/store/ready.sh"])
    if not (composed.folder / "tools" / "valkey-cli").exists():
        pytest.skip("no redis-cli on PATH")
    _, script, probe = composed.translated([*command, "/etc/store/probe"])
    here = composed.folder / "ready.sh"
    here.write_text(Path(script).read_text("utf-8").replace("/etc/store/probe", probe), "utf-8")

    def well(env):
        return subprocess.run(["sh", here], env=clean() | env, capture_output=True, timeout=120, check=False).returncode

    assert eventually(lambda: well(composed.tools) == 0)
    deaf = composed.folder / "deaf"
    deaf.mkdir()
    tool = (composed.folder / "tools" / "valkey-cli").read_text()
    (deaf / "valkey-cli").write_text(tool.replace(f"-p {composed.private.port}", "-p 9"))
    (deaf / "valkey-cli").chmod(0o755)
    assert well({"PATH": f"{deaf}:{composed.tools['PATH']}"}) != 0


@pytest.mark.parametrize("name", ["ingest", "query", "worker"])
def test_a_process_is_well_when_it_answers(composed, name):
    """The health checks of the images hold for running processes, and not for ones that are not there."""
    assert eventually(lambda: composed.healthy(name)), composed.log(name)
    port, composed.ports[name] = composed.ports[name], 9
    try:
        assert not composed.healthy(name)
    finally:
        composed.ports[name] = port


def test_reports_are_counted(composed, tmp_path):
    """What a device sends to ``ingest`` is published by ``worker`` and told by ``query``, each as its own user of the store."""
    for name in ("ingest", "query"):
        assert eventually(lambda name=name: requests.get(f"{composed.url(name)}/readyz", timeout=300).ok), composed.log(name)
    sending, reading = (composed.operate("keys", "create", "--role", role) for role in ("ingest", "read"))
    dsn = composed.url("ingest").replace("//", f"//{sending}@") + "/shop"
    options = {"registry": DEPLOY / "metrics.toml", "segments": {"platform": "linux"}}
    with deniable.Client(dsn=dsn, consent=True, state=tmp_path, strict=True, **options) as client:
        assert client.record("export.used", value=True)
        assert client.flush(30)
        assert client.stats()["sent"] == 1, composed.log("ingest")
    headers = {"Authorization": f"Bearer {reading}"}

    def ask(path):
        return requests.get(f"{composed.url('query')}/api/v1/{path}", headers=headers, timeout=300).json()

    assert eventually(lambda: ask("metrics/export.used")["n"]) == 1
    # The worker has the registry, without which it would not look for made-up reports.
    assert eventually(lambda: ask("pipeline")["looked"]), composed.log("worker")
    # Each serves its part alone.
    assert requests.get(f"{composed.url('ingest')}/api/v1/metrics", headers=headers, timeout=300).status_code == 404
    assert requests.post(f"{composed.url('query')}/v1/reports", json={}, headers=headers, timeout=300).status_code == 503


@pytest.mark.parametrize("name", ["ingest", "query"])
def test_numbers_are_told_to_who_has_their_key(composed, name):
    """Prometheus gets the numbers with the key that was drawn for it, among them the backlog by which workers are scaled."""
    key = composed.private.path("private/deniable-metrics-key").read_text()
    assert eventually(lambda: requests.get(f"{composed.url(name)}/healthz", timeout=300).ok)
    assert requests.get(f"{composed.url(name)}/metrics", timeout=300).status_code == 401
    answer = requests.get(f"{composed.url(name)}/metrics", headers={"Authorization": f"Bearer {key}"}, timeout=300)
    assert 'deniable_backlog_batches{app="shop"}' in answer.text


class TwoApps(Private):
    """Passwords, and the files of deploy/ with the lines that deploy/README.md changes for a second app."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "private")
        self.files = {"games.toml": folder / "games.toml"}
        text = (DEPLOY / "metrics.toml").read_text("utf-8").replace('app = "shop"', 'app = "games"')
        self.files["games.toml"].write_text(text + "\n[publication]\ntrial = true\n", "utf-8")
        (folder / "search-engines.txt").write_bytes((DEPLOY / "search-engines.txt").read_bytes())
        readme = (DEPLOY / "README.md").read_text("utf-8")
        changes = re.search(r"<!-- second app -->\n```diff\n(.*?)```", readme, re.DOTALL)[1]
        for part in re.split(r"^--- deploy/", changes, flags=re.MULTILINE)[1:]:
            name, _, lines = part.partition("\n")
            text = (DEPLOY / name).read_text("utf-8")
            for line, new in re.findall(r"^-(.*)\n((?:\+.*\n)+)", lines, re.MULTILINE):
                assert text.count(f"{line}\n") == 1, line
                text = text.replace(f"{line}\n", "".join(added[1:] for added in new.splitlines(keepends=True)))
            self.files[name] = folder / name
            self.files[name].write_text(text, "utf-8")

    def path(self, name: str) -> Path:
        return self.files.get(name) or super().path(name)


def test_a_second_app_is_served(tmp_path, monkeypatch, kernels):
    """With the lines that deploy/README.md changes, its reports are taken, counted and shown; the first app has none of them."""
    two = TwoApps(tmp_path)
    assert set(two.files) == {"games.toml", "deniable.env", "compose.yaml", "kustomization.yaml"}
    project = yaml.safe_load(two.files["compose.yaml"].read_text("utf-8"))
    registries = environment(two.files["deniable.env"])["DENIABLE_REGISTRY"].split(":")
    for name in OURS:
        assert set(registries) <= {each["target"] for each in project["services"][name]["configs"]}, name
    assert {each["source"] for each in project["services"]["worker"]["configs"]} <= set(project["configs"])
    check_files("vendor.compose-spec", two.files["compose.yaml"])
    generators = yaml.safe_load(two.files["kustomization.yaml"].read_text("utf-8"))["configMapGenerator"]
    (files,) = [each["files"] for each in generators if each["name"] == "registry"]
    assert {Path(each).name for each in registries} < set(files)
    monkeypatch.setattr("service.compose", lambda: project)
    (tmp_path / "run").mkdir()
    with Service(two, tmp_path / "run", kernels) as served:
        assert eventually(lambda: served.healthy("ingest") and served.healthy("query")), served.log("ingest")
        sending, reading = (served.operate("keys", "create", "--app", "games", "--role", role) for role in ("ingest", "read"))
        other = served.operate("keys", "create", "--app", "shop", "--role", "read")
        dsn = served.url("ingest").replace("//", f"//{sending}@") + "/games"
        options = {"registry": two.files["games.toml"], "segments": {"platform": "linux"}}
        with deniable.Client(dsn=dsn, consent=True, state=tmp_path / "state", strict=True, **options) as client:
            assert client.record("export.used", value=True)
            assert client.flush(30)

        def ask(key):
            answer = requests.get(
                f"{served.url('query')}/api/v1/metrics/export.used", headers={"Authorization": f"Bearer {key}"}, timeout=300
            )
            return answer.json()["n"]

        assert eventually(lambda: ask(reading) == 1), served.log("worker")
        assert ask(other) == 0
