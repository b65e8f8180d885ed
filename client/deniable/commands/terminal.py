"""Output of commands: control characters are escaped, and a closed pipe ends the command quietly."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

from deniable.registry.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CLOSED_STATUS = 141
"""Exit status if nobody reads the output any more. A shell reports the same for programs ended by the signal SIGPIPE."""


class Terminal:
    """A stream that escapes control and direction characters."""

    def __init__(
        self,
        stream: TextIO,  # where to write
        # The exit status of the process once nobody reads the stream. With None the process goes on, as a worker does without its
        # log.
        status: int | None = None,
    ) -> None:
        self.stream = stream
        self._status = status

    def write(self, text: str) -> int:
        """Write a text; line ends and tabs stay. What the stream's encoding lacks, as some of Windows do, is escaped."""
        visible_text = visible(text, keep="\n\t")
        try:
            self.stream.write(visible_text)
        except UnicodeEncodeError as error:
            self.stream.write(visible_text.encode(error.encoding, "backslashreplace").decode(error.encoding))
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
        with suppress(OSError, ValueError):  # the stream may have no descriptor
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())  # else the interpreter prints an error at its end
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
    """Return the stream below a `Terminal`, for our own colours. Never write texts of others to it."""
    return stream.stream if isinstance(stream, Terminal) else stream


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of texts in aligned columns. The first row has the headings."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
