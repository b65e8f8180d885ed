"""People who are signed in to a web app: each is a device, whose state the app keeps."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from deniable.client import Client
from deniable.client.consent import Consent
from deniable.client.counts import spent
from deniable.client.guard import guarded, in_words
from deniable.client.recorder import Recorder
from deniable.device.ledger import Ledger
from deniable.device.people import Key, PeopleFile, PeopleInRedis, PersonStates
from deniable.device.permanent_responses import PermanentResponses
from deniable.errors import ConfigurationError, ParameterError, StateError
from deniable.process.clock import now
from deniable.source import OS
from deniable.stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from deniable.arrival import Arrival
    from deniable.device.state import State
    from deniable.explanation import Explanation
    from deniable.registry import Registry
    from deniable.registry.tables import Caps
    from deniable.stopwatch import Timing
    from deniable.transport import Post, SenderSettings

__all__ = ["People", "Person"]

NO_FUNCTION = "consent must be a function of the identifier, which returns whether this person agreed"


class People:
    """The people who are signed in to a web app, as `deniable.people` makes them.

    A person is a device whose state the app keeps: with the same ledger, the same permanent responses and a consent of their own.
    The server of the app sees raw answers. What is randomised protects people from the collector, from analysts, and from anyone
    who gets at the store without the key.

    All persons share the queue, so one batch has reports of many. Nothing in it, and nothing on disk, says whose they are.

    Parameters
    ----------
    dsn, registry, settings, caps, registry_key, allow_http, strict, post, clock
        As for `Client`.
    key
        A secret of at least 16 bytes that stays the same for good, kept apart from the store. With another key everybody is a new
        person, who spends anew.
    store
        A folder on a local disk of this machine, for all processes of the app; or a client of the app's Redis, for all machines.
    consent
        Called with the identifier of a person at each record; returns whether this person agreed.
    segments
        The value of each segment that the registry declares, the same for all people: a fact about the app, such as the version
        that it runs. What is a fact about a person is no segment: it would travel without noise.
    state
        The directory where reports wait that could not be sent yet; by default the folder of `store`.
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        registry: str | Path | Registry,
        key: str | bytes,
        store: str | Path | Any,
        consent: Callable[[Any], bool],
        segments: Mapping[str, str] | None = None,
        state: str | Path | None = "",
        settings: SenderSettings | None = None,
        caps: Caps | None = None,
        registry_key: str | None = None,
        allow_http: bool = False,
        strict: bool = False,
        post: Post | None = None,
        clock: Callable[[], float] = now,
    ) -> None:
        self.strict: bool = strict
        folder = Path(store).expanduser() if isinstance(store, (str, Path)) else None
        self._client = Client(
            dsn=dsn,
            registry=registry,
            consent=True,
            segments=segments,
            settings=settings,
            caps=caps,
            state=folder if state == "" and folder is not None else state,
            registry_key=registry_key,
            allow_http=allow_http,
            strict=strict,
            post=post,
            clock=clock,
        )
        self._counts = self._client._counts
        self._counts.of_people = True
        self._consent = consent
        self._clock = clock
        self._odd_consent = False
        self._states: PersonStates | None = None  # None while the client is off
        if self._client._session is None:
            return
        app = self._client._metrics.registry.app
        try:
            own_key = Key(key, app)
            if not callable(consent):
                raise ConfigurationError(NO_FUNCTION)  # noqa: TRY301 - it turns the client off as the other faults do
            if folder is None and not hasattr(store, "eval"):
                rule = "store: write the path of a folder, or a client of redis-py"
                raise ConfigurationError(f"{rule}, not an object of type {type(store).__name__}")  # noqa: TRY301 - as above
        except ConfigurationError as error:
            if strict:
                raise
            self._client._refuse(in_words(error))
            return
        own_store = PeopleInRedis(store, app) if folder is None else PeopleFile(folder / f"{app}+people")
        self._states = PersonStates(own_store, own_key)
        self._counts.trouble = lambda: own_store.trouble
        with suppress(StateError):  # a report that cannot wait there says so
            self._client._session.state.begin(lambda _: None)  # the folder where reports wait, before any is sent

    def person(self, identifier: object) -> Person:
        """Return the person whom the app knows by an identifier: one that stays, such as the number of the account.

        Identifiers with the same text are the same person. A name or an address that can be changed makes a new person, who
        spends anew. None and the empty text are nobody, such as a visitor who is not signed in: nothing is recorded for them.
        """
        return Person(self, identifier)

    def flush(self, timeout: float = 5.0) -> Arrival:
        """Send what is queued now, of all people; see `Client.flush`."""
        return self._client.flush(timeout)

    def close(self, timeout: float = 2.0) -> Arrival:
        """Stop for good; see `Client.close`."""
        arrival = self._client.close(timeout)
        if self._states:
            self._states.store.close()
        return arrival

    def stats(self) -> dict[str, Any]:
        """Return counts of what this process did; see `Client.stats`. What a person has spent, `Person.spent` says."""
        counts = self._client.stats()
        counts.pop("spent", None)
        return counts | ({"trouble": self._states.store.trouble} if self._states else {})

    def explain(self, metric: str, value: object = None) -> Explanation | None:
        """Explain what recording would send; see `Client.explain`."""
        return self._client.explain(metric, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Person:
    """One person of a web app. Making one costs nothing; it keeps nothing but the identifier."""

    __slots__ = ("_counts", "_identifier", "_people", "strict")

    def __init__(self, people: People, identifier: object) -> None:
        self._people = people
        self._identifier = identifier
        self._counts = people._counts
        self.strict: bool = people.strict

    @guarded(bool)
    def record(self, metric: str, value: object) -> bool:
        """Randomise an answer of this person and queue the report; see `Client.record`."""
        return not self._is_nobody() and self._people._client._record(metric, value, recorder=self._recorder())

    def timed(self, metric: str) -> Stopwatch:
        """Return a stopwatch, which records for this person how long a block or a function takes; see `Client.timed`."""
        return Stopwatch(self._begin, metric)

    @guarded(lambda: None)
    def _begin(self, metric: str) -> Timing | None:
        return None if self._is_nobody() else self._people._client._begin(metric, self._recorder())

    @guarded(bool)
    def forget(self) -> bool:
        """Delete all that is kept of this person; return whether it is deleted.

        A person who comes back is a new one, who spends anew. So do this when the account is deleted, not when consent is
        withdrawn. Reports that were made already say nothing of whose they are, so they cannot be deleted.
        """
        states = self._people._states
        if self._is_nobody() or states is None:
            return False
        states.forget(str(self._identifier))
        return True

    @guarded(dict)
    def spent(self) -> dict[str, float | None]:
        """Return what this person has spent and has left, in nats, as ``stats()["spent"]`` of a `Client`."""
        states = None if self._is_nobody() else self._people._states
        ledger = None if states is None else self._ledger(states.of(str(self._identifier)))
        return spent(ledger, self._people._client._metrics.month)

    def _is_nobody(self) -> bool:
        """Return whether there is no identifier, which is counted, and raised if strict."""
        if self._identifier is not None and str(self._identifier) != "":
            return False
        self._counts.drop("nobody", error=ParameterError("a person has an identifier", self._identifier) if self.strict else None)
        return True

    def _ledger(self, state: State) -> Ledger:
        # Each report is paid for by itself: a worker that kept a lease would keep it from all others.
        return Ledger(state, self._people._client._metrics.budget, most=1)

    def _recorder(self) -> Recorder | None:
        """Make a recorder of this person; None if the client is off."""
        people = self._people
        session, states = people._client._session, people._states
        if session is None or states is None:
            return None
        state = states.of(str(self._identifier))
        ledger = self._ledger(state)
        return Recorder(
            people._client._metrics,
            _PersonalConsent(people, self._identifier),
            self._counts,
            ledger,
            PermanentResponses(state, ledger, OS),
            session.sender,
            refusal=lambda *_: None,  # nobody knows whose report was refused
            source=None,
            clock=people._clock,
            strict=self.strict,
            local=people._client.developed,
        )


class _PersonalConsent(Consent):
    """The consent of one person. When it ends, nobody else's reports are paused or dropped."""

    def __init__(self, people: People, identifier: object) -> None:
        super().__init__(lambda: people._consent(identifier), strict=people.strict)
        self._people = people
        self._warned = people._odd_consent

    def _check(self, answer: object, error: Exception | None) -> None:
        super()._check(answer, error)
        self._people._odd_consent = self._warned
