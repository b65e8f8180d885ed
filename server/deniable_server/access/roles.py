"""The roles of keys, and how a key of each begins."""

from __future__ import annotations

from secrets import token_urlsafe

ROLES = {"ingest": "pk", "relay": "xk", "read": "rk", "admin": "ak"}
"""Roles of keys, and how a key begins. An ingest key is in every app and not secret. A relay's key sends pools of sealed reports,
and is secret. An admin key can do what a read key can; it also shows what is not published yet, and lists and revokes keys.
"""


def draw(role: str) -> str:
    """Draw a key."""
    return f"{ROLES[role]}_{token_urlsafe(24)}"


def why_unknown(text: str, role: str) -> str:
    """Say why a key may be unknown where a role is needed. How a key begins shows if it is of another role."""
    for other, start in ROLES.items():
        if text.startswith(f"{start}_") and other != role and (other, role) != ("admin", "read"):
            return f"this takes a key that begins with {ROLES[role]}_; the one given begins with {start}_, as {other} keys do"
    return f"the {role} key is not known here; check for a typo, and that it was not revoked"
