"""Many apps in one process: each takes uploads, whatever the others have opened."""

from __future__ import annotations

from dataclasses import replace

from deniable_server import create_app

APPS = 200


def test_each_of_many_apps_takes_uploads(served, settings, registry_file, tmp_path):
    """With 200 apps in one process every upload is taken, and the store has a few connections for all of them."""
    names, text = [f"app-{number}" for number in range(APPS)], registry_file.read_text("utf-8")
    for name in names:
        (tmp_path / f"{name}.toml").write_text(text.replace('app = "shop"', f'app = "{name}"'), "utf-8")
    paths = ":".join(str(tmp_path / f"{name}.toml") for name in names)
    keys = ",".join(f"{name}:pk_{name}_12345678" for name in names)
    http = create_app(replace(settings, registry=paths, ingest_keys=keys, read_keys="")).test_client()
    batch = {"format": 1, "groups": [served.group("ui.theme", [0, 1])]}
    before = int(served.store._client.info("clients")["connected_clients"])
    for number, name in enumerate(names):
        headers = {"Authorization": f"Bearer pk_{name}_12345678", "Idempotency-Key": f"key-number-{number}"}
        assert http.post("/v1/reports", json=batch, headers=headers).status_code == 202, name
    assert http.get("/readyz").status_code == 200
    assert int(served.store._client.info("clients")["connected_clients"]) <= before + 2
