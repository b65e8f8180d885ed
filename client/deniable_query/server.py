"""How a server is asked over HTTP."""

from __future__ import annotations

import os
from typing import Any, Self

import requests
from requests.auth import AuthBase

from deniable_query.error import QueryError

_ALONE = "Query takes the server's address alone, such as https://telemetry.example.org"


class _Bearer(AuthBase):
    """The key. As a header of our own, a password in ~/.netrc would take its place."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._key}"
        return request


class Server:
    """A server, with the key that it is asked with."""

    def __init__(self, url: str, key: str, timeout: float) -> None:
        self.url = url
        self.key = key
        self.timeout = timeout
        self._session = self._opened()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def _opened(self) -> requests.Session:
        if "@" in self.url:  # it is not repeated: what stands before this sign may be a key
            raise QueryError(0, "", "the address has a key or a name in it: give Query the address alone, and the key as `key`")
        if "?" in self.url or "#" in self.url:  # what stands behind may be a key, too
            raise QueryError(0, "", f"the address has a ? or # in it: {_ALONE}")
        if not self.key:
            raise QueryError(0, "", "the key is empty: give Query a read key, which begins with rk_")
        if not (self.key.isascii() and self.key.isprintable()):
            raise QueryError(0, "", "a read key has printable ASCII characters only, and this one has others: copy it anew")
        session = requests.Session()
        session.verify = os.environ.get("SSL_CERT_FILE") or True  # as in the SDK; requests itself reads REQUESTS_CA_BUNDLE
        session.auth = _Bearer(self.key)
        return session

    def document(self, method: str, path: str, member: str, **options: Any) -> dict[str, Any]:
        """Send a request, and return the document that answers it; it has this member."""
        answer = self._answered(method, path, **options)
        document = _document(answer)
        if answer.status_code == requests.codes.ok and member in document:
            return document
        raise self._error(answer, document)

    def file(self, method: str, path: str, media: str, **options: Any) -> str:
        """Send a request, and return the text that answers it; it is of this media type."""
        answer = self._answered(method, path, **options)
        if answer.status_code == requests.codes.ok and answer.headers.get("Content-Type", "").startswith(media):
            return answer.content.decode()
        raise self._error(answer, _document(answer))

    def _answered(self, method: str, path: str, **options: Any) -> requests.Response:
        try:
            return self._session.request(method, self._address(path), timeout=self.timeout, allow_redirects=False, **options)
        except requests.RequestException as error:
            raise QueryError(0, "", self._unanswered(error)) from error
        except OSError as error:  # requests says so of a file
            raise QueryError(0, "", f"the certificates in SSL_CERT_FILE or REQUESTS_CA_BUNDLE cannot be read: {error}") from error

    def _address(self, path: str) -> str:
        return f"{self.url.rstrip('/')}/api/v1/{path}"

    def _error(self, answer: requests.Response, document: dict[str, Any]) -> QueryError:
        """Say why an answer is not the one that was asked for."""
        wait = answer.headers.get("Retry-After", "")
        detail = document.get("detail") or f"{self.url} did not answer like a server of deniable"
        if document.get("code") == "not_found":
            detail = f"{answer.url.partition('?')[0]}: {detail}; {_ALONE}"
        return QueryError(answer.status_code, document.get("code", ""), detail, int(wait) if wait.isdigit() else None)

    def _unanswered(self, error: requests.RequestException) -> str:
        """Say why there is no answer."""
        if isinstance(error, ValueError):  # of the address
            return f"the address {self.url!r} is no server's: begin it with https:// or http://"
        if isinstance(error, requests.exceptions.SSLError):
            return (
                f"{self.url} answers without https, or with a certificate that is not trusted: name the file of your own "
                "authority in SSL_CERT_FILE"
            )
        if isinstance(error, requests.Timeout):
            remedy = "ask about fewer values, periods or segments at once, or wait longer: Query(timeout=300)"
            return f"{self.url} did not answer within {self.timeout:g} seconds; {remedy}"
        return f"{self.url} cannot be reached: is a server running there?"


def _document(answer: requests.Response) -> dict[str, Any]:
    try:
        sent = answer.json()
    except ValueError:
        sent = None
    return sent if isinstance(sent, dict) else {}
