"""What one report says of the answer, in words: for each way to name answers, and only of a definition that still holds."""

from __future__ import annotations

from fractions import Fraction

import pytest
from registries import metric_toml, registry_toml

from deniable import mechanisms, proof
from deniable.declared import Declared
from deniable.device.journal import SentReport
from deniable.evidence import report_names, with_names
from deniable.mechanisms.base import TwoSided
from deniable.mechanisms.sets.sampled_options import Sampled
from deniable.registry import parse

SIX = ["jpeg", "png", "raw", "tiff", "webp", "gif"]


def declared(**keys) -> Declared:
    return Declared.of(parse(registry_toml(metric_toml("m", **keys), caps={})).metrics["m"])


@pytest.mark.parametrize(
    ("keys", "content", "names"),
    [
        ({"values": SIX, "mechanism": "grr"}, (0, 2), "raw"),
        ({"values": SIX, "mechanism": "l_grr", "epsilon_permanent": 1}, (0, 0), "jpeg"),
        ({}, (0, 1), "yes"),
        ({"values": SIX, "mechanism": "oue"}, (0, 0b000101), "jpeg or raw"),
        ({"values": SIX, "mechanism": "oue"}, (0, 0b010101), "jpeg, raw or webp"),
        ({"values": [*SIX, "bmp"], "mechanism": "oue"}, (0, 0b0111111), "jpeg, png, raw, tiff or 2 more"),
        ({"values": SIX, "mechanism": "oue"}, (0, 0), ""),
        ({"values": SIX, "mechanism": "oue"}, (0, 0b111111), ""),
        ({"type": "set", "values": SIX}, (1, 1), "png: yes"),
        ({"type": "set", "values": SIX}, (5, 0), "gif: no"),
        ({"type": "set", "values": ["a", "b", "c"], "joint": True}, (1, 0b10), "a: no, c: yes"),
        ({"type": "set", "values": SIX, "epsilon": 4}, (5, 0b101), "gif: yes, jpeg: no, png: yes"),
        ({"type": "set", "values": SIX, "most": 2}, (0, 0b000101), "jpeg or raw"),
        ({"type": "set", "values": SIX, "most": 2}, (0, 0), ""),
        ({"type": "product", "factors": {"a": ["x", "y"], "b": ["no", "yes"]}, "mechanism": "grr"}, (0, 3), "y, yes"),
        ({"range": [0, 9], "unit": "s", "estimate": "mean"}, (0, 1), "0 to 0.562 s"),
        ({"values": SIX, "mechanism": "dbitflip", "epsilon_permanent": 1}, (0, 1), ""),
    ],
)
def test_what_a_report_names(keys, content, names):
    """One answer, several, or what it says of an option. Nothing where all answers fit alike, or a report names none."""
    metric = declared(**keys)
    assert report_names(metric, metric.layout.pack(*content)) == names


@pytest.mark.parametrize("name", mechanisms.names())
def test_what_a_report_supports_is_what_makes_it_likelier(name):
    """Each supported answer makes the report `ratio` times as likely as each other one, by walking all draws."""
    size = 2 if name in ("binary", "coin") else 4
    mechanism = mechanisms.make(name, domain_size=size, epsilon="1.2")
    masses = [proof.distribution(lambda tape, v=value: mechanism.randomize(v, source=tape)) for value in range(size)]
    two_kinds = isinstance(mechanism, TwoSided | Sampled)
    for payload in masses[0]:
        held = mechanism.supporting(payload, range(size))
        assert (held is not None) == two_kinds
        if held:
            chances = [mass[payload] for mass in masses]
            assert {place for place, chance in enumerate(chances) if chance == max(chances)} == held
            assert len(held) == size or max(chances) == mechanism.ratio * min(chances)


@pytest.mark.parametrize(("blocks", "length"), [(1, 3), (2, 2), (3, 4)])
def test_a_report_of_a_number_names_the_part_that_it_speaks_for(blocks, length):
    """The points within it give the report with the larger odds, and no others do."""
    mechanism = mechanisms.make("window", domain_size=blocks * length + 1, epsilon=1, blocks=blocks, length=length)
    masses = [
        proof.distribution(lambda tape, v=value: mechanism.randomize(v, source=tape)) for value in range(blocks * length + 1)
    ]
    for payload in masses[0]:
        low, high = mechanism.window_of(payload)
        most = max(mass[payload] for mass in masses)
        named = [Fraction(point, blocks * length) for point, mass in enumerate(masses) if mass[payload] == most]
        assert (low, high) == (named[0], named[-1])
        assert len(named) <= length
    metric = metric_toml("m", range=[10, 110], unit="euro", estimate="distribution", epsilon=1)
    declared = Declared.of(parse(registry_toml(metric)).metrics["m"])
    cells = declared.layout.width
    assert report_names(declared, declared.layout.pack(0, 0)) == "10 euro"
    assert report_names(declared, declared.layout.pack(0, cells - 1)).endswith("110 euro")


def test_only_the_definition_that_made_a_report_says_what_it_means():
    """Another order of the answers would name another one."""
    text = registry_toml(metric_toml("m", values=SIX, mechanism="grr"), caps={})
    registry = parse(text)
    fingerprint = Declared.of(registry.metrics["m"]).fingerprint
    entry = SentReport("m", 1, "2026-11", "", "02", fingerprint, sealed=False)
    (named,) = with_names([entry], registry)
    assert str(named) == "m for 2026-11: says raw, sent as bytes 02"
    changed = parse(text.replace('"jpeg", "png"', '"png", "jpeg"'))
    other = parse(text.replace("metrics.m", "metrics.other").replace('metrics."m"', "metrics.other"))
    damaged = SentReport("m", 1, "2026-11", "", "ffff", fingerprint, sealed=False)
    assert with_names([entry], changed) == with_names([entry], other) == [entry]
    assert with_names([damaged], registry) == [damaged]
