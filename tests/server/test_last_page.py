"""Pages that end with the last row, and with the last metric: they name no next one."""

from __future__ import annotations

from .conftest import READ


def test_a_full_last_page_names_no_next_one(served):
    assert served.post({"format": 1, "app": "shop", "groups": [served.group("ui.theme", [0] * 20 + [1] * 20)]}).status_code == 202
    served.drain()

    def next_of(**page):
        query = {"metrics": ["ui.theme"], "pagination": page}
        body = served.http.post("/api/v1/query", json=query, headers={"Authorization": f"Bearer {READ}"}).get_json()
        assert body["total"] == 3
        return body["next"]

    assert [next_of(limit=limit) for limit in (2, 3, 4)] == [2, None, None]
    assert next_of(limit=1, offset=2) is None


def test_a_full_last_page_of_metrics_names_no_next_one(served):
    metrics = served.get("/api/v1/metrics").get_json()["metrics"]
    for limit, next_ in ((len(metrics), None), (len(metrics) - 1, metrics[-2]["id"])):
        assert served.get(f"/api/v1/metrics?limit={limit}").get_json()["next"] == next_
    last = served.get(f"/api/v1/metrics?limit=1&after={metrics[-2]['id']}").get_json()
    assert ([each["id"] for each in last["metrics"]], last["next"]) == ([metrics[-1]["id"]], None)
