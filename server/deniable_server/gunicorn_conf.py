"""How gunicorn runs the server; ``deploy/gunicorn.conf.py`` begins from here."""

from __future__ import annotations

import os
from pathlib import Path
from secrets import token_hex

bind = "127.0.0.1:8080"
workers = int(os.environ.get("WEB_CONCURRENCY", "2"))
worker_class = "deniable_server.patience.PatientWorker"
threads = 4
timeout = 30
graceful_timeout = 30
keepalive = 5
# Connections of a worker, which may all be sending slowly: each holds at most a body and its headers in memory.
worker_connections = 500
preload_app = False
# Cookies are signed by the secret or by the read keys. Without either, the processes share one of their own.
if not os.environ.get("DENIABLE_SECRET") and not os.environ.get("DENIABLE_READ_KEYS"):
    os.environ["DENIABLE_SECRET"] = token_hex()
control_socket_disable = True
# Heartbeats go to a file; on a disk that is slow they would stall the workers.
worker_tmp_dir = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
# No line of any log may hold an address, a browser's name or an idempotency key, so there is no access log; who turns it on
# gets lines without any of them, nor the address asked for, in which a client can write what it likes.
accesslog = None
access_log_format = "%(m)s %(s)s %(B)s bytes %(M)s ms"
errorlog = "-"
loglevel = "warning"
# Uploads are small and few headers are sent: refuse the rest early.
limit_request_line = 2048
limit_request_fields = 32
limit_request_field_size = 4096


def pre_request(worker: object, req: object) -> None:
    """Log nothing, where gunicorn would log the address asked for."""
