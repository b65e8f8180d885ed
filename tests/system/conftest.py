"""Tests that start processes. Programs of ours are forked where they can be, but not in a test that is marked `starts_anew`."""

from __future__ import annotations

import programs
import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what stands in this folder."""
    item.add_marker("system")


@pytest.fixture(autouse=True, scope="session")
def forked_programs():
    """Have programs of ours forked from a process that has imported what they need."""
    programs.install()


@pytest.fixture(autouse=True)
def new_programs(request):
    """Start programs as usual in tests of the start itself."""
    if request.node.get_closest_marker("starts_anew"):
        with programs.started():
            yield
    else:
        yield
