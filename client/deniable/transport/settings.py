"""Settings of the sender."""

from __future__ import annotations

from deniable.errors import ParameterError
from deniable.frozen import dataclass, fields

_LARGEST = 10_000_000


@dataclass(frozen=True, slots=True)
class SenderSettings:
    """How a sender batches and retries.

    Parameters
    ----------
    flush_at
        Number of reports of a batch.
    flush_interval
        Seconds after which an incomplete batch is sent, more or less by up to a fifth.
    queue_size
        Most reports in the queue. More are dropped and counted.
    timeout
        Seconds that one request may take.
    max_tries
        Attempts at a batch before it goes to the spool. Without a spool it is then lost.
    """

    flush_at: int = 100
    flush_interval: float = 60.0
    queue_size: int = 10_000
    timeout: float = 10.0
    max_tries: int = 4

    def __post_init__(self) -> None:
        for setting in fields(self):
            number = getattr(self, setting.name)
            if not 0 < number <= _LARGEST:
                raise ParameterError(f"{setting.name} is {number!r}: write a number above 0 and at most {_LARGEST}")
