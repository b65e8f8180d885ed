"""For the tests of apps that record: what they recorded, as they gave it, and a server to send reports to.

Production code has no place where a raw answer could be looked at. What is here changes the client's methods for the time of a
test and puts them back, so nothing of it is in force unless a test asks.

With pytest there is nothing to import: the fixtures `deniable_capture` and `deniable_stub_server` come with the package.

>>> def test_theme(deniable_capture):
...     toggle_theme()
...     assert deniable_capture.values("ui.theme") == ["dark"]
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it: pytest imports this package for everybody, so it is to be light
if TYPE_CHECKING:
    from deniable.testing.capture import Capture, Captured
    from deniable.testing.stub import Attempt, Received, StubServer

__all__ = ["Attempt", "Capture", "Captured", "Received", "StubServer"]

_HOMES = {"Attempt": "stub", "Capture": "capture", "Captured": "capture", "Received": "stub", "StubServer": "stub"}

if not TYPE_CHECKING:

    def __getattr__(name):  # noqa: ANN001, ANN202 - as PEP 562 has it
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 - not before a name is asked for

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

    def __dir__():  # noqa: ANN202
        return sorted({*globals(), *__all__})
