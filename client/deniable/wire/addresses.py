"""Addresses of a server that devices use, and the mark of its refusals."""

REPORTS = "/v1/reports"
REGISTRY = "/v1/registry"
PROBLEM = "urn:deniable:problem:"  # what the `type` of a refusal begins with; its code follows
