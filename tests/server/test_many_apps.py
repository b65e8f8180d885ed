"""Many apps in one process: each takes uploads, whatever the others have opened."""

from __future__ import annotations

from dataclasses import replace
from os import pathsep

import pytest

from deniable_server import create_app

from .conftest import INGEST, Served

APPS = 200


def test_each_of_many_apps_takes_uploads(served, settings, registry_file, tmp_path):
    """With 200 apps in one process every upload is taken, and the store has a few connections for all of them."""
    names, text = [f"app-{number}" for number in range(APPS)], registry_file.read_text("utf-8")
    for name in names:
        (tmp_path / f"{name}.toml").write_text(text.replace('app = "shop"', f'app = "{name}"'), "utf-8")
    paths = ":".join(str(tmp_path / f"{name}.toml") for name in names)
    keys = ",".join(f"{name}:pk_{name}_12345678" for name in names)
    http = create_app(replace(settings, registry=paths, ingest_keys=keys, read_keys="")).test_client()
    groups = [served.group("ui.theme", [0, 1])]
    before = int(served.store._client.info("clients")["connected_clients"])
    for number, name in enumerate(names):
        headers = {"Authorization": f"Bearer pk_{name}_12345678", "Idempotency-Key": f"key-number-{number}"}
        batch = {"format": 1, "app": name, "groups": groups}
        assert http.post("/v1/reports", json=batch, headers=headers).status_code == 202, name
    assert http.get("/readyz").status_code == 200
    assert int(served.store._client.info("clients")["connected_clients"]) <= before + 2


@pytest.mark.parametrize("stated", ["blog", "labs", "Canary of an app", "x" * 81, ""])
def test_reports_of_another_app_are_not_counted(settings, registry_file, tmp_path, stated):
    """Two apps declare the same: with the key of one, reports of the other are refused as a whole, and both apps are named."""
    other = tmp_path / "blog.toml"
    other.write_text(registry_file.read_text("utf-8").replace('app = "shop"', 'app = "blog"'), "utf-8")
    both = Served(
        replace(settings, registry=f"{registry_file}{pathsep}{other}", ingest_keys=f"shop:{INGEST},blog:pk_blog_12345678")
    )
    group = both.group("ui.theme", [0, 1])
    own = {"format": 1, "app": "blog", "groups": [group]}
    assert both.post(own, Authorization="Bearer pk_blog_12345678").status_code == 202
    assert both.post(own | {"app": "shop"}).status_code == 202
    before = both.state()
    refused = both.post(own | {"app": stated})
    assert (refused.status_code, refused.get_json()["code"]) == (403, "other_app")
    detail = refused.get_json()["detail"]
    assert "the key is of app shop, " in detail
    assert detail.endswith(f"of app {stated}") == (stated in ("blog", "labs"))
    assert "canary" not in detail.lower()
    assert both.state() == before
