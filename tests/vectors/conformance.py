"""Write the vectors of ``deniable conformance``: ``python tests/vectors/conformance.py``, by hand.

Those of docs/reference/wire come from its own tables. The wider ones are what our SDK makes of draws from a SHA-256 stream. As in
`generate.py`, a vector that changes breaks clients in the field.
"""

from __future__ import annotations

import json
import sys
from base64 import b64decode, b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
HERE = ROOT / "client" / "deniable" / "conformance" / "vectors"
sys.path.insert(0, str(ROOT / "tests" / "support"))

import mixing  # noqa: E402
from wire_page import block, rows  # noqa: E402

from deniable import mechanisms  # noqa: E402
from deniable.commands.sheet import sheet  # noqa: E402
from deniable.registry import load, parse  # noqa: E402
from deniable.source import Source  # noqa: E402

VERSION = 1
SECRET = bytes(range(32)).hex()
INDEPENDENT = ("binary", "grr", "sue", "oue", "subset", "hadamard", "local_hash", "pgr", "fast_local_hash", "pem")
KEPT = ("l_grr", "l_osue", "loloha", "rappor")
LATER_TYPES = ("number", "set")  # these are of level 3

WIDER: dict[str, tuple[str, int, float, str]] = {
    **{
        f"{name}.{size}": ("categorical", size, epsilon, f'mechanism = "{name}"')
        for name in (
            "grr",
            "sue",
            "oue",
            "subset",
            "local_hash",
            "hadamard",
            "pgr",
            "fast_local_hash",
            "general_hadamard",
            "cms",
            "hcms",
            "rappor",
        )
        for size, epsilon in ((2, 0.1), (100, 3))
    },
    "google_rappor.list": ("categorical", 100, 6, 'mechanism = "google_rappor"\nparameters = { preset = "UMA_RAPPOR_TYPE" }'),
    "google_rappor.key": ("key", 0, 6, 'candidates = "c"\nmechanism = "google_rappor"\nparameters = { preset = "DEMO" }'),
    "cms.text": ("string", 0, 1, 'candidates = "c"\nmechanism = "cms"'),
    "text.5": ("string", 0, 2, 'candidates = "c"\nmax_length = 5'),
    "text.8": ("string", 0, 2, 'candidates = "c"\nmax_length = 8'),
    "text.16": ("string", 0, 2, 'candidates = "c"\nmax_length = 16'),
    "text.256": ("string", 0, 4, 'candidates = "c"\nmax_length = 256'),
    "rappor.key": ("key", 0, 1, 'candidates = "c"\nmechanism = "rappor"'),
    "pem.text": ("string", 0, 4, "discover = true"),
    "tree_hist.key": ("key", 0, 1, 'discover = true\nmechanism = "tree_hist"\nparameters = { step = 20, start = 20 }'),
    "l_grr.wide": ("categorical", 100, 2, 'mechanism = "l_grr"\nepsilon_permanent = 2'),
    "l_osue.wide": ("categorical", 17, 1, 'mechanism = "l_osue"\nepsilon_permanent = 1'),
    "loloha.wide": ("categorical", 1000, 2, 'mechanism = "loloha"\nepsilon_permanent = 5'),
    "dbitflip.wide": ("categorical", 100, 2, 'mechanism = "dbitflip"\nepsilon_permanent = 2'),
    "dbitflip.1": ("categorical", 12, 1, 'mechanism = "dbitflip"\nepsilon_permanent = 1\nparameters = { buckets = 1 }'),
    "rappor.text": ("string", 0, 2, 'candidates = "c"\nepsilon_permanent = 4'),
    "window.2": ("ordinal", 2, 3, 'estimate = "mean"'),
    "window.thirds": ("number", 0, 0.1, 'range = [0, "0.3"]\nunit = "s"\nestimate = "distribution"'),
    "window.large": ("number", 0, 8, 'range = [-2147483648, 2147483648]\nunit = "s"\nestimate = "mean"'),
    "mean.log": ("number", 0, 2, 'range = [1, 9]\nunit = "s"\nscale = "log"\nestimate = "mean"\nepsilon_permanent = 2'),
    "bins": ("number", 0, 2, 'range = [1, 9]\nunit = "s"\nestimate = "distribution"\nepsilon_permanent = 2'),
    "set.wide": ("set", 100, 3, ""),
    "set.pair": ("set", 2, 0.1, "joint = true"),
    "set.capped": ("set", 40, 0.5, "most = 3"),
    "set.capped.1": ("set", 3, 3, "most = 1"),
    "unicode": ("categorical", 0, 1, 'values = ["\u00e9", "\U0001f9d3", "A"]\nother = "A"\nnone = "\u00e9"'),
}
"""By id: type, number of values, epsilon, and what else the metric declares."""

POSITIONS: dict[str, list[Any]] = {
    "binary": [False, True, None, 0, 1, "true"],
    "grr": ["0", "1\u20132", "3+", "4", "", None, 0],
    "sue": ["i", "a", "z", None],
    "subset": [["dark", "s"], ["light", '\u00fc"\\'], ["s", "dark"], ["dark"], "dark", None],
    "pem": ["0", "18446744073709551615", "18446744073709551616", "-1", None],
    "fast_local_hash": ["word", "", 7, None],
    "mean": [True, "412", []],
    "set": ["a", None, [1]],
    "joint_set": [["z"], ["a", "z"]],
}
UNICODE = ["\u00e9", "e\u0301", "\U0001f9d3", "a", None]


@cache
def registries() -> dict[str, Any]:
    """Return the registries whose sheets the vectors have."""
    lists = {id_: [f"v{i}" for i in range(size)] for id_, (_, size, _, _) in WIDER.items()}
    tables = [
        f'[metrics."{id_}"]\ntype = "{type_}"\n{f"values = {json.dumps(lists[id_])}" if size else ""}\nepsilon = {epsilon}\n'
        f"{more}\n"
        'description = "d"\nowner = "o@shop.example"\n'
        for id_, (type_, size, epsilon, more) in WIDER.items()
    ]
    wire = (ROOT / "tests" / "vectors" / "wire.toml").read_text("utf-8")
    head = 'format = 1\napp = "shop"\n[budget]\nper_month = 100000\nlifetime = 1000000\n[caps]\nepsilon = 8\npermanent = 5\n'
    worked = ['format = 1\napp = "shop"\n[budget]\nper_month = 6.5\nlifetime = 8\n', table(wire, "grr"), table(wire, "l_grr")]
    worked.append(
        '[metrics."ends"]\ntype = "boolean"\nepsilon = 1\nexpires = 2100-06-30\ndescription = "d"\nowner = "o@shop.example"\n'
    )
    return {
        "wire": load(ROOT / "tests" / "vectors" / "wire.toml"),
        "wider": parse(head + "\n".join(tables)),
        "worked": parse("\n".join(worked[:3])),
        "ends": parse("\n".join([worked[0].replace("6.5", "1000").replace("8", "10000"), worked[3]])),
    }


def table(text: str, id_: str) -> str:
    """Return the table of a metric in a file."""
    start = text.index(f'[metrics."{id_}"]')
    end = text.find("\n[metrics.", start)
    return text[start : end if end >= 0 else None] + "\n"


class Recorder(Source):
    """Draws from a SHA-256 stream, half of the events as a fair coin so that rare ones are met, and notes its draws."""

    def __init__(self, seed: str) -> None:
        self._seed, self._count, self.draws = seed, 0, []

    def _number(self) -> int:
        self._count += 1
        return int.from_bytes(sha256(f"{self._seed}/{self._count}".encode()).digest(), "big")

    def _event(self, num: int, den: int) -> bool:
        number = self._number()
        return bool(number >> 1 & 1) if number & 1 else (number >> 1) * den < num << 255 and num > 0

    def bernoulli(self, num: int, den: int) -> bool:
        """Draw an event, of the given probability or of a half."""
        self.draws.append(str(int(self._event(num, den))))
        return self.draws[-1] == "1"

    def below(self, n: int) -> int:
        """Draw a number."""
        number = self._number() % n
        self.draws.append(str(number))
        return number

    def bits(self, num: int, den: int, count: int) -> bytes:
        """Draw a run; a run of one is noted as one draw."""
        digits = "".join(str(int(self._event(num, den))) for _ in range(count))
        self.draws.append(f"0b{digits}" if count > 1 else digits)
        return digits.encode()

    @property
    def written(self) -> str:
        """The draws as the page writes them."""
        return " ".join(self.draws)


def level_of(entry: dict[str, Any]) -> int:
    """Return the level that a metric belongs to."""
    name, permanent = entry["mechanism"], entry["epsilon_permanent"] is not None
    if entry["type"] in LATER_TYPES or name not in (*INDEPENDENT, *KEPT):
        return 3
    return 2 if permanent or name in KEPT else 1


def script(level: int, about: str, steps: list[tuple[dict[str, Any], dict[str, Any]]], on: str = "") -> dict[str, Any]:
    """Write a script: requests, each with the members that its answer must have."""
    written = {"level": level, "about": about, "steps": [{"ask": ask, "answer": answer} for ask, answer in steps]}
    return written | ({"sheet": on} if on else {})


def one(on: str, do: str, metric: str, ask: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Write a script of one request about a metric."""
    entry = sheets()[on]["metrics"][metric]
    return script(level_of(entry), f"{do} {metric}", [({"do": do, "metric": metric} | ask, answer)], on)


@cache
def sheets() -> dict[str, Any]:
    """Return the sheet of each registry."""
    return {name: sheet(registry) for name, registry in registries().items()}


def number(written: str) -> str:
    """Write a number of the page in decimal."""
    return str(int(written, 0))


def draws(written: str) -> str:
    """Write draws; none are the empty text."""
    return "" if written == "-" else written


def page_scripts() -> list[dict[str, Any]]:
    """Return the worked vectors of the pages."""
    on, scripts = "wire", []
    for row in rows("layouts"):
        layout = {"kind": row["kind"]} | {each: int(row[each]) for each in ("rows", "width", "row_bytes", "payload_bytes")}
        ask = {"do": "payload", "layout": layout, "row": int(row["row"]), "content": number(row["content"])}
        scripts.append(script(1, "payload", [(ask, {"payload": row["payload, hexadecimal"]})]))
    for row in rows("periods"):
        scripts += [
            script(1, "period", [({"do": "period", "moment": row["moment"], "period": each}, {"period": row[each]})])
            for each in ("hour", "day", "week", "month")
        ]
    for row in rows("positions"):
        ask = {"answer": json.loads(row["answer, as JSON"])}
        scripts.append(one(on, "position", row["metric"], ask, {"position": row["position"]}))
    for row in rows("rounding"):
        ask = {"answer": json.loads(row["answer, as JSON"]), "point": int(row["t"])}
        scripts.append(one(on, "round", row["metric"], ask, {"position": row["v"]}))
    for row in rows("reports"):
        ask = {"position": row["position"], "draws": row["draws"]}
        scripts.append(one(on, "report", row["metric"], ask, {"payload": row["payload, hexadecimal"], "left": 0}))
    for row in rows("geometry"):
        points = [int(each) for each in row["points"].split()]
        scripts.append(one(on, "support", row["metric"], {"position": row["position"]}, {"points": points}))
    for row in rows("kept"):
        at = {"row": int(row["row"])}
        ask = at | {"position": row["position"], "draws": draws(row["draws of the response"])}
        answer = {"key": row["response key"], "content": number(row["content kept"]), "left": 0}
        scripts.append(one(on, "respond", row["metric"], ask, answer))
        ask = at | {"content": number(row["content kept"]), "draws": draws(row["draws of the report"])}
        scripts.append(one(on, "again", row["metric"], ask, {"payload": row["payload, hexadecimal"], "left": 0}))
    asks = [{"rows": int(row["rows"]), "draws": draws(row["draw"])} for row in rows("places")]
    answer = {"rows": [int(row["row"]) for row in rows("places")], "place": rows("places")[-1]["place then"]}
    scripts.append(script(2, "place", [({"do": "place", "asks": asks}, answer)]))
    body = json.loads(block("body"))
    reports = [
        {"metric": group["metric"], "period": group["period"], "segment": group["segment"], "payload": payload.hex()}
        for group in reversed(body["groups"])
        for payload in reversed(split(group))
    ]
    scripts.append(script(1, "body", [({"do": "body", "reports": reports}, {"body": body})], on))
    return scripts + restriction_scripts()


def split(group: dict[str, Any]) -> list[bytes]:
    """Take the payloads of a group apart."""
    payloads = b64decode(group["payloads"])
    size = len(payloads) // group["count"]
    return [payloads[start : start + size] for start in range(0, len(payloads), size)]


def restriction_scripts() -> list[dict[str, Any]]:
    """Return what a served registry turns off and down, and whether it is signed."""
    text, public = block("restriction"), PUBLIC_KEY
    scripts = []
    for row in rows("restricted"):
        own = {"sample": row["sample"], "expires": None if row["expires"] == "null" else row["expires"]}
        then = None if row["sample then"] == "off" else {"sample": row["sample then"], "expires": date(row["last day then"])}
        ask = {"do": "restrict", "text": text, "metrics": {row["metric"]: own}}
        answer = {"metrics": {row["metric"]: then}}
        scripts.append(script(3, f"restrict {row['metric']}", [(ask, answer)]))
    for row in rows("signatures"):
        until = None if row["valid_until"] == "absent" else row["valid_until"]
        for changed in (text, text.replace("0.5", "0.6")):
            ask = {"do": "verify", "key": public, "text": changed, "signature": row["signature"], "valid_until": until}
            scripts.append(script(3, "verify", [(ask, {"right": changed == text})]))
    return scripts


def refused_restrictions() -> list[dict[str, Any]]:
    """Return texts that are no restriction, each one change away from one that is."""
    good = block("restriction")
    changes = {
        "a space": (":{", ": {"),
        "a line": (good, f"{good}\n"),
        "an escape": ('"oue"', '"\\u006fue"'),
        "no app": ('"app":"shop",', ""),
        "another order": (good, good[:-1].replace('"app":"shop",', "") + ',"app":"shop"}'),
        "twice": ('"oue":', '"oue":{"sample":"1","until":null},"oue":'),
        "another member": ('"revision"', '"reason":"","revision"'),
        "another member of a metric": ('"until":null', '"until":null,"why":""'),
        "a member too few": (',"until":null', ""),
        "a list": (good[good.index('{"oue') : good.index(',"revision')], "[]"),
        "an upper-case id": ('"oue"', '"Oue"'),
        "an id that begins with a dash": ('"oue"', '"-oue"'),
        "an id of digits": ('"oue"', '"7"'),
        "a long id": ('"oue"', f'"{"o" * 81}"'),
        "a sample of 0": ('"0.5"', '"0"'),
        "a sample above 1": ('"0.5"', '"1.5"'),
        "a sample that ends with 0": ('"0.5"', '"0.50"'),
        "a sample with an exponent": ('"0.5"', '"5e-1"'),
        "a sample of 31 places": ('"0.5"', f'"0.{"0" * 30}5"'),
        "a sample that is no text": ('"0.5"', "0.5"),
        "a day that is none": ("2027-12-31", "2027-02-30"),
        "a day in another form": ("2027-12-31", "20271231"),
        "a revision of 0": ('"revision":6', '"revision":0'),
        "a revision in a text": ('"revision":6', '"revision":"6"'),
        "a fraction": ('"revision":6', '"revision":6.0'),
        "a revision beyond 2^53": ('"revision":6', '"revision":9007199254740992'),
        "no object": (good, "null"),
        "no JSON": (good, good[:-1]),
    }
    own = {"oue": {"sample": "1", "expires": None}}
    asked = {about: {"do": "restrict", "text": good.replace(*change, 1), "metrics": own} for about, change in changes.items()}
    return [script(3, f"no restriction: {about}", [(ask, {"metrics": None})]) for about, ask in asked.items()]


def date(written: str) -> str | None:
    """Read a day of the page."""
    return None if written == "null" else written


def wider_scripts() -> list[dict[str, Any]]:
    """Return what our SDK makes of other sizes, answers and draws."""
    scripts = []
    for row in rows("texts"):
        ask = {"answer": json.loads(row["text, as JSON"])}
        answer = {"position": str(int(row["position, hexadecimal"], 16))}
        scripts.append(one("wider", "position", f"text.{row['max_length']}", ask, answer))
    for on, answers in (("wire", POSITIONS), ("wider", {"unicode": UNICODE})):
        scripts += [answered(on, id_, answer) for id_, listed in answers.items() for answer in listed]
    for on, stand_ins in (("wire", ("sue", "oue", "set", "joint_set", "mean", "log_distribution")), ("wider", ("unicode",))):
        for id_ in stand_ins:
            recorder = Recorder(f"stand-in {id_}")
            position = registries()[on].metrics[id_].stand_in(recorder)
            scripts.append(one(on, "stand_in", id_, {"draws": recorder.written}, {"position": str(position), "left": 0}))
    for id_, metric in registries()["wider"].metrics.items():
        mechanism = mechanisms.of(metric)
        for turn in range(5):
            scripts += responses(id_, mechanism, turn)
    return scripts + refused_restrictions()


def answered(on: str, id_: str, answer: Any) -> dict[str, Any]:
    """Write the position of an answer, null of an undeclared one; keys are decimals in texts."""
    metric = registries()[on].metrics[id_]
    plain = int(answer) if metric.type == "key" and isinstance(answer, str) else answer
    position, _ = metric.kind.reported(metric, plain)
    return one(on, "position", id_, {"answer": answer}, {"position": None if position is None else str(position)})


def responses(id_: str, mechanism: Any, turn: int) -> list[dict[str, Any]]:
    """Write a report of some position and, where responses are kept, both steps."""
    value = int.from_bytes(sha256(f"{id_} {turn}".encode()).digest() * 33, "big") % mechanism.domain_size
    if mechanism.name == "pgr":
        points = [x for x in range(mechanism.layout.width) if value in mechanism.supported(mechanism.layout.pack(0, x))]
        return [one("wider", "support", id_, {"position": str(value)}, {"points": points})]
    recorder = Recorder(f"report {id_} {turn}")
    payload = mechanism.randomize(value, source=recorder).hex()
    ask = {"position": str(value), "draws": recorder.written}
    scripts = [one("wider", "report", id_, ask, {"payload": payload, "left": 0})]
    if registries()["wider"].metrics[id_].permanent:
        first, second = Recorder(f"first {id_} {turn}"), Recorder(f"second {id_} {turn}")
        row = first._number() % mechanism.layout.rows
        content = mechanism.respond_permanently(row, value, first)
        key = str(mechanism.response_key(row, value))
        ask = {"row": row, "position": str(value), "draws": first.written}
        scripts.append(one("wider", "respond", id_, ask, {"key": key, "content": str(content), "left": 0}))
        payload = mechanism.respond_instantly(row, content, second).hex()
        ask = {"row": row, "content": str(content), "draws": second.written}
        scripts.append(one("wider", "again", id_, ask, {"payload": payload, "left": 0}))
    return scripts


REPORTED = {"outcome": "reported"}
DAY = "2026-11-21T10:00:00Z"
PRIVATE_KEY = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")  # of the first test in RFC 8032
PUBLIC_KEY = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="


def device(**options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Begin a new device."""
    segments = {"platform": "linux", "version": "2.4"}
    return {"do": "device", "segments": segments, "secret": SECRET, "consent": True} | options, {}


def record(metric: str, answer: Any, outcome: str, moment: str = DAY) -> tuple[dict[str, Any], dict[str, Any]]:
    """Record an answer."""
    return {"do": "record", "metric": metric, "answer": answer, "moment": moment}, {"outcome": outcome}


def spent(month: str, in_month: int, ever: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Ask what was spent."""
    return {"do": "spent", "month": month}, {"month": in_month, "lifetime": ever}


def waiting(reports: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Ask how many reports wait."""
    return {"do": "waiting"}, {"reports": reports}


def server(plan: str, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Have the runner's own server do something."""
    return {"server": plan} | options, {}


def seen(statuses: list[int], keys: int, reports: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compare what the runner's own server has seen."""
    return {"server": "seen"}, {"statuses": statuses, "keys": keys, "reports": reports}


def device_scripts() -> list[dict[str, Any]]:
    """Return what a device must do over time."""
    worked, stored = [device()], {row["response key"]: row["stored under, hexadecimal"] for row in rows("stored")}
    for row in rows("budget"):
        moment = row["moment"].replace("Z", ":00Z")
        worked.append(record(row["metric"], json.loads(row["answer, as JSON"]), row["what becomes of it"], moment))
        worked.append(spent(row["counts in"], int(row["month"]), int(row["ever"])))
        if row["response key"] != "-":
            worked.append(({"do": "stored", "metric": row["metric"]}, {"last": stored[row["response key"]]}))
    flush: tuple[dict[str, Any], dict[str, Any]] = ({"do": "flush"}, {})
    cost = sheets()["wire"]["metrics"]["grr"]["allowance"]["cost"]
    grr = record("grr", "0", "reported")
    sent = {"reports": [{"metric": "grr", "period": "2026-W47", "segment": ""}]}
    tried = [device(server=True, moment=DAY), grr, record("oue", "a", "reported")]
    return [
        script(2, "the worked budget", worked, "worked"),
        script(
            1,
            "no consent, and consent that is withdrawn",
            [
                device(consent=False),
                record("grr", "0", "no_consent"),
                spent("2026-11", 0, 0),
                waiting(0),
                ({"do": "consent", "given": True}, {}),
                grr,
                spent("2026-11", cost, cost),
                waiting(1),
                ({"do": "consent", "given": False}, {}),
                waiting(0),
                spent("2026-11", cost, cost),
                ({"do": "consent", "given": True}, {}),
                record("grr", "0", "this_period"),
                waiting(0),
            ],
            "wire",
        ),
        script(
            2,
            "a restart forgets nothing",
            [
                device(),
                grr,
                record("l_grr", "a", "reported"),
                ({"do": "restart"}, {}),
                record("grr", "0", "this_period"),
                record("l_grr", "b", "this_period"),
                waiting(2),
                spent("2026-11", 4_500_000, 4_500_000),
            ],
            "worked",
        ),
        script(
            1,
            "several reports a period",
            [device(), *[record("oue", "a", "reported")] * 3, record("oue", "a", "this_period")],
            "wire",
        ),
        script(
            1,
            "a clock set back gives nothing",
            [device(), grr, record("grr", "0", "this_period", "2026-11-14T10:00:00Z")],
            "wire",
        ),
        script(
            1,
            "a segment that is not declared",
            [device(segments={"platform": "beos"}), record("binary", answer=True, outcome="off")],
            "wire",
        ),
        script(
            1,
            "undeclared answers are reported",
            [device(), record("grr", "9", "reported"), record("oue", 7, "reported"), waiting(2)],
            "wire",
        ),
        script(
            1,
            "the last day of a metric",
            [
                device(),
                record("ends", answer=True, outcome="reported", moment="2100-06-30T23:59:00Z"),
                record("ends", answer=True, outcome="expired", moment="2100-07-01T00:00:00Z"),
            ],
            "ends",
        ),
        script(1, "an upload", [*tried, flush, seen([202], 1, 2), waiting(0), flush, seen([202], 1, 2)], "wire"),
        script(1, "what was sent can be seen", [device(server=True, moment=DAY), grr, flush, ({"do": "sent"}, sent)], "wire"),
        script(1, "a server in trouble", [server("fail", status=503), *tried, flush, seen([503, 202], 1, 2), waiting(0)], "wire"),
        script(1, "a batch that is too large", [server("fail", status=413), *tried, flush, seen([413, 202, 202], 3, 2)], "wire"),
        script(1, "a batch that is refused", [server("fail", status=400), *tried, flush, seen([400], 1, 0), waiting(0)], "wire"),
        script(
            1,
            "a key that is refused",
            [server("fail", status=401), *tried, flush, seen([401], 1, 0), flush, seen([401], 1, 0), waiting(2)],
            "wire",
        ),
    ]


def sealed(metrics: dict[str, Any], revision: int) -> dict[str, Any]:
    """Sign a restriction with the key of the page."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    text = json.dumps({"app": "shop", "metrics": metrics, "revision": revision}, sort_keys=True, separators=(",", ":"))
    signature = Ed25519PrivateKey.from_private_bytes(PRIVATE_KEY).sign(f"deniable restriction 1\n{text}".encode())
    return {"format": 1, "restriction": text, "signature": b64encode(signature).decode()}


def served_scripts() -> list[dict[str, Any]]:
    """Return what a device makes of a registry that the server hands out."""
    on = {"sample": "1", "until": None}
    some = {"grr": on, "oue": on | {"until": "2026-11-30"}}
    begun = device(server=True, moment=DAY, registry_key=PUBLIC_KEY)
    flush: tuple[dict[str, Any], dict[str, Any]] = ({"do": "flush"}, {})
    grr, later = record("grr", "0", "reported"), "2026-12-01T10:00:00Z"
    good = sealed(some, 6)
    taken = [begun, server("serve", envelope=good), grr, flush, seen([202], 1, 1)]
    again = [({"do": "restart"}, {}), record("grr", "0", "reported", later), flush, seen([202], 1, 1), waiting(1)]
    wrong = {
        "a signature of another text": good | {"restriction": sealed(some, 7)["restriction"]},
        "a text in another form": sealed(some | {"Oue": on}, 6),
        "another member": good | {"seed": 1},
    }
    return [
        script(
            3,
            "a served registry: off, ended",
            [*taken, record("local_hash", "a", "off"), record("oue", "a", "reported"), record("oue", "a", "expired", later)],
            "wire",
        ),
        script(3, "a served registry: an older revision", [*taken, server("serve", envelope=sealed(some, 5)), *again], "wire"),
        script(
            3,
            "a served registry: another text of its revision",
            [*taken, server("serve", envelope=sealed({"grr": on}, 6)), *again],
            "wire",
        ),
        script(3, "a served registry: none", [begun, server("serve", envelope=None), grr, flush, seen([202], 1, 1)], "wire"),
        *(
            script(
                3,
                f"a served registry: {about}",
                [begun, server("serve", envelope=envelope), grr, flush, seen([], 0, 0), waiting(1)],
                "wire",
            )
            for about, envelope in wrong.items()
        ),
    ]


def unknown_scripts() -> list[dict[str, Any]]:
    """Return sheets that a client refuses, or some metrics of which."""
    written = sheets()["worked"]
    entry = written["metrics"]["grr"]
    strange = {"later.type": entry | {"type": "later"}, "later.mechanism": entry | {"mechanism": "later"}, "grr": entry}
    later = [({"do": "sheet", "sheet": written | {"metrics": strange}}, {"refused": ["later.mechanism", "later.type"]})]
    format_ = [({"do": "sheet", "sheet": written | {"format": 2}}, {"refused": "format"})]
    return [
        script(1, "an unknown type or mechanism is refused, and the rest is used", later) | {"sheets": True},
        script(1, "another format is refused", format_) | {"sheets": True},
    ]


def sealed_scripts() -> list[dict[str, Any]]:
    """Return those of sealed reports: what a device seals twice opens as the payload, for its own place only."""
    scripts = []
    for row in rows("sealed"):
        number, payload = int(row["number"]), row["payload"]
        place = {"metric": row["metric"], "version": int(row["version"]), "fingerprint": row["fingerprint"]}
        place |= {"period": row["period"], "segment": row["segment"].strip("-")}
        ask = {"do": "seal", "app": row["app"], **place, "key": f"{number}:{b64encode(mixing.PUBLIC).decode()}"}
        report = {"number": number, "bytes": len(payload) // 2 + 49, "payload": payload}
        answer = {"reports": [report, report], "differ": True}
        each = script(4, f"seal {row['metric']}", [(ask | {"payloads": [payload, payload]}, answer)])
        each["steps"][0]["opens"] = mixing.PRIVATE.hex()
        scripts.append(each)
    return scripts


def documents() -> dict[str, str]:
    """Return the text of each file, by its name."""
    files = {
        "vectors.json": page_scripts(),
        "wider.json": wider_scripts(),
        "sealed.json": sealed_scripts(),
        "device.json": device_scripts() + served_scripts() + unknown_scripts(),
    }
    return {name: written(scripts) for name, scripts in files.items()}


def written(scripts: list[dict[str, Any]]) -> str:
    """Write a file: its version, the sheets that its scripts are about, and the scripts, one a line."""
    used = {each["sheet"]: sheets()[each["sheet"]] for each in scripts if "sheet" in each}
    lines = ",\n".join(json.dumps(each, ensure_ascii=True) for each in scripts)
    head = ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in used.items())
    return f'{{"version": {VERSION},\n"sheets": {{\n{head}\n}},\n"scripts": [\n{lines}\n]}}\n'


if __name__ == "__main__":
    for name, text in documents().items():
        (HERE / name).write_text(text, "utf-8")
