"""Programs of ours started by fork, as most of a start's time goes into imports (Linux; elsewhere they are started as usual).

A fork server has imported what `deniable` and gunicorn need. `Forked` is `subprocess.Popen`, but has such a program forked there.
The program is a child of whoever asked for it: the fork server forks twice, and the one who asks is a subreaper meanwhile. So it
has the process id, the signals, the status and the pipes that it would have. A program that starts others itself has its own fork
server, made before the program begins.

What an environment says to the interpreter or to a library may be read at import. So each such environment has its own fork
server, made when it comes for the second time. A program whose start is what is tested is started as usual: in `started`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import inspect
import json
import os
import runpy
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <sys/prctl.h>
_HEAD = struct.Struct("!I")  # the length of what follows
_OURS = ("DENIABLE_", "GUNICORN_")
_READ_LATER = ("WEB_CONCURRENCY", "PORT", "TERM", "PATH", "TMPDIR", "HOME", "DO_NOT_TRACK", "PYTEST_CURRENT_TEST")
"""Besides ours, variables that are read when a program runs, and not when something is imported."""
_MODULES = {"deniable", "gunicorn"}
_TESTS = Path(__file__).parents[1]
"""Where scripts are ours, too."""
_STARTERS = {"serve", "demo"}
"""Commands that start other programs of ours."""
_PACKAGES = ("deniable", "deniable_aggregator", "deniable_query", "deniable_relay", "deniable_server")
_LEFT_OUT = ("deniable_server.gunicorn_conf", "matplotlib", "pyarrow", "pytest")
"""Modules that read the environment or start a thread when they are imported, and what hardly any program needs. The fork server
imports neither them nor what imports them."""
_OTHERS = ("gunicorn.app.wsgiapp", "gunicorn.workers.gthread", "numba", "requests")
_Popen = subprocess.Popen
_Key = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class _Program:
    """What is asked of a fork server."""

    name: str
    """Of a module, or the path of a script."""
    arguments: Sequence[str]
    environment: dict[str, str]
    folder: str
    descriptors: Sequence[int]
    """What the descriptors that come along are in the program."""
    session: bool
    ends_with_us: int
    """The signal that it gets when the one who started it ends, or 0."""


class _Server:
    """A fork server, as the one who asks sees it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._lock, self._pid = connection, threading.Lock(), os.getpid()

    @classmethod
    def start(cls, environment: dict[str, str]) -> _Server:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            process = _Popen(command, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        atexit.register(process.wait)
        atexit.register(ours.close)
        return cls(ours)

    @property
    def is_own(self) -> bool:
        """Whether it is this process's, and not that of a process from which this one was forked."""
        return self._pid == os.getpid()

    def fork(self, program: _Program, descriptors: list[int]) -> int:
        """Have a program forked; return its process id."""
        text = json.dumps(asdict(program)).encode()
        with self._lock:
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            try:
                socket.send_fds(self._connection, [_HEAD.pack(len(text))], descriptors)
                self._connection.sendall(text)
                return int(_HEAD.unpack(_received(self._connection, _HEAD.size))[0])
            finally:
                _prctl(_PR_SET_CHILD_SUBREAPER, 0)


_servers: dict[_Key, _Server] = {}
_seen: set[_Key] = set()
_parameters = inspect.signature(_Popen._execute_child)


class Forked(_Popen):
    """A process, which is forked from a fork server if it is a program of ours."""

    def _execute_child(self, *arguments: Any) -> None:
        options = _parameters.bind(self, *arguments).arguments
        program = _program(options)
        server = program and _server(program.environment)
        if not program or not server:
            super()._execute_child(*arguments)
            return
        ends = (options["p2cread"], options["c2pwrite"], options["errwrite"])
        streams = [number if own == -1 else own for number, own in enumerate(ends)]
        self.pid = server.fork(program, [*streams, *options["pass_fds"]])
        self._child_created = True
        self._close_pipe_fds(*(options[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")))


def install() -> None:
    """Have everything that this process starts forked where that can be."""
    if sys.platform == "linux":
        _seen.add(_key(os.environ))
        subprocess.Popen = Forked


@contextmanager
def started() -> Iterator[None]:
    """Start programs as usual meanwhile."""
    before, subprocess.Popen = subprocess.Popen, _Popen
    try:
        yield
    finally:
        subprocess.Popen = before


def _server(environment: dict[str, str]) -> _Server | None:
    """Return the fork server for an environment; there is one as soon as such an environment comes again."""
    key = _key(environment)
    if key in _seen and key not in _servers:
        _servers[key] = _Server.start(environment)
    _seen.add(key)
    server = _servers.get(key)
    return server if server and server.is_own else None


def _program(options: Mapping[str, Any]) -> _Program | None:
    """Return what to fork for the arguments of `_execute_child`; None for what is to be started as usual."""
    if isinstance(options["args"], (str, bytes, os.PathLike)) or options["shell"] or options["executable"]:
        return None
    if any(options[name] not in (None, -1) for name in ("gid", "gids", "uid", "umask", "process_group")):
        return None
    words = [os.fsdecode(word) for word in options["args"]]
    environment = dict(os.environ if options["env"] is None else options["env"])
    named, signal_ = _named(words, environment), _ends_with_us(options["preexec_fn"])
    if not named or signal_ is None:
        return None
    folder = os.path.join(os.getcwd(), options["cwd"] or "")  # noqa: PTH109, PTH118 - bytes and paths alike
    descriptors = (0, 1, 2, *options["pass_fds"])
    return _Program(named[0], named[1:], environment, folder, descriptors, bool(options["start_new_session"]), signal_)


def _named(words: list[str], environment: Mapping[str, str]) -> list[str]:
    """Return the module or script that a command runs, and its arguments; nothing if it is none of ours."""
    if words[0] == sys.executable:
        if words[1:2] == ["-m"]:
            return words[2:] if words[2] in _MODULES else []
        return words[1:] if words[1:] and Path(words[1]).is_relative_to(_TESTS) else []
    path = shutil.which(words[0], path=environment.get("PATH"))
    name = Path(words[0]).name
    return [name, *words[1:]] if name in _MODULES and path and Path(path).parent == Path(sys.executable).parent else []


def _key(environment: Mapping[str, str]) -> _Key:
    """Return the variables that something may have read at import."""
    return frozenset(item for item in environment.items() if not item[0].startswith(_OURS) and item[0] not in _READ_LATER)


def _ends_with_us(prepare: Any) -> int | None:
    """Return the signal of `children.tied`, 0 without one; None for anything else that is to run before a program."""
    if prepare is None:
        return 0
    arguments = getattr(prepare, "args", ())
    if len(arguments) == 2 and arguments[0] == _PR_SET_PDEATHSIG:
        return int(arguments[1].value)
    return None


def _prctl(*arguments: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(arguments[0], *map(ctypes.c_ulong, arguments[1:]), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _received(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise EOFError
        received += piece
    return received


# In the fork server


def _serve(connection: socket.socket) -> tuple[_Program, list[int]]:
    """Fork what is asked for until nobody asks any more; return in each child, with the program that it is to be."""
    while True:
        head, descriptors, _, _ = socket.recv_fds(connection, _HEAD.size, 64)
        if not head:
            os._exit(0)
        program = _Program(**json.loads(_received(connection, _HEAD.unpack(head)[0])))
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            between = os.getpid()
            if number := os.fork():
                os.write(writing, _HEAD.pack(number))
                os._exit(0)
            while os.getppid() == between:  # until it is the child of whoever asked
                time.sleep(0.0005)
            connection.close()
            return program, descriptors
        os.waitpid(between, 0)
        connection.sendall(os.read(reading, _HEAD.size))
        for descriptor in (reading, writing, *descriptors):
            os.close(descriptor)


def _become(program: _Program, descriptors: list[int]) -> None:
    """Take on what a program finds when it starts."""
    if program.session:
        os.setsid()
    above = max(512, *program.descriptors) + 1
    high = [_moved(descriptor, above) for descriptor in descriptors]
    os.closerange(3, above)
    for number, descriptor in zip(program.descriptors, high, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(program.folder)
    os.environ.clear()
    os.environ.update(program.environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if program.ends_with_us:
        _prctl(_PR_SET_PDEATHSIG, program.ends_with_us)
    sys.argv = [program.name, *program.arguments]
    sys.path[0] = program.folder if program.name in _MODULES else str(Path(program.name).parent)
    sys.stdin = sys.__stdin__ = _stream(0, "r", sys.stdin)
    sys.stdout = sys.__stdout__ = _stream(1, "w", sys.stdout)
    sys.stderr = sys.__stderr__ = _stream(2, "w", sys.stderr)


def _moved(descriptor: int, above: int) -> int:
    import fcntl

    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above)
    os.close(descriptor)
    return moved


def _stream(number: int, mode: str, like: Any) -> Any:
    lines = mode == "w" and (number == 2 or os.isatty(number))
    buffering = 1 if lines else -1
    return open(number, mode, buffering, encoding=like.encoding, errors=like.errors, closefd=False)


def _main(connection: socket.socket) -> None:
    while True:
        program, descriptors = _serve(connection)
        _become(program, descriptors)
        if not _STARTERS.intersection(program.arguments[:1]):
            break
        ours, theirs = socket.socketpair()
        if os.fork():
            theirs.close()
            _servers[_key(os.environ)] = _Server(ours)
            subprocess.Popen = Forked
            break
        ours.close()
        connection = theirs
        _keep_nothing()
    _run(program)


def _run(program: _Program) -> None:
    """Run a program, and end as Python does, but without taking all modules apart, which would take longest."""
    try:
        if program.name in _MODULES:
            runpy.run_module(program.name, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program.name, run_name="__main__")
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        status = end.code or 0
    else:
        status = 0
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _keep_nothing() -> None:
    """Let go of a program's streams, for which others may wait to end, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.close(nothing)


def _import() -> None:
    sys.path.pop(0)  # the folder of this file
    sys.path.insert(0, "")
    sys.modules |= dict.fromkeys(_LEFT_OUT)  # which makes their import fail, and with it that of what imports them
    within = (each.name for name in _PACKAGES for each in walk_packages(import_module(name).__path__, f"{name}."))
    for name in (*_OTHERS, *within):
        if not name.endswith("__main__"):
            with suppress(ImportError):  # also what is not installed, which its programs do not need
                import_module(name)
    for name in _LEFT_OUT:
        del sys.modules[name]
    with suppress(ImportError):  # the SDK alone has no kernels
        from deniable_aggregator.tally import machine_code

        with suppress(machine_code.NoDirectoryError):
            if machine_code.is_kept():
                for _ in machine_code.load():
                    pass
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import()
    _main(socket.socket(fileno=int(sys.argv[1])))
