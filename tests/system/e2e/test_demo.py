"""The demo, as a newcomer runs it: real processes, real records, one command."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import requests

from deniable import registry
from deniable.commands import entry as cli
from deniable_server.local import population
from deniable_server.local.population import Population
from deniable_server.local.year import Year

SHORT = 100
"""Days of a short year. There are always two whole months in them, and enough days after the eight weeks of a habit."""


def demo(*arguments):
    command = [sys.executable, "-m", "deniable", "demo", "--json", "--no-year", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, stdin=subprocess.DEVNULL)


def demo_inside(*arguments):
    """Run the demo until every truth is inside: by chance alone one run in two hundred has one outside, two in 40,000."""
    done = demo(*arguments)
    return demo(*arguments) if done.returncode == 1 else done


@pytest.fixture
def own(tmp_path):
    """Write a small table of one's own, read in less time than the flights, and return the options that take it."""
    path = tmp_path / "small.csv"
    path.write_text("Theme\n" + "dark\nlight\nlight\n" * 200, "utf-8")
    return ["--input", str(path), "--column", "Theme"]


@pytest.fixture(params=["its own", pytest.param("a cluster", marks=[pytest.mark.campaign, pytest.mark.nightly])])
def store_option(request):
    """Return the option for a store: none, or a cluster with replicas."""
    if request.param == "its own":
        return []
    return ["--redis-url", request.getfixturevalue("machines").cluster(3, 2, "--appendonly", "yes")]


@pytest.mark.starts_anew  # one demo is as a newcomer starts it; all others are forked
def test_flights_are_recovered(store_option):
    """Every true figure of 2,000 flights and 1,000 planes lies in its interval. Errors are as predicted."""
    done = demo_inside("--devices", 2000, *store_option)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["all_inside"]
    assert (outcome["devices"], outcome["reports"]) == (3000, 21_000)
    assert re.search("alkey|redis|given URL", outcome["store"])
    sizes = {metric["metric"]: len(metric["rows"]) for metric in outcome["metrics"]}
    assert sizes == {"flight.carrier": 16, "flight.destination": 105, "flight.origin": 3, "flight.late": 2, "flight.hour": 20}
    for metric in outcome["metrics"]:
        assert metric["n"] == 2000
        assert sum(row["true"] for row in metric["rows"]) == pytest.approx(1)
        assert abs(metric["ratio"] - 1) < 8 * metric["ratio_spread"]
    air, delay, flown = outcome["numbers"]
    assert (flown["mechanism"], flown["n"]) == ("l_grr", 7000)  # 1,000 planes on seven days
    assert [(row["figure"], row["inside"]) for row in flown["rows"]] == [("mean", True)]
    assert 0.3 < flown["rows"][0]["true"] < 0.6
    assert [(row["figure"], row["resolved"], row["inside"]) for row in air["rows"]] == [("mean", True, True)]
    assert 140 < air["rows"][0]["true"] < 155
    assert [row["figure"] for row in delay["rows"]] == ["median", "90% quantile"]
    assert all(row["inside"] for row in delay["rows"] if row["resolved"])
    assert all(-60 <= row["low"] <= row["estimated"] <= row["high"] <= 600 for row in delay["rows"])


@pytest.fixture(scope="module")
def flights():
    """Read the flights, for tests that run the demo in this process."""
    return population.flights()


@pytest.mark.parametrize("epsilon", ["0.01", "10", "16"])
def test_any_epsilon_makes_a_registry(flights, tmp_path, epsilon):
    """A response that is kept may tell twice what a report tells, but no more than is ever allowed."""
    loaded = registry.load(flights.registry(tmp_path, "demo", epsilon))
    assert {str(metric.epsilon) for metric in loaded.metrics.values()} == {epsilon}


HURRY = """
import json, sys, time
from pathlib import Path
from deniable.commands.entry import main
from deniable_server.local import mixed

mixer, folder, *arguments = sys.argv[1:]
clock, announce = Path(folder, "clock"), mixed.Mixing.announce


def hurry(mixing, console):
    announce(mixing, console)
    clock.write_text(json.dumps([time.time(), mixing.closes + 1, 0, 1e12]))
    return 0.0


clock.write_text(json.dumps([time.time(), time.time(), 0, 1e12]))
mixed.Mixing.announce = hurry
mixed._COMMAND = [sys.executable, mixer, "1", "0", str(Path(folder, "record")), str(clock), "relay"]
sys.exit(main(arguments))
"""
"""The demo with a relay whose time stands still, and then is that when pools close."""


def test_a_relay_mixes(own, tmp_path):
    """A third party keeps all reports until their hour is over; both epsilons are told, and what each way needs."""
    mixer = Path(__file__).parents[1] / "faults" / "mixer.py"
    arguments = ["demo", "--json", "--relay", "--devices", "400", *own]
    command = [sys.executable, "-c", HURRY, str(mixer), str(tmp_path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode in (0, 1), done.stderr  # by chance alone one run in a thousand has a truth outside
    assert "The relay keeps the reports until" in done.stderr
    outcome = json.loads(done.stdout)
    (metric,) = outcome["metrics"]
    assert (outcome["reports"], metric["n"], metric["epsilon"]) == (400, 400, pytest.approx(3, abs=1e-6))
    figures = outcome["relay"]["epsilons"]["column.theme"]
    assert figures["local"] == pytest.approx(3, abs=1e-5)
    assert figures["central"] < figures["if_half_are_honest"] < figures["local"]
    assert figures["min"] == 400
    (need,) = outcome["relay"]["needs"]
    assert need["mixed"] * 4 < need["alone"]
    assert 1 < need["local"] < 8


def check_year(year, days, reports):
    """Check that what is said of a year holds: days that truly differ, and two groups compared, each beside the truth."""
    assert (year["days"], year["reports"]) == (days, reports)
    assert year["shifts"]
    for shift in year["shifts"]:
        assert abs(shift["true"]) > 0.05  # which is far more than days usually differ
        assert shift["true"] * shift["estimated"] > 0
        assert shift["low"] < shift["high"]
    for difference in (year["months"], year["experiment"]):
        assert difference["low"] <= difference["true"] <= difference["high"]


@pytest.mark.campaign
@pytest.mark.nightly
def test_a_year_of_days(store_option):
    """The second act finds days that truly differ, months and arms of an experiment, each beside the truth; the page has them."""
    done = demo_inside("--devices", 100, "--year", "--epsilon", 3, *store_option)
    assert done.returncode == 0, done.stderr
    year = json.loads(done.stdout)["year"]
    check_year(year, 365, 3 * 336_776)
    assert 0.1 < year["months"]["true"] < 0.3
    assert abs(year["experiment"]["true"]) < 0.005
    assert all(year[name]["high"] - year[name]["low"] < 0.1 for name in ("months", "experiment"))


def test_a_short_year_of_days(flights, monkeypatch, capsys):
    """The second act finds the same in the last days of the year."""
    last = max(flight.day for flight in flights.year.flights)
    short = Year([flight for flight in flights.year.flights if flight.day > last - timedelta(days=SHORT)])
    monkeypatch.setattr(population, "flights", lambda *, year: replace(flights, year=year and short))
    command = ["demo", "--json", "--year", "--devices", "100", "--epsilon", "3"]
    assert cli.main(command) == 0
    check_year(json.loads(capsys.readouterr().out)["year"], SHORT, 3 * len(short.flights))


def test_a_user_brings_data(tmp_path):
    """Columns of a CSV file become metrics, with odd names and values, and empty answers as an answer."""
    path = tmp_path / "own.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["Browser Name", "Größe", "unused"])
        table.writerows([['Fire"fox'], ["Chrome\\x"], [""]][i % 3] + [["S", "L 大"][i % 2], "x"] for i in range(900))
    done = demo_inside("--input", path, "--column", "Browser Name", "Größe", "--devices", 900, "--epsilon", 3)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    browser, size = outcome["metrics"]
    assert browser["metric"] == "column.browser_name"
    assert {row["value"]: row["true"] for row in browser["rows"]} == pytest.approx(
        {'Fire"fox': 1 / 3, "Chrome\\x": 1 / 3, "(empty)": 1 / 3}
    )
    assert {row["value"] for row in size["rows"]} == {"S", "L 大"}


def test_a_column_of_strings(tmp_path):
    """A column asked for as strings is recovered by its candidates, and the errors are as predicted."""
    path = tmp_path / "own.csv"
    words = [f"wörd {i}" for i in range(200)]
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["Word", "Size"])
        table.writerows([words[min(int(i**0.5), 199)], "SML"[i % 3]] for i in range(3000))
    done = demo_inside("--input", path, "--column", "Size", "--string", "Word", "--devices", 3000, "--epsilon", 4)
    assert done.returncode == 0, done.stderr
    size, word = json.loads(done.stdout)["metrics"]
    assert (size["metric"], word["metric"], word["mechanism"]) == ("column.size", "column.word", "fast_local_hash")
    assert len(word["rows"]) == 55
    assert abs(word["ratio"] - 1) < 8 * word["ratio_spread"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--devices", "0"], "--devices 0: write 1 or more"),
        (["--epsilon", "0"], "epsilon"),
        (["--epsilon", "lots"], "epsilon = 'lots': write a number of nats"),
        (["--column", "a"], "--input"),
        (["--input", "/no/such.csv", "--column", "a"], "not a readable CSV"),
        (["--input", "/dev/null", "--column", "a"], "there is no a"),
        (["--redis-url", "redis://127.0.0.1:1", "--devices", "10"], "the store cannot be used"),
    ],
)
def test_bad_arguments_are_explained(arguments, message, own):
    """A bad argument ends with status 2 and says what is wrong, without a traceback."""
    done = demo(*arguments, *(own if "--redis-url" in arguments else ()))
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_two_columns_of_one_name_are_refused(tmp_path):
    """Columns whose names become the same metric are told apart or refused, never mixed."""
    path = tmp_path / "own.csv"
    path.write_text("a b,A-B\n1,2\n2,3\n")
    done = demo("--input", path, "--column", "a b", "A-B")
    assert done.returncode == 2
    assert "column.a_b" in done.stderr


def test_a_wrong_estimate_fails_the_demo(monkeypatch, capsys, own):
    """If the truth lies outside its interval the status is 1 and the row says so: the check can fail."""
    shares = Population.shares

    def shifted(self):
        return {metric: dict(zip(of, reversed(of.values()), strict=True)) for metric, of in shares(self).items()}

    monkeypatch.setattr(Population, "shares", shifted)
    assert cli.main(["demo", *own, "--no-year", "--devices", "600", "--epsilon", "6"]) == 1
    assert "OUTSIDE" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["wheel", "cluster"])
def test_a_given_store_may_be_used_twice(start_store, own, kind):
    """Two demos in one store, or in a cluster, count apart, each its own devices."""
    for _ in range(2):
        done = demo_inside(*own, "--devices", 300, "--redis-url", start_store(kind))
        assert done.returncode == 0, done.stderr
        outcome = json.loads(done.stdout)
        assert {metric["n"] for metric in outcome["metrics"]} == {300}
        assert outcome["store"].startswith("given URL")


def test_a_port_in_use_gets_no_reports(own):
    """Where somebody else listens the demo ends with one line, and sends nothing there."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken.settimeout(0)
        done = demo(*own, "--devices", 10, "--port", taken.getsockname()[1])
        assert done.returncode == 2
        assert "is in use by another program" in done.stderr
        with pytest.raises(BlockingIOError):
            taken.accept()


@pytest.mark.parametrize("stays", [True, False])
def test_the_page_stays_in_a_terminal(stays, own):
    """In a terminal the page stays until Ctrl-C, and each long step is announced; with --no-keep the demo ends."""
    screen, theirs = pty.openpty()
    command = [sys.executable, "-m", "deniable", "demo", *own, "--devices", "300", *([] if stays else ["--no-keep"])]
    options = {"stdin": subprocess.DEVNULL, "stdout": theirs, "stderr": theirs, "env": os.environ | {"TERM": "dumb"}}
    process = subprocess.Popen(command, start_new_session=True, **options)
    os.close(theirs)
    output = ""
    # An error says that nobody has the other end any more.
    with suppress(OSError), os.fdopen(screen, encoding="utf-8", errors="replace") as terminal:
        for line in terminal:
            output += line
            if "until you press Ctrl-C" in output.replace("\n", " "):
                assert requests.get(re.search(r"http://[\d.:]+/", output)[0], timeout=300).ok
                assert stays
                os.killpg(process.pid, signal.SIGINT)
    assert process.wait(300) in (0, 1)
    assert re.search("Reading .* Starting .*300 devices answer .*Next: .* the page", re.sub(r"\s+", " ", output)), output
    assert ("Stopping ..." in output) == stays
    assert "Traceback" not in output


def test_ctrl_c_shows_no_traceback(own):
    """Ctrl-C, which goes to every process of the terminal, ends the demo with a word."""
    command = [sys.executable, "-m", "deniable", "demo", *own, "--devices", "300000"]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "stdin": subprocess.DEVNULL}
    process = subprocess.Popen(command, start_new_session=True, **options)
    while "Watch:" not in (line := process.stderr.readline()):
        assert line
    time.sleep(1)  # amid what the devices answer
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert err.endswith("Stopping ...\n")
