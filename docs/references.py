"""Lets every reference of the API pages lead somewhere: to a page of ours, or to the documentation of another project.

With ``nitpicky`` a reference that leads nowhere is a warning, and so an error of `just docs`. Nothing here needs the network.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from pydoc import locate
from typing import TYPE_CHECKING, Any

from docutils import nodes

from deniable.mechanisms import _ALL

if TYPE_CHECKING:
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

_PYTHON, _NUMPY = "https://docs.python.org/3/library/", "https://numpy.org/doc/stable/reference/"
_FOREIGN = {
    "collections.abc": f"{_PYTHON}collections.abc.html#collections.abc.",
    "datetime": f"{_PYTHON}datetime.html#datetime.",
    "decimal": f"{_PYTHON}decimal.html#decimal.",
    "fractions": f"{_PYTHON}fractions.html#fractions.",
    "pathlib": f"{_PYTHON}pathlib.html#pathlib.",
    "pathlib._local": f"{_PYTHON}pathlib.html#pathlib.",
    "typing": f"{_PYTHON}typing.html#typing.",
    "numpy": f"{_NUMPY}arrays.scalars.html#numpy.",
    "numpy.typing": f"{_NUMPY}typing.html#numpy.typing.",
}
"""By module of another project, the beginning of the address at which its documentation has a name."""
_ELSEWHERE = {
    **{name: f"{_PYTHON}functions.html#{name}" for name in ("bool", "float", "int", "object")},
    **{name: f"{_PYTHON}stdtypes.html#{name}" for name in ("bytes", "dict", "list", "str", "tuple")},
    **dict.fromkeys(("numpy.ndarray", "ndarray"), f"{_NUMPY}generated/numpy.ndarray.html"),
    "Fraction": f"{_FOREIGN['fractions']}Fraction",
}
"""Further names, as they stand in our texts."""
_PACKAGES = ("deniable", "deniable_query", "deniable_aggregator.decode", "deniable_aggregator.tally")
"""What the pages document."""


def setup(app: Sphinx) -> None:
    """Take part in a build."""
    app.connect("builder-inited", lambda _: _import_types())
    app.connect("autodoc-process-signature", _shorten)
    app.connect("missing-reference", _resolve)


def _import_types() -> None:
    """Import what modules import for type checkers only, so that annotations are known by their full names."""
    packages = [import_module(name) for name in _PACKAGES]
    names = [info.name for package in packages for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    modules = [import_module(name) for name in names if not name.endswith(("__main__", "plugin"))]
    for module in [*packages, *modules] * 2:  # twice, because a type may be one that another module names for checkers only
        source = Path(str(module.__file__)).read_text("utf-8")
        checked = [
            node for node in ast.parse(source).body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        ]
        for statement in [statement for node in checked for statement in node.body]:
            with suppress(ImportError):
                exec(compile(ast.Module([statement], []), str(module.__file__), "exec"), module.__dict__)  # noqa: S102 - ours


def _shorten(*event: Any) -> tuple[str | None, str | None]:
    """Write defaults that are made anew each time so that Sphinx can read the signature."""
    *_, signature, returned = event
    return signature and signature.replace("<factory>", "..."), returned


def _resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement) -> nodes.Node | None:
    """Find what a reference means that Sphinx itself does not find."""
    if node.get("refdomain") != "py":
        return None
    target, objects = node["reftarget"], env.domains["py"].objects  # type: ignore[attr-defined]
    if place := _address(target):
        return nodes.reference("", "", content, internal=False, refuri=place)
    names = [name for name in objects if name == _public(target) or name.endswith(f".{target}")]
    if len(names) == 1:
        page = app.builder.get_relative_uri(node.get("refdoc", env.docname), objects[names[0]].docname)
        return nodes.reference("", "", content, internal=True, refuri=f"{page}#{names[0]}")
    mechanisms = (f"deniable.mechanisms.{module}.{name}" for module, name in _ALL.values())  # their pages are in no index
    return content if target in _parameters((*objects, *mechanisms)) else None


@cache
def _parameters(names: tuple[str, ...]) -> frozenset[str]:
    """Name the parameters and fields of all that is documented. Texts name them, and no page has them by themselves."""
    parameters: set[str] = set()
    for documented in map(locate, names):
        if callable(documented):
            with suppress(ValueError):  # an exception without an own __init__
                parameters.update(inspect.signature(documented).parameters)
            parameters.update(getattr(documented, "__dataclass_fields__", ()), getattr(documented, "_fields", ()))
    return frozenset(parameters)


def _address(target: str) -> str | None:
    module, _, name = target.rpartition(".")
    return _ELSEWHERE.get(target) or (f"{_FOREIGN[module]}{name}" if module in _FOREIGN else None)


def _public(target: str) -> str:
    """Return the name under which a class is documented that says itself where it is defined."""
    package, _, name = target.partition(".")[0], *target.rpartition(".")[1:]
    try:
        value = getattr(import_module(package), name)
    except (AttributeError, ImportError):
        return target
    return f"{package}.{name}" if f"{value.__module__}.{name}" == target else target
