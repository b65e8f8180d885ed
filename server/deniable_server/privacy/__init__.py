"""The privacy report: what a reviewer needs to know of a registry, and of what was published.

`facts` gathers figures from the libraries, `published` what is in releases, `proofs` what walking all draws shows. The templates
hold all prose: one page for the reviewer, then the annex. `compose` writes them as Markdown, and `page` makes HTML of that.
"""

from __future__ import annotations

from deniable_server.privacy.compose import compose
from deniable_server.privacy.facts import gather
from deniable_server.privacy.page import page

__all__ = ["compose", "gather", "page"]
