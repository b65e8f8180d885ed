"""The page of budgets: what keys may spend on questions about withheld segments, and have spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable_server.access.keys import KeyStore
from deniable_server.api.answers.questions import budgets_of
from deniable_server.pages.frame import page

if TYPE_CHECKING:
    from flask import Response

    from deniable_server.access.keys import Key
    from deniable_server.service import App


def page_of(app: App, key: Key) -> Response:
    """Show the budgets as a key may know them; with an admin key also those of the others."""
    budgets = budgets_of(app, key)
    keys = None
    if budgets["keys"] is not None:
        names = {each.id: each.name for each in KeyStore(app.store).load()}
        keys = [each | {"name": names.get(each["id"])} for each in budgets["keys"]]
    return page("budgets.html", app=app, budgets=budgets, keys=keys)
