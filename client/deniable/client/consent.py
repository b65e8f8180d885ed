"""Consent: asked for at every answer, before anything else happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable.messages.log import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from deniable.device.journal import Journal
    from deniable.transport import Sender

_WORDS = ("", "yes", "no", "y", "n", "true", "false", "on", "off", "1", "0")


class Consent:
    """Whether the person agreed. Only True is a yes."""

    def __init__(
        self,
        setting: bool | Callable[[], bool],  # noqa: FBT001 - as `Client` takes it: the person's answer, or what returns it
        *,
        strict: bool,  # whether an answer that is neither True nor False raises an error; else it is a warning
    ) -> None:
        self.setting = setting
        self.agreed: bool | None = None  # the last answer; None before the first
        self._strict = strict
        self.odd = ""  # why the last answer is taken for a no, though it was none
        self._warned = False
        self._sender: Sender | None = None
        self._journal: Journal | None = None

    def attach(self, sender: Sender, journal: Journal) -> None:
        """Pause the sender while there is no consent; clear it and the journal when consent is withdrawn."""
        # A no at the start withdraws nothing: the app may not have asked the person yet.
        self._sender, self._journal = sender, journal
        if not callable(self.setting):
            self.agreed = self.setting is True
            sender.pause(not self.agreed)
            self._check(self.setting, None)

    def ask(self) -> bool:
        """Ask for consent and act on the answer; return whether it is a yes. If strict, raise for what is neither yes nor no."""
        # What the app's function raises is raised, too.
        while True:
            setting = self.setting
            answer: object = None
            error: Exception | None = None
            try:
                answer = setting() if callable(setting) else setting
            except Exception as raised:  # noqa: BLE001 - any error counts as a no
                error = raised
            agreed = answer is True
            if self.setting is setting and agreed is not self.agreed:
                self._change(agreed=agreed)
            if self.setting is setting:
                break
            # Another thread has called `replace`. The old answer is no longer valid.
        if self._journal is not None and self._journal.clearing:
            self._journal.clear()
        if self.odd or (answer is not True and answer is not False):
            self._check(answer, error)
        return agreed

    def replace(self, setting: bool | Callable[[], bool]) -> None:  # noqa: FBT001 - as `Client` takes it
        """Use another answer, or another function to ask. A no also withdraws what earlier runs left."""
        refused = self.agreed is False
        self.setting = setting
        if self._sender is not None and not self.ask() and refused:
            self._withdraw()

    def _change(self, *, agreed: bool) -> None:
        self.agreed = agreed
        if self._sender is not None:
            self._sender.pause(not agreed)
        if not agreed:
            self._withdraw()

    def _withdraw(self) -> None:
        """Drop what was not sent yet, and delete the journal of what was sent."""
        if self._sender is not None and self._journal is not None:
            self._sender.purge()
            self._journal.clear()

    def _check(self, answer: object, error: Exception | None) -> None:
        """Warn once about an answer that is neither True nor False; raise if strict."""
        self.odd = ""
        if answer is True or answer is False:
            return
        if error is None:
            words = oddity(answer)
        else:
            words = f"the consent function raised {type(error).__name__}, which is taken for a no; strict=True shows where"
        if self._strict:
            raise error or ConfigurationError(words)
        self.odd = words
        if not self._warned:
            log.warning("deniable: %s", words)
        self._warned = True


def oddity(answer: object) -> str:
    """Say why an answer to the question for consent is taken for a no, if it is neither yes nor no; else empty."""
    if answer is True or answer is False:
        return ""
    return f"consent is {_seen(answer)}, which is taken for a no: pass True or False"


def _seen(answer: object) -> str:
    """Say what stands where True or False is needed. A person may have written a text, so only a short word is quoted."""
    if type(answer) is str:
        return f"the text {answer!r}" if answer.lower() in _WORDS else "a text"
    return "None" if answer is None else f"of type {type(answer).__name__}"
