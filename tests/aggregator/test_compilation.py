"""A worker counts with numpy until its kernels are compiled, by a process that knows no secret and ends with it."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.wire.layout import Layout
from deniable_aggregator import tally
from deniable_aggregator.counting import compilation
from deniable_aggregator.counting.compilation import Compilation
from deniable_aggregator.tally import kernels, machine_code, set_bits

pytest.importorskip("numba")


@pytest.fixture(autouse=True)
def resumed():
    yield
    kernels.resume()


@pytest.fixture
def compiling(monkeypatch):
    """Return what lets other code run in place of the process that compiles, as if nothing were compiled yet."""

    def begin(code):
        monkeypatch.setattr(machine_code, "is_kept", lambda: False)
        monkeypatch.setattr(compilation, "_COMMAND", (sys.executable, "-P", "-c", code))
        return Compilation()

    return begin


def payloads(layout, reports, seed):
    rng = np.random.default_rng(seed)
    content = rng.integers(0, layout.rows * layout.width if layout.kind == "index" else 2, (reports, layout.width))
    if layout.kind == "index":
        return b"".join(int(cell).to_bytes(layout.payload_size, "little") for cell in content[:, 0])
    bits = [int("".join(map(str, row)), 2) for row in content.tolist()]
    return b"".join(layout.pack(int(rng.integers(layout.rows)), each) for each in bits)


@given(
    st.builds(Layout, st.integers(1, 300), st.integers(2, 140), st.sampled_from(["index", "bits"])),
    st.integers(0, 200),
    st.integers(0, 99),
)
@settings(max_examples=100, deadline=None)
def test_numpy_and_the_kernels_count_the_same(layout, reports, seed):
    """Whatever the layout: a tally may be counted by both, one batch after another."""
    sent, counted = payloads(layout, reports, seed), []
    kernels.backend()
    for choose in (kernels.postpone, kernels.resume):
        choose()
        weights = set_bits.count(layout, sent).tolist() if layout.kind == "bits" else []
        counted.append((tally.count(layout, sent), weights))
    assert counted[0] == counted[1]


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


def test_no_directory_for_machine_code(monkeypatch, caplog):
    """Nothing is compiled, and the line names what to set."""
    from deniable_aggregator.tally import compiled

    class Nowhere:
        class stats:  # noqa: N801
            cache_path = None

    monkeypatch.setattr(compiled, "popcount", Nowhere)
    monkeypatch.setattr(compilation, "_COMMAND", ())
    Compilation().wait()
    assert "NUMBA_CACHE_DIR" in caplog.text
    assert kernels.backend() == "numpy"


def test_without_numba(monkeypatch, caplog):
    """Numpy counts, and nothing is said."""
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    Compilation().wait()
    assert caplog.messages == []


def test_the_process_knows_no_secret(compiling, monkeypatch, tmp_path):
    """Neither the store's address nor a key of the archive is in its environment, and no connection is open."""
    for name in ("DENIABLE_REDIS_URL", "AWS_SECRET_ACCESS_KEY", "REDIS_PASSWORD"):
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    told = tmp_path / "told"
    reader, writer = os.pipe()
    code = f"import os; open({str(told)!r}, 'w').write(repr((dict(os.environ), os.listdir('/dev/fd'))))"
    compiling(code).wait()
    os.close(reader)
    os.close(writer)
    variables, files = eval(told.read_text("utf-8"))
    assert "canary" not in repr(variables)
    assert variables["NUMBA_CACHE_DIR"] == str(tmp_path)
    assert len(files) <= 5  # the standard ones, the file and the list


PARENT = """
import sys, time
from deniable_aggregator.counting import compilation
from deniable_aggregator.tally import machine_code
machine_code.is_kept = lambda: False
compilation._COMMAND = (sys.executable, "-c", "import time; time.sleep(600)")
made = compilation.Compilation()
while made._process is None:
    time.sleep(0.01)
print(made._process.pid, flush=True)
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
made = Compilation()
print(kernels.backend())
made.wait()
print(kernels.backend(), machine_code.is_kept(), made._process is not None)
from deniable_aggregator.tally import compiled
print(sum(compiled.popcount.stats.cache_misses.values()), sum(compiled.histogram.stats.cache_misses.values()))
"""


@pytest.mark.campaign
def test_an_empty_cache_is_filled(tmp_path):
    """By another process, once: the first that counts reads from it, as does the next one."""
    for compiled in (True, False):
        told = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", COLD], env=told, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        assert done.stdout.splitlines() == ["numpy", f"numba True {compiled}", "0 0"]
