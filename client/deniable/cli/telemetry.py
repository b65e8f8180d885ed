"""The telemetry of one command line tool."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.cli import decision, usage
from deniable.cli.decision import Decision
from deniable.errors import StateError
from deniable.process.surroundings import ci_variable, in_ci, state_root, switch, switched_off

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Mapping, Sequence

    import click
    import typer

    from deniable.client import Client
    from deniable.device.journal import SentReport
    from deniable.registry import Registry
    from deniable.transport import Exit

_YES = ("y", "yes")


class Telemetry:
    """Asks a person once, and records only after a yes. Nothing is imported, written or sent for anybody else.

    No method but `turn_on` and `turn_off` raises. In continuous integration nothing is asked or recorded, unless `ci`.

    Parameters
    ----------
    dsn
        ``https://PUBLIC_KEY@host/app``.
    registry
        Path of metrics.toml.
    version
        The tool's version, for the metric ``app.version``.
    command
        What a person types to run the tool; by default the name of the program.
    segments
        The device's value of each segment that the registry declares, e.g. ``{"platform": "linux"}``.
    ci
        Whether to record in continuous integration, too.
    exit
        As for `deniable.init`.
    options
        Other options of `deniable.init`, such as `caps`.
    """

    def __init__(
        self,
        dsn: str,
        *,
        registry: str | Path,
        version: str = "",
        command: str = "",
        segments: Mapping[str, str] | None = None,
        ci: bool = False,
        exit: Exit = "auto",  # noqa: A002 - as for `init`
        **options: Any,
    ) -> None:
        self.version = version
        self.command = command or Path(sys.argv[0]).name
        self.app = str(dsn or os.environ.get("DENIABLE_DSN", "")).rpartition("/")[2] or self.command
        self._name = command or self.app  # as people read it
        self._dsn, self._registry, self._ci = dsn, registry, ci
        self._options = {"segments": segments, "exit": exit, **options}
        self._client: Client | None = None

    # What a person decides

    @property
    def decision(self) -> Decision | None:
        """What the person has decided; None before that."""
        try:
            return decision.read(self._path)
        except StateError:
            return None

    @property
    def off(self) -> str | None:
        """Why nothing is recorded; None if it is."""
        answer = self.decision
        if switched_off():
            return switched_off()
        if in_ci() and not self._ci:
            return "this is continuous integration"
        if answer is None:
            return "you were not asked yet"
        return None if answer.agreed else "you said no"

    def ask(self, question: str = "", yes: Collection[str] = _YES) -> bool:
        """Ask the person, if they were never asked and can answer; return whether anything is recorded.

        Nobody is asked in continuous integration, without a terminal, if ``DO_NOT_TRACK`` is set, or while they run the command
        ``telemetry``. Anything but a yes is a no.

        Parameters
        ----------
        question
            The app's own words, such as in the person's language. Then the app also says what it has understood. By default it
            is a question in English, with the description of each metric.
        yes
            What means yes, in lower case.
        """
        if self.decision is None and self._can_answer():
            try:
                print(question or self._question(), end=" ", file=sys.stderr, flush=True)
                agreed = sys.stdin.readline().strip().lower() in yes
                self._decide(agreed)
                if not question:
                    taken, change = ("yes. Thank you", "off") if agreed else ("no, so nothing is recorded", "on")
                    print(f"This is a {taken}. To change it: {self.command} telemetry {change}", file=sys.stderr)
            except Exception:  # noqa: BLE001, S110 - the tool goes on, and asks another time
                pass
        return self.off is None

    def turn_on(self) -> None:
        """Agree; raise `DeniableError` or `OSError` if that cannot be kept."""
        self._decide(agreed=True)

    def turn_off(self) -> None:
        """Withdraw consent, and delete what was not sent yet; raise `DeniableError` or `OSError` if that cannot be kept."""
        import time

        from deniable.client.session import forget

        self._decide(agreed=False)
        if self._client is not None:
            self._client.set_consent(False)
        forget(state_root() / self.app, time.time)

    # What is recorded

    def record(self, metric: str, value: object) -> bool:
        """Record an answer, if the person has agreed; the command ``telemetry`` records nothing. See `deniable.record`."""
        return self.off is None and not self._looks and self._begun().record(metric, value)

    def record_usage(self, command: str = "") -> None:
        """Record the metrics of ``deniable init --cli`` that the registry still declares: call it once in each run.

        The command ``telemetry`` itself is no use of the tool, and records nothing.
        """
        try:
            answer = self.decision
            if self.off is not None or answer is None or self._looks:
                return
            client = self._begun()
            named = client.strict or client._local  # noqa: SLF001 - our own
            for metric, value in usage.answers(answer, self.version, command).items():
                prepared = client._metrics.prepared.get(metric)  # noqa: SLF001 - our own
                if prepared is not None:
                    client.record(metric, usage.listed(prepared.metric, value, named=named))
        except Exception:  # noqa: BLE001, S110 - the tool must never notice
            pass

    # What a person can look at

    def status(self) -> str:
        """Say whether anything is recorded and how to change it, what is off, how many reports wait, and when they travel."""
        from deniable.client import waiting
        from deniable.messages.plural import few
        from deniable.transport.dsn import leads_here

        off, answer = self.off, self.decision
        if answer is None or not answer.agreed:  # then nothing waits
            return self._state(f"off: {off}")
        directory, records = state_root() / self.app, self._client is not None
        hindrance, reasons = (None, {}) if off else waiting.hindrances(lambda: self._client or self._looking(), directory)
        on = f"on, but nothing is recorded: {hindrance}" if hindrance else "on: you agreed"
        here = leads_here(self._dsn, os.environ.get("DENIABLE_DSN"))
        lines = waiting.lines(directory, off=off or hindrance, exit=self._options["exit"], records=records, developed=here)
        unrecorded = [f"Not recorded: {few(metrics)}: {why}" for why, metrics in reasons.items()]
        return "\n".join([self._state(f"off: {off}" if off else on), *unrecorded, *lines])

    def show(self) -> str:
        """Say what is asked, and what has left the device."""
        from deniable.device.journal import Journal
        from deniable.device.state import State

        status = self.status()
        try:
            entries = Journal(State(state_root() / self.app)).entries()
        except StateError as error:
            return status if str(error) in status else f"{status}\n{error}"
        registry = self._loaded()
        if registry is not None and entries:
            from deniable.evidence import with_names

            entries = with_names(entries, registry)
        sent = self._sent(entries, registry) or ["  nothing"]
        named = any(entry.names for entry in entries)
        head = f"Sent, the newest first{'. What a report says may be true or drawn at random' if named else ''}:"
        return "\n".join([status, "Asked, each answer with noise:", *self._questions(), head, *sent, *self._spent(registry)])

    def _sent(self, entries: Sequence[SentReport], registry: Registry | None) -> list[str]:
        """List reports below the questions that they are about."""
        by_metric: dict[str, list[str]] = {}
        for entry in entries:
            by_metric.setdefault(entry.metric, []).append(f"    {entry.words}")
        declared = registry.metrics if registry else {}
        questions = {id_: f"  {declared[id_].description} ({id_})" if id_ in declared else f"  {id_}" for id_ in by_metric}
        return [line for id_, reports in by_metric.items() for line in (questions[id_], *reports)]

    def _spent(self, registry: Registry | None) -> list[str]:
        """Say what was spent of this month's budget."""
        from deniable.device.ledger import Ledger
        from deniable.device.state import State
        from deniable.limits.caps import budget_of

        if registry is None:
            return []
        return [Ledger(State(state_root() / self.app), budget_of(registry)).this_month()]

    # As a command of the tool

    def add_to(self, subparsers: argparse._SubParsersAction[Any], func: str = "func") -> None:
        """Add the command ``telemetry`` to an argparse app. `func` names what the app calls with the arguments."""
        from deniable.cli import command

        command.add_to_argparse(self, subparsers, func)

    def click(self) -> click.Group:
        """Return the command ``telemetry`` for a click app."""
        from deniable.cli import command

        return command.of_click(self)

    def typer(self) -> typer.Typer:
        """Return the command ``telemetry`` for a typer app."""
        from deniable.cli import command

        return command.of_typer(self)

    @property
    def _path(self) -> Path:
        return state_root() / f"{self.app}.consent"

    def _decide(self, agreed: bool) -> None:  # noqa: FBT001 - the answer
        decision.write(self._path, Decision.of(agreed, self.decision))

    def _can_answer(self) -> bool:
        streams = (sys.stdin, sys.stderr)
        here = all(stream is not None and not stream.closed and stream.isatty() for stream in streams)
        return here and not in_ci() and switched_off() is None and not self._looks

    @property
    def _looks(self) -> bool:
        """Whether the person runs the command ``telemetry``."""
        from deniable.cli import command

        return "telemetry" in sys.argv and command.is_chosen(sys.argv[1:])

    def _unrecorded(self, metric: str, off: str) -> str:
        """Say why nothing is recorded, and what a test does about it."""
        if variable := switched_off():
            return f"{variable}, so nothing is recorded ({metric}); unset it for the test"
        if self.decision is None or not self.decision.agreed:
            remedy = "call turn_on() of the Telemetry once the person has said yes"
            return f"nobody has agreed, so nothing is recorded ({metric}); {remedy}"
        return f"{off} ({ci_variable()} is set), so nothing is recorded ({metric}); in a test, pass ci=True to the Telemetry"

    def _begun(self) -> Client:
        import deniable

        if self._client is None or self._client is not deniable._client:  # a test, for one, has replaced it  # noqa: SLF001
            self._client = deniable.init(self._dsn, registry=self._registry, consent=True, **self._options)
        return self._client

    def _looking(self) -> Client:
        """Make a client that records and sends nothing, and knows why another one would not."""
        from deniable.client import Client
        from deniable.messages.log import log

        client = Client(dsn=self._dsn, registry=self._registry, consent=False, **self._options)
        if self._looks:
            log.hide()  # the command itself says what hinders
        return client

    def _state(self, state: str) -> str:
        """Say whether telemetry is on, and how to change that."""
        variable = switch() or (None if self._ci else ci_variable())
        change = f"unset {variable}" if variable else f"{self.command} telemetry {'on' if state.startswith('off') else 'off'}"
        return f"Telemetry of {self._name} is {state}. To change it: {change}"

    def _questions(self) -> list[str]:
        registry = self._loaded()
        return [f"  - {metric.description}" for metric in registry.metrics.values()] if registry else []

    def _loaded(self) -> Registry | None:
        from deniable.registry import load

        try:
            return load(Path(self._registry))
        except Exception:  # noqa: BLE001 - a tool that is not installed well still asks, and records nothing
            return None

    def _question(self) -> str:
        return "\n".join(
            [
                f"May {self._name} count how it is used? It would ask:",
                *self._questions(),
                "Before an answer leaves this device, it is changed at random. So no single report proves anything about you:",
                "you could as well have given another answer. Many reports of one answer show more, though never for certain.",
                "You can say no and lose nothing. You can change it at any time, but what was sent cannot be taken back.",
                f"Look at what is sent: {self.command} telemetry show. Yes or no? [y/N]",
            ]
        )
