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
from deniable.wire import sealing
from deniable.wire.batch import Batch
from deniable.wire.layout import Layout
from deniable.wire.report import Report, Stratum, encode

VECTORS = Path(__file__).parents[1] / "vectors" / "conformance.py"
NOWHERE = "http://pk_conformance@127.0.0.1:9/shop"


@cache
def vectors():
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

    def __init__(self, registry, request):
        self.folder = TemporaryDirectory()
        self.now = datetime.fromisoformat(request.get("moment", "2026-11-21T10:00:00Z"))
        self.registry, self.request, self.consent = registry, request, request["consent"]
        self.begin()
        with self.client._session.state.transaction() as db:
            db.execute("UPDATE facts SET value = ? WHERE name = 'secret'", (bytes.fromhex(request["secret"]),))

    def begin(self):
        self.client = Client(
            dsn=self.request.get("dsn", NOWHERE),
            registry_key=self.request.get("registry_key"),
            registry=self.registry,
            consent=self.consent,
            segments=self.request["segments"],
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

    def stored(self, metric):
        tag = self.client._metrics.prepared[metric].allowance.tag
        with self.client._session.state.transaction() as db:
            (last,) = db.execute("SELECT last FROM kept WHERE tag = ?", (tag,)).fetchone()
        return last.hex()


class Answers:
    """What is answered to each request, by the name of the request."""

    registry = None
    device = None

    def hello(self, _):
        return {"protocol": 1, "client": "deniable for Python", "level": 3 if sealing.lacking() else 4}

    def sheet(self, request):
        known = [name for name, sheet in vectors().sheets().items() if sheet == request["sheet"]]
        if not known:
            return {"unsupported": "the SDK reads metrics.toml"}
        self.registry = vectors().registries()[known[0]]
        return {"refused": {}}

    def metric(self, request):
        return self.registry.metrics[request["metric"]]

    def payload(self, request):
        layout = Layout(request["layout"]["rows"], request["layout"]["width"], request["layout"]["kind"])
        return {"payload": layout.pack(request["row"], int(request["content"])).hex()}

    def period(self, request):
        return {"period": period.of(datetime.fromisoformat(request["moment"]), request["period"])}

    def position(self, request):
        metric, answer = self.metric(request), request["answer"]
        plain = int(answer) if metric.type == "key" and isinstance(answer, str) else answer
        position, _ = metric.kind.reported(metric, plain)
        return {"position": None if position is None else str(position)}

    def stand_in(self, request):
        tape = Tape(request["draws"])
        return {"position": str(self.metric(request).stand_in(tape)), "left": len(tape.left)}

    def round(self, request):
        metric = self.metric(request)
        return {"position": str(metric.round_at(metric.position(request["answer"]), request["point"]))}

    def report(self, request):
        tape = Tape(request["draws"])
        payload = mechanisms.of(self.metric(request)).randomize(int(request["position"]), source=tape)
        return {"payload": payload.hex(), "left": len(tape.left)}

    def support(self, request):
        ours = mechanisms.of(self.metric(request))
        value, points = int(request["position"]), range(ours.layout.width)
        return {"points": [x for x in points if value in ours.supported(ours.layout.pack(0, x))]}

    def respond(self, request):
        ours, tape, value = mechanisms.of(self.metric(request)), Tape(request["draws"]), int(request["position"])
        content = ours.respond_permanently(request["row"], value, tape)
        return {"key": str(ours.response_key(request["row"], value)), "content": str(content), "left": len(tape.left)}

    def again(self, request):
        tape = Tape(request["draws"])
        payload = mechanisms.of(self.metric(request)).respond_instantly(request["row"], int(request["content"]), tape)
        return {"payload": payload.hex(), "left": len(tape.left)}

    def place(self, request):
        with closing(sqlite3.connect(":memory:")) as db:
            db.execute("CREATE TABLE facts (name, value)")
            db.execute("INSERT INTO facts VALUES ('place', '0/1')")
            rows = [permanent_responses.row_of(db, each["rows"], Tape(each["draws"])) for each in request["asks"]]
            (place,) = db.execute("SELECT value FROM facts").fetchone()
        return {"rows": rows, "place": place}

    def body(self, request):
        reports = []
        for part in request["reports"]:
            metric = self.registry.metrics[part["metric"]]
            tag = mechanisms_tag(metric)
            stratum = Stratum(metric.id, metric.version, tag, part["period"], part["segment"])
            reports.append(Report(stratum, bytes.fromhex(part["payload"])))
        return {"body": json.loads(encode(self.registry.app, reports))}

    def restrict(self, request):
        written = request["metrics"]
        own = {}
        for id_, limit in written.items():
            metric = vectors().registries()["wire"].metrics[id_]
            own[id_] = replace(metric, sample=limit["sample"], expires=limit["expires"] and date.fromisoformat(limit["expires"]))
        try:
            used = Restriction.read(request["text"]).limited(own)
        except ServedRegistryError:
            return {"metrics": None}
        limits = {
            id_: {"sample": metric.sample, "expires": metric.expires and metric.expires.isoformat()}
            for id_, metric in used.items()
        }
        return {"metrics": {id_: limits.get(id_) for id_ in written}}

    def seal(self, request):
        if lack := sealing.lacking():
            return {"unsupported": lack}
        number, public = request["key"].split(":")
        stratum = Stratum(*(request[name] for name in Stratum._fields))
        seal = sealing.Sealer(request["app"], int(number), b64decode(public))
        sealed = [seal(Report(stratum, bytes.fromhex(payload))).sealed for payload in request["payloads"]]
        return {"sealed": [each.hex() for each in sealed]}

    def verify(self, request):
        until = request["valid_until"] and date.fromisoformat(request["valid_until"])
        try:
            Envelope(request["text"], b64decode(request["signature"]), until).verify(request["key"])
        except ServedRegistryError:
            return {"right": False}
        return {"right": True}

    def begin_device(self, request):
        if self.device is not None:
            self.device.client.close(0)
        self.device = Device(self.registry, request)
        return {}

    def record(self, request):
        return {"outcome": self.device.record(request["metric"], request["answer"], request["moment"])}

    def spent(self, request):
        spent = self.device.client._session.ledger.spent(request["month"])
        return {"month": round(spent.month * 1e6), "lifetime": round(spent.lifetime * 1e6)}

    def stored(self, request):
        return {"last": self.device.stored(request["metric"])}

    def waiting(self, _):
        return {"reports": self.device.waiting()}

    def consent(self, request):
        self.device.consent = request["given"]
        self.device.client.set_consent(request["given"])
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

    def report(self, request):
        answer = super().report(request)
        if "report" in sys.argv:
            answer["payload"] = f"{int(answer['payload'], 16) ^ 1:0{len(answer['payload'])}x}"
        return answer

    def seal(self, request):
        if "seal-segment" in sys.argv:
            request |= {"segment": "platform=other"}
        sealed = super().seal(request)["sealed"]
        if "seal-plain" in sys.argv:
            return {"sealed": request["payloads"]}
        return {"sealed": sealed[:1] * 2 if "seal-same" in sys.argv else sealed}

    def consent(self, request):
        return {} if "consent" in sys.argv else super().consent(request)

    def restart(self, request):
        return {} if "restart" in sys.argv else super().restart(request)

    def waiting(self, request):
        return {"reports": 0} if "waiting" in sys.argv else super().waiting(request)

    def respond(self, request):
        return {"unsupported": "nothing is kept"} if "respond" in sys.argv else super().respond(request)

    def flush(self, request):
        if "key" in sys.argv:
            sys.exit(3)
        return super().flush(request)


def main():
    """Answer each line until the input ends."""
    logging.getLogger("deniable").addHandler(logging.NullHandler())
    answers = Mistaken() if len(sys.argv) > 1 else Answers()
    for line in sys.stdin:
        request = json.loads(line)
        name = {"device": "begin_device"}.get(request["do"], request["do"])
        sys.stdout.write(f"{json.dumps(getattr(answers, name)(request))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
