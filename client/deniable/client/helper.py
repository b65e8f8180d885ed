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
_ENDED = ("KUBERNETES_SERVICE_HOST", "PYTEST_CURRENT_TEST")
"""Variables of places that end with the program."""


def start(dsn: Dsn, directory: Path) -> bool:
    """Start the process, unless one was started today; return whether it was started. It raises nothing."""
    try:
        return _may_start(os.environ) and _take_day(directory) and _spawn(dsn, directory)
    except (OSError, NotImplementedError, ValueError):  # too many processes, or a system that has no sessions for them
        return False


def _may_start(environment: Mapping[str, str]) -> bool:
    """Return whether a process may be left behind here."""
    ours = sys.modules.get("multiprocessing.process")
    return not (
        _MARK in environment  # this is one, or an app that was started in its place
        or not hasattr(os, "posix_spawn")  # a job object of Windows may end with this program, or refuse a child that leaves it
        or not _PYTHON.fullmatch(os.path.basename(sys.executable or ""))  # noqa: PTH119 - faster than `Path`
        or any(hasattr(sys, name) for name in ("frozen", "oxidized"))
        or "__compiled__" in vars(sys.modules["__main__"])  # by Nuitka
        or os.getpid() == 1
        or any(os.path.exists(path) for path in _CONTAINERS)  # noqa: PTH110 - as above
        or any(name in environment for name in _ENDED)
        or in_ci(environment)
        or (ours is not None and ours.parent_process() is not None)
    )


def _take_day(directory: Path) -> bool:
    """Make the file that is named after the day, and remove that of an earlier one; return whether there was none."""
    day = time.strftime("helper-%Y-%m-%d", time.gmtime())
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
