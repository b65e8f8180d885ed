"""Output of commands: control characters are shown escaped, and a closed pipe ends the command quietly."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

from deniable.registry.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["CLOSED_STATUS", "Terminal", "guarded", "print_table", "raw"]

CLOSED_STATUS = 141
"""Exit status when nobody reads the output any more; a shell says the same of programs that the signal SIGPIPE ends."""


class Terminal:
    """A stream that shows control and direction characters escaped.

    Parameters
    ----------
    stream
        Where to write.
    status
        With which the process ends once nobody reads the stream; None where it goes on, as a worker does without its log.
    """

    def __init__(self, stream: TextIO, status: int | None = None) -> None:
        self.stream = stream
        self._status = status

    def write(self, text: str) -> int:
        """Write a text; line ends and tabs stay."""
        try:
            self.stream.write(visible(text, keep="\n\t"))
        except BrokenPipeError:
            self._end()
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        try:
            self.stream.flush()
        except BrokenPipeError:
            self._end()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def _end(self) -> None:
        with suppress(OSError, ValueError):  # a stream without a descriptor
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())  # else the interpreter would complain as it ends
        if self._status is not None:
            raise SystemExit(self._status)


@contextmanager
def guarded() -> Iterator[None]:
    """Print through a `Terminal` inside this block."""
    out, err = Terminal(sys.stdout, CLOSED_STATUS), Terminal(sys.stderr)
    with redirect_stdout(cast("TextIO", out)), redirect_stderr(cast("TextIO", err)):
        try:
            yield
        finally:
            out.flush()
            err.flush()


def raw(stream: TextIO) -> TextIO:
    """Return the stream itself, for our own colours. Never write to it what others wrote."""
    return stream.stream if isinstance(stream, Terminal) else stream


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of texts in columns as wide as their longest text; the first row has the headings."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
