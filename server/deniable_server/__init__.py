"""Ingest, query API and dashboard: the Flask side of deniable."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deniable_server.app import create_app

__all__ = ["create_app"]


def __getattr__(name: str) -> Any:
    # without Flask, the settings can be read and commands run
    if name == "create_app":
        from deniable_server.app import create_app  # noqa: PLC0415

        return create_app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
