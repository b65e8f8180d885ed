"""What a server on this machine needs to be installed, looked for before anything is begun."""

from __future__ import annotations

from importlib.util import find_spec

_MODULES = (
    "numpy",
    "flask",
    "gunicorn",
    "jinja2",
    "markdown_it",
    "msgspec",
    "numba",
    "packaging",
    "prometheus_client",
    "redis",
    "scipy",
)


def require(*more: str) -> None:
    """Raise ModuleNotFoundError for the first module of a server, or of those named, that is missing."""
    # The command line then names the extra that brings it. Nothing is imported here.
    for name in (*_MODULES, *more):
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
