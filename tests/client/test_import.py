"""What an app pays for ``import deniable``, and that what it gets late is the same."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import deniable

HEAVY = {
    *("asyncio", "bz2", "dataclasses", "decimal", "email", "fractions", "gzip", "hashlib", "http.client", "inspect", "json"),
    *("logging", "lzma", "multiprocessing", "numpy", "pathlib", "pytest", "queue", "random", "requests", "shutil", "socket"),
    *("sqlite3", "ssl", "subprocess", "tempfile", "threading", "tomllib", "typing", "urllib3", "uuid"),
}
OF_THE_THREAD = {
    "cryptography",
    "email",
    "gzip",
    "http.client",
    "numpy",
    "pytest",
    "random",
    "requests",
    "socket",
    "ssl",
    "urllib3",
}
MODULES_MORE = 6  # than before: the package, __future__, atexit, and some room


def modules_after(code):
    """Return the modules that a fresh interpreter, without the site's own, has more after running `code`."""
    package = str(Path(deniable.__file__).parents[1])
    program = (
        f"import sys; sys.path.insert(0, {package!r}); before = set(sys.modules)\n"
        f"{code}\n"
        "more = sorted(set(sys.modules) - before); import json; print(json.dumps(more))"
    )
    command = [sys.executable, "-I", "-S", "-c", program]
    return set(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def test_the_import_brings_next_to_nothing():
    """`import deniable` loads a handful of modules and none that takes long."""
    more = modules_after("import deniable")
    assert "deniable" in more
    assert not more & HEAVY
    assert len(more) <= MODULES_MORE, more


def test_a_handle_is_as_light():
    """A module of the app may make handles, and record with them, before `init`, without loading the client."""
    more = modules_after("import deniable\nassert not deniable.metric('ui.theme').record('dark')")
    assert not more & HEAVY
    assert len(more) <= MODULES_MORE + 1, more


def test_a_stopwatch_is_as_light():
    """So may it time blocks and functions; to decorate takes `functools`, which hardly any app is without."""
    more = modules_after("import deniable\nwith deniable.metric('search.ms').timed(): pass")
    assert not more & HEAVY
    assert len(more) <= MODULES_MORE + 2, more
    more = modules_after("import deniable\ndeniable.timed('search.ms')(lambda: 1)()")
    assert not more & HEAVY
    assert "deniable.client" not in more


@pytest.mark.parametrize(
    "call",
    ["close()", "explain('a')", "flush()", "journal()", "record('a', 1)", "set_consent(True)", "stats()", "timed('a')(len)('b')"],
)
def test_before_init_nothing_is_loaded(call):
    """No function but `init` loads the client."""
    assert "deniable.client" not in modules_after(f"import deniable\ndeniable.{call}")


def test_the_client_leaves_the_network_to_its_thread():
    """The client's class needs no HTTP, no TLS and no compression."""
    more = modules_after("import deniable\ndeniable.Client")
    assert "deniable.client" in more
    assert not more & OF_THE_THREAD


@pytest.mark.parametrize("name", [name for name in deniable.__all__ if name[0].isupper()])
def test_a_name_is_found_late(name):
    """Each public class is there when it is asked for, under its own name."""
    found = getattr(deniable, name)
    assert isinstance(found, type)
    assert found.__name__ == name
    assert found.__module__.startswith("deniable.")


def test_names_are_listed_before_they_are_loaded():
    """`dir` tells every public name, whether it is loaded or not, and an unknown one is an AttributeError."""
    program = "import deniable\nassert set(deniable.__all__) <= set(dir(deniable))"
    assert "deniable.client" not in modules_after(program)
    with pytest.raises(AttributeError, match="has no attribute 'recrod'"):
        deniable.recrod  # noqa: B018


def test_every_name_by_a_star():
    """`from deniable import *` gives every public name."""
    assert "deniable.client" in modules_after("from deniable import *\nassert issubclass(StateError, DeniableError)")


def test_no_module_takes_the_place_of_a_function():
    """No module is named as a function of the package: importing it would put it in the function's place."""
    assert not {module.name for module in pkgutil.iter_modules(deniable.__path__)} & set(deniable.__all__)
