"""The privacy report: what a reviewer needs to know about a registry, and about what was published.

`facts` computes figures, `published` reads releases, and `proofs` walks all draws. The templates contain all prose: one page for
the reviewer, then the annex. `compose` writes Markdown, and `page` turns it into HTML.
`about` is the public page of an app.
"""

from __future__ import annotations

from deniable_server.privacy.compose import compose
from deniable_server.privacy.facts import gather
from deniable_server.privacy.page import page

__all__ = ["compose", "gather", "page"]
