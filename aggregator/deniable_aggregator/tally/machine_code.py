"""Machine code of the kernels: it is compiled once into a directory, numba's cache, and every later process reads it from there.

To compile holds the GIL for seconds. So a process that counts lets another one do it: ``python -m`` this module. It leaves a mark
beside the machine code, with all that numba tells machine code apart by: its own version, the processor, and the source.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deniable_aggregator.tally import kernels

if TYPE_CHECKING:
    from collections.abc import Iterator


class NoDirectoryError(Exception):
    """No directory can keep machine code."""


def is_kept() -> bool:
    """Return whether all kernels were compiled before, for this processor, where this process finds them."""
    return _mark().exists()


def load() -> Iterator[None]:
    """Load the machine code of one kernel after another, or compile it where it is not kept."""
    from deniable_aggregator.tally import compiled_weights  # noqa: PLC0415 - numba is loaded when it is needed

    yield from kernels.call()
    compiled_weights.count(np.frombuffer(b"\0", np.uint8), 0, 1, np.zeros(9, np.int64))
    yield


def _mark() -> Path:
    import llvmlite.binding  # noqa: PLC0415
    import numba  # noqa: PLC0415

    from deniable_aggregator.tally import compiled, compiled_weights  # noqa: PLC0415

    kernel: Any = compiled.popcount
    folder = kernel.stats.cache_path
    if folder is None:
        raise NoDirectoryError
    features = str(llvmlite.binding.get_host_cpu_features())
    sources = [Path(str(module.__file__)).stat() for module in (compiled, compiled_weights)]
    stamps = [(each.st_mtime_ns, each.st_size) for each in sources]
    what = repr((numba.__version__, np.__version__, sys.version, llvmlite.binding.get_host_cpu_name(), features, stamps))
    return Path(folder) / f"complete-{sha256(what.encode()).hexdigest()[:16]}"


def _main() -> None:
    mark = _mark()
    for _ in load():
        pass
    mark.touch()


if __name__ == "__main__":
    _main()
