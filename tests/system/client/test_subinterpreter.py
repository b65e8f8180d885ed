"""The SDK in an isolated subinterpreter, as newer Pythons have them: it has no daemon threads, so nothing can be sent."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("_interpreters", reason="this Python has no isolated subinterpreters")

PROGRAM = """
import sys
import _interpreters

code = '''
import sys
sys.path[:0] = {path!r}
import deniable
client = deniable.init("https://key@t.example/shop", registry={file!r}, consent=True, segments=dict(platform="linux"), state=None)
assert not deniable.record("ui.dark", True)
assert client.stats()["dropped"] == dict(no_thread=1), client.stats()
assert not deniable.flush(5)  # nothing was recorded
assert not deniable.close(5)
'''
failed = _interpreters.exec(_interpreters.create(), code)
sys.exit(failed and failed.errdisplay)
"""


def test_an_answer_is_dropped_with_its_reason(tmp_path, registry_text):
    """The report is dropped with the reason that says so, and nothing else happens."""
    file = tmp_path / "metrics.toml"
    file.write_text(registry_text, "utf-8")
    program = PROGRAM.format(path=sys.path, file=str(file))
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
