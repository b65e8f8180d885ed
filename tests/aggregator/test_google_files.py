"""The files of google/rappor: what its tools wrote is read, what is written is theirs, and every fault is named.

The files in `vectors/google_rappor.json` come from the original's own tools (see `tests/client/test_google_rappor.py`):
`Params.to_json`, hash_candidates.py, rappor_sim.py and sum_bits.py on its reports; k = 8, h = 2, m = 4.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rappor_params import save_params

from deniable.errors import ParameterError
from deniable.mechanisms.texts.google_rappor import Params, positions
from deniable_aggregator.rappor import files

FILES = json.loads((Path(__file__).parents[1] / "vectors" / "google_rappor.json").read_text("utf-8"))["files"]
SMALL = Params(bits=8, hashes=2, cohorts=4, prob_p="0.25", prob_q="0.75", prob_f="0.5")
TINY = Params(bits=2, hashes=1, cohorts=2, prob_p="0.25", prob_q="0.75", prob_f="0.5")
WORDS = ["", "a", "v1", "a,b", 'q"q', "Größe", "日本語", "two words"]

decimals = st.decimals(0, 1, allow_nan=False, allow_infinity=False, places=9).map(Fraction)
collections = st.builds(
    lambda k, h, m, p, q, f: Params(
        bits=k, hashes=h, cohorts=m, prob_p=min(p, q), prob_q=max(p, q), prob_f=f * Fraction(99, 100)
    ),
    st.integers(1, 256),
    st.integers(1, 16),
    st.integers(1, 300),
    decimals,
    decimals.map(lambda q: q * Fraction(1, 2) + Fraction(1, 1000)),
    decimals,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@pytest.fixture
def file(tmp_path):
    """Write a file of some content."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def refusal(load, *arguments):
    with pytest.raises(ParameterError) as caught:
        load(*arguments)
    return str(caught.value)


@pytest.mark.parametrize("name", ["params.csv", "params.json"])
def test_the_original_s_params_are_read(file, name):
    """Both forms say the same; those that tests write are like them."""
    path = file(name, FILES[name])
    assert files.load_params(path) == SMALL
    save_params(path, SMALL)
    assert (
        json.loads(FILES["params.json"]) == json.loads(path.read_text())
        if name == "params.json"
        else path.read_text() == FILES[name]
    )


def test_the_original_s_map_is_read_and_written(file):
    """Each candidate is found with its own positions, and the file written is the original's, byte for byte."""
    path = file("map.csv", FILES["map.csv"])
    assert files.load_map(path, SMALL) == WORDS
    files.save_map(path, WORDS, SMALL)
    assert path.read_bytes() == FILES["map.csv"].encode()


def test_the_original_s_reports_are_summed_as_it_does(file):
    """Reports, written from the highest bit, become the original's counts file, from the lowest bit, byte for byte."""
    path = file("counts.csv", "")
    counts, reports = files.sum_reports(file("reports.csv", FILES["reports.csv"]), SMALL)
    files.save_counts(path, counts, reports)
    assert path.read_bytes() == FILES["counts.csv"].encode()
    again, n = files.load_counts(path, SMALL)
    assert np.array_equal(again, counts)
    assert np.array_equal(n, reports)
    assert again.dtype == n.dtype == np.int64
    assert reports.sum() == 60


def test_bit_i_is_at_index_i(file):
    """The last digit of a report is bit 0; so are the second column of a counts file and the first position of a map's block."""
    counts, reports = files.sum_reports(file("r.csv", "client,cohort,rappor\nc,1,01\nc,1,01\nc,1,10\n"), TINY)
    assert counts.tolist() == [[0, 0], [2, 1]]
    assert reports.tolist() == [0, 3]
    assert files.load_counts(file("c.csv", "0,0,0\n3,2,1\n"), TINY)[0].tolist() == [[0, 0], [2, 1]]
    k8 = files.load_counts(file("c8.csv", "1,1,0,0,0,0,0,0,0\n" * 4), SMALL)[0]
    assert k8[:, 0].tolist() == [1, 1, 1, 1]


@given(collections)
def test_saved_params_are_loaded(folder, collection):
    """Any parameters are loaded to the last decimal, in both forms."""
    for name in ("params.csv", "params.json"):
        save_params(folder / name, collection)
        assert files.load_params(folder / name) == collection


@given(st.integers(1, 20).flatmap(lambda m: st.integers(1, 12).flatmap(lambda k: st.lists(cohort(k), min_size=m, max_size=m))))
def test_saved_counts_are_loaded(folder, table):
    """What is saved is what is loaded, up to the largest counts."""
    cells = np.array(table, np.int64)
    collection = Params(bits=cells.shape[1] - 1, hashes=1, cohorts=len(cells), prob_p="0.25", prob_q="0.75", prob_f="0.5")
    files.save_counts(folder / "counts.csv", cells[:, 1:], cells[:, 0])
    counts, reports = files.load_counts(folder / "counts.csv", collection)
    assert np.array_equal(counts, cells[:, 1:])
    assert np.array_equal(reports, cells[:, 0])


def cohort(k):
    return st.integers(0, 2**63 - 1).flatmap(
        lambda n: st.lists(st.integers(0, n), min_size=k, max_size=k).map(lambda row: [n, *row])
    )


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
candidates = st.lists(texts, min_size=1, max_size=12, unique=True).filter(lambda words: not words[0].startswith("\ufeff"))


@given(candidates, st.integers(1, 40), st.integers(1, 3), st.integers(1, 5))
def test_saved_maps_are_loaded(folder, words, k, h, m):
    """What is saved is what is loaded, whatever the candidates have in them."""
    collection = Params(bits=k, hashes=h, cohorts=m, prob_p="0.25", prob_q="0.75", prob_f="0.5")
    files.save_map(folder / "map.csv", words, collection)
    assert files.load_map(folder / "map.csv", collection) == words


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 255)), max_size=40))
def test_reports_are_summed_by_definition(folder, reports):
    """Each report adds one to its cohort, and to each of its bits."""
    counts, n = np.zeros((4, 8), np.int64), np.zeros(4, np.int64)
    with (folder / "reports.csv").open("w") as file:
        file.write("cohort,irr\n")
        for row, bits in reports:
            file.write(f"{row},{bits:08b}\n")
            n[row] += 1
            counts[row] += [bits >> i & 1 for i in range(8)]
    summed, of_cohorts = files.sum_reports(folder / "reports.csv", SMALL)
    assert np.array_equal(summed, counts)
    assert np.array_equal(of_cohorts, n)


def test_many_reports_are_counted_in_pieces(file, monkeypatch):
    """More reports than are counted at a time add up to the same."""
    path = file("reports.csv", FILES["reports.csv"])
    sums = files.sum_reports(path, SMALL)
    monkeypatch.setattr(files, "_CHUNK", 7)
    assert all(np.array_equal(a, b) for a, b in zip(files.sum_reports(path, SMALL), sums, strict=True))


@pytest.mark.parametrize(
    "dress",
    [
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.replace("\r\n", "\n").replace("\n", "\r\n").encode(),
        lambda text: text.replace("\r\n", "\n").encode(),
        lambda text: text.replace("\r\n", "\n").replace("\n", "\n\n").encode(),
        lambda text: text.rstrip().encode(),
        lambda text: "\n".join(",".join(f'"{cell}"' for cell in line.split(",")) for line in text.split()).encode(),
    ],
    ids=["byte order mark", "CRLF", "LF", "empty lines", "no last line end", "quotes"],
)
def test_the_ways_programs_write_the_same_file(file, dress):
    """A spreadsheet, R and the original write the same rows in other ways."""
    plain = "\r\n".join(",".join(map(str, [word, *positions(word.encode(), SMALL)])) for word in ("a", "Größe")) + "\r\n"
    assert files.load_map(file("map.csv", dress(plain)), SMALL) == ["a", "Größe"]
    assert files.load_params(file("params.csv", dress(FILES["params.csv"]))) == SMALL
    assert files.load_params(file("params.json", b"\xef\xbb\xbf" + FILES["params.json"].encode())) == SMALL
    assert files.load_counts(file("counts.csv", dress(FILES["counts.csv"])), SMALL)[1].sum() == 60
    assert files.sum_reports(file("reports.csv", dress(FILES["reports.csv"])), SMALL)[1].sum() == 60


def test_numbers_as_r_writes_them(file):
    """R writes 100000 as 1e+05, and spaces after commas are the documentation's."""
    counts, reports = files.load_counts(file("counts.csv", "1e+05, 3.0 , 2e0\n1,1,0\n"), TINY)
    assert counts.tolist() == [[3, 2], [1, 0]]
    assert reports.tolist() == [100000, 1]
    assert files.load_params(file("params.csv", "k, h, m, p, q, f\n2, 1, 2, 2.5e-01, .75, 0.5\n")) == TINY


def test_the_order_of_positions_in_a_cohort_means_nothing(file):
    """Some tools sort them."""
    row = positions(b"v1", SMALL)
    turned = [row[i ^ 1] for i in range(len(row))]
    assert turned != row
    assert files.load_map(file("map.csv", ",".join(["v1", *map(str, turned)])), SMALL) == ["v1"]


def test_a_bit_of_two_hashes_may_be_written_once(file):
    """The example map of the original's app leaves out repetitions and fills the row with empty cells."""
    own = positions(b"a", SMALL)
    distinct = sorted(set(own))
    assert len(distinct) < len(own)
    filled = ["a", *map(str, distinct), *[""] * (len(own) - len(distinct))]
    assert files.load_map(file("map.csv", ",".join(filled)), SMALL) == ["a"]
    assert "1 of 1 candidates, such as 'a', have other positions" in refusal(
        files.load_map, file("map.csv", "a" + "," * len(own)), SMALL
    )


def says(message, text):
    """Return whether a text has the line of a message and the words after it; the wrong value may stand between them."""
    line, _, words = message.partition(":")
    return f"{line}:" in text and words.strip() in text if message.startswith("line ") else message in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: the file is empty: write it to the end"),
        ("\n\n", "line 1: the file is empty: write it to the end"),
        ("8,2,4,0.25,0.75,0.5\n", "line 1: '8,2,4,0.25,0.75,0.5': write k,h,m,p,q,f in the first line, without row names"),
        ("m,h,k,p,q,f\n8,2,4,0.25,0.75,0.5\n", "line 1: 'm,h,k,p,q,f': write k,h,m,p,q,f in the first line, without row names"),
        (
            '"","k","h","m","p","q","f"\n"1",8,2,4,0.25,0.75,0.5\n',
            "line 1: ',k,h,m,p,q,f': write k,h,m,p,q,f in the first line, without row names",
        ),
        ("k,h,m,p,q,f\n", "line 1: the file has 1 rows: write a header and one row of values"),
        (
            "k,h,m,p,q,f\n8,2,4,0.25,0.75,0.5\nextra\n",
            "line 3: the file has 3 rows: write a header and one row of values",
        ),
        ("k,h,m,p,q,f\n8,2,4,0.25,0.75\n", "line 2: '8,2,4,0.25,0.75': write a value for each of k,h,m,p,q,f"),
        ("k,h,m,p,q,f\n8,2,4,a,0.75,0.5\n", "line 2: p = 'a': write a number of at least 0"),
        ("k,h,m,p,q,f\n8,2,4,0.25,nan,0.5\n", "line 2: q = 'nan': write a number of at least 0"),
        ("k,h,m,p,q,f\n8,2,4,0.25,inf,0.5\n", "line 2: q = 'inf': write a number of at least 0"),
        ("k,h,m,p,q,f\n8,2,4,0.25,1/2,0.5\n", "line 2: q = '1/2': write a number of at least 0"),
        ("k,h,m,p,q,f\n8,2,4,0.25,1e-999999999,0.5\n", "line 2: q = '1e-999999999': write a number of at least 0"),
        ("k,h,m,p,q,f\n8,2,4,-0.25,0.75,0.5\n", "line 2: p = '-0.25': write a number of at least 0"),
        ("k,h,m,p,q,f\n8.5,2,4,0.25,0.75,0.5\n", "line 2: k = '8.5': write a whole number"),
        ("k,h,m,p,q,f\n512,2,4,0.25,0.75,0.5\n", "line 2: bits (k) = 512: write a whole number from 1 to 256"),
        ("k,h,m,p,q,f\n8,2,0,0.25,0.75,0.5\n", "line 2: cohorts (m) = 0: write a whole number from 1 to 4294967296"),
        (
            "\nk,h,m,p,q,f\n8,2,4,0.75,0.5,0.5\n",
            "line 3: prob_q = 0.5: write more than prob_p = 0.75, or a report says nothing about a bit",
        ),
        ("k,h,m,p,q,f\n8,2,4,0.5,0.5,0.5\n", "prob_q = 0.5: write more than prob_p = 0.5, or a report says nothing about a bit"),
        ("k,h,m,p,q,f\n8,2,4,0.25,0.75,1\n", "line 2: prob_f = 1.0: write 127/128 or less"),
        (
            'k,h,m,p,q,f\n8,2,4,"0.25,0.75,0.5\n',
            "line 2: unexpected end of data: write comma-separated values, and close open quotes here or later",
        ),
        (b"k,h,m,p,q,f\n8,2,4,0.25,0.75,0.5\xff\n", r"line 2: b'\xff\n' is no UTF-8: save the file as UTF-8 text"),
        ("k,h,m,p,q,f\n".encode("utf-16"), "is no UTF-8: save the file as UTF-8 text"),
        ("{", "line 1: Expecting property name enclosed in double quotes: write JSON in a file that begins with a brace"),
        ('{"numBits": 8,\n "numHashes" 2}', "line 2: Expecting ':' delimiter: write JSON in a file that begins with a brace"),
        (
            '{"numBits": 8}',
            "line 1: the keys are numBits: write numBits, numHashes, numCohorts, probIrr0, probIrr1, probPrr",
        ),
        (FILES["params.json"].replace("0.25", "NaN"), "line 1: probIrr0 = 'NaN': write a number of at least 0"),
        (
            FILES["params.json"].replace("0.25", "0.75"),
            "line 1: prob_q = 0.75: write more than prob_p = 0.75, or a report says nothing about a bit",
        ),
        (FILES["params.json"].replace("0.25", '"0.25"'), "line 1: probIrr0 = '0.25': write a number, without quotes"),
        (FILES["params.json"].replace("0.25", "null"), "probIrr0 is missing: write a number, without quotes"),
        (FILES["params.json"].replace(": 8", ": 8.0"), "line 1: numBits = '8.0': write a whole number"),
    ],
)
def test_malformed_params(file, content, message):
    """Each fault has one error, with the file, the line, the rule and the value."""
    text = refusal(files.load_params, file("params.csv", content))
    assert "params.csv, line" in text
    assert says(message, text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: the file is empty: write it to the end"),
        (
            "n,b0,b1\n3,2,1\n0,0,0\n",
            "line 1: the line n,b0,b1 is a header, and this file has none: delete it (R: col.names = FALSE)",
        ),
        (
            '"","V1","V2","V3"\n"1",3,2,1\n"2",0,0,0\n',
            "line 1: the line ,V1,V2,V3 is a header, and this file has none: delete it (R: col.names = FALSE)",
        ),
        (
            '"1",3,2,1\n"2",0,0,0\n',
            "line 1: the row has 4 columns: write k + 1 = 3 columns, the reports of a cohort and the count of each bit; delete",
        ),
        (
            "3,2,1\n0,0\n",
            "line 2: the row has 2 columns: write k + 1 = 3 columns, the reports of a cohort",
        ),
        ("3,2,1\n0,0\n", "or correct the params file"),
        ("3;2;1\n0;0;0\n", "line 1:"),
        ("3,2,1\n0,0,NA\n", "line 2: column 3 = 'NA': write a whole number from 0 to 2^63 - 1"),
        ("nan,nan,nan\n0,0,0\n", "column 1 = 'nan': write a whole number from 0 to 2^63 - 1"),
        ("3,2,1\n0,0,\n", "line 2: column 3 is missing: write a whole number from 0 to 2^63 - 1"),
        ("3,2,1\n0,inf,0\n", "column 2 = 'inf': write a whole number from 0 to 2^63 - 1"),
        ("3,2,1.5\n0,0,0\n", "line 1: column 3 = '1.5': write a whole number from 0 to 2^63 - 1"),
        ("3,-2,1\n0,0,0\n", "line 1: column 2 = '-2': write a whole number from 0 to 2^63 - 1"),
        ("9223372036854775808,2,1\n0,0,0\n", "column 1 = '9223372036854775808': write a whole number from 0 to 2^63 - 1"),
        ("1e99,2,1\n0,0,0\n", "column 1 = '1e99': write a whole number from 0 to 2^63 - 1"),
        ("1e999999999,2,1\n0,0,0\n", "column 1 = '1e999999999': write a whole number from 0 to 2^63 - 1"),
        ("3,2,1\n1,1,2\n", "line 2: column 3 is 2, more than the 1 reports of the cohort (first column): sum the reports again"),
        ("3,2,1\n1,1,2\n", "column 3 is 2, more than the 1 reports of the cohort (first column): sum the reports again"),
        ("3,2,1\n", "line 1: the file has 1 row, and m = 2: write a row for each cohort, or correct the params file"),
        ("3,2,1\n" * 3, "line 3: the file has 3 rows, and m = 2: write a row for each cohort, or correct the params file"),
        (
            "3,2,1\n" * 4,
            "line 4: the file has 4 rows, and m = 2: write a row for each cohort, or correct the params file (or add up those",
        ),
        ('3,2,"1\n0,0,0\n', "line 1: unexpected end of data: write comma-separated values, and close open quotes here or later"),
        (b"3,2,1\n0,0,\xe9\n", "is no UTF-8: save the file as UTF-8 text"),
    ],
)
def test_malformed_counts(file, content, message):
    """Each fault has one error, with the file, the line, the rule and the value."""
    text = refusal(files.load_counts, file("counts.csv", content), TINY)
    assert "counts.csv, line" in text
    assert says(message, text)


def row_of(word, **changed):
    """Make the line of a map of `TINY`, some of its positions changed."""
    row = positions(word.encode(), TINY)
    for index, position in changed.items():
        row[int(index[1:])] = position
    return ",".join([word, *map(str, row)]) + "\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: the file is empty: write it to the end"),
        ("word,h1,h2\n" + row_of("a"), "line 1: the line h1,h2 is a header, and this file has none: delete it"),
        (
            '"1","a",1,3\n',
            "line 1: the row has 4 columns: write hm + 1 = 3 columns, a candidate and the positions of its bits; delete",
        ),
        (row_of("a") + "b,1\n", "line 2: the row has 2 columns: write hm + 1 = 3 columns"),
        (row_of("a") + row_of("b") + row_of("a"), "line 3: 'a' is on line 1 already: delete one of the two"),
        (row_of("a") + row_of("b", i1="NA"), "line 2: column 3 = 'NA': write a whole number from 0 to 2^63 - 1"),
        (row_of("a", i0=0), "line 1: column 2 = 0: write a position from 1 to km = 4, or correct the params file"),
        (row_of("a", i1=5), "line 1: column 3 = 5: write a position from 1 to km = 4, or correct the params file"),
        (
            row_of("a", i0=3),
            "line 1: column 2 = 3: write one of cohort 0, positions 1 to 2, or correct k and h of the params file",
        ),
        (
            row_of("a", i1=2),
            "line 1: column 3 = 2: write one of cohort 1, positions 3 to 4, or correct k and h of the params file",
        ),
        ('"two\nlines",1,3\nb,1,9\n', "line 3: column 3 = 9: write a position from 1 to km = 4"),
        ('a,1,3\nb,1,"3\n', "line 2: unexpected end of data: write comma-separated values, and close open quotes here or later"),
        (row_of("a").encode() + b"\xe9,1,3\n", "is no UTF-8: save the file as UTF-8 text"),
    ],
)
def test_malformed_maps(file, content, message):
    """Each fault has one error, with the file, the line, the rule and the value."""
    text = refusal(files.load_map, file("map.csv", content), TINY)
    assert "map.csv, line" in text
    assert says(message, text)


def test_a_map_of_another_hash_is_refused(file):
    """Positions that could be right but are not the candidate's name the first offender, and how many there are."""
    other = {1: 2, 2: 1, 3: 4, 4: 3}
    rows = [row_of("a")]
    rows += [row_of(word, i0=other[positions(word.encode(), TINY)[0]]) for word in ("b", "c")]
    text = refusal(files.load_map, file("map.csv", "".join(rows)), TINY)
    assert "line 2: 2 of 3 candidates, such as 'b', have other positions than those of MD5 with k = 2, h = 1, m = 2" in text
    assert "correct the params file, or hash the candidates again" in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: the file is empty: write it to the end"),
        ("c1,1,01\n", "line 1: the first line names 3 columns: name the columns there, once cohort and once irr or rappor"),
        (
            "client,cohort,irr,rappor\nc1,1,01,01\n",
            "line 1: the first line names 4 columns: name the columns there, once cohort and once irr or rappor",
        ),
        ("client,cohort,irr\nc1,1\n", "line 2: the row has 2 columns: write 3, as in the header"),
        ("client,cohort,irr\nc1,1,01,extra\n", "line 2: the row has 4 columns: write 3, as in the header"),
        (
            "client,cohort,irr\nc1,2,01\n",
            "line 2: cohort = '2': write a whole number from 0 to 1, or correct m of the params file",
        ),
        (
            "client,cohort,irr\nc1,-1,01\n",
            "line 2: cohort = '-1': write a whole number from 0 to 1, or correct m of the params file",
        ),
        (
            "client,cohort,irr\nc1,1,1\n",
            "line 2: report = '1': write k = 2 digits 0 or 1, leading zeros too (a spreadsheet drops them)",
        ),
        ("client,cohort,irr\nc1,1,01\nc1,1,21\n", "line 3: report = '21': write k = 2 digits 0 or 1"),
        ("client,cohort,irr\nc1,1,\n", "line 2: report = '': write k = 2 digits 0 or 1"),
    ],
)
def test_malformed_reports(file, content, message):
    """Each fault has one error, with the file, the line, the rule and the value."""
    text = refusal(files.sum_reports, file("reports.csv", content), TINY)
    assert "reports.csv, line" in text
    assert says(message, text)


def test_other_columns_of_reports_stay_out_of_messages(file):
    """A simulation writes what no server should know beside the reports; an error does not carry it into a log."""
    content = "client,cohort,bloom,prr,irr\nmallory,1,10,10,0\n"
    text = refusal(files.sum_reports, file("reports.csv", content), TINY)
    assert "mallory" not in text
    assert "10" not in text.split("reports.csv, line")[1]


def test_a_column_of_reports_by_its_name(file):
    """Collections of several variables have a column for each."""
    path = file("reports.csv", "client,cohort,domain,flag\nc0,1,11,0\nc1,0,10,1\n")
    assert files.sum_reports(path, TINY, column="domain")[0].tolist() == [[0, 1], [1, 1]]
    with pytest.raises(ParameterError, match="once cohort and once https"):
        files.sum_reports(path, TINY, column="https")


def test_nothing_wrong_is_saved(tmp_path):
    """What could not be loaded is not written."""
    counts, reports = np.array([[3, 2]]), np.array([2])
    assert "a count of cohort 0 = 3: write 0 to 2, its reports" in refusal(files.save_counts, tmp_path / "c.csv", counts, reports)
    assert "a count of cohort 0 = -3: write 0 to 2, its reports" in refusal(
        files.save_counts, tmp_path / "c.csv", -counts, reports
    )
    assert "(m, k)" in refusal(files.save_counts, tmp_path / "c.csv", counts, np.array([2, 2]))
    assert "different: list at least one, and each once" in refusal(files.save_map, tmp_path / "map.csv", ["a", "a"], TINY)
    assert "different: list at least one, and each once" in refusal(files.save_map, tmp_path / "map.csv", [], TINY)
    assert "byte order mark" in refusal(files.save_map, tmp_path / "map.csv", ["\ufeffa"], TINY)
    assert list(tmp_path.iterdir()) == []
