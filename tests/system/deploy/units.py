"""The units in deploy/systemd as tests read them, and what systemd and strace say of a process."""

from __future__ import annotations

import re
import shutil
import subprocess
from configparser import RawConfigParser
from functools import cache

import pytest
from shipped import DEPLOY


def strace_works():
    try:
        return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, timeout=30, check=False).returncode == 0
    except FileNotFoundError:
        return False


STRACE = ["strace", "-f", "-qq", "-c", "-o"]
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on PATH")
needs_strace = pytest.mark.skipif(not strace_works(), reason="strace cannot be used here to see which system calls are made")


class _Lines(dict):
    """Options of a section, of which some stand several times."""

    def __setitem__(self, key, value):
        if key in self and isinstance(value, list):
            self[key].extend(value)
        else:
            super().__setitem__(key, value)


@cache
def unit(name, section="Service"):
    """Read a section of a unit: each option with all its values."""
    parser = RawConfigParser(dict_type=_Lines, strict=False, delimiters="=", comment_prefixes="#")
    parser.optionxform = str
    parser.read_string((DEPLOY / "systemd" / name).read_text("utf-8"))
    return {option: text.split("\n") for option, text in parser[section].items()}


def analyze(*arguments):
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, timeout=300, check=False)


def expand(name):
    """Name the system calls of a set of systemd's."""
    calls = set()
    for line in analyze("syscall-filter", name).stdout.splitlines()[1:]:
        word = line.strip()
        if word and not word.startswith("#"):
            calls |= expand(word) if word.startswith("@") else {word}
    return calls


def allowed(name):
    """Name the system calls that a unit leaves its process, as systemd reads the lines one after another."""
    calls = expand("@default")
    for line in unit(name)["SystemCallFilter"]:
        words = line.removeprefix("~").split()
        named = set().union(*(expand(word) if word.startswith("@") else {word} for word in words))
        calls = calls - named if line.startswith("~") else calls | named
    return calls


def counted_calls(trace):
    """Name the system calls that strace has counted."""
    return {line.split()[-1] for line in trace.read_text().splitlines() if re.match(r"\s*\d+\.\d+ ", line)} - {"total"}
