"""The pytest fixtures. pytest imports this module in every session, so it imports others only when a fixture is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deniable.testing.capture import Capture
    from deniable.testing.clock import Clock
    from deniable.testing.stub import StubServer


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option that names the registry."""
    about = "metrics.toml that the deniable fixtures check against, from the root directory, where it is looked for by default"
    parser.addini("deniable_registry", about)


def _registry(config: pytest.Config) -> Path | None:
    path: str = config.getini("deniable_registry")
    usual = config.rootpath / "metrics.toml"
    return config.rootpath / path if path else usual if usual.is_file() else None


def _refuse_beside(request: pytest.FixtureRequest, other: str) -> None:
    """Fail a test that uses the other of our two fixtures, too."""
    if other in request.fixturenames:
        words = "deniable_capture takes the answers before they are sent, and deniable_stub_server would get none"
        pytest.fail(f"{words}: use one of them in a test", pytrace=False)


@pytest.fixture
def deniable_capture(request: pytest.FixtureRequest, _new_device: None) -> Iterator[Capture]:
    """Capture the answers that are recorded during the test; see `deniable.testing.Capture`.

    A test that records an undeclared metric or answer fails, even if the app catches the error. So does one that records before
    the app calls `deniable.init`.
    """
    from deniable.testing.capture import Capture  # noqa: PLC0415 - see above

    _refuse_beside(request, "deniable_stub_server")
    failed_before = request.session.testsfailed
    with Capture(_registry(request.config)) as capture:
        yield capture
    faults = "\n".join(capture.faults)
    if faults and request.session.testsfailed == failed_before:
        pytest.fail(f"recorded what a device would not report:\n{faults}", pytrace=False)
    if faults:  # the test has failed, perhaps because the app catches our errors
        request.node.add_report_section("teardown", "deniable", faults)
    if capture.without_consent and request.session.testsfailed > failed_before:  # perhaps because nothing was captured
        request.node.add_report_section("teardown", "deniable", "\n".join(dict.fromkeys(capture.without_consent)))


@pytest.fixture
def deniable_stub_server(
    request: pytest.FixtureRequest, _new_device: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StubServer]:
    """Run a stub server during the test, in which devices are new and keep their state apart; see `deniable.testing.StubServer`.

    ``DENIABLE_DSN`` and any DSN that a client of the test is given lead to it. The clients that the test starts end with it.
    A test that records before the app calls `deniable.init` fails, since such answers are lost.
    """
    import deniable  # noqa: PLC0415 - see above
    from deniable.client import Client  # noqa: PLC0415
    from deniable.messages.plural import plural  # noqa: PLC0415
    from deniable.messages.reasons import ANSWERS  # noqa: PLC0415
    from deniable.testing.stub import StubServer  # noqa: PLC0415
    from deniable.transport import Sender  # noqa: PLC0415

    _refuse_beside(request, "deniable_capture")
    failed_before = request.session.testsfailed
    with StubServer(_registry(request.config)) as server:
        begin = Client.__init__

        def init(client: Client, *, dsn: str | None = None, **options: Any) -> None:
            # A report of a test must not be counted as one of a person. The app's name is still the one that was written.
            here = f"{server.dsn.rpartition('/')[0]}/{dsn.rpartition('/')[2]}" if dsn else None
            begin(client, dsn=here, **options)

        monkeypatch.setattr(Client, "__init__", init)
        monkeypatch.setenv("DENIABLE_DSN", server.dsn)
        senders = Sender.all()
        before, deniable._client = deniable._client, None  # noqa: SLF001 - else `init` would close it
        deniable._early = 0  # noqa: SLF001 - what an earlier test recorded in vain is not missing here
        try:
            yield server
        finally:
            early = deniable.stats()["dropped"].get("before_init", 0)
            failed = request.session.testsfailed > failed_before  # perhaps because the reports did not come
            says = [f"wait: {each}" for each in server.in_vain] or [*server._lack()] if failed else []  # noqa: SLF001 - our own
            deniable.close(0.0)
            deniable._client = before  # noqa: SLF001
            for sender in Sender.all():
                if sender not in senders:
                    sender.close(0.0)
    if says:
        request.node.add_report_section("teardown", "deniable", "\n".join(says))
    if early and request.session.testsfailed == failed_before:
        pytest.fail(f"{plural(early, 'answer')}: {ANSWERS['before_init'].words()}", pytrace=False)


@pytest.fixture
def deniable_clock() -> Iterator[Clock]:
    """Stop the time of day of clients and stub servers during the test, until it moves it; see `deniable.testing.Clock`."""
    from deniable.testing.clock import Clock  # noqa: PLC0415 - see above

    with Clock() as clock:
        yield clock


@pytest.fixture
def _new_device(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what a device keeps, also whether a person agreed, in an empty folder. An opt-out of the developer has no effect."""
    from deniable.messages import notice  # noqa: PLC0415 - see above

    for name in ("DO_NOT_TRACK", "DENIABLE_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DENIABLE_STATE_DIR", str(tmp_path_factory.mktemp("deniable")))
    monkeypatch.setattr(notice, "_clients", 0)  # each test hears what is wrong
