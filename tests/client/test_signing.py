"""``deniable registry keygen | sign | verify``: what they write, print and refuse."""

from __future__ import annotations

import json
import os
import stat
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from deniable.commands import entry as cli
from deniable.served_registry.signature import Envelope, seal

pytest.importorskip("cryptography", reason="deniable[signed] is not installed")

SOUND = """
format = 1
revision = 3
app = "shop"
[metrics.a]
type = "categorical"
values = ["x", "y", "z"]
epsilon = 1
expires = 2999-01-01
description = "d"
owner = "o"
"""


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run `deniable registry` in a directory of its own; return status, output and errors."""
    monkeypatch.chdir(tmp_path)

    def main(*arguments):
        status = cli.main(["registry", *arguments])
        return status, *capsys.readouterr()

    return main


@pytest.fixture
def key(run):
    """Draw a key pair, and return the public key."""
    status, out, err = run("keygen", "--out", "key.pem")
    assert (status, err) == (0, "")
    return out.strip()


def write(text=SOUND, name="metrics.toml"):
    Path(name).write_bytes(text.encode())  # as it is, to the ends of its lines
    return name


def test_a_private_key_is_its_owners_alone(run, key):
    """It is written once, readable by nobody else; the public key is printed, and nothing more."""
    assert len(key) == 44
    if os.name == "posix":
        assert stat.S_IMODE(Path("key.pem").stat().st_mode) == 0o600
    status, out, err = run("keygen", "--out", "key.pem")
    assert (status, out) == (2, "")
    assert "key.pem is there already, and is left alone; name a new file" in err


TEXT = '{"app":"shop","metrics":{"a":{"sample":"1","until":"2999-01-01"}},"revision":3}'
SIGN = ("sign", "metrics.toml", "--against", "app.toml", "--key", "key.pem")


def test_what_is_signed_can_be_verified(run, key):
    """The envelope has a text that is derived from the file; sign and verify print one digest."""
    write(SOUND.replace("\n", "\r\n"))
    write(SOUND, "app.toml")
    status, out, _ = run(*SIGN, "--valid-for", "30d")
    assert status == 0
    until = datetime.now(UTC).date() + timedelta(days=30)
    envelope = Envelope.read(Path("metrics.signed.json").read_bytes())
    assert envelope.text == TEXT
    expected = f"metrics.signed.json: revision 3, valid until {until}, SHA-256 of the text {envelope.digest}, public key {key}"
    assert out.splitlines()[-1] == expected
    status, out, err = run("verify", "metrics.signed.json", "--public-key", key)
    line = f"metrics.signed.json: revision 3 of shop, valid until {until}, SHA-256 of the text {envelope.digest}\n"
    assert (status, out, err) == (0, line, "")
    status, out, _ = run(*SIGN, "--out", "other.json")
    assert status == 0
    assert "valid without end" in out
    assert out.splitlines()[-1].endswith("--valid-for 30d ends that")
    assert run("verify", "other.json", "--public-key", key, "--against", "app.toml")[0] == 0


TWO = f"""{SOUND}sample = 0.5
period = "month"
[metrics.b]
type = "boolean"
epsilon = 1
period = "month"
description = "d"
owner = "o"
[metrics.c]
type = "boolean"
epsilon = 1
period = "month"
description = "d"
owner = "o"
"""


def test_what_becomes_of_the_metrics_of_an_app_is_told(run, key):
    """Whoever signs, and whoever checks, sees which metrics are turned off or down in an app."""
    write(TWO, "app.toml")
    left, _, _ = TWO.replace("revision = 3", "revision = 4").replace("0.5", "0.25").partition("[metrics.c]")
    write(left)
    lines = ["a: sample 0.25, last day 2999-01-01", "c: off"]
    status, out, _ = run(*SIGN)
    assert (status, [line for line in out.splitlines() if line in lines]) == (0, lines)
    expected = {"a": {"sample": "0.25", "until": "2999-01-01"}, "b": {"sample": "1", "until": None}}
    text = Envelope.read(Path("metrics.signed.json").read_bytes()).text
    assert json.loads(text) == {"app": "shop", "metrics": expected, "revision": 4}
    status, out, _ = run("verify", "--public-key", key, "--against", "app.toml")
    assert (status, out.splitlines()[:-1]) == (0, lines)


def test_an_envelope_whose_days_are_over_is_told(run, key):
    """Devices that have not had it do not use it, so it is an error."""
    old, _ = seal(TEXT, Path("key.pem").read_bytes(), date(2026, 1, 1))
    Path("old.json").write_bytes(old.write())
    status, out, _ = run("verify", "old.json", "--public-key", key)
    assert status == 1
    assert "valid until 2026-01-01" in out


@pytest.mark.parametrize("wrong", ["30", "0d", "12h", "d", "1000d", "-1d"])
def test_a_number_of_days(run, key, wrong):  # noqa: ARG001 - it makes the key
    """Anything else is refused, before anything is written."""
    status, _, err = run(*SIGN, f"--valid-for={wrong}")
    assert (status, "is no number of days: write 1d to 999d" in err) == (2, True)
    assert not Path("metrics.signed.json").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SOUND.replace("epsilon = 1", "epsilon = 99"), "a: epsilon = 99: write a number of nats above 0 and at most 16"),
        (
            SOUND.replace("revision = 3\n", ""),
            "error: metrics.toml:1: revision = 0: write a whole number above 0",
        ),
        (
            SOUND.replace("revision = 3", "revision = 2"),
            "error: metrics.toml:3: revision = 2: write 3 or more; the registry in the app has that",
        ),
        (
            SOUND.replace("epsilon = 1", "epsilon = 0.5"),
            "error: metrics.toml:8: a: epsilon = '0.5': write 1; devices keep what the app has",
        ),
        (
            SOUND.replace("2999-01-01", "2999-01-02"),
            "error: metrics.toml:9: a: expires = '2999-01-02': write 2999-01-01; devices keep what the app has",
        ),
        (SOUND.replace("metrics.a", "metrics.b"), "error: metrics.toml:5: b: the app has no such metric: remove it here"),
    ],
)
def test_what_a_restriction_cannot_say_is_not_signed(run, key, text, words):
    """Nor what has faults of its own: devices would not learn of it. Nothing is written."""
    assert key
    write(SOUND, "app.toml")
    write(text)
    status, out, _ = run(*SIGN)
    assert status == 1
    assert words in out
    assert not Path("metrics.signed.json").exists()


def test_an_envelope_that_devices_would_not_read_is_not_written(run, key, monkeypatch):
    """Its size is bounded."""
    assert key
    write()
    write(SOUND, "app.toml")
    monkeypatch.setattr("deniable.commands.registry.MAX_BYTES", 100)
    status, out, _ = run(*SIGN)
    assert (status, "bytes, and 100 are allowed: turn down fewer metrics" in out) == (1, True)
    assert not Path("metrics.signed.json").exists()


def test_what_cannot_be_read_or_written_is_a_wrong_usage(run, key):
    """Status 2, and which file it was."""
    write()
    write(SOUND, "app.toml")
    for arguments, words in (
        ((*SIGN[:-1], "none.pem"), "none.pem"),
        ((*SIGN[:-1], "metrics.toml"), "a key file is what `deniable registry keygen` writes"),
        ((*SIGN, "--out", "no/such/place"), "no/such/place"),
        (("verify", "none.json", "--public-key", key), "none.json"),
    ):
        status, _, err = run(*arguments)
        assert status == 2
        assert words in err


def test_what_devices_would_refuse_is_not_verified(run, key):
    """Another key, another file, another app's, an older one or another text: status 1 and the rule."""
    write()
    write(SOUND, "app.toml")
    run(*SIGN)
    other = run("keygen", "--out", "other.pem")[1].strip()
    write(SOUND.replace('"shop"', '"blog"'), "blog.toml")
    write(SOUND.replace("revision = 3", "revision = 4"), "later.toml")
    Path("odd.json").write_bytes(seal(SOUND, Path("key.pem").read_bytes())[0].write())
    for arguments, words in (
        (("metrics.signed.json", "--public-key", other), "the signature is of another text, or by another key than the app pins"),
        (("metrics.toml", "--public-key", key), "this is no signed registry: write one with `deniable registry sign`"),
        (("key.pem", "--public-key", key), "this is no signed registry: write one with `deniable registry sign`"),
        (
            ("odd.json", "--public-key", key),
            "its text is no canonical JSON: write names in order and each once, no spaces and no escapes",
        ),
        (
            ("metrics.signed.json", "--public-key", key, "--against", "blog.toml"),
            "app = 'shop': write 'blog', as in the app",
        ),
        (("metrics.signed.json", "--public-key", key, "--against", "later.toml"), "revision = 3: write 4 or more"),
    ):
        status, out, _ = run("verify", *arguments)
        assert status == 1
        assert out.startswith("error: ")
        assert words in out
    status, _, err = run("verify", "metrics.signed.json", "--public-key", "nonsense")
    assert status == 2
    assert "a public key is no base64 of 32 bytes: copy all of it" in err
