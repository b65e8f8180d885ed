"""For the tests of apps: a capture of what they record, and a stub server that takes reports.

In production raw answers can be seen nowhere. A capture replaces the client's methods during a test and restores them at its end.

A clock sets the time of day. `make_due` lets reports travel that would wait on the device.

With pytest nothing needs to be imported: the package has the fixtures ``deniable_capture``, ``deniable_stub_server`` and
``deniable_clock``.

>>> def test_theme(deniable_capture):
...     toggle_theme()
...     assert deniable_capture.values("ui.theme") == ["dark"]
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for True; pytest always imports this package, so it must be light
if TYPE_CHECKING:
    from deniable.testing.capture import Capture
    from deniable.testing.clock import Clock
    from deniable.testing.release import make_due
    from deniable.testing.seen import Captured, SentReport
    from deniable.testing.stub import Attempt, Received, StubServer, Wait

__all__ = ["Attempt", "Capture", "Captured", "Clock", "Received", "SentReport", "StubServer", "Wait", "make_due"]

_HOMES = {
    "Attempt": "stub",
    "Capture": "capture",
    "Captured": "seen",
    "Clock": "clock",
    "Received": "stub",
    "SentReport": "seen",
    "StubServer": "stub",
    "Wait": "stub",
    "make_due": "release",
}

if not TYPE_CHECKING:

    def __getattr__(name):  # noqa: ANN001, ANN202 - of PEP 562
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 - only when a name is asked for

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

    def __dir__():  # noqa: ANN202
        return sorted({*globals(), *__all__})
