"""What is raised if a query is not answered."""

from __future__ import annotations


class QueryError(Exception):
    """A query was not answered.

    Parameters
    ----------
    status
        The HTTP status; 0: nothing answered.
    code
        The stable code of the problem, such as ``"unknown_metric"``; empty if the answer is not one of this server.
    detail
        The rule, what broke it, and what to do.
    retry_after
        Seconds after which to ask again; None: it would not help.
    """

    def __init__(self, status: int, code: str, detail: str, retry_after: int | None = None) -> None:
        number = f" ({status} {code})" if code else f" ({status})" if status else ""
        super().__init__(f"{detail}{number}")
        self.status = status
        self.code = code
        self.detail = detail
        self.retry_after = retry_after
