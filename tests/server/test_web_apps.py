"""The examples of docs/how-to/web-apps.md are apps that record for each person who is signed in and has agreed."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from deniable.testing import StubServer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "web-apps.md").read_text("utf-8")
METRICS = """
format = 1
app = "shop"

[metrics."ui.theme"]
type = "categorical"
values = ["light", "dark", "system"]
epsilon = 1.0
period = "month"
description = "Which theme people use"
owner = "design@shop.example"
"""


@pytest.fixture
def collector(tmp_path, monkeypatch):
    """Run a server that takes reports, with what an app has in its environment."""
    (tmp_path / "metrics.toml").write_text(METRICS, "utf-8")
    monkeypatch.chdir(tmp_path)
    with StubServer("metrics.toml") as server:
        monkeypatch.setenv("DENIABLE_DSN", server.dsn)
        monkeypatch.setenv("SECRET_KEY", "secret")
        monkeypatch.setenv("PEOPLE_KEY", "0" * 32)
        monkeypatch.setenv("PEOPLE_STORE", str(tmp_path / "people"))
        yield server


def example(name, monkeypatch) -> ModuleType:
    """Run an example of the page as a module."""
    [text] = re.findall(rf"<!-- {name} example -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    module = ModuleType(f"{name}_example")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # annotations are looked up there
    exec(compile(text, f"web-apps.md, {name}", "exec"), vars(module))
    return module


def counted(people, collector) -> int:
    """Close an app and return how many reports came."""
    people.close(60)
    return len(collector.reports)


def test_flask(collector, monkeypatch):
    shop = example("flask", monkeypatch)
    for account, answer in ((1, "yes"), (2, "no"), (3, "yes")):
        visitor = shop.app.test_client()
        with visitor.session_transaction() as session:
            session["account"] = account
        visitor.post("/consent", data={"answer": answer})
        for _ in range(3):
            assert visitor.get("/shop").status_code == 200
    shop.app.test_client().get("/shop")  # nobody
    assert shop.people.stats()["dropped"] == {"this_period": 4, "no_consent": 3, "nobody": 1}
    assert visitor.post("/account/delete").status_code == 204
    assert shop.people.person(3).spent()["lifetime"] == 0
    assert counted(shop.people, collector) == 2


def test_django(collector, monkeypatch):
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
            INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"],
            MIDDLEWARE=[
                "django.contrib.sessions.middleware.SessionMiddleware",
                "django.contrib.auth.middleware.AuthenticationMiddleware",
            ],
            ROOT_URLCONF="django_example",
            SECRET_KEY="0" * 50,
            ALLOWED_HOSTS=["*"],
        )
        django.setup()
    from django.contrib.auth.models import Group, User
    from django.core.management import call_command
    from django.test import Client
    from django.urls import path

    call_command("migrate", verbosity=0)
    site = example("django", monkeypatch)
    site.urlpatterns = [path("shop", site.shop)]
    group = Group.objects.create(name="telemetry")
    for name in ("a", "b", "c"):
        user = User.objects.create(username=name)
        if name != "b":
            user.groups.add(group)
        visitor = Client()
        visitor.force_login(user)
        for _ in range(3):
            assert visitor.get("/shop").status_code == 200
    assert Client().get("/shop").status_code == 200
    assert site.people.stats()["dropped"] == {"this_period": 4, "no_consent": 3, "nobody": 1}
    assert counted(site.people, collector) == 2


def get(app, path, cookies) -> bytes:
    """Ask an ASGI app, as its server does."""
    sent = []
    cookie = "; ".join(f"{name}={value}" for name, value in cookies.items()).encode()
    scope = {"type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": path, "query_string": b""}

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope | {"headers": [(b"cookie", cookie)]}, receive, send))
    assert sent[0]["status"] == 200
    return b"".join(message.get("body", b"") for message in sent)


def test_fastapi(collector, monkeypatch):
    shop = example("fastapi", monkeypatch)
    shop.agreed.update({"1", "3"})
    for account in ("1", "2", "3", None):
        for _ in range(3):
            assert get(shop.app, "/shop", {"theme": "dark"} | ({"account": account} if account else {})) == b'{"shop":"open"}'
    assert shop.people.stats()["dropped"] == {"this_period": 4, "no_consent": 3, "nobody": 3}
    assert counted(shop.people, collector) == 2
