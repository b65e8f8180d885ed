"""Chaos, by seed: a whole service of real processes under load, in which everything is killed, stopped and cut off.

What a run checks: the tallies are those of the accepted reports, to the unit, and so are the weight tallies of reports with bits;
every upload that was ever answered with 202 is among them.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64encode
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from uuid import UUID

import requests
from processes import APP, Redis, Workers, children, end
from proxy import Proxy
from several import Kind, Several

from deniable import mechanisms, registry
from deniable.declared import fingerprint
from deniable.registry import period
from deniable.wire.report import Stratum
from deniable_aggregator import tally
from deniable_aggregator.process.ports import free_port
from deniable_aggregator.store import GROUP, Store, connect, schema
from deniable_aggregator.store.uploads.dead_letters import DeadLetters
from deniable_aggregator.store.uploads.partition import names
from deniable_aggregator.tally import set_bits

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = "pk_chaos_12345678"
REGISTRY = """
format = 1
budget.per_month = 10000
budget.lifetime = 100000
app = "shop"
""" + "".join(
    f"""
[metrics."{name}"]
type = "categorical"
values = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
epsilon = 1.0
mechanism = "{mechanism}"
period = "month"
description = "One of ten"
owner = "o@shop.example"
"""
    for name, mechanism in (("index", "grr"), ("bits", "oue"), ("rows", "local_hash"))
)
WORKERS = 3
TROUBLES = {"kill worker": 6, "stall worker": 3, "kill server": 2, "kill store": 2, "drop": 3, "delay": 2, "deaf": 2}
"""What befalls a service, and how often beside the rest."""
STORE_TROUBLES = {"kill store": "store kills", "restart store": "restarts", "pause store": "pauses", "move": "moves"}
"""Those of a store of several servers, each with the name under which a run counts it."""


@dataclass
class Upload:
    """One upload, the same bytes at each try, and what became of it."""

    key: str
    body: bytes
    counted: dict[str, bytes]
    answered: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass
class Run:
    """What a run did and saw."""

    seed: int
    done: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    counted: Counter[str] = field(default_factory=Counter)
    unary: Counter[str] = field(default_factory=Counter)
    """Those of the accepted reports that have bits."""
    weighed: Counter[str] = field(default_factory=Counter)
    """Reports in the weight tallies."""
    silences: dict[str, list[float]] = field(default_factory=dict)
    """After each death of a store's server and each move of its keys, the longest time in seconds without a 202."""
    answers: list[float] = field(default_factory=list)
    """When there was a 202."""
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Stage:
    """The service: a store, gunicorn behind one proxy and before another, ready for runs.

    Parameters
    ----------
    binary
        The store's server.
    durability
        What is promised, and kept.
    kind
        One server, or which kind of several: then ``replicated`` is promised.
    partitions
        Of the app.
    timeout
        Milliseconds after which a node of a cluster is taken for dead.
    settings
        Further settings of the server.
    """

    def __init__(
        self,
        binary: Path,
        durability: str = "always",
        *,
        kind: Kind | Literal["one"] = "one",
        partitions: int = 1,
        timeout: int = 1000,
        **settings: object,
    ) -> None:
        durability = durability if kind == "one" else "replicated"
        self._settings = {"durability": durability} | settings
        self._undo = ExitStack()
        self.folder = Path(self._undo.enter_context(tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True)))
        self._path = self.folder / "metrics.toml"
        self._path.write_text(self.declare(), "utf-8")
        self.registry = registry.load(self._path)
        self.mechanisms = {name: mechanisms.of(metric) for name, metric in self.registry.metrics.items()}
        self._partitions, keys = partitions, [schema.REPORTS.of(name) for name in names(APP, partitions)]
        if kind == "one":
            self.redis = Redis(binary, self.folder, durability)
        else:
            self.redis = Several(binary, self.folder, kind, keys, timeout)
            self._settings |= {"replica_timeout": self.redis.replica_timeout}
        self.uploads: list[Upload] = []

    def declare(self) -> str:
        """Return the registry."""
        return REGISTRY

    def __enter__(self):
        with ExitStack() as undo:
            undo.push(self._undo)
            self.redis.start()
            undo.callback(self.redis.kill)
            self.inner = self.redis if isinstance(self.redis, Several) else undo.enter_context(Proxy(self.redis.port))
            self.url = self.redis.url if isinstance(self.redis, Several) else f"redis://127.0.0.1:{self.inner.port}"
            port = free_port()
            environment = {name: text for name, text in os.environ.items() if not name.startswith("DENIABLE_")} | {
                "DENIABLE_REDIS_URL": self.url,
                "DENIABLE_REGISTRY": str(self._path),
                "DENIABLE_INGEST_KEYS": f"{APP}:{KEY}",
                "DENIABLE_RATE_LIMIT_KEY": "off",
                "DENIABLE_RATE_LIMIT_SOURCE": "off",
                "DENIABLE_STORED_LIMIT_SOURCE": "off",
                "WEB_CONCURRENCY": "2",
            }
            environment |= {f"DENIABLE_{name.upper()}": str(value) for name, value in self._settings.items()}
            command = [sys.executable, "-m", "gunicorn", "-c", "python:deniable_server.gunicorn_conf", "-b", f"127.0.0.1:{port}"]
            log = undo.enter_context((self.folder / "server.log").open("ab"))
            self.server = subprocess.Popen(
                [*command, "deniable_server:create_app()"], env=environment, stdout=log, stderr=log, start_new_session=True
            )
            undo.callback(end, self.server)
            self.outer = undo.enter_context(Proxy(port))
            self.lines = [self.inner, self.outer]
            self.store = Store(connect(self.redis.url), APP)
            undo.callback(self.store._client.close)
            self._await_server()
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_):
        self._undo.close()

    def _await_server(self) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with suppress(requests.RequestException):
                if requests.get(f"http://127.0.0.1:{self.outer.port}/readyz", timeout=5).status_code == 200:
                    return
            time.sleep(0.05)
        raise AssertionError("the server does not get ready:\n" + (self.folder / "server.log").read_text()[-2000:])

    def server_processes(self) -> list[int]:
        """List the processes that answer requests."""
        return children(self.server.pid)

    # Load

    def upload(self, chance: random.Random) -> Upload:
        """Make up a batch of reports that the server accepts."""
        groups, counted = [], {}
        for name in chance.sample(sorted(self.mechanisms), chance.randint(1, 3)):
            mechanism, metric = self.mechanisms[name], self.registry.metrics[name]
            payloads = b"".join(mechanism.randomize(chance.randrange(10)) for _ in range(chance.randint(1, 20)))
            counted[name] = payloads
            group = {
                "metric": name,
                "version": metric.version,
                "fingerprint": fingerprint(metric, mechanism.canonical),
                "period": self.period,
                "segment": "",
                "count": len(payloads) // mechanism.layout.payload_size,
                "payloads": b64encode(payloads).decode(),
            }
            groups.append(group)
        body = requests.models.complexjson.dumps({"format": 1, "app": "shop", "groups": groups}).encode()
        return Upload(str(UUID(int=chance.getrandbits(128))), body, counted)

    @property
    def period(self) -> str:
        return period.of(datetime.now(UTC), "month")

    def device(self, run: Run, seed: str, stop: threading.Event, sent: list[Upload]) -> None:
        """Send uploads one after another, each until it is answered, some once more, some given up."""
        chance = random.Random(seed)
        session = requests.Session()
        while not stop.is_set():
            upload = self.upload(chance)
            sent.append(upload)
            tries = chance.choice([1, 1000, 1000, 1000, 1000, 1000, 1000])  # some devices go away before they know
            answers = chance.choice([1, 1, 1, 2, 3])  # and some do not believe the first answer
            deadline = time.monotonic() + 60
            while tries and upload.answered < answers and time.monotonic() < deadline:
                tries -= 1
                if chance.random() < 0.3:  # a copy that was given up is still under way
                    copy = threading.Thread(target=self._post, args=(run, None, upload))
                    copy.start()
                    self._post(run, session, upload)
                    copy.join()
                else:
                    self._post(run, session, upload)
                if upload.wrong:
                    break
            if tries and not upload.answered:
                upload.wrong.append("never answered")
        session.close()

    def post(self, upload: Upload, session: requests.Session | None = None) -> requests.Response:
        """Send an upload once."""
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", "Idempotency-Key": upload.key}
        url = f"http://127.0.0.1:{self.outer.port}/v1/reports"
        return (session or requests).post(url, data=upload.body, headers=headers, timeout=10)

    def _post(self, run: Run, session: requests.Session | None, upload: Upload) -> None:
        try:
            answer = self.post(upload, session)
        except requests.RequestException:
            run.done["unanswered"] += 1
            time.sleep(0.02)
            return
        if answer.status_code == 202:
            upload.answered += 1
            run.answers.append(time.monotonic())
            run.done["replays"] += bool(answer.json()["duplicate"])
        elif answer.status_code == 503 and answer.headers.get("Retry-After"):
            run.done["503"] += 1
            time.sleep(0.05)
        else:
            upload.wrong.append(f"{answer.status_code} {answer.text[:200]}")

    # Faults

    def trouble(self, run: Run, chance: random.Random, workers: Workers, troubles: Mapping[str, int]) -> None:
        """Do one bad thing."""
        what = chance.choices(list(troubles), list(troubles.values()))[0]
        if what == "kill worker":
            run.done["kills"] += workers.hit(signal.SIGKILL, chance)
        elif what == "stall worker":
            run.done["stalls"] += workers.hit(signal.SIGSTOP, chance)
        elif what == "kill server":
            for pid in self.server_processes()[:1]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                run.done["server kills"] += 1
        elif what in STORE_TROUBLES:
            began = time.monotonic()
            self.befall(what, chance)
            run.done[STORE_TROUBLES[what]] += 1
            run.silences.setdefault(what, []).append(self._silence(run, began))
        else:
            proxy = chance.choice(self.lines)
            run.done["cuts"] += 1
            if what == "drop":
                proxy.drop()
            elif what == "delay":
                proxy.delay = chance.uniform(0.01, 0.2)
                time.sleep(0.3)
                proxy.delay = 0.0
            else:
                proxy.deaf = True
                time.sleep(chance.uniform(0.01, 0.1))
                proxy.deaf = False

    def befall(self, what: str, chance: random.Random) -> None:
        """Do one of `STORE_TROUBLES` to the store."""
        if what == "pause store":
            self.redis.pause(chance)
        elif what == "move":
            self.redis.move(chance)
        elif what == "restart store":
            self.redis.die(chance, at_once=True)
        else:
            self.redis.die(chance)

    @staticmethod
    def _silence(run: Run, began: float) -> float:
        """Wait for a 202; return the longest time without one since something began."""
        deadline, over = time.monotonic() + 60, time.monotonic()
        while not (run.answers and run.answers[-1] > over) and time.monotonic() < deadline:
            time.sleep(0.01)
        times = [began, *sorted(each for each in [*run.answers] if each > began), time.monotonic()]
        return max(after - before for before, after in pairwise(times))

    def run(
        self,
        seed: int,
        seconds: float = 3.0,
        *,
        rate: float = 0.08,
        troubles: Mapping[str, int] = TROUBLES,
        least: int = 1,
        archive: bool = False,
    ) -> Run:
        """Cause chaos for some seconds, let the dust settle, and compare.

        Parameters
        ----------
        seed
            Of all choices; the times are the machine's.
        seconds
            Of chaos.
        rate
            Chance that a worker kills or stops itself at each point of a commit.
        troubles
            What happens, and how often beside the rest; of `STORE_TROUBLES`, only ``kill store`` is for one server.
        least
            So many troubles there are, however long it takes.
        archive
            Whether reports with bits are archived: then a recount of the files that count must equal the tally, too.
        """
        chance, run, began = random.Random(seed), Run(seed), time.monotonic()
        self.redis.empty()
        assert self.store.divide(self._partitions) == self._partitions
        self.prepare(seed, rate)
        workers = Workers(self.url, self.folder, self.folder / "archive" if archive else None)
        workers.record.unlink(missing_ok=True)
        stop, sent = threading.Event(), [[] for _ in range(3)]
        devices = [
            threading.Thread(target=self.device, args=(run, f"{seed}:{number}", stop, uploads))
            for number, uploads in enumerate(sent)
        ]
        for device in devices:
            device.start()
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end or least > 0:
                workers.tend()
                workers.start(seed, rate, WORKERS)
                time.sleep(chance.uniform(0.05, 0.3))
                self.trouble(run, chance, workers, troubles)
                least -= 1
        finally:
            stop.set()
            for device in devices:
                device.join(70)
            self.settle(run, [upload for uploads in sent for upload in uploads], workers)
            self.drain(workers, seed)
            workers.stop()
        if workers.record.exists():
            for line in workers.record.read_text().splitlines():
                name, point = line.split()
                run.done[{"SIGKILL": "kills", "SIGSTOP": "stalls", "CUT": "cuts"}[name]] += 1
                run.done[f"at {point}"] += 1
        self.uploads = [upload for uploads in sent for upload in uploads]
        self.compare(run, self.uploads)
        if archive:
            self.recount(run)
        run.seconds = time.monotonic() - began
        return run

    def prepare(self, seed: int, rate: float) -> None:
        """Start what a run needs beside."""

    def settle(self, run: Run, uploads: list[Upload], workers: Workers) -> None:
        """Bring what is under way to the server."""

    def drain(self, workers: Workers, seed: int) -> None:
        """Have the rest counted by workers that nobody kills."""
        deadline = time.monotonic() + 120
        while (self.store.backlog() or self.store.settled() is None) and time.monotonic() < deadline:
            workers.tend()
            workers.start(seed, 0.0, 1)
            time.sleep(0.05)

    def compare(self, run: Run, uploads: list[Upload]) -> None:
        """Set what was accepted beside what was counted."""
        faults = run.faults
        faults += [fault for upload in uploads for fault in upload.wrong]
        self.compare_tallies(run, uploads)
        if backlog := self.store.backlog():
            faults.append(f"{backlog} batches are not counted")
        if self.store.settled() is None:
            faults.append("a commit is added in part")
        run.done["in pieces"] += self.store.settled() or 0
        if dead := len(DeadLetters(self.store)):
            faults.append(f"{dead} batches were put aside")
        for partition in self.store.partitions:
            partition.join()
            if self.store._client.xpending(partition.stream, GROUP)["pending"]:
                faults.append("something is in a worker's hands still")

    def compare_tallies(self, run: Run, uploads: list[Upload]) -> None:
        """Set the accepted reports of each sum beside it."""
        for name, payloads in self._accepted(run, uploads).items():
            self._compare(run, self._stratum(name), payloads)

    def recount(self, run: Run) -> None:
        """Set the files of the archive that count beside the tallies."""
        from deniable_aggregator.archive.folder import Folder
        from deniable_aggregator.archive.recount import count_files

        for partition in self.store.partitions:
            folder = Folder(str(self.folder / "archive"), partition.archived.number() or "")
            for name, mechanism in self.mechanisms.items():
                stratum = self._stratum(name)
                files = partition.archived.names([stratum]).get(stratum, set())
                run.done["orphans"] += len(folder.find(name)) - len(files)
                counted = partition.tallies.read(mechanism.layout, [stratum])
                if mechanism.layout.kind == "index" or (not files and not counted.n):
                    continue
                if count_files(folder.url, folder.number, stratum, sorted(files)).tally != counted:
                    run.faults.append(f"{name}: the recount of the archive is not the tally")

    def _stratum(self, name: str) -> Stratum:
        metric, mechanism = self.registry.metrics[name], self.mechanisms[name]
        return Stratum(name, metric.version, fingerprint(metric, mechanism.canonical), self.period, "")

    def _accepted(self, run: Run, uploads: list[Upload]) -> dict[str, bytes]:
        """Join what the server took, by metric."""
        taken: dict[str, list[bytes]] = {name: [] for name in self.mechanisms}
        for upload in uploads:
            known = self.store.recall(upload.key, 72 * 3600) is not None
            if upload.answered and not known:
                run.faults.append("an upload was answered with 202 and is gone")
            if known:  # appended in the same script
                run.done["uploads"] += 1
                for name, payloads in upload.counted.items():
                    taken[name].append(payloads)
        return {name: b"".join(parts) for name, parts in taken.items()}

    def _compare(self, run: Run, stratum: Stratum, payloads: bytes) -> None:
        """Set the accepted reports of a stratum beside its tally and, if they have bits, its weight tally."""
        name, strata = stratum.metric, [stratum]
        layout = self.mechanisms[name].layout
        expected, counted = tally.count(layout, payloads), self.store.read(layout, strata)
        run.accepted[name] += expected.n
        run.counted[name] += counted.n
        if counted != expected:
            run.faults.append(f"{name}: accepted {expected.n}, counted {counted.n}")
        if layout.kind == "bits":  # committed with the tally, but under a key of its own
            weighed = self.store.read_weights(layout, strata)
            run.unary[name] += expected.n
            run.weighed[name] += int(weighed.sum())
            if weighed.tolist() != set_bits.count(layout, payloads).tolist():
                run.faults.append(f"{name}: accepted {expected.n}, {weighed.sum()} in the weight tally, or not of their weights")
