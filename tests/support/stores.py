"""The stores that a test can run on, as names for `start_store`."""

from __future__ import annotations

import re
from functools import wraps

import pytest
from fakeredis import FakeRedis
from fakeredis.commands_mixins.scripting_mixin import ScriptingCommandsMixin

WHEEL, CLUSTER = (pytest.param(name, marks=pytest.mark.other_store) for name in ("wheel", "cluster"))
REAL = ["server", WHEEL, CLUSTER]
EVERY = ["fake", *REAL]


@wraps(ScriptingCommandsMixin.eval)
def _eval(self, script, *arguments, of=ScriptingCommandsMixin.eval):
    """Run a script without its first line if that has flags, which only real servers know."""
    return of(self, re.sub(rb"\A#!.*", b"", script), *arguments)


ScriptingCommandsMixin.eval = _eval


def fake():
    """Open a store that is a model of one, in this process."""
    return FakeRedis()
