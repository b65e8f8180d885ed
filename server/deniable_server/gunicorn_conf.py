"""How gunicorn runs the server; ``deploy/gunicorn.conf.py`` begins from here."""

from __future__ import annotations

import os
from pathlib import Path

bind = "127.0.0.1:8080"
workers = int(os.environ.get("WEB_CONCURRENCY", "2"))
worker_class = "gthread"
threads = 4
timeout = 30
graceful_timeout = 30
keepalive = 5
preload_app = False
control_socket_disable = True
# Heartbeats go to a file; on a disk that is slow they would stall the workers.
worker_tmp_dir = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
# No line of any log may hold an address, a browser's name or an idempotency key, so there is no access log at all.
accesslog = None
errorlog = "-"
loglevel = "warning"
# Uploads are small and few headers are sent: refuse the rest early.
limit_request_line = 2048
limit_request_fields = 32
limit_request_field_size = 4096
