"""The theme of pages: light, dark, or as the browser prefers. A cookie has the choice, and nothing else does."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from flask import current_app, redirect, request, url_for
from werkzeug.exceptions import HTTPException

from deniable_server.http.problem import Problem

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

THEMES = ("auto", "light", "dark")
"""To choose from; the first is the browser's own."""
_COOKIE = "deniable_theme"
_YEAR = 365 * 86400


def chosen() -> str:
    """Return the theme of the request."""
    theme = request.cookies.get(_COOKIE, "")
    return theme if theme in THEMES else THEMES[0]


def choose(theme: str, page: str) -> Response:
    """Keep a theme in the browser, and lead back to the page that it was chosen on."""
    if theme not in THEMES:
        raise Problem(400, "bad_theme", f"to is one of {', '.join(THEMES)}")
    response = redirect(_our_page(page), 303)
    if theme == THEMES[0]:
        response.delete_cookie(_COOKIE, httponly=True, samesite="Lax", secure=request.is_secure)
    else:
        response.set_cookie(_COOKIE, theme, _YEAR, httponly=True, samesite="Lax", secure=request.is_secure)
    return response


def _our_page(address: str) -> str:
    """Return the address of a page of this dashboard; that of the list if it is no such page."""
    # The path is made anew of what it leads to, so that no address of elsewhere gets through.
    path, _, query = address.partition("?")
    adapter = current_app.create_url_adapter(request)
    try:
        endpoint, values = adapter.match(path, method="GET") if adapter else ("", {})
    except HTTPException:  # also a redirect
        endpoint, values = "", {}
    if not endpoint.startswith(f"{request.blueprint}."):
        return url_for(".index")
    again = urlencode(parse_qsl(query, keep_blank_values=True))
    return url_for(endpoint, **values) + (f"?{again}" if again else "")
