"""The HTTP interface: one module for each resource, and the document of all."""
