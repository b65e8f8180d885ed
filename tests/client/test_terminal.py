"""What commands print: nothing that others wrote steers a terminal, and a closed pipe ends them quietly."""

from __future__ import annotations

import io
import json
import sys

from deniable.commands import terminal


def test_what_others_wrote_is_escaped(monkeypatch):
    """Control and direction characters are escaped in what is printed, to both streams; line ends and tabs stay."""
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with terminal.guarded():
        print("a\tb\x1b[2J\u202egnp.exe\r")  # noqa: T201
        print("c\x9b\u2028", file=sys.stderr)  # noqa: T201
    print("\x1b")  # noqa: T201
    assert out.getvalue() == "a\tb\\u001b[2J\\u202egnp.exe\\u000d\n\x1b\n"
    assert err.getvalue() == "c\\u009b\\u2028\n"


def test_what_an_encoding_lacks_is_escaped(monkeypatch):
    """A console of Windows may know a few letters only; a command goes on there."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="cp437", newline="")
    monkeypatch.setattr(sys, "stdout", out)
    with terminal.guarded():
        print("größer → ±2%")  # noqa: T201
    assert out.buffer.getvalue() == b"gr\x94\xe1er \\u2192 \xf12%\n"


def test_json_is_of_the_same_values(monkeypatch):
    """Escaping happens as JSON does it, so programs read what was there."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    value = "\x7f\u202e\U000e0001\\u0041 größer"
    with terminal.guarded():
        print(json.dumps(value, ensure_ascii=False))  # noqa: T201
    assert out.getvalue().strip().isprintable()
    assert json.loads(out.getvalue()) == value


def test_our_own_colours_reach_the_terminal(monkeypatch):
    """What is written to the stream itself is left alone."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with terminal.guarded():
        print("\033[31mred\033[0m", end="", file=terminal.raw(sys.stdout))
        print(" \033[31m")  # noqa: T201
    assert out.getvalue() == "\033[31mred\033[0m \\u001b[31m\n"
    assert terminal.raw(sys.stdout) is out
