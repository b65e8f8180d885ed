"""An attacker who may ask whatever a read key allows, as often as wanted, of a service that really runs.

Beside the app that publishes as it should, ``shop``, the same reports go to two that do not: ``naive`` withholds small cells, but
not those that give them away; ``trial`` shows everything at once. Each attack works there.
"""

from __future__ import annotations

import json
import os
import re
import time
from base64 import b64encode
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cache
from itertools import chain, combinations, pairwise, product
from pathlib import Path
from shutil import which
from uuid import uuid4

import numpy as np
import pytest
import requests
from machines import Machines
from scipy.optimize import Bounds, LinearConstraint, milp

from deniable import mechanisms, registry
from deniable.declared import fingerprint
from deniable_aggregator.alarms import watcher
from deniable_aggregator.alarms.watcher import Watch
from deniable_aggregator.process.ports import free_port
from deniable_aggregator.publish import suppression
from deniable_aggregator.publish.breakdown import Breakdown
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.publish.suppression.cube import Cube
from deniable_aggregator.questions import central_noise
from deniable_aggregator.store import Store, connect
from deniable_aggregator.store.server import embedded
from deniable_aggregator.store.uploads import health
from deniable_server import create_app
from deniable_server.access.keys import KeyStore
from deniable_server.local.stack import Stack
from deniable_server.settings import Settings

LEAST = 100
REGISTRY = """
format = 1
budget.per_month = 10000
budget.lifetime = 100000
app = "{app}"

[segments]
platform = ["linux", "macos", "windows"]
version = ["1.0", "1.1", "2.0"]

[generalize]
version = "."

[publication]
min_reports = 100
grace = "{grace}"
{publication}

[metrics.plugin]
type = "categorical"
values = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
mechanism = "grr"
epsilon = 1.0
description = "Which plugin"
owner = "core@shop.example"

[metrics.export]
type = "boolean"
mechanism = "binary"
epsilon = 1.0
segments = ["platform", "version"]
description = "Whether it was exported"
owner = "core@shop.example"
"""
RARE = {"rare": (40, 90), "steady": (0, 130)}
"""Metrics without segments, and how many reports they have on the two past days."""
REGISTRY += "".join(
    f"""
[metrics.{metric}]
type = "boolean"
mechanism = "binary"
epsilon = 1.0
description = "Whether it was used"
owner = "core@shop.example"
"""
    for metric in RARE
)
PUBLICATIONS = {"shop": "", "naive": "", "trial": "trial = true"}
TODAY, FIRST, SECOND = ((datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%d") for days in (0, 3, 2))
LONG, SHORT = "6d", "1h"  # of the two graces, one leaves both past days open and one closes them

# Reports of each combination. Few are known to be there: the attacker is after those.
_FIRST = {"linux": (400, 300, 37), "macos": (250, 150, 120), "windows": (30, 20, 3)}
_SECOND = {"linux": (300, 220, 140), "macos": (180, 12, 110), "windows": (200, 150, 0)}
VERSIONS = ("1.0", "1.1", "2.0")
COUNTS = {
    day: {(platform, version): n for platform, row in table.items() for version, n in zip(VERSIONS, row, strict=True)}
    for day, table in ((FIRST, _FIRST), (SECOND, _SECOND))
}
PLUGINS = 731

SHOP = registry.parse(REGISTRY.format(app="shop", publication="", grace=LONG))
BREAKDOWN = Breakdown.of(SHOP, SHOP.metrics["export"])
LEAVES = list(COUNTS[FIRST])
CELLS = [BREAKDOWN.text(words) for words in product((None, *_FIRST), (None, "1", "2", *VERSIONS))]

# Looks every tenth of a second, where a worker otherwise takes a minute: the attacker does not want to wait.
QUICK = """
from deniable_aggregator.publish import publisher, timetable

publisher.EVERY_SECONDS = timetable.TRIAL_SECONDS = 0.1
"""


class Service:
    """All three apps, served by processes that can be stopped and started again over one store."""

    def __init__(self, folder, url):
        self.folder, self.store_url = folder, url
        self.redis = connect(url)
        self.stores = {app: Store(self.redis, app) for app in PUBLICATIONS}  # each keeps connections
        self.settings = Settings(
            redis_url=url,
            registry=":".join(str(self.write(app, LONG)) for app in PUBLICATIONS),
            ingest_keys=",".join(f"{app}:pk_of_{app}_1234" for app in PUBLICATIONS),
            read_keys=",".join(f"{app}:rk_of_{app}_1234" for app in PUBLICATIONS),
            metrics_key="mk_which_nobody_here_has",
            dashboard="open",
            rate_limit_key="off",
            rate_limit_source="off",
        )
        self.bind = f"127.0.0.1:{free_port()}"
        self._running = ExitStack()
        self.session = requests.Session()
        self.session.trust_env = False

    def write(self, app, grace):
        """Write the registry of an app, with a grace."""
        path = self.folder / f"{app}.toml"
        path.write_text(REGISTRY.format(app=app, publication=PUBLICATIONS[app], grace=grace), "utf-8")
        return path

    def start(self):
        """Start server and worker, or do so again."""
        self._running.close()
        self._stack = Stack(self.settings, bind=self.bind, web_workers=1, log_file=self.folder / "log")
        self._running.enter_context(self._stack)

    def stop(self):
        self._running.close()

    def store(self, app):
        return self.stores[app]

    def send(self, app, metric, period, reports, post=None):
        """Send reports as devices do: of each segment so many."""
        declared = SHOP.metrics[metric]
        mechanism = mechanisms.of(declared)
        groups = [
            self.group(metric, period, segment, b"".join(mechanism.randomize(i % declared.domain_size) for i in range(n)))
            for segment, n in reports.items()
            if n
        ]
        key = {"Authorization": f"Bearer pk_of_{app}_1234", "Idempotency-Key": str(uuid4())}
        return (post or self.post)("/v1/reports", json={"format": 1, "app": app, "groups": groups}, headers=key)

    def group(self, metric, period, segment, payloads):
        """Make a group of reports, whatever is in them."""
        declared = SHOP.metrics[metric]
        mechanism = mechanisms.of(declared)
        return {
            "metric": metric,
            "version": 1,
            "fingerprint": fingerprint(declared, mechanism.canonical),
            "period": period,
            "segment": segment,
            "count": len(payloads) // mechanism.layout.payload_size,
            "payloads": b64encode(payloads).decode(),
        }

    def post(self, path, **options):
        return self.session.post(f"http://{self.bind}{path}", timeout=120, **options)

    def drained(self):
        """Wait until everything that was sent is counted."""
        self.until(lambda: not any(health.read(self.store(app)).backlog for app in PUBLICATIONS))

    def until(self, true):
        deadline = time.monotonic() + 120
        while not true():
            self._stack.check()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def get(self, path, app="", **query):
        """Ask what a path tells, with the app's read key or none."""
        key = {"Authorization": f"Bearer rk_of_{app}_1234"} if app else {}
        return self.session.get(f"http://{self.bind}{path}", params=query, headers=key, timeout=120)

    def ask(self, app, metric, **query):
        return self.get(f"/api/v1/metrics/{metric}", app, **query)


@contextmanager
def opened(kind, folder):
    """Open one server, or a cluster with replicas; give its URL."""
    binary = which("redis-server")
    if kind == "cluster":
        with closing(Machines(binary or str(embedded.find(None)[0]), folder / "machines")) as machines:
            yield machines.cluster(3, 2, "--appendonly", "yes")
    else:
        with embedded.open_store(executable=Path(binary) if binary else None) as store:
            yield store.url


@pytest.fixture(scope="module", params=["one server", pytest.param("cluster", marks=[pytest.mark.campaign, pytest.mark.nightly])])
def service(request, tmp_path_factory):
    """Serve all apps, with past days still open."""
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "sitecustomize.py").write_text(QUICK, "utf-8")
    with opened(request.param, folder) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        server = Service(folder, url)
        try:
            server.start()
            yield server
        finally:
            server.stop()
            server.redis.close()


def naive(cubes, least):
    """Withhold what has too few reports, and nothing else."""
    (cube,) = cubes
    cells = (cube.breakdown.text(words) for words in cube.cells())
    return frozenset(cell for cell in cells if cube.total(cell) >= least)


@pytest.fixture(scope="module")
def closed(service):
    """Count two past days, and let them close: with the naive publisher for the naive app, else as the worker does it."""
    for app in PUBLICATIONS:
        for day, counts in COUNTS.items():
            assert service.send(app, "export", day, {BREAKDOWN.text(leaf): n for leaf, n in counts.items()}).status_code == 202
        assert service.send(app, "plugin", FIRST, {"": PLUGINS}).status_code == 202
        for metric, numbers in RARE.items():
            for day, n in zip((FIRST, SECOND), numbers, strict=True):
                assert not n or service.send(app, metric, day, {"": n}).status_code == 202
    service.drained()
    assert service.ask("shop", "export", period=FIRST).json()["n"] == 0
    service.stop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suppression, "publishable", naive)
        store = service.store("naive")
        written = [service.write(app, SHORT) for app in PUBLICATIONS]
        (weak,) = [loaded for loaded in map(registry.load, written) if loaded.app == "naive"]
        assert Publisher(store, weak).publish(time.time())
    service.start()
    for app in PUBLICATIONS:
        service.until(lambda app=app: service.ask(app, "export", period=SECOND).json().get("closed"))
        service.until(lambda app=app: service.ask(app, "plugin", period=FIRST).json().get("closed"))
    return service


# What the attacker makes of the answers


@cache
def members(cell):
    """Return the leaves of a cell: the registry is public."""
    return frozenset(leaf for leaf in LEAVES if BREAKDOWN.words(cell) in set(BREAKDOWN.above(leaf)))


def true(day, leaves):
    """Return how many reports some leaves have, which only the judge knows."""
    return sum(COUNTS[day][leaf] for leaf in leaves)


def answers(service, app, day):
    """Ask for every cell; return the number of reports of those that are answered."""
    responses = {cell: service.ask(app, "export", period=day, **({"segment": cell} if cell else {})) for cell in CELLS}
    assert {answer.status_code for answer in responses.values()} <= {200, 403}
    return {cell: answer.json()["n"] for cell, answer in responses.items() if answer.status_code == 200}


def differences(known):
    """Subtract from each cell one that lies in it: the leaves that are left, and how many reports they have."""
    for cell, part in product(known, known):
        if members(part) < members(cell):
            yield members(cell) - members(part), known[cell] - known[part]


def trackers(known):
    """Get a cell by going round it (Denning): all that it lies in, without all that lies beside it."""
    for cell in set(CELLS) - set(known):
        for around in BREAKDOWN.coarser(cell):
            beside = members(around) - members(cell)
            for parts in chain.from_iterable(combinations(known, size) for size in (1, 2, 3)):
                disjoint = sum(len(members(part)) for part in parts) == len(beside)
                if around in known and disjoint and frozenset().union(*map(members, parts)) == beside:
                    yield members(cell), known[around] - sum(known[part] for part in parts)


def reconstructions(known):
    """Solve the linear system of all answers, in fractions, for each set of leaves: a sum that has these leaves alone in it."""
    for size in range(1, len(LEAVES) + 1):
        for chosen in combinations(LEAVES, size):
            order = [leaf for leaf in LEAVES if leaf not in chosen] + list(chosen)
            rows = [[Fraction(leaf in members(cell)) for leaf in order] + [Fraction(n)] for cell, n in known.items()]
            place = 0
            for column in range(len(order)):
                pivot = next((row for row in range(place, len(rows)) if rows[row][column]), None)
                if pivot is None:
                    continue
                rows[place], rows[pivot] = rows[pivot], rows[place]
                if column >= len(order) - size:  # the first row with nothing but the chosen ones in it
                    weights = dict(zip(order, rows[place], strict=False))
                    yield frozenset(leaf for leaf in LEAVES if weights[leaf]), rows[place][-1] / rows[place][column]
                    break
                for row in range(place + 1, len(rows)):
                    factor = rows[row][column] / rows[place][column]
                    if factor:
                        rows[row] = [a - factor * b for a, b in zip(rows[row], rows[place], strict=True)]
                place += 1


def bounds(known, leaves):
    """Find by integer programming the fewest and the most reports that some leaves can have, given all answers."""
    rows = np.array([[leaf in members(cell) for leaf in LEAVES] for cell in known], float)
    fixed = LinearConstraint(rows, list(known.values()), list(known.values()))
    goal = np.array([leaf in leaves for leaf in LEAVES], float)
    results = [
        milp(sign * goal, constraints=fixed, integrality=np.ones(len(LEAVES)), bounds=Bounds(0, np.inf)) for sign in (1, -1)
    ]
    assert all(each.success for each in results)
    return round(results[0].fun), round(-results[1].fun)


def few(day, sums):
    """Judge what an attack found: sums about fewer people than anything may be about."""
    return [(leaves, n) for leaves, n in sums if leaves and 0 < true(day, leaves) < LEAST]


# The attacks


@pytest.mark.parametrize("attack", [differences, trackers, reconstructions])
def test_answers_taken_together(closed, attack):
    """No two answers, nor all of them, give a number for fewer people than min_reports; without complements they do."""
    for day in COUNTS:
        known = answers(closed, "shop", day)
        assert len(known) > 3
        assert few(day, attack(known)) == []
        recovered = few(day, attack(answers(closed, "naive", day)))
        assert recovered
        if attack is not reconstructions:  # which also gives other sums than plain ones
            assert all(n == true(day, leaves) for leaves, n in recovered)


def test_whole_numbers_help_no_further(closed):
    """Nor does it help that reports are whole numbers, and none is negative: of few, as many remain possible as of enough."""
    pinned = []
    for day in COUNTS:
        small = [leaf for leaf in LEAVES if 0 < true(day, [leaf]) < LEAST]
        sets = [s for size in range(1, len(small) + 1) for s in combinations(small, size) if true(day, s) < LEAST]
        shop, weak = answers(closed, "shop", day), answers(closed, "naive", day)
        for leaves in sets:
            low, high = bounds(shop, leaves)
            assert high - low >= LEAST, (leaves, low, high)
            low, high = bounds(weak, leaves)
            pinned += [leaves] if low == high == true(day, leaves) else []
    assert pinned


def test_periods_taken_together(closed):
    """What is told of all periods is the sum of what is told of each: a cell that one withholds is not in it."""

    def hidden(app):
        """Subtract from all periods the second one."""
        for cell in filter(None, CELLS):
            pooled, second = (closed.ask(app, "export", segment=cell, **which) for which in ({}, {"period": SECOND}))
            if (pooled.status_code, second.status_code) == (200, 200):
                yield members(cell), pooled.json()["n"] - second.json()["n"]

    for leaves, n in hidden("shop"):
        assert n == 0 or true(FIRST, leaves) >= LEAST
    assert (frozenset({("windows", "1.0")}), true(FIRST, [("windows", "1.0")])) in list(hidden("trial"))


def test_a_day_of_few_reports_does_not_show(closed):
    """A day of 40 reports is published with the next one: whichever of them is asked for, as if it had had none."""
    views = {}
    for metric in RARE:
        documents = [closed.ask("shop", metric, **query).json() for query in ({}, {"period": FIRST}, {"period": SECOND})]
        assert {each["n"] for each in documents} == {130}
        assert {json.dumps(each["estimates"]) for each in documents} == {json.dumps(documents[0]["estimates"])}
        views[metric] = [(each["periods"], each["included"], each["closed"], each["updated"]) for each in documents]
    assert views["rare"] == views["steady"]
    assert closed.ask("trial", "rare", period=FIRST).json()["n"] == 40


def test_withheld_is_said_alike(closed):
    """A segment with few reports, one with none, and one that would give others away are refused in the same words."""
    refused = {}
    for cell in CELLS:
        answer = closed.ask("shop", "export", period=SECOND, segment=cell)
        if answer.status_code == 403:
            document = answer.json()
            del document["instance"]
            assert document.pop("instead") in (None, *CELLS)
            document["detail"] = document["detail"].rpartition(";")[0]
            refused[cell] = json.dumps(document, sort_keys=True)
    assert {true(SECOND, members(cell)) for cell in refused} >= {0, 12}
    assert any(true(SECOND, members(cell)) >= LEAST for cell in refused)
    assert len(set(refused.values())) == 1
    cube = Cube.of(BREAKDOWN, {BREAKDOWN.text(leaf): n for leaf, n in COUNTS[SECOND].items()})
    assert {cube.total(cell) >= LEAST for cell in refused} == {False, True}  # what is not said
    assert closed.ask("shop", "export", period=SECOND, segment="platform=beos").json()["code"] == "segment"


def test_rows_show_no_other_cells(closed):
    """A query about all cells at once tells the numbers that are told one by one, and of all others that they are withheld."""
    names = {"platform": "platform", "version": "segment_version"}
    for day in COUNTS:
        known, counts = answers(closed, "shop", day), {}
        for size in range(len(names) + 1):
            for chosen in combinations(names, size):
                words = {
                    name: sorted({part.split("=")[1] for cell in CELLS for part in cell.split(",") if part.startswith(name)})
                    for name in chosen
                }
                filters = json.dumps([["is", names[name], values] for name, values in words.items()])
                query = {"metrics": "export", "date_range": day, "filters": filters}
                query["dimensions"] = ",".join(names[name] for name in chosen)
                for row in closed.get("/api/v1/query", "shop", **query).json()["rows"]:
                    cell = ",".join(f"{name}={row[names[name]]}" for name in chosen)
                    counts[cell] = row["n"]
                    assert row["state"] == ("published" if cell in known else "withheld")
        assert {cell: n for cell, n in counts.items() if n is not None} == known
        assert set(counts) == set(CELLS)


def test_asking_again_tells_nothing_new(closed):
    """The same question has the same answer, to the byte, after a restart, too, and however it is put: nothing averages out."""

    def ask(**query):
        return closed.ask("shop", "plugin", period=FIRST, **query).content

    before = {ask() for _ in range(60)}
    cell = next(cell for cell in answers(closed, "shop", FIRST) if "," in cell)
    turned = ",".join(reversed(cell.split(",")))
    spelled = {closed.ask("shop", "export", period=FIRST, segment=segment).content for segment in (cell, turned)}
    closed.start()
    after = {ask() for _ in range(60)}
    assert len(before | after) == 1
    spelled |= {closed.ask("shop", "export", period=FIRST, segment=cell).content}
    assert len(spelled) == 1
    plain = json.loads(ask())
    for level in (0.5, 0.8, 0.99, 0.999999):
        for query in ({"level": level}, {"level": level, "only": "detected"}):
            other = json.loads(ask(**query))
            assert [other[name] for name in ("n", "updated")] == [plain[name] for name in ("n", "updated")]
            rows = {row["value"]: row for row in plain["estimates"]}
            for row in other["estimates"]:
                assert [row[name] for name in ("estimate", "count", "stderr")] == [
                    rows[row["value"]][name] for name in ("estimate", "count", "stderr")
                ]


def numbers(answer):
    """Go through all numbers that are not whole of an answer."""
    if isinstance(answer, float) and not answer.is_integer():
        yield answer
    for part in answer.values() if isinstance(answer, dict) else answer if isinstance(answer, list) else ():
        yield from numbers(part)


def denominators(answer):
    """Find all numbers of reports that explain the digits: every frequency comes from a whole number of reports among so many."""
    mechanism = mechanisms.of(SHOP.metrics["plugin"])
    shares = [row["estimate"] * (mechanism.p - mechanism.q) + mechanism.q for row in answer["estimates"]]
    likely = {Fraction(share).limit_denominator(5000).denominator for share in shares}
    likely |= {Fraction(number).limit_denominator(5000).denominator for number in numbers(answer)}
    likely |= set(range(1, 2000))
    return {n for n in likely if all(abs(share * n - round(share * n)) < 1e-8 * n for share in shares)}


def test_digits_tell_of_what_was_released(closed):
    """From all digits of an answer comes the number of reports released, which is told anyway: all that there were."""
    answer = closed.ask("shop", "plugin", period=FIRST).json()
    assert answer["n"] == PLUGINS
    assert PLUGINS in denominators(answer)


def test_what_comes_late_changes_no_release(closed):
    """A report for a closed period is refused; one that a server took nevertheless is published with the next period."""

    def view(query):
        """Read what is told of a period, without the list of what else there is."""
        return {name: each for name, each in closed.ask("shop", **query).json().items() if name not in ("periods", "versions")}

    questions = [{"metric": "plugin", "period": FIRST}, {"metric": "export", "period": FIRST}, {"metric": "export"}]
    before = list(map(view, questions))
    late = closed.send("shop", "plugin", FIRST, {"": 150})
    assert (late.status_code, late.json()["errors"][0]["code"]) == (422, "period_closed")
    closed.write("shop", LONG)
    tardy = create_app(closed.settings).test_client()
    closed.write("shop", SHORT)
    assert closed.send("shop", "plugin", FIRST, {"": 150}, tardy.post).status_code == 202
    closed.drained()
    for _ in range(2):  # rounds that the worker makes from here on, seen by what it shows of an open trial at once
        count = closed.ask("trial", "plugin", period=TODAY).json().get("n", 0)
        closed.send("trial", "plugin", TODAY, {"": 1})
        closed.until(lambda count=count: closed.ask("trial", "plugin", period=TODAY).json().get("n") == count + 1)
    assert list(map(view, questions)) == before
    assert closed.ask("shop", "plugin", period=SECOND).json()["n"] == 150


def test_questions_at_a_price_are_answered_once(closed):
    """A withheld number is told once, however often and in whatever way it is asked, and by all keys together for one budget."""

    def ask(*cells, key="rk_of_shop_1234", day=FIRST, epsilon=0.25):
        question = {"period": day, "cells": cells, "epsilon": epsilon}
        url = f"http://{closed.bind}/api/v1/metrics/export/withheld"
        return closed.session.post(url, json=question, headers={"Authorization": f"Bearer {key}"}, timeout=120)

    def refused(*cells, **options):
        answer = ask(*cells, **options)
        return (answer.status_code, answer.json()["code"]) == (403, "budget_spent")

    known = answers(closed, "shop", FIRST)
    assert {ask(cell).json()["code"] for cell in known} == {"published"}
    cell = next(each for each in CELLS if "," in each and each not in known and 0 < true(FIRST, members(each)) < LEAST)
    turned = ",".join(reversed(cell.split(",")))
    first = ask(cell).json()
    assert {ask(*each).json()["count"] for each in [(cell,), (turned,), (cell, turned)] * 7} == {first["count"]}
    assert (first["left"], ask(cell).json()["left"]) == (0.25, 0.25)
    # Another epsilon would be another draw, and so would a cell from which it follows: for these the budget has an end.
    others = [each for each in CELLS if each not in known and each != cell]
    assert ask(others[0]).json()["left"] == 0
    assert all(refused(each, epsilon=0.01) for each in others[1:])
    assert refused(cell, epsilon=0.26)
    assert refused(cell, others[0])
    second = answers(closed, "shop", SECOND)
    if SECOND[:7] == FIRST[:7]:
        assert refused(next(each for each in CELLS if each not in second))
    # Other keys have what is left of the app's.
    with_keys = KeyStore(Store(closed.redis, "shop"))
    keys = [with_keys.create("read", "accomplice")[0] for _ in range(3)]
    paid = [ask(cell, key=key, epsilon=0.3 + number / 100).status_code for number, key in enumerate(keys)]
    assert paid == [200, 403, 403]
    assert ask(others[1], key=keys[1], epsilon=0.2).json()["left"] == 0
    assert all(refused(each, key=key, epsilon=0.01) for key in keys for each in others[2:4])
    there = true(FIRST, members(cell))
    assert round(np.mean([central_noise.count(there, 500_000) for _ in range(4000)])) == there  # had it been drawn each time


def test_alarms_are_told_to_no_reader(closed):
    """Who sends and reads learns of no alarm: by raising some, exact numbers of a segment could be found (tests/server)."""
    payloads = mechanisms.of(SHOP.metrics["rare"]).layout.pack(0, 1) * 300
    plain = closed.group("rare", TODAY, "", payloads)
    key = {"Authorization": "Bearer pk_of_shop_1234", "Idempotency-Key": str(uuid4())}
    assert closed.post("/v1/reports", json={"format": 1, "app": "shop", "groups": [plain]}, headers=key).status_code == 202
    closed.drained()
    store = closed.store("shop")
    Watch(store, SHOP).check(int(time.time()))
    assert watcher.alarms(store, [("rare", 1, plain["fingerprint"])])
    for place in (*PLACES, "/api/v1/metrics/rare", "/m/rare?app={app}"):
        page = closed.get(place.format(app="shop"), "shop").text
        assert "alarm" not in page
        assert "made up" not in page
    for public in ("rk_of_shop_1234", "pk_of_shop_1234"):
        live = closed.session.get(f"http://{closed.bind}/api/v1/live", headers={"Authorization": f"Bearer {public}"}, timeout=120)
        assert (live.status_code, live.json()["code"]) == (403, "admin_only")


# Looking on while reports come in


PLACES = (
    "/api/v1/metrics",
    "/api/v1/metrics/plugin",
    "/api/v1/metrics/export",
    "/api/v1/query?metrics=plugin,export&dimensions=time,value&include=trend",
    "/api/v1/query?metrics=export,export@1&dimensions=time,platform,segment_version",
    "/api/v1/pipeline",
    "/readyz",
    "/?app={app}",
    "/m/plugin?app={app}",
    "/m/export?app={app}",
)
MOVING = r'"(backlog|batches|pending|lag_seconds|looked|workers)": ?[^,}]*'  # what is told of batches, and of the workers


def look(service, app):
    """Look at everything that there is to see; return the number of reports told, and all the rest by place."""
    while True:
        count = service.ask(app, "plugin", period=TODAY).json().get("n", 0)
        seen = {place: service.get(place.format(app=app), app) for place in PLACES}
        if service.ask(app, "plugin", period=TODAY).json().get("n", 0) == count:
            assert {answer.status_code for answer in seen.values()} == {200}
            return count, {place: re.sub(MOVING, "", answer.text) for place, answer in seen.items()}


def polled(service, app, batches, until):
    """Look after each batch of 20 reports, and then until enough is told."""
    seen = []
    for _ in range(batches):
        assert service.send(app, "plugin", TODAY, {"": 20}).status_code == 202
        assert service.send(app, "export", TODAY, {"platform=linux,version=2.0": 20}).status_code == 202
        seen.append(look(service, app))
    service.until(lambda: seen.append(look(service, app)) or seen[-1][0] >= until)
    return seen


def test_looking_on_shows_nothing_between_releases(closed):
    """While reports come in, all that can be seen stays as it is, to the byte, until a release adds enough of them."""
    seen, steps, rounds = [], [], 0
    while len(steps) < 3 and rounds < 10:  # a release of a busy machine adds much at once
        latest = seen[-1][0] if seen else 0
        seen += polled(closed, "shop", 26, latest + 2 * LEAST)  # what is published lags by min_reports at least
        steps, rounds = sorted({n for n, _ in seen}), rounds + 1
    assert [n for n, _ in seen] == sorted(n for n, _ in seen)
    assert steps[0] == 0
    assert 3 <= len(steps) <= 1 + rounds * 26 * 20 // LEAST
    assert all(b - a >= LEAST for a, b in pairwise(steps))
    for n in steps:
        assert len({json.dumps(pages, sort_keys=True) for count, pages in seen if count == n}) == 1
    # Segments show at the close only, and numbers of the service itself to nobody without another key.
    assert closed.ask("shop", "export", period=TODAY).json()["n"] == 0
    assert {closed.get("/metrics", app).status_code for app in ("", "shop")} == {401}

    few = LEAST // 20 - 1  # batches, fewer than a release needs even if a look sees them all at once
    watched = sorted({n for n, _ in polled(closed, "trial", few, 20 * few)})
    assert any(b - a < LEAST for a, b in pairwise(watched))
