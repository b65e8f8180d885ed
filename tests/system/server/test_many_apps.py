"""Many apps on a cluster: each is served, whatever becomes of the servers of the others."""

from __future__ import annotations

from dataclasses import replace

import jsonschema_rs

from deniable.commands import entry as cli
from deniable_server import create_app
from deniable_server.api import schemas


def test_apps_are_served_while_the_primary_of_others_is_away(settings, registry_file, tmp_path, machines, monkeypatch, capsys):
    """Their uploads are taken, `/readyz` is well for them and names the primary, and so does the doctor, once for all apps."""
    names = [f"app-{number}" for number in range(12)]
    for name in names:
        (tmp_path / f"{name}.toml").write_text(
            registry_file.read_text("utf-8").replace('app = "shop"', f'app = "{name}"'), "utf-8"
        )
    paths = ":".join(str(tmp_path / f"{name}.toml") for name in names)
    keys = ",".join(f"{name}:pk_{name}_12345678" for name in names)
    url = machines.cluster(3, 0, "--appendonly", "yes", "--maxmemory", "100mb", "--cluster-require-full-coverage", "no")
    server = create_app(replace(settings, redis_url=url, registry=paths, ingest_keys=keys, read_keys=""))
    http, apps = server.test_client(), server.extensions["deniable"].apps

    def upload(name, key):
        headers = {"Authorization": f"Bearer pk_{name}_12345678", "Idempotency-Key": key}
        group = {
            "metric": "none",
            "version": 1,
            "fingerprint": "0" * 16,
            "period": "2026",
            "segment": "",
            "count": 1,
            "payloads": "AA==",
        }
        return http.post("/v1/reports", json={"format": 1, "app": name, "groups": [group]}, headers=headers)

    assert http.get("/readyz").get_json()["status"] == "ok"
    assert {upload(name, "before").get_json()["code"] for name in names} == {"all_rejected"}
    dead = machines.all[0]
    there = {name for name, app in apps.items() if app.store.place.connection_pool.connection_kwargs["port"] == dead.port}
    assert 0 < len(there) < len(names)
    dead.kill()
    ready = http.get("/readyz")
    parts = ready.get_json()["parts"]
    assert (ready.status_code, ready.get_json()["status"]) == (200, "degraded")
    jsonschema_rs.validator_for(schemas.components()["Readiness"]).validate(ready.get_json())
    assert "it does not answer" in parts["store"].pop("detail")
    assert parts["store"] == {"ok": False, "reason": "away", "servers": {f"127.0.0.1:{dead.port}": "away"}}
    assert {name for name in names if not parts[f"backlog:{name}"]["ok"]} == there
    for name in names:
        assert (upload(name, "after").status_code == 503) == (name in there)
    monkeypatch.setenv("DENIABLE_REDIS_URL", url)
    monkeypatch.setenv("DENIABLE_REGISTRY", paths)
    monkeypatch.setenv("DENIABLE_INGEST_KEYS", keys)
    assert cli.main(["doctor"]) == 1
    output = capsys.readouterr().out
    assert f"writes: 127.0.0.1:{dead.port}: it does not answer" in output
    assert output.count("the store's server that has its data cannot be used: it does not answer") == 1
    assert "store server (" in output.partition("ok       store server (")[0]  # faults come first
    for machine in machines.all[1:]:
        machine.kill()
    assert http.get("/readyz").status_code == 503
    assert cli.main(["doctor"]) == 3
    server.extensions["deniable"].client.close()
