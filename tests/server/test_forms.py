"""What pages answer to a form that was filled in wrongly: the page with the form, what was typed, and what to do."""

from __future__ import annotations

import re

import pytest

from .test_ranges import client  # noqa: F401 - a fixture


@pytest.mark.parametrize(
    ("path", "fields", "words"),
    [
        ("/m/wait?above=40&at_most=20", {"above": "40", "at_most": "20"}, "ends in the wrong order: write 20..40"),
        ("/m/wait?value=40..20", {"above": "40", "at_most": "20"}, "ends in the wrong order: write 20..40"),
        (
            "/m/used?from=2026-06-02&to=2026-05-01",
            {"from": "2026-06-02", "to": "2026-05-01"},
            "2026-06-02 is after 2026-05-01: write the earlier one first.",
        ),
        ("/m/used?range=soon", {}, "is no range"),
        ("/m/used?level=2", {}, "level is a confidence"),
        ("/m/used?period=2026-13", {}, "2026-13"),
        ("/m/used?segment=platform=amiga", {}, "write one of linux"),
        ("/m/used?value=perhaps", {}, "perhaps"),
        ("/m/used?level=2&from=2026-06-02&to=2026-05-01", {"from": "2026-06-02"}, "write the earlier one first."),
        ("/m/used/compare?a=2026-13&b=2026-14", {}, "2026-13"),
    ],
)
def test_a_form_that_was_filled_in_wrongly_comes_back_with_what_to_do(client, path, fields, words):  # noqa: F811
    response = client.get(path, follow_redirects=True)
    html = response.get_data(as_text=True)
    assert response.status_code == 400
    (notice,) = re.findall(r'<p class="notice" role="alert">([^<]*)</p>', html)
    assert words in notice
    for name, value in fields.items():
        assert re.search(f'name="{name}" value="{value}"', html), name
    assert "<form" in html.partition('class="controls"')[2]


def test_a_file_is_no_form(client):  # noqa: F811
    response = client.get("/m/used/values.csv?range=2026-06-02..2026-05-01")
    assert response.status_code == 400
    assert "notice" not in response.get_data(as_text=True)
