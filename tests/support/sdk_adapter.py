"""The test adapter of our own SDK for ``deniable conformance``: it answers lines of JSON.

The SDK reads metrics.toml and no sheet. So a sheet is found among those of the registries that the vectors are made of.
"""

from __future__ import annotations

import gzip
import json
import logging
import runpy
import sqlite3
import sys
from base64 import b64decode
from collections import Counter
from contextlib import closing, suppress
from dataclasses import replace
from datetime import date, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

from deniable import Client, mechanisms
from deniable.device import permanent_responses
from deniable.errors import ServedRegistryError
from deniable.registry import period
from deniable.served_registry.restrictions import Restriction
from deniable.served_registry.signature import Envelope
from deniable.source import Source
from deniable.wire.batch import Batch
from deniable.wire.layout import Layout
from deniable.wire.report import Report, Stratum, encode

VECTORS = Path(__file__).parents[1] / "vectors" / "conformance.py"
NOWHERE = "http://pk_conformance@127.0.0.1:9/shop"


@cache
def made():
    """Return what the vectors are made by."""
    return SimpleNamespace(**runpy.run_path(str(VECTORS)))


def on_disk(path):
    """Return the number of reports of a batch that waits on disk."""
    return len(Batch.read("", gzip.decompress(path.read_bytes())).reports)


class Tape(Source):
    """The draws of a request, one after another."""

    def __init__(self, written):
        self.left = [int(digit) for each in written.split() for digit in (each[2:] if each.startswith("0b") else [each])]

    def bernoulli(self, num, den):  # noqa: ARG002
        return bool(self.left.pop(0))

    def below(self, n):  # noqa: ARG002
        return self.left.pop(0)


class Device:
    """A client in a folder of its own."""

    def __init__(self, registry, asked):
        self.folder = TemporaryDirectory()
        self.now = datetime.fromisoformat(asked.get("moment", "2026-11-21T10:00:00Z"))
        self.registry, self.asked, self.consent = registry, asked, asked["consent"]
        self.begin()
        with self.client._session.state.transaction() as db:
            db.execute("UPDATE facts SET value = ? WHERE name = 'secret'", (bytes.fromhex(asked["secret"]),))

    def begin(self):
        self.client = Client(
            dsn=self.asked.get("dsn", NOWHERE),
            registry=self.registry,
            consent=self.consent,
            segments=self.asked["segments"],
            state=self.folder.name,
            clock=lambda: self.now.timestamp(),  # noqa: PLW0108 - it goes on
        )

    def record(self, metric, answer, moment):
        self.now = datetime.fromisoformat(moment)
        before = Counter(self.client._counts.dropped)
        if self.client.record(metric, answer):
            return "reported"
        (reason,) = Counter(self.client._counts.dropped) - before
        return reason

    def restart(self):
        self.client.close(10)
        self.begin()

    def waiting(self):
        outbox = self.client._session.sender._outbox
        while True:
            with suppress(FileNotFoundError):  # the sending thread has just given a batch another name
                return outbox.submitted - outbox.settled + sum(map(on_disk, Path(self.folder.name).rglob("*.json.gz")))

    def kept(self, metric):
        tag = self.client._metrics.prepared[metric].allowance.tag
        with self.client._session.state.transaction() as db:
            (last,) = db.execute("SELECT last FROM kept WHERE tag = ?", (tag,)).fetchone()
        return last.hex()


class Answers:
    """What is answered to each request, by the name of the request."""

    registry = None
    device = None

    def hello(self, _):
        return {"protocol": 1, "client": "deniable for Python", "level": 3}

    def sheet(self, asked):
        known = [name for name, sheet in made().sheets().items() if sheet == asked["sheet"]]
        if not known:
            return {"unsupported": "the SDK reads metrics.toml"}
        self.registry = made().registries()[known[0]]
        return {"refused": {}}

    def metric(self, asked):
        return self.registry.metrics[asked["metric"]]

    def payload(self, asked):
        layout = Layout(asked["layout"]["rows"], asked["layout"]["width"], asked["layout"]["kind"])
        return {"payload": layout.pack(asked["row"], int(asked["content"])).hex()}

    def period(self, asked):
        return {"period": period.of(datetime.fromisoformat(asked["moment"]), asked["period"])}

    def position(self, asked):
        metric, answer = self.metric(asked), asked["answer"]
        given = int(answer) if metric.type == "key" and isinstance(answer, str) else answer
        position, _ = metric.kind.reported(metric, given)
        return {"position": None if position is None else str(position)}

    def stand_in(self, asked):
        tape = Tape(asked["draws"])
        return {"position": str(self.metric(asked).stand_in(tape)), "left": len(tape.left)}

    def round(self, asked):
        metric = self.metric(asked)
        return {"position": str(metric.round_at(metric.position(asked["answer"]), asked["point"]))}

    def report(self, asked):
        tape = Tape(asked["draws"])
        payload = mechanisms.of(self.metric(asked)).randomize(int(asked["position"]), source=tape)
        return {"payload": payload.hex(), "left": len(tape.left)}

    def support(self, asked):
        ours = mechanisms.of(self.metric(asked))
        value, points = int(asked["position"]), range(ours.layout.width)
        return {"points": [x for x in points if value in ours.supported(ours.layout.pack(0, x))]}

    def respond(self, asked):
        ours, tape, value = mechanisms.of(self.metric(asked)), Tape(asked["draws"]), int(asked["position"])
        content = ours.respond_permanently(asked["row"], value, tape)
        return {"key": str(ours.response_key(asked["row"], value)), "content": str(content), "left": len(tape.left)}

    def again(self, asked):
        tape = Tape(asked["draws"])
        payload = mechanisms.of(self.metric(asked)).respond_instantly(asked["row"], int(asked["content"]), tape)
        return {"payload": payload.hex(), "left": len(tape.left)}

    def place(self, asked):
        with closing(sqlite3.connect(":memory:")) as db:
            db.execute("CREATE TABLE facts (name, value)")
            db.execute("INSERT INTO facts VALUES ('place', '0/1')")
            rows = [permanent_responses.row_of(db, each["rows"], Tape(each["draws"])) for each in asked["asks"]]
            (place,) = db.execute("SELECT value FROM facts").fetchone()
        return {"rows": rows, "place": place}

    def body(self, asked):
        reports = []
        for each in asked["reports"]:
            metric = self.registry.metrics[each["metric"]]
            tag = mechanisms_tag(metric)
            stratum = Stratum(metric.id, metric.version, tag, each["period"], each["segment"])
            reports.append(Report(stratum, bytes.fromhex(each["payload"])))
        return {"body": json.loads(encode(reports))}

    def restrict(self, asked):
        written = asked["metrics"]
        own = {}
        for id_, each in written.items():
            metric = made().registries()["wire"].metrics[id_]
            own[id_] = replace(metric, sample=each["sample"], expires=each["expires"] and date.fromisoformat(each["expires"]))
        used = Restriction.read(asked["text"]).limited(own)
        limits = {
            id_: {"sample": metric.sample, "expires": metric.expires and metric.expires.isoformat()}
            for id_, metric in used.items()
        }
        return {"metrics": {id_: limits.get(id_) for id_ in written}}

    def verify(self, asked):
        until = asked["valid_until"] and date.fromisoformat(asked["valid_until"])
        try:
            Envelope(asked["text"], b64decode(asked["signature"]), until).verify(asked["key"])
        except ServedRegistryError:
            return {"right": False}
        return {"right": True}

    def begin_device(self, asked):
        if self.device is not None:
            self.device.client.close(0)
        self.device = Device(self.registry, asked)
        return {}

    def record(self, asked):
        return {"outcome": self.device.record(asked["metric"], asked["answer"], asked["moment"])}

    def spent(self, asked):
        spent = self.device.client._session.ledger.spent(asked["month"])
        return {"month": round(spent.month * 1e6), "lifetime": round(spent.lifetime * 1e6)}

    def kept(self, asked):
        return {"last": self.device.kept(asked["metric"])}

    def waiting(self, _):
        return {"reports": self.device.waiting()}

    def consent(self, asked):
        self.device.consent = asked["given"]
        self.device.client.set_consent(asked["given"])
        return {}

    def restart(self, _):
        self.device.restart()
        return {}

    def flush(self, _):
        self.device.client.flush(30)
        return {}

    def sent(self, _):
        names = ("metric", "period", "segment", "payload")
        return {"reports": [{name: getattr(each, name) for name in names} for each in self.device.client.journal()]}


def mechanisms_tag(metric):
    """Return the fingerprint of a metric."""
    from deniable.declared import Declared

    return Declared.of(metric).fingerprint


class Mistaken(Answers):
    """A client with the mistakes that a test names."""

    def report(self, asked):
        answer = super().report(asked)
        if "report" in sys.argv:
            answer["payload"] = f"{int(answer['payload'], 16) ^ 1:0{len(answer['payload'])}x}"
        return answer

    def consent(self, asked):
        return {} if "consent" in sys.argv else super().consent(asked)

    def restart(self, asked):
        return {} if "restart" in sys.argv else super().restart(asked)

    def waiting(self, asked):
        return {"reports": 0} if "waiting" in sys.argv else super().waiting(asked)

    def respond(self, asked):
        return {"unsupported": "nothing is kept"} if "respond" in sys.argv else super().respond(asked)

    def flush(self, asked):
        if "key" in sys.argv:
            sys.exit(3)
        return super().flush(asked)


def main():
    """Answer each line until the input ends."""
    logging.getLogger("deniable").addHandler(logging.NullHandler())
    answers = Mistaken() if len(sys.argv) > 1 else Answers()
    for line in sys.stdin:
        asked = json.loads(line)
        name = {"device": "begin_device"}.get(asked["do"], asked["do"])
        sys.stdout.write(f"{json.dumps(getattr(answers, name)(asked))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
