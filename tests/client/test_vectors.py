"""Frozen vectors: what devices that are already out there do. A vector that changes is a breaking change."""

from __future__ import annotations

import json
import runpy
from fractions import Fraction
from pathlib import Path

import pytest

from deniable import mechanisms
from deniable.declared import fingerprint
from deniable.errors import ParameterError, PayloadError
from deniable.registry import Metric
from deniable.wire.layout import Layout
from deniable.wire.report import Report, Stratum, encode

VECTORS = Path(__file__).parents[1] / "vectors"


def load(name: str):
    return json.loads((VECTORS / name).read_text("utf-8"))


def noise_of(noise):
    """JSON knows no tuples."""
    return tuple(noise) if isinstance(noise, list) else noise


@pytest.mark.parametrize("vector", load("mechanisms.json"), ids=lambda v: v["seed"][:40])
def test_mechanisms(vector):
    """Parameters, canonical text and the response to each noise are what they were."""
    m, last = responding(vector)
    assert (m.p, m.q) == (Fraction(vector["p"]), Fraction(vector["q"]))
    if vector["supports"]:
        assert [sorted(m.supported(payload)) for payload in last[:2]] == vector["supports"]


@pytest.mark.parametrize("vector", load("scores.json"), ids=lambda v: v["seed"][:40])
def test_scores(vector):
    """So are they of mechanisms whose reports are scored, and the scores."""
    m, last = responding(vector)
    assert [list(map(str, m.scores(payload)[:8])) for payload in last[:2]] == vector["scores"]


@pytest.mark.parametrize("vector", load("numbers.json"), ids=lambda v: "-".join(map(str, [*v["range"], v["epsilon"]])))
def test_numbers(vector):
    """The mechanism, the fingerprint and the positions of a number are what they were."""
    fields = {key: vector[key] for key in ("estimate", "epsilon", "scale", "epsilon_permanent") if key in vector}
    metric = Metric(id="n", type="number", values=(), unit="ms", range=tuple(vector["range"]), **fields)
    assert mechanisms.of(metric).canonical == vector["canonical"]
    assert fingerprint(metric, vector["canonical"]) == vector["fingerprint"]
    assert [metric.position(answer) for answer in vector["answers"]] == vector["positions"]


def responding(vector):
    """Make the mechanism of a vector, and check its responses; return it and the responses to the last value."""
    options = vector.get("options", {})
    m = mechanisms.make(vector["mechanism"], domain_size=vector["domain_size"], epsilon=vector["epsilon"], **options)
    assert m.ratio == Fraction(vector["ratio"])
    assert m.epsilon == pytest.approx(vector["spent"], abs=1e-12)
    assert m.layout == Layout(*vector["layout"])
    assert m.layout.payload_size == vector["payload_size"]
    assert m.canonical == vector["canonical"]
    for response in vector["responses"]:
        noise = noise_of(response["noise"])
        assert [m.respond(value, noise).hex() for value in vector["values"]] == response["payloads"]
    return m, [bytes.fromhex(response["payloads"][-1]) for response in vector["responses"]]


@pytest.mark.parametrize("limit", [256, 4])
def test_auto(limit):
    """Auto chooses what it always chose."""
    for vector in load("auto.json"):
        if vector["max_bytes"] == limit:
            chosen = mechanisms.make("auto", domain_size=vector["domain_size"], epsilon=vector["epsilon"], max_bytes=limit)
            assert chosen.canonical == vector["canonical"]


@pytest.mark.parametrize("vector", load("permanent.json")["steps"], ids=lambda v: f"{v['mechanism']}-{v['domain_size']:.3g}")
def test_both_steps_of_chains(vector):
    """Permanent responses, and the reports drawn from them, are what they were: a device may keep the former for years."""
    script = runpy.run_path(str(VECTORS / "generate.py"))["Script"]
    mechanism = mechanisms.make(
        vector["mechanism"], domain_size=vector["domain_size"], epsilon=vector["epsilon"], **vector["options"]
    )
    assert str(mechanism.permanent_ratio) == vector["permanent_ratio"]
    assert mechanism.kept_responses == vector["kept_responses"]
    for draw in vector["drawn"]:
        source = script(draw["seed"])
        response = mechanism.respond_permanently(draw["row"], draw["value"], source)
        assert mechanism.layout.pack(draw["row"], response).hex() == draw["kept"]
        assert [mechanism.respond_instantly(draw["row"], response, source).hex() for _ in draw["reports"]] == draw["reports"]
        assert mechanism.response_key(draw["row"], draw["value"]) == draw["response_key"]


def test_auto_with_permanent_responses():
    """Auto chooses what it always chose, with permanent responses too, and its grid meets what it can choose."""
    vectors = load("permanent.json")["auto"]
    for vector in vectors:
        fields = {name: vector[name] for name in ("domain_size", "epsilon", "permanent", "max_bytes")}
        if vector["canonical"] is None:
            with pytest.raises(ParameterError):
                mechanisms.choose(**fields)
        else:
            assert mechanisms.choose(**fields).mechanism.canonical == vector["canonical"]
    chosen = {vector["canonical"] and vector["canonical"].split()[0] for vector in vectors}
    assert chosen >= {"l_grr", "l_osue", "loloha", None}


def test_every_mechanism_has_vectors():
    """No mechanism is without vectors, and auto's grid meets each that it can choose."""
    others = {"google_rappor", "pem", "tree_hist"}  # which need parameters, or search
    assert {vector["mechanism"] for vector in load("mechanisms.json")} == {*mechanisms.names(), *others}
    assert {vector["mechanism"] for vector in load("scores.json")} == {*mechanisms._NUMBERS, *mechanisms._SETS}
    chosen = {vector["canonical"].split()[0] for vector in load("auto.json")}
    assert {"binary", "grr", "subset", "pgr"} <= chosen


@pytest.mark.parametrize("vector", load("reports.json")["fingerprints"], ids=lambda v: f"{v['id']}-{v['version']}")
def test_fingerprints(vector):
    """A metric's fingerprint is what it was."""
    fields = {key: vector[key] for key in ("id", "version", "type", "epsilon", "mechanism", "period")}
    metric = Metric(values=tuple(vector["values"]), segments=tuple(vector["segments"]), **fields)
    assert mechanisms.of(metric).canonical == vector["canonical"]
    assert fingerprint(metric, vector["canonical"]) == vector["fingerprint"]


def test_the_body_of_a_batch():
    """A batch is written as it was."""
    vector = load("reports.json")
    strata = [Stratum(*stratum) for stratum in vector["strata"]]
    body = encode("shop", (Report(strata[i], bytes.fromhex(payload)) for i, payload in vector["reports"]))
    assert body.decode() == vector["body"]


@pytest.mark.parametrize("vector", load("layouts.json")["refused"], ids=lambda v: f"{v['layout']}-{v['payload']}")
def test_refused_payloads(vector):
    """What must be refused is, with its code."""
    with pytest.raises(PayloadError) as caught:
        Layout(*vector["layout"]).unpack(bytes.fromhex(vector["payload"]))
    assert caught.value.code == vector["code"]


@pytest.mark.parametrize("vector", load("layouts.json")["taken"], ids=lambda v: f"{v['layout']}-{v['payload']}")
def test_taken_payloads(vector):
    """What must be taken is read as it was, and written the same."""
    layout, payload = Layout(*vector["layout"]), bytes.fromhex(vector["payload"])
    assert layout.unpack(payload) == (vector["row"], vector["content"])
    assert layout.pack(vector["row"], vector["content"]) == payload


@pytest.mark.slow("writes every vector anew")
def test_the_generator_writes_these_files():
    """The generator, run today, would write the files byte for byte."""
    documents = runpy.run_path(str(VECTORS / "generate.py"))["documents"]()
    assert set(documents) == {path.name for path in VECTORS.glob("*.json") if path.name in documents}
    for name, text in documents.items():
        assert (VECTORS / name).read_text("utf-8") == text, f"{name} has changed: this breaks devices in the field"
