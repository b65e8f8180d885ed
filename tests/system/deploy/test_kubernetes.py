"""deploy/kustomization.yaml and what it gathers: valid, restricted, and in line with images, settings and the running service."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from itertools import product

import pytest
import requests
import yaml
from schemas import check_resource
from shipped import DEPLOY, OLDEST, compose, documents, environment, stages, variables
from waiting import eventually

import deniable
from deniable_server import create_app
from deniable_server.settings import Settings

KEY = "mk_test_12345678"
SERVICES = ("ingest", "query", "worker", "store")
JOBS = ("operator", "backup", "restore")
PODS = (*SERVICES, *JOBS)
INSIDE = ("/metrics", "/healthz", "/readyz")


@cache
def kustomization():
    return yaml.safe_load((DEPLOY / "kustomization.yaml").read_text("utf-8"))


@cache
def resources():
    """Return all resources, by kind and name."""
    index = {}
    for file in kustomization()["resources"]:
        for resource in documents(DEPLOY / file):
            key = resource["kind"], resource["metadata"]["name"]
            assert key not in index
            index[key] = resource
    return index


def of_kind(*kinds):
    return {name: each for (kind, name), each in resources().items() if kind in kinds}


@cache
def pods():
    """Return the templates of pods, by name."""
    services = {name: each["spec"]["template"] for name, each in of_kind("Deployment", "StatefulSet").items()}
    return services | {name: each["spec"]["jobTemplate"]["spec"]["template"] for name, each in of_kind("CronJob").items()}


def spec(name):
    return pods()[name]["spec"]


def container(name):
    (only,) = spec(name)["containers"]
    return only


@pytest.mark.parametrize("version", [OLDEST, ""])
def test_resources_are_valid(version):
    """Each resource, and the example of secrets, has only members that Kubernetes knows, of the right type."""
    for resource in [*resources().values(), *documents(DEPLOY / "kubernetes" / "secrets.example.yaml")]:
        check_resource(resource, version)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on PATH; the resources are looked at without it")
def test_kustomize_builds_them():
    """`kubectl kustomize` puts the same resources together, valid ones, in one name space."""
    built = subprocess.run(["kubectl", "kustomize", DEPLOY], capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stderr
    manifests = [each for each in yaml.safe_load_all(built.stdout) if each["kind"] != "ConfigMap"]
    assert {(each["kind"], each["metadata"]["name"]) for each in manifests} == set(resources())
    for manifest in manifests:
        check_resource(manifest)
        assert manifest["kind"] == "Namespace" or manifest["metadata"]["namespace"] == "deniable"
    assert all(f"image: registry.example/deniable-{each}:" in built.stdout for each in ("ingest", "full"))


def test_everything_is_gathered():
    """Every file of the folder but the example is applied."""
    files = {str(path.relative_to(DEPLOY)) for path in (DEPLOY / "kubernetes").iterdir()}
    assert files - set(kustomization()["resources"]) == {"kubernetes/secrets.example.yaml"}
    assert set(pods()) == set(PODS)


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_restricted(name):
    """Each pod keeps the restricted profile that its name space enforces, on a read-only root and with no way to the cluster."""
    assert resources()["Namespace", "deniable"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    pod, only = spec(name), container(name)
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] >= 999
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert not any("hostPort" in port for port in only.get("ports", ()))
    assert all(set(volume) & {"configMap", "secret", "emptyDir", "persistentVolumeClaim"} for volume in pod.get("volumes", ()))
    assert pod["automountServiceAccountToken"] is False
    assert resources()["ServiceAccount", pod["serviceAccountName"]]["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert {"memory"} == set(only["resources"]["limits"])
    assert {"cpu", "memory"} == set(only["resources"]["requests"])


@pytest.mark.parametrize("name", PODS)
def test_labels_match(name):
    """A pod has the labels by which its controller, its service and its budget find it, and no other pod has."""
    labels = pods()[name]["metadata"]["labels"]
    kinds = ("Deployment", "StatefulSet", "PodDisruptionBudget", "Service")
    specs = [each["spec"]["selector"] for kind in kinds for service, each in of_kind(kind).items() if service == name]
    selectors = [each.get("matchLabels", each) for each in specs]
    assert len(selectors) == {"ingest": 3, "query": 3, "worker": 2, "store": 2}.get(name, 0)
    for selector in selectors:
        assert selector.items() <= labels.items()
        assert not any(selector.items() <= pods()[other]["metadata"]["labels"].items() for other in PODS if other != name)


def test_images_are_those_of_the_other_deployments():
    """Images are those that the Dockerfile makes, in this version, and the store's that compose.yaml has."""
    images = {each["name"]: each for each in kustomization()["images"]}
    for name in ("ingest", "query", "worker", "operator"):
        target = compose()["services"][name]["build"]["target"]
        assert container(name)["image"] == f"deniable-{target}"
        if name != "operator":
            assert container(name).get("command") == compose()["services"][name].get("command")
        assert images[container(name)["image"]]["newTag"] == deniable.__version__
        assert int(stages()[target].last("USER").split(":")[0]) == spec(name)["securityContext"]["runAsUser"]
    for name in ("store", "backup", "restore"):
        service = compose()["services"][name]
        assert container(name)["image"] == service["image"]
        assert [word.replace("/backups", "/data") for word in container(name)["command"]] == [
            word.replace("/backups", "/data") for word in service["command"]
        ]
        assert str(spec(name)["securityContext"]["runAsUser"]) == service["user"].split(":")[0]


def test_configuration_is_there(private):
    """What pods read is made from files of the folder, or from what passwords.py draws, and lies where it is looked for."""
    maps = {each["name"]: each for each in kustomization()["configMapGenerator"]}
    for generator in maps.values():
        assert all((DEPLOY / file).is_file() for file in (*generator.get("files", ()), *generator.get("envs", ())))
    assert maps["settings"]["envs"] == ["deniable.env"]
    examples = {
        each["metadata"]["name"]: set(each["stringData"]) for each in documents(DEPLOY / "kubernetes" / "secrets.example.yaml")
    }
    env = environment(private.path("private/backup.env"))
    assert examples["backup"] == set(env)
    assert container("backup")["envFrom"] == [{"secretRef": {"name": "backup"}}]
    assert not {"envFrom", "env"} & set(container("restore"))
    for name in ("ingest", "query", "worker", "operator"):
        env = environment(private.path(f"private/{name}.env"))
        assert examples[name] == set(env) <= variables()
        assert container(name)["envFrom"] == [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": name}}]
        assert "env" not in container(name)
        mounts = {mount["name"]: mount["mountPath"] for mount in container(name)["volumeMounts"]}
        registry = environment(DEPLOY / "deniable.env")["DENIABLE_REGISTRY"]
        assert registry == f"{mounts['registry']}/{maps['registry']['files'][0]}"
        assert stages()["full"].environment["NUMBA_CACHE_DIR"].startswith(mounts["tmp"])
    assert examples["store"] == {"users.acl", "probe"}
    for pod in PODS:
        for volume in spec(pod)["volumes"]:
            assert volume.get("configMap", {"name": "store"})["name"] in maps
            assert volume.get("secret", {"secretName": "store"})["secretName"] in examples
            claim = volume.get("persistentVolumeClaim", {"claimName": "backups"})["claimName"]
            assert claim in of_kind("PersistentVolumeClaim") or claim == "data-store-0"  # of the store's claim template
    for name in ("backup", "restore"):
        (script,) = (mount for mount in container(name)["volumeMounts"] if mount["name"] == "configuration")
        assert script["subPath"] in maps["store"]["files"]
        assert container(name)["command"][:2] == ["sh", script["mountPath"]]


def test_the_example_holds_no_secret():
    """What stands for secrets in the example opens nothing."""
    for secret in documents(DEPLOY / "kubernetes" / "secrets.example.yaml"):
        for name, text in secret["stringData"].items():
            if name == "DENIABLE_REDIS_URL":
                assert ":PASSWORD@" in text
            elif name == "users.acl":
                assert "#" not in text
            elif name != "DENIABLE_SERVES":
                assert text.startswith("RANDOM")


@pytest.mark.parametrize("name", ["ingest", "query", "worker"])
def test_probes_are_answered(composed, name):
    """Each probe asks a port that the image opens, at an address that a running process answers."""
    only = container(name)
    ports = {port["name"]: port["containerPort"] for port in only["ports"]}
    target = compose()["services"][name]["build"]["target"]
    assert list(ports.values()) == [9464 if name == "worker" else int(stages()[target].last("EXPOSE"))]
    probes = [only[probe]["httpGet"] for probe in ("startupProbe", "readinessProbe", "livenessProbe") if probe in only]
    assert len(probes) == (2 if name == "worker" else 3)
    for probe in probes:
        assert probe["port"] in ports
        assert eventually(lambda probe=probe: requests.get(composed.url(name) + probe["path"], timeout=300).ok), probe


def test_a_full_backlog_takes_no_pod_away():
    """Only a pod's start looks at the store: what all pods share is no reason to send requests to none of them."""
    for name in ("ingest", "query"):
        assert container(name)["startupProbe"]["httpGet"]["path"] == "/readyz"
        assert {container(name)[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe")} == {"/healthz"}


def test_services_lead_to_pods():
    """A service's port is one that its pods have."""
    for name, service in of_kind("Service").items():
        named = {port["name"] for port in container(name)["ports"]}  # each has the name of its pods
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= named
    users = environment(DEPLOY / "deniable.env")
    assert users["DENIABLE_TRUSTED_PROXIES"] == "1"
    (port,) = of_kind("Service")["store"]["spec"]["ports"]
    example = documents(DEPLOY / "kubernetes" / "secrets.example.yaml")[0]["stringData"]["DENIABLE_REDIS_URL"]
    assert example.endswith(f"@store:{port['port']}/0")


def test_pods_have_the_time_they_need_to_end():
    """A pod is killed only after it was still sent requests for a moment and its process had the time that it takes to end."""
    from deniable_aggregator.commands.worker import _STOP_SECONDS
    from deniable_server import gunicorn_conf

    for name in ("ingest", "query"):
        _, wait = container(name)["lifecycle"]["preStop"]["exec"]["command"]
        assert spec(name)["terminationGracePeriodSeconds"] > int(wait) + gunicorn_conf.graceful_timeout
    assert spec("worker")["terminationGracePeriodSeconds"] > _STOP_SECONDS + 5


def test_scalers_have_something_to_scale(composed):
    """Each autoscaler names a deployment that leaves its number open, and workers are scaled by what waits in all apps."""
    scalers = of_kind("HorizontalPodAutoscaler")
    assert set(scalers) == {"ingest", "worker"}
    for name, scaler in scalers.items():
        target = scaler["spec"]["scaleTargetRef"]
        assert target["name"] == name
        assert "replicas" not in resources()[target["kind"], name]["spec"]
    (metric,) = scalers["worker"]["spec"]["metrics"]
    assert set(metric["external"]["metric"]) == {"name"}
    key = composed.private.path("private/deniable-metrics-key").read_text()
    assert eventually(lambda: composed.healthy("query"))
    exposition = requests.get(f"{composed.url('query')}/metrics", headers={"Authorization": f"Bearer {key}"}, timeout=300).text
    assert f'{metric["external"]["metric"]["name"]}{{app="shop"}}' in exposition


def test_an_operator_acts_when_somebody_asks(private, composed):
    """Nothing of an operator runs by itself but the copies; a pod for commands waits, with its user's password, for a while."""
    suspended = {name for name, each in of_kind("CronJob").items() if each["spec"].get("suspend")}
    assert suspended == {"operator", "restore"}
    job = of_kind("CronJob")["operator"]["spec"]["jobTemplate"]["spec"]
    assert container("operator")["command"] == ["sleep", str(job["activeDeadlineSeconds"])]
    assert job["ttlSecondsAfterFinished"] == 0  # neither the pod nor what it was told stays
    url = environment(private.path("private/operator.env"))["DENIABLE_REDIS_URL"]
    assert url.startswith("redis://operator:")
    (line,) = re.findall(r"exec job/operator -- deniable (keys create .*)", (DEPLOY / "README.md").read_text("utf-8"))
    assert composed.operate(*line.split()).startswith("pk_")


def test_the_readme_names_what_is_there():
    """Every object that a command of deploy/README.md names exists, with its containers."""
    text = (DEPLOY / "README.md").read_text("utf-8")
    kinds = {"cronjob": "CronJob", "deployment": "Deployment", "statefulset": "StatefulSet"}
    named = re.findall(r"\b(cronjob|deployment|statefulset)/([a-z]+)", text)
    assert len(set(named)) >= 6
    assert {(kinds[kind], name) for kind, name in named} <= set(resources())
    images = re.findall(r"set image deployment/(\w+) (\w+)=registry\.example/deniable-(\w+):", text)
    assert {name for name, _, _ in images} == {"worker", "query", "ingest"}
    for name, only, image in images:
        assert container(name)["name"] == only
        assert container(name)["image"] == f"deniable-{image}"
    assert [name for name, _, _ in images] == ["worker", "query", "ingest"]  # and back in the other order
    assert re.findall(r"rollout undo deployment/(\w+)", text) == ["ingest", "query", "worker"]


def test_the_ingress_hands_on_what_is_for_the_internet():
    """Each address of a server is reached at the server that has it, but for those of the inside, which are not reached."""
    (ingress,) = of_kind("Ingress").values()
    ((rule,),) = ([each["http"] for each in ingress["spec"]["rules"]],)
    for serves in ("ingest", "query"):
        settings = Settings(
            redis_url="redis://127.0.0.1:9/0", registry=str(DEPLOY / "metrics.toml"), serves=serves, metrics_key=KEY
        )
        for path in {re.sub("<[^>]*>", "x", str(each)) for each in create_app(settings).url_map.iter_rules()}:
            matches = [each for each in rule["paths"] if covers(each, path)]
            if path in INSIDE or (path.startswith("/static") and serves == "ingest"):
                assert path not in INSIDE or not matches
                continue
            assert {each["backend"]["service"]["name"] for each in matches} == {serves}, path
    services = of_kind("Service")
    for entry in rule["paths"]:
        target = entry["backend"]["service"]
        assert target["port"]["name"] in {port["name"] for port in services[target["name"]]["spec"]["ports"]}
    assert not [each for each in rule["paths"] if each["pathType"] == "Prefix" and each["path"] == "/"]


def covers(rule, path):
    """Tell whether a path of an Ingress covers an address."""
    if rule["pathType"] == "Exact":
        return path == rule["path"]
    return path == rule["path"] or path.startswith(rule["path"].rstrip("/") + "/")


# Who may talk to whom


def chosen(selector, labels):
    """Tell whether a selector of Kubernetes chooses labels."""
    if not selector.get("matchLabels", {}).items() <= labels.items():
        return False
    for requirement in selector.get("matchExpressions", ()):
        assert requirement["operator"] == "In"
        if labels.get(requirement["key"]) not in requirement["values"]:
            return False
    return True


def passes(direction, pod, peer, space, port):
    """Tell whether the policies let a pod talk to a peer ("Egress"), or a peer talk to it ("Ingress")."""
    labels = {"app.kubernetes.io/name": pod}
    policies = [each["spec"] for each in of_kind("NetworkPolicy").values()]
    bound = [each for each in policies if direction in each["policyTypes"] and chosen(each["podSelector"], labels)]
    if not bound:
        return True
    for rule in (rule for each in bound for rule in each.get(direction.lower(), ())):
        for other in rule["to" if direction == "Egress" else "from"]:
            where = (
                chosen(other["namespaceSelector"], {"kubernetes.io/metadata.name": space})
                if "namespaceSelector" in other
                else space == "deniable"
            )
            who = chosen(other.get("podSelector", {}), {"app.kubernetes.io/name": peer})
            if where and who and port in {each["port"] for each in rule["ports"]}:
                return True
    return False


def test_nobody_talks_to_anybody_but_as_needed():
    """Servers and workers reach the store, the Ingress servers, Prometheus all but the store; there is no other way in or out."""
    ports = {"ingest": 8080, "query": 8080, "worker": 9464, "store": 6379} | dict.fromkeys(JOBS, 8080)
    for one, other in product(PODS, PODS):
        open_ = passes("Egress", one, other, "deniable", ports[other]) and passes("Ingress", other, one, "deniable", ports[other])
        assert open_ == (other == "store" and one not in ("store", "restore")), (one, other)
    for pod, (space, who) in product(
        PODS, [("ingress-nginx", "controller"), ("monitoring", "prometheus"), ("elsewhere", "ingest")]
    ):
        targets = {"ingress-nginx": {"ingest", "query"}, "monitoring": {"ingest", "query", "worker"}}.get(space, set())
        assert passes("Ingress", pod, who, space, ports[pod]) == (pod in targets), (pod, space)
        assert not passes("Ingress", pod, who, space, 22)
        assert not passes("Egress", pod, who, space, 443)
        assert passes("Egress", pod, "kube-dns", "kube-system", 53)
