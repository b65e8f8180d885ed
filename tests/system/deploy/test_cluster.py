"""deploy/cluster: a store of nine nodes, made and killed on loopback with its own commands and files, and its manifests."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, suppress

import numpy as np
import pytest
import redis
import yaml
from machines import cluster_port, wait
from schemas import check_files, check_resource
from service import clean, spawn
from shipped import DEPLOY, ROOT, Private, compose, environment, stages, variables

from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator.counting.counter import WorkerSettings
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.store import Store, Upload, connect
from deniable_aggregator.store.server import about, embedded
from deniable_aggregator.store.server.durability import Durability
from deniable_aggregator.store.server.servers import primary
from deniable_aggregator.store.uploads import batch
from deniable_aggregator.store.uploads.batch import Group
from deniable_server.settings import Settings

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8 on its loopback")
CLUSTER = DEPLOY / "cluster"
SHARDS = ("a", "b", "c")
LAYOUT = Layout(1, 3, "index")
STRATUM = Stratum("export.used", 1, "f" * 16, "2026-11-21", "")


def documents(path):
    return [each for each in yaml.safe_load_all(path.read_text("utf-8")) if each]


def node():
    """Return the StatefulSet of which each shard has one."""
    return documents(CLUSTER / "shard" / "node.yaml")[0]


def composed_cluster():
    return yaml.safe_load((CLUSTER / "compose.yaml").read_text("utf-8"))


class Nodes:
    """The nodes of the StatefulSets, on this machine.

    Parameters
    ----------
    folder
        For logs and data, and for what is drawn.
    """

    def __init__(self, folder):
        self.folder = folder
        self.ports = [cluster_port() for _ in range(3 * node()["spec"]["replicas"])]
        self.private = Private(folder / "private", ",".join(f"localhost:{port}" for port in self.ports))
        self.processes = {}
        self.undo = ExitStack()

    def start(self, port, address="127.0.0.2"):
        """Start a node, found by the others at an address of loopback."""
        (only,) = node()["spec"]["template"]["spec"]["containers"]
        (self.folder / str(port)).mkdir(exist_ok=True)
        files = {"/data": self.folder / str(port), "/etc/store/redis.conf": DEPLOY / "redis.conf"}
        files |= {"/etc/store/cluster.conf": CLUSTER / "cluster.conf"}
        files |= {f"/etc/store/{name}": self.private.path(f"private/{name}") for name in ("users.acl", "replica.conf")}
        files |= {"valkey-server": shutil.which("redis-server") or embedded.find(None)[0]}
        names = {"$(NAME).store": "localhost", "$(ADDRESS)": address, "*": "127.0.0.1", "-::*": address}
        command = [str((files | names).get(word, word)) for word in only["command"]]
        self.processes[port] = spawn(self.undo, self.folder / f"{port}.log", [*command, "--port", str(port)], {})

    def kill(self, port):
        self.processes[port].kill()
        self.processes[port].wait()

    def url(self, user):
        return environment(self.private.path(f"private/{user}.env"))["DENIABLE_REDIS_URL"]

    def make(self):
        """Run what the Job runs."""
        (only,) = documents(CLUSTER / "make.yaml")[0]["spec"]["template"]["spec"]["containers"]
        assert only["command"] == ["python", "/etc/cluster/make.py"]
        env = clean() | environment(self.private.path("private/cluster.env"))
        done = subprocess.run(
            [sys.executable, CLUSTER / "make.py"], env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def known(self):
        """Return what the first node knows of all."""
        password = self.url("cluster").split(":")[2].partition("@")[0]
        return redis.Redis(port=self.ports[0], username="cluster", password=password).cluster("NODES")

    def failed(self):
        """Count the nodes that the first one takes for dead."""
        return sum("fail" in each["flags"].split(",") for each in self.known().values())

    def shards(self):
        """Return which nodes are together."""
        members = {}
        for place, details in self.known().items():
            if "handshake" in details["flags"]:
                continue
            own = details["node_id"] if "master" in details["flags"] else details["master_id"]
            members.setdefault(own, set()).add(self.ports.index(int(place.rpartition(":")[2].partition("@")[0])))
        return sorted(map(sorted, members.values()))

    def doctor(self, user):
        """Return what the doctor finds as a process."""
        env = clean() | environment(DEPLOY / "deniable.env") | environment(self.private.path(f"private/{user}.env"))
        env |= {"DENIABLE_REGISTRY": str(DEPLOY / "metrics.toml")}
        done = subprocess.run(["deniable", "doctor", "--json"], env=env, capture_output=True, text=True, timeout=300, check=False)
        return {each["check"]: each for each in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Start all nodes, and make a cluster of them."""
    cluster = Nodes(tmp_path_factory.mktemp("cluster"))
    with cluster.undo:
        for port in cluster.ports:
            cluster.start(port)
        assert cluster.make() == "the cluster is made: 3 primaries, each with 2 replicas\n"
        yield cluster


def append(store, key):
    body = batch.encode([Group(STRATUM, LAYOUT, b"\1")])
    return store.append(Upload(body, key=key, remember=b"-", cap=1000, ttl=3600)).outcome


def test_each_three_in_a_row_are_together(nodes):
    """A primary and its replicas are the pods of one StatefulSet, and stay so when the cluster is made again."""
    together = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert nodes.shards() == together
    nodes.make()
    assert nodes.shards() == together


def test_users_do_their_work_and_a_primary_dies(nodes):
    """As the users drawn, with `replicated`: uploads are taken and counted once, also when a primary dies; the doctor tells."""
    with closing(connect(nodes.url("ingest"))) as sending, closing(connect(nodes.url("worker"))) as working:
        store = Store(sending, "shop", Settings.from_environment(environment(nodes.private.path("private/ingest.env"))).promise)
        checks = nodes.doctor("ingest")
        assert {name for name, each in checks.items() if each["status"] == "fault"} <= {"keys"}
        assert checks["durability"]["seen"] == "replicated is kept, with 2 replicas"
        assert append(store, "one") == "appended"
        dead = about.connection(primary(sending, "{shop}:reports"))["port"]
        nodes.kill(dead)
        wait(lambda: ask(store, "two").startswith("NOREPLICAS not 2"), 60)  # one was promoted, and the other may be, too
        checks = nodes.doctor("ingest")
        assert (checks["durability"]["status"], checks["durability"]["seen"][-16:]) == ("warning", "one replica of 2")
        nodes.start(dead)
        wait(lambda: append(store, "two") == "duplicate", 60)
        wait(lambda: append(store, "one") == "duplicate", 60)
        Worker([Store(working, "shop")], WorkerSettings()).run(threading.Event(), burst=True)
        assert Store(working, "shop").read(LAYOUT, [STRATUM]).n == 2
        wait(lambda: nodes.doctor("ingest")["durability"]["seen"] == "replicated is kept, with 2 replicas", 60)


@pytest.mark.campaign
@pytest.mark.nightly  # it waits for 35 s and more, which are those of what is shipped
def test_no_replica_is_promoted_that_uploads_did_not_wait_for(machines):
    """By the shipped settings one that was cut off may be promoted at once, and not after `DENIABLE_REPLICA_TIMEOUT`."""
    shipped = re.findall(
        r"^(\S*(?:node-timeout|validity-factor|ping\S*)) (\d+)$", (CLUSTER / "cluster.conf").read_text("utf-8"), re.MULTILINE
    )
    assert len(shipped) == 3
    machines.cluster(3, 2, *[word for name, number in shipped for word in (f"--{name}", number)])
    first, second = [each for each in machines.all if each.primary][:2]
    assert promoted(machines, first, 0)
    assert not promoted(machines, second, Settings().replica_timeout)


def promoted(machines, primary, seconds):
    """Cut a replica off from its primary; kill all others after some seconds; return whether it takes their place."""
    one, other = [
        each for each in machines.all if each.process and each.client.info("replication").get("master_port") == primary.port
    ]
    one.client.config_set("masterauth", "wrong")
    one.client.config_set("masteruser", "nobody")
    primary.client.execute_command("CLIENT KILL TYPE replica")
    wait(lambda: one.client.info("replication")["master_link_status"] == "down")
    time.sleep(seconds)
    assert one.client.info("replication")["master_link_status"] == "down"
    primary.kill()
    other.kill()
    with suppress(AssertionError):
        wait(lambda: one.primary, 25)
    return one.primary


def ask(store, key):
    """Append, and return what the store answers, errors also."""
    try:
        return append(store, key)
    except redis.RedisError as error:
        return str(error)


def test_users_may_no_more_than_on_one_server(nodes):
    """Whoever makes the cluster reads nothing, a replica copies only, and the rest may ask who has what."""
    password = dict(line.split(" ") for line in nodes.private.path("private/replica.conf").read_text().splitlines())["masterauth"]
    port = nodes.ports[0]
    copying = redis.Redis(port=port, username="replica", password=password)
    making = redis.Redis(port=port, username="cluster", password=nodes.url("cluster").split(":")[2].partition("@")[0])
    sending = redis.Redis(port=port, username="ingest", password=nodes.url("ingest").split(":")[2].partition("@")[0])
    assert copying.ping()
    assert making.ping()
    assert {each[2][0].decode() for each in sending.execute_command("CLUSTER SLOTS")} == {"localhost"}  # by its name
    for client, words in (
        (copying, ("GET", "{shop}:seen:secret")),
        (making, ("GET", "{shop}:seen:secret")),
        (making, ("CLUSTER RESET",)),
        (making, ("CLUSTER FAILOVER",)),
        (sending, ("CLUSTER NODES",)),
        (sending, ("CLUSTER MEET", "127.0.0.1", 1)),
        (sending, ("PSYNC", "?", -1)),
    ):
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command(*words)


@pytest.mark.campaign
def test_a_disk_is_lost(nodes):
    """An empty node in the place of one that was there takes that place when the cluster is made again."""
    lost = nodes.ports[2]
    nodes.kill(lost)
    shutil.rmtree(nodes.folder / str(lost))
    wait(lambda: nodes.failed() == 1, 60)
    nodes.start(lost)
    nodes.make()
    assert nodes.shards() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@pytest.mark.campaign
def test_all_start_anew_at_other_addresses(nodes):
    """Killed all at once, and back elsewhere, they find one another when the cluster is made again; nothing is lost."""
    with closing(connect(nodes.url("ingest"))) as sending:
        wait(lambda: append(Store(sending, "shop", Durability("replicated")), "last") == "duplicate", 30)  # once it is there
    with closing(connect(nodes.url("worker"))) as working:
        store = Store(working, "shop")
        assert store.partition("").commit("test", [], {STRATUM: np.array([1, 1, 0])}, 0) == []
        counted = store.read(LAYOUT, [STRATUM])
    for port in nodes.ports:
        nodes.kill(port)
    for port in nodes.ports:
        nodes.start(port, "127.0.0.3")
    nodes.make()
    with closing(connect(nodes.url("worker"))) as working:
        assert Store(working, "shop").read(LAYOUT, [STRATUM]) == counted
    with closing(connect(nodes.url("ingest"))) as sending:
        store = Store(sending, "shop", Durability("replicated"))
        wait(lambda: append(store, "last") == "duplicate", 30)


class Standing:
    """A node that answers what make.py asks; the replica ``b`` is elected while it is told to follow ``a``.

    Parameters
    ----------
    place
        Its name.
    group
        All nodes by name.
    """

    def __init__(self, place, group):
        self.place, self.group, self.slots, self.primary = place, group, [], "a"
        group[place] = self

    @property
    def own(self):
        return {"node_id": self.place, "slots": self.slots, "master_id": "-" if self.slots else self.primary}

    @property
    def linked(self):
        return not self.slots and self.primary == "b"

    def ask(self, _word, primary):
        if self.slots:
            raise redis.ResponseError("To set a master the node must be empty and without assigned slots")
        self.primary = primary
        if self.group["a"].slots:
            self.group["b"].slots, self.group["a"].slots, self.group["a"].primary = self.group["a"].slots, [], "b"


def test_a_primary_that_loses_its_slots_meanwhile(monkeypatch):
    """A replica may be elected while nodes are brought together: then the others follow that one, and nothing waits for ever."""
    program = runpy.run_path(CLUSTER / "make.py")
    names = program["attach"].__globals__
    monkeypatch.setitem(names, "ATTACH_SECONDS", 0)
    monkeypatch.setitem(names, "SECONDS", 1)
    nodes = {}
    for place in "abc":
        Standing(place, nodes)
    nodes["a"].slots = [["0", "5460"]]
    program["attach"]([list(nodes.values())])
    assert {place: (each.own["master_id"], each.slots) for place, each in nodes.items()} == {
        "a": ("b", []),
        "b": ("-", [["0", "5460"]]),
        "c": ("b", []),
    }


def test_too_few_nodes_are_refused():
    """Fewer than three primaries cannot elect one; what is missing is said."""
    env = clean() | {"DENIABLE_REDIS_URL": "redis+cluster://" + ",".join(f"localhost:{port}" for port in range(6))}
    done = subprocess.run(
        [sys.executable, CLUSTER / "make.py"], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (
        1,
        "6 nodes are too few: a cluster needs three primaries, and two replicas for each\n",
    )


# Manifests


def overlay():
    """Return the lines of deploy/README.md that make an overlay with the cluster."""
    return re.search(r"kustomization.yaml <<EOF\n(.*?)EOF\n", (DEPLOY / "README.md").read_text("utf-8"), re.DOTALL)[1]


@pytest.fixture(scope="module")
def built():
    """Build what deploy/README.md says."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl on PATH")
    folder = ROOT / f".telemetry-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "kustomization.yaml").write_text(overlay(), "utf-8")
        done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=300, check=False)
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr
    resources = list(yaml.safe_load_all(done.stdout))
    index = {
        (each["kind"], each["metadata"]["name"].partition("-")[0] + each["metadata"]["name"][-2:]): each for each in resources
    }
    assert len(index) == len(resources)
    return resources


def test_kustomize_builds_a_valid_whole(built):
    """Three StatefulSets are there in place of the one, everything is valid and in one name space, images have their names."""
    sets = {each["metadata"]["name"]: each["spec"] for each in built if each["kind"] == "StatefulSet"}
    assert set(sets) == {f"node-{shard}" for shard in SHARDS}
    assert [each["metadata"]["name"] for each in built if each["kind"] == "CronJob"] == ["operator"]  # copies are of one store
    assert not [each for each in built if each["kind"] == "PersistentVolumeClaim"]
    for resource in built:
        check_resource(resource)
        assert resource["kind"] == "Namespace" or resource["metadata"]["namespace"] == "deniable"
    (job,) = (each for each in built if each["kind"] == "Job")
    images = [each["image"] for each in job["spec"]["template"]["spec"]["containers"]]
    (worker,) = (each for each in built if each["kind"] == "Deployment" and each["metadata"]["name"] == "worker")
    assert images == [each["image"] for each in worker["spec"]["template"]["spec"]["containers"]]


def test_a_machine_has_one_node_of_a_shard(built):
    """Each StatefulSet finds its own pods, keeps them apart, and lets one go at a time; the service finds all of them."""
    pods = {}
    for stateful_set in (each for each in built if each["kind"] == "StatefulSet"):
        labels = stateful_set["spec"]["template"]["metadata"]["labels"]
        pods[stateful_set["metadata"]["name"]] = labels
        (rule,) = stateful_set["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        assert rule["topologyKey"] == "kubernetes.io/hostname"
        assert rule["labelSelector"]["matchLabels"] == stateful_set["spec"]["selector"]["matchLabels"] == labels | {}
        (budget,) = (
            other
            for other in built
            if other["kind"] == "PodDisruptionBudget" and other["metadata"]["name"] == stateful_set["metadata"]["name"]
        )
        assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert budget["spec"]["maxUnavailable"] == 1
        assert stateful_set["spec"]["serviceName"] == "store"
    assert len({labels["shard"] for labels in pods.values()}) == len(SHARDS)
    (service,) = (each for each in built if each["kind"] == "Service" and each["metadata"]["name"] == "store")
    assert all(service["spec"]["selector"].items() <= labels.items() for labels in pods.values())


def test_nodes_are_named_as_passwords_are_drawn():
    """The names with which deploy/README.md draws are those of pods behind the service, and of services of the Compose file."""
    text = (DEPLOY / "README.md").read_text("utf-8")
    nodes_, names = re.search(r"nodes=\$\(printf '(.*?),' ([^)]*)\)", text).groups()
    node_names = [f"{shard}-{number}" for shard in SHARDS for number in range(node()["spec"]["replicas"])]
    assert names.split() == node_names
    assert nodes_ == "node-%s.store:6379"
    services = composed_cluster()["services"]
    hosts = {each["hostname"] for each in services.values() if "hostname" in each}
    assert hosts == {f"node-{name}" for name in node_names}
    assert services["store"]["networks"]["inside"]["aliases"] == [services["store"]["hostname"]]


def test_the_whole_is_as_on_one_server():
    """Nodes are locked up as the one store is, and have its image and its command, with what makes them a cluster."""
    (before,) = (each for each in documents(DEPLOY / "kubernetes" / "store.yaml") if each["kind"] == "StatefulSet")
    one, now = before["spec"]["template"]["spec"], node()["spec"]["template"]["spec"]
    for name in ("securityContext", "serviceAccountName", "automountServiceAccountToken", "enableServiceLinks"):
        assert now[name] == one[name]
    (old,), (new,) = one["containers"], now["containers"]
    for name in ("image", "securityContext", "resources", "startupProbe", "readinessProbe", "livenessProbe"):
        assert new[name] == old[name]
    words = list(old["command"])
    assert [word for word in new["command"] if word in words] == words
    shell = shlex.split(composed_cluster()["x-node"]["command"][2].removeprefix("exec "))
    own = ["--cluster-announce-hostname", "$(NAME).store", "--cluster-announce-ip", "$(ADDRESS)"]
    assert shell == [*new["command"][: -len(own)], "--cluster-announce-hostname", "$$HOSTNAME"]
    template = composed_cluster()["x-node"]
    for name in ("image", "user", "read_only", "cap_drop", "security_opt", "pids_limit", "mem_limit", "healthcheck", "restart"):
        assert template[name] == compose()["services"]["store"][name]


def test_the_compose_file_is_one(tmp_path):
    """Put together with deploy/compose.yaml it follows the Compose specification, and names only what is there."""
    first, second = compose(), composed_cluster()
    declarations = {part: first[part] | second.get(part, {}) for part in ("configs", "volumes")}
    for config in second["configs"].values():
        assert config["file"].startswith("private/") or (DEPLOY / config["file"]).is_file()
    for service in second["services"].values():
        assert {each["source"] for each in service.get("configs", ())} <= set(declarations["configs"])
        assert {volume.partition(":")[0] for volume in service.get("volumes", ())} <= set(declarations["volumes"])
        assert set(service["networks"]) <= set(first["networks"])
    cluster = second["services"]["cluster"]
    assert cluster["image"].partition(":")[0].removeprefix("deniable-") in stages()
    assert cluster["image"] == first["services"]["worker"]["image"]
    path = tmp_path / "compose.yaml"
    path.write_text((CLUSTER / "compose.yaml").read_text("utf-8"), "utf-8")
    check_files("vendor.compose-spec", path)


def test_variables_are_read_by_something(nodes):
    """No environment file that is drawn sets what nothing reads, and each promises `replicated`."""
    for user in ("ingest", "query", "server", "worker", "operator", "cluster"):
        env = environment(nodes.private.path(f"private/{user}.env"))
        assert set(env) <= variables()
        assert env["DENIABLE_DURABILITY"] == "replicated"
