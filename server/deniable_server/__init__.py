"""Ingest, query API and dashboard: the Flask side of deniable."""

from deniable_server.app import create_app

__all__ = ["create_app"]
