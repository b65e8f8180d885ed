"""What an app pays for `import deniable`, and that what is large is loaded late, each in a fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import deniable

HEAVY = {
    *("asyncio", "bz2", "dataclasses", "decimal", "email", "fractions", "gzip", "hashlib", "hmac", "http.client", "inspect"),
    *("json", "logging", "lzma", "multiprocessing", "numpy", "pathlib", "pytest", "queue", "random", "requests", "shutil"),
    *("socket", "sqlite3", "ssl", "subprocess", "tempfile", "textwrap", "threading", "tomllib", "traceback", "typing"),
    *("urllib3", "uuid"),
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
OF_INIT = {"fractions", "decimal", "json", "pathlib", "threading", "tomllib", "typing"}
"""What `init` needs of the heavy ones."""
REGISTRY = """
format = 1
app = "shop"
metrics.dark = {type = "boolean", epsilon = 1.0, description = "Whether it is dark", owner = "a@shop.example"}
"""
MODULES_MORE = 6  # than before: the package, __future__, atexit, and some room


def modules_after(code):
    """Return the modules that a fresh interpreter, without those of `site` but for `os`, has more after running `code`."""
    package = str(Path(deniable.__file__).parents[1])
    program = (
        f"import os, sys; sys.path.insert(0, {package!r}); before = set(sys.modules)\n"
        f"{code}\n"
        "more = sorted(set(sys.modules) - before); import json; print(json.dumps(more))"
    )
    command = [sys.executable, "-I", "-S", "-c", program]
    return set(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def modules_after_installed(code):
    """Return the same of an app that was installed: a script is taken for one that is being developed."""
    return modules_after(f"exec(compile({code!r}, 'site-packages/shop.py', 'exec'), {{'__name__': 'shop'}})")


def test_the_import_brings_next_to_nothing():
    """`import deniable` loads a handful of modules and none that takes long."""
    more = modules_after("import deniable")
    assert "deniable" in more
    assert not more & HEAVY
    assert len(more) <= MODULES_MORE, more


def test_a_handle_is_as_light():
    """A module of the app may make handles, and record with them, before `init`, without loading the client."""
    more = modules_after_installed("import deniable\nassert not deniable.metric('ui.theme').record('dark')")
    assert not more & HEAVY
    assert len(more) <= MODULES_MORE + 1, more


def test_a_stopwatch_is_as_light():
    """So may it time blocks and functions; to decorate takes `functools`, which hardly any app is without."""
    more = modules_after_installed("import deniable\nwith deniable.metric('search.ms').timed(): pass")
    assert not more & HEAVY
    assert len(more) <= MODULES_MORE + 2, more
    more = modules_after_installed("import deniable\ndeniable.timed('search.ms')(lambda: 1)()")
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


def test_init_leaves_out_what_is_not_needed_yet(tmp_path):
    """A program that only starts the client waits for no database, no OpenSSL, no log and nothing of the sending threads."""
    (tmp_path / "metrics.toml").write_text(REGISTRY, "utf-8")
    started = (
        f"deniable.init('https://key@t.invalid/shop', registry={str(tmp_path / 'metrics.toml')!r}, consent=True, state=None)"
    )
    more = modules_after(f"import deniable\nassert not {started}.disabled")
    assert "deniable.registry" in more
    assert not more & (HEAVY - OF_INIT)


def test_few_values_need_few_mechanisms(tmp_path):
    """For questions with few answers the choice of `auto` is known without its other candidates."""
    theme = 'metrics.theme = {type = "categorical", values = ["a", "b", "c"], epsilon = 1, period = "month", '
    (tmp_path / "metrics.toml").write_text(f'{REGISTRY}{theme}description = "Which", owner = "a@shop.example"}}', "utf-8")
    file = str(tmp_path / "metrics.toml")
    more = modules_after(
        f"import deniable; deniable.init('https://k@t.invalid/shop', registry={file!r}, consent=True, state=None)"
    )
    assert "deniable.mechanisms.listed.direct" in more
    assert not more & {f"deniable.mechanisms.{name}" for name in ("auto", "hadamard", "local_hash", "projective")}


def test_names_are_listed_before_they_are_loaded():
    """`dir` tells every public name, whether it is loaded or not, and an unknown one is an AttributeError."""
    program = "import deniable\nassert set(deniable.__all__) <= set(dir(deniable))"
    assert "deniable.client" not in modules_after(program)
    with pytest.raises(AttributeError, match="has no attribute 'recrod'"):
        deniable.recrod  # noqa: B018


def test_every_name_by_a_star():
    """`from deniable import *` gives every public name."""
    assert "deniable.client" in modules_after("from deniable import *\nassert issubclass(StateError, DeniableError)")


def test_importing_makes_no_tables():
    """The tables of a field are made when it is first used."""
    code = "from deniable.exact import finite_field; assert not finite_field._tables.cache_info().currsize"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_heavy_is_imported_before_the_first_request():
    """Importing the SDK's sending half imports neither requests nor ssl nor gzip nor sqlite3."""
    code = (
        "import sys, deniable.transport; print([m for m in ('requests', 'urllib3', 'ssl', 'gzip', 'email') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_production_code_does_not_know_of_it():
    """The client neither imports the testing package nor is told of it by the plugin before a fixture is used."""
    code = "import sys, deniable, deniable.testing.plugin\nassert 'deniable.client' not in sys.modules\ndeniable.Client"
    program = f"{code}\nassert 'deniable.testing.capture' not in sys.modules\nassert 'deniable.testing.stub' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
