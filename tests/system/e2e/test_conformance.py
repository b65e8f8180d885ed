"""The conformance suite: our SDK passes it, a client with a mistake does not, and its files are what the generator writes."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from deniable.commands.entry import main
from deniable.conformance import scripts
from deniable.conformance.adapter import Adapter
from deniable.errors import ConfigurationError

ROOT = Path(__file__).parents[3]
ADAPTER = str(ROOT / "tests" / "support" / "sdk_adapter.py")


def test_our_sdk_conforms(capsys):
    """It passes every script of every level, and refuses none."""
    assert main(["conformance", "--", sys.executable, ADAPTER]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "deniable for Python, which claims level 4"
    passed = [int(line.split(": ")[1].split(" passed")[0]) for line in printed[1:5]]
    assert sum(passed) == len(scripts.load()) > 600
    assert all(line.endswith(" passed, 0 failed, 0 refused") for line in printed[1:5])


@pytest.mark.parametrize(
    ("mistake", "script"),
    [
        ("report", "vectors, report grr (level 1)"),
        ("consent", "device, no consent, and consent that is withdrawn (level 1)"),
        ("waiting", "device, no consent, and consent that is withdrawn (level 1)"),
    ],
)
def test_a_mistake_is_found(mistake, script, capsys):
    """A client that gives a wrong payload, ignores a no, or loses reports does not conform, and the script is named."""
    assert main(["conformance", "--level", "1", "--", sys.executable, ADAPTER, mistake]) == 1
    printed = capsys.readouterr()
    assert script in printed.err
    assert printed.out.endswith("it does NOT conform\n")


@pytest.mark.parametrize("mistake", ["same", "segment", "plain"])
def test_what_is_not_sealed_as_it_must_be_is_found(mistake, capsys):
    """Two reports with one key pair, one that is bound to another segment, and one that is not sealed."""
    assert main(["conformance", "--", sys.executable, ADAPTER, f"seal-{mistake}"]) == 1
    assert "sealed, seal ui.theme (level 4)" in capsys.readouterr().err


def test_what_a_client_claims_it_must_not_refuse(capsys):
    """What is refused is named, and one of the level that is claimed is one too many."""
    assert main(["conformance", "--level", "2", "--", sys.executable, ADAPTER, "respond"]) == 1
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "level 2 (permanent responses)" in printed.out
    assert "refused: respond" in printed.out


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["absent-adapter"], "'absent-adapter' cannot be started"),
        ([sys.executable, "-c", "print('[]')"], "answered '[]', which is no object of JSON, when it was asked"),
        ([sys.executable, "-c", "print('{}')"], "answers `hello` with protocol 1, client and level, not {}"),
        ([sys.executable, "-c", "pass"], "ended, or gave no answer in time"),
        ([sys.executable, ADAPTER, "key"], "ended, or gave no answer in time"),
    ],
)
def test_an_adapter_that_does_not_answer(command, why, capsys):
    """It is printed what it did instead."""
    assert main(["conformance", "--level", "1", "--", *command]) == 2
    assert why in capsys.readouterr().err


def test_an_adapter_that_ended_before_it_was_asked():
    """It is the same error, whether it ends before it has read the question or after."""

    def ask_too_late():
        with Adapter([sys.executable, "-c", ""]) as adapter:
            adapter._process.wait()
            adapter.ask({"do": "hello"})

    with pytest.raises(ConfigurationError, match="ended, or gave no answer"):
        ask_too_late()


def test_the_generator_writes_the_vectors():
    """The generator, run today, would write the files byte for byte: what has changed breaks clients in the field."""
    documents = runpy.run_path(str(ROOT / "tests" / "vectors" / "conformance.py"))["documents"]()
    folder = Path(scripts.__file__).with_name("vectors")
    assert {path.name for path in folder.glob("*.json")} == set(documents)
    for name, text in documents.items():
        assert (folder / name).read_text("utf-8") == text, name
