"""`deniable simulate --send`: people answer into the trial of a running `deniable serve`, and estimates hold the truth."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections import defaultdict

import requests
from test_serve import serving

PEOPLE, DAYS, LEVEL = 1600, 30, 0.999  # so many that several processes make their reports
REGISTRY = """
format = 1
app = "shop"
[publication]
trial = true
[budget]
per_month = 60.0
lifetime = 600.0
[segments]
platform = ["linux", "windows"]
arm = ["control", "large"]
[experiments]
arm = { base = "control", planned = 0.2 }
[metrics."ui.theme"]
type = "categorical"
values = ["light", "dark", "system"]
epsilon = 2.0
epsilon_permanent = 4.0
period = "day"
segments = ["platform"]
description = "d"
owner = "o"
[metrics."export.used"]
type = "boolean"
epsilon = 1.0
period = "day"
segments = ["arm"]
description = "d"
owner = "o"
[metrics."save.ms"]
type = "number"
range = [0, 1000]
unit = "ms"
estimate = "mean"
epsilon = 2.0
period = "week"
description = "d"
owner = "o"
[metrics.plugins]
type = "set"
values = ["a", "b", "c"]
epsilon = 2.0
period = "month"
description = "d"
owner = "o"
"""


def deniable(*arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DENIABLE_")}
    command = [sys.executable, "-m", "deniable", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


def test_estimates_hold_what_simulated_people_answered(tmp_path):
    """Every report is counted in its period and segment, intervals hold the truth, and nobody is sent twice."""
    registry, data, truths = tmp_path / "metrics.toml", tmp_path / "data", tmp_path / "truth.csv"
    registry.write_text(REGISTRY, "utf-8")
    with serving(registry, data) as (_, key, url):
        send = ["simulate", registry, "--send", "--devices", PEOPLE, "--days", DAYS, "--seed", 1, "--data", data]
        sent = deniable(*send, "--truth", truths, "--json")
        assert sent.returncode == 0, sent.stderr
        outcome = json.loads(sent.stdout)
        again = deniable(*send)
        page = requests.get(f"{url}/login", timeout=300)

        def ask(path):
            answer = requests.get(f"{url}/api/v1/metrics/{path}", headers={"Authorization": f"Bearer {key}"}, timeout=300)
            assert answer.status_code == 200, answer.text
            return answer.json()

        with truths.open(encoding="utf-8", newline="") as file:
            figures = list(csv.DictReader(file))
        people = {(each["metric"], each["period"], each["segment"]): int(each["people"]) for each in figures}
        truth = defaultdict(dict)
        for row in figures:
            truth[row["metric"], row["period"], row["segment"]][row["value"]] = float(row["truth"])
        assert len(truth) == DAYS * (3 + 3) + len({p for m, p, _ in people if m in ("save.ms", "plugins")})
        outside = []
        for (metric, period, segment), figures in truth.items():
            answer = ask(f"{metric}?period={period}&segment={segment}&level={LEVEL}")
            assert answer["n"] == people[metric, period, segment]
            intervals = {row["label"]: row["simultaneous"] for row in answer["estimates"]}
            if answer["number"]:
                intervals["mean"] = answer["number"]["interval"]
            outside += [
                (metric, period, segment, name)
                for name, share in figures.items()
                if not intervals[name][0] <= share <= intervals[name][1]
            ]
        assert len(outside) <= 2, outside  # of some 200 cells, at 0.999 for the answers of each together
        total = sum(n for (_, _, segment), n in people.items() if not segment)
        assert outcome["reports"] == total
        assert {each["metric"] for each in outcome["rows"]} == {"ui.theme", "export.used", "save.ms", "plugins"}
        assert all(each["inside"] for each in outcome["rows"])

        arms = ask("export.used/compare?a=arm=control&b=arm=large&level=0.95")
        (used,) = (each for each in arms["differences"] if each["value"] is True)
        assert used["interval"][0] > 0  # the arm's effect is as large as planned
        (theme,) = (line for line in ask("ui.theme/series")["lines"] if line["value"] == "dark")
        assert len([each for each in theme["points"] if each]) == DAYS
    assert again.returncode == 2
    assert "people were sent already" in again.stderr
    assert page.status_code == 200


def test_real_people_are_never_mixed_with_simulated_ones(tmp_path):
    """Nothing is sent into what is no trial; whoever serves real people with a store of a trial is warned."""
    registry, data = tmp_path / "metrics.toml", tmp_path / "data"
    registry.write_text(REGISTRY, "utf-8")
    with serving(registry, data):
        sent = deniable("simulate", registry, "--send", "--devices", 20, "--days", 2, "--data", data)
        assert sent.returncode == 0, sent.stderr
        assert "Look at:" in sent.stdout
    registry.write_text(REGISTRY.replace("trial = true", "trial = false"), "utf-8")
    with serving(registry, data):
        refused = deniable("simulate", registry, "--send", "--data", data)
        doctor = deniable("doctor", "--data", data)
    assert refused.returncode == 2
    assert "trial = true" in refused.stderr
    assert "simulated people" in doctor.stdout
    assert doctor.returncode != 0
    assert "results mix them with real people" in (tmp_path / "output").read_text("utf-8")
