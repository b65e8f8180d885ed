"""A server that only takes reports does without what counts, decodes and draws noise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("cryptography", "llvmlite", "markdown_it", "matplotlib", "numba", "opendp", "pyarrow", "rich", "scipy")

TAKE = """
import json, sys

HEAVY = {heavy!r}


class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HEAVY:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Nothing())

import deniable_server.gunicorn_conf
import deniable_server.serving.worker
from deniable import mechanisms
from deniable.declared import fingerprint
from deniable_server import create_app
from deniable_server.settings import Settings

settings = Settings(
    redis_url={url!r}, registry={file!r}, ingest_keys="shop:pk_test_12345678", serves="ingest", metrics_key="mk_test_12345678"
)
app = create_app(settings)
http = app.test_client()
metric = app.extensions["deniable"].apps["shop"].registry.metrics["ui.theme"]
mechanism = mechanisms.of(metric)
payload = mechanism.randomize(0).hex()
group = {group!r} | {{"fingerprint": fingerprint(metric, mechanism.canonical)}}
import base64

group["payloads"] = base64.b64encode(bytes.fromhex(payload)).decode()
headers = {{"Authorization": "Bearer pk_test_12345678", "Idempotency-Key": "key-of-light-ingest"}}
metrics = http.get("/metrics", headers={{"Authorization": "Bearer mk_test_12345678"}}).status_code
answers = [http.get("/healthz").status_code, http.get("/readyz").status_code, metrics]
taken = http.post("/v1/reports", json={{"format": 1, "app": "shop", "groups": [group]}}, headers=headers)
print(json.dumps([answers, taken.status_code, taken.get_json(), sorted(set(HEAVY) & set(sys.modules))]))
"""


def test_uploads_pass_without_what_counts_and_decodes(served, store_url, registry_file):
    """Where scipy, numba and OpenDP cannot be imported, uploads, health and metrics are answered as ever."""
    group = served.group("ui.theme", [0])
    del group["payloads"], group["fingerprint"]
    code = TAKE.format(heavy=HEAVY, url=store_url, file=str(registry_file), group=group)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    answers, status, taken, loaded = json.loads(done.stdout)
    assert answers == [200, 200, 200]
    assert (status, taken["accepted"], loaded) == (202, 1, [])
    assert served.store.backlog() == 1


def test_the_heavy_modules_are_those_of_no_ingest():
    """What is blocked above is installed here: the test would pass for nothing where it is not."""
    for name in ("cryptography", "numba", "opendp", "pyarrow", "scipy"):
        assert any(Path(place, name).is_dir() for place in sys.path), name


@pytest.mark.parametrize(
    "modules",
    [
        "deniable_aggregator.decode.search.discovery, deniable_aggregator.decode.combination, deniable_server.app",
        "deniable_aggregator.commands.account, deniable_server.commands.report",
    ],
)
def test_to_decode_is_to_load_little(modules):
    """A server with pages, a worker and each command that decodes or accounts are ready half a second sooner for this."""
    code = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert not {"numba", "scipy.optimize", "scipy.stats"} & set(done.stdout.split())
