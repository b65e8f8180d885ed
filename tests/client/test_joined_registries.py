"""Several registries are joined as paths are; who writes a comma is advised."""

from __future__ import annotations

import os

import pytest

from deniable.errors import RegistryError
from deniable.registry.published import load_all


@pytest.mark.parametrize(("paths", "comma"), [("a.toml,b.toml", True), ("a.toml", False)])
def test_a_comma_between_registries_is_told(paths, comma):
    """A file of that name is missing, and the error says how several are joined."""
    with pytest.raises(RegistryError, match="the registry is missing") as raised:
        load_all(paths)
    assert (f"join them by '{os.pathsep}'" in str(raised.value)) == comma
