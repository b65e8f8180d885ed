"""A process in the background that sends what a program left on disk: at most one a day and device, for at most ten seconds.

It is started only if the app asks for it (``exit="helper"``), and only where it can do no harm. It reads the files of the spool,
and locks each as every process does. So it and another run never send one batch at the same time.

The program it runs is this interpreter. Where that is no Python, as in a frozen app, the app itself would start again. There it
is not started, and neither in CI, in a container or in a test: these end what is left behind, or remove its files.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.device.journal import Journal
from deniable.device.state import State
from deniable.messages.log import log
from deniable.process.surroundings import in_ci
from deniable.source import jitter
from deniable.transport import Sender, SenderSettings, Spool
from deniable.transport.dsn import Dsn

if TYPE_CHECKING:
    from collections.abc import Mapping

_MARK = "DENIABLE_HELPER"
"""The variable that says what the process shall send, and that it is one. Its own children do not get it."""

_SECONDS = 10.0  # after which it has ended
_DRAWN = 4.0  # of them at most it waits, so that the time of sending does not show when the program ended
_PYTHON = re.compile(r"(python|pypy)[\d.]*[dt]*")
_CODE = "import os, sys; os.closerange(3, 256); sys.path.append(sys.argv[1]); from deniable.client import helper; helper.main()"
_CONTAINERS = ("/.dockerenv", "/run/.containerenv")
_TESTS = ("PYTEST_CURRENT_TEST",)
_SELF, _TEST, _CI, _CHILD = "this is one itself", "this is a test", "this is continuous integration", "this is a child process"
_USUAL = (_SELF, _TEST, _CI, _CHILD)
"""Where a developer expects none, so that nothing is said of it."""


def start(dsn: Dsn, directory: Path) -> bool:
    """Start the process, unless one was started today; return whether it was started. It raises nothing."""
    try:
        why = hindrance(os.environ)
        if why is None:
            return _take_day(directory) and _spawn(dsn, directory)
        if why not in _USUAL:
            log.warning("deniable: no process in the background sends what waits: %s; a later run sends it", why)
    except (OSError, NotImplementedError, ValueError):  # too many processes, or a system that has no sessions for them
        pass
    return False


def hindrance(environment: Mapping[str, str]) -> str | None:
    """Return why no process may be left behind here, in words; None if one may."""
    ours = sys.modules.get("multiprocessing.process")
    frozen = any(hasattr(sys, name) for name in ("frozen", "oxidized")) or "__compiled__" in vars(sys.modules["__main__"])
    contained = os.getpid() == 1 or any(os.path.exists(path) for path in _CONTAINERS)  # noqa: PTH110 - faster than `Path`
    python = _PYTHON.fullmatch(os.path.basename(sys.executable or ""))  # noqa: PTH119 - as above
    hindrances = {
        _SELF: _MARK in environment,  # or an app that was started in its place
        "Windows may end it with the program": not hasattr(os, "posix_spawn"),  # a job object, or one that refuses it
        "the program is frozen, so it would start itself again": frozen,  # __compiled__ is of Nuitka
        "the interpreter is no Python that could be started": not python,
        "this is a container, which ends with the program": contained,
        "this is a cluster, which ends what a program leaves": "KUBERNETES_SERVICE_HOST" in environment,
        _TEST: any(name in environment for name in _TESTS),
        _CI: in_ci(environment),
        _CHILD: ours is not None and ours.parent_process() is not None,
    }
    return next((why for why, holds in hindrances.items() if holds), None)


def started(directory: Path) -> bool:
    """Return whether the process of this day was started."""
    return (directory / _day()).exists()


def _day() -> str:
    return time.strftime("helper-%Y-%m-%d", time.gmtime())


def _take_day(directory: Path) -> bool:
    """Make the file that is named after the day, and remove that of an earlier one; return whether there was none."""
    day = _day()
    if (directory / day).exists():  # nearly always, so nothing else is looked at
        return False
    with suppress(FileExistsError):
        os.close(os.open(directory / day, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        for path in directory.glob("helper-*"):
            if path.name != day:
                path.unlink(missing_ok=True)
        return True
    return False  # another process has made it meanwhile


def _spawn(dsn: Dsn, directory: Path) -> bool:
    if sys.platform == "win32":
        return False
    order = json.dumps({"dsn": (dsn.url, dsn.key, dsn.app), "directory": str(directory.absolute())})
    package = str(Path(__file__).absolute().parents[2])
    null = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in range(3)]
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-c", _CODE, package],
        os.environ | {_MARK: order},
        file_actions=null,
        setsid=True,
    )
    return True


def main() -> None:
    """Send what a program has left, and end."""
    order = json.loads(os.environ.pop(_MARK))
    if sys.platform != "win32":  # where none is started
        signal.alarm(int(_SECONDS))  # ends this process, whatever hangs
    begun = time.monotonic()
    os.chdir("/")  # so that no file system is held
    time.sleep(jitter(_DRAWN))
    directory = Path(order["directory"])
    journal = Journal(State(directory))
    spool = Spool(directory / "spool")
    dsn = Dsn(*order["dsn"])
    settings = SenderSettings(max_tries=1)
    sender = Sender(dsn, settings, spool=spool, delivered=lambda batch, verdict: verdict.write(batch, journal), exit="spool")
    sender.flush(_SECONDS - 1 - (time.monotonic() - begun))
    sender.leave(1.0)
    os._exit(0)
