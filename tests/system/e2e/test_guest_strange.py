"""Whatever the host passes in, nothing comes out: no exception, no line on a terminal, no hang."""

from __future__ import annotations

import asyncio
import threading
from collections import UserString
from contextlib import contextmanager, suppress
from time import monotonic

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import deniable
from deniable.arrival import Arrival
from deniable.client import Client
from deniable.errors import DeniableError
from deniable.registry import load
from deniable.registry.tables import Budget, Caps
from deniable.transport import SenderSettings

DSN = "http://key@127.0.0.1:9/shop"
FREE = Caps(budget=Budget(per_month=None, lifetime=None))


class HostError(Exception):
    """What the host's own objects raise; even to print it is a mistake."""

    def __str__(self) -> str:
        raise RuntimeError


def _fail(*_arguments: object, **_named: object) -> object:
    raise HostError


_METHODS = (
    *("__repr__", "__str__", "__eq__", "__ne__", "__lt__", "__gt__", "__le__", "__ge__", "__hash__", "__bool__", "__len__"),
    *("__iter__", "__contains__", "__getitem__", "__call__", "__int__", "__index__", "__float__", "__add__", "__radd__"),
    *(
        "__sub__",
        "__rsub__",
        "__mul__",
        "__rmul__",
        "__fspath__",
        "__format__",
        "__getattr__",
        "__bytes__",
        "__enter__",
        "__reduce__",
    ),
)
Hostile = type("Hostile", (), dict.fromkeys(_METHODS, _fail) | {"__class__": property(_fail)})


def _hostile(base: type, *arguments: object) -> object:
    """Make a text, number or the like, of which every method raises."""
    methods = {name: _fail for name in _METHODS if name in dir(base)}
    return type(f"Hostile{base.__name__}", (base,), methods)(*arguments)


class Array:
    """What comparing arrays gives: no truth value."""

    shape = (2,)
    dtype = "int64"

    def __eq__(self, _other: object) -> Array:  # type: ignore[override]
        return self

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array is ambiguous")

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return 2

    def __getitem__(self, _place: object) -> Array:
        return self


RING: list[object] = []
RING.append(RING)
CHAIN: dict[str, object] = {}
CHAIN["a"] = CHAIN
DEEP: list[object] = []
for _ in range(100_000):
    DEEP = [DEEP]
HOSTILE = [Hostile(), _hostile(str, "dark"), _hostile(int, 1), _hostile(dict), _hostile(list), _hostile(tuple)]
HOSTILE += [
    _hostile(float, 1),
    Array(),
    RING,
    CHAIN,
    DEEP,
    UserString("dark"),
    object(),
    {"a": "x", "b": Hostile()},
    [Hostile(), Hostile()],
]


class Box:
    """Keeps a value from those who would look at it."""

    def __init__(self, content: object) -> None:
        self.content = content

    def __repr__(self) -> str:
        return f"Box({type(self.content).__name__})"


def boxed(*values: object) -> st.SearchStrategy[Box]:
    return st.sampled_from([Box(value) for value in values])


strange = st.one_of(
    boxed(*HOSTILE),
    boxed(Ellipsis, NotImplemented, type, Hostile, None, ("x", "yes"), {"a": "x", "b": ["no"]}, {1: 2}, range(9)),
    boxed("x" * 1_000_000, "\ud800", "\0", "a\nb", 1 << 40_000, -1, float("nan"), float("inf"), 1e300, 1j, b"\xff"),
    st.one_of(st.text(), st.integers(), st.floats(), st.binary()).map(Box),
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=5), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    ).map(Box),
)
metrics = boxed("used", "theme", "page", "key", "both", "nosuch") | strange
relaxed = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), max_examples=150)


@contextmanager
def silence(capfd):
    """Check that nothing is printed."""
    capfd.readouterr()
    yield
    assert capfd.readouterr() == ("", "")


def take(body, headers, timeout):  # noqa: ARG001 - as a server would
    return 202, {}, None


def ours(**options) -> Client:
    return Client(**({"dsn": DSN, "consent": True, "post": take, "caps": FREE, "state": None} | options))


def losses(client: Client) -> int:
    return sum(client.stats()["dropped"].values())


@pytest.fixture
def client(host):
    """Give a client whose server takes everything."""
    with ours(registry=host.registry) as instance:
        yield instance


def test_strange_answers(client, capfd):
    """Each answer is recorded or counted as lost; no metric and no value makes `record`, `metric` or `explain` raise."""

    @relaxed
    @given(metrics, strange)
    @example(Box("both"), Box(DEEP))
    @example(Box("page"), Box(DEEP))
    def try_(metric_box, value_box) -> None:
        metric, value = metric_box.content, value_box.content
        before = losses(client)
        recorded = client.record(metric, value)
        assert type(recorded) is bool
        assert losses(client) - before == (not recorded)
        assert type(client.metric(metric).record(value)) is bool
        client.explain(metric, value)

    with silence(capfd):
        try_()


def test_strange_arguments(host, capfd):
    """`init`, and everything after it, takes anything: what cannot be used switches the client off."""
    host.bound(1)  # which fits into the default budget

    @relaxed
    @given(data=st.data())
    def try_(data) -> None:
        arguments = {"dsn": DSN, "registry": host.registry, "consent": True, "segments": None, "settings": None, "state": None}
        arguments |= {"caps": None, "registry_key": None}
        name = data.draw(st.sampled_from(sorted(arguments)))
        paths = name in ("state", "registry")  # a text is one, and would be made
        values = strange.filter(lambda box: not (paths and issubclass(type(box.content), str)))
        client = deniable.init(**(arguments | {name: data.draw(values).content}))
        assert isinstance(client, Client)
        deniable.record("used", value=True)
        assert isinstance(deniable.flush(0), Arrival)
        assert isinstance(deniable.stats()["dropped"], dict)
        repr(client)
        deniable.close(0)

    with silence(capfd):
        try_()


def test_strange_waits_and_consents(client, capfd):
    """No timeout and no consent makes anything raise."""

    @relaxed
    @given(strange, strange)
    def try_(timeout_box, consent_box) -> None:
        timeout, consent = timeout_box.content, consent_box.content
        client.set_consent(consent)
        client.record("used", value=True)
        assert isinstance(client.flush(timeout), Arrival)
        assert isinstance(asyncio.run(client.aflush(timeout)), Arrival)
        client.set_consent(True)

    with silence(capfd):
        try_()
        assert client.record("used", value=True)
        assert not client.close(Hostile())


def test_strict_raises(host):
    """In strict mode what is raised is ours, the host's, or names a wrong type or number: never a fault within."""
    client = ours(registry=load(host.registry), strict=True)

    @relaxed
    @given(metrics, strange)
    def try_(metric_box, value_box) -> None:
        metric, value = metric_box.content, value_box.content
        for function in (client.record, client.explain):
            with suppress(DeniableError, HostError, TypeError, ValueError, RecursionError):
                function(metric, value)

    try_()
    client.close(1)


def test_consents_that_raise(host, capfd):
    """A consent function that fails is a no, and nothing is recorded; one that exits the process may."""
    with silence(capfd), ours(registry=host.registry, consent=_fail) as client:
        assert client.record("used", value=True) is False
        client.set_consent(lambda: {}[0])
        assert client.record("used", value=True) is False
        assert client.stats()["dropped"] == {"no_consent": 2}

    def exit_() -> bool:
        raise SystemExit

    with pytest.raises(SystemExit), ours(registry=host.registry, consent=exit_) as client:
        client.record("used", value=True)


def test_a_consent_that_blocks(host):
    """A consent function that takes its time holds up who asked, and nobody else."""
    question, answer = threading.Event(), threading.Event()
    main = threading.get_ident()

    def consent() -> bool:
        if threading.get_ident() == main:
            return True
        question.set()
        return answer.wait(300)

    with ours(registry=host.registry, consent=consent, settings=SenderSettings(flush_interval=60)) as client:
        waiting = threading.Thread(target=client.record, args=("used", True))
        waiting.start()
        assert question.wait(60)
        began = monotonic()
        assert client.record("used", value=True)
        assert client.flush(60)
        assert client.stats()["sent"] == 1
        assert monotonic() - began < 60
        answer.set()
        waiting.join(60)
        assert client.stats()["recorded"] == 2


def test_records_amid_a_record(host):
    """A consent function that records itself makes no second report and no endless descent; an answer is not even hashed."""

    def consent() -> bool:
        client.record("used", value=False)
        return True

    with ours(registry=host.registry, consent=consent) as client:
        assert client.record("used", value=True)
        assert client.stats()["dropped"] == {"interrupted": 1}

    class Answer:
        def __hash__(self) -> int:
            other.record("used", value=True)
            other.flush(0)
            other.set_consent(True)
            return 7

        __repr__ = __str__ = lambda self: str(hash(self))

    with ours(registry=host.registry) as other:
        assert other.record("theme", Answer()), "reported, as what is not declared"
        assert other.record(Answer(), value=True) is False
        stats = other.stats()
        assert (stats["undeclared"], stats["dropped"]) == (1, {"unknown_metric": 1})
        assert other.record("used", value=True)


def test_records_in_signal_handlers(host, server):
    """A handler that records at any moment of `record`, `flush`, `stats` or `close` hangs nothing and loses no count."""
    printed = host.run(
        """
        import signal
        start(interval=0.1, at=50)
        handled = 0

        def handle(*_):
            global handled
            handled += 1
            deniable.record("used", True), deniable.record("theme", "dark"), deniable.stats(), deniable.flush(0.001)

        signal.signal(signal.SIGALRM, handle)
        deadline = time.monotonic() + 120
        while handled < 150 and time.monotonic() < deadline:
            if not signal.getitimer(signal.ITIMER_REAL)[0]:
                signal.setitimer(signal.ITIMER_REAL, 0.0003 * (1 + handled % 5))
            deniable.record("used", True)
            if handled % 3 == 0:
                deniable.flush(0.001)
            if handled % 5 == 0:
                deniable.stats(), deniable.journal()
        signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.02)
        deniable.close(5)
        signal.setitimer(signal.ITIMER_REAL, 0)
        deniable.close(5)  # for what a handler recorded amid the first one
        stats = deniable.stats()
        print(handled >= 150, stats["recorded"], stats["sent"], stats["spooled"])
        """
    )
    enough, recorded, sent, spooled = printed.split()
    assert enough == "True"
    assert int(recorded) == int(sent) + int(spooled)
    assert int(sent) <= len(server.reports) <= int(sent) + int(spooled), "an answer that came too late is asked for again"
