"""The HTTP interface: one module for each resource, the keys that open them, and the document of all."""
