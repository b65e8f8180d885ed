"""The process that sends in the background: where it may be started, and that there is one a day."""

from __future__ import annotations

import multiprocessing.process
import os
import sys

import pytest

from deniable.client import helper
from deniable.process.surroundings import _CI, in_ci
from deniable.transport.dsn import Dsn

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_spawn"), reason="nothing is left behind there")
DSN = Dsn("https://t.example", "key", "shop")


@pytest.fixture
def _alone(monkeypatch):
    """Be a usual program on a usual machine."""
    monkeypatch.setattr(helper, "_CONTAINERS", ())
    monkeypatch.setattr(helper, "_TESTS", ())  # pytest sets its own again for each phase
    for name in (*_CI, "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def spawned(monkeypatch, _alone):
    """Return the environments of the processes that would have been started."""
    environments = []
    monkeypatch.setattr(os, "posix_spawn", lambda *arguments, **_: environments.append(arguments[2]))
    return environments


def test_one_a_day(spawned, tmp_path, monkeypatch):
    """The first program of a day starts it, and the file of an earlier day goes."""
    (tmp_path / "helper-2020-01-01").touch()
    assert [helper.start(DSN, tmp_path) for _ in range(3)] == [True, False, False]
    assert len(spawned) == 1
    assert [path.name for path in tmp_path.iterdir()] == [helper.time.strftime("helper-%Y-%m-%d", helper.time.gmtime())]
    monkeypatch.setattr(helper.time, "gmtime", lambda: (2100, 1, 1, 0, 0, 0, 0, 1, 0))
    assert helper.start(DSN, tmp_path)


DANGERS = {
    "one of its own": {"variable": (helper._MARK, "{}")},
    "CI": {"variable": ("CI", "true")},
    "GitHub": {"variable": ("GITHUB_ACTIONS", "true")},
    "a test": {"attribute": (helper, "_TESTS", helper._TESTS)},
    "a cluster": {"variable": ("KUBERNETES_SERVICE_HOST", "10.0.0.1")},
    "PyInstaller": {"attribute": (sys, "frozen", True)},
    "PyOxidizer": {"attribute": (sys, "oxidized", True)},
    "Nuitka": {"attribute": (sys.modules["__main__"], "__compiled__", True)},
    "no Python": {"attribute": (sys, "executable", "/usr/bin/shop")},
    "embedded": {"attribute": (sys, "executable", "")},
    "the first process": {"attribute": (os, "getpid", lambda: 1)},
    "a container": {"attribute": (helper, "_CONTAINERS", (os.devnull,))},
    "a child of multiprocessing": {"attribute": (multiprocessing.process, "parent_process", object)},
}

USUAL = ("one of its own", "CI", "GitHub", "a test", "a child of multiprocessing")  # where nobody expects one


@pytest.mark.parametrize("danger", DANGERS)
def test_where_none_is_started(danger, spawned, tmp_path, monkeypatch, caplog):
    """Where it could start the app again, be killed or hold something up, none is started and no day taken, and a log says so."""
    how = DANGERS[danger]
    if "variable" in how:
        monkeypatch.setenv(*how["variable"])
    else:
        monkeypatch.setattr(*how["attribute"], raising=False)
    with caplog.at_level("WARNING", "deniable"):
        assert not helper.start(DSN, tmp_path)
    assert not spawned
    assert not list(tmp_path.iterdir())
    assert bool(caplog.messages) is (danger not in USUAL)


@pytest.mark.usefixtures("_alone")
def test_windows(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_spawn")
    assert not helper.start(DSN, tmp_path)


@pytest.mark.usefixtures("_alone")
@pytest.mark.parametrize("error", [OSError, NotImplementedError])
def test_a_system_that_refuses(tmp_path, monkeypatch, error):
    """A program that ends never sees that no process could be started."""

    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(os, "posix_spawn", refuse)
    assert not helper.start(DSN, tmp_path)


def test_its_children_are_unmarked(monkeypatch):
    """The mark is gone before it does anything else, so that no child of it has it."""
    monkeypatch.setenv(helper._MARK, "no order")
    with pytest.raises(ValueError):
        helper.main()
    assert helper._MARK not in os.environ


@pytest.mark.parametrize(
    ("variables", "ci"), [({}, False), ({"CI": "1"}, True), ({"CI": "false"}, False), ({"TF_BUILD": "True"}, True)]
)
def test_ci(variables, ci):
    assert in_ci(variables) is ci
