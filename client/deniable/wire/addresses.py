"""Addresses of a server that devices, relays and web pages use, and the mark of its refusals."""

REPORTS = "/v1/reports"
POOLS = "/v1/pools"  # for relays
REGISTRY = "/v1/registry"
SCRIPT = "/sdk/deniable.js"  # for web pages
PROBLEM = "urn:deniable:problem:"  # what the `type` of a refusal begins with; its code follows
