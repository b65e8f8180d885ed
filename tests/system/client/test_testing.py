"""The plugin of `deniable.testing` in the tests of an app."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


def run_pytest(folder, test, *, installed=False, ini="", **variables):
    """Run a test file of an app in a process of its own.

    With `installed` pytest finds the plugin itself, as it does in an app, and with it all that others have installed, which takes
    two seconds.
    """
    folder.joinpath("test_app.py").write_text(test, "utf-8")
    folder.joinpath("pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{ini}\n", "utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "DENIABLE"))}
    plugins = [] if installed else ["-p", "deniable.testing.plugin"]
    environment |= {} if installed else {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins],
        cwd=folder,
        env=environment | {"DENIABLE_STATE_DIR": str(folder / "state"), "COLUMNS": "200"} | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture
def registry_file(tmp_path, registry_text):
    """Write the registry of the tests."""
    path = tmp_path / "metrics.toml"
    path.write_text(registry_text, "utf-8")
    return path


APP = """
import deniable

def toggle(theme):
    try:
        return deniable.record("ui.theme", theme)
    except Exception:
        return False

def test_first(deniable_capture):
    assert toggle("dark")
    assert deniable_capture.values("ui.theme") == ["dark"]

def test_next(deniable_capture):
    assert deniable_capture.answers == []

def test_without():
    assert not toggle("dark")
"""


def test_the_fixture(registry_file):
    """The fixture comes with the package, finds metrics.toml in the root directory, and each test begins with nothing."""
    done = run_pytest(registry_file.parent, APP, installed=True)
    assert "3 passed" in done.stdout, done.stdout
    assert not (registry_file.parent / "state").exists()


def test_the_fixture_without_a_registry(tmp_path):
    """It fails at the first answer and says what to do, also where the app catches the error."""
    done = run_pytest(tmp_path, APP)
    assert "1 failed, 2 passed" in done.stdout, done.stdout
    assert "test_app.py:6: no registry is known, so nothing can be checked: set deniable_registry = metrics.toml" in done.stdout


def test_the_fixture_with_a_registry(registry_file):
    """With a registry in the ini file a typo fails the test even if the app swallows the error, and says where it is."""
    swallowed = APP + "\ndef test_typo(deniable_capture):\n    assert not toggle('drak')\n"
    raised = swallowed + "\ndef test_raised(deniable_capture):\n    deniable.record('ui.thme', 'dark')\n"
    done = run_pytest(registry_file.parent, raised, ini="deniable_registry = metrics.toml")
    assert "1 failed, 4 passed, 1 error" in done.stdout, done.stdout
    assert "ERROR test_app.py::test_typo" in done.stdout
    assert "FAILED test_app.py::test_raised - deniable.errors.ParameterError: 'ui.thme' is not declared" in done.stdout
    assert "capture.py" not in done.stdout, "the line of the app is the last one that pytest shows"
    words = (
        "'drak' is not declared: an answer to ui.theme must be one of the 3 declared values: light, dark, system; "
        "did you mean 'dark'?"
    )
    assert f"test_app.py:6: {words}" in done.stdout


def test_a_failure_without_consent_says_so(registry_file):
    """Nothing was captured, and pytest shows the line of the app and what to do; a test that passes says nothing."""
    test = """
import deniable

def run():
    deniable.init(registry="metrics.toml", consent=False, segments={"platform": "linux"})
    deniable.record("ui.theme", "dark")

def test_wants_an_answer(deniable_capture):
    run()
    assert deniable_capture.values("ui.theme") == ["dark"]

def test_wants_none(deniable_capture):
    run()
    assert deniable_capture.values("ui.theme") == []
    assert deniable.flush().dropped == {"no_consent": 1}
"""
    done = run_pytest(registry_file.parent, test)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    words = (
        "test_app.py:6: nobody has agreed, so nothing is recorded (ui.theme); call set_consent(True) once the person has said yes"
    )
    assert done.stdout.count(words) == 1, done.stdout


def test_a_tool_that_records_nothing_says_so(registry_file):
    """Without a yes, in continuous integration, and with an opt-out: pytest shows the line of the tool and what to do."""
    test = """
import deniable
from deniable.cli import Telemetry

def run(ci=False, agree=False):
    options = {"command": "shop", "ci": ci, "segments": {"platform": "linux"}}
    telemetry = Telemetry("https://pk_a@t.example/shop", registry="metrics.toml", **options)
    if agree:
        telemetry.turn_on()
    telemetry.record("ui.theme", "dark")

def test_no_consent(deniable_capture):
    run(ci=True)
    assert len(deniable_capture.without_consent) == 1
    assert deniable.flush().dropped == {"no_consent": 1}
    assert deniable_capture.values("ui.theme") == ["dark"]

def test_in_ci(deniable_capture):
    run(agree=True)
    assert deniable_capture.values("ui.theme") == ["dark"]

def test_all_is_well(deniable_capture):
    run(ci=True, agree=True)
    assert deniable_capture.without_consent == []
    assert deniable_capture.values("ui.theme") == ["dark"]

def test_opt_out(deniable_capture, monkeypatch):
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    run(ci=True, agree=True)
    assert deniable_capture.values("ui.theme") == ["dark"]
"""
    done = run_pytest(registry_file.parent, test, CI="1")
    assert "3 failed, 1 passed" in done.stdout, done.stdout
    for words in (
        "test_app.py:10: nobody has agreed, so nothing is recorded (ui.theme); call turn_on() of the Telemetry once the person",
        "test_app.py:10: this is continuous integration (CI is set), so nothing is recorded (ui.theme); in a test, pass ci=True",
        "test_app.py:10: DO_NOT_TRACK is set, so nothing is recorded (ui.theme); unset it for the test",
    ):
        assert done.stdout.count(words) == 1, done.stdout


def test_a_failure_of_reports_that_wait_says_so(registry_file):
    """Without a flush or a wait nothing has come yet; a test that passes says nothing."""
    test = """
import deniable

def run():
    deniable.init(registry="metrics.toml", consent=True, segments={"platform": "linux"})
    deniable.record("ui.theme", "dark")

def test_one(deniable_stub_server):
    run()
    assert len(deniable_stub_server.reports) == 1

def test_none(deniable_stub_server):
    run()
    assert deniable_stub_server.reports == []
"""
    done = run_pytest(registry_file.parent, test)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    words = "1 report not sent yet: call deniable.flush(timeout=30) or wait() of the stub server before"
    assert done.stdout.count(words) == 1, done.stdout


def test_a_period_that_is_over_says_what_a_test_does(registry_file):
    """A report that waits while the clock moves on is refused. What is said is no advice on the clock of the machine alone."""
    test = """
import deniable

def test_months(deniable_stub_server, deniable_clock):
    deniable.init(registry="metrics.toml", consent=True, segments={"platform": "linux"})
    deniable.record("ui.theme", "dark")
    deniable_clock.advance(days=62)
    assert deniable.flush(30), "nothing came"
"""
    done = run_pytest(registry_file.parent, test)
    assert "1 failed" in done.stdout, done.stdout
    assert "else raise `grace`. In a test, flush before you move the clock on" in done.stdout, done.stdout


def test_the_server_fixture(registry_file):
    """The stub server's fixture takes the registry in the root directory, and each test has a new device."""
    test = """
import pytest
import deniable

SEGMENTS = {"platform": "linux"}

@pytest.mark.parametrize("time", [1, 2])
def test_send(deniable_stub_server, time):
    deniable.init(registry="metrics.toml", consent=True, segments=SEGMENTS)
    assert deniable.record("ui.theme", "dark")
    assert deniable.flush(60)
    assert len(deniable_stub_server.reports) == 1
    global left
    left = deniable.Client(registry="metrics.toml", consent=True, segments=SEGMENTS)

def test_after():
    assert deniable.stats()["disabled"] == "deniable.init was not called"
    assert not left.record("ui.dark", True)
    assert left.stats()["dropped"] == {"closed": 1}
"""
    for _ in range(2):
        done = run_pytest(registry_file.parent, test, DO_NOT_TRACK="1", DENIABLE_DISABLED="1")
        assert "3 passed" in done.stdout, done.stdout
    assert not (registry_file.parent / "state").exists()


def test_a_wait_sends(registry_file):
    """Nobody needs to call flush before: what is recorded before or during the wait is sent."""
    test = """
from threading import Timer

import deniable

def test_wait(deniable_stub_server):
    deniable.init(registry="metrics.toml", consent=True, segments={"platform": "linux"})
    deniable.record("ui.theme", "dark")
    waited = deniable_stub_server.wait(1, timeout=120)
    assert waited, waited
    Timer(0.2, deniable.record, ("ui.dark", True)).start()
    waited = deniable_stub_server.wait(2, timeout=120)
    assert waited, waited
"""
    settings = {"DENIABLE_FLUSH_INTERVAL": "3600"}
    done = run_pytest(registry_file.parent, test, **settings)
    assert "1 passed" in done.stdout, done.stdout


def test_a_failure_after_a_wait_in_vain_says_so(registry_file):
    """A test that fails because the reports did not come shows why, also if it does not assert that they came."""
    test = """
import deniable

def test_reports(deniable_stub_server):
    deniable.init(registry="metrics.toml", consent=False, segments={"platform": "linux"})
    deniable.record("ui.theme", "dark")
    deniable_stub_server.wait(1, timeout=0)
    assert len(deniable_stub_server.reports) == 1

def test_none(deniable_stub_server):
    assert not deniable_stub_server.wait(1, timeout=0)
"""
    done = run_pytest(registry_file.parent, test)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    words = (
        "wait: 0 reports of 1 came; 1 answer dropped as no_consent: nobody has agreed, so nothing is recorded; call set_consent"
    )
    assert done.stdout.count(words) == 1, done.stdout
    assert done.stdout.count("wait: 0 reports") == 1, done.stdout


def test_both_fixtures_in_one_test(registry_file):
    """Such a test fails at its setup in either order, says why, and leaves nothing behind for others."""
    test = """
import pytest
import deniable

def test_capture_first(deniable_capture, deniable_stub_server):
    pass

def test_stub_first(deniable_stub_server, deniable_capture):
    pass

def test_asked_for_later(deniable_capture, request):
    with pytest.raises(pytest.fail.Exception, match="use one of them"):
        request.getfixturevalue("deniable_stub_server")

def test_stub(deniable_stub_server):
    deniable.init(registry="metrics.toml", consent=True, segments={"platform": "linux"})
    assert deniable.record("ui.theme", "dark")
    assert deniable.flush(60)

def test_capture(deniable_capture):
    deniable.init(registry="metrics.toml", consent=True, segments={"platform": "linux"})
    assert deniable.record("ui.theme", "dark")
    assert deniable_capture.values("ui.theme") == ["dark"]
"""
    done = run_pytest(registry_file.parent, test)
    assert "3 passed, 2 errors" in done.stdout, done.stdout
    assert "deniable_stub_server would get none: use one of them in a test" in done.stdout, done.stdout


def test_answers_before_init_fail_the_test(registry_file):
    """Under both fixtures: a device drops them, and the test would pass."""
    test = """
import deniable

SEGMENTS = {"platform": "linux"}

def run(first):
    if not first:
        deniable.record("ui.dark", True)
    deniable.init(registry="metrics.toml", consent=True, segments=SEGMENTS)
    deniable.record("ui.theme", "dark")

def test_capture(deniable_capture):
    run(first=False)

def test_stub(deniable_stub_server):
    run(first=False)

def test_good(deniable_capture):
    run(first=True)

def test_also_good(deniable_stub_server):
    run(first=True)
"""
    done = run_pytest(registry_file.parent, test)
    assert "4 passed, 2 errors" in done.stdout, done.stdout
    assert "test_app.py:8: recorded before deniable.init, so a device drops it: call init first" in done.stdout
    assert (
        "1 answer: record was called before deniable.init, so the answer is lost; call init first, where the app starts"
        in done.stdout
    )


def test_a_dsn_in_the_code_leads_to_the_stub_server(registry_file):
    """Of each client, also where one object of the app lives through all tests; the name of the app is still checked."""
    test = """
import pytest
import deniable
from deniable.cli import Telemetry

DSN = "https://pk@127.0.0.1:1/shop"
SEGMENTS = {"platform": "linux"}
telemetry = Telemetry(DSN, registry="metrics.toml", ci=True, segments=SEGMENTS)

@pytest.mark.parametrize("time", [1, 2])
def test_a_tool(deniable_stub_server, time):
    telemetry.turn_on()
    assert telemetry.record("ui.theme", "dark")
    arrival = deniable.flush(60)
    assert arrival, arrival
    assert len(deniable_stub_server.reports) == 1

def test_a_tool_is_captured(deniable_capture):
    telemetry.turn_on()
    assert telemetry.record("ui.theme", "dark")

def test_a_client(deniable_stub_server):
    with deniable.Client(dsn=DSN, registry="metrics.toml", consent=True, segments=SEGMENTS) as client:
        assert client.record("ui.theme", "dark")
        assert client.flush(60)
    assert len(deniable_stub_server.reports) == 1
    with pytest.raises(deniable.ConfigurationError, match="the DSN is for app 'other'"):
        deniable.init("https://pk@127.0.0.1:1/other", registry="metrics.toml", consent=True, segments=SEGMENTS, strict=True)
"""
    done = run_pytest(registry_file.parent, test)
    assert "4 passed" in done.stdout, done.stdout


def test_the_guide(tmp_path):
    """The project of docs/how-to/test.md passes its own tests, also on a developer's machine that is not to be tracked."""
    guide = (Path(__file__).parents[3] / "docs" / "how-to" / "test.md").read_text("utf-8")
    files = re.findall(r"<!-- testing: ([\w.]+\.py) -->\n```python\n(.*?)```", guide, re.DOTALL)
    for name, text in files:
        with tmp_path.joinpath(name).open("a", encoding="utf-8") as file:
            file.write(text)
    subprocess.run([sys.executable, "-m", "deniable", "init", "--app", "shop"], cwd=tmp_path, check=True, timeout=120)
    tests = sum(text.count("def test_") for _, text in files)
    done = run_pytest(tmp_path, "", DO_NOT_TRACK="1", CI="1")
    assert f"{tests} passed" in done.stdout, done.stdout
    subprocess.run([sys.executable, "plain.py"], cwd=tmp_path, check=True, timeout=120)


def test_the_plugin_loads_nothing(tmp_path):
    """A session that uses no fixture of ours loads neither the client nor requests."""
    test = "import sys\ndef test():\n    assert not {'deniable.client', 'deniable.errors', 'requests'} & set(sys.modules)\n"
    assert "1 passed" in run_pytest(tmp_path, test).stdout
