"""Kernels are compiled by a process that knows no secret and ends with its worker; without them numpy counts."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deniable.wire.layout import Layout
from deniable_aggregator import tally
from deniable_aggregator.counting import compilation
from deniable_aggregator.counting.compilation import Compilation
from deniable_aggregator.tally import kernels, machine_code


@pytest.fixture
def compiling(monkeypatch):
    """Return what lets other code run in place of the process that compiles, as if nothing were compiled yet."""
    pytest.importorskip("numba")

    def begin(code):
        monkeypatch.setattr(machine_code, "is_kept", lambda: False)
        monkeypatch.setattr(compilation, "_COMMAND", (sys.executable, "-P", "-c", code))
        return Compilation()

    yield begin
    kernels.resume()


def test_kernels_are_used_when_they_are_there(compiling):
    """Until then numpy counts."""
    compilation = compiling("")
    compilation.wait()
    assert kernels.backend() == "numba"
    compilation.stop()


def test_numpy_counts_meanwhile(compiling):
    """The process is ended with the worker, which says nothing of it."""
    compilation = compiling("import time; time.sleep(600)")
    assert kernels.backend() == "numpy"
    assert tally.count(Layout(1, 8, "bits"), b"\3").counts.tolist() == [[1, 1, 0, 0, 0, 0, 0, 0]]
    compilation.stop()
    assert kernels.backend() == "numpy"


def test_a_failure_is_one_line(compiling, caplog):
    """And numpy counts for good."""
    with caplog.at_level(logging.INFO):
        compiling("import sys; sys.exit(3)").wait()
    (line,) = caplog.messages
    assert "numpy" in line
    assert "status 3" in line
    assert kernels.backend() == "numpy"


def test_the_process_knows_no_secret(compiling, monkeypatch, tmp_path):
    """Neither the store's address nor a key of the archive is in its environment, and no connection is open."""
    for name in ("DENIABLE_REDIS_URL", "AWS_SECRET_ACCESS_KEY", "REDIS_PASSWORD"):
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    record = tmp_path / "record"
    reader, writer = os.pipe()
    code = f"import os; open({str(record)!r}, 'w').write(repr((dict(os.environ), os.listdir('/dev/fd'))))"
    compiling(code).wait()
    os.close(reader)
    os.close(writer)
    variables, files = eval(record.read_text("utf-8"))
    assert "canary" not in repr(variables)
    assert variables["NUMBA_CACHE_DIR"] == str(tmp_path)
    assert len(files) <= 5  # the standard ones, the file and the list


PARENT = """
import sys, time
from deniable_aggregator.counting import compilation
from deniable_aggregator.tally import machine_code
machine_code.is_kept = lambda: False
compilation._COMMAND = (sys.executable, "-c", "import time; time.sleep(600)")
compiler = compilation.Compilation()
while compiler._process is None:
    time.sleep(0.01)
print(compiler._process.pid, flush=True)
time.sleep(600)
"""


def lives(process):
    try:
        return " Z " not in Path(f"/proc/{process}/stat").read_text("utf-8")
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties processes")
def test_the_process_ends_with_the_worker():
    """Even if that is killed."""
    pytest.importorskip("numba")
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        process = int(parent.stdout.readline())
        os.kill(process, 0)
        parent.send_signal(signal.SIGKILL)
    while lives(process):
        time.sleep(0.05)


COLD = """
import logging
from deniable_aggregator.counting.compilation import Compilation
from deniable_aggregator.tally import kernels, machine_code
logging.basicConfig()
compiler = Compilation()
print(kernels.backend())
compiler.wait()
print(kernels.backend(), machine_code.is_kept(), compiler._process is not None)
from deniable_aggregator.tally import compiled
print(sum(compiled.popcount.stats.cache_misses.values()), sum(compiled.histogram.stats.cache_misses.values()))
"""


@pytest.mark.campaign
def test_an_empty_cache_is_filled(tmp_path):
    """By another process, once: the first that counts reads from it, as does the next one."""
    pytest.importorskip("numba")
    for compiled in (True, False):
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", COLD], env=environment, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        assert done.stdout.splitlines() == ["numpy", f"numba True {compiled}", "0 0"]


def run(code):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


COUNT = """
import sys
import numpy as np
from deniable_aggregator.tally import kernels
cells = np.zeros(4, np.int64)
"""


def test_numba_is_imported_only_to_count():
    """A process that never counts does not pay for importing numba."""
    assert run(COUNT + "print('numba' in sys.modules)") == "False"


def test_without_numba_numpy_counts():
    """Where numba is missing, numpy gives the same counts."""
    code = COUNT + "sys.modules['numba'] = None; kernels.histogram(np.array([3, 3], np.uint8), 1, cells)\n"
    assert run(code + "print(kernels.backend(), cells[3])") == "numpy 2"


def test_without_a_directory_for_machine_code_numba_counts():
    """Where machine code cannot be kept, numba compiles and counts all the same."""
    pytest.importorskip("numba")
    code = (
        COUNT
        + "from numba.core import caching\n"
        + "caching.CacheImpl._locator_classes = []\n"
        + "kernels.histogram(np.array([3, 3], np.uint8), 1, cells)\n"
    )
    assert run(code + "print(kernels.backend(), cells[3])") == "numba 2"


GUARDED = """
import ctypes, mmap
import numpy as np
from deniable.wire.layout import Layout
from deniable_aggregator.tally import kernels
memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
message = np.frombuffer(memory, np.uint8)
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(message.ctypes.data + mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
for rows, width in [(1, 1), (1, 9), (1, 2100), (2, 1), (2, 9), (64, 128), (300, 65), (70_000, 3)]:
    layout = Layout(rows, width, "bits")
    for number in (1, 2, 3, 17, mmap.PAGESIZE // layout.payload_size):
        if number * layout.payload_size <= mmap.PAGESIZE:
            payloads = message[mmap.PAGESIZE - number * layout.payload_size : mmap.PAGESIZE]
            cells, reports = np.zeros((rows, width), np.int64), np.zeros(rows, np.int64)
            kernels.popcount(payloads, layout.row_size, layout.payload_size, width, cells, reports)
            assert reports[0] == number
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs mprotect")
def test_nothing_is_read_past_the_payloads():
    """Payloads may end where memory does."""
    assert not run(GUARDED)
