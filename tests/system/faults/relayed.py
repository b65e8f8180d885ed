"""Chaos, by seed, with a relay between devices and server: all four kinds of processes die, and lines are cut.

What a run checks: each report that the relay answered with 202 is counted once, in its own period and segment; or it stayed in a
pool that was too small, and the relay says how many these are.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from itertools import count
from shutil import rmtree
from typing import TYPE_CHECKING
from uuid import UUID

import requests
from chaos import KEY, TROUBLES, Run, Stage, Upload
from mixer import read_clock
from processes import APP, HERE, Workers, children
from proxy import Proxy

from deniable.declared import Declared
from deniable.registry import period
from deniable.wire import sealing
from deniable.wire.report import Report, Stratum, encode
from deniable_aggregator.process.ports import free_port
from deniable_server.access.keys import KeyStore

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

DAY = 86_400.0
DAYS = 20  # that pass while devices send; a day's pool closes when 3.75 more are over, and for good after 26.25
LEAST = 6
REGISTRY = """
format = 1
budget.per_month = 10000
budget.lifetime = 100000
app = "shop"
segments.platform = ["linux", "macos"]
[relay]
operator = "Example Foundation"
key = "{key}"
""" + "".join(
    f"""
[metrics."{name}"]
type = "categorical"
values = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
epsilon = 1.0
mechanism = "{mechanism}"
segments = ["platform"]
grace = "30d"
min_reports = {LEAST}
shuffled = {{{{ min = {LEAST}, delta = 1e-6, central = 0.99 }}}}
description = "One of ten"
owner = "o@shop.example"
"""
    for name, mechanism in (("index", "grr"), ("bits", "oue"), ("rows", "local_hash"))
)
RELAY_TROUBLES = TROUBLES | {"kill relay": 3, "kill relay's worker": 3}
ADDRESS = "203.0.113.77"  # of all devices, as a proxy in front of the relay says
CALM = 20.0  # seconds after which the relay dies no more, while the rest is settled


@dataclass
class Sealed(Upload):
    """An upload of sealed reports."""

    reports: list[Report] = field(default_factory=list)


class RelayStage(Stage):
    """The service, with a relay whose time runs fast."""

    seconds = 5.0  # of chaos in which the days pass

    def declare(self) -> str:
        private, public = sealing.generate(1)
        key = self.folder / "sealing.pem"
        key.write_bytes(private)
        self._settings |= {"sealing_keys": key}
        return REGISTRY.format(key=public)

    def __enter__(self):
        super().__enter__()
        relay = self.registry.relay
        self.seal = sealing.Sealer(APP, relay.number, relay.public_key)
        self.seal.prepare()
        self.server_line, self.port = self.outer, free_port()
        self.outer = self._undo.enter_context(Proxy(self.port))  # devices send to the relay
        self.lines = [*self.lines, self.outer]
        self.relay: subprocess.Popen | None = None
        self._undo.callback(self.kill_relay)
        self._clock, self.record, self._numbers = self.folder / "clock", self.folder / "mixers", count()
        return self

    # The relay

    def prepare(self, seed: int, rate: float) -> None:
        self.kill_relay()
        rmtree(self.folder / "relay", ignore_errors=True)
        self.record.unlink(missing_ok=True)
        self._seed, self._rate = seed, rate / 10  # it has many steps
        self._key = KeyStore(self.store).create("relay", "Example Foundation")[0]
        self._begin = (time.time() // DAY - 28) * DAY
        self.set_clock(self._begin, 0.0, self._begin)
        deadline = time.monotonic() + 120
        while not self.totals() and time.monotonic() < deadline:
            self.tend_relay()
            time.sleep(0.05)
        self.set_clock(self._begin, DAYS * DAY / self.seconds, self._begin + DAYS * DAY)

    def set_clock(self, then: float, speed: float, last: float) -> None:
        """Let the relay's time run so, from now on."""
        new = self._clock.with_suffix(".new")
        new.write_text(json.dumps([time.time(), then, speed, last]))
        new.rename(self._clock)

    def start_relay(self) -> None:
        environment = {name: text for name, text in os.environ.items() if not name.startswith("DENIABLE_")} | {
            "DENIABLE_RELAY_REGISTRY": str(self._path),
            "DENIABLE_RELAY_SERVER": f"http://127.0.0.1:{self.server_line.port}",
            "DENIABLE_RELAY_INGEST_KEY": KEY,
            "DENIABLE_RELAY_SERVER_KEY": self._key,
            "DENIABLE_RELAY_DATA": str(self.folder / "relay"),
            "DENIABLE_RELAY_UPLOADS": "1000000",
            "DENIABLE_RELAY_REPORTS": "1000000",
            "DENIABLE_RELAY_TRUSTED_PROXIES": "1",
        }
        mixer = [HERE / "mixer.py", f"{self._seed}:{next(self._numbers)}", str(self._rate), self.record, self._clock]
        command = [sys.executable, *map(str, mixer), "relay", "--bind", f"127.0.0.1:{self.port}"]
        with (self.folder / "relay.log").open("ab") as log:
            self.relay = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)

    def tend_relay(self) -> None:
        """Start it, unless it runs."""
        if self.relay is None or self.relay.poll() is not None:
            self.start_relay()

    def kill_relay(self) -> None:
        """Kill all processes of it, as a power failure does."""
        if self.relay:
            with suppress(ProcessLookupError):
                os.killpg(self.relay.pid, signal.SIGKILL)
            self.relay.wait()
            self.relay = None

    def totals(self) -> Counter[str]:
        """Ask the relay for its numbers of reports; empty while it does not answer."""
        with suppress(requests.RequestException):
            answer = requests.get(f"http://127.0.0.1:{self.port}/metrics", timeout=10)
            numbers = re.findall(r"^deniable_relay_(\w+)_reports(?:_total)? (\S+)$", answer.text, re.MULTILINE)
            return Counter({name: int(float(number)) for name, number in numbers})
        return Counter()

    # Load

    def upload(self, chance: random.Random) -> Sealed:
        now = read_clock(self._clock)
        reports = []
        for name in chance.sample(sorted(self.mechanisms), chance.randint(1, 3)):
            day = period.of(datetime.fromtimestamp(now - DAY * chance.choice([0, 0, 0, 1, 5]), UTC), "day")
            stratum = self._placed(name, max(day, self._first), chance.choice(["platform=linux", "platform=macos"]))
            mechanism = self.mechanisms[name]
            reports += [
                self.seal(Report(stratum, mechanism.randomize(chance.randrange(10)))) for _ in range(chance.randint(1, 12))
            ]
        return Sealed(str(UUID(int=chance.getrandbits(128))), encode("shop", reports), {}, reports=reports)

    @property
    def _first(self) -> str:
        return period.of(datetime.fromtimestamp(self._begin, UTC), "day")

    def _placed(self, name: str, day: str, segment: str) -> Stratum:
        return Stratum(name, 1, Declared.of(self.registry.metrics[name]).fingerprint, day, segment)

    def post(self, upload: Upload, session: requests.Session | None = None) -> requests.Response:
        session = session or requests.Session()
        session.headers["X-Forwarded-For"] = ADDRESS
        return super().post(upload, session)

    # Faults

    def trouble(self, run: Run, chance: random.Random, workers: Workers, troubles: Mapping[str, int]) -> None:
        self.tend_relay()
        what = chance.choices(list(troubles), list(troubles.values()))[0]
        if what == "kill relay":
            self.kill_relay()
            time.sleep(chance.uniform(0, 0.2))
            self.start_relay()
            run.done["relay kills"] += 1
        elif what == "kill relay's worker":
            for pid in children(self.relay.pid)[:1] if self.relay else ():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                run.done["relay kills"] += 1
        else:
            super().trouble(run, chance, workers, {what: 1})

    def settle(self, run: Run, uploads: list[Upload], workers: Workers) -> None:
        """Have all uploads answered, and all pools close for good, while the relay still dies at its steps."""
        calm, deadline = time.monotonic() + CALM, time.monotonic() + 240

        def until(done) -> None:
            while not done() and time.monotonic() < deadline:
                if self._rate and time.monotonic() > calm:
                    self._rate = 0.0
                    self.kill_relay()
                self.tend_relay()
                workers.tend()
                workers.start(run.seed, 0.0, 1)
                time.sleep(0.1)

        def answered() -> bool:
            for upload in uploads:
                if not upload.answered and not upload.wrong:
                    self._post(run, None, upload)
            return all(upload.answered or upload.wrong for upload in uploads)

        def forwarded() -> bool:
            self._totals = self.totals()
            return bool(self._totals) and not self._totals["waiting"] and not self._totals["closed"]

        until(answered)
        self.set_clock(self._begin + 90 * DAY, 0.0, self._begin + 90 * DAY)
        until(forwarded)
        if self.record.exists():
            for line in self.record.read_text().splitlines():
                run.done["relay deaths" if line.startswith("SIGKILL") else "cuts"] += 1
                run.done[line] += 1

    # Comparison

    def compare_tallies(self, run: Run, uploads: list[Upload]) -> None:
        """Set the reports of each stratum that the server knows beside its sums, and the others beside what the relay dropped."""
        names = [*self.store._client.scan_iter(f"{{{APP}}}:opened:*")]
        known = {int(number) for name in names for number in self.store._client.smembers(name)}
        there: dict[Stratum, list[bytes]] = defaultdict(list)
        missing: Counter[Stratum] = Counter()
        for upload in uploads:
            run.done["uploads"] += bool(upload.answered)
            for report in upload.reports if upload.answered else ():
                if int.from_bytes(sha256(report.sealed).digest()[:8], signed=True) in known:
                    there[report.stratum].append(report.payload)
                else:
                    missing[report.stratum] += 1
        for stratum in set(there) | {each for name in self.mechanisms for each in self.store.strata(name)}:
            self._compare(run, stratum, b"".join(there[stratum]))
        run.done["too few"], run.done["strata"] = missing.total(), len(there)
        run.faults += [f"{number} reports of {stratum} are gone" for stratum, number in missing.items() if number >= LEAST]
        relay = {"forwarded": run.accepted.total(), "too_few": missing.total()}
        stated = {name: self._totals[name] for name in relay}
        if stated != relay:
            run.faults.append(f"the relay says {stated}, and the server knows {relay}")
