"""Compilation while reports are counted: a worker counts with numpy until its kernels are ready.

If no earlier process has stored their machine code, a thread starts a process that compiles them, and waits for it. Then it loads
them. If any of this fails, numpy counts for good, which takes some ten times as long for reports with bits.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from threading import Thread
from typing import TYPE_CHECKING

from deniable_aggregator.process import children
from deniable_aggregator.tally import kernels, machine_code

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger("deniable.worker")

_COMMAND = (sys.executable, "-P", "-m", machine_code.__name__)
_NEEDED = ("PATH", "HOME", "TMPDIR", "XDG_CACHE_HOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG")
_FAMILIES = ("PYTHON", "NUMBA_")


class Compilation:
    """Makes the kernels ready, in a thread. It is created in the main thread."""

    def __init__(self) -> None:
        kernels.postpone()
        # Only the main thread gets this. The process ends with the thread below, which starts it and waits for it.
        self._tied = children.tied()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._thread = Thread(target=self._run, name="kernels", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it. What was compiled by then stays on the disk."""
        self._stopped = True
        if self._process:
            self._process.kill()
        self._thread.join()

    def wait(self) -> None:
        """Wait until it is done, or has failed."""
        self._thread.join()

    def _run(self) -> None:
        try:
            if not machine_code.is_kept():
                self._compile()
            for _ in machine_code.load():
                if self._stopped:
                    return
        except ImportError:  # numba is not installed
            return
        except machine_code.NoDirectoryError:
            self._fail("no directory for machine code can be written to; NUMBA_CACHE_DIR names one")
        except Exception as error:  # noqa: BLE001 - numpy counts the same
            self._fail(f"{type(error).__name__}: {error}")
        else:
            kernels.resume()

    def _compile(self) -> None:
        """Compile the kernels in a process that knows no secret and has no connection, and ends with this one."""
        self._process = subprocess.Popen(
            _COMMAND,
            env=_environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the worker
            preexec_fn=self._tied,  # noqa: PLW1509 - one system call, which no other thread's lock can block
        )
        if self._stopped:  # before the process had its name here
            self._process.kill()
        status = self._process.wait()
        if status:
            raise RuntimeError(f"the process that compiles them ended with status {status}")

    def _fail(self, why: str) -> None:
        if not self._stopped:
            log.warning("reports are counted with numpy, which is slower: %s", why)


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which a process finds Python, our modules and the cache: none with a secret."""
    return {name: value for name, value in environment.items() if name in _NEEDED or name.startswith(_FAMILIES)}
