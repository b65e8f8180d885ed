"""The moment of a report: it tells neither how long a block took nor, with a delay, when an answer was given."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime
from fractions import Fraction
from time import monotonic, sleep, time

import pytest
from registries import metric_toml, registry_toml
from waiting import eventually

from deniable import Budget, Caps, Client, SenderSettings, stopwatch
from deniable.messages.reasons import LATER
from deniable.registry import parse
from deniable.source import OS, Source
from deniable.testing import StubServer, make_due
from deniable.transport import HttpPost

HIGH = 0.3  # seconds
SHORT, LONG = 0.01, 0.25
QUICK = SenderSettings(flush_interval=0.02, timeout=60)
FREE = Caps(budget=Budget(per_month=None, lifetime=None))
REGISTRY = registry_toml(
    metric_toml("took", range=[0, HIGH], unit="s", estimate="mean"),
    metric_toml("kept", range=[0, HIGH], unit="s", estimate="mean", epsilon_permanent=2),
    metric_toml("quiet", per_period=20, delay="12h"),
    metric_toml("plain", per_period=20),
    metric_toml("many", range=[0, 60000], unit="ms", estimate="mean", per_period=1000),
    budget={},
)


class Wire:
    """What an observer sees of one device: when something goes by."""

    def __init__(self, server: StubServer, folder, registry=REGISTRY, **options) -> None:
        self.seen: list[float] = []
        self._post = HttpPost(f"{server.dsn.replace('pk_stub@', '').removesuffix('/shop')}/v1/reports")
        self._options = {"dsn": server.dsn, "consent": True, "caps": FREE, "state": folder, "settings": QUICK} | options
        self._registry = parse(registry)
        self.clients: list[Client] = []

    def __call__(self, body, headers, timeout):
        self.seen.append(monotonic())
        return self._post(body, headers, timeout)

    def client(self, **options) -> Client:
        self.clients.append(Client(registry=self._registry, post=self, **(self._options | options)))
        return self.clients[-1]


@pytest.fixture
def server():
    with StubServer(parse(REGISTRY)) as opened:
        yield opened


@pytest.fixture
def device(server, tmp_path):
    """Make devices that send to the server, each with a folder of its own."""
    wires: list[Wire] = []

    def make(**options) -> Wire:
        wires.append(Wire(server, tmp_path / f"device{len(wires)}", **options))
        return wires[-1]

    yield make
    for wire in wires:
        for client in wire.clients:
            client.close(0)


def best_threshold(short: list[float], long: list[float]) -> int:
    """Return how often the best rule of the kind "late is long" is right."""
    return max(sum(each < cut for each in short) + sum(each >= cut for each in long) for cut in (*short, *long))


@pytest.mark.parametrize("metric", ["took", "kept"])
def test_an_observer_of_the_wire_learns_nothing(device, metric):
    """Of 24 devices, half with a long block, when they send does not tell which; at the end of the block they even flush."""
    wires = [device() for _ in range(24)]
    entered, watches = [], []
    for wire in wires:
        watch = wire.client().timed(metric)
        entered.append(monotonic())
        watch.__enter__()
        watches.append(watch)
    sleep(SHORT)
    for wire, watch in list(zip(wires, watches, strict=True))[::2]:
        watch.__exit__(None, None, None)
        wire.clients[0].flush(0.05)
    sleep(max(0.0, entered[-1] + LONG - monotonic()))
    for wire, watch in list(zip(wires, watches, strict=True))[1::2]:
        watch.__exit__(None, None, None)
        wire.clients[0].flush(0.05)
    assert eventually(lambda: all(wire.seen for wire in wires))
    after = [wire.seen[0] - begun for wire, begun in zip(wires, entered, strict=True)]
    assert min(after) >= HIGH  # whatever the machine does meanwhile: never before
    assert best_threshold(after[::2], after[1::2]) < 23


@pytest.mark.parametrize("metric", ["took", "kept"])
def test_a_block_at_the_end_of_a_process(device, server, metric):
    """Nothing is sent at the end. The next run sends it, not before its time; its period is that in which the block began."""
    wire = device()
    first = wire.client()
    begun = monotonic()
    with first.timed(metric):
        sleep(SHORT)
    arrival = first.close(5)
    if monotonic() < begun + HIGH:  # a machine under load may take longer, and then its time has come
        assert not arrival
        assert (wire.seen, first.stats()["waiting"]) == ([], 1)
    second = wire.client()
    assert not second.record(metric, 0.1)  # the period has its report
    assert eventually(lambda: wire.seen or second.flush(60))
    assert wire.seen[0] >= begun + HIGH
    assert [report.metric for report in server.reports] == [metric]
    assert second.stats()["waiting"] == 0


def test_a_block_that_goes_on_has_its_report_in_time(device):
    """Its answer, the longest time of the range, is known when that is over; the report goes with all others."""
    wire = device()
    begun = monotonic()
    with wire.client().timed("took"):
        assert eventually(lambda: wire.seen)
        assert wire.seen[0] >= begun + HIGH
    assert wire.clients[0].stats()["clipped"] == 1
    assert wire.clients[0].close(60)
    assert len(wire.seen) == 1


def test_a_block_that_runs_when_the_client_is_closed(device):
    """It has one report, of the time until then."""
    wire = device()
    client = wire.client()
    with client.timed("took"):
        client.close(60)
        assert client.stats()["waiting"] == 1
    assert client.stats()["recorded"] == 1
    assert wire.client().stats()["waiting"] == 1
    assert not wire.seen


def test_a_block_that_raises(device):
    """It is a block like any other."""
    wire = device()
    begun = monotonic()
    with pytest.raises(ValueError, match="theirs"), wire.client().timed("took"):
        raise ValueError("theirs")
    assert eventually(lambda: wire.seen)
    assert wire.seen[0] >= begun + HIGH


@pytest.mark.parametrize("metric", ["took", "kept"])
def test_the_first_block_of_a_period_is_reported(device, monkeypatch, metric):
    """The first that begins, not the first that ends, which would more likely be a short one; nested and in threads."""
    wire = device()
    client = wire.client()
    taken: list[float] = []
    monkeypatch.setattr(type(client._metrics.prepared[metric]), "position", lambda _, value: (taken.append(value), (0, None))[1])
    now = [100.0]
    monkeypatch.setattr(stopwatch, "perf_counter", lambda: now[0])

    def work():
        with client.timed(metric):
            pass

    with client.timed(metric):
        for _ in range(3):
            work()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(60)
        now[0] += 0.125
    assert client.stats()["dropped"] == {"this_period": 4}
    client.close(60)
    assert taken == [0.125]


def test_the_period_is_that_of_the_beginning(device, server):
    """Also if the clock goes on to another day within the block, or back."""
    for moved in (86400 * 2, -86400 * 2):
        now = [time()]
        wire = device(clock=lambda now=now: now[0])
        client = wire.client()
        with client.timed("took"):
            period = client._metrics.prepared["took"].occasion(datetime.fromtimestamp(now[0], UTC)).stratum.period
            now[0] += moved
        assert eventually(lambda wire=wire: wire.seen)
        assert eventually(lambda wire=wire: wire.clients[0].stats()["sent"])
        assert server.reports[-1].period == period


@pytest.mark.parametrize("metric", ["took", "kept"])
def test_nothing_is_written_when_a_block_ends(device, tmp_path, metric):
    """The time of no file tells it: what the report costs is paid when the block begins."""
    long = REGISTRY.replace("range = [0, 0.3]", "range = [0, 600]")  # so that nothing becomes due meanwhile
    client = device(registry=long, settings=SenderSettings(flush_interval=600)).client()

    def written() -> list[int]:
        return sorted(file.stat().st_mtime_ns for file in (tmp_path / "device0").rglob("*"))

    with client.timed(metric):
        assert client.stats()["spent"]["lifetime"] > 0
        sleep(0.05)
        before = written()
        sleep(0.05)
    sleep(0.05)
    assert written() == before


@pytest.mark.parametrize(
    "seconds",
    [0, 0.125, 0.3, 5, 10**400, -1, -(10**400), float("nan"), float("inf"), None, "x", True, object()],
    ids=range(13),
)
def test_any_time_is_one_report(device, server, seconds):
    """However absurd: it travels so long after its beginning as all others, and is never refused for what it is."""
    wire = device()
    client = wire.client()
    begun = monotonic()
    assert client.record_time("took", seconds)
    assert not wire.seen
    elapsed = min(max(seconds, 0), HIGH) if isinstance(seconds, int | float) and seconds == seconds and seconds is not True else 0  # noqa: PLR0124
    assert eventually(lambda: server.reports)
    assert wire.seen[0] >= begun + HIGH - elapsed
    assert (client.stats()["recorded"], client.stats()["dropped"]) == (1, {})


def test_a_delayed_report_waits(device, server):
    """A flush does not send it and does not wait for it; nor does the end of the process; the next runs keep it."""
    wire = device()
    client = wire.client()
    assert client.record("quiet", value=True)
    assert client.record("plain", value=True)
    begun = monotonic()
    assert client.flush(300)  # all that may travel has arrived
    assert monotonic() - begun < 60
    assert [report.metric for report in server.reports] == ["plain"]
    assert client.stats()["waiting"] == 1
    assert str(client.close(60)) == (f"nothing to send: 1 report may not travel yet (quiet); why: {LATER.words()}")
    for _ in range(2):
        again = wire.client()
        again.flush(60)
        assert again.stats()["waiting"] == 1
        again.close(60)
    assert len(server.reports) == 1


def test_a_test_makes_it_due(device, server):
    """Together with what is in memory; a block that still runs stays. What is due travels in one batch."""
    wire = device()
    client = wire.client()
    for _ in range(5):
        assert client.record("quiet", value=True)
    client.flush(60)
    assert client.record("quiet", value=False)
    with client.timed("many"):
        make_due()
        assert client.flush(60)
        assert [report.metric for report in server.reports] == ["quiet"] * 6
        assert len(server.batches) == 1
    make_due()
    assert client.flush(60)
    assert server.reports[-1].metric == "many"
    assert [entry.metric for entry in client.journal()] == ["many", *["quiet"] * 6]


class Noting(Source):
    """The system's source, which notes the draws of a delay."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    def bernoulli(self, num, den):
        return OS.bernoulli(num, den)

    def below(self, n):
        if n == 12 * 3600 + 1:
            self.notes.append("delay")
        return OS.below(n)


class Answer:
    """Notes when it is looked at."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    def __float__(self):
        self.notes.append("answer")
        return 3.0


def test_the_delay_is_drawn_before_the_answer_is_looked_at(device):
    """By the source of the client, once for each report."""
    notes: list[str] = []
    text = REGISTRY.replace('unit = "ms"', 'unit = "clicks"\ndelay = "12h"')
    client = device(registry=text).client(state=None, source=Noting(notes))
    for _ in range(5):
        assert client.record("many", Answer(notes))
    assert notes == ["delay", "answer"] * 5


def test_the_delay_is_uniform(device, chi_square):
    """From nothing to all of it."""
    prepared = device().client(state=None)._metrics.prepared["quiet"]
    delays = [prepared.delay() for _ in range(6000)]
    assert 0 <= min(delays) <= max(delays) <= 12 * 3600
    chi_square(Counter(each // 3601 for each in delays if each < 3601 * 11), dict.fromkeys(range(11), Fraction(1, 11)))


def test_withdrawn_consent_drops_what_waits(device, server):
    """On disk, in memory, and of blocks that run."""
    wire = device()
    client = wire.client()
    client.record("quiet", value=True)
    client.flush(60)
    client.record("quiet", value=True)
    with client.timed("took"):
        client.set_consent(False)
    assert eventually(lambda: client.stats()["dropped"].get("purged") == 3)  # one may be on its way to the disk
    assert client.stats()["waiting"] == 0
    client.set_consent(True)
    make_due()
    client.flush(60)
    assert server.reports == []


def test_a_full_queue_counts_what_waits(device):
    """So memory is bounded; whether there is room does not depend on an answer."""
    client = device(settings=SenderSettings(flush_interval=60, queue_size=3)).client(state=None)
    assert [client.record("quiet", value=True) for _ in range(5)] == [True, True, True, False, False]
    assert client.stats()["dropped"] == {"queue_full": 2}


def test_a_client_without_a_directory(device, server):
    """What waits at its end is lost, and counted."""
    client = device().client(state=None)
    client.record("quiet", value=True)
    with client.timed("took"):
        pass
    client.close(60)
    assert client.stats()["dropped"] == {"undelivered": 2}
    assert not server.reports


def test_stopwatches_of_refused_blocks_do_nothing(device):
    """Where nothing is recorded, nothing waits."""
    client = device().client(consent=False)
    with client.timed("took"), client.timed("nosuch"), client.timed("quiet"):
        pass
    assert client.stats()["waiting"] == 0
    assert client.stats()["dropped"] == {"no_consent": 1, "unknown_metric": 1, "unit": 1}
