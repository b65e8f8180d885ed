"""The stores that a test can run on, as names for `start_store`."""

from __future__ import annotations

import pytest

WHEEL, CLUSTER = (pytest.param(name, marks=pytest.mark.other_store) for name in ("wheel", "cluster"))
REAL = ["server", WHEEL, CLUSTER]
EVERY = ["fake", *REAL]
