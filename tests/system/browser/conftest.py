"""A server with something of everything, on a real store, and a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from shutil import which
from threading import Thread
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tallies import of_places, of_sets

from deniable.registry import period
from deniable.wire.report import Stratum
from deniable_aggregator import tally
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.store.server import embedded
from deniable_server import create_app
from deniable_server.access.keys import KeyStore
from deniable_server.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

READ = "rk_browser_12345678"
FLAGS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",  # tests of a container run as root, and open no page of strangers
]

HEAD = """
format = 1
budget.per_month = 10000
budget.lifetime = 100000
app = "shop"

[segments]
platform = ["linux", "macos", "windows", "beos"]
arm = ["old", "new"]

[experiments]
arm = {{ base = "old", planned = 0.05 }}

[publication]
min_reports = 400

[metrics."ui.theme"]
version = {version}
type = "categorical"
values = {themes}
epsilon = 1.0
mechanism = "grr"
period = "week"
segments = ["platform"]
description = "Which theme people use"
owner = "design@shop.example"
expires = 2999-12-31
"""
OLD = HEAD.format(version=1, themes='["light", "dark"]')
NEW = (
    HEAD.format(version=2, themes='["light", "dark", "system", "high contrast", "sepia", "something else"]')
    + """
[metrics."export.used"]
type = "boolean"
epsilon = 1.0
mechanism = "grr"
segments = ["platform"]
description = "Whether the export was used"
owner = "core@shop.example"

[metrics."cart.and.coupon"]
type = "product"
factors = { cart = ["empty", "one thing", "more"], coupon = ["none", "used"] }
epsilon = 2.0
mechanism = "grr"
period = "week"
description = "What is in the cart, and whether a coupon was used"
owner = "sales@shop.example"

[metrics."plugins"]
type = "set"
values = ["git", "spelling", "preview", "terminal"]
joint = true
epsilon = 2.0
period = "week"
description = "Which plugins are switched on"
owner = "core@shop.example"

[metrics."search.ms"]
type = "number"
range = [1, 60000]
unit = "ms"
scale = "log"
estimate = "distribution"
epsilon = 2.0
period = "week"
description = "How long a search takes"
owner = "search@shop.example"

[metrics."session.length"]
type = "number"
range = [0, 240]
unit = "min"
estimate = "mean"
epsilon = 1.0
description = "How long a session lasts"
owner = "core@shop.example"

[metrics."usage.hour"]
type = "ordinal"
values = ["night", "morning", "noon", "afternoon", "evening"]
epsilon = 2.0
mechanism = "grr"
period = "week"
description = "When the app is used first"
owner = "core@shop.example"

[metrics."page"]
type = "categorical"
values = [PAGES]
epsilon = 4.0
mechanism = "grr"
description = "Which of six hundred pages was read most"
owner = "web@shop.example"

[metrics."rare.flag"]
type = "boolean"
epsilon = 1.0
min_reports = 5000
description = "Whether the <b>rare</b> flag is set & why"
owner = "core@shop.example"

[metrics."way.home"]
type = "categorical"
values = ["by the menu", "by the logo", "by a key"]
epsilon = 2.0
mechanism = "grr"
period = "week"
segments = ["platform", "arm"]
description = "How people get back to the first page"
owner = "core@shop.example"
""".replace("PAGES", ", ".join(f'"page {number}"' for number in range(600)))
)
SHARES = {
    "ui.theme": [0.42, 0.31, 0.17, 0.06, 0.03, 0.01],
    "export.used": [0.72, 0.28],
    "cart.and.coupon": [0.38, 0.02, 0.22, 0.08, 0.14, 0.16],
    "usage.hour": [0.05, 0.3, 0.2, 0.25, 0.2],
    "page": [0.2, 0.1, *[0.7 / 598] * 598],
}


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """Start a store for these tests alone: others empty theirs."""
    with embedded.open_store() as started:
        yield started.url


@pytest.fixture(scope="module")
def flask(store, tmp_path_factory):
    """Make a server over a filled store."""
    folder = tmp_path_factory.mktemp("registries")
    (folder / "0001.toml").write_text(OLD, "utf-8")
    (folder / "0002.toml").write_text(NEW, "utf-8")
    settings = Settings(redis_url=store, registry=str(folder), read_keys=f"shop:{READ}", about="public")
    app = create_app(settings)
    fill(app.extensions["deniable"].apps["shop"])
    return app


@pytest.fixture(scope="module")
def admin_key(flask) -> str:
    """Make an admin key."""
    return KeyStore(flask.extensions["deniable"].apps["shop"].store).create("admin", "owner")[0]


@pytest.fixture(scope="module")
def address(flask) -> Iterator[str]:
    """Serve it until the tests end."""
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, flask, threaded=True)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser():
    """Start a browser."""
    program = next(filter(None, map(which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no chromium on PATH (apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright (pip install playwright)")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, args=FLAGS)
        yield started
        started.close()


# What was counted


def fill(shop) -> None:
    """Count what people answered, over weeks and days, and publish what may be published."""
    rng = np.random.default_rng(7)
    now = datetime.now(UTC)

    def put(name: str, ago: timedelta, tally_: tally.Tally, segment: str = "") -> None:
        declared = shop.find(name)
        when = period.of(now - ago, declared.metric.period)
        stratum = Stratum(declared.metric.id, declared.metric.version, declared.fingerprint, when, segment)
        assert shop.store.partitions[0].commit("test", [], {stratum: tally_.cells}, int(now.timestamp())) == []

    def listed(name: str, shares, n: int) -> tally.Tally:
        mechanism = shop.find(name).mechanism
        p, q = float(mechanism.p), float(mechanism.q)
        return tally.from_cells(mechanism.layout, rng.multinomial(n, [q + (p - q) * share for share in shares]))

    for ago in range(12):
        week, drift, turn = timedelta(weeks=ago), 0.012 * ago, 0.07 * max(0, 3 - ago)  # in the last weeks dark rises
        light, dark, system, *contrast = SHARES["ui.theme"]
        for platform, n in (("linux", 9000), ("macos", 7500), ("windows", 2700), ("beos", 60)):
            if ago == 5:
                continue  # a week without a report
            put("way.home", week, listed("way.home", [0.6, 0.2, 0.2], 2000), f"platform={platform},arm=old")
            put("way.home", week, listed("way.home", [0.6, 0.16, 0.24], 2000), f"platform={platform},arm=new")
            lean = 0.12 if platform == "macos" else 0.0
            if ago >= 8:
                put(
                    "ui.theme@1",
                    week,
                    listed("ui.theme@1", [0.66 + drift - lean, 0.34 - drift + lean], n),
                    f"platform={platform}",
                )
            else:
                shares = [light + drift - lean - turn / 2, dark - drift + lean + turn, system - turn / 2, *contrast]
                put("ui.theme@2", week, listed("ui.theme@2", shares, n), f"platform={platform}")
        put("cart.and.coupon", week, listed("cart.and.coupon", SHARES["cart.and.coupon"], 4000))
        put("usage.hour", week, listed("usage.hour", SHARES["usage.hour"], 2000))
        places = np.clip(rng.normal(0.52 + 0.004 * ago, 0.08, 4000), 0, 1)
        put("search.ms", week, of_places(shop.find("search.ms").mechanism, places, rng))
        chosen = (rng.random((3000, 4)) < [0.7, 0.4, 0.3, 0.1]).astype(np.int64)
        chosen[:, 2] = np.where(rng.random(3000) < 0.5, chosen[:, 0], chosen[:, 2])
        put("plugins", week, of_sets(shop.find("plugins").mechanism, chosen, rng))
    for ago in range(40):
        day = timedelta(days=ago)
        yes = SHARES["export.used"][1] + (0.08 if ago < 9 else 0.0)
        for platform in ("linux", "macos"):
            put("export.used", day, listed("export.used", [1 - yes, yes], 1500), f"platform={platform}")
        places = np.clip(rng.normal(0.2, 0.1, 1500), 0, 1)
        put("session.length", day, of_places(shop.find("session.length").mechanism, places, rng))
    put("page", timedelta(days=3), listed("page", SHARES["page"], 30_000))
    for _ in range(2):  # a step before the close is a snapshot, published once as many more reports have come
        Publisher(shop.store, shop.registry).publish(now.timestamp())
        put("usage.hour", timedelta(), listed("usage.hour", SHARES["usage.hour"], 2000))
    Publisher(shop.store, shop.registry).publish(now.timestamp())
