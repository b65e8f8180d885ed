"""What an app pays for ``import deniable``, and that what it gets late is the same."""

from __future__ import annotations

import pkgutil

import pytest

import deniable


@pytest.mark.parametrize("name", [name for name in deniable.__all__ if name[0].isupper()])
def test_a_name_is_found_late(name):
    """Each public class is there when it is asked for, under its own name."""
    class_ = getattr(deniable, name)
    assert isinstance(class_, type)
    assert class_.__name__ == name
    assert class_.__module__.startswith("deniable.")


def test_no_module_takes_the_place_of_a_function():
    """No module is named as a function of the package: importing it would put it in the function's place."""
    assert not {module.name for module in pkgutil.iter_modules(deniable.__path__)} & set(deniable.__all__)
