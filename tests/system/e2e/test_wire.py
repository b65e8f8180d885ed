"""The wire specification is enough to write a client by: one made so counts, and its tables hold for that client and for ours."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import time
from base64 import b64decode
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from random import Random
from statistics import mean, stdev

import foreign
import pytest
import requests
from wire_page import PAGE, block, rows, tables

from deniable import mechanisms
from deniable.commands.sheet import sheet
from deniable.declared import Declared
from deniable.device import permanent_responses
from deniable.device.ledger import Ledger
from deniable.device.prepared import Prepared
from deniable.device.state import State
from deniable.exact import hashing
from deniable.limits.allowance import MICRO, Allowance
from deniable.registry import load, parse, period, text
from deniable.registry.answers import types
from deniable.registry.tables import Budget
from deniable.served_registry.restrictions import Restriction
from deniable.served_registry.signature import Envelope
from deniable.source import Source
from deniable.wire import layout as layouts
from deniable.wire.report import Report, Stratum, encode
from deniable_aggregator.process.ports import free_port
from deniable_server.local.stack import Stack
from deniable_server.settings import Settings

ROOT = Path(__file__).parents[3]
REGISTRY = load(ROOT / "tests" / "vectors" / "wire.toml")


def document_sheet():
    """Put the sheet together from the page's own tables, as a reader without our code would."""
    constants, canonical = tables("constants")
    axes = {row["metric"]: row for row in rows("axes")}
    metrics = {}
    for about, figures, agreed in zip(rows("metrics"), constants, canonical, strict=True):
        layout = {name: int(figures[name]) for name in ("rows", "width", "row_bytes", "payload_bytes")}
        metrics[about["metric"]] = {
            "version": int(about["version"]),
            "type": about["type"],
            "values": json.loads(about["values"]),
            "max_length": json.loads(about["max_length"]),
            "bins": None,
            "rounded": False,
            **{name: json.loads(value) for name, value in axes.get(about["metric"], {}).items() if name != "metric"},
            "period": about["period"],
            "segments": json.loads(about["segments"]),
            "mechanism": figures["mechanism"],
            "epsilon": figures["epsilon"],
            "epsilon_permanent": None if figures["epsilon_permanent"] == "null" else figures["epsilon_permanent"],
            "layout": {"kind": figures["kind"]} | layout,
            "constants": json.loads(figures["constants"]),
            "canonical": agreed["canonical"],
            "fingerprint": agreed["fingerprint"],
        }
        assert about["metric"] == figures["metric"] == agreed["metric"]
    return {"app": "shop", "metrics": metrics}


PAGES_SHEET = document_sheet()
METRICS = PAGES_SHEET["metrics"]
PRINTED, PRINTED_BUDGET = (sheet(REGISTRY)[name] for name in ("metrics", "budget"))


class Tape:
    """The draws of a worked vector, one after another, for the foreign client."""

    def __init__(self, written):
        tokens = [] if written == "-" else written.split()
        self.left = [int(digit) for each in tokens for digit in (each[2:] if each.startswith("0b") else [each])]

    def _next(self, n):
        assert self.left, "more draws than the page has"
        draw = self.left.pop(0)
        assert 0 <= draw < n
        return draw

    def below(self, n):
        return self._next(n)

    def event(self, probability):
        assert 0 <= probability <= 1
        return self._next(2)


class OurTape(Source):
    """The same for us."""

    def __init__(self, written):
        self.tape = Tape(written)

    def bernoulli(self, num, den):
        return bool(self.tape.event(Fraction(num, den)))

    def below(self, n):
        return self.tape.below(n)


def both(written):
    return Tape(written), OurTape(written)


def number(written):
    return int(written, 0)


def test_the_foreign_client_is_foreign():
    """It imports the standard library and nothing else."""
    tree = ast.parse(Path(foreign.__file__).read_text("utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names}
    assert {each.partition(".")[0] for each in modules} <= sys.stdlib_module_names


def test_the_page_has_each_mechanism_and_type():
    """No kind of metric is left out of the vectors."""
    metrics = sheet(REGISTRY)["metrics"]
    assert {each["mechanism"] for each in metrics.values()} == set(mechanisms._ALL)
    assert {each["type"] for each in metrics.values()} == set(types.TYPES)
    assert {each["period"] for each in metrics.values()} == set(period.LENGTHS)
    vectors = {row["metric"] for row in rows("reports") + rows("geometry")}
    assert vectors == set(metrics)
    assert {row["metric"] for row in rows("kept")} == {id_ for id_, each in metrics.items() if each["epsilon_permanent"]}


def test_the_sheet_is_what_the_command_prints():
    """`deniable registry show --json` prints what the page's tables say, and no member that the page does not explain."""
    command = [sys.executable, "-m", "deniable", "registry", "show", "--json", ROOT / "tests" / "vectors" / "wire.toml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    printed = json.loads(done.stdout)
    assert list(printed["metrics"]) == list(METRICS)
    for id_, entry in METRICS.items():
        assert {name: printed["metrics"][id_][name] for name in entry} == entry
        assert all(f"`{name}`" in PAGE for name in (*printed["metrics"][id_], *printed["metrics"][id_]["allowance"]))
        assert all(f"`{name}`" in PAGE for name in printed["metrics"][id_]["constants"])
    assert all(f"`{name}`" in PAGE for name in (*printed, *printed["budget"]))
    largest = [int(each) for each in re.findall(r"(?<![\"\d/])\b\d+\b(?![\d/\"])", re.sub(r'"[^"]*"', "", done.stdout))]
    assert max(largest) < 1 << 53


@pytest.mark.parametrize("metric", METRICS)
def test_fingerprints_and_constants_follow_from_the_page(metric):
    """The foreign client gets the same fingerprint, and the same probabilities from the epsilons."""
    entry = METRICS[metric]
    assert foreign.fingerprint(metric, entry) == entry["fingerprint"]
    assert entry["constants"] == entry["constants"] | {
        name: f"{value.numerator}/{value.denominator}" for name, value in foreign.expected(entry).items()
    }
    free = {name for name, value in entry["constants"].items() if isinstance(value, str)} - set(foreign.expected(entry))
    assert free <= ({"one_again", "other_again", "flip_permanent"} if metric == "google_rappor" else set())


def test_what_is_hashed():
    """The texts whose digests are the fingerprints."""
    for row in rows("meaning"):
        assert sha256(row["what is hashed"].encode()).hexdigest()[:16] == row["fingerprint"]
    by_digest = {entry["fingerprint"]: id_ for id_, entry in METRICS.items()}
    assert {by_digest[row["fingerprint"]] for row in rows("meaning")} == {
        "binary",
        "grr",
        "subset",
        "fast_local_hash",
        "mean",
        "set",
    }


def test_texts():
    """Texts fit, and become positions and keys."""
    for row in rows("texts"):
        answer, length = json.loads(row["text, as JSON"]), int(row["max_length"])
        metric = {"type": "string", "max_length": length, "none": None}
        place = int(row["position, hexadecimal"], 16)
        assert json.loads(row["fitted, as JSON"]) == foreign.fit(answer, length) == text.fit(answer, length)
        assert place == foreign.position(metric, answer) == text.encode(text.fit(answer, length), length)
        key = int(row["key for a `pool`, hexadecimal"], 16)
        assert key == foreign.pool_key(metric, place) == hashing.key(place, 256**length)


def test_positions():
    """Numbers and sets become positions, whatever is given."""
    for row in rows("positions"):
        entry, metric, answer = PRINTED[row["metric"]], REGISTRY.metrics[row["metric"]], json.loads(row["answer, as JSON"])
        assert foreign.position(entry, answer) == metric.kind.reported(metric, answer)[0] == int(row["position"])
    assert {entry["type"] for entry in map(PRINTED.get, {row["metric"] for row in rows("positions")})} == {"number", "set"}


def test_rounding():
    """A number whose mean is kept is rounded to an end, at the device's point."""
    for row in rows("rounding"):
        entry, metric, answer = METRICS[row["metric"]], REGISTRY.metrics[row["metric"]], json.loads(row["answer, as JSON"])
        at, point = int(row["p"]), int(row["t"])
        assert foreign.position(entry, answer) == metric.position(answer) == at
        assert foreign.rounded(at, point) == metric.round_at(at, point) == int(row["v"])


def test_layouts():
    """Rows and contents are packed alike, and unpacked."""
    for row in rows("layouts"):
        ours = layouts.Layout(int(row["rows"]), int(row["width"]), row["kind"])
        layout = {"kind": row["kind"]} | {each: int(row[each]) for each in ("rows", "width", "row_bytes", "payload_bytes")}
        at, content = int(row["row"]), number(row["content"])
        assert (ours.row_size, ours.payload_size) == (layout["row_bytes"], layout["payload_bytes"])
        assert foreign.payload(layout, at, content).hex() == ours.pack(at, content).hex() == row["payload, hexadecimal"]
        assert ours.unpack(bytes.fromhex(row["payload, hexadecimal"])) == (at, content)


def test_periods():
    """Moments have one name in each length."""
    for row in rows("periods"):
        moment = datetime.fromisoformat(row["moment"])
        for length in period.LENGTHS:
            assert foreign.period(moment, length) == period.of(moment, length) == row[length]


def test_hash_functions():
    """The functions of each kind of family."""
    families = {}
    for row in rows("hashes"):
        family = json.loads(row["family"])
        families[family["kind"]] = {
            "linear": lambda f: hashing.LinearFamily(f["width"] ** f["digits"], f["width"]),
            "line": lambda f: hashing.LineFamily(f["width"] ** 2, f["width"].bit_length() - 1),
            "pool": lambda f: hashing.PoolFamily(f["label"], f["rows"], f["width"]),
        }[family["kind"]](family)
        assert families[family["kind"]].constants == family
        r, value = int(row["r"]), int(row["v, or its key"])
        assert foreign.hashed(family, r, value) == families[family["kind"]].hash(r, value) == int(row["h"])
    assert set(families) == {"linear", "line", "pool"}


def test_prefixes():
    """Levels of rows, and keys of prefixes."""
    for row in rows("prefixes"):
        ours, constants = mechanisms.of(REGISTRY.metrics[row["metric"]]), METRICS[row["metric"]]["constants"]
        r, value, level = int(row["r"]), int(row["v"]), int(row["level"])
        assert foreign.level_of(constants, r) == ours.level(r) == level
        assert foreign.prefix_key(constants, level, value) == ours.key(level, value) == int(row["key, hexadecimal"], 16)


@pytest.mark.parametrize("row", rows("reports"), ids=lambda row: f"{row['metric']}-{row['position'][:6]}")
def test_reports(row):
    """The draws give the row, the content and the payload, which we decode; every draw is used."""
    entry, ours, place = METRICS[row["metric"]], mechanisms.of(REGISTRY.metrics[row["metric"]]), int(row["position"])
    tape, source = both(row["draws"])
    report = foreign.randomize(entry, place, tape)
    assert report == (int(row["row"]), number(row["content"]))
    assert foreign.payload(entry["layout"], *report).hex() == row["payload, hexadecimal"]
    assert ours.randomize(place, source=source).hex() == row["payload, hexadecimal"]
    assert ours.layout.unpack(bytes.fromhex(row["payload, hexadecimal"])) == report
    assert tape.left == source.tape.left == []


def test_the_geometry():
    """The points that support a position; and of the foreign client's reports, those that must."""
    for row in rows("geometry"):
        entry, ours, place = METRICS[row["metric"]], mechanisms.of(REGISTRY.metrics[row["metric"]]), int(row["position"])
        points = [x for x in range(ours.layout.width) if place in ours.supported(ours.layout.pack(0, x))]
        listed = [int(each) for each in row["points"].split()]
        assert listed == points == [x for x in range(ours.layout.width) if foreign.supports(entry["constants"], x, place)]
        for on in (0, 1):
            point = foreign.randomize(entry, place, Tape(f"{on} {' '.join(map(str, range(ours.layout.width)))}"))[1]
            assert (point in points) == on


@pytest.mark.parametrize(
    "row", rows("kept"), ids=lambda row: f"{row['metric']}-{row['position'][:6]}-{row['payload, hexadecimal']}"
)
def test_kept_responses(row):
    """Draws give the response that is kept, and others the report of it."""
    entry, ours, place = METRICS[row["metric"]], mechanisms.of(REGISTRY.metrics[row["metric"]]), int(row["position"])
    at, response = int(row["row"]), number(row["content kept"])
    assert foreign.response_key(entry, at, place) == ours.response_key(at, place) == int(row["response key"])
    tape, source = both(row["draws of the response"])
    assert foreign.respond(entry, at, place, tape) == ours.respond_permanently(at, place, source) == response
    assert tape.left == source.tape.left == []
    tape, source = both(row["draws of the report"])
    report = foreign.payload(entry["layout"], at, foreign.again(entry, response, tape))
    assert report.hex() == ours.respond_instantly(at, response, source).hex() == row["payload, hexadecimal"]
    assert tape.left == source.tape.left == []


def test_places():
    """The rows of a device follow from one place."""
    import sqlite3

    place = (0, 1)
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE facts (name, value)")
        db.execute("INSERT INTO facts VALUES ('place', '0/1')")
        for row in rows("places"):
            tape, source = both(row["draw"])
            own_row, place = foreign.row_of(place, int(row["rows"]), tape)
            assert own_row == permanent_responses.row_of(db, int(row["rows"]), source) == int(row["row"])
            assert f"{place[0]}/{place[1]}" == row["place then"]
            assert db.execute("SELECT value FROM facts").fetchone() == (row["place then"],)
            assert tape.left == source.tape.left == []


def worked_device():
    """Make the page's device with its budget, as the foreign client has it."""
    metrics = {}
    for row in rows("allowances"):
        allowance = {name: json.loads(row[name]) for name in row if name not in ("metric", "period")}
        assert METRICS[row["metric"]]["period"] == row["period"]
        metrics[row["metric"]] = METRICS[row["metric"]] | {"allowance": allowance, "sample": "1", "none": None, "other": None}
    match = re.search(r"has a budget of ([\d,]+) in a month and ([\d,]+) ever", PAGE)
    month, lifetime = (int(each.replace(",", "")) for each in match.groups())
    budget = {"per_month": month, "lifetime": lifetime}
    return foreign.Device({"format": 1, "budget": budget, "metrics": metrics}, {})


def our_device(budget):
    ours = Budget(per_month=budget["per_month"] / MICRO, lifetime=budget["lifetime"] / MICRO)
    state = State(None)
    ledger = Ledger(state, ours)
    responses = permanent_responses.PermanentResponses(state, ledger)

    def record(id_, place, moment):
        metric = REGISTRY.metrics[id_]
        prepared = Prepared(Declared.of(metric), Allowance.of(Declared.of(metric), ours), "")
        occasion = prepared.occasion(moment)
        if prepared.permanent is None:
            return ledger.spend(prepared.allowance, occasion) or "reported"
        outcome = responses.respond(prepared, occasion, place)
        return outcome if isinstance(outcome, str) else "reported"

    return record, ledger, state


def test_the_budget():
    """What becomes of each answer, from which response it is reported, and what is spent then."""
    device = worked_device()
    record, ledger, state = our_device(device.sheet["budget"])
    for row in rows("budget"):
        id_, moment = row["metric"], datetime.fromisoformat(row["moment"])
        metric, answer = device.sheet["metrics"][id_], json.loads(row["answer, as JSON"])
        assert foreign.position(metric, answer) == int(row["position"])
        outcome = row["what becomes of it"]
        assert (device.record(id_, answer, moment), record(id_, int(row["position"]), moment)) == (outcome, outcome)
        assert foreign.counts_in(metric, moment) == row["counts in"]
        spent = ledger.spent(row["counts in"])
        theirs = device.ledger.spent_in(row["counts in"]), sum(device.ledger.ever.values())
        assert theirs == (int(row["month"]), int(row["ever"]))
        assert theirs == (round(spent.month * MICRO), round(spent.lifetime * MICRO))
        if row["response key"] != "-":
            with state.transaction() as db:
                (secret,) = db.execute("SELECT value FROM facts WHERE name = 'secret'").fetchone()
                (last,) = db.execute("SELECT last FROM kept").fetchone()
            assert foreign.stored_under(secret, metric, row["response key"]) == last
            assert foreign.stored_under(device.secret, metric, row["response key"]) == device.last[id_]
    assert len(device.waiting) == sum(row["what becomes of it"] == "reported" for row in rows("budget"))


def test_allowances_and_places_of_responses():
    """What the page says of the two metrics is what follows from that budget; and under which keys responses are stored."""
    for row in rows("allowances"):
        metric = REGISTRY.metrics[row["metric"]]
        allowance = Allowance.of(Declared.of(metric), Budget(per_month=6.5, lifetime=8))
        for name in ("cost", "per_period", "month", "lifetime"):
            assert json.loads(row[name]) == getattr(allowance, name)
        if metric.permanent:
            assert (json.loads(row["answers"]), json.loads(row["answers_ever"])) == (allowance.answers, allowance.answers_ever)
    for row in rows("stored"):
        assert (
            foreign.stored_under(bytes(range(32)), METRICS["l_grr"], row["response key"]).hex()
            == row["stored under, hexadecimal"]
        )


def test_an_upload_follows_from_the_page():
    """The page's tables alone give the body; what is in it is read by us."""
    moment, own = datetime(2026, 11, 21, 14, 5, tzinfo=UTC), {"platform": "linux", "version": "2.4"}
    assert "2026-11-21 14:05 UTC" in PAGE
    reports, ours = [], []
    for row in rows("recorded"):
        entry, metric, answer = METRICS[row["metric"]], REGISTRY.metrics[row["metric"]], json.loads(row["answer, as JSON"])
        entry = {"none": None} | entry
        tape, source = both(row["draws"])
        payload = foreign.payload(entry["layout"], *foreign.randomize(entry, foreign.position(entry, answer), tape))
        assert tape.left == []
        named, where = foreign.period(moment, entry["period"]), foreign.segment(entry, own)
        reports.append((row["metric"], named, where, payload))
        stratum = Stratum(metric.id, metric.version, entry["fingerprint"], period.of(moment, metric.period), where)
        ours.append(Report(stratum, mechanisms.of(metric).randomize(metric.position(answer), source=source)))
        assert REGISTRY.segment(metric, own) == where
    assert foreign.body_of(PAGES_SHEET, reports) == encode(PAGES_SHEET["app"], ours) == block("body").encode()
    for group in json.loads(block("body").encode())["groups"]:
        layout = mechanisms.of(REGISTRY.metrics[group["metric"]]).layout
        payloads = b64decode(group["payloads"])
        assert len(payloads) == group["count"] * layout.payload_size
        for start in range(0, len(payloads), layout.payload_size):
            layout.unpack(payloads[start : start + layout.payload_size])


def test_a_signed_restriction():
    """The page's text is canonical, its signatures are right, and it turns down what the page says."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    body = block("restriction")
    document = json.loads(body)
    assert json.dumps(document, sort_keys=True, separators=(",", ":")) == body
    public = re.search(r"With the public key `([^`]*)`", PAGE)[1]
    for row in rows("signatures"):
        until = None if row["valid_until"] == "absent" else row["valid_until"]
        line = f"deniable restriction 1 until {until}\n" if until else "deniable restriction 1\n"
        signature = b64decode(row["signature"])
        Ed25519PublicKey.from_public_bytes(b64decode(public)).verify(signature, (line + body).encode())
        Envelope(body, signature, date.fromisoformat(until) if until else None).verify(public)
    for row in rows("restricted"):
        metric = replace(REGISTRY.metrics[row["metric"]], sample=row["sample"], expires=day(row["expires"]))
        used = Restriction.read(body).limited({metric.id: metric})
        if row["sample then"] == "off":
            assert not used
        else:
            assert used == {metric.id: replace(metric, sample=row["sample then"], expires=day(row["last day then"]))}


def day(written):
    return None if written == "null" else date.fromisoformat(written)


# Beyond the page's vectors


class Recorder(Source):
    """Draws by a seed, and notes what it drew."""

    def __init__(self, seed):
        self.random, self.draws = Random(seed), []

    def bernoulli(self, num, den):
        self.draws.append(int(self.random.random() < (0.5 if self.random.random() < 0.5 else num / den)))
        return bool(self.draws[-1])

    def below(self, n):
        self.draws.append(self.random.randrange(n))
        return self.draws[-1]


def declared(type_, size, epsilon, more=""):
    values = f"values = {json.dumps([f'v{i}' for i in range(size)])}" if size else ""
    written = f'format = 1\napp = "shop"\n[metrics."m"]\ntype = "{type_}"\n{values}\nepsilon = {epsilon}\n{more}\n'
    return parse(f'{written}description = "d"\nowner = "o@shop.example"')


CLOSED = (
    "grr",
    "sue",
    "oue",
    "subset",
    "local_hash",
    "hadamard",
    "general_hadamard",
    "pgr",
    "cms",
    "hcms",
    "fast_local_hash",
    "rappor",
)
WIDER = [
    *(
        (name, ("categorical", size, epsilon, f'mechanism = "{name}"'))
        for name in CLOSED
        for size, epsilon in ((2, 0.1), (300, 3))
    ),
    ("google_rappor", ("categorical", 300, 6, 'mechanism = "google_rappor"\nparameters = { preset = "UMA_RAPPOR_TYPE" }')),
    (
        "google_rappor",
        ("key", 0, 6, 'candidates = "c"\nmechanism = "google_rappor"\nparameters = { preset = "DEMO" }'),
    ),
    ("cms", ("string", 0, 1, 'candidates = "c"\nmechanism = "cms"')),
    ("fast_local_hash", ("string", 0, 4, 'candidates = "c"\nmax_length = 256')),
    ("rappor", ("key", 0, 1, 'candidates = "c"\nmechanism = "rappor"')),
    ("pem", ("string", 0, 4, "discover = true")),
    ("tree_hist", ("key", 0, 1, 'discover = true\nmechanism = "tree_hist"\nparameters = { step = 20, start = 20 }')),
    ("l_grr", ("categorical", 300, 2, 'mechanism = "l_grr"\nepsilon_permanent = 2')),
    ("l_osue", ("categorical", 17, 1, 'mechanism = "l_osue"\nepsilon_permanent = 1')),
    ("loloha", ("categorical", 3000, 2, 'mechanism = "loloha"\nepsilon_permanent = 5')),
    ("dbitflip", ("categorical", 100, 2, 'mechanism = "dbitflip"\nepsilon_permanent = 2')),
    ("dbitflip", ("categorical", 12, 1, 'mechanism = "dbitflip"\nepsilon_permanent = 1\nparameters = { buckets = 1 }')),
    ("rappor", ("string", 0, 2, 'candidates = "c"\nepsilon_permanent = 4')),
    ("window", ("ordinal", 2, 3, 'estimate = "mean"')),
    ("window", ("number", 0, 0.1, 'range = [0, "0.3"]\nunit = "s"\nestimate = "distribution"')),
    ("window", ("number", 0, 8, 'range = [-2147483648, 2147483648]\nunit = "s"\nestimate = "mean"')),
    (
        "window",
        (
            "number",
            0,
            1,
            'range = [1, 9]\nunit = "s"\nestimate = "mean"\nmechanism = "window"\nparameters = { blocks = 5, length = 2 }',
        ),
    ),
    ("l_grr", ("number", 0, 2, 'range = [1, 9]\nunit = "s"\nscale = "log"\nestimate = "mean"\nepsilon_permanent = 2')),
    ("l_osue", ("number", 0, 2, 'range = [1, 9]\nunit = "s"\nestimate = "distribution"\nepsilon_permanent = 2')),
    ("sampled_options", ("set", 300, 3)),
    ("sampled_pair", ("set", 2, 0.1, "joint = true")),
    ("padded_subset", ("set", 40, 0.5, "most = 3")),
    ("padded_subset", ("set", 3, 3, "most = 2")),
]


@pytest.mark.parametrize(
    ("name", "definition"), WIDER, ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value[:3]))
)
def test_both_clients_are_one_function_of_their_draws(name, definition):
    """Of other sizes and epsilons, too, the sheet is enough, the constants follow from the page, and payloads are the same."""
    registry = declared(*definition)
    entry, ours = sheet(registry)["metrics"]["m"], mechanisms.of(registry.metrics["m"])
    assert entry["mechanism"] == name
    assert foreign.fingerprint("m", entry) == entry["fingerprint"]
    assert {member: Fraction(entry["constants"][member]) for member in foreign.expected(entry)} == foreign.expected(entry)
    for seed in range(40):
        value = Random(seed).randrange(ours.domain_size)
        if name == "pgr":
            on, x = value in ours.supported(ours.layout.pack(0, seed)) if seed < ours.layout.width else None, seed
            assert on is None or foreign.supports(entry["constants"], x, value) == on
            continue
        source = Recorder(seed)
        payload = ours.randomize(value, source=source)
        tape = Tape(" ".join(map(str, source.draws)))
        assert foreign.payload(entry["layout"], *foreign.randomize(entry, value, tape)) == payload
        assert tape.left == []
        if entry["epsilon_permanent"]:
            row, source = seed % ours.layout.rows, Recorder(-seed)
            response = ours.respond_permanently(row, value, source)
            payload = ours.respond_instantly(row, response, source)
            tape = Tape(" ".join(map(str, source.draws)) or "-")
            assert foreign.response_key(entry, row, value) == ours.response_key(row, value)
            assert foreign.respond(entry, row, value, tape) == response
            assert foreign.payload(entry["layout"], row, foreign.again(entry, response, tape)) == payload


class Seeded:
    """Draws by a seed."""

    def __init__(self, seed):
        self.random = Random(seed)

    def below(self, n):
        return self.random.randrange(n)

    def event(self, probability):
        return int(self.below(probability.denominator) < probability.numerator)


@pytest.mark.parametrize(
    ("metric", "answer"),
    [
        ("mean", 412),
        ("log_distribution", 412),
        ("ordinal_mean", "good"),
        ("set", ["a", "c"]),
        ("joint_set", ["a", "e"]),
        ("set_at_once", ["b", "e"]),
        ("capped_set", ["a", "d", "e"]),
    ],
)
def test_scores_of_the_foreign_client_are_unbiased(metric, answer):
    """The mean scores of its reports of a number or a set are near the quantities of the answer, by their standard errors."""
    entry, ours, chance = PRINTED[metric], mechanisms.of(REGISTRY.metrics[metric]), Seeded(metric)
    place = foreign.position(entry, answer)
    payloads = (foreign.payload(entry["layout"], *foreign.randomize(entry, place, chance)) for _ in range(4000))
    for quantity, scores in zip(ours.quantities(place), zip(*map(ours.scores, payloads), strict=True), strict=True):
        numbers = list(map(float, scores))
        assert abs(mean(numbers) - quantity) < 5 * stdev(numbers) / len(numbers) ** 0.5


def test_the_foreign_device_rounds_at_one_point():
    """It keeps the response to the end on the side of its point, and the same point at the next answer."""
    entry = PRINTED["kept_mean"]
    ends = []
    for seed in range(200):
        device = foreign.Device({"format": 1, "budget": PRINTED_BUDGET, "metrics": {"kept_mean": entry}}, {}, Seeded(seed))
        for day, answer in enumerate((3.7, 9.9, 3.7)):
            assert device.record("kept_mean", answer, datetime(2026, 11, 21 + day, tzinfo=UTC)) == "reported"
            end = int(foreign.position(entry, answer) > device.points["kept_mean"])
            assert device.last["kept_mean"] == foreign.stored_under(device.secret, entry, end)
        ends.append(end)
    assert abs(mean(ends) - (3.7 + 2.5) / 12.5) < 5 * 0.5 / len(ends) ** 0.5


# On a real server


PEOPLE = 1500
READ = {"Authorization": "Bearer rk_example_key"}
LISTED = {
    "coin": True,
    "binary": False,
    "grr": "0",
    "oue": "b",
    "subset": ["dark", "m"],
    "local_hash": "j",
    "hadamard": "c",
    "general_hadamard": "f",
    "pgr": "m",
    "pgr_even": "t",
    "cms": "d",
    "l_grr": "b",
    "l_osue": "e",
    "loloha": "c",
    "dbitflip": "h",
    "rappor": "f",
}
OPEN = {"cms_text": "photograph", "hcms": 42, "fast_local_hash": "word", "rappor_text": "naïve", "google_rappor": "word"}
FOUND = {"pem": 13907095862997510025, "tree_hist": "hello"}
NUMBERS = {"mean": 300, "log_distribution": 500, "kept_mean": 7.5, "kept_distribution": 30, "ordinal_mean": "good"}
SETS = {"set": ["a", "not declared"], "joint_set": ["b", "d"], "set_at_once": ["b", "d"], "capped_set": ["b", "d"]}
ALL = LISTED | OPEN | FOUND | NUMBERS | SETS | {"sue": "not declared"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """Run the whole service with the registry of the vectors."""
    folder = tmp_path_factory.mktemp("stack")
    written = (ROOT / "tests" / "vectors" / "wire.toml").read_text("utf-8")
    (folder / "metrics.toml").write_text(written, "utf-8")
    (folder / "words.txt").write_text("word\nphotograph\nnaïve\nabsent\n", "utf-8")
    (folder / "short.txt").write_text("word\nnaïve\nabsent\n", "utf-8")
    (folder / "numbers.txt").write_text("41\n42\n43\n", "utf-8")
    settings = Settings(
        registry=str(folder / "metrics.toml"),
        ingest_keys="shop:PUBLIC_KEY",
        read_keys="shop:rk_example_key",
        rate_limit_source="off",
    )
    with Stack(settings, bind=f"127.0.0.1:{free_port()}", log_file=folder / "log") as running:
        yield running


@pytest.fixture(scope="module")
def sent(stack):
    """Have people answer, each with a device of its own, and send what they have in batches; return the number of reports."""
    command = [sys.executable, "-m", "deniable", "registry", "show", "--json", stack.settings.registry]
    printed = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout)
    printed["budget"] = {"per_month": None, "lifetime": None}  # each of these people is asked one metric of each kind
    reports = []
    for person in range(PEOPLE):
        device = foreign.Device(printed, {"platform": "linux" if person % 3 else "macos", "version": "2.4"})
        for metric, answer in ALL.items():
            device.record(metric, answer)
            device.record(metric, answer)  # a second one in the period counts of `oue` alone
        reports += device.waiting
    counts = {}
    for start in range(0, len(reports), 5000):
        body = foreign.body_of(printed, reports[start : start + 5000])
        batch = f"foreign-{start}"
        status, answer = foreign.upload(stack.url, "PUBLIC_KEY", body, batch, compressed=start > 0)
        assert (status, answer["rejected"], answer["errors"], answer["duplicate"]) == (202, 0, [], False)
        counts[batch] = answer["accepted"]
        status, answer = foreign.upload(stack.url, "PUBLIC_KEY", body, batch, compressed=start == 0)
        assert (status, answer["accepted"], answer["duplicate"]) == (202, counts[batch], True)
    assert sum(counts.values()) == len(reports)
    totals = {metric: sum(report[0] == metric for report in reports) for metric in ALL}
    deadline = time.monotonic() + 120
    while any(ask(stack, metric)["n"] != number for metric, number in totals.items()):
        stack.check()
        assert time.monotonic() < deadline
        time.sleep(0.5)
    return totals


def ask(stack, metric, **parameters):
    return requests.get(f"{stack.url}/api/v1/metrics/{metric}", headers=READ, params=parameters, timeout=300).json()


def test_every_report_of_the_foreign_client_is_counted(stack, sent):
    """As many as were made, twice sent and once counted: of one metric a quarter, of one with three a period both answers."""
    for metric, total in sent.items():
        assert ask(stack, metric)["n"] == total
        assert total == PEOPLE * (2 if metric == "oue" else 1) or metric == "sue"
    assert abs(sent["sue"] - PEOPLE / 4) < 6 * (PEOPLE * 3 / 16) ** 0.5


@pytest.mark.parametrize("metric", LISTED | OPEN)
def test_reports_of_the_foreign_client_are_decoded(stack, sent, metric):
    """Everybody gave one answer: its estimate is near 1 and the others are near 0, by the standard errors stated."""
    assert sent[metric] >= PEOPLE
    answer = ask(stack, metric)
    shares = {json.dumps(share["value"]): share for share in answer["estimates"]}
    held = shares.pop(json.dumps(ALL[metric]))
    assert abs(held["estimate"] - 1) < 6 * max(held["stderr"], 0.02)
    assert held["estimate"] > 0.5
    for share in shares.values():
        assert abs(share["estimate"]) < 6 * max(share["stderr"], 0.02)


@pytest.mark.parametrize("metric", FOUND)
def test_what_the_foreign_client_tells_of_is_discovered(stack, sent, metric):
    """The search finds the answer that everybody gave, and nothing beside it that many could have given."""
    assert sent[metric] == PEOPLE
    frequencies = {each["value"]: each["estimate"] for each in ask(stack, metric)["estimates"] if each["detected"]}
    assert frequencies.pop(FOUND[metric]) > 0.5
    assert all(frequency < 0.5 for frequency in frequencies.values())


@pytest.mark.parametrize("metric", NUMBERS)
def test_numbers_of_the_foreign_client_are_decoded(stack, sent, metric):
    """Everybody gave one number, or one value of an order: the mean is near it, by the interval stated."""
    assert sent[metric] == PEOPLE
    estimate = ask(stack, metric, level=0.999999)["number"]
    low, high = estimate["interval"]
    true = REGISTRY.metrics[metric].values.index("good") + 1 if metric == "ordinal_mean" else NUMBERS[metric]
    span = estimate["range"][1] - estimate["range"][0]
    width = span / 16 if metric == "kept_distribution" else 0  # a part counts as its middle
    assert low - width / 2 <= true <= high + width / 2
    assert high - low < 0.8 * span


@pytest.mark.parametrize("metric", SETS)
def test_sets_of_the_foreign_client_are_decoded(stack, sent, metric):
    """Everybody chose the same options; what is not declared is `other`."""
    assert sent[metric] == PEOPLE
    answer = ask(stack, metric)
    held = {"a", "other"} if metric == "set" else set(SETS[metric])
    for row in answer["estimates"]:
        assert abs(row["estimate"] - (row["value"] in held)) < 6 * row["stderr"]
    assert abs(answer["chosen"]["mean"] - 2) < 6 * answer["chosen"]["stderr"]
    for row in answer["chosen"]["pairs"]:
        assert abs(row["both"] - (set(row["options"]) == held)) < 6 * max(row["stderr"], 0.02)


def test_undeclared_answers_of_the_foreign_client_are_other(stack, sent):
    """What is not listed is reported as the answer that stands for it."""
    shares = {each["value"]: each for each in ask(stack, "sue")["estimates"]}
    assert abs(shares["i"]["estimate"] - 1) < 6 * shares["i"]["stderr"]
    assert sent["sue"] > 0


def test_a_segment_of_the_foreign_client_is_counted(stack, sent):
    """A third of its devices are of one platform."""
    assert sent["binary"] == PEOPLE
    assert ask(stack, "binary", segment="platform=macos")["n"] == PEOPLE // 3


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"fingerprint": "0" * 16}, "definition_mismatch"),
        ({"period": "2026-11-1"}, "period"),
        ({"segment": "platform=beos"}, "segment"),
        ({"count": 2}, "payload_length"),
    ],
)
def test_what_the_page_forbids_is_refused(stack, change, code):
    """A group that breaks a rule of the page gets the code that the page names."""
    entry = sheet(REGISTRY)["metrics"]["coin"]
    group = {"metric": "coin", "version": 1, "fingerprint": entry["fingerprint"], "segment": "", "count": 1, "payloads": "AQ=="}
    group["period"] = foreign.period(datetime.now(UTC), "day")
    status, answer = foreign.upload(
        stack.url, "PUBLIC_KEY", json.dumps({"format": 1, "app": "shop", "groups": [group | change]}).encode()
    )
    assert (status, answer["code"], answer["errors"][0]["code"]) == (422, "all_rejected", code)
