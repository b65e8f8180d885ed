"""What asking a server loads."""

from __future__ import annotations

import subprocess
import sys


def test_the_client_is_light():
    """It loads neither the SDK nor anything for frames."""
    code = "import sys, deniable_query; print({name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert not set(eval(done.stdout)) & {"deniable", "numpy", "pandas", "polars", "pyarrow", "msgspec"}
