"""The privacy report: what a reviewer needs to know of a registry, and of what was published.

`facts` gathers figures from the libraries, `published` what is in releases, `proofs` what walking all draws shows; `compose` puts
all of it into words, section by section, as a `document`, and `render` writes that in HTML or Markdown.
"""

from __future__ import annotations

from deniable_server.privacy.compose import compose
from deniable_server.privacy.facts import gather
from deniable_server.privacy.render import render

__all__ = ["compose", "gather", "render"]
