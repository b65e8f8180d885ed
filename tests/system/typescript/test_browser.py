"""The client in a real browser: consent, tabs, closing, what is forgotten or refused, being offline, and a strict page."""

from __future__ import annotations

import pytest
from waiting import new_profile
from webpage import age, databases, record, stats, until, visit


def test_a_strict_page_reports_and_breaks_no_policy(site, context):
    """From a yes to a report, with a policy that forbids all but the page's own scripts and server."""
    page = visit(context, site)
    assert record(page)
    assert page.evaluate("telemetry.flush()") == {"sent": 1, "left": 0, "why": ""}
    assert [report.metric for report in site.stub.reports] == ["theme"]
    assert page.evaluate("telemetry.sent().then((each) => each.length)") == 1
    assert page.evaluate("faults") == []


def test_without_a_yes_nothing_is_stored_or_sent(site, context):
    """Also not where the browser says no by itself."""
    page = visit(context, site, "?consent=no")
    assert not record(page)
    assert page.evaluate("telemetry.flush()") == {"sent": 0, "left": 0, "why": "no_consent"}
    assert (databases(page), stats(page)["dropped"]) == ([], {"no_consent": 1})
    context.add_init_script("Object.defineProperty(Navigator.prototype, 'globalPrivacyControl', { get: () => true })")
    page = visit(context, site)
    assert not record(page)
    assert (databases(page), stats(page)["disabled"]) == ([], "globalPrivacyControl is set")
    assert site.stub.attempts == []


def test_two_tabs_share_a_budget_and_send_once(site, context):
    """Of three reports of the period each is made once, whichever tab asks, and one batch has all of them."""
    first, second = visit(context, site), visit(context, site)
    assert record(first)
    age(first, 30)
    both = "Promise.all([1, 2, 3].map(() => telemetry.record('theme', 'dark')))"
    outcomes = first.evaluate(both) + second.evaluate(both)
    assert sum(outcomes) == 2
    for page in (first, second, first):
        page.evaluate("telemetry.flush()")
    assert len(site.stub.reports) == 3
    assert first.evaluate("telemetry.waiting()") == second.evaluate("telemetry.waiting()") == 0


@pytest.mark.parametrize("leave", ["close", "navigate"])
def test_a_page_that_is_left_sends_what_it_has(site, context, leave):
    """Nothing is lost and nothing counts twice: what has not arrived waits for the next page, under the same key."""
    for _ in range(3):
        profile = new_profile(context.browser)
        page = visit(profile, site)
        assert record(page)
        if leave == "close":
            page.close(run_before_unload=True)
        else:
            page.goto(f"{site.url}/other")
        site.stub.wait(len(site.stub.reports) + 1, 2.0)
        again = visit(profile, site)
        again.evaluate("telemetry.flush()")
        assert again.evaluate("telemetry.waiting()") == 0
        profile.close()
    assert len(site.stub.reports) == 3


def test_a_browser_that_forgets_earns_its_budget(site, context):
    """A metric that keeps responses is not asked of a new state, and again not after the data are cleared."""
    page = visit(context, site)
    assert not record(page, "habit", "a")
    assert record(page)
    age(page, 30)
    assert record(page, "habit", "a")
    page.evaluate("telemetry.close()")
    devtools = context.new_cdp_session(page)
    devtools.send("Storage.clearDataForOrigin", {"origin": site.url, "storageTypes": "all"})
    page = visit(context, site)
    assert not record(page, "habit", "a")
    assert stats(page)["dropped"] == {"budget": 1}
    assert "it starts anew" in " ".join(page.evaluate("telemetry.explain('habit').then((each) => each.shared)"))


def test_where_storage_is_refused_nothing_is_recorded(site, context):
    """As in a frame of no origin; and the page never sees an error."""
    page = context.new_page()
    page.goto(f"{site.url}/frame")
    frame = page.frames[1]
    until(frame, "window.telemetry !== undefined")
    assert frame.evaluate("telemetry.record('theme', 'dark')") is False
    assert set(frame.evaluate("telemetry.stats()")["dropped"]) <= {"state", "disabled"}
    assert frame.evaluate("telemetry.flush()")["sent"] == 0
    assert frame.evaluate("faults") == []


def test_what_could_not_be_sent_arrives_later_under_the_same_key(site, context):
    """Blocked by an extension, and then offline: four tries, no other way, and one report when the way is free."""
    page = visit(context, site)
    keys = []
    page.route("**/v1/reports", lambda route: (keys.append(route.request.headers["idempotency-key"]), route.abort()))
    assert record(page)
    assert page.evaluate("telemetry.flush()") == {"sent": 0, "left": 1, "why": "no_answer"}
    page.unroute("**/v1/reports")
    context.set_offline(True)
    assert page.evaluate("telemetry.flush()") == {"sent": 0, "left": 1, "why": "no_answer"}
    context.set_offline(False)
    page = visit(context, site)
    assert page.evaluate("telemetry.flush()") == {"sent": 1, "left": 0, "why": ""}
    assert (len(keys), {*keys}) == (4, {site.stub.attempts[0].key})
    assert len(site.stub.reports) == 1


def test_a_withdrawal_deletes_what_is_unsent(site, context):
    """What was spent stays, so that another yes costs nothing again."""
    page = visit(context, site)
    assert record(page)
    page.evaluate("agree(false); telemetry.setConsent(() => false)")
    page.evaluate("telemetry.setConsent(true)")
    assert page.evaluate("telemetry.flush()") == {"sent": 0, "left": 0, "why": ""}
    assert site.stub.attempts == []
    assert not record(page)
