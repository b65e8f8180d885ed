"""Questions about withheld cells over HTTP: answered with noise, paid for, refused when the budget is spent, and logged."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import takewhile

import numpy as np
import pytest
import redis
from fillings import once
from scipy.stats import chisquare

from deniable.registry import period
from deniable_aggregator.audit.entry import intact_entry
from deniable_aggregator.deletion.erase import Removal
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.store import connect
from deniable_server.access.keys import KeyStore, id_of

from .conftest import INGEST, READ
from .test_openapi import check

TODAY, BEFORE = (period.of(datetime.now(UTC) - timedelta(days=days), "day") for days in (0, 1))
WITHHELD, BUDGET = "/api/v1/metrics/export.used/withheld", "/api/v1/budgets"
ACTOR = f"key:{id_of(sha256(READ.encode()).digest())}"
COUNTS = {"linux": 300, "macos": 40, "beos": 80}  # macos and beos together are all but linux


@pytest.fixture
def few(serve, registry_file):
    """Serve a registry by which 100 reports are needed and keys may spend a nat, 0.6 each."""
    text = registry_file.read_text("utf-8").replace("min_reports = 1\ntrial = true", "min_reports = 100")
    text = text.replace('["linux", "macos"]', '["linux", "macos", "beos", "atari"]')
    return serve(f"analysts = {{ per_key = 0.6 }}\n{text}")


@pytest.fixture
def closed(few, store_url):
    """Count 420 reports of three platforms, 120 of which are withheld, and close the period."""

    def fill():
        count(few)
        few.drain(days=5)

    once("analysts", store_url, few.store._client, fill)
    assert few.get(f"/api/v1/metrics/export.used?period={TODAY}").get_json()["segments"] == ["platform=linux"]
    return few


def count(served, counts=COUNTS, day=TODAY):
    groups = [served.group("export.used", [1] * n, period=day, segment=f"platform={name}") for name, n in counts.items()]
    assert served.post({"format": 1, "app": "shop", "groups": groups}).status_code == 202
    served.drain()


def post(served, *names, key=READ, **body):
    query = {"period": TODAY, "epsilon": 0.1, "cells": [f"platform={name}" for name in names or ("macos",)]}
    return served.http.post(WITHHELD, json=query | body, headers={"Authorization": f"Bearer {key}"})


def refusal(answer):
    return answer.status_code, answer.get_json()["code"]


def another(served, epsilon=None):
    return KeyStore(served.store).create("read", "another", epsilon)[0]


def months(served, key=READ):
    """Return what a key is told of each month: its name, what it has spent, what is left of its own, and of the app's."""
    names = "month", "spent", "left", "left_of_app"
    return [tuple(each[name] for name in names) for each in served.get(BUDGET, key).get_json()["months"]]


def queries(served):
    results = [intact_entry(line) for line in served.store._client.lrange("{shop}:audit", 0, -1)]
    return [(each.event, each.actor, each.details) for each in results if each.event.startswith("query.")]


def forget(served):
    """Have the store forget what was answered and spent."""
    served.store._client.delete("{shop}:spent", "{shop}:answers:export.used")


# What is answered


def test_a_withheld_number_is_told_with_noise_and_its_error(closed):
    """The number of reports of a withheld cell is told near the truth, with what it cost, what is left and what it guarantees."""
    body = post(closed, epsilon=0.5).get_json()
    low, high = body["interval"]
    assert abs(body["count"] - 40) < 60
    assert (body["count"] - low, high - body["count"]) == (6, 6)
    assert body["stderr"] == pytest.approx(2.8, abs=0.1)
    assert (body["metric"], body["version"], body["cells"]) == ("export.used", 1, ["platform=macos"])
    assert body["period"] == {"first": None, "last": TODAY}
    assert (body["epsilon"], body["spent"], body["left"], body["level"]) == (0.5, 0.5, 0.1, 0.95)
    assert body["guarantee"].endswith(
        f"is at most e^0.5 times as likely as otherwise, all answers about {TODAY[:7]} together e^1 times."
    )


def test_the_withheld_cell_with_most_is_named(closed):
    """Of several withheld cells the one with many more reports is named, with how far behind it may be."""
    body = post(closed, "macos", "beos", "atari", epsilon=0.5).get_json()
    assert (body["most"], body["cells"]) == ("platform=beos", ["platform=atari", "platform=beos", "platform=macos"])
    assert body["margin"] == pytest.approx(16.38, abs=0.01)
    assert (body["spent"], body["left"]) == (0.5, 0.1)


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("name", "n"),
    [("macos", 40), *(pytest.param(*each, marks=pytest.mark.nightly) for each in (("beos", 80), ("atari", 0))), ("(other)", 0)],
)
def test_what_is_told_has_the_law_that_is_promised(closed, name, n):
    """What is told of a withheld number, drawn anew each time, is it plus discrete Laplace noise; of an empty cell, too."""
    epsilon, times = 0.6, 500
    draws = []
    for _ in range(times):
        draws.append(post(closed, name, epsilon=epsilon).get_json()["count"] - n)
        forget(closed)
    places = np.arange(-400, 401)
    law = np.exp(-abs(places) * epsilon)
    expected, seen = law / law.sum() * times, np.bincount(np.array(draws) + 400, minlength=801)
    common = expected >= 5
    seen, expected = (np.append(each[common], each[~common].sum()) for each in (seen, expected))
    assert chisquare(seen, expected).pvalue > 1e-7


@pytest.mark.parametrize("cells", [["platform=linux"], [""], ["platform=macos", "platform=linux"]])
def test_a_published_number_is_not_for_sale(closed, cells):
    """Whoever asks for a published cell, alone or among others, is told where its exact number is, and pays nothing."""
    answer = post(closed, cells=cells)
    assert refusal(answer) == (409, "published")
    assert "GET /api/v1/metrics/export.used with this period and segment" in answer.get_json()["detail"]


def test_in_a_trial_nothing_can_be_asked(serve, registry_file):
    """Nothing is withheld, so no budget is offered."""
    trial = serve(registry_file.read_text("utf-8"))
    assert trial.get(BUDGET).get_json()["reason"] == "nothing is withheld in a trial, so there is nothing to ask"


def test_budgets_that_can_be_spent_have_no_reason(closed):
    check("Budgets", closed.get(BUDGET).get_json())
    assert closed.get(BUDGET).get_json()["reason"] is None


def test_cells_withheld_to_protect_others_are_for_sale(few):
    """Of two cells that make up a published total each can be asked for, and both answers are paid for: each tells of both."""
    count(few, {"linux": 300, "macos": 40})
    few.drain(days=5)
    assert few.get(f"/api/v1/metrics/export.used?period={TODAY}").get_json()["segments"] == []
    assert abs(post(few, "linux", epsilon=0.3).get_json()["count"] - 300) < 60
    assert post(few, "macos", epsilon=0.3).get_json()["left"] == 0
    assert refusal(post(few, "linux", "macos", epsilon=0.01)) == (403, "budget_spent")


# What it costs


def test_the_same_question_again_is_the_same_answer(closed):
    """In whichever spelling and by whichever key: cells in any order or twice, epsilon to a millionth, rounded up."""
    key = another(closed)
    first = [post(closed, epsilon=0.01).get_json(), post(closed, "macos", "beos", epsilon=0.02).get_json()]
    for asking, left in ((READ, 0.57), (key, 0.6)):
        again = [
            post(closed, "macos", "macos", key=asking, epsilon=0.00999999999 + 1e-11).get_json(),
            post(closed, "beos", "macos", "beos", key=asking, epsilon=0.01999999999).get_json(),
        ]
        assert [each["spent"] for each in again] == [0, 0]
        assert {each["left"] for each in again} == {left}
        assert [again[0]["count"], again[1]["most"]] == [first[0]["count"], first[1]["most"]]


def test_two_names_of_one_cell_are_one_question(serve, registry_file):
    """A word that only one value generalises to is asked about as that value."""
    text = registry_file.read_text("utf-8").replace("min_reports = 1\ntrial = true", "min_reports = 100")
    served = serve(f'generalize = {{ platform = {{ macos = "apple", linux = "free" }} }}\n{text}')
    count(served, {"linux": 300, "macos": 40})
    served.drain(days=5)
    first = post(served, "macos").get_json()
    again = post(served, "apple").get_json()
    assert (again["count"], again["spent"], again["cells"]) == (first["count"], 0, ["platform=apple"])
    assert "count" in post(served, "apple", "macos").get_json()  # one cell, not two


def test_what_is_spent_is_refused(closed):
    """Above a key's part a question is refused with what is left, to the millionth, also about a disjoint cell."""
    assert post(closed, "macos", epsilon=0.4).status_code == 200
    answer = post(closed, "beos", epsilon=0.3)
    assert refusal(answer) == (403, "budget_spent")
    assert answer.get_json()["left"] == 0.2
    output = f"this costs 0.3 nats; for {TODAY[:7]} this key has 0.2 left, and all keys together 0.6"
    assert answer.get_json()["detail"] == output
    assert "Retry-After" not in answer.headers
    assert post(closed, "beos", epsilon=0.200001).status_code == 403
    assert post(closed, "beos", epsilon=0.2).get_json()["left"] == 0


def test_keys_together_spend_what_the_app_has(closed):
    """Keys that ask about the cells of a total in turns have the app's budget together, and no more, however many they are."""
    keys = [another(closed) for _ in range(4)]
    answers = [post(closed, "macos", key=key, epsilon=0.4 + step / 1000) for step, key in enumerate(keys)]
    assert [answer.status_code for answer in answers] == [200, 200, 403, 403]
    assert answers[2].get_json()["left"] == 0.199
    assert answers[2].get_json()["detail"].endswith("this key has 0.6 left, and all keys together 0.199")
    assert post(closed, "beos", key=keys[3], epsilon=0.199).get_json()["left"] == 0
    assert {post(closed, "beos", key=key, epsilon=0.01).status_code for key in (*keys, another(closed))} == {403}


def test_the_budget_is_told(closed):
    """A key is told what it may still spend on each month; what other keys spent counts where it leaves less."""
    about = {"app": "shop", "trial": False, "epsilon": 1.0, "per_key": 0.6, "own": 0.6, "keys": None, "reason": None}
    assert closed.get(BUDGET).get_json() == about | {"months": []}
    key = another(closed)
    post(closed, "macos", epsilon=0.25)
    assert months(closed) == [(TODAY[:7], 0.25, 0.35, 0.75)]
    assert months(closed, key) == [(TODAY[:7], 0, 0.6, 0.75)]
    post(closed, "beos", key=another(closed), epsilon=0.5)
    assert months(closed, key) == [(TODAY[:7], 0, 0.25, 0.25)]


# A budget of one key


def test_a_key_has_a_budget_of_its_own(closed):
    """A key that was made for less is refused beyond it, to the millionth, and what it spends counts for the app as well."""
    lower = another(closed, 0.1)
    assert closed.get(BUDGET, lower).get_json()["own"] == 0.1
    answer = post(closed, key=lower, epsilon=0.100001)
    assert refusal(answer) == (400, "epsilon")
    assert "from 0.01 to 0.1, the budget of this key for a month" in answer.get_json()["detail"]
    assert post(closed, key=lower, epsilon=0.04).get_json()["left"] == 0.06
    assert refusal(post(closed, "beos", key=lower, epsilon=0.060001)) == (403, "budget_spent")
    assert post(closed, "beos", key=lower, epsilon=0.06).get_json()["left"] == 0
    assert months(closed, lower) == [(TODAY[:7], 0.1, 0, 0.9)]
    assert months(closed) == [(TODAY[:7], 0, 0.6, 0.9)]


@pytest.mark.parametrize("epsilon", [0.9, 20])
def test_a_key_never_raises_what_the_registry_gives(closed, epsilon):
    """A key that was made for more than the registry gives each key has what the registry gives."""
    higher = another(closed, epsilon)
    assert closed.get(BUDGET, higher).get_json()["own"] == 0.6
    assert refusal(post(closed, key=higher, epsilon=0.61)) == (400, "epsilon")


def test_a_key_may_ask_nothing(closed):
    """A key that was made for 0 reads what is published, and asks no such question."""
    none = another(closed, 0)
    answer = post(closed, key=none, epsilon=0.01)
    assert (refusal(answer), "this key allows no questions" in answer.get_json()["detail"]) == ((400, "epsilon"), True)
    assert closed.get("/api/v1/metrics", none).status_code == 200


def test_who_has_two_keys_has_two_budgets_and_the_apps_holds(closed):
    """Keys of one person are like those of two: each has its own budget, also a new one; only the app's bounds both."""
    store = KeyStore(closed.store)
    spent = 0
    for step in range(12):  # a key is revoked, and another one made, again and again
        text, key = store.create("read", "the same analyst", 0.2)
        spent += post(closed, key=text, epsilon=0.2 - step / 1000).status_code == 200
        store.revoke(key.id)
    assert spent == 5
    (month,) = months(closed)
    assert month[3] == pytest.approx(1 - sum(0.2 - step / 1000 for step in range(5)))
    colluding = [store.create("read", "two", 0.6)[0] for _ in range(2)]
    answers = [post(closed, "beos", key=text, epsilon=0.02 + step / 1000).status_code for step, text in enumerate(colluding)]
    assert answers == [403, 403]


def test_an_admin_sees_what_each_key_has_spent(closed):
    """An admin key lists what each key has spent, also one that is revoked; a read key sees its own, and what is left of all."""
    store = KeyStore(closed.store)
    text, key = store.create("read", "one", 0.3)
    admin, _ = store.create("admin", "", 0.2)
    post(closed, key=text, epsilon=0.3)
    post(closed, "beos", key=admin, epsilon=0.1)
    store.revoke(key.id)
    answer = closed.get(BUDGET, admin).get_json()
    check("Budgets", answer)
    listed = {each["id"]: each["spent"] for each in answer["keys"]}
    assert listed == {key.id: 0.3, id_of(sha256(admin.encode()).digest()): 0.1}
    assert (answer["own"], answer["months"][0]["left"]) == (0.2, 0.1)
    assert closed.get(BUDGET).get_json()["keys"] is None


# What an attacker tries


def test_a_refused_question_reads_nothing_that_is_withheld(closed, store_url):
    """Neither what a refusal says nor how long it takes depends on withheld numbers: the store is not asked for them."""
    key = another(closed)

    def commands(*questions):
        with connect(store_url) as client, client.monitor() as monitor:
            statuses = [post(closed, *names, **body).status_code for names, body in questions]
            closed.store._client.echo("over")
            seen = list(takewhile(lambda command: command != "ECHO over", (each["command"] for each in monitor.listen())))
        return statuses, [command for command in seen if ":tally" in command or ":tallies" in command], seen

    first = ("macos",), {"epsilon": 0.6}
    assert commands(first)[1]
    statuses, read, seen = commands((("beos",), {}), (("linux",), {}), (("macos",), {"epsilon": 2}), first)
    assert statuses == [403, 409, 400, 200]  # the last one was answered before
    assert seen
    assert read == []
    assert commands((("beos",), {"key": key}))[1]


def test_what_is_not_closed_is_not_asked_about(few):
    """A period that is open, or waits since too few reports came, is refused in the words for a period without any."""
    refused = [post(few), post(few, period=BEFORE)]
    count(few, {"macos": 40}, BEFORE)
    count(few, {"beos": 500})
    refused += [post(few), post(few, period=BEFORE)]
    begun = period.bounds(TODAY, "day")[0].timestamp()
    Publisher(few.store, few.app.registry).publish(begun + 2.2 * 86_400)  # BEFORE is over by then, TODAY is not
    refused += [post(few, period=BEFORE)]
    page = {answer.get_data(as_text=True).partition('"instance"')[0] for answer in refused}
    assert (len(page), refusal(refused[0])) == (1, (404, "nothing_published"))
    assert few.get(BUDGET).get_json()["months"] == []


def test_an_open_trial_is_not_asked_about(served):
    """What a trial shows of an open period still grows: questions are about what is closed."""
    count(served, {"linux": 30})
    query = {"cells": ["platform=macos"], "epsilon": 0.1}
    assert served.get(f"/api/v1/metrics/export.used?period={TODAY}").get_json()["n"] == 30
    assert refusal(post(served, **query)) == (404, "nothing_published")
    served.drain(days=5)
    assert post(served, **query).status_code == 200


def test_joined_periods_are_asked_about_as_one(few):
    """Of a day that was published with the next one nothing can be asked by itself: both names are the same question."""
    count(few, {"linux": 20, "macos": 25}, BEFORE)
    count(few)
    few.drain(days=5)
    first, again = (post(few, epsilon=0.5, period=day).get_json() for day in (BEFORE, TODAY))
    assert (again["count"], again["spent"]) == (first["count"], 0)
    assert first["period"] == again["period"] == {"first": None, "last": TODAY}
    assert abs(first["count"] - 65) < 60


def test_a_closed_release_publishes_no_withheld_cell_later(closed, registry_file):
    """What was withheld stays so, whatever min_reports becomes: no answer is ever compared with its exact number."""
    path = registry_file.with_name("another.toml")
    path.write_text(path.read_text("utf-8").replace("min_reports = 100", "min_reports = 2"), "utf-8")
    changed = closed.restarted()
    changed.drain(days=9)
    assert refusal(changed.get(f"/api/v1/metrics/export.used?period={TODAY}&segment=platform%3Dmacos")) == (403, "withheld")
    assert post(changed).status_code == 200
    changed.store._client.close()


def test_erasing_brings_nothing_back(closed):
    """Who has a metric erased and counted anew gets new answers, for what is left."""
    post(closed, epsilon=0.5)
    Removal(closed.store, "export.used").sweep()
    assert not closed.store._client.exists("{shop}:answers:export.used")
    count(closed)
    closed.drain(days=5)
    assert refusal(post(closed, epsilon=0.5)) == (403, "budget_spent")


def test_numbers_that_are_gone_are_not_made_up(closed):
    """When exact numbers are gone, also in part, what was answered is answered again, and nothing else is, nor paid."""
    first = post(closed).get_json()
    for stratum in closed.store.strata("export.used"):
        if stratum.segment == "platform=beos":
            closed.store._client.delete(closed.store.partitions[0].tallies.key("|".join(map(str, stratum))))
    again = post(closed).get_json()
    assert (again["count"], again["spent"]) == (first["count"], 0)
    assert refusal(post(closed, epsilon=0.2)) == (404, "not_kept")
    assert refusal(post(closed, "macos", "beos")) == (404, "not_kept")
    assert months(closed) == [(TODAY[:7], 0.1, 0.5, 0.9)]


# What is no question


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"epsilon": 0.61}, (400, "epsilon")),
        ({"epsilon": 0.001}, (400, "epsilon")),
        ({"epsilon": -1}, (400, "epsilon")),
        ({"epsilon": 1e308}, (400, "epsilon")),
        ({"epsilon": "0.1"}, (400, "question_shape")),
        ({"epsilon": True}, (400, "question_shape")),
        ({"more": 1}, (400, "question_shape")),
        ({"period": None}, (400, "question_shape")),
        ({"cells": "platform=macos"}, (400, "question_shape")),
        ({"figure": "median"}, (400, "figure")),
        ({"figure": "sum"}, (400, "figure")),
        ({"figure": 1}, (400, "question_shape")),
        ({"figure": "value", "cells": ["platform=macos", "platform=beos"]}, (400, "figure")),
        ({"cells": []}, (400, "cells")),
        ({"cells": ["platform=beos "]}, (400, "segment")),
        ({"cells": ["platform=macos", "planet=earth"]}, (400, "segment")),
        ({"period": "2020-01"}, (400, "period")),
        ({"period": f"{TODAY}x"}, (400, "period")),
    ],
)
def test_bad_questions_are_refused_and_cost_nothing(closed, body, expected):
    """Each kind of bad question has its own status and code, and leaves nothing among answers and spends."""
    answer = post(closed, **body)
    assert refusal(answer) == expected
    assert answer.mimetype == "application/problem+json"
    assert not [*closed.store._client.scan_iter("*:spent*"), *closed.store._client.scan_iter("*:answers:*")]


@pytest.mark.parametrize(
    ("key", "sent", "media", "expected"),
    [
        (None, b"{}", "application/json", (401, "missing_key")),
        (INGEST, b"{}", "application/json", (401, "unknown_key")),
        (READ, b"{}", "text/plain", (415, "media_type")),
        (READ, b"{", "application/json", (400, "json")),
        (READ, b'{"period": "\xff"}', "application/json", (400, "json")),
        (READ, b"[]", "application/json", (400, "question_shape")),
    ],
)
def test_what_is_no_question_is_refused(served, key, sent, media, expected):
    """Without a key, or with a body that is no question in JSON, nothing is answered."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    assert refusal(served.http.post(WITHHELD, data=sent, content_type=media, headers=headers)) == expected


def test_metrics_without_anything_withheld(closed):
    """A metric without segments has only its total, which is published, and an unknown metric has nothing."""
    closed.post({"format": 1, "app": "shop", "groups": [closed.group("ui.theme", [0] * 150, period=TODAY)]})
    closed.drain()
    closed.drain(days=5)
    headers, query = {"Authorization": f"Bearer {READ}"}, {"period": TODAY, "cells": [""], "epsilon": 0.1}
    for metric, expected in (("ui.theme", (409, "published")), ("ui.color", (404, "unknown_metric"))):
        assert refusal(closed.http.post(f"/api/v1/metrics/{metric}/withheld", json=query, headers=headers)) == expected


def test_a_question_is_as_long_as_the_log_can_hold(serve, registry_file):
    """Cells of more than 1,000 characters together are refused: what is asked is in the audit log whole."""
    names = [f"os{number:03}" for number in range(100)]
    served = serve(registry_file.read_text("utf-8").replace('["linux", "macos"]', str(names).replace("'", '"')))
    assert refusal(post(served, *names)) == (400, "cells")
    assert refusal(post(served, *names[:50])) == (404, "nothing_published")


def test_questions_count_for_the_limits(closed):
    """They are requests with a key like others, such as the one that was made before."""
    limited = type(closed)(replace(closed.service.settings, rate_limit_key="3/minute"))
    assert [post(limited).status_code for _ in range(3)] == [200, 200, 429]
    limited.store._client.close()


def test_answers_have_the_shape_they_are_said_to_have(closed):
    """Numbers, choices and budgets are what the document describes, before and after questions."""
    for _ in range(2):
        check("Budgets", closed.get(BUDGET).get_json())
        check("Answered", post(closed).get_json())
        check("Answered", post(closed, "macos", "beos").get_json())


@pytest.mark.parametrize("analysts", ["{ epsilon = 0 }", "{ per_key = 0 }"])
def test_a_registry_may_allow_no_questions(serve, registry_file, analysts):
    """With a budget of 0 nothing is answered."""
    served = serve(f"analysts = {analysts}\n{registry_file.read_text('utf-8')}")
    answer = post(served, epsilon=0.01)
    assert (refusal(answer), "allows no questions" in answer.get_json()["detail"]) == ((400, "epsilon"), True)


def test_questions_are_logged(closed):
    """What was asked, by whom, and what it cost is in the audit log, also where the budget was spent; never the number."""
    for _ in range(2):
        post(closed, epsilon=0.25)
    post(closed, "macos", "beos", epsilon=0.4)
    post(closed, "linux")
    post(closed, "secret")
    post(closed, period="secret")
    post(closed, secret="secret")
    closed.get(BUDGET)
    metric = {"by": "api", "metric": "export.used"}
    query = metric | {"question": "withheld", "period": TODAY}
    number = query | {"among": "platform=macos", "epsilon": "0.25", "figure": "count"}
    answer = query | {"among": "platform=beos or platform=macos", "epsilon": "0.4", "figure": "count", "problem": "budget_spent"}
    secret = metric | {
        "question": "withheld",
        "among": "platform=macos",
        "epsilon": "0.1",
        "figure": "count",
        "problem": "period",
    }
    assert queries(closed)[1:] == [
        ("query.answered", ACTOR, number | {"spent": "0.25"}),
        ("query.answered", ACTOR, number | {"spent": "0"}),
        ("query.refused", ACTOR, answer),
        (
            "query.refused",
            ACTOR,
            query | {"among": "platform=linux", "epsilon": "0.1", "figure": "count", "problem": "published"},
        ),
        ("query.refused", ACTOR, query | {"problem": "segment"}),
        ("query.refused", ACTOR, secret),
        ("query.refused", ACTOR, metric | {"problem": "question_shape"}),
    ]


def test_an_answer_that_cannot_be_logged_is_not_given_and_not_lost(closed, monkeypatch):
    """Where the audit log cannot be written the answer is 503; asked again it is the one that was paid for."""
    audit = type(closed.app.audit)

    def away(*_, **__):
        raise redis.ConnectionError

    with monkeypatch.context() as patched:
        patched.setattr(audit, "append", away)
        assert post(closed).status_code == 503
    (stored,) = closed.store._client.hvals("{shop}:answers:export.used")
    again = post(closed).get_json()
    assert (again["count"], again["spent"]) == (int(stored.split()[0]), 0)


def test_without_opendp_no_question_is_answered(closed, monkeypatch):
    """A server that was installed without what draws the noise says so, and nothing is paid."""
    from deniable_aggregator.questions import central_noise

    monkeypatch.setattr(central_noise, "find_spec", lambda _: None)
    assert refusal(post(closed, epsilon=0.1)) == (501, "no_questions")
    budgets = closed.get(BUDGET).get_json()
    reason = "this server answers no questions about withheld segments: ask its operator to install 'deniable[questions]'"
    assert (budgets["months"], budgets["reason"]) == ([], reason)
    assert closed.get(BUDGET).get_json()["months"] == []
