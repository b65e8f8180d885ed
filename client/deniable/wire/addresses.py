"""Addresses of a server that devices use."""

REPORTS = "/v1/reports"
REGISTRY = "/v1/registry"
