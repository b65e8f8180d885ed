"""What the list of metrics says of each."""

from __future__ import annotations

import re

from registries import metric_toml, registry_toml

from .test_rows import day, send

TOOLS = registry_toml(
    metric_toml("tools", type="set", values=["pen", "brush", "knife"], epsilon=4, description="Which tools"),
    publication={"min_reports": 50, "early": False, "grace": "30d"},
)


def test_leaders_have_the_interval_of_the_metrics_page(serve):
    """By the intervals of all values together; their estimates alone would look like an interval."""
    server = serve(TOOLS)
    send(server, "tools", [["pen"]] * 300 + [["brush"]] * 300, day(3))
    server.drain(days=40)
    sentence = re.search(r"options: ([\d.]+ to [\d.]+% each)", server.http.get("/m/tools").get_data(as_text=True))
    assert sentence
    assert f"lead, {sentence[1]}" in server.http.get("/").get_data(as_text=True)
