"""``deniable registry keygen | sign | verify``: what they write, print and refuse."""

from __future__ import annotations

import os
import stat
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from deniable import cli
from deniable.served_registry.signature import MAX_BYTES, Envelope, seal

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
    assert "cannot be written to a new file" in err


def test_what_is_signed_can_be_verified(run, key):
    """The envelope has the very text, to the ends of its lines; sign and verify print one digest."""
    text = SOUND.replace("\n", "\r\n")
    status, out, _ = run("sign", write(text), "--key", "key.pem", "--valid-for", "30d")
    assert status == 0
    until = datetime.now(UTC).date() + timedelta(days=30)
    envelope = Envelope.read(Path("metrics.signed.json").read_bytes())
    assert envelope.text == text
    expected = f"metrics.signed.json: revision 3, valid until {until}, SHA-256 of the text {envelope.digest}, public key {key}"
    assert out.splitlines()[-1] == expected
    status, out, err = run("verify", "metrics.signed.json", "--public-key", key)
    told = f"metrics.signed.json: revision 3 of shop, valid until {until}, SHA-256 of the text {envelope.digest}\n"
    assert (status, out, err) == (0, told, "")
    status, out, _ = run("sign", "metrics.toml", "--key", "key.pem", "--out", "other.json")
    assert status == 0
    assert "valid without end" in out
    assert out.splitlines()[-1].endswith("--valid-for 30d ends that")
    assert run("verify", "other.json", "--public-key", key, "--against", "metrics.toml")[0] == 0


def test_an_envelope_whose_days_are_over_is_told(run, key):
    """Devices that have not had it do not use it, so it is an error."""
    old, _ = seal(SOUND, Path("key.pem").read_bytes(), date(2026, 1, 1))
    Path("old.json").write_bytes(old.write())
    status, out, _ = run("verify", "old.json", "--public-key", key)
    assert status == 1
    assert "valid until 2026-01-01" in out


@pytest.mark.parametrize("wrong", ["30", "0d", "12h", "d", "1000d", "-1d"])
def test_a_number_of_days(run, key, wrong):  # noqa: ARG001 - it makes the key
    """Anything else is refused, before anything is written."""
    status, _, err = run("sign", write(SOUND), "--key", "key.pem", f"--valid-for={wrong}")
    assert (status, "a number of days from 1d to 999d" in err) == (2, True)
    assert not Path("metrics.signed.json").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SOUND.replace("epsilon = 1", "epsilon = 99"), "error: metrics.toml:8: a: epsilon is a number of nats"),
        (SOUND.replace("revision = 3\n", ""), "a registry that is served has a revision"),
        (SOUND.replace('"d"', f'"{"d" * MAX_BYTES}"'), f"an envelope has at most {MAX_BYTES} bytes"),
    ],
)
def test_a_registry_that_devices_would_refuse_is_not_signed(run, key, text, words):
    """Faults, a missing revision and a size beyond all bounds come before the key is used."""
    assert key
    status, out, _ = run("sign", write(text), "--key", "key.pem")
    assert status == 1
    assert words in out
    assert not Path("metrics.signed.json").exists()


def test_what_cannot_be_read_or_written_is_a_wrong_usage(run, key):
    """Status 2, and which file it was."""
    write()
    for arguments, words in (
        (("sign", "metrics.toml", "--key", "none.pem"), "none.pem"),
        (("sign", "metrics.toml", "--key", "metrics.toml"), "a key file is what `deniable registry keygen` writes"),
        (("sign", "metrics.toml", "--key", "key.pem", "--out", "no/such/place"), "no/such/place"),
        (("verify", "none.json", "--public-key", key), "none.json"),
    ):
        status, _, err = run(*arguments)
        assert status == 2
        assert words in err


def test_what_devices_would_refuse_is_not_verified(run, key):
    """Another key, another file, or another question than the app's own: status 1 and the rule."""
    run("sign", write(), "--key", "key.pem")
    other = run("keygen", "--out", "other.pem")[1].strip()
    write(SOUND.replace("epsilon = 1", "epsilon = 0.5"), "ours.toml")
    for arguments, words in (
        (("metrics.signed.json", "--public-key", other), "the signature is of this text, by the key that the app pins"),
        (("metrics.toml", "--public-key", key), "a served registry is signed"),
        (("key.pem", "--public-key", key), "this is no envelope"),
        (("metrics.signed.json", "--public-key", key, "--against", "ours.toml"), "a: epsilon is as in the app: 0.5; got '1'"),
    ):
        status, out, _ = run("verify", *arguments)
        assert status == 1
        assert out.startswith("error: ")
        assert words in out
    status, _, err = run("verify", "metrics.signed.json", "--public-key", "nonsense")
    assert status == 2
    assert "a public key is the base64 of 32 bytes" in err
