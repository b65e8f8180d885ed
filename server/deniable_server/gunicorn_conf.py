"""How gunicorn runs the server. ``deploy/gunicorn.conf.py`` imports this."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from deniable.errors import ConfigurationError
from deniable_server import settings as _settings

bind = "127.0.0.1:8080"
try:
    workers = _settings.processes()
except ConfigurationError as _error:  # gunicorn would show a traceback
    sys.stderr.write(f"{_error}\n")
    sys.exit(2)
worker_class = "deniable_server.serving.worker.PatientWorker"
threads = 4
timeout = 30
graceful_timeout = 30
keepalive = 5
# Connections of a worker. All may be sending slowly; each has at most a body and its headers in memory.
worker_connections = 500
preload_app = False
control_socket_disable = True
# Heartbeats go to a file, and a slow disk would stall the workers.
worker_tmp_dir = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
# No log may contain an address, a browser's name or an idempotency key, so there is no access log. If it is switched on, its
# lines have none of these, and no time but the hour (`process.logs`). They leave out the address asked for, a client's text.
accesslog = None
access_log_format = "%(m)s %(s)s %(B)s bytes"
errorlog = "-"
loglevel = os.environ.get("DENIABLE_LOG_LEVEL", "warning")
logger_class = "deniable_server.serving.log.Log"
# Uploads are small and have few headers. Everything else is refused early.
limit_request_line = 2048
limit_request_fields = 32
limit_request_field_size = 4096

_STORE_SECONDS = 3.0
_ADDRESS_TRIES = 5  # one a second: what was here before may be ending


def on_starting(server: Any) -> None:
    """Read the settings and the registries and import the app once for all processes; report errors and unknown variables."""
    # gunicorn ends with status 3 for what only its processes notice; a wrong configuration has status 2.
    # Then make the directory of the processes' common counters.
    import gc  # noqa: PLC0415 - names of this module are gunicorn's settings
    from contextlib import closing, suppress  # noqa: PLC0415

    from deniable.errors import DeniableError  # noqa: PLC0415
    from deniable.registry.published import in_a_line  # noqa: PLC0415
    from deniable_aggregator.process import variables  # noqa: PLC0415
    from deniable_aggregator.process.logs import OF_PROCESS  # noqa: PLC0415
    from deniable_aggregator.store import outage  # noqa: PLC0415
    from deniable_aggregator.store.errors import StoreError  # noqa: PLC0415
    from deniable_server import sources  # noqa: PLC0415
    from deniable_server.prometheus import process_slots  # noqa: PLC0415
    from deniable_server.settings import Settings  # noqa: PLC0415

    variables.warn()
    if not server.cfg.reuse_port:
        _await_addresses(server.cfg.address)
    try:
        settings = Settings.from_environment()
        files = sources.hand_on(settings) if settings.registry else None  # without one, whatever needs one says so
        for line in files.lines if files else ():
            server.log.error(line, extra=OF_PROCESS)
        with closing(settings.opened(_STORE_SECONDS)) as client, suppress(StoreError):  # the processes say that it is away
            settings.check(client, settings.promise)
            for line in sources.refusals(client, files) if files else ():
                server.log.error(line, extra=OF_PROCESS)
    except DeniableError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(process_slots.directory())
    outage.share()
    # The processes are forked from this one. What it has imported they need not import each, and they share its memory.
    from deniable_server import app  # noqa: PLC0415 - after what may be wrong: it takes longest

    app.parts(settings.serves, settings.about)
    gc.collect()
    gc.freeze()  # a collection in a process would write to that memory, and so copy it

    def renew() -> None:
        """Have the processes read the registries anew, each under its requests. gunicorn would start other processes."""
        try:
            for line in sources.hand_on(settings).lines:
                server.log.error(line, extra=OF_PROCESS)
        except (DeniableError, OSError) as error:
            reason = in_a_line(error)
            server.log.error("the registries cannot be used, so those before stay in use: %s", reason, extra=OF_PROCESS)  # noqa: TRY400
        server.kill_workers(signal.SIGHUP)  # which sends it; it ends nothing

    server.handle_hup = renew


def _await_addresses(addresses: list[Any]) -> None:
    """End with status 2 if an address stays taken. gunicorn would end with 1, and systemd would start it again and again."""
    import socket  # noqa: PLC0415 - names of this module are gunicorn's settings
    import time  # noqa: PLC0415
    from errno import EADDRINUSE  # noqa: PLC0415

    if os.environ.keys() & {"GUNICORN_FD", "LISTEN_FDS"}:  # it is given sockets that listen
        return
    for address in addresses:
        if not isinstance(address, tuple):  # the path of a socket, which gunicorn replaces
            continue
        for tries_left in reversed(range(_ADDRESS_TRIES)):
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            with socket.socket(family, socket.SOCK_STREAM) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    tried.bind(address)
                except OSError as error:
                    if error.errno != EADDRINUSE:
                        return  # gunicorn says what is wrong
                else:
                    break
            if not tries_left:
                sys.stderr.write(
                    f"{address[0]}:{address[1]} is taken: another process listens there; give another --bind or PORT\n"
                )
                sys.exit(2)
            time.sleep(1.0)


def on_exit(server: object) -> None:
    """Remove what the processes have in common."""
    from deniable_aggregator.store import outage  # noqa: PLC0415 - names of this module are gunicorn's settings

    del server
    outage.unshare()
    shutil.rmtree(os.environ["PROMETHEUS_MULTIPROC_DIR"], ignore_errors=True)


def pre_request(worker: object, req: object) -> None:
    """Log nothing: gunicorn would log the address asked for."""
