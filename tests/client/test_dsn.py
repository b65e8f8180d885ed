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
    with pytest.raises(ConfigurationError, match=r"write https://PUBLIC_KEY@.*/shop, or pass allow_http=True") as caught:
        Dsn.parse(text)
    assert KEY not in str(caught.value)
    assert Dsn.parse(text, allow_http=True).app == "shop"


MENDED = "write it as https://PUBLIC_KEY@t.example/blog"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "does not begin with https:// or http://: write it as https://PUBLIC_KEY@host/blog"),
        ("t.example/shop", "does not begin with https:// or http://: write it as https://PUBLIC_KEY@host/blog"),
        (KEY, "does not begin with https:// or http://: write it as https://PUBLIC_KEY@host/blog"),
        (f"{KEY}/shop", "does not begin with https:// or http://: write it as https://PUBLIC_KEY@host/blog"),
        ("ftp://t.example/shop", "begins with ftp://: write it as https://PUBLIC_KEY@host/blog"),
        (f"https://{KEY}/shop", "has no key before its host: write it as https://PUBLIC_KEY@host/blog, with the key that"),
        ("https://@t.example/shop", "has no key before its host: write it as https://PUBLIC_KEY@host/blog, with the key that"),
        (f"https://{KEY}:secret@t.example/shop", f"has more than the public key before its host: {MENDED}"),
        (f"https://{KEY}@/shop", "has no host: write it as https://PUBLIC_KEY@host/blog"),
        (f"https://{KEY}@t.example", f"does not end with the app's name, but with '': {MENDED}"),
        (f"https://{KEY}@t.example/", f"does not end with the app's name, but with '/': {MENDED}"),
        (f"https://{KEY}@t.example/shop//", f"does not end with the app's name, but with '/shop//': {MENDED}"),
        (f"https://{KEY}@t.example/shop?x=1", f"does not end with the app's name, but with '/shop?x=1': {MENDED}"),
        (f"https://{KEY}@t.example/shop#x", f"does not end with the app's name, but with '/shop#x': {MENDED}"),
        (f"https://{KEY}@t.example/shop", f"is for app 'shop' and the registry for app 'blog': {MENDED}, or pass the registry"),
        (f"https://{KEY}@t.example/some/app", "'blog': write it as https://PUBLIC_KEY@t.example/some/blog, or pass the regis"),
        (f"https://{KEY}@t.example/v1/reports", f"has the path of an upload, which the SDK adds by itself: {MENDED}"),
        (
            f"http://{KEY}@t.example/blog",
            "can read what is sent: write https://PUBLIC_KEY@t.example/blog, or pass allow_http=True",
        ),
        (f'"https://{KEY}@t.example/blog"', "has quotes around it: write it without them"),
        (f"https://{KEY}@t.example/blog'", "has quotes around it: write it without them"),
        (f"https://{KEY} @t.example/blog", "has white space in it: write it as one word"),
        (f"https://t.example:{KEY}/blog", "the port of the DSN is none: write a number from 1 to 65535"),
        (f"https://{KEY}@t.example:99999/blog", "the port of the DSN, 99999, is none: write a number from 1 to 65535"),
        (f"https://{KEY}@t.example:0/blog", "the port of the DSN, 0, is none: write a number from 1 to 65535"),
        (f"https://{KEY}@[::1/shop", "the host of the DSN cannot be read: an address with colons stands in brackets"),
        (f"https://{KEY}@t.example/blog".encode(), "the DSN is an object of type bytes: write it as a text in quotes"),
    ],
)
def test_what_is_wrong_with_it(text, words):
    """The part that is missing or wrong is named, the DSN that works is shown as far as it is known, and the key is not."""
    with pytest.raises(ConfigurationError) as caught:
        Dsn.parse(text, app="blog")
    assert words in str(caught.value)
    assert KEY not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("quote", ["'", '"', "`"])
def test_one_in_quotes_leads_where_it_would_without(quote):
    """So a developer sees what is wrong with it."""
    assert leads_here(f"{quote}http://{KEY}@localhost:8080/shop{quote} ")
    assert not leads_here(f"{quote}http://{KEY}@t.example/shop{quote}")


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
    assert Dsn.parse(works.replace("PUBLIC_KEY", KEY)).app == "shop"
    assert leads_here(text) is works.startswith("http:")


@pytest.mark.parametrize(
    "text", ["http://localhost:8080/shop", f"http://{KEY}:x@localhost:8080/shop", f"http://{KEY}@localhost:8080/shop?x=1"]
)
def test_one_of_this_machine_is_shown_as_it_works(text):
    """A developer's server has no TLS, so the shape is not that with https://."""
    with pytest.raises(ConfigurationError, match="write it as http://PUBLIC_KEY@localhost:8080/shop") as caught:
        Dsn.parse(text)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("https://PUBLIC_KEY@telemetry.example.org/shop", "is that of an example"),
        ("http://pk_...@127.0.0.1:8080/shop", "has a placeholder where its key should be"),
        ("http://PUBLIC_KEY@127.0.0.1:8080/shop", "has a placeholder where its key should be"),
        ("https://<key>@t.example/shop", "has a placeholder where its key should be"),
        ("https://$KEY@t.example/shop", "has a placeholder where its key should be"),
    ],
)
def test_one_that_was_copied_from_the_pages(text, wrong):
    """It is no place to send to, and is told as what it is."""
    with pytest.raises(ConfigurationError, match=f"the DSN {wrong}: copy the one of your server"):
        Dsn.parse(text)


@pytest.mark.parametrize(("start", "role"), [("rk", "read"), ("ak", "admin")])
def test_a_key_of_another_role(start, role):
    """A key that opens more than an app may hold is refused, and the message says which key an app takes, and shows none."""
    with pytest.raises(ConfigurationError) as caught:
        Dsn.parse(f"https://{start}_{KEY}@t.example/shop")
    words = f"the DSN has {'an' if role == 'admin' else 'a'} {role} key ({start}_...), which no app may hold"
    assert str(caught.value) == f"{words}: write the app's ingest key (pk_...), which is public"


def test_repr_hides_the_key():
    """Printing a DSN does not print the key."""
    assert repr(Dsn.parse(f"https://{KEY}@t.example/shop")) == "Dsn(https://t.example/shop)"
