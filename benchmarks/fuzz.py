"""Fuzzing by coverage (atheris): uploads against a served app on a real store, and stream entries against what reads them.

    pip install atheris                          # wheels for Linux
    python benchmarks/fuzz.py                    # both targets, a minute each
    python benchmarks/fuzz.py --seconds 300 --target upload

Starts from batches as devices make them. What each target must hold:

* upload: whatever is sent to ``POST /v1/reports`` is answered with 202 or a documented problem, and nothing that was refused is
  in the store; a worker counts the rest, and the tallies have as many reports as the answers said, no more and no less;
* entry: whatever stands in a stream entry is counted, report by report, or refused as a payload.

Ends with 1 if anything was found; what was found is kept beside the corpus, and given again it is tried alone:
``python benchmarks/fuzz.py --target upload --input FILE``.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import re
import subprocess
import sys
import tempfile
import zlib
from base64 import b64encode
from collections import Counter
from contextlib import nullcontext
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any

import atheris
from werkzeug.test import Client

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from direct_way import directly

INSIDE = sys.argv[1:2] == ["--inside"]

# Where inputs lead to is followed in all of our modules but the compiled kernels, which are imported later.
with atheris.instrument_imports(include=["deniable", "deniable_aggregator", "deniable_server"]) if INSIDE else nullcontext():
    from deniable import mechanisms, registry
    from deniable.declared import fingerprint
    from deniable.errors import PayloadError
    from deniable.registry import period
    from deniable.wire.layout import Layout
    from deniable.wire.report import Report, Stratum, encode
    from deniable_aggregator import tally
    from deniable_aggregator.counting.worker import Worker
    from deniable_aggregator.store import Store, connect
    from deniable_aggregator.store.server import embedded
    from deniable_aggregator.store.uploads import batch
    from deniable_aggregator.tally import set_bits
    from deniable_server import create_app
    from deniable_server.api.openapi import ANYWHERE, OPERATIONS
    from deniable_server.settings import Settings

KEY = "pk_fuzz_12345678"
REGISTRY = """
format = 1
budget.per_month = 10000
budget.lifetime = 10000
app = "shop"

[segments]
platform = ["linux", "macos"]
""" + "".join(
    f"""
[metrics."{name}"]
type = "categorical"
values = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
epsilon = 1.0
mechanism = "{name}"
period = "{length}"
segments = {segments}
description = "One of ten"
owner = "o@shop.example"
"""
    for name, length, segments in (
        ("grr", "day", []),
        ("oue", "week", ["platform"]),
        ("local_hash", "month", []),
        ("subset", "hour", []),
        ("hadamard", "day", ["platform"]),
    )
)
PLAIN, GZIP = b"\0", b"\1"
BATCH_SIZE = 200  # uploads taken, after which they are counted and compared
LONGEST = 8192
DOCUMENTED = {
    (status, code)
    for codes in (ANYWHERE, *(operation.codes or {} for operation in OPERATIONS if operation.path == "/v1/reports"))
    for status, names in codes.items()
    for code in names
    if status < 500  # the store is there, and has room
}


def honest() -> list[bytes]:
    """Make uploads as devices do: of one report and of many, of one metric and of all."""
    metrics = registry.parse(REGISTRY).metrics
    chance = random.Random(1)

    def reports(name: str, number: int) -> list[Report]:
        metric = metrics[name]
        mechanism = mechanisms.of(metric)
        tag, now = fingerprint(metric, mechanism.canonical), period.of(datetime.now(UTC), metric.period)
        segment = "platform=linux" if metric.segments else ""
        stratum = Stratum(name, metric.version, tag, now, segment)
        return [Report(stratum, mechanism.randomize(chance.randrange(10))) for _ in range(number)]

    result = [encode("shop", reports(name, number)) for name in metrics for number in (1, 5)]
    return [*result, encode("shop", [report for name in metrics for report in reports(name, 3)])]


class Uploads:
    """The target ``upload``.

    Parameters
    ----------
    url
        Of the store, which is emptied.
    folder
        Where the registry is put.
    """

    def __init__(self, url: str, folder: Path) -> None:
        path = folder / "metrics.toml"
        path.write_text(REGISTRY, "utf-8")
        logging.disable(logging.WARNING)
        settings = Settings(
            redis_url=url, registry=str(path), ingest_keys=f"shop:{KEY}", rate_limit_key="off", rate_limit_source="off",
            stored_limit_source="off", durability="memory", max_backlog=10 * BATCH_SIZE,
        )  # fmt: skip
        self.store = Store(connect(url), "shop")
        self.store._client.flushall()
        flask = create_app(settings)
        self.ways = flask.test_client(), Client(directly(flask))
        self.questions = flask.extensions["deniable"].apps["shop"].highest
        self.waiting = 0
        self.accepted: Counter[str] = Counter()

    def seeds(self) -> list[bytes]:
        result = honest()
        return [PLAIN + body for body in result] + [GZIP + _gzip(body) for body in result]

    def __call__(self, data: bytes) -> None:
        """Send an input: its first byte says how."""
        body = data[1:]
        headers = {
            "Authorization": f"Bearer {KEY}",
            "Content-Type": "application/json",
            "Idempotency-Key": sha256(data).hexdigest(),
        }
        if data[:1] == GZIP:
            headers["Content-Encoding"] = "gzip"
        way = self.ways[len(data) % 2]  # by Flask, or directly
        answer = way.post("/v1/reports", data=body, headers=headers)
        statement = json.loads(answer.data)
        if answer.status_code == 202:
            if not statement["duplicate"]:
                self.waiting += 1
                self._note(body if data[:1] != GZIP else zlib.decompress(body, 31), statement)
        else:
            assert (answer.status_code, statement["code"]) in DOCUMENTED, answer.data
        assert self.store.backlog() == self.waiting, "what was refused is in the store, or what was taken is not"
        if self.waiting >= BATCH_SIZE:
            self.settle()

    def _note(self, body: bytes, statement: dict[str, Any]) -> None:
        sent: Counter[str] = Counter()
        for group in json.loads(body)["groups"]:
            sent[group["metric"]] += group["count"]
        assert statement["accepted"] + statement["rejected"] == sent.total()
        assert statement["accepted"] > 0
        self.accepted["reports"] += statement["accepted"]

    def settle(self) -> None:
        """Count what waits, and compare."""
        Worker([self.store]).run(Event(), burst=True)
        counted = 0
        for name, question in self.questions.items():
            strata = list(self.store.strata(name))
            layout = question.mechanism.layout
            results = self.store.read(layout, strata).n
            counted += results
            if layout.kind == "bits":
                assert self.store.read_weights(layout, strata).sum() == results
        assert counted == self.accepted["reports"], f"accepted {self.accepted['reports']}, counted {counted}"
        assert self.store.backlog() == 0
        assert not self.store._client.xlen(self.store.partitions[0].dead), "a batch that was taken cannot be counted"
        self.waiting = 0


class Entries:
    """The target ``entry``."""

    def __init__(self, url: str, folder: Path) -> None:
        del url, folder

    def seeds(self) -> list[bytes]:
        stratum = Stratum("m", 1, "f" * 16, "2026-11-21", "")
        layouts = [Layout(1, 10, "index"), Layout(1, 10, "bits"), Layout(7, 3, "index"), Layout(4, 16, "bits")]
        return [
            batch.encode([batch.Group(stratum, layout, layout.pack(0, 0) * number)])
            for layout in layouts
            for number in (1, 9)
        ]  # fmt: skip

    def __call__(self, data: bytes) -> None:
        """Read and count an entry as a worker does."""
        try:
            groups = batch.decode(data)
            tallies = [tally.count(group.layout, group.payloads) for group in groups]
        except PayloadError:
            return
        for group, counted in zip(groups, tallies, strict=True):
            assert counted.n == group.reports
            if group.layout.kind == "bits":
                assert set_bits.count(group.layout, group.payloads).sum() == group.reports


TARGETS = {"upload": Uploads, "entry": Entries}


def mutated(data: bytes, most: int, seed: int) -> bytes:
    """Change an upload: mostly a member of its JSON, so that what comes out is JSON still; and under its compression, if any."""
    chance = random.Random(seed)
    how, body = data[:1], data[1:]
    if chance.random() < 0.1:
        return bytes(atheris.Mutate(data, most))
    try:
        body = zlib.decompress(body, 31) if how == GZIP else body
        document = json.loads(body) if chance.random() < 0.8 else None
    except (zlib.error, ValueError, RecursionError):
        return bytes(atheris.Mutate(data, most))
    body = bytes(atheris.Mutate(body, most - 1)) if document is None else json.dumps(changed(document, chance)).encode()
    result = how + (_gzip(body) if how == GZIP else body)
    return result if len(result) <= most else data


def changed(document: Any, chance: random.Random) -> Any:
    """Change one place of a document."""
    if isinstance(document, dict) and document and chance.random() < 0.9:
        name = chance.choice(list(document))
        return document | {name: changed(document[name], chance)}
    if isinstance(document, list) and document and chance.random() < 0.9:
        place = chance.randrange(len(document))
        stored = [*document[:place], changed(document[place], chance), *document[place + 1 :]]
        return chance.choice([stored, stored, stored, stored + document[:1], document[1:]])
    if isinstance(document, str) and chance.random() < 0.8:
        return atheris.Mutate(document.encode(), len(document) + 16).decode(errors="replace")
    if isinstance(document, int) and chance.random() < 0.8:
        return document + chance.choice([-1, 1, 2 ** chance.randrange(70), -(2 ** chance.randrange(70))])
    return chance.choice([None, True, 0, -1, 0.5, 1e400, "", "\0", [], {}, b64encode(b"\xff" * 9).decode(), document])


def _gzip(body: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=31)
    return deflater.compress(body) + deflater.flush()


def fuzz(name: str, options: list[str]) -> None:
    """Fuzz a target in this process, which ends with it."""
    url, folder = os.environ["FUZZ_STORE"], Path(os.environ["FUZZ_FOLDER"])
    target = TARGETS[name](url, folder)
    mutator = {"custom_mutator": mutated} if name == "upload" else {}
    atheris.Setup([sys.argv[0], *options], target, **mutator)
    atheris.Fuzz()


def run(name: str, seconds: int, corpus: Path, input_: Path | None) -> bool:
    """Fuzz a target in a process of its own; tell whether nothing was found."""
    folder = corpus / name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, embedded.open_store(durability="memory") as store:
        for seed in TARGETS[name](store.url, Path(scratch)).seeds():
            (folder / sha256(seed).hexdigest()[:16]).write_bytes(seed)
        options = [str(input_)] if input_ else [str(folder), f"-max_total_time={seconds}", f"-max_len={LONGEST}", "-timeout=20"]
        options += [f"-artifact_prefix={corpus}/{name}-", "-rss_limit_mb=2000", "-print_final_stats=1"]
        done = subprocess.run(
            [sys.executable, __file__, "--inside", name, *options],
            env=os.environ | {"FUZZ_STORE": store.url, "FUZZ_FOLDER": scratch},
            stderr=subprocess.PIPE, text=True, errors="replace", check=False,
        )  # fmt: skip
    last = re.findall(r"#(\d+)\t.* cov: (\d+) .*corp: (\d+)", done.stderr)
    tried, coverage, stored = last[-1] if last else ("?", "?", "?")
    if executed := re.search(r"number_of_executed_units: (\d+)", done.stderr):
        tried = executed[1]
    print(
        f"{name}: {tried} inputs tried, {coverage} places reached, {stored} kept; {'nothing' if not done.returncode else 'FOUND'}"
    )
    if done.returncode:
        print("\n".join(line for line in done.stderr.splitlines() if not line.startswith("INFO"))[-6000:])
    return not done.returncode


def main() -> int:
    """Run from the command line; 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--target", choices=TARGETS, action="append", help="default: all")
    parser.add_argument("--corpus", type=Path, help="keep inputs and finds there, and begin with those that are there")
    parser.add_argument("--input", type=Path, help="try this one alone")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        corpus = arguments.corpus or Path(scratch)
        good = [run(name, arguments.seconds, corpus.absolute(), arguments.input) for name in arguments.target or TARGETS]
        if not all(good) and not arguments.corpus:
            stored = Path(tempfile.mkdtemp(prefix="deniable-fuzz-"))
            for path in Path(scratch).glob("*-*"):
                path.rename(stored / path.name)
            print(f"what was found is in {stored}")
    return int(not all(good))


if __name__ == "__main__":
    if INSIDE:
        fuzz(sys.argv[2], sys.argv[3:])
    sys.exit(main())
