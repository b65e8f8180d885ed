"""How the site is built: `just docs`, or ``sphinx-build -W -b dirhtml docs site``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

import made
import references

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "deniable"
author = "The deniable maintainers"
copyright = f"2026, {author}"  # noqa: A001 - Sphinx wants this name
html_title = "deniable"
html_theme = "furo"
html_baseurl = "https://deniable.github.io/deniable/"
html_copy_source = False
html_theme_options = {
    "source_repository": "https://github.com/deniable/deniable/",
    "source_branch": "main",
    "source_directory": "docs/",
    "light_css_variables": {"color-brand-primary": "#00695c", "color-brand-content": "#00695c"},
    "dark_css_variables": {"color-brand-primary": "#4db6ac", "color-brand-content": "#4db6ac"},
}
html_static_path = ["static", "../server/deniable_server/web/demo"]  # the page of `deniable demo --web`
html_css_files = ["site.css"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["conf.py", "made.py", "references.py", "texts.py"]
nitpicky = True  # a reference that leads nowhere is a warning; `references` finds what Sphinx alone does not
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
default_role = "py:obj"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_mock_imports: list[str] = []
napoleon_use_rtype = False
napoleon_use_ivar = True
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_execution_show_tb = True
suppress_warnings = ["mystnb.unknown_mime_type"]
copybutton_prompt_text = "$ "

_REPOSITORY = "https://github.com/deniable/deniable/blob/main/"
_OUTSIDE = re.compile(
    r"\]\((?:\.\./)+((?:deploy|tests|benchmarks|client|aggregator|server|\.ci)(?:/[^)]*)?|[A-Z_]+\.md[^)]*|LICENSE|justfile)\)"
)
_OF_THE_SITE = re.compile(rf"\]\({html_baseurl}([a-z_/-]+)/(#[^)]*)?\)")


def _outside(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Let links to files of the repository lead there, and those to the site to the pages of this build."""
    source[0] = _OUTSIDE.sub(rf"]({_REPOSITORY}\1)", source[0])
    source[0] = _OF_THE_SITE.sub(lambda link: f"](/{made.page(link[1])}{link[2] or ''})", source[0])


def setup(app: Sphinx) -> None:
    """Make the pages that come from the code, before any is read."""
    made.write(Path(__file__).parent)
    app.connect("source-read", _outside)
    references.setup(app)
