"""A DSN is one line, and its key stays out of every message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable.errors import ConfigurationError
from deniable.transport.dsn import Dsn, leads_here

KEY = "canarykey"
word = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("text", "url", "app"),
    [
        (f"https://{KEY}@t.example/shop", "https://t.example", "shop"),
        (f"http://{KEY}@localhost:8080/shop", "http://localhost:8080", "shop"),
        (f"https://{KEY}@t.example/some/prefix/shop", "https://t.example/some/prefix", "shop"),
        (f"https://{KEY}@[::1]:9000/shop", "https://[::1]:9000", "shop"),
        (f"https://{KEY}@T.Example/shop", "https://t.example", "shop"),
        (f" https://{KEY}@t.example/shop \n", "https://t.example", "shop"),  # as a file or a variable has it
        (f"https://{KEY}@t.example/some/shop/", "https://t.example/some", "shop"),
    ],
)
def test_parts(text, url, app):
    """A DSN falls into address, key and app."""
    assert Dsn.parse(text) == Dsn(url, KEY, app)


@given(
    scheme=st.sampled_from(["http", "https"]),
    key=word,
    host=word,
    port=st.integers(1, 65535),
    prefix=st.lists(word, max_size=3),
    app=word,
)
def test_parts_come_back(scheme, key, host, port, prefix, app):
    """What a DSN is written from is what is read."""
    path = "".join(f"/{part}" for part in prefix)
    read = Dsn.parse(f"{scheme}://{key}@{host}:{port}{path}/{app}", allow_http=True)
    assert read == Dsn(f"{scheme}://{host}:{port}{path}", key, app)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_plain_http_to_this_machine(host):
    """What does not leave the machine needs no encryption."""
    assert Dsn.parse(f"http://{KEY}@{host}:8080/shop").app == "shop"


@pytest.mark.parametrize(
    "host", ["t.example", "localhost.example", "127.0.0.1.example", "10.0.0.1", "0.0.0.0", "[::2]", "128.0.0.1", "ingest"]
)
def test_plain_http_to_others(host):
    """What anybody on the way can read and change takes an explicit word of the app."""
    text = f"http://{KEY}@{host}:8080/shop"
    with pytest.raises(ConfigurationError, match="write https://, or pass allow_http=True") as caught:
        Dsn.parse(text)
    assert KEY not in str(caught.value)
    assert Dsn.parse(text, allow_http=True).app == "shop"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "does not begin with https:// or http://"),
        ("t.example/shop", "does not begin with https:// or http://"),
        (KEY, "does not begin with https:// or http://"),
        (f"{KEY}/shop", "does not begin with https:// or http://"),
        ("ftp://t.example/shop", "begins with ftp://"),
        ("https://t.example/shop", "has no key before its host"),
        ("https://@t.example/shop", "has no key before its host"),
        (f"https://{KEY}:secret@t.example/shop", "has more than the public key before its host"),
        (f"https://{KEY}@/shop", "has no host"),
        (f"https://{KEY}@t.example", "the app's name"),
        (f"https://{KEY}@t.example/", "the app's name"),
        (f"https://{KEY}@t.example/shop//", "the app's name"),
        (f"https://{KEY}@t.example/shop?x=1", "but with '/shop?x=1'"),
        (f"https://{KEY}@t.example/shop#x", "the app's name"),
        (f"https://{KEY}@t.example:port/shop", "the host or port of the DSN cannot be read"),
        (f"https://{KEY}@t.example:99999/shop", "the host or port of the DSN cannot be read"),
        (f"https://{KEY}@[::1/shop", "the host or port of the DSN cannot be read"),
    ],
)
def test_missing_parts(text, rule):
    """A part that is missing is named, the shape is shown, and the key is not."""
    with pytest.raises(ConfigurationError, match="write it as https://PUBLIC_KEY@host/app") as caught:
        Dsn.parse(text)
    assert rule in str(caught.value)
    assert KEY not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "works"),
    [
        (f"{KEY}@localhost:8000/shop", "http://PUBLIC_KEY@localhost:8000/shop"),
        ("localhost:8000/shop", "http://PUBLIC_KEY@localhost:8000/shop"),
        (f"//{KEY}@[::1]:8000/shop", "http://PUBLIC_KEY@[::1]:8000/shop"),
        (f"{KEY}@t.example:9000/some/shop", "https://PUBLIC_KEY@t.example:9000/some/shop"),
    ],
)
def test_one_without_a_scheme(text, works):
    """The one that works is shown, with the host and without the key; to this machine it is seen as what a developer writes."""
    with pytest.raises(ConfigurationError) as caught:
        Dsn.parse(text)
    assert str(caught.value) == f"the DSN does not begin with https:// or http://: write it as {works}"
    assert Dsn.parse(works).app == "shop"
    assert leads_here(text) is works.startswith("http:")


@pytest.mark.parametrize(
    "text", ["http://localhost:8080/shop", f"http://{KEY}@localhost:8080", f"http://{KEY}@localhost:8080/shop?x=1"]
)
def test_one_of_this_machine_is_shown_as_it_works(text):
    """A developer's server has no TLS, so the shape is not that with https://."""
    with pytest.raises(ConfigurationError, match="write it as http://PUBLIC_KEY@localhost:8080/app") as caught:
        Dsn.parse(text)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("text", ["https://PUBLIC_KEY@telemetry.example.org/shop", "http://pk_...@127.0.0.1:8080/shop"])
def test_one_that_was_copied_from_the_pages(text):
    """It is no place to send to, and is told as what it is."""
    with pytest.raises(ConfigurationError, match="the DSN is that of an example: copy the one of your server"):
        Dsn.parse(text)


@pytest.mark.parametrize(("start", "role"), [("rk", "read"), ("ak", "admin")])
def test_a_key_of_another_role(start, role):
    """A key that opens more than an app may hold is refused, and the message says which key an app takes, and shows none."""
    with pytest.raises(ConfigurationError) as caught:
        Dsn.parse(f"https://{start}_{KEY}@t.example/shop")
    words = f"the key of this DSN is {'an' if role == 'admin' else 'a'} {role} key ({start}_...), which no app may hold"
    assert str(caught.value) == f"{words}: write the app's ingest key (pk_...), which is public"


def test_repr_hides_the_key():
    """Printing a DSN does not print the key."""
    assert repr(Dsn.parse(f"https://{KEY}@t.example/shop")) == "Dsn(https://t.example/shop)"
