"""A client's test adapter: a process that answers each line of JSON with one."""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from threading import Timer
from typing import TYPE_CHECKING, Any, Self

from deniable.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

PROTOCOL = 1
_SECONDS = 120.0  # for an answer; an adapter that hangs is ended


class Adapter:
    """Starts an adapter, and asks it. It ends with its input."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._loaded: object = None
        self._refused: dict[str, str] = {}

    def __enter__(self) -> Self:
        try:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"{self._command[0]!r} cannot be started: {error.strerror}") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.stdin is not None and self._process.stdout is not None:
            with suppress(OSError):  # it has ended, and did not read everything
                self._process.stdin.close()
            self._process.stdout.close()
        try:
            self._process.wait(_SECONDS if kind is None else 1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Ask one thing; raise `ConfigurationError` if there is no answer."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None  # noqa: PT018, S101 - both are pipes
        watch = Timer(_SECONDS, process.kill)
        watch.start()
        try:
            process.stdin.write(f"{json.dumps(request)}\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        finally:
            watch.cancel()
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            what = f"answered {line.rstrip()[:200]!r}, which is no object of JSON" if line else "ended, or gave no answer in time"
            raise ConfigurationError(f"the adapter {what}, when it was asked {json.dumps(request)[:200]}")
        return answer

    def load(self, sheet: dict[str, Any] | None) -> dict[str, str]:
        """Have it read a sheet, unless it has; return the metrics that it refuses, with the reasons."""
        if sheet is not None and sheet is not self._loaded:
            refused = self.ask({"do": "sheet", "sheet": sheet}).get("refused", {})
            if not isinstance(refused, dict):
                raise ConfigurationError(f"the adapter refuses a sheet of format 1: {refused}")
            self._loaded, self._refused = sheet, refused
        elif sheet is None:
            self._loaded, self._refused = None, {}
        return self._refused
