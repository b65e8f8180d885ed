"""Every rule of metrics.toml, broken once; all faults come at once."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import UTC, date, datetime, timedelta
from math import inf
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable import mechanisms
from deniable.declared import Declared
from deniable.errors import ParameterError, RegistryError
from deniable.registry import Metric, load, parse
from deniable.registry.answers.domain import MAX_VALUES
from deniable.registry.tables import Analysts, Budget, Caps, Experiment, Publication, Retention

ID_RULE = (
    "write an id as words of lower-case letters, digits and _, joined by dots or dashes; "
    "it begins with a letter and has at most 80 characters"
)
HEAD = 'format = 1\napp = "shop"\n[segments]\nplatform = ["linux", "macos"]\n'
SOUND = {
    "type": '"categorical"',
    "values": '["a", "b", "c"]',
    "epsilon": "1.0",
    "description": '"What"',
    "owner": '"me"',
}


def metric(id_: str = "m", /, **changes: str | None) -> str:
    """Write a sound metric with keys replaced, added or (None) left out."""
    lines = [f"{key} = {value}" for key, value in (SOUND | changes).items() if value is not None]
    return "\n".join([f'[metrics."{id_}"]', *lines, ""])


def number(**changes: str | None) -> str:
    """Write a sound number metric with keys replaced, added or (None) left out."""
    sound = {"type": '"number"', "values": None, "range": "[0, 100]", "unit": '"ms"', "estimate": '"mean"'}
    return metric(**(sound | changes))


LONG = "a" * 81
PAIR = '{ a = ["x", "y"], b = ["x", "y"] }'

FAULTS = [
    # the file
    ("format = [", "-", "format begins an array that has no end: write ] after its last value", None),
    ("app = shop", "-", "this is no valid TOML: Invalid value (at line 1, column 7); texts need quotes", None),
    ("a = True", "-", "this is no valid TOML: Invalid value (at line 1, column 5); write true in lower case", None),
    ("a = 2026-02-30", "-", "this is no valid TOML: Invalid date or datetime (at line 1, column 5); there is no such date", None),
    (HEAD.replace("format = 1", "format = 2") + metric(), "-", "format: write 1, which this version reads", 2),
    (HEAD.replace("format = 1", 'format = "1"') + metric(), "-", "format: write 1, which this version reads", "1"),
    (HEAD.replace("format = 1", "format = true") + metric(), "-", "format: write 1, which this version reads", True),
    (HEAD.replace("format = 1", "") + metric(), "-", "format: write 1, which this version reads", None),
    (HEAD.replace('app = "shop"', "") + metric(), "-", "app: write a lower-case name in quotes, such as 'shop'", None),
    (HEAD.replace('"shop"', '"Shop"') + metric(), "-", "app: write a lower-case name in quotes, such as 'shop'", "Shop"),
    (HEAD.replace('"shop"', '"aux"') + metric(), "-", "app: write another name; Windows has a device of this one", "aux"),
    (HEAD.replace('"shop"', '"com1.shop"') + metric(), "-", "app: write another name; Windows has a device of", "com1.shop"),
    (HEAD.replace('"shop"', "3") + metric(), "-", "app: write a lower-case name in quotes, such as 'shop'", 3),
    (HEAD.replace('"shop"', f'"{LONG}"') + metric(), "-", "app: write a lower-case name in quotes, such as 'shop'", LONG),
    (
        f"surprise = 1\n{HEAD}{metric()}",
        "-",
        "surprise is no key of a registry: write one of format, revision, app, ",
        "surprise",
    ),
    (f"metric = 1\n{HEAD}{metric()}", "-", "metric is no key of a registry: write metrics", "metric"),
    (HEAD, "-", 'metrics: declare at least one, as a table [metrics."ui.theme"]', None),
    (f"{HEAD}[metrics]\n", "-", 'metrics: declare at least one, as a table [metrics."ui.theme"]', {}),
    ('format = 1\napp = "shop"\nmetrics = 3\n', "-", 'metrics: declare at least one, as a table [metrics."ui.theme"]', 3),
    (f"revision = 0\n{HEAD}{metric()}", "-", "revision: write a whole number above 0, and raise it with every publication", 0),
    (
        f"revision = true\n{HEAD}{metric()}",
        "-",
        "revision: write a whole number above 0, and raise it with every publication",
        True,
    ),
    (
        f"revision = 1.5\n{HEAD}{metric()}",
        "-",
        "revision: write a whole number above 0, and raise it with every publication",
        1.5,
    ),
    (f"budget = 3\n{HEAD}{metric()}", "-", "budget: write a table such as { per_month = 8.0, lifetime = 480.0 }", 3),
    (f"budget = {{ month = 3 }}\n{HEAD}{metric()}", "-", "month is no key of [budget]: write per_month", "month"),
    (f"caps = {{ epsilon = 0 }}\n{HEAD}{metric()}", "-", "caps.epsilon: write a number of nats above 0 and at most 1,000,000", 0),
    (f"caps = {{ mechanisms = [3] }}\n{HEAD}{metric()}", "-", "caps.mechanisms: write a list of names, each in quotes", [3]),
    (
        f"caps = {{ budget = {{ per_month = 3 }} }}\n{HEAD}{metric()}",
        "-",
        "budget stands inside [caps]: move it above the first table, or write [budget]",
        "budget",
    ),
    (
        f"budget = {{ per_month = true }}\n{HEAD}{metric()}",
        "-",
        "budget.per_month: write a number of nats above 0 and at most 1,000,000",
        True,
    ),
    (
        f"budget = {{ lifetime = inf }}\n{HEAD}{metric()}",
        "-",
        "budget.lifetime: write a number of nats above 0 and at most 1,000,000",
        float("inf"),
    ),
    (f"budget = {{ lifetime = 9 }}\n{HEAD}{metric()}", "-", "budget.lifetime: write 32 or more, the nats of per_month", 9),
    (
        f'budget = {{ lifetime = "9" }}\n{HEAD}{metric()}',
        "-",
        "budget.lifetime: write a number of nats above 0 and at most 1,000,000",
        "9",
    ),
    (f"publication = 3\n{HEAD}{metric()}", "-", "publication: write a table such as { min_reports = 100, early = false }", 3),
    (
        f"publication = {{ least = 3 }}\n{HEAD}{metric()}",
        "-",
        "least is no key of [publication]: write one of min_reports, grace, early or trial",
        "least",
    ),
    (
        f'publication = {{ grace = "soon" }}\n{HEAD}{metric()}',
        "-",
        "publication.grace: write a number of hours or days in quotes, such as '12h' or '2d', and 30 days at most",
        "soon",
    ),
    (
        f'publication = {{ grace = "31d" }}\n{HEAD}{metric()}',
        "-",
        "publication.grace: write a number of hours or days in quotes, such as '12h' or '2d', and 30 days at most",
        "31d",
    ),
    (
        f"publication = {{ grace = 12 }}\n{HEAD}{metric()}",
        "-",
        "publication.grace: write a number of hours or days in quotes, such as '12h' or '2d', and 30 days at most",
        12,
    ),
    (
        f'{HEAD}{metric()}\ndelay = "soon"\n',
        "m",
        "delay: write a number of hours or days in quotes, such as '12h' or '2d', and 30 days at most",
        "soon",
    ),
    (
        f"{HEAD}{metric()}\ndelay = 12\n",
        "m",
        "delay: write a number of hours or days in quotes, such as '12h' or '2d', and 30 days at most",
        12,
    ),
    (
        f'{HEAD}{metric()}\ndelay = "31d"\n',
        "m",
        "delay: write a number of hours or days in quotes, such as '12h' or '2d', and 30 days at most",
        "31d",
    ),
    (
        f'{HEAD}{metric()}\ndelay = "48h"\n',
        "m",
        "delay: write grace = '49h' or more, so that a report that waits still comes in time",
        "48h",
    ),
    (
        f'{HEAD}{metric()}\ndelay = "12h"\ngrace = "12h"\n',
        "m",
        "delay: write grace = '13h' or more, so that a report that waits still comes in time",
        "12h",
    ),
    (
        f'publication = {{ grace = "6h" }}\n{HEAD}{metric()}\ndelay = "6h"\n',
        "m",
        "delay: write grace = '7h' or more, so that a report that waits still comes in time",
        "6h",
    ),
    (
        f"publication = {{ min_reports = 0 }}\n{HEAD}{metric()}",
        "-",
        "publication.min_reports: write a whole number of at least 1",
        0,
    ),
    (f"publication = {{ early = 1 }}\n{HEAD}{metric()}", "-", "publication.early: write true or false, without quotes", 1),
    (f"retention = 3\n{HEAD}{metric()}", "-", "retention: write a table such as { tallies = 30, releases = 1095 }", 3),
    (
        f"retention = {{ logs = 3 }}\n{HEAD}{metric()}",
        "-",
        "logs is no key of [retention]: write one of tallies, releases or alarms",
        "logs",
    ),
    (
        f"retention = {{ tallies = 0 }}\n{HEAD}{metric()}",
        "-",
        "retention.tallies: write a whole number of days from 1 to 36,500",
        0,
    ),
    (
        f"retention = {{ alarms = 36501 }}\n{HEAD}{metric()}",
        "-",
        "retention.alarms: write a whole number of days from 1 to 36,500",
        36501,
    ),
    (
        f"retention = {{ alarms = true }}\n{HEAD}{metric()}",
        "-",
        "retention.alarms: write a whole number of days from 1 to 36,500",
        True,
    ),
    (
        f"retention = {{ releases = 1.5 }}\n{HEAD}{metric()}",
        "-",
        "retention.releases: write a whole number of days from 1 to 36,500",
        1.5,
    ),
    (
        f"retention = {{ tallies = 20, releases = 19 }}\n{HEAD}{metric()}",
        "-",
        "retention.releases: write 20 or more, the days of tallies",
        19,
    ),
    (f"analysts = 3\n{HEAD}{metric()}", "-", "analysts: write a table such as { epsilon = 1.0, per_key = 0.5 }", 3),
    (
        f"analysts = {{ month = 3 }}\n{HEAD}{metric()}",
        "-",
        "month is no key of [analysts]: write one of epsilon or per_key",
        "month",
    ),
    (f"analysts = {{ epsilon = -1 }}\n{HEAD}{metric()}", "-", "analysts.epsilon: write a number of nats from 0 to 20", -1),
    (f"analysts = {{ epsilon = true }}\n{HEAD}{metric()}", "-", "analysts.epsilon: write a number of nats from 0 to 20", True),
    (f"analysts = {{ per_key = 20.5 }}\n{HEAD}{metric()}", "-", "analysts.per_key: write a number of nats from 0 to 20", 20.5),
    (
        f"analysts = {{ per_key = inf }}\n{HEAD}{metric()}",
        "-",
        "analysts.per_key: write a number of nats from 0 to 20",
        float("inf"),
    ),
    (
        f"experiments = 3\n{HEAD}{metric()}",
        "-",
        'experiments: write a table of segments, such as { arm = { base = "control", planned = 0.02 } }',
        3,
    ),
    (
        f'{HEAD}[experiments]\narm = {{ base = "a", planned = 0.1 }}\n{metric()}',
        "-",
        "experiments.arm: declare it under [segments], with two or more values, which are the arms",
        "arm",
    ),
    (
        f"{HEAD}[experiments]\nplatform = 3\n{metric()}",
        "-",
        'experiments.platform: write a table such as { base = "control", planned = 0.02 }',
        3,
    ),
    (
        f'{HEAD}[experiments]\nplatform = {{ base = "linux" }}\n{metric()}',
        "-",
        'experiments.platform.planned is missing: write all keys, such as { base = "control", planned = 0.02 }',
        None,
    ),
    (
        f'{HEAD}[experiments]\nplatform = {{ base = "beos", planned = 0.1 }}\n{metric()}',
        "-",
        "experiments.platform.base: write one of the arms, linux or macos",
        "beos",
    ),
    (
        f'{HEAD}[experiments]\nplatform = {{ base = "linux", planned = 0.1, split = {{ linux = 1 }} }}\n{metric()}',
        "-",
        "experiments.platform.split: write a number for each of the arms, linux, macos",
        ["linux"],
    ),
    (
        f'{HEAD}[experiments]\nplatform = {{ base = "linux", planned = 0.1, split = {{ linux = 0, macos = 1 }} }}\n{metric()}',
        "-",
        "experiments.platform.split: write a number above 0 for each arm, such as { control = 0.9, new = 0.1 }",
        {"linux": 0, "macos": 1},
    ),
    (
        f"{HEAD}[experiments]\nplatform = {{ base = 3, planned = 0.1 }}\n{metric()}",
        "-",
        "experiments.platform.base: write the arm that each other arm is compared with",
        3,
    ),
    *(
        (
            f'{HEAD}[experiments]\nplatform = {{ base = "linux", planned = {written} }}\n{metric()}',
            "-",
            "experiments.platform.planned: write the difference to find, a share above 0 and below 1 such as 0.02",
            value,
        )
        for written, value in (("0", 0), ("1.0", 1.0), ("true", True), ('"0.1"', "0.1"))
    ),
    # segments
    (
        f'format = 1\napp = "shop"\nsegments = 1\n{metric()}',
        "-",
        "segments: write a table of lists of words, such as { platform = ['linux', 'macos'] }",
        1,
    ),
    (
        f'{HEAD}"two words" = ["x"]\n{metric()}',
        "-",
        "write the name of a segment as one word of the letters A to Z, digits and _.+-",
        "two words",
    ),
    (
        f'{HEAD}"a=b" = ["x"]\n{metric()}',
        "-",
        "write the name of a segment as one word of the letters A to Z, digits and _.+-",
        "a=b",
    ),
    (
        f"{HEAD}arch = []\n{metric()}",
        "-",
        "segments.arch: write a list of words of the letters A to Z, digits and _.+-, each in quotes",
        [],
    ),
    (
        f'{HEAD}arch = "x86"\n{metric()}',
        "-",
        "segments.arch: write a list of words of the letters A to Z, digits and _.+-, each in quotes",
        "x86",
    ),
    (
        f'{HEAD}arch = ["x,y"]\n{metric()}',
        "-",
        "segments.arch: write a list of words of the letters A to Z, digits and _.+-, each in quotes",
        "x,y",
    ),
    (
        f'{HEAD}arch = ["x", "x=y"]\n{metric()}',
        "-",
        "segments.arch: write a list of words of the letters A to Z, digits and _.+-, each in quotes",
        "x=y",
    ),
    (
        f"{HEAD}arch = [1]\n{metric()}",
        "-",
        "segments.arch: write a list of words of the letters A to Z, digits and _.+-, each in quotes",
        1,
    ),
    (f'{HEAD}arch = ["x", "x"]\n{metric()}', "-", "segments.arch: list each value once", ["x", "x"]),
    # a metric
    (
        HEAD + metric("Upper"),
        "Upper",
        ID_RULE,
        "Upper",
    ),
    (
        HEAD + metric("a..b"),
        "a..b",
        ID_RULE,
        "a..b",
    ),
    (
        HEAD + metric("1a"),
        "1a",
        ID_RULE,
        "1a",
    ),
    (
        HEAD + metric("a b"),
        "a b",
        ID_RULE,
        "a b",
    ),
    (
        HEAD + metric(LONG),
        LONG,
        ID_RULE,
        LONG,
    ),
    (f"{HEAD}[metrics]\nm = 1\n", "m", "write a metric as a table, with its own lines", 1),
    (HEAD + metric(epsilom="1"), "m", "epsilom is no key of a metric: write epsilon", "epsilom"),
    (HEAD + metric(eps="1"), "m", "eps is no key of a metric: write epsilon", "eps"),
    (HEAD + metric(min="1"), "m", "min is no key of a metric: write range, which has the least and the greatest number", "min"),
    (HEAD + metric(id='"x"'), "m", "id is no key of a metric: write one of type, values, epsilon", "id"),
    (HEAD + metric(_positions="1"), "m", "_positions is no key of a metric: write one of type, values, epsilon", "_positions"),
    # its domain
    (HEAD + metric(type='"categorial"'), "m", "string, key; did you mean 'categorical'?", "categorial"),
    (HEAD + metric(type='"enum"'), "m", "string, key; did you mean 'categorical'?", "enum"),
    (HEAD + metric(type='"multi"'), "m", "string, key; did you mean 'set'?", "multi"),
    (HEAD + metric(type=None), "m", "type: write one of boolean, categorical, ordinal, product, set, number, string, key", None),
    (
        HEAD + metric(type='"duration"'),
        "m",
        "type: write one of boolean, categorical, ordinal, product, set, number, string, key",
        "duration",
    ),
    (
        HEAD + metric(type='"ordinal"', estimate='"median"'),
        "m",
        'estimate: write estimate = "mean" for an ordinal, or remove it; then the share of each value is estimated',
        "median",
    ),
    (HEAD + metric(estimate='"mean"'), "m", "estimate: remove it; only a metric of type ordinal or number has it", "mean"),
    (HEAD + metric(type='"set"', joint='"yes"'), "m", "joint: write true or false, without quotes", "yes"),
    *(
        (
            HEAD + metric(type='"set"', most=written),
            "m",
            "most: write the most options that people choose, a whole number from 1 to 2, or remove it",
            most,
        )
        for written, most in (("0", 0), ("3", 3), ("true", True), ('"1"', "1"), ("1.5", 1.5))
    ),
    (
        HEAD + metric(type='"set"', most="2", joint="true"),
        "m",
        "most: write either this or joint = true; of capped answers no pairs are estimated",
        2,
    ),
    (HEAD + metric(joint="true"), "m", "joint: remove it; only a metric of type set has it", True),
    (
        HEAD + metric(type='"set"', none='"a"'),
        "m",
        "none: remove it; only a metric of type categorical or ordinal or number or string has it",
        "a",
    ),
    (HEAD + number(values='["a", "b"]'), "m", "values: remove it; a number has a range", ["a", "b"]),
    (HEAD + number(range=None), "m", "range: write the least and the greatest number, such as [1, 60000]", None),
    (HEAD + number(range="[1]"), "m", "range: write the least and the greatest number, such as [1, 60000]", [1]),
    (HEAD + number(range="[1, 1]"), "m", "range: write the least and the greatest number, such as [1, 60000]", [1, 1]),
    (HEAD + number(range="[2, 1]"), "m", "range: write the least and the greatest number, such as [1, 60000]", [2, 1]),
    (HEAD + number(range='[1, "x"]'), "m", "range: write the least and the greatest number, such as [1, 60000]", [1, "x"]),
    (
        HEAD + number(range="[1, inf]"),
        "m",
        "range: write the least and the greatest number, which are finite, such as [1, 60000]",
        [1, inf],
    ),
    (
        HEAD + number(range="[0, 1]", scale='"log"'),
        "m",
        "the least above 0 on a logarithmic scale, such as [1, 60000]; 0 is then reported as the least",
        [0, 1],
    ),
    (
        HEAD + number(unit=None, estimate=None),
        "m",
        'unit and estimate are missing: write what is counted and estimated, such as unit = "ms" and estimate = "mean"',
        None,
    ),
    (
        HEAD + number(range=None, unit=None, estimate=None),
        "m",
        'such as range = [1, 60000], unit = "ms" and estimate = "mean"',
        None,
    ),
    (HEAD + number(scale='"ln"'), "m", "scale: write linear or log", "ln"),
    (HEAD + number(unit=None), "m", "unit: write a word that says what the number counts, such as ms, bytes or flights", None),
    (
        HEAD + number(unit='" square  metres "'),
        "m",
        "unit: write a word that says what the number counts, such as ms, bytes or flights; did you mean 'square-metres'?",
        " square  metres ",
    ),
    (
        HEAD + number(unit='"a (b"'),
        "m",
        "unit: write a word that says what the number counts, such as ms, bytes or flights",
        "a (b",
    ),
    (
        HEAD + number(estimate=None),
        "m",
        'estimate: write estimate = "mean", or estimate = "distribution" for quantiles and the mean',
        None,
    ),
    (
        HEAD + number(estimate='"median"'),
        "m",
        'estimate: write estimate = "mean", or estimate = "distribution" for quantiles and the mean',
        "median",
    ),
    (HEAD + number(none='"x"'), "m", "none: write the number that is reported for everything that is no number", "x"),
    (HEAD + number(none="true"), "m", "none: write the number that is reported for everything that is no number", True),
    (HEAD + metric(type="[]"), "m", "type: write one of boolean, categorical, ordinal, product, set, number, string, key", []),
    (HEAD + metric(type='"boolean"'), "m", "values: remove it; the answers to a boolean are False and True", ["a", "b", "c"]),
    (HEAD + metric(discover="true"), "m", "discover: remove it; only a metric of type string or key has it", True),
    (HEAD + metric(max_length="4"), "m", "max_length: remove it; only a metric of type string or key has it", 4),
    (
        HEAD + metric(type='"string"', discover="true"),
        "m",
        'values: remove it; the answers to a string come from candidates = "file.txt", or discover = true',
        ["a", "b", "c"],
    ),
    (
        HEAD + metric(type='"string"', values=None),
        "m",
        'the answers are not declared: write either candidates = "file.txt" or discover = true',
        None,
    ),
    (
        HEAD + metric(type='"key"', values=None, discover="true", candidates='"f"'),
        "m",
        'candidates and discover are both declared: write either candidates = "file.txt" or discover = true',
        None,
    ),
    (HEAD + metric(type='"string"', values=None, discover='"yes"'), "m", "discover: write true or false, without quotes", "yes"),
    (
        HEAD + metric(type='"string"', values=None, candidates="3"),
        "m",
        "candidates: write the name of a file that has one answer to a line",
        3,
    ),
    (
        HEAD + metric(type='"string"', values=None, candidates='""'),
        "m",
        "candidates: write the name of a file that has one answer to a line",
        "",
    ),
    (
        HEAD + metric(type='"string"', values=None, discover="true", max_length="0"),
        "m",
        "max_length: write a number of bytes from 1 to 256",
        0,
    ),
    (HEAD + metric(type='"string"', values=None, discover="true", max_length="257"), "m", "from 1 to 256", 257),
    (HEAD + metric(type='"key"', values=None, discover="true", max_length="8"), "m", "a key has 8 bytes", 8),
    (
        HEAD + metric(parameters="3", mechanism='"oue"'),
        "m",
        "parameters: write a table of numbers and texts, such as { cohorts = 64 }",
        3,
    ),
    (
        HEAD + metric(parameters="{ a = [1] }", mechanism='"oue"'),
        "m",
        "parameters: write a table of numbers and texts, such as { cohorts = 64 }",
        {"a": [1]},
    ),
    (
        HEAD + metric(parameters="{ rows = 3 }"),
        "m",
        "parameters: name the mechanism that they are of, such as mechanism = 'rappor', or remove them",
        {"rows": 3},
    ),
    (HEAD + metric(factors="{ a = 1 }"), "m", "factors: remove it; only a metric of type product has it", {"a": 1}),
    (
        HEAD + metric(type='"product"', factors=PAIR),
        "m",
        "values: remove it; the answers to a product are the combinations of its factors' values",
        ["a", "b", "c"],
    ),
    (
        HEAD + metric(type='"product"', values=None),
        "m",
        'factors: write a table of two or more lists, such as { theme = ["light", "dark"], export = ["no", "yes"] }',
        None,
    ),
    (HEAD + metric(type='"product"', values=None, factors='{ a = ["x", "y"] }'), "m", "of two or more lists", {"a": ["x", "y"]}),
    (
        HEAD + metric(type='"product"', values=None, factors='{ a = 1, b = ["x", "y"] }'),
        "m",
        "factors.a: write a list of texts, each in quotes",
        1,
    ),
    (
        HEAD + metric(type='"product"', values=None, factors='{ a = ["x"], b = ["x", "y"] }'),
        "m",
        "factors.a has 1 answer: list 2 to 65,536",
        1,
    ),
    (HEAD + metric(values=None), "m", "values: write a list of texts, each in quotes", None),
    (HEAD + metric(values='"a"'), "m", "values: write a list of texts, each in quotes", "a"),
    (HEAD + metric(values="[1, 2]"), "m", "values: write a list of texts, each in quotes", [1, 2]),
    (HEAD + metric(values='["a", ""]'), "m", "values: write a list of texts, each in quotes", ["a", ""]),
    (HEAD + metric(values='["a"]'), "m", f"values has 1 answer: list 2 to {MAX_VALUES:,}", 1),
    (HEAD + metric(values="[]"), "m", "values has 0 answers: list 2 to 65,536", 0),
    (
        HEAD + metric(values='["b", "a", "b", "a", "c"]'),
        "m",
        "values has 'a', 'b' more than once: list each answer once",
        "'a', 'b'",
    ),
    # its privacy
    (HEAD + metric(epsilon=None), "m", "epsilon: write a number of nats above 0 and at most 16", None),
    (HEAD + metric(epsilon="0"), "m", "epsilon: write a number of nats above 0 and at most 16", 0),
    (HEAD + metric(epsilon="-1.5"), "m", "epsilon: write a number of nats above 0 and at most 16", -1.5),
    (HEAD + metric(epsilon="17"), "m", "epsilon: write a number of nats above 0 and at most 16", 17),
    (HEAD + metric(epsilon="inf"), "m", "epsilon: write a number of nats above 0 and at most 16", float("inf")),
    (HEAD + metric(epsilon="true"), "m", "epsilon: write a number of nats above 0 and at most 16", True),
    (HEAD + metric(epsilon="2027-12-31"), "m", "epsilon: write a number of nats above 0 and at most 16", date(2027, 12, 31)),
    (HEAD + metric(epsilon='"1.0"'), "m", "epsilon: write a number, without quotes", "1.0"),
    (HEAD + metric(epsilon='"1.0986122886681098"', mechanism='"coin"'), "m", "without quotes", "1.0986122886681098"),
    (HEAD + metric(epsilon="1e-12"), "m", "epsilon: write at least 2^-31 nats; integer weights cannot carry less", 1e-12),
    (
        HEAD + metric(epsilon_permanent="0.5"),
        "m",
        "epsilon_permanent: write 1.0 or more, the epsilon of one report, since all reports say no less than one",
        0.5,
    ),
    (HEAD + metric(epsilon_permanent="17"), "m", "epsilon_permanent: write a number of nats above 0 and at most 16", 17),
    (HEAD + metric(epsilon_permanent='"2"'), "m", "epsilon_permanent: write a number, without quotes", "2"),
    (HEAD + metric(sample="0"), "m", "sample: write a share above 0 and at most 1, such as 0.1", 0),
    (HEAD + metric(sample="1.1"), "m", "sample: write a share above 0 and at most 1, such as 0.1", 1.1),
    (HEAD + metric(sample="true"), "m", "sample: write a share above 0 and at most 1, such as 0.1", True),
    (HEAD + metric(none='"z"'), "m", "none: write one of the values, or add it to values; it is reported for None", "z"),
    (HEAD + metric(none="3"), "m", "none: write one of the values, or add it to values; it is reported for None", 3),
    (
        HEAD + metric(none='"a"', type='"boolean"', values=None),
        "m",
        "none: remove it; only a metric of type categorical or ordinal or number or string has it",
        "a",
    ),
    (
        HEAD + metric(other='"z"'),
        "m",
        "other: write one of the values, or add it to values; it is reported for every answer that is not listed",
        "z",
    ),
    (
        HEAD + metric(other="3"),
        "m",
        "other: write one of the values, or add it to values; it is reported for every answer that is not listed",
        3,
    ),
    (
        HEAD + metric(other="false", type='"boolean"', values=None),
        "m",
        "other: remove it; only a metric of type categorical or ordinal or set has it",
        False,
    ),
    (HEAD + metric(per_period="0"), "m", "per_period: write a whole number of at least 1", 0),
    (HEAD + metric(per_period="2.5"), "m", "per_period: write a whole number of at least 1", 2.5),
    (
        HEAD + metric(per_period="2", epsilon_permanent="2"),
        "m",
        "per_period: write 1 with epsilon_permanent, since a second report would repeat the same answer",
        2,
    ),
    (HEAD + metric(answers_per_month="3"), "m", "answers_per_month: remove it; only a metric with epsilon_permanent has it", 3),
    (
        HEAD + metric(answers_per_month="0", epsilon_permanent="2"),
        "m",
        "answers_per_month: write a whole number of at least 1",
        0,
    ),
    # its upkeep
    (HEAD + metric(description=None), "m", "description: write a text in quotes", None),
    (HEAD + metric(description='" "'), "m", "description: write a text in quotes", " "),
    (HEAD + metric(owner="3"), "m", "owner: write a text in quotes", 3),
    (HEAD + metric(mechanism="3"), "m", "mechanism: write a text in quotes", 3),
    (HEAD + metric(version="0"), "m", "version: write a whole number of at least 1", 0),
    (HEAD + metric(version="1.5"), "m", "version: write a whole number of at least 1", 1.5),
    (HEAD + metric(version="true"), "m", "version: write a whole number of at least 1", True),
    (HEAD + metric(min_reports="-1"), "m", "min_reports: write a whole number of at least 1", -1),
    (HEAD + metric(max_report_bytes="0"), "m", "max_report_bytes: write a whole number of at least 1", 0),
    (HEAD + metric(period='"year"'), "m", "period: write hour, day, week or month", "year"),
    (HEAD + metric(period="1"), "m", "period: write hour, day, week or month", 1),
    (
        HEAD + metric(least_shift="-0.1"),
        "m",
        "least_shift: write the smallest shift that matters, a share from 0 to below 1 such as 0.01",
        -0.1,
    ),
    (
        HEAD + metric(least_shift="1"),
        "m",
        "least_shift: write the smallest shift that matters, a share from 0 to below 1 such as 0.01",
        1,
    ),
    (
        HEAD + metric(least_shift="true"),
        "m",
        "least_shift: write the smallest shift that matters, a share from 0 to below 1 such as 0.01",
        True,
    ),
    (
        HEAD + metric(least_shift='"0.1"'),
        "m",
        "least_shift: write the smallest shift that matters, a share from 0 to below 1 such as 0.01",
        "0.1",
    ),
    (
        HEAD + metric(least_shift="nan"),
        "m",
        "least_shift: write the smallest shift that matters, a share from 0 to below 1 such as 0.01",
        None,
    ),
    (
        HEAD + metric(least_shift="0", period='"hour"'),
        "m",
        "least_shift: remove it, or choose a period of a day or longer; at night people answer otherwise",
        0,
    ),
    (
        HEAD + metric("m", type='"string"', values=None, discover="true", least_shift="0.5"),
        "m",
        "least_shift: remove it, or list the answers; what a search finds differs from period to period",
        0.5,
    ),
    (
        HEAD + metric(together="0.5"),
        "m",
        "together: write how many devices answer alike, a number from 1 to 1,000,000 such as 2.5",
        0.5,
    ),
    (
        HEAD + metric(together="true"),
        "m",
        "together: write how many devices answer alike, a number from 1 to 1,000,000 such as 2.5",
        True,
    ),
    (
        HEAD + metric(together='"2"'),
        "m",
        "together: write how many devices answer alike, a number from 1 to 1,000,000 such as 2.5",
        "2",
    ),
    (
        HEAD + metric(together="nan"),
        "m",
        "together: write how many devices answer alike, a number from 1 to 1,000,000 such as 2.5",
        None,
    ),
    (HEAD + number(step="0"), "m", "step: write a number above 0 that divides the range into equal parts, such as 1 or 0.5", 0),
    (
        HEAD + number(step="0.3"),
        "m",
        "step: write a number above 0 that divides the range into equal parts, such as 1 or 0.5",
        0.3,
    ),
    (
        HEAD + number(step='"1"'),
        "m",
        "step: write a number above 0 that divides the range into equal parts, such as 1 or 0.5",
        "1",
    ),
    (
        HEAD + number(step="true"),
        "m",
        "step: write a number above 0 that divides the range into equal parts, such as 1 or 0.5",
        True,
    ),
    (HEAD + number(whole="1"), "m", "whole: write true or false, without quotes", 1),
    (
        HEAD + number(whole="true", range="[0, 7.5]"),
        "m",
        "whole: write whole numbers as both ends of the range, such as [0, 20], or remove it",
        True,
    ),
    (
        HEAD + number(whole="true", range="[0.5, 7.5]"),
        "m",
        "whole: write whole numbers as both ends of the range, such as [0, 20], or remove it",
        True,
    ),
    (HEAD + number(whole="true", step="2"), "m", "step: write either this or whole = true, which is a step of 1", 2),
    (HEAD + metric(step="1"), "m", "step: remove it; only a metric of type number has it", 1),
    (HEAD + metric(whole="true"), "m", "whole: remove it; only a metric of type number has it", True),
    (HEAD + metric(expires='"2027-12-31"'), "m", "expires: write a date such as 2027-12-31, without quotes", "2027-12-31"),
    (HEAD + metric(expires="07:32:00"), "m", "expires: write a date such as 2027-12-31, without quotes", None),
    (HEAD + metric(expires="2027-12-31T07:32:00Z"), "m", "expires: write a date such as 2027-12-31, without quotes", None),
    (
        HEAD + metric(segments='["arch"]'),
        "m",
        "segments: write a list of names that are declared under [segments]: platform",
        ["arch"],
    ),
    (
        HEAD + metric(segments='"platform"'),
        "m",
        "segments: write a list of names that are declared under [segments]: platform",
        "platform",
    ),
    (HEAD + metric(segments="[1]"), "m", "segments: write a list of names that are declared under [segments]: platform", [1]),
    (HEAD + metric(segments='["platform", "platform"]'), "m", "segments: list each name once", ["platform", "platform"]),
    (f'format = 1\napp = "shop"\n{metric(segments=chr(91) + chr(34) + "x" + chr(34) + chr(93))}', "m", "none is", ["x"]),
]


def test_a_step_is_for_estimates_only():
    """`whole = true` is a step of 1. Devices do as without, and the fingerprint is the same."""
    fields = {"range": "[0, 8]", "estimate": '"distribution"'}
    plain, stepped, unstepped = (
        parse(HEAD + number(**fields, **each)).metrics["m"] for each in ({}, {"step": "0.50"}, {"whole": "true"})
    )
    assert (plain.step, stepped.step, unstepped.step) == (None, "0.5", "1")
    assert plain.step_values == ()
    assert stepped.step_values == tuple(each / 2 for each in range(17))
    assert unstepped.step_values == tuple(map(float, range(9)))
    assert len({Declared.of(each).fingerprint for each in (plain, stepped, unstepped)}) == 1
    assert parse(HEAD + number(**fields, whole="false")).metrics["m"] == plain
    assert (
        parse(HEAD + number(range="[0, 500]", estimate='"distribution"', step="1")).metrics["m"].step_values == ()
    )  # finer than reports are
    assert parse(HEAD + number(step="1")).metrics["m"].step_values == ()


@pytest.mark.parametrize(("text", "where", "rule", "value"), FAULTS, ids=range(len(FAULTS)))
def test_faults(text, where, rule, value):
    """A broken rule is one fault with file, metric, rule and value."""
    with pytest.raises(RegistryError) as caught:
        parse(text, "some/metrics.toml")
    (fault,) = caught.value.faults
    assert fault.file == "some/metrics.toml"
    assert fault.metric == where
    assert rule in fault.rule
    if fault.value is ...:
        assert str(value or "") in rule
    elif value is not None:
        assert fault.value == value
        assert type(fault.value) is type(value)


def test_the_base_of_the_table_is_sound():
    """What the table of faults changes has none itself."""
    assert parse(HEAD + metric()).metrics["m"].values == ("a", "b", "c")


def test_all_faults_at_once():
    """Every fault of a file is reported, in its order."""
    text = 'format = 3\napp = "S"\n[segments]\nx = []\n' + metric("A", epsilon="99", period='"y"') + metric("b", version="0")
    with pytest.raises(RegistryError) as caught:
        parse(text)
    assert [fault.metric for fault in caught.value.faults] == ["-", "-", "-", "A", "A", "A", "b"]
    assert len(str(caught.value).splitlines()) == 7


def test_a_long_list_with_one_fault_is_checked_soon():
    """The largest list of answers, one of them twice, takes no quadratic time."""
    values = [f"value {i}" for i in range(MAX_VALUES - 1)]
    began = process_time()
    with pytest.raises(RegistryError, match="m: values has 'value 7' more than once: list each answer once"):
        parse(HEAD + metric(values=str([*values, "value 7"]).replace("'", '"')))
    assert process_time() - began < 5


def test_an_experiment():
    """Its arms are the values of a segment."""
    read = parse(f'{HEAD}[experiments]\nplatform = {{ base = "linux", planned = 0.02 }}\n{metric()}')
    assert read.experiments == {"platform": Experiment(base="linux", planned=0.02)}
    assert parse(HEAD + metric()).experiments == {}


def test_what_is_read(registry):
    """A sound file gives every key, and defaults for those that may be left out."""
    theme, dark, old = (registry.metrics[id_] for id_ in ("ui.theme", "ui.dark", "old"))
    assert registry.app == "shop"
    assert registry.segments == {"platform": ("linux", "macos")}
    assert (theme.values, theme.epsilon, theme.segments) == (("light", "dark", "system"), "1", ("platform",))
    assert (theme.version, theme.mechanism, theme.period, theme.min_reports, theme.max_report_bytes) == (
        1,
        "auto",
        "month",
        100,
        256,
    )
    assert (old.period, theme.per_period, old.per_period, old.answers_per_month) == ("day", 4, 1, 2)
    assert theme.expires is None
    assert (dark.values, dark.mechanism, dark.domain_size) == ((False, True), "coin", 2)
    assert mechanisms.of(dark).ratio == 3
    assert (old.epsilon, old.expires) == ("1", date(2001, 1, 1))
    assert theme.least_shift is None
    assert parse(HEAD + metric(least_shift="0.010")).metrics["m"].least_shift == "0.01"


def test_epsilon_is_kept_as_written():
    """0.1 stays 1/10 and does not become the nearest binary number."""
    assert (
        mechanisms.of(parse(HEAD + metric(epsilon="0.1")).metrics["m"]).requested
        == mechanisms.make("auto", domain_size=3, epsilon="1/10").requested
    )


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (None, "the registry is missing"),
        (b"\xff\xfe", "the registry cannot be read: line 1 has bytes that are not UTF-8; save the file as UTF-8"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, content, rule):
    """A file that is missing or not UTF-8 is a fault of the file."""
    path = tmp_path / "metrics.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RegistryError, match=rule) as caught:
        load(path)
    assert caught.value.faults[0].file == str(path)


def test_load_and_parse_agree(tmp_path, registry_text, registry):
    """A file is read like its text."""
    (tmp_path / "metrics.toml").write_text(registry_text, "utf-8")
    assert load(tmp_path / "metrics.toml") == load(str(tmp_path / "metrics.toml")) == registry


def test_positions_and_labels(registry):
    """Answers are encoded by their place and written back for people."""
    theme, dark = registry.metrics["ui.theme"], registry.metrics["ui.dark"]
    assert [theme.position(v) for v in theme.values] == [0, 1, 2]
    assert [theme.label(i) for i in range(3)] == ["light", "dark", "system"]
    assert [dark.position(v) for v in (False, True)] == [0, 1]
    assert [dark.label(i) for i in range(2)] == ["no", "yes"]


CANARY = "canary-f3b1"


@pytest.mark.parametrize("value", [CANARY, [CANARY], {CANARY}, {CANARY: 1}, None, 0, 1, 1.0, b"light", "Light", "light "])
@pytest.mark.parametrize("id_", ["ui.theme", "ui.dark"])
def test_what_is_no_answer(registry, id_, value):
    """What is not a declared answer of the declared kind is refused without being repeated."""
    with pytest.raises(ParameterError, match=f"an answer to {id_} must be") as caught:
        registry.metrics[id_].position(value)
    error: BaseException | None = caught.value
    while error is not None:
        assert CANARY not in f"{error} {error.args} {vars(error)}"
        error = error.__cause__ or error.__context__


@given(st.text())
def test_only_declared_texts_are_answers(registry, text):
    """No other text is an answer."""
    theme = registry.metrics["ui.theme"]
    if text not in theme.values:
        with pytest.raises(ParameterError):
            theme.position(text)


def test_segments(registry):
    """A report's segment has the metric's breakdowns and no others."""
    theme, dark = registry.metrics["ui.theme"], registry.metrics["ui.dark"]
    assert registry.segment(theme, {"platform": "linux", "other": "x"}) == "platform=linux"
    assert registry.segment(dark, {"platform": "linux"}) == ""
    for wrong in ({}, {"platform": "beos"}):
        with pytest.raises(ParameterError, match=r'pass segments=\{"platform": "linux"\} to init, with one of linux, macos'):
            registry.segment(theme, wrong)


def test_expiry(registry):
    """The last day of collection is within it."""
    old = registry.metrics["old"]
    assert not old.expired(date(2001, 1, 1))
    assert old.expired(date(2001, 1, 2))
    assert not registry.metrics["ui.theme"].expired(date(9999, 1, 1))


def test_metrics_are_frozen_values(registry, registry_text):
    """A metric cannot be changed, and equals another of the same declaration."""
    theme = registry.metrics["ui.theme"]
    with pytest.raises(FrozenInstanceError):
        theme.epsilon = "9"
    twin = parse(registry_text).metrics["ui.theme"]
    assert twin == theme
    assert hash(twin) == hash(theme)


PRODUCT = metric(type='"product"', values=None, factors='{ theme = ["light", "dark"], export = ["no", "yes", "later"] }')


def test_products():
    """An answer to several questions at once is a combination, given in their order or by their names."""
    declared = parse(HEAD + PRODUCT).metrics["m"]
    assert declared.domain_size == 6
    assert declared.values[:4] == (("light", "no"), ("light", "yes"), ("light", "later"), ("dark", "no"))
    for answer in (("dark", "yes"), ["dark", "yes"], {"export": "yes", "theme": "dark"}):
        assert declared.position(answer) == 4
    assert declared.label(4) == "dark, yes"
    large = "[" + ", ".join(f'"{i}"' for i in range(300)) + "]"
    with pytest.raises(
        RegistryError, match="m: factors have 90,000 combinations: use fewer values, so that there are 65,536 at most"
    ):
        parse(HEAD + metric(type='"product"', values=None, factors=f"{{ a = {large}, b = {large} }}"))


@pytest.mark.parametrize(
    "answer",
    ["dark", ("dark",), ("yes", "dark"), ("dark", "yes", "no"), {"theme": "dark"}, ("dark", ["yes"]), None, 4, ("dark", 1)],
)
def test_answers_that_are_no_combination(answer):
    """What is no combination is refused with the factors' names, and is not repeated."""
    with pytest.raises(ParameterError, match="a declared value each of theme, export") as caught:
        parse(HEAD + PRODUCT).metrics["m"].position(answer)
    assert caught.value.value in ("str", "tuple", "list", "dict", "NoneType", "int")


STRING = metric(type='"string"', values=None, candidates='"words.txt"', max_length="12")
KEY = metric("k", type='"key"', values=None, discover="true")


def test_strings():
    """A string is a number in the domain of its longest text, and is read back from it."""
    declared = parse(HEAD + STRING).metrics["m"]
    assert declared.open
    assert declared.domain_size == 256**12
    for text in ("a", "grün", "日本語", "twelve bytes"):
        assert declared.value(declared.position(text)) == text
        assert declared.label(declared.position(text)) == text
    assert parse(HEAD + metric(type='"string"', values=None, discover="true")).metrics["m"].max_length == 16
    assert parse(HEAD + metric(type='"string"', values=None, candidates='"w"')).metrics["m"].max_length == 64


def test_keys():
    """A key is itself."""
    declared = parse(HEAD + KEY).metrics["k"]
    assert declared.domain_size == 1 << 64
    for key in (0, 17, (1 << 64) - 1):
        assert declared.position(key) == declared.value(key) == key
        assert declared.label(key) == str(key)


@pytest.mark.parametrize(
    ("value", "read"),
    [("", ""), ("thirteen bytes", "thirteen byt"), ("a\0b", "a?b"), ("\ud800", "?"), ("größer" * 9, "größergrö")],
)
def test_any_text_is_an_answer(value, read):
    """However long or empty, a text has a place; the empty one is written so that people see it."""
    declared = parse(HEAD + STRING).metrics["m"]
    assert declared.value(declared.position(value)) == read
    assert declared.label(declared.position(value)) == (read or "(empty)")


@pytest.mark.parametrize("value", [3, True, None, b"a", ["a"]])
def test_answers_that_are_no_strings(value):
    """An answer that is no such text is refused with the rule, and is not repeated."""
    declared = parse(HEAD + STRING).metrics["m"]
    with pytest.raises(ParameterError, match="an answer to m must be a text; this is an undeclared") as caught:
        declared.position(value)
    assert caught.value.value == type(value).__name__
    assert str(caught.value).endswith(f"; this is an undeclared {type(value).__name__}")


@pytest.mark.parametrize("value", [-1, 1 << 64, 1.0, True, "1", None])
def test_answers_that_are_no_keys(value):
    """An answer that is no key is refused with the rule, and is not repeated."""
    with pytest.raises(ParameterError, match="a whole number in") as caught:
        parse(HEAD + KEY).metrics["k"].position(value)
    assert caught.value.value == type(value).__name__
    assert str(caught.value).endswith(f"; this is an undeclared {type(value).__name__}")


@pytest.mark.parametrize(
    ("content", "rule", "value"),
    [
        (b"", "the file is empty: write one answer to a line", "empty"),
        (b"\n", "the file is empty: write one answer to a line", "empty"),
        (b"a\n\nb\n", "line 2: '': write an answer, or remove the line", "line 2: ''"),
        (b"a\nthirteen bytes\n", "a text must have at most 12 bytes", "line 2: 'thirteen bytes'"),
        (b"a\nb\na", "remove it; it is on line 1 already", "line 3: 'a'"),
        (b"\xff\n", "candidates: line 1 has bytes that are not UTF-8; save the file as UTF-8", "UTF-8"),
        (None, "candidates: No such file or directory; the file must have", "UTF-8"),
    ],
)
def test_bad_candidates(tmp_path, content, rule, value):
    """A fault of a candidate file is said with the metric, the rule, the line and what stands there."""
    (tmp_path / "metrics.toml").write_text(HEAD + STRING, "utf-8")
    if content is not None:
        (tmp_path / "words.txt").write_bytes(content)
    registry = load(tmp_path / "metrics.toml")
    with pytest.raises(RegistryError) as caught:
        registry.candidates(registry.metrics["m"])
    (fault,) = caught.value.faults
    assert fault.metric == "m"
    assert rule in fault.rule
    assert value in str(fault)


def test_candidates(tmp_path):
    """Candidates are read in their order, with other line ends and a byte order mark too, from beside the registry."""
    (tmp_path / "metrics.toml").write_text(HEAD + STRING, "utf-8")
    registry = load(tmp_path / "metrics.toml")
    declared = registry.metrics["m"]
    for content in ("b\na\u2028c\nd\n", "b\na\u2028c\nd", "\ufeffb\r\na\u2028c\r\nd\r\n"):
        (tmp_path / "words.txt").write_bytes(content.encode())
        assert [declared.value(place) for place in registry.candidates(declared)] == ["b", "a\u2028c", "d"]
    keys = parse(HEAD + metric("k", type='"key"', values=None, candidates='"keys.txt"'), str(tmp_path / "metrics.toml"))
    (tmp_path / "keys.txt").write_text("17\n4\n", "utf-8")
    assert keys.candidates(keys.metrics["k"]) == (17, 4)
    (tmp_path / "keys.txt").write_text("17\nx\n-1\n", "utf-8")
    with pytest.raises(RegistryError) as caught:
        keys.candidates(keys.metrics["k"])
    assert len(caught.value.faults) == 2
    assert parse(HEAD + metric()).candidates(parse(HEAD + metric()).metrics["m"]) == ()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (STRING, "fast_local_hash"),
        (metric("m", type='"string"', values=None, candidates='"w"', mechanism='"rappor"', parameters="{cohorts = 8}"), "rappor"),
        (metric("m", type='"key"', values=None, candidates='"w"', mechanism='"hcms"'), "hcms"),
    ],
)
def test_mechanisms_of_strings(text, name):
    """Strings and keys with candidates take the default or the mechanism declared, with its parameters."""
    declared = parse(HEAD + text).metrics["m"]
    mechanism = mechanisms.of(declared)
    assert mechanism.name == name
    assert all(mechanism.chosen[key] == value for key, value in declared.parameters)
    assert len(mechanism.randomize(declared.position("x" if declared.type == "string" else 5))) == mechanism.layout.payload_size


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (
            metric(type='"string"', values=None, candidates='"w"', mechanism='"grr"'),
            "mechanism = 'grr': write one of rappor, google_rappor, cms, hcms, fast_local_hash for answers that are not listed",
        ),
        (
            metric(type='"string"', values=None, discover="true", mechanism='"cms"'),
            "mechanism = 'cms': write one of pem, tree_hist for answers to be discovered",
        ),
        (metric(mechanism='"oue"', parameters="{ rows = 3 }"), "oue has no option rows: its options are none"),
    ],
)
def test_mechanisms_that_do_not_fit(text, rule):
    """A mechanism for another kind of answers, or an option it does not have, is refused in words."""
    with pytest.raises(ParameterError, match=rule):
        mechanisms.of(parse(HEAD + text).metrics["m"])


def test_no_answer_is_an_answer_where_declared():
    """None stands for the answer that the metric names, and for none where it names none."""
    metrics = parse(HEAD + metric("m") + metric("n", none='"b"')).metrics
    assert metrics["n"].position(None) == 1
    with pytest.raises(ParameterError, match="one of the 3 declared values"):
        metrics["m"].position(None)


def test_budget_and_revision():
    """A budget that is declared in part has defaults for the rest; a file that is not served has revision 0."""
    parsed = parse(f"revision = 7\nbudget = {{ per_month = 5 }}\n{HEAD}{metric()}")
    assert (parsed.revision, parsed.budget) == (7, Budget(per_month=5, lifetime=300))
    plain = parse(HEAD + metric())
    assert (plain.revision, plain.budget) == (0, None)


def test_a_publication_is_of_all_metrics_that_say_nothing_else():
    """The registry's min_reports holds for metrics without one of their own; without any, a default does."""
    parsed = parse(f"publication = {{ min_reports = 7, early = false }}\n{HEAD}{metric()}")
    assert (parsed.metrics["m"].min_reports, parsed.publication) == (7, Publication(min_reports=7, early=False))
    own = parse(f"publication = {{ min_reports = 7 }}\n{HEAD}{metric(min_reports='9')}")
    assert own.metrics["m"].min_reports == 9
    assert parse(HEAD + metric()).metrics["m"].min_reports == Publication().min_reports == 100


def test_how_long_things_are_kept_has_defaults():
    """Exact sums go after a month, releases after three years, alarms after three months, unless the registry says otherwise."""
    assert parse(HEAD + metric()).retention == Retention(tallies=30, releases=1095, alarms=90)
    parsed = parse(f"retention = {{ tallies = 7, releases = 7 }}\n{HEAD}{metric()}")
    assert parsed.retention == Retention(tallies=7, releases=7)


def test_what_analysts_may_spend_has_defaults():
    """What the registry does not say of analysts is 1 nat of all keys, and half of that of each."""
    assert parse(HEAD + metric()).analysts == Analysts(epsilon=1.0, per_key=0.5)
    assert parse(f"analysts = {{ epsilon = 0 }}\n{HEAD}{metric()}").analysts == Analysts(epsilon=0, per_key=0.5)


def test_caps_are_a_table_of_the_file():
    """What it does not name has the default. They are no part of what a metric means."""
    parsed = parse(f'caps = {{ epsilon = 2, mechanisms = ["grr"] }}\n{HEAD}{metric()}')
    assert parsed.caps == Caps(epsilon=2, mechanisms=frozenset({"grr"}))
    plain = parse(HEAD + metric())
    assert plain.caps is None
    assert plain.metrics == parsed.metrics


def test_a_budget_is_tightened_in_every_respect():
    """Of two budgets the smaller sums hold; no bound is looser than any."""
    mine = Budget(per_month=50, lifetime=100)
    assert mine.tightened(Budget(per_month=9, lifetime=None)) == Budget(per_month=9, lifetime=100)
    free = Budget(per_month=None, lifetime=None)
    assert mine.tightened(free) == free.tightened(mine) == mine


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"per_month": None, "lifetime": 5}, "lifetime = 5: write per_month too"),
        ({"per_month": 6, "lifetime": 5}, "lifetime = 5: write 6 or more, the nats of per_month"),
    ],
)
def test_a_lifetime_goes_with_a_month(bounds, words):
    """A lifetime is shared out in the proportions of the month, so there is one, and it is not larger."""
    with pytest.raises(ParameterError, match=words):
        Budget(**bounds)


@pytest.mark.parametrize(("per_month", "lifetime"), [(32, 1920), (5, 300), (0.5, 30), (1e6, 1e6), (None, None)])
def test_a_lifetime_that_is_not_declared(per_month, lifetime):
    """It is 60 times what may be spent in a month, in code as in a file, and never more than a bound may be."""
    assert Budget(per_month=per_month).lifetime == lifetime
    if per_month is not None:
        assert parse(f"budget = {{ per_month = {per_month} }}\n{HEAD}{metric()}").budget.lifetime == lifetime


def test_a_delay():
    """It is covered by the grace of the metric, or of the whole registry; without one a report may travel at once."""
    text = f"{HEAD}{metric()}".rstrip() + "\n"
    publication = 'publication = { grace = "7h" }\n'
    for source, seconds in ((text, 0), (f'{text}delay = "47h"\n', 47 * 3600), (f'{publication}{text}delay = "6h"\n', 6 * 3600)):
        (metric_,) = parse(source).metrics.values()
        assert metric_.delay_seconds == seconds


@pytest.mark.parametrize(
    ("unit", "seconds"), [("us", 3e-5), ("ms", 0.03), ("s", 30), ("min", 1800), ("h", 108000), ("clicks", None)]
)
def test_the_longest_time(unit, seconds):
    """It is known of metrics whose unit is one of time."""
    metric_ = Metric(id="m", type="number", values=(), epsilon="1", range=("-5", "30"), unit=unit, estimate="mean")
    assert metric_.longest_seconds == (None if seconds is None else pytest.approx(seconds))
    assert (
        Metric(id="m", type="number", values=(), epsilon="1", range=("-5", "-1"), unit="s", estimate="mean").longest_seconds == 0
    )
    assert Metric(id="m", type="boolean", values=(False, True), epsilon="1").longest_seconds is None


def test_a_metric_closes_after_its_grace():
    """A period takes reports until its grace is over: the metric's own, else the registry's, else two days."""
    text = f"{HEAD}{metric()}"
    own = text.rstrip() + '\ngrace = "12h"\n'
    publication = 'publication = { grace = "3d" }\n'
    for source, hours in ((text, 48), (own, 12), (publication + text, 72), (publication + own, 12)):
        (metric_,) = parse(source).metrics.values()
        assert metric_.closes("2026-11-21") == datetime(2026, 11, 22, tzinfo=UTC) + timedelta(hours=hours)
        closing = metric_.next_to_close(datetime(2026, 11, 21, 12, tzinfo=UTC) + timedelta(hours=hours))
        assert closing == "2026-11-21"
