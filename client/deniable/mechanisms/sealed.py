"""Objects whose fields cannot be changed."""

from __future__ import annotations

from typing import Any


class Sealed:
    """Refuses changes of all fields. A frozen dataclass alone does not protect the fields that a subclass adds."""

    def __setattr__(self, name: str, value: Any) -> None:
        from dataclasses import FrozenInstanceError  # noqa: PLC0415 - slow to import, and only a mistake needs it

        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        from dataclasses import FrozenInstanceError  # noqa: PLC0415 - as above

        raise FrozenInstanceError(f"cannot delete field {name!r}")
