"""What a registry may say of reports that a relay mixes, and who refuses the rest."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256

import pytest
from mixing import NUMBER, PUBLIC, RELAY, SHUFFLED, mixed_toml, relay_toml
from registries import metric_toml, registry_toml
from wire_page import rows

from deniable.commands import entry as cli
from deniable.commands.sheet import sheet
from deniable.declared import Declared
from deniable.errors import ParameterError, RegistryError
from deniable.explanation import Explanation
from deniable.limits.allowance import Allowance
from deniable.limits.caps import budget_of, exceeding
from deniable.lint import lint
from deniable.registry import parse, published
from deniable.registry.comparison import diff
from deniable.registry.relay import Relay, Shuffled
from deniable.registry.tables import Caps
from deniable.served_registry.derivation import derived

PLATFORM = {"platform": ["linux", "macos", "windows"]}
KEY = RELAY["key"]
OTHER_KEY = KEY.replace("OUjP", "OUjQ")


@pytest.fixture
def linted(tmp_path):
    """Lint a text as a file; return the rules of its faults."""

    def run(text, users=None):
        path = tmp_path / "metrics.toml"
        path.write_text(text, "utf-8")
        findings = lint(path, users)
        return [fault.rule for fault in findings.faults], findings

    return run


def test_what_is_read():
    """A decimal has one form however it is written, and the key of the server its number."""
    declared = parse(relay_toml(mixed_toml(shuffled={"min": 10_000, "delta": 1e-8, "central": 0.30})))
    assert declared.metrics["m"].shuffled == Shuffled(min=10_000, delta="0.00000001", central="0.3")
    assert (declared.relay.operator, declared.relay.number, declared.relay.public_key) == ("Example Foundation", NUMBER, PUBLIC)
    assert parse(registry_toml(metric_toml("m"))).metrics["m"].shuffled is None


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"shuffled": 3}, "shuffled: write a table such as { min = 10000, delta = 1e-8, central = 0.3 }"),
        ({"shuffled": {"min": 10_000, "central": 0.3}}, "shuffled.delta is missing"),
        ({"shuffled": SHUFFLED | {"more": 1}}, "shuffled.more is no key of shuffled"),
        ({"shuffled": SHUFFLED | {"min": 1}}, "shuffled.min: write how many reports a relay mixes at least"),
        ({"shuffled": SHUFFLED | {"min": 1e4}}, "shuffled.min: write how many reports"),
        ({"shuffled": SHUFFLED | {"delta": 1e-5}}, "shuffled.delta: write 1.0e-6 or less, 1 / (100 min)"),
        ({"shuffled": SHUFFLED | {"delta": 0.0}}, "shuffled.delta: write a probability such as 1e-8"),
        ({"shuffled": SHUFFLED | {"central": "0,3"}}, "shuffled.central: write a number of nats above 0"),
        ({"shuffled": SHUFFLED | {"central": 3.0}}, "shuffled.central: write less than 3, the epsilon of a report alone"),
        ({"epsilon_permanent": 3}, "shuffled: remove it, or epsilon_permanent"),
        ({"per_period": 2}, "per_period: write 1 with shuffled"),
    ],
)
def test_what_a_metric_may_not_say(change, rule):
    """Each fault is named, with its line."""
    with pytest.raises(RegistryError) as refused:
        parse(relay_toml(mixed_toml(**change)))
    (fault,) = refused.value.faults
    assert (fault.metric, fault.rule.startswith(rule)) == ("m", True), fault.rule
    assert fault.line


@pytest.mark.parametrize(
    ("relay", "rule"),
    [
        ({}, "shuffled: declare who mixes its reports"),
        ({"operator": "Example"}, "relay.key is missing"),
        (RELAY | {"operator": " "}, "relay.operator: write who runs the relay"),
        (RELAY | {"operator": "two\nlines"}, "relay.operator: write who runs the relay"),
        (RELAY | {"keys": "1"}, "relay.keys is no key of [relay]: write key"),
        *((RELAY | {"key": key}, "relay.key: write what `deniable registry") for key in ("", "1:AAAA", KEY[2:])),
        # Other ways to write the same bytes or number would mark a device.
        *((RELAY | {"key": key}, "relay.key: write") for key in (f"0{KEY}", f"{KEY[:-2]}1=", f"256{KEY[1:]}")),
    ],
)
def test_what_a_relay_may_not_be(relay, rule):
    """Its operator has a name, and its key one way to be written."""
    with pytest.raises(RegistryError) as refused:
        parse(relay_toml(relay=relay))
    assert [fault.rule.startswith(rule) for fault in refused.value.faults] == [True], refused.value


def test_the_claim_is_part_of_the_fingerprint():
    """A relay or a server that claims another crowd, or none, refuses the reports; metrics without it keep their fingerprints."""
    mixed = parse(relay_toml()).metrics["m"]
    plain = replace(mixed, shuffled=None)
    others = [
        replace(mixed, shuffled=replace(mixed.shuffled, **change))
        for change in ({"min": 9999}, {"delta": "1e-9"}, {"central": "0.31"})
    ]
    fingerprints = [Declared.of(metric).fingerprint for metric in (plain, mixed, *others)]
    assert len(set(fingerprints)) == 5
    (row,) = rows("mixed meaning")
    assert fingerprints[1] == row["fingerprint"] == sha256(row["what is hashed"].encode()).hexdigest()[:16]


def test_its_meaning_never_changes():
    """Another claim, or none, breaks what is published unless the version is raised."""
    before, without = parse(relay_toml()), parse(registry_toml(metric_toml("m", epsilon=3, period="month")))
    for after in (parse(relay_toml(mixed_toml(shuffled=SHUFFLED | {"min": 20_000}))), replace(without, relay=before.relay)):
        for one, other in ((before, after), (after, before)):
            (change,) = diff(one, other)
            assert change.breaking
            assert "raise version to 2" in change.what
    assert (
        "shuffled was { min = 10000, delta = 1e-08, central = 0.3 }, is None"
        in diff(before, replace(without, relay=before.relay))[0].what
    )


def test_a_key_has_its_number_for_good(tmp_path):
    """Reports begin with it, so that it is known which private key opens them."""
    before = parse(relay_toml())
    changed = replace(before, relay=Relay(operator=before.relay.operator, key=OTHER_KEY))
    (change,) = diff(before, changed)
    assert (change.breaking, change.what) == (True, "another public key has number 7: write it as number 8")
    (change,) = diff(before, replace(before, relay=Relay(operator="Other", key=before.relay.key)))
    assert (change.breaking, "ask them again" in change.what) == (False, True)
    (change,) = diff(before, replace(before, relay=Relay(operator=before.relay.operator, key=OTHER_KEY.replace("7:", "8:"))))
    assert (change.breaking, "keep private key 7" in change.what) == (False, True)
    (tmp_path / "0001.toml").write_text(relay_toml(), "utf-8")
    (tmp_path / "0002.toml").write_text(relay_toml(relay=RELAY | {"key": OTHER_KEY}), "utf-8")
    with pytest.raises(RegistryError, match=r"relay.key = 7: write it with another number; .*0001.toml has another key"):
        published.load(tmp_path)


def test_no_server_hands_out_a_key_or_a_claim():
    """What is signed for devices has neither, and what changes one of them is refused: a key for one device would mark it."""
    app = parse(relay_toml().replace('app = "shop"', 'app = "shop"\nrevision = 1'))
    text = derived(app, app).write()
    assert RELAY["key"] not in text
    assert "shuffled" not in text
    for change in (
        {"relay": Relay(operator="Example Foundation", key=OTHER_KEY)},
        {"metrics": {"m": replace(app.metrics["m"], shuffled=None)}},
    ):
        with pytest.raises(RegistryError, match="devices keep what the app has"):
            derived(app, replace(app, **change))


def test_the_ledger_counts_the_local_epsilon():
    """What a device spends does not depend on who mixes."""
    mixed, plain = parse(relay_toml()), parse(registry_toml(metric_toml("m", epsilon=3, period="month")))
    costs = [Allowance.of(Declared.of(each.metrics["m"]), budget_of(each)).cost for each in (mixed, plain)]
    assert costs[0] == costs[1] >= 3_000_000


@pytest.mark.parametrize(
    ("caps", "allowed"),
    [
        (Caps(), False),
        (Caps(epsilon=5), True),
        (Caps(shuffled_epsilon=5), True),
        (Caps(epsilon=6, shuffled_epsilon=4), False),
        (Caps(shuffled_epsilon=5, metrics={"m": 4}), False),
    ],
)
def test_more_is_allowed_by_words_of_its_own(caps, allowed):
    """A larger local epsilon of mixed reports has a cap of its own, which no other metric has; a metric's own cap holds."""
    mixed = Declared.of(parse(relay_toml(mixed_toml(epsilon=4.5))).metrics["m"])
    assert bool(list(exceeding([mixed], caps, "the app's Caps"))) is not allowed
    plain = Declared.of(parse(registry_toml(metric_toml("m", epsilon=4.5, period="month"))).metrics["m"])
    assert bool(list(exceeding([plain], Caps(shuffled_epsilon=5), "the app's Caps")))
    with pytest.raises(ParameterError, match="shuffled_epsilon = 0: write a number of nats"):
        Caps(shuffled_epsilon=0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"min": 100}, ["100 reports are too few for anything less than 3 at delta 1e-08: write min = 9100"]),
        (
            {"central": 0.2},
            ["10,000 reports give 0.29 at delta 1e-08, and 0.2 is declared: write central = 0.29, or min = 20000"],
        ),
    ],
)
def test_a_claim_that_is_not_proved_is_refused(linted, change, expected):
    """The reports that a pool has at least must give the central epsilon that is declared; lint says what would."""
    pytest.importorskip("scipy", reason="deniable[aggregator] is not installed")
    rules, findings = linted(relay_toml(mixed_toml(shuffled=SHUFFLED | change)))
    assert rules == [f"shuffled.central: {rule}" for rule in expected]
    assert "epsilon 3 holds for anyone who sees a report; the server learns at most" in findings.notes[0].facts["mixed"]


def test_where_nothing_can_check_a_claim_it_is_refused(linted, monkeypatch):
    """Without numpy and scipy, lint does not take the word of the file."""
    monkeypatch.setattr("deniable.lint.entry_points", lambda group: [])  # noqa: ARG005
    rules, _ = linted(relay_toml())
    assert rules == ["shuffled: here nothing can check its central epsilon: pip install 'deniable[aggregator]'"]

    class Broken:
        def load(self):
            raise ModuleNotFoundError(name="scipy")

    monkeypatch.setattr("deniable.lint.entry_points", lambda group: [Broken()])  # noqa: ARG005
    assert linted(relay_toml())[0] == rules


@pytest.mark.parametrize(
    ("segments", "sample", "users", "enough"),
    [
        ([], 1, 9_999, False),
        ([], 1, 10_000, True),
        (["platform"], 1, 29_999, False),
        (["platform"], 1, 30_000, True),
        ([], 0.5, 19_999, False),
        ([], 0.5, 20_000, True),
    ],
)
def test_segments_that_split_a_crowd_are_refused(linted, segments, sample, users, enough):
    """So many users, spread evenly over segments and sampled, must fill each pool. What lint says is needed is enough."""
    pytest.importorskip("scipy", reason="deniable[aggregator] is not installed")
    text = relay_toml(mixed_toml(segments=segments, sample=sample), segments=PLATFORM)
    rules, findings = linted(text, users)
    assert bool(rules) is not enough
    needed = int(findings.notes[0].facts["mixed"].partition(" users who")[0].rpartition(" ")[2].replace(",", ""))
    assert linted(text, needed)[0] == []
    assert linted(text, needed - 1)[0] != []


def test_lint_warns_of_a_pool_that_cannot_be_published(linted):
    """Its results would wait for more reports than a pool has."""
    _, findings = linted(relay_toml(mixed_toml(min_reports=20_000)))
    assert any("below min_reports a pool may be too small" in warning.rule for warning in findings.warnings)
    _, findings = linted(relay_toml(metric_toml("m")))
    assert any("no metric has `shuffled`" in warning.rule for warning in findings.warnings)


def test_the_sheet_has_it():
    """A client in another language sees that reports must be sealed, to whom and by whom they are mixed."""
    written = json.loads(json.dumps(sheet(parse(relay_toml(mixed_toml(), metric_toml("n"))))))
    assert written["relay"] == RELAY
    assert written["metrics"]["m"]["shuffled"] == {"min": 10_000, "delta": "0.00000001", "central": "0.3"}
    assert written["metrics"]["n"]["shuffled"] is None


def test_an_explanation_says_both_figures_the_local_one_first():
    """And on what the second rests, and who mixes."""
    declared = parse(relay_toml())
    words = str(Explanation.of(declared, "m", budget_of(declared)))
    local, central = words.index("at most 20.1 times (epsilon 3)"), words.index("at most 1.35 times (epsilon 0.3)")
    assert local < words.index("Example Foundation mixes it with at least 9,999 others") < central
    assert "do not work together, which nobody can check" in words
    plain = parse(registry_toml(metric_toml("m", epsilon=3, period="month")))
    assert "relay" not in str(Explanation.of(plain, "m", budget_of(plain)))


def test_a_key_pair_is_drawn_by_the_command(tmp_path, capsys):
    """Its public half is what [relay] takes; the private one is in the file, which only its owner reads."""
    pytest.importorskip("cryptography.hazmat.primitives.hpke", reason="deniable[relay] is not installed")
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    out = tmp_path / "seal.pem"
    assert cli.main(["registry", "keygen", "--sealing", "3", "--out", str(out)]) == 0
    key = capsys.readouterr().out.strip()
    relay = Relay(operator="Example", key=key)
    private = load_pem_private_key(out.read_bytes(), password=None)
    assert (relay.number, relay.public_key) == (3, private.public_key().public_bytes_raw())
    assert cli.main(["registry", "keygen", "--sealing", "256", "--out", str(tmp_path / "b.pem")]) == 2
    assert "number keys from 1 to 255" in capsys.readouterr().err
