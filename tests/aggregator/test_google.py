"""A google/rappor deployment's own files, decoded: ``deniable rappor``."""

from __future__ import annotations

import json

import numpy as np
import pytest
from rappor_params import save_params

from deniable.commands import entry as cli
from deniable.mechanisms.texts.google_rappor import PRESETS, Params, bloom
from deniable.wire.layout import Layout
from deniable_aggregator.rappor import decode, files
from deniable_aggregator.tally import Tally

SHARES = {"firefox": 0.4, "chrome": 0.3, "größer": 0.2, "rare": 0.1}
ABSENT = [f"absent-{i}" for i in range(30)]


def tally_of(params, held, n, rng):
    """Sum the reports of n clients, spread evenly over the cohorts: binomial counts of each bit."""
    counts = np.zeros((params.cohorts, params.bits), np.int64)
    reports = np.full(params.cohorts, n // params.cohorts)
    one, other = float(params.q_star), float(params.p_star)
    for cohort in range(params.cohorts):
        holders = rng.multinomial(reports[cohort], list(held.values()))
        filters = [bloom(word.encode(), cohort, params) for word in held]
        for bit in range(params.bits):
            ones = sum(int(number) for number, bits in zip(holders, filters, strict=True) if bits >> bit & 1)
            counts[cohort, bit] = rng.binomial(ones, one) + rng.binomial(reports[cohort] - ones, other)
    return Tally(Layout(params.cohorts, params.bits, "bits"), counts, reports)


@pytest.fixture
def collected(tmp_path):
    """Files as a deployment has them: parameters, counts, candidates."""
    params = PRESETS["UMA_RAPPOR_TYPE"]
    counted = tally_of(params, SHARES, 256_000, np.random.default_rng(5))
    save_params(tmp_path / "params.csv", params)
    files.save_counts(tmp_path / "counts.csv", counted.counts, counted.reports)
    (tmp_path / "candidates.txt").write_text("".join(f"{word}\n" for word in [*ABSENT, *SHARES]), "utf-8")
    return tmp_path


def run(capsys, *arguments):
    status = cli.main(["rappor", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, err


def test_candidates_are_decoded(collected, capsys):
    """The words that people hold are detected with their shares, from the list or from its map file, and no other."""
    where = ["--params", collected / "params.csv"]
    status, out, _ = run(capsys, "map", *where, "--candidates", collected / "candidates.txt", "--out", collected / "map.csv")
    assert status == 0
    assert "34 candidates; next: deniable rappor decode --map" in out
    rows = []
    for candidates in (["--candidates", collected / "candidates.txt"], ["--map", collected / "map.csv"]):
        status, out, _ = run(capsys, "decode", *where, "--counts", collected / "counts.csv", *candidates, "--json")
        assert status == 0
        rows.append(json.loads(out))
    assert rows[0] == rows[1]
    assert {row["candidate"] for row in rows[0]["estimates"]} == set(SHARES)
    for row in rows[0]["estimates"]:
        assert abs(row["frequency"] - SHARES[row["candidate"]]) < 5 * row["stderr"]
        assert row["interval"][0] < row["frequency"] < row["interval"][1]
    assert rows[0]["n"] == 256_000
    assert rows[0]["epsilon"] == pytest.approx(2.0433, abs=1e-4)
    assert abs(rows[0]["unallocated"]["frequency"]) < 5 * rows[0]["unallocated"]["stderr"]


def test_the_table_says_what_it_means(collected, capsys):
    """Without --json a line for each detected candidate, with --all for the others too, and how little can be detected."""
    where = ["--params", collected / "params.csv", "--counts", collected / "counts.csv"]
    status, out, _ = run(capsys, "decode", *where, "--candidates", collected / "candidates.txt")
    assert status == 0
    assert "4 of 34 candidates detected" in out
    assert "256,000 reports, epsilon 2.043 each, 4.394 for all of one value" in out
    assert "is detected half of the time" in out
    assert "absent" not in out
    _, out, _ = run(capsys, "decode", *where, "--candidates", collected / "candidates.txt", "--all", "--control", "discovery")
    assert out.count("not detected") == 30


def test_nothing_detectable_is_said(collected, capsys):
    """Where no candidate can be told from noise the output says so."""
    (collected / "others.txt").write_text("one\ntwo\n", "utf-8")
    where = ["--params", collected / "params.csv", "--counts", collected / "counts.csv"]
    _, out, _ = run(capsys, "decode", *where, "--candidates", collected / "others.txt")
    assert "0 of 2 candidates detected" in out
    assert "Nothing is detectable with this many reports" in out


def test_candidates_alike_are_null(tmp_path, capsys):
    """Candidates that share their bits have no numbers, which JSON writes as null."""
    params = Params(bits=2, hashes=1, cohorts=1, prob_p="0.25", prob_q="0.75", prob_f="0")
    save_params(tmp_path / "params.csv", params)
    files.save_counts(tmp_path / "counts.csv", np.array([[30, 40]]), np.array([100]))
    (tmp_path / "names.txt").write_text("".join(f"name {i}\n" for i in range(9)))
    where = ["--params", tmp_path / "params.csv", "--counts", tmp_path / "counts.csv", "--candidates", tmp_path / "names.txt"]
    status, out, _ = run(capsys, "decode", *where, "--json", "--all")
    assert status == 0
    document = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert any(row["frequency"] is None and row["interval"] == [None, None] for row in document["estimates"])


def test_reports_are_summed(collected, capsys):
    """A file of reports becomes the counts that its reports have."""
    (collected / "small.csv").write_text("k,h,m,p,q,f\n4,1,2,0.25,0.75,0.5\n")
    (collected / "reports.csv").write_text("client,cohort,irr\n1,0,0011\n2,1,1000\n3,1,1001\n")
    where = ["--params", collected / "small.csv"]
    status, out, _ = run(capsys, "count", *where, "--reports", collected / "reports.csv", "--out", collected / "sums.csv")
    assert status == 0
    assert "3 reports of 2 cohorts" in out
    assert (collected / "sums.csv").read_text().split() == ["1,1,1,0,0", "2,1,0,0,2"]


@pytest.mark.parametrize("bits", [1, 6])
def test_basic_and_boolean_are_debiased(bits, tmp_path, capsys):
    """One bit for each candidate, or one bit in all, goes through the closed form over all cohorts, and is unbiased."""
    params = Params(bits=bits, hashes=1, cohorts=4, prob_p="0.25", prob_q="0.75", prob_f="0.5")
    shares = np.array([0.3]) if bits == 1 else np.array([0.5, 0.3, 0.2, 0, 0, 0])
    one, other, n = float(params.q_star), float(params.p_star), 40_000
    counts = np.tile(np.rint(n * (other + shares * (one - other))).astype(np.int64), (4, 1))
    save_params(tmp_path / "params.csv", params)
    files.save_counts(tmp_path / "counts.csv", counts, np.full(4, n))
    (tmp_path / "names.txt").write_text("".join(f"v{i}\n" for i in range(bits)))
    kind = ["--boolean"] if bits == 1 else ["--basic", tmp_path / "names.txt"]
    where = ["--params", tmp_path / "params.csv", "--counts", tmp_path / "counts.csv"]
    _, out, _ = run(capsys, "decode", *where, *kind, "--all", "--json")
    rows = sorted(json.loads(out)["estimates"], key=lambda row: row["candidate"])
    assert [row["frequency"] for row in rows] == pytest.approx(shares, abs=1e-4)
    assert [row["detected"] for row in rows] == (shares > 0).tolist()
    estimate = decode.bits(params, Tally(Layout(4, bits, "bits"), counts, np.full(4, n)))
    s = other + shares * (one - other)
    assert estimate.stderr == pytest.approx(np.sqrt(s * (1 - s) / (4 * n)) / (one - other), rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "decode needs the candidates: --map, --candidates, --basic or --boolean"),
        (["--boolean"], "--boolean is for parameters of one bit; these have k = 32"),
        (["--basic", "candidates.txt"], "the file has 34 candidates: basic RAPPOR needs one for each of its k = 32 bits"),
        (["--candidates", "none.txt"], "none.txt: No such file or directory; write one candidate to a line, in UTF-8"),
        (["--candidates", "twice.txt"], "twice.txt, line 3: 'a' is on line 1 already; list each candidate once"),
        (["--candidates", "blank.txt"], "blank.txt, line 2: the line is empty; write a candidate, or remove it"),
        (["--map", "counts.csv"], "counts.csv"),
        (["--candidates", "candidates.txt", "--alpha", "2"], "alpha = 2.0: write a probability of error between 0 and 1"),
    ],
)
def test_bad_input_is_explained(collected, capsys, monkeypatch, arguments, message):
    """What is missing or malformed ends with status 2 and is said with the file, the line and the rule."""
    monkeypatch.chdir(collected)
    (collected / "twice.txt").write_text("a\nb\na\n")
    (collected / "blank.txt").write_text("a\n\nb\n")
    status, _, err = run(capsys, "decode", "--params", "params.csv", "--counts", "counts.csv", *arguments)
    assert status == 2
    assert message in err
    assert "Traceback" not in err


def test_counts_or_reports_are_needed(collected, capsys):
    """Without a collection there is nothing to decode."""
    status, _, err = run(capsys, "decode", "--params", collected / "params.csv", "--candidates", collected / "candidates.txt")
    assert status == 2
    assert "neither counts nor reports are given: give one of them" in err


STRING = Params(bits=16, hashes=2, cohorts=8, prob_p="0.1", prob_q="0.9", prob_f="0.2")
TRUTH = Params(bits=1, hashes=1, cohorts=8, prob_p="0.1", prob_q="0.9", prob_f="0")


@pytest.fixture(scope="module")
def paired():
    """Make reports of a string and a Boolean that go together, as google's own encoder would."""
    rng = np.random.default_rng(9)

    def report(held, params):
        one, other = float(params.q_star), float(params.p_star)
        return "".join(str(int(rng.random() < (one if held >> b & 1 else other))) for b in range(params.bits))[::-1]

    lines = ["cohort,animal,night"]
    for device in range(4000):
        animal, night = [("fox", 1), ("fox", 0), ("owl", 1), ("cow", 0)][rng.choice(4, p=[0.1, 0.3, 0.4, 0.2])]
        cohort = device % 8
        lines.append(f"{cohort},{report(bloom(animal.encode(), cohort, STRING), STRING)},{report(night, TRUTH)}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def pairs(tmp_path, paired):
    save_params(tmp_path / "string.csv", STRING)
    save_params(tmp_path / "truth.csv", TRUTH)
    (tmp_path / "names.txt").write_text("fox\nowl\n")
    (tmp_path / "pairs.csv").write_text(paired)
    return tmp_path


def test_variables_that_go_together(pairs, capsys):
    """The joint shares come back within their errors, unlisted strings as others, and independence is refused."""
    variables = [
        *("--variable", "animal", pairs / "string.csv", pairs / "names.txt"),
        *("--variable", "night", pairs / "truth.csv", "-"),
    ]
    status, out, _ = run(capsys, "associate", "--reports", pairs / "pairs.csv", *variables, "--json")
    assert status == 0
    document = json.loads(out)
    assert document["n"] == 4000
    assert document["converged"]
    assert document["independence"]["p_value"] < 1e-6
    truth = {("fox", "true"): 0.1, ("fox", "false"): 0.3, ("owl", "true"): 0.4, ("(other)", "false"): 0.2}
    for row in document["estimates"]:
        assert abs(row["frequency"] - truth.get(tuple(row["values"]), 0)) < 5 * row["stderr"] + 0.03
    _, out, _ = run(capsys, "associate", "--reports", pairs / "pairs.csv", *variables)
    assert out.splitlines()[0].endswith("owl, true")
    assert "4,000 devices; independent? chi-square" in out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: (v[:4], None), "between two variables or more"),
        (lambda v: ([*v[:3], "-", *v[4:]], None), "bits = 16: write 1 for a variable without candidates"),
        (lambda v: (["--variable", "bird", *v[2:]], None), "bird"),
        (lambda v: (v, "cohort,animal,night\n9,0101010101010101,1\n"), "line 2"),
        (lambda v: (v, "cohort,animal,night\n1,01,1\n"), "line 2"),
        (lambda v: (v, ""), "line"),
    ],
)
def test_bad_pairs_are_explained(pairs, capsys, change, message):
    """What is malformed ends with status 2 and names the line, the column or the rule."""
    variables = ["--variable", "animal", str(pairs / "string.csv"), str(pairs / "names.txt")]
    variables += ["--variable", "night", str(pairs / "truth.csv"), "-"]
    variables, content = change(variables)
    if content is not None:
        (pairs / "pairs.csv").write_text(content)
    status, _, err = run(capsys, "associate", "--reports", pairs / "pairs.csv", *variables)
    assert status == 2
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("decode", "--params", "params.csv", "--counts", "gone.csv", "--candidates", "candidates.txt"),
        ("decode", "--params", "params.csv", "--reports", "gone.csv", "--candidates", "candidates.txt"),
        ("decode", "--params", "params.csv", "--counts", "counts.csv", "--map", "gone.csv"),
        ("decode", "--params", "gone.csv", "--counts", "counts.csv", "--candidates", "candidates.txt"),
        ("count", "--params", "params.csv", "--reports", "gone.csv", "--out", "sums.csv"),
        ("map", "--params", "gone.csv", "--candidates", "candidates.txt", "--out", "map.csv"),
        ("map", "--params", "params.csv", "--candidates", "gone.csv", "--out", "map.csv"),
        ("map", "--params", "params.csv", "--candidates", "candidates.txt", "--out", "gone.csv/map.csv"),
        ("associate", "--reports", "gone.csv", *(("--variable", "a", "params.csv", "candidates.txt") * 2)),
    ],
)
def test_a_missing_file_is_named(collected, capsys, monkeypatch, arguments):
    """Of a file that is not there, the command says so in one line, with its name."""
    monkeypatch.chdir(collected)
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("deniable rappor: gone.csv")
    assert "No such file or directory" in err
    assert err.count("\n") == 1
