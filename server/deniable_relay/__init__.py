"""The relay: takes sealed reports, keeps them without an address, and forwards them to the server as whole pools.

It is run by somebody else than the server. It needs the SDK's registry and wire format, and nothing of server or aggregator.
"""
