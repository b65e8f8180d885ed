"""A worker counts with numpy until its kernels are compiled, by a process that knows no secret and ends with it."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.wire.layout import Layout
from deniable_aggregator import tally
from deniable_aggregator.counting import compilation
from deniable_aggregator.counting.compilation import Compilation
from deniable_aggregator.tally import kernels, set_bits

pytest.importorskip("numba")


@pytest.fixture(autouse=True)
def resumed():
    yield
    kernels.resume()


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
