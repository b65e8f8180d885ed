"""The command: exit statuses and what it prints."""

from __future__ import annotations

import json
from fractions import Fraction
from importlib.metadata import EntryPoint

import pytest

from deniable import mechanisms
from deniable.commands import entry as cli
from deniable.errors import ConfigurationError
from deniable.exact.epsilon import UNIT, weight

SOUND = """
format = 1
app = "shop"
budget = { lifetime = 320 }
[metrics.a]
type = "categorical"
values = ["x", "y", "z"]
other = "z"
epsilon = 1
period = "month"
expires = 2999-01-01
description = "d"
owner = "o"
"""


@pytest.fixture
def file(tmp_path):
    """Write a registry and return its path."""

    def write(text: str = SOUND, name: str = "metrics.toml") -> str:
        (tmp_path / name).write_text(text, "utf-8")
        return str(tmp_path / name)

    return write


@pytest.fixture
def run(capsys):
    """Run the command and return its status, output and errors."""

    def main(*arguments: str) -> tuple[int, str, str]:
        status = cli.main(arguments)
        return status, *capsys.readouterr()

    return main


def test_lint_of_a_sound_file(run, file):
    """Without faults the status is 0 and each metric's mechanism is explained, in short lines."""
    status, out, err = run("registry", "lint", file())
    assert (status, err) == (0, "")
    metric, mechanism, *_ = out.splitlines()
    assert (metric, mechanism) == ("a", "  mechanism      grr: standard error 1.21 / sqrt(n), 1 byte a report")
    *_, verdict, space = out.splitlines()
    assert verdict.endswith(": 0 errors, 0 warnings")
    assert ": sums and releases take at most " in space
    assert max(map(len, out.splitlines()[:-2])) <= 100


def test_lint_of_warnings(run, file):
    """Warnings do not fail."""
    status, out, _ = run("registry", "lint", file("caps = { epsilon = 5 }\n" + SOUND.replace("epsilon = 1", "epsilon = 5")))
    assert status == 0
    assert "warning: " in out
    assert out.splitlines()[-2].endswith(": 0 errors, 1 warning")


def test_lint_of_faults(run, file):
    """With a fault in one of several files the status is 1 and every file is checked."""
    bad = file(SOUND.replace("epsilon = 1", "epsilon = 99"), "bad.toml")
    status, out, _ = run("registry", "lint", bad, file())
    assert status == 1
    assert f"error: {bad}:9: a: epsilon = 99: write a number of nats above 0 and at most 16\n" in out
    assert f"{bad}: 1 error, 0 warnings" in out
    assert "metrics.toml: 0 errors" in out


@pytest.mark.parametrize(
    "command",
    [
        ("lint",),
        ("show",),
        ("diff", "published.toml"),
        ("publish", "folder"),
        ("sign", "--against", "metrics.toml", "--key", "key.pem"),
    ],
)
def test_the_registry_of_this_folder_needs_no_name(run, file, tmp_path, monkeypatch, command):
    """Each action reads metrics.toml where no file is named; where there is none it says how to get one."""
    if command[0] == "sign":
        pytest.importorskip("cryptography", reason="deniable[signed] is not installed")
    monkeypatch.chdir(tmp_path)
    file(f"revision = 1\n{SOUND}", "published.toml")
    status, out, err = run("registry", *command)
    assert status in (1, 2)
    message = "metrics.toml: the registry is missing: name another file, or have `deniable init` write one"
    assert message in (out + err).splitlines()[0]
    assert (out + err).splitlines()[0].endswith(message)
    file(f"revision = 1\n{SOUND}")
    run("registry", "keygen", "--out", "key.pem")
    assert run("registry", *command)[0] == 0


def test_the_signed_registry_of_this_folder_needs_no_name(run, file, tmp_path, monkeypatch):
    """What sign writes, verify reads."""
    pytest.importorskip("cryptography", reason="deniable[signed] is not installed")
    monkeypatch.chdir(tmp_path)
    file(f"revision = 1\n{SOUND}")
    key = run("registry", "keygen", "--out", "key.pem")[1].strip()
    assert run("registry", "sign", "--against", "metrics.toml", "--key", "key.pem")[0] == 0
    status, out, _ = run("registry", "verify", "--public-key", key, "--against", "metrics.toml")
    assert (status, out[:20]) == (0, "metrics.signed.json:")


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        (SOUND, 0, "0 changes, 0 breaking"),
        (SOUND.replace('"d"', '"e"'), 0, "ok       a: description was 'd', is 'e'"),
        (SOUND.replace("epsilon = 1", "epsilon = 2"), 1, "BREAKING a: epsilon was '1', is '2'; raise version to 2"),
        (SOUND.replace("epsilon = 1", "epsilon = 2\nversion = 2"), 0, "2 changes, 0 breaking"),
    ],
)
def test_diff(run, file, text, status, words):
    """The status of a comparison is 1 where something breaks."""
    outcome, out, _ = run("registry", "diff", file(), file(text, "new.toml"))
    assert outcome == status
    assert words in out


def test_diff_of_a_file_with_itself(run, file, tmp_path, monkeypatch):
    """It would be silent whatever was changed, so it is refused."""
    monkeypatch.chdir(tmp_path)
    file(SOUND)
    message = (
        "metrics.toml is compared with itself: name the published registry first, `deniable registry diff PUBLISHED metrics.toml`"
    )
    for names in (("metrics.toml",), ("./metrics.toml",), ("metrics.toml", tmp_path / "metrics.toml")):
        status, out, err = run("registry", "diff", *map(str, names))
        assert (status, out) == (2, "")
        assert err.startswith("deniable registry: ")
        assert message.removeprefix("metrics.toml") in err.replace(str(names[-1]), "metrics.toml")


@pytest.mark.parametrize("names", [("metrics.toml",), ("metrics.toml", "metrics.toml"), ("new.toml",)])
def test_publishing_without_a_folder(run, file, tmp_path, monkeypatch, names):
    """A file where the folder belongs means that the folder is missing."""
    monkeypatch.chdir(tmp_path)
    file(SOUND)
    message = f"FOLDER is missing: write `deniable registry publish {names[0]} registries`"
    assert run("registry", "publish", *names) == (2, "", f"deniable registry: {message}\n")
    assert [each.name for each in tmp_path.iterdir()] == ["metrics.toml"]


def test_diff_of_a_faulty_file(run, file):
    """A file that cannot be read is a wrong usage: status 2 and the faults on standard error."""
    status, out, err = run("registry", "diff", file(), file("format = 1", "new.toml"))
    assert (status, out) == (2, "")
    assert err.startswith("deniable registry: ")
    assert "app is missing: write a lower-case name in quotes, such as 'shop'" in err


def test_explain(run, file):
    """A metric is explained in words, with an example where an answer is given; what is not declared counts as the other."""
    path = file(SOUND.replace('["x", "y", "z"]', '["z", "canary"]'))
    status, out, _ = run("explain", "a", "canary", "--registry", path)
    assert status == 0
    assert "at most 2.72 times (epsilon 1)" in out
    words = [f"might look like this: it says {name}, sent as bytes 0{place}\n" for place, name in enumerate(("z", "canary"))]
    assert any(each in out for each in words)
    assert "look like this" not in run("explain", "a", "--registry", path)[1]
    status, out, _ = run("explain", "a", "canary2", "--registry", path)
    assert (status, out.splitlines()[0]) == (0, "'canary2' is not declared, so it counts as 'z'; did you mean 'canary'?")
    assert run("explain", "nosuch", "--registry", path)[0] == 2


@pytest.mark.parametrize(
    ("table", "answer"),
    [
        ('type = "boolean"', "Yes"),
        ('type = "key"\ndiscover = true', "18446744073709551615"),
        ('type = "product"\nfactors = { a = ["x", "y"], b = ["x", "y"] }', "x,y"),
    ],
)
def test_explain_reads_answers(run, file, table, answer):
    """An answer is read as its metric has it."""
    text = f'format = 1\napp = "shop"\n[metrics.a]\n{table}\nepsilon = 1\ndescription = "d"\nowner = "o"\n'
    assert "look like this" in run("explain", "a", answer, "--registry", file(text))[1]
    assert run("explain", "a", "canary", "--registry", file(text))[0] == 2


def test_prove(run):
    """A proof is a line: the mechanism, what was asked, the exact epsilon, the verdict."""
    status, out, _ = run("prove", "grr", "coin", "--domain-size", "2", "3", "--epsilon", "1", "2")
    assert status == 0
    lines = out.splitlines()
    assert len(lines) == 5
    assert all(line.endswith(": proved") for line in lines)
    assert lines[0].startswith("grr         d=2 asked 1: exact epsilon 1.0000000000, 2 payloads")


def test_prove_everything(run):
    """By default every mechanism is proved."""
    status, out, _ = run("prove", "--domain-size", "2", "--epsilon", "1.1")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == [*mechanisms.names(), "window", "sampled_options"]


def test_prove_numbers_and_sets(run):
    """Windows and sets are proved by default, and windows of other shapes with options; no set has three members."""
    status, out, _ = run("prove", "--domain-size", "3", "4", "--epsilon", "1")
    proved = [line.split()[:2] for line in out.splitlines() if line.startswith(("window", "sampled"))]
    assert proved == [["window", "d=3"], ["window", "d=4"], ["sampled_options", "d=4"], ["sampled_pair", "d=4"]]
    assert status == 0
    shape = ("--option", "blocks=2", "--option", "length=3")
    status, out, _ = run("prove", "window", *shape, "--domain-size", "6", "--epsilon", "1")
    assert (status, out) == (0, "window      d=6 asked 1: exact epsilon 1.0000000000, 9 payloads: proved\n")


def test_prove_with_options(run):
    """Mechanisms with options are proved with those given; one that there is not is explained."""
    status, out, _ = run("prove", "pem", "--domain-size", "4", "--epsilon", "1", "--option", "rows=4", "--option", "step=1")
    assert status == 0
    assert out.splitlines() == ["pem         d=4 asked 1: exact epsilon 1.0000000000, 16 payloads: proved"]
    google = ["google_rappor", "--option", "preset=REGTEST_EPS_1_1", "--option", "cohorts=2", "--option", "bits=4"]
    status, out, _ = run("prove", *google, "--domain-size", "5", "--epsilon", "4")
    assert status == 0, out
    status, out, _ = run("prove", "grr", "--option", "rows=4", "--domain-size", "3")
    assert status == 1
    assert "grr d=3 epsilon=0.5: grr has no option rows: its options are none" in out


def test_prove_json(run):
    """With --json each proof is an object."""
    status, out, _ = run("prove", "grr", "--domain-size", "3", "--epsilon", "1", "--json")
    assert status == 0
    proof = json.loads(out)
    assert (proof["mechanism"], proof["domain_size"], proof["asked"], proof["faults"], proof["outputs"]) == ("grr", 3, "1", [], 3)
    assert Fraction(proof["ratio"]) == Fraction(weight(Fraction(1)), UNIT)
    assert proof["epsilon"] == pytest.approx(1)


def test_prove_chains(run):
    """A permanent mechanism's proof also tells the exact epsilon of the permanent response, in a line and in an object."""
    arguments = ("prove", "l_grr", "--domain-size", "3", "--epsilon", "1", "--option", "permanent=3")
    status, out, _ = run(*arguments)
    assert status == 0
    assert out == "l_grr       d=3 asked 1: exact epsilon 1.0000000000, 3 payloads: permanent 3.0000000000: proved\n"
    status, out, _ = run(*arguments, "--json")
    proof = json.loads(out)
    assert Fraction(proof["permanent_ratio"]) == Fraction(weight(Fraction(3)), UNIT)
    assert proof["epsilon_permanent"] == pytest.approx(3)


def test_a_proof_that_fails(run, monkeypatch):
    """A false claim fails, with the claim in words."""
    from dataclasses import replace

    from deniable.commands import prove as command
    from deniable.proof import prove

    monkeypatch.setattr(command, "proof_of", lambda m: replace(prove(m), faults=("epsilon is 2, above the 1 asked for",)))
    status, out, _ = run("prove", "grr", "--domain-size", "2", "--epsilon", "1")
    assert status == 1
    assert "above the 1 asked for" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("coin", "--epsilon", "many"),
        ("coin", "--domain-size", "3"),
        ("binary", "--domain-size", "3", "4"),
        ("binary", "--domain-size", "2", "--epsilon", "99"),
        ("nosuch",),
        ("grr", "--epsilon", "nan"),
    ],
)
def test_nothing_proved_is_no_success(run, arguments):
    """A run that proves nothing of what was asked does not end with success."""
    status, out, err = run("prove", *arguments)
    assert status != 0
    assert out + err


def test_a_proof_that_is_too_long(run, monkeypatch):
    """Too large a domain is a wrong usage."""
    monkeypatch.setattr("deniable.proof.MAX_WALKS", 10)
    status, _, err = run("prove", "oue", "--domain-size", "6", "--epsilon", "1")
    assert status == 2
    assert "use a smaller domain" in err


@pytest.mark.parametrize(
    "arguments", [("nosuch",), ("registry",), ("registry", "nosuch"), ("registry", "diff"), ("prove", "--domain-size", "x")]
)
def test_wrong_usage(capsys, arguments):
    """Wrong usage ends with status 2 and the usage."""
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "usage: deniable" in capsys.readouterr().err


def test_without_a_command_there_is_help(capsys):
    """Nothing given is wrong usage, and the answer is the help."""
    assert cli.main([]) == 2
    assert "usage: deniable" in (output := capsys.readouterr().out)
    assert "serve" in output


def test_help_names_every_command(capsys):
    """Help needs no extra and names every command."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("demo", "prove", "registry", "serve", "worker"))


class Point(EntryPoint):
    """An entry point whose command finds all that it imports when it runs, or not."""

    missing: str | None = None
    command = None

    def load(self):
        def run(_):
            raise ModuleNotFoundError(f"No module named {Point.missing!r}", name=Point.missing)

        return (lambda _: run) if Point.missing else Point.command


def test_a_mistyped_option_gets_the_usage_of_its_action(capsys):
    """And the option that it may have meant."""
    for arguments, usage, words in (
        (("registry", "lint", "--maxmemry", "3"), "[-h] [--maxmemory BYTES]", "--maxmemry; did you mean --maxmemory?"),
        (("registry", "lint", "--foo"), "[-h] [--maxmemory BYTES]", "--foo\n"),
        (("sent", "--jsno"), "[-h] [--registry FILE] [--json] [DIR]", "--jsno; did you mean --json?"),
        (("serve", "--port", "8081"), "[-h] [--registry FILE]", "--port 8081; write --bind 127.0.0.1:8081"),
        (("serve", "--port=8081"), "[-h] [--registry FILE]", "--port=8081; write --bind 127.0.0.1:8081"),
        (("serve", "shop.toml"), "[-h] [--registry FILE]", "shop.toml; write --registry shop.toml"),
    ):
        with pytest.raises(SystemExit, match=r"^2$"):
            cli.main(arguments)
        out, err = capsys.readouterr()
        assert out == ""
        command = " ".join(word for word in arguments if word.isalpha())
        assert err.startswith(f"usage: deniable {command} {usage}")
        assert f"\ndeniable {command}: error: unrecognized arguments: {words}" in err


def test_a_command_of_one_metric_asks_for_one(capsys):
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main(("query", "theme", "wait"))
    assert capsys.readouterr().err.endswith(": unrecognized arguments: wait; write one METRIC, and run it once for each\n")


@pytest.fixture
def points(monkeypatch):
    """Replace what is installed."""
    entry_points = [
        Point(name, value, "deniable.commands")
        for name, value in (
            ("serve", "deniable_server.commands.serve:serve"),
            ("worker", "deniable_aggregator.commands.worker:worker"),
            ("demo", "deniable_server.commands.demo:demo"),
            ("keys", "deniable_server.commands.keys:keys"),
            ("attack", "deniable_aggregator.commands.attack:attack"),
            ("other", "someone_else:command"),
        )
    ]
    monkeypatch.setattr(cli, "entry_points", lambda group: entry_points if group == "deniable.commands" else [])
    monkeypatch.setattr(Point, "missing", None)
    monkeypatch.setattr(Point, "command", None)
    monkeypatch.setattr(Point, "load", Point.load)
    return Point


@pytest.mark.parametrize(
    ("command", "missing", "extra"),
    [("serve", "flask", "serve"), ("worker", "numpy", "aggregator"), ("demo", "rich", "demo"), ("keys", "redis", "ingest")],
)
def test_a_missing_extra(run, points, command, missing, extra):
    """A command whose extra is missing says which install brings it."""
    points.missing = missing
    status, out, err = run(command)
    assert (status, out) == (2, "")
    assert err == f"deniable {command} needs {missing}, which is not installed: pip install 'deniable[{extra}]'\n"


@pytest.mark.parametrize(("command", "missing"), [("other", "numpy"), ("serve", "deniable_server.nosuch")])
def test_what_no_extra_brings(points, command, missing):
    """A module that no extra brings is an error of ours, or of someone else, and not hidden."""
    points.missing = missing
    with pytest.raises(ModuleNotFoundError):
        cli.main([command])


def test_commands_of_others(run, points):
    """Any installed package may bring a command; a DeniableError ends it with status 2 and its message."""

    def command(parser):
        parser.add_argument("--fail", action="store_true")

        def go(arguments) -> int:
            if arguments.fail:
                raise ConfigurationError("a thing is so")
            return 7

        return go

    points.command = staticmethod(command)
    assert run("other")[0] == 7
    assert run("other", "--fail") == (2, "", "deniable other: a thing is so\n")


def test_only_the_chosen_command_is_loaded(points):
    """A command does not pay for the imports of the others."""
    points.load = None
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    assert caught.value.code == 0
    with pytest.raises(TypeError):
        cli.main(["serve"])
