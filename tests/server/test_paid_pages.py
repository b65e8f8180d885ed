"""Pages that keys pay for: a question about a withheld segment, and budgets. Only a form of the session spends."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from deniable_aggregator.audit.entry import intact_entry
from deniable_server.access.keys import KeyStore

from .conftest import READ
from .test_analysts import BUDGET, TODAY, closed, few, post  # noqa: F401 - fixtures

ADDRESS = "/m/export.used/withheld"


def token(served, page="/login"):
    return re.search(r'name="token" value="([^"]+)"', served.http.get(page).get_data(as_text=True))[1]


def signed_in(served, key):
    """Serve the same with pages that ask for a key, and sign in."""
    locked = type(served)(replace(served.service.settings, dashboard="key"))
    assert locked.http.post("/login", data={"token": token(locked), "key": key}).status_code == 303
    return locked


@pytest.fixture
def visit(closed):  # noqa: F811
    servers = []

    def enter(key=READ):
        servers.append(signed_in(closed, key))
        return servers[-1]

    yield enter
    for server in servers:
        server.store._client.close()


def ask(served, **fields):
    form = {"token": token(served, ADDRESS), "cell": "platform=macos", "period": TODAY, "figure": "count", "epsilon": "0.25"}
    answer = served.http.post(ADDRESS, data=form | fields)
    return answer.status_code, answer.get_data(as_text=True)


def test_a_question_is_asked_on_a_page_and_paid_by_the_visitors_key(closed, visit):  # noqa: F811
    """The form offers withheld segments and what the metric has; the answer is that of the API, and is paid once."""
    shop = visit()
    assert f'href="{ADDRESS}"' in shop.http.get("/m/export.used").get_data(as_text=True)
    form = shop.http.get(ADDRESS).get_data(as_text=True)
    assert [name for name in ("linux", "macos", "beos", "atari") if f'value="platform={name}"' in form] == [
        "macos",
        "beos",
        "atari",
    ]
    assert re.findall(r'<option value="(\w+)">(?:how|the)', form) == ["count", "value"]
    status, html = ask(shop)
    same = post(closed, epsilon=0.25).get_json()
    assert (status, same["spent"], same["says"].replace("\N{MINUS SIGN}", "-") in html.replace("\N{MINUS SIGN}", "-")) == (
        200,
        0,
        True,
    )
    assert "It cost 0.25 nats. 0.35 are left" in html
    assert "It cost 0 nats." in ask(shop)[1]
    assert "is the most frequent answer" in ask(shop, figure="value")[1]


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"epsilon": "0.61"}, 400, "from 0.01 to 0.6"),
        ({"epsilon": "much"}, 400, "The price is a number of nats"),
        ({"cell": "platform=linux"}, 409, "linux is published"),
        ({"cell": "<b>"}, 400, "no segment"),
        ({"period": "2020"}, 400, "2020"),
        ({"figure": "mean"}, 400, "ask for count"),
        ({"token": "guessed"}, 400, "open for too long"),
        ({"token": ""}, 400, "open for too long"),
    ],
)
def test_what_cannot_be_answered_is_said_above_the_form(closed, visit, fields, status, words):  # noqa: F811
    """A page says why, as the API does, and nothing is paid; a form that is not ours spends nothing."""
    seen, html = ask(visit(), **fields)
    assert (seen, words in html) == (status, True), html
    assert "<b>" not in html.replace("<b>Trial</b>", "")
    assert closed.get(BUDGET).get_json()["months"] == []


def test_no_address_spends(closed, visit):  # noqa: F811
    """To follow a link, of ours or of another page, asks nothing: only a form that is sent does."""
    shop = visit()
    assert shop.http.get(f"{ADDRESS}?cell=platform%3Dmacos&period={TODAY}").status_code == 200
    assert shop.http.get(f"{ADDRESS}?epsilon=0.5").status_code == 400
    assert closed.get(BUDGET).get_json()["months"] == []


def test_a_key_of_its_own_budget_has_it_on_pages(closed, visit):  # noqa: F811
    """What a key was made for holds there, too; a key without a budget has no form."""
    store = KeyStore(closed.store)
    shop = visit(store.create("read", "", 0.1)[0])
    assert ask(shop, epsilon="0.11")[0] == 400
    assert ask(shop, epsilon="0.1")[0] == 200
    html = shop.http.get("/budgets").get_data(as_text=True)
    assert "Your key may spend 0.1 nats on each month, and all keys together 1." in html
    assert [f"<td>{number}</td>" in html for number in ("0.1", "0", "0.9")] == [True] * 3
    assert "What each key has spent" not in html
    none = visit(store.create("read", "", 0)[0])
    assert "may ask no such question" in none.http.get(ADDRESS).get_data(as_text=True)
    assert "may ask no such question" in none.http.get("/budgets").get_data(as_text=True)


def test_a_server_that_answers_no_question_offers_no_budget(closed, visit, monkeypatch):  # noqa: F811
    """Its page says whom to ask."""
    monkeypatch.setattr("deniable_aggregator.questions.central_noise.find_spec", lambda _: None)
    html = visit(KeyStore(closed.store).create("read", "ann")[0]).http.get("/budgets").get_data(as_text=True)
    assert "Nothing can be spent here: this server answers no questions about withheld segments: ask its operator" in html
    assert "Your key may spend" not in html


def test_an_admin_sees_all_budgets(closed, visit):  # noqa: F811
    """The page names each key that has spent, also one that is not in the store."""
    text, key = KeyStore(closed.store).create("read", "Zoë <i>", 0.3)
    post(closed, key=text, epsilon=0.3)
    post(closed, "beos", epsilon=0.2)
    html = visit(KeyStore(closed.store).create("admin", "")[0]).http.get("/budgets").get_data(as_text=True)
    assert f"<code>{key.id}</code></th><td>Zoë &lt;i&gt;</td><td>{TODAY[:7]}</td><td>0.3</td>" in html
    assert "not in the store" in html
    assert "cannot be told apart" in html


def test_open_pages_have_no_budget(closed):  # noqa: F811
    """Where anybody may look, nobody may spend: there is no key to pay."""
    for answer in (closed.http.get("/budgets"), closed.http.get(ADDRESS), closed.http.post(ADDRESS, data={"epsilon": "0.1"})):
        assert (answer.status_code, "a budget is of a key" in answer.get_data(as_text=True)) == (403, True)
    assert f'href="{ADDRESS}"' not in closed.http.get("/m/export.used").get_data(as_text=True)
    assert closed.get(BUDGET).get_json()["months"] == []


def test_a_revoked_key_spends_nothing(closed, visit):  # noqa: F811
    """A session ends with its key."""
    text, key = KeyStore(closed.store).create("read", "")
    shop = visit(text)
    form = {"token": token(shop, ADDRESS), "cell": "platform=macos", "period": TODAY, "figure": "count", "epsilon": "0.25"}
    KeyStore(closed.store).revoke(key.id)
    shop.service.ring._read.clear()
    assert shop.http.post(ADDRESS, data=form).status_code == 303
    assert closed.get(BUDGET).get_json()["months"] == []


def test_a_question_on_a_page_is_logged(closed, visit):  # noqa: F811
    """The entry has what the API's has, and that a page details."""
    shop = visit()
    ask(shop)
    entry = intact_entry(closed.store._client.lrange("{shop}:audit", -1, -1)[0])
    details = {"question": "withheld", "among": "platform=macos", "figure": "count", "epsilon": "0.25", "spent": "0.25"}
    assert entry.details == {"by": "page", "metric": "export.used", "period": TODAY} | details
    shop.http.get("/budgets")
    entry = intact_entry(closed.store._client.lrange("{shop}:audit", -1, -1)[0])
    assert entry.details == {"by": "page", "question": "budgets"}
