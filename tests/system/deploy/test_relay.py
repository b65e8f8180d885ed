"""deploy/relay and the unit of a relay: what another organisation runs, locked up, and run with the very commands and files."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import kubernetes_validate
import pytest
import requests
import yaml
from service import BIN, children, clean, end, spawn
from shipped import DEPLOY, OLDEST, ROOT, documents, environment, stages, variables
from units import STRACE, allowed, counted_calls, needs_strace, needs_systemd, unit
from waiting import eventually

import deniable
from deniable_aggregator.process.ports import free_port
from deniable_relay import metrics
from deniable_relay.forwarding import _TIMEOUT

HERE = DEPLOY / "relay"
FOLDER = "/var/lib/deniable-relay"
RELAY = "deniable-relay.service"
GRACEFUL = 30  # gunicorn's own
ADDRESS = "203.0.113.77"
SECRETS = {"DENIABLE_RELAY_INGEST_KEY": "pk_shop_devices", "DENIABLE_RELAY_SERVER_KEY": "xk_0123456789abcdef"}
COMPOSE = yaml.safe_load((HERE / "compose.yaml").read_text("utf-8"))
RESOURCES = {each["kind"]: each for each in documents(HERE / "relay.yaml")}
KUSTOMIZATION = yaml.safe_load((HERE / "kustomization.yaml").read_text("utf-8"))


def pod():
    return RESOURCES["StatefulSet"]["spec"]["template"]["spec"]


class Relay:
    """A relay, started as the image or the unit does, behind the proxy that is shipped."""

    def __init__(self, folder):
        self.folder, self.port, self.data = folder, free_port(), folder / "data"
        self.server = free_port()  # where nobody answers
        self.command = stages()["relay"].command
        image = {name: text for name, text in stages()["relay"].environment.items() if name.startswith("DENIABLE_")}
        assert image == {"DENIABLE_RELAY_DATA": FOLDER, "DENIABLE_RELAY_BIND": f"0.0.0.0:{stages()['relay'].last('EXPOSE')}"}
        self.environment = environment(HERE / "relay.env") | SECRETS
        self.environment |= {"DENIABLE_RELAY_DATA": str(self.data), "DENIABLE_RELAY_BIND": f"127.0.0.1:{self.port}"}
        self.environment["DENIABLE_RELAY_REGISTRY"] = str(HERE / "metrics.toml")
        self.environment["DENIABLE_RELAY_SERVER"] = f"http://127.0.0.1:{self.server}"

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self, undo, *prefix):
        process = spawn(undo, self.folder / "relay.log", [*prefix, *self.command], self.environment)
        assert eventually(self.ready), (self.folder / "relay.log").read_text()
        return process

    def ready(self):
        try:
            return requests.get(f"{self.url}/readyz", timeout=300).ok
        except requests.ConnectionError:
            return False

    def waiting(self):
        text = requests.get(f"{self.url}/metrics", timeout=300).text
        return int(float(re.search(r"^deniable_relay_waiting_reports (\S+)$", text, re.MULTILINE)[1]))


@pytest.fixture
def relay(tmp_path):
    return Relay(tmp_path)


def send(url, state):
    """Have a device answer, and send it."""
    dsn = f"{url.replace('//', '//pk_shop_devices@')}/shop"
    options = {"registry": HERE / "metrics.toml", "segments": {"platform": "linux"}}
    with deniable.Client(dsn=dsn, consent=True, state=state, strict=True, **options) as client:
        assert client.record("export.used", value=True)
        assert client.flush(30), client.stats()


def test_the_compose_files_are_valid():
    """They follow the Compose specification. What they name is shipped, but for secrets; the image is one of the Dockerfile."""
    files = [HERE / "compose.yaml", HERE / "beside.yaml"]
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout
    service = COMPOSE["services"]["relay"]
    assert all((HERE / each["file"]).is_file() for each in COMPOSE["configs"].values())
    assert service["env_file"] == ["relay.env", "private/relay.env"]
    assert {each["source"] for each in service["configs"]} <= set(COMPOSE["configs"])
    assert {each.partition(":")[0] for each in service["volumes"]} <= set(COMPOSE["volumes"])
    build = service["build"]
    assert (HERE / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()
    assert service["image"] == f"deniable-{build['target']}:{deniable.__version__}"
    assert build["target"] in stages()
    assert service["volumes"] == [f"pools:{FOLDER}"]
    assert service["ports"] == ["127.0.0.1:8090:" + stages()["relay"].last("EXPOSE")]
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert "deploy/relay/private/" in ignored


@pytest.mark.parametrize("name", sorted(COMPOSE["services"]))
def test_a_service_is_locked_up(name):
    """Each has a read-only root, no capability that it does not need, a limit of memory, and comes back by itself."""
    service = COMPOSE["services"][name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service.get("cap_add", []) == (["NET_BIND_SERVICE"] if name == "proxy" else [])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "pids_limit"} <= set(service)
    assert service["restart"] == "unless-stopped"


def test_beside_the_server_it_is_in_its_network():
    """What is tried on one machine finds ingest in a network that deploy/compose.yaml makes."""
    beside = yaml.safe_load((HERE / "beside.yaml").read_text("utf-8"))
    server = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    (network,) = beside["networks"].values()
    name = network["name"].removeprefix(f"{server['name']}_")
    assert name in server["networks"]
    assert name in server["services"]["ingest"]["networks"]
    url = beside["services"]["relay"]["environment"]["DENIABLE_RELAY_SERVER"]
    assert url == f"http://ingest:{stages()['ingest'].last('EXPOSE')}"


def test_all_deployments_say_the_same():
    """One file of settings, of variables that something reads; nothing secret in it; one registry, without a fault."""
    settings = environment(HERE / "relay.env")
    assert set(settings) | set(SECRETS) <= variables()
    assert not set(settings) & set(SECRETS)
    mounts = {mount["name"]: mount["mountPath"] for mount in pod()["containers"][0]["volumeMounts"]}
    registry = settings["DENIABLE_RELAY_REGISTRY"]
    assert registry == f"{mounts['registry']}/metrics.toml" == COMPOSE["services"]["relay"]["configs"][0]["target"]
    done = subprocess.run(
        ["deniable", "registry", "lint", HERE / "metrics.toml"],
        env=clean(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "0 errors, 0 warnings" in done.stdout
    assert deniable.registry.load(HERE / "metrics.toml").relay is not None


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
def test_resources_are_valid(version):
    """Each resource has only members that Kubernetes knows, of the right type."""
    for resource in RESOURCES.values():
        kubernetes_validate.validate(resource, version, strict=True)
    assert KUSTOMIZATION["resources"] == ["relay.yaml"]
    assert all(
        (HERE / file).is_file() for each in KUSTOMIZATION["configMapGenerator"] for file in each.get("files", each.get("envs"))
    )


def test_the_pod_is_restricted():
    """It keeps the restricted profile, on a read-only root, without a way to the cluster; one pod, with the file of pools."""
    labels = RESOURCES["Namespace"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert RESOURCES["Namespace"]["metadata"]["name"] == KUSTOMIZATION["namespace"]
    (container,) = pod()["containers"]
    user, _, group = stages()["relay"].last("USER").partition(":")
    security = pod()["securityContext"]
    assert security["runAsNonRoot"]
    assert (security["runAsUser"], security["runAsGroup"], security["fsGroup"]) == (int(user), int(group), int(group))
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod()["automountServiceAccountToken"] is False
    assert pod()["enableServiceLinks"] is False
    assert RESOURCES["StatefulSet"]["spec"]["replicas"] == 1
    (claim,) = RESOURCES["StatefulSet"]["spec"]["volumeClaimTemplates"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts[claim["metadata"]["name"]] == FOLDER
    (image,) = KUSTOMIZATION["images"]
    assert (image["name"], image["newTag"]) == (container["image"], deniable.__version__)
    labels = RESOURCES["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert RESOURCES["Service"]["spec"]["selector"].items() <= labels.items()
    assert [port["containerPort"] for port in container["ports"]] == [int(stages()["relay"].last("EXPOSE"))]


def test_it_has_the_time_it_needs_to_end():
    """It is killed only after requests in hand and the part that is being sent had their time."""
    needs = GRACEFUL + _TIMEOUT
    assert int(COMPOSE["services"]["relay"]["stop_grace_period"].removesuffix("s")) > needs
    assert int(unit(RELAY)["TimeoutStopSec"][0]) > needs
    _, pause = pod()["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert pod()["terminationGracePeriodSeconds"] > int(pause) + needs


def test_only_the_address_for_devices_is_on_the_internet():
    """Ingress and policy: one path, of one port, from the controller and Prometheus; out go names and HTTPS."""
    (rule,) = RESOURCES["Ingress"]["spec"]["rules"]
    assert [(path["path"], path["pathType"]) for path in rule["http"]["paths"]] == [("/v1/reports", "Exact")]
    policy = RESOURCES["NetworkPolicy"]["spec"]
    assert policy["podSelector"] == {}
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert {port["port"] for each in policy["ingress"] for port in each["ports"]} == {8080}
    assert {port["port"] for each in policy["egress"] for port in each["ports"]} == {53, 443}


def test_what_the_unit_names_is_there():
    """The same files as in a container, the program of the package, and a folder that stays and that nobody else reads."""
    service = unit(RELAY)
    assert [Path(each).name for each in service["EnvironmentFile"]] == ["relay.env", "relay.env"]
    assert set(re.findall(r"(\w+)=", " ".join(service["Environment"]))) <= variables()
    (line,) = service["ExecStart"]
    program, *words = line.split()
    assert words == stages()["relay"].command[1:]
    assert Path(program).parent == Path("/opt/deniable/relay/bin")
    assert (Path(BIN) / Path(program).name).exists()
    assert f"DENIABLE_RELAY_DATA=%S/{service['StateDirectory'][0]}" in service["Environment"][0].split()
    assert service["StateDirectoryMode"] == ["0700"]
    assert service["DynamicUser"] == ["yes"]
    assert service["MemoryDenyWriteExecute"] == ["yes"]
    assert service["RestartPreventExitStatus"] == ["2"]


@pytest.mark.skipif(shutil.which("caddy") is None, reason="no caddy on PATH")
def test_a_report_waits_behind_the_proxy(relay, tmp_path):
    """A device's report comes through the proxy and is there after a restart; nothing else is reached, and no address is kept."""
    with ExitStack() as undo:
        relay.start(undo)
        url = proxied(undo, tmp_path, relay.port)
        headers = {"X-Forwarded-For": ADDRESS}
        assert requests.post(f"{url}/v1/reports", headers=headers, timeout=300).status_code == 401
        for path in ("/metrics", "/readyz", "/healthz", "/v1/reports/", "/v1/pools", "/v1/../metrics", "/"):
            assert requests.get(url + path, headers=headers, timeout=300).status_code == 404, path
        send(url, tmp_path / "device")
        assert relay.waiting() == 1
        assert healthy(relay.port)
    assert not healthy(relay.port)
    with ExitStack() as undo:
        relay.start(undo)
        assert relay.waiting() == 1
    traces = [path.read_bytes() for path in [*relay.data.iterdir(), tmp_path / "relay.log", tmp_path / "caddy.log"]]
    assert not [each for each in traces if ADDRESS.encode() in each or b"127.0.0.1:" in each.replace(b"http://127.0.0.1:", b"")]


def healthy(port):
    """Ask by the image's own check."""
    *interpreter, code = stages()["relay"].health
    words = [*interpreter, code.replace("8080", str(port))]
    return subprocess.run(words, env=clean(), capture_output=True, timeout=30, check=False).returncode == 0


def proxied(undo, folder, port):
    """Start Caddy with the file that is shipped, without TLS; return its address."""
    url = f"http://127.0.0.1:{free_port()}"
    home = {name: str(folder) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    command = ["caddy", "run", "--config", HERE / "Caddyfile", "--adapter", "caddyfile"]
    spawn(undo, folder / "caddy.log", command, home | {"RELAY_HOST": url, "RELAY": f"127.0.0.1:{port}"})

    def answers():
        try:
            return requests.get(f"{url}/metrics", timeout=300).status_code == 404
        except requests.ConnectionError:
            return False

    assert eventually(answers), (folder / "caddy.log").read_text()
    return url


def unit_command():
    (line,) = unit(RELAY)["ExecStart"]
    return line.replace("/opt/deniable/relay/bin", BIN).split()


def test_it_says_to_systemd_that_it_is_ready(relay):
    """Started as the unit does, it sends what Type=notify waits for, and ends well."""
    assert unit(RELAY)["Type"] == ["notify"]
    relay.command = unit_command()
    with ExitStack() as undo, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        path = Path("/tmp", f"r{os.getpid()}.sock")
        undo.callback(path.unlink, missing_ok=True)
        supervisor.bind(str(path))
        supervisor.settimeout(60)
        relay.environment["NOTIFY_SOCKET"] = str(path)
        process = relay.start(undo)
        assert b"READY=1" in supervisor.recv(1024)
        assert end(process) == 0


@needs_systemd
@needs_strace
def test_it_makes_no_call_that_is_forbidden(relay, tmp_path):
    """What a relay asks of the system from its start to its end, with a report, the unit's filter lets through."""
    relay.command, trace = unit_command(), tmp_path / "trace"
    with ExitStack() as undo:
        process = relay.start(undo, *STRACE, str(trace))
        send(relay.url, tmp_path / "device")
        for child in children(process.pid):
            os.kill(child, signal.SIGTERM)
        assert process.wait(120) == 0
    assert {"fsync", "fdatasync"} & counted_calls(trace)
    as_root = {"fchown"} if os.geteuid() == 0 else set()  # SQLite gives files to the folder's user; the unit's user is not root
    assert counted_calls(trace) - allowed(RELAY) - as_root == set()


def test_a_relay_that_cannot_start_says_why_and_ends(relay):
    """With a setting that is no good it ends at once with status 2, which systemd does not try again."""
    env = clean() | relay.environment | {"DENIABLE_RELAY_UPLOADS": "many"}
    done = subprocess.run(relay.command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert "DENIABLE_RELAY_UPLOADS" in done.stderr
    assert "Traceback" not in done.stderr


RULES = [rule for group in yaml.safe_load((HERE / "alerts.yml").read_text("utf-8"))["groups"] for rule in group["rules"]]
PANELS = json.loads((HERE / "grafana-dashboard.json").read_text("utf-8"))["panels"]
SITE = "https://deniable.github.io/deniable/"


def test_alerts_and_panels_name_what_it_shows():
    """Each series in them is one of a relay, with the labels that it has; all series are in a panel, and in the docs."""
    text = metrics.write(Counter(), Counter({"no answer": 1})).decode()
    series = re.findall(r"^(deniable_\w+)(\{.*\})?", text, re.MULTILINE)
    labels_of = {name: set(re.findall(r"(\w+)=", labels)) for name, labels in series}
    panels = [target["expr"] for panel in PANELS for target in panel["targets"]]
    for expression in [rule["expr"] for rule in RULES] + panels:
        names = re.findall(r"\b(deniable_\w+)(?:\{([^}]*)\})?", expression)
        assert names or expression.startswith('up{job="deniable-relay"}')
        for name, matchers in names:
            assert set(re.findall(r"(\w+) *[=!]", matchers)) <= labels_of[name]
    assert set(labels_of) <= {name for each in panels for name in re.findall(r"\bdeniable_\w+", each)}
    page = (ROOT / "docs" / "how-to" / "operate" / "relay.md").read_text("utf-8")
    assert all(f"`{name}`" in page for name in labels_of)
    assert [each["job_name"] for each in yaml.safe_load((HERE / "prometheus.yml").read_text("utf-8"))["scrape_configs"]] == [
        "deniable-relay"
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_leads_to_what_to_do(rule):
    """It names a heading of a page that is there."""
    page, _, anchor = rule["annotations"]["runbook_url"].removeprefix(SITE).partition("/#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / f"{page}.md").read_text("utf-8"), re.MULTILINE)
    assert anchor in {heading.lower().replace(" ", "-") for heading in headings}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on PATH; Debian's package prometheus has it")
def test_alerts_fire_and_are_silent():
    """Each fires when something is wrong, and all are silent while all is well; Prometheus takes the example."""
    tests = Path(__file__).parent / "relay_alerts.yml"
    tried = {
        (alert["alertname"], bool(alert.get("exp_alerts")))
        for test in yaml.safe_load(tests.read_text("utf-8"))["tests"]
        for alert in test["alert_rule_test"]
    }
    assert tried == {(rule["alert"], fires) for rule in RULES for fires in (True, False)}
    for command, folder in ((["test", "rules", tests.name], tests.parent), (["check", "config", "prometheus.yml"], HERE)):
        done = subprocess.run(["promtool", *command], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_only_ingest_gets_the_private_key(tmp_path):
    """The file for Compose, and what deploy/README.md says for systemd and Kubernetes, give it to no other process."""
    override = yaml.safe_load((DEPLOY / "sealing.yaml").read_text("utf-8"))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "sealing.yaml"]
    assert subprocess.run(command, capture_output=True, timeout=300, check=False).returncode == 0
    (name,) = override["services"]
    service = override["services"][name]
    assert name == "ingest"
    assert service["environment"] == {"DENIABLE_SEALING_KEYS": service["configs"][0]["target"]}
    assert set(service["environment"]) <= variables()
    assert override["configs"][service["configs"][0]["source"]]["file"] == "private/seal.pem"
    readme = (DEPLOY / "README.md").read_text("utf-8")
    unit_lines = re.search(r"<!-- credential -->\n  ```ini\n(.*?)  ```", readme, re.DOTALL)[1]
    assert "Environment=DENIABLE_SEALING_KEYS=%d/seal.pem" in unit_lines
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl on PATH")
    patch = re.search(r"<!-- sealing patch -->\n  ```yaml\n(.*?)  ```", readme, re.DOTALL)[1]
    overlay = tmp_path / "kustomization.yaml"
    overlay.write_text(f"resources: [{os.path.relpath(DEPLOY, tmp_path)}]\n{textwrap.dedent(patch)}", "utf-8")
    done = subprocess.run(["kubectl", "kustomize", tmp_path], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    with_key = [each for each in yaml.safe_load_all(done.stdout) if "DENIABLE_SEALING_KEYS" in json.dumps(each)]
    assert [each["metadata"]["name"] for each in with_key] == ["ingest"]
    kubernetes_validate.validate(with_key[0], kubernetes_validate.latest_version(), strict=True)
