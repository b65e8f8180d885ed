"""Events of a worker, for whoever counts them."""

from __future__ import annotations


class Events:
    """A listener that ignores all events; subclasses override what they need.

    A worker calls these methods from its threads, so they must be quick, safe among threads, and raise nothing.
    """

    def committed(
        self,
        app: str,  # the app of the reports
        seconds: float,  # duration of the commit
    ) -> None:
        """Handle a commit that the store has answered."""

    def counted(
        self,
        app: str,  # the app of the reports
        # batches, reports: their numbers
        batches: int,
        reports: int,
    ) -> None:
        """Handle reports that were counted."""

    def buried(self, app: str) -> None:
        """Handle a batch of an app that was put aside because it cannot be counted."""

    def claimed(self, app: str, batches: int) -> None:
        """Handle batches of an app that were taken over from another worker."""

    def turned(self) -> None:
        """Handle a turn of the calling thread: it has counted, or found nothing to count, or waits for the store."""

    def ended(self) -> None:
        """Handle the last turn of the calling thread."""

    def faulted(self, chore: str) -> None:
        """Handle a chore that failed, as a whole or for a metric."""

    def failed(self) -> None:
        """Handle a failure to use the store."""
