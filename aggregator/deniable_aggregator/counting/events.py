"""What a worker tells, as it happens, to whoever wants to count it."""

from __future__ import annotations

__all__ = ["Events"]


class Events:
    """Hears what a worker does, and makes nothing of it; others override what they care for.

    A worker calls these from its one thread and waits for them: they are quick and raise nothing.
    """

    def committed(self, app: str, seconds: float) -> None:
        """Hear that the store answered a commit.

        Parameters
        ----------
        app
            Whose reports it was about.
        seconds
            How long that took.
        """

    def counted(self, app: str, batches: int, reports: int) -> None:
        """Hear that reports were counted.

        Parameters
        ----------
        app
            Whose reports.
        batches, reports
            How many.
        """

    def buried(self, app: str) -> None:
        """Hear that a batch of an app was put aside because it cannot be counted."""

    def claimed(self, app: str, batches: int) -> None:
        """Hear that batches of an app were taken over from a worker that did not get them counted."""

    def faulted(self, chore: str) -> None:
        """Hear that a chore beside counting failed, as a whole or for a metric."""

    def failed(self) -> None:
        """Hear that the store could not be used."""
