"""Write the frozen test vectors: ``python tests/vectors/generate.py``, by hand.

Devices that are already out there send what these files say. A vector that changes is therefore a breaking change: old devices
and new servers would no longer understand each other, and every estimate of a running metric would silently be wrong. Vectors
may be added; where one must change, so must the registry format or the wire format.

The noise of the vectors comes from `Script`, which reads a SHA-256 stream, so that another implementation can draw the same.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from deniable import mechanisms
from deniable.declared import fingerprint
from deniable.errors import ParameterError
from deniable.mechanisms.base import FrequencyOracle, Scored
from deniable.mechanisms.permanent import Permanent
from deniable.registry import Metric
from deniable.source import Source
from deniable.wire.report import Report, Stratum, encode

HERE = Path(__file__).parent

MADE = [
    ("coin", 2, "1.0986122886681098"),
    ("coin", 2, "4"),
    ("binary", 2, "0.1"),
    ("binary", 2, "1"),
    ("grr", 2, "1"),
    ("grr", 5, "0.5"),
    ("grr", 300, "3"),
    ("sue", 2, "1"),
    ("sue", 9, "2"),
    ("oue", 3, "1"),
    ("oue", 17, "0.1"),
    ("subset", 3, "1"),
    ("subset", 10, "0.5"),
    ("subset", 40, "2"),
    ("local_hash", 4, "1"),
    ("local_hash", 100, "1.5"),
    ("local_hash", 5000, "0.7"),
    ("hadamard", 2, "1"),
    ("hadamard", 7, "0.5"),
    ("hadamard", 300, "1"),
    ("grr", 4, "0.001"),
    ("grr", 4, "16"),
]
CHOSEN: list[tuple[str, int, str, dict[str, Any]]] = [
    ("general_hadamard", 2, "1", {}),
    ("general_hadamard", 40, "3", {}),
    ("general_hadamard", 7, "1", {"blocks": 4}),
    ("pgr", 5, "1", {}),
    ("pgr", 40, "0.3", {}),
    ("pgr", 1000, "1", {}),
    ("pgr", 3000, "2", {}),
    ("pgr", 3000, "3", {}),
    ("rappor", 5, "1", {}),
    ("rappor", 5000, "2", {"bits": 32, "hashes": 2, "cohorts": 8}),
    ("rappor", 1 << 512, "1", {"permanent": 3}),
    ("google_rappor", 6, "4.5", {"preset": "UMA_RAPPOR_TYPE", "cohorts": 4}),
    ("pem", 1 << 64, "1", {}),
    ("pem", 1 << 128, "4", {"step": 12, "start": 20, "rows": 100, "confirm": "0.4"}),
    ("tree_hist", 1 << 64, "2", {}),
    ("cms", 10, "1", {}),
    ("cms", 1 << 128, "2", {"rows": 16, "width": 24}),
    ("hcms", 10, "1", {}),
    ("hcms", 1 << 128, "2", {}),
    ("fast_local_hash", 10, "1", {}),
    ("fast_local_hash", 1 << 64, "1", {}),
    ("fast_local_hash", 1 << 128, "2.5", {"rows": 100}),
    ("l_grr", 5, "1", {}),
    ("l_grr", 300, "2", {"permanent": 3}),
    ("l_osue", 9, "1", {"permanent": 4}),
    ("loloha", 10, "1", {}),
    ("loloha", 3000, "2", {"permanent": 5}),
    ("dbitflip", 5, "1", {}),
    ("dbitflip", 12, "1", {"buckets": 1}),
    ("dbitflip", 100, "2", {}),
]
PERMANENT: list[tuple[str, int, str, dict[str, Any]]] = [
    ("l_grr", 5, "1", {"permanent": 2}),
    ("l_grr", 3, "1", {"permanent": 1}),
    ("l_osue", 9, "1", {"permanent": 4}),
    ("loloha", 10, "1", {"permanent": 3}),
    ("dbitflip", 20, "1", {}),
    ("rappor", 6, "1", {"permanent": 3}),
    ("rappor", 1 << 512, "1", {"permanent": 3}),
    ("google_rappor", 6, "4.5", {"preset": "UMA_RAPPOR_TYPE", "cohorts": 4}),
]
SCORED: list[tuple[str, int, str, dict[str, Any]]] = [
    ("window", 5, "1", {}),
    ("window", 2, "0.1", {}),
    ("window", 65_537, "4", {}),
    ("window", 66_001, "2", {"blocks": 3, "length": 43}),
    ("window", (1 << 32) + 1, "8", {"blocks": 128, "length": 1}),
    ("sampled_options", 2, "1", {}),
    ("sampled_options", 1 << 7, "0.5", {}),
    ("sampled_options", 1 << 300, "3", {}),
    ("sampled_options", 1 << 20, "4", {}),
    ("sampled_pair", 1 << 2, "1", {}),
    ("sampled_pair", 1 << 20, "2", {}),
    ("padded_subset", 1 << 5, "0.3", {"most": 2}),
    ("padded_subset", 1 << 20, "1", {"most": 2}),
    ("padded_subset", 1 << 100, "2", {"most": 5}),
]
MADE_SO = [(name, domain_size, epsilon, dict[str, Any]()) for name, domain_size, epsilon in MADE] + CHOSEN
NOISES = 6
DOMAINS = (2, 3, 4, 5, 6, 8, 10, 16, 20, 32, 50, 100, 256, 500, 1000, 2048, 2049, 5000)
EPSILONS = ("0.1", "0.5", "1", "1.5", "2", "3", "4", "6")


class Script(Source):
    """Draws from a SHA-256 stream: the i-th draw compares, or takes modulo n, the digest of "seed/i" as a big-endian number."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._draws = 0

    def _number(self) -> int:
        digest = sha256(f"{self._seed}/{self._draws}".encode()).digest()
        self._draws += 1
        return int.from_bytes(digest, "big")

    def bernoulli(self, num: int, den: int) -> bool:
        """Compare the digest, as a fraction of 2^256, with num / den."""
        return self._number() * den < num << 256

    def below(self, n: int) -> int:
        """Take the digest modulo n (all but exact, and for vectors only)."""
        return self._number() % n


def values_of(domain_size: int) -> list[int]:
    """All values of a small domain; some of a larger one, both ends among them."""
    return list(range(domain_size)) if domain_size <= 10 else [0, 1, domain_size // 2, domain_size - 2, domain_size - 1]


def mechanism_vectors() -> list[dict[str, Any]]:
    """Parameters, canonical text, responses to fixed noise, and what they support."""
    vectors = []
    for setting in MADE_SO:
        mechanism = mechanism_of(*setting)
        assert isinstance(mechanism, FrequencyOracle)
        vector = response_vector(mechanism, setting, {"p": str(mechanism.p), "q": str(mechanism.q)})
        listed = mechanism.domain_size <= 1 << 16  # nobody lists the values of a larger domain
        vector["supports"] = [sorted(mechanism.supported(payload)) for payload in last_payloads(vector)] if listed else []
        vectors.append(vector | ({"options": setting[3]} if setting[3] else {}))
    return vectors


def score_vectors() -> list[dict[str, Any]]:
    """Write down the same of mechanisms whose reports are scored, and the first scores of some responses."""
    vectors = []
    for setting in SCORED:
        mechanism = mechanism_of(*setting)
        assert isinstance(mechanism, Scored)
        vector = response_vector(mechanism, setting, {}) | {"options": setting[3]}
        vector["scores"] = [list(map(str, mechanism.scores(payload)[:8])) for payload in last_payloads(vector)]
        vectors.append(vector)
    return vectors


def mechanism_of(name: str, domain_size: int, epsilon: str, options: dict[str, Any]) -> mechanisms.Mechanism:
    """Make the mechanism of a vector."""
    return mechanisms.make(name, domain_size=domain_size, epsilon=epsilon, **options)


def response_vector(
    mechanism: mechanisms.Mechanism, setting: tuple[str, int, str, dict[str, Any]], claims: dict[str, str]
) -> dict[str, Any]:
    """Write down parameters, canonical text, and responses to fixed noise."""
    name, domain_size, epsilon, _ = setting
    layout, seed, values = mechanism.layout, f"{name} {domain_size} {epsilon}", values_of(domain_size)
    return {
        "mechanism": name,
        "domain_size": domain_size,
        "epsilon": epsilon,
        **claims,
        "ratio": str(mechanism.ratio),
        "spent": round(mechanism.epsilon, 12),  # the last digit of a logarithm differs between systems
        "layout": [layout.rows, layout.width, layout.kind],
        "payload_size": layout.payload_size,
        "canonical": mechanism.canonical,
        "seed": seed,
        "values": values,
        "responses": [
            {"noise": noise, "payloads": [mechanism.respond(value, noise).hex() for value in values]}
            for noise in mechanism.noise(Script(seed), NOISES)
        ],
    }


def last_payloads(vector: dict[str, Any]) -> list[bytes]:
    """Return the first two payloads of the last value."""
    return [bytes.fromhex(response["payloads"][-1]) for response in vector["responses"][:2]]


def auto_vectors() -> list[dict[str, Any]]:
    """Choices of auto over a grid, at the default limit and at a tight one."""
    return [
        {
            "domain_size": domain_size,
            "epsilon": epsilon,
            "max_bytes": limit,
            "canonical": mechanisms.make("auto", domain_size=domain_size, epsilon=epsilon, max_bytes=limit).canonical,
        }
        for limit in (256, 4)
        for domain_size in DOMAINS
        for epsilon in EPSILONS
    ]


def chosen_chain(domain_size: int, epsilon: str, permanent: str, limit: int) -> str | None:
    """Return what auto takes, or None where it refuses to choose."""
    try:
        choice = mechanisms.choose(domain_size=domain_size, epsilon=epsilon, max_bytes=limit, permanent=permanent)
    except ParameterError:
        return None
    return choice.mechanism.canonical


def permanent_vectors() -> dict[str, Any]:
    """Both steps of permanent mechanisms, drawn from `Script`, and choices of auto where permanent responses are kept."""
    steps = []
    for name, domain_size, epsilon, options in PERMANENT:
        mechanism = mechanisms.make(name, domain_size=domain_size, epsilon=epsilon, **options)
        assert isinstance(mechanism, Permanent)
        responses = []
        for number, value in enumerate(values_of(domain_size)):
            seed = f"{name} {domain_size} {epsilon} {number}"
            source, row = Script(seed), number % mechanism.layout.rows
            memoised = mechanism.respond_permanently(row, value, source)
            reports = [mechanism.respond_instantly(row, memoised, source).hex() for _ in range(2)]
            responses.append(
                {
                    "seed": seed,
                    "row": row,
                    "value": value,
                    "response_key": mechanism.response_key(row, value),
                    "kept": mechanism.layout.pack(row, memoised).hex(),
                    "reports": reports,
                }
            )
        steps.append(
            {
                "mechanism": name,
                "domain_size": domain_size,
                "epsilon": epsilon,
                "options": options,
                "permanent_ratio": str(mechanism.permanent_ratio),
                "kept_responses": mechanism.kept_responses,
                "drawn": responses,
            }
        )
    auto = [
        {
            "domain_size": domain_size,
            "epsilon": epsilon,
            "permanent": permanent,
            "max_bytes": limit,
            "canonical": chosen_chain(domain_size, epsilon, permanent, limit),
        }
        for limit in (256, 4)
        for domain_size in DOMAINS
        for epsilon, permanent in (("0.5", "0.5"), ("1", "2"), ("2", "8"), ("4", "8"))
    ]
    return {"steps": steps, "auto": auto}


METRICS = [
    Metric(id="ui.theme", type="categorical", values=("light", "dark", "system"), epsilon="1.0", segments=("platform",)),
    Metric(
        id="ui.theme", type="categorical", values=("light", "dark", "system"), epsilon="1.0", segments=("platform",), version=2
    ),
    Metric(id="ui.dark", type="boolean", values=(False, True), epsilon="1.0986122886681098", mechanism="coin"),
    Metric(
        id="age", type="ordinal", values=("young", "älter", "\u2028 \U0001f9d3"), epsilon="0.5", period="month", mechanism="oue"
    ),
]


NUMBERS: list[dict[str, Any]] = [
    *({"range": ("0", "1000"), "estimate": "mean", "epsilon": epsilon} for epsilon in EPSILONS),
    *({"range": ("1", "60000"), "estimate": "distribution", "scale": "log", "epsilon": epsilon} for epsilon in EPSILONS),
    {"range": ("-2.5", "10"), "estimate": "mean", "epsilon": "1", "epsilon_permanent": "2"},
    {"range": ("0", "100"), "estimate": "distribution", "epsilon": "1", "epsilon_permanent": "3"},
    {"range": ("0", "4294967296"), "estimate": "mean", "epsilon": "1"},
    {"range": ("0", "1e-9"), "estimate": "mean", "epsilon": "1"},
]
ANSWERS = [-1, 0, 1, 3.7, 412, 59_999, 1e-10, 1e12]


def number_vectors() -> list[dict[str, Any]]:
    """Write down the mechanisms and fingerprints of numbers, and the positions of some."""
    vectors = []
    for setting in NUMBERS:
        metric = Metric(id="n", type="number", values=(), unit="ms", **setting)
        canonical = mechanisms.of(metric).canonical
        positions = [metric.position(answer) for answer in ANSWERS]
        tag = fingerprint(metric, canonical)
        vectors.append({**setting, "canonical": canonical, "fingerprint": tag, "answers": ANSWERS, "positions": positions})
    return vectors


def report_vectors() -> dict[str, Any]:
    """Fingerprints of metrics, and the body of a batch."""
    tags = [
        {
            "id": metric.id,
            "version": metric.version,
            "type": metric.type,
            "values": metric.values,
            "epsilon": metric.epsilon,
            "mechanism": metric.mechanism,
            "period": metric.period,
            "segments": metric.segments,
            "canonical": mechanisms.of(metric).canonical,
            "fingerprint": fingerprint(metric, mechanisms.of(metric).canonical),
        }
        for metric in METRICS
    ]
    strata = [
        Stratum("ui.theme", 1, tags[0]["fingerprint"], "2026-11-21", "platform=linux"),
        Stratum("ui.theme", 1, tags[0]["fingerprint"], "2026-11-21", "platform=macos"),
        Stratum("age", 1, tags[3]["fingerprint"], "2026-11", ""),
    ]
    reports = [(0, "00"), (0, "02"), (2, "05"), (1, "01"), (0, "01"), (2, "00")]
    body = encode("shop", (Report(strata[i], bytes.fromhex(payload)) for i, payload in reports))
    return {"fingerprints": tags, "strata": [list(s) for s in strata], "reports": reports, "body": body.decode()}


REFUSED = [
    ([1, 3, "index"], "03", "index_range"),
    ([1, 3, "index"], "ff", "index_range"),
    ([1, 3, "index"], "", "payload_length"),
    ([1, 3, "index"], "0000", "payload_length"),
    ([25, 5, "index"], "7d", "index_range"),
    ([1, 256, "index"], "0001", "payload_length"),
    ([1, 257, "index"], "0101", "index_range"),
    ([1, 257, "index"], "00", "payload_length"),
    ([1, 3, "bits"], "08", "padding_bits"),
    ([1, 3, "bits"], "80", "padding_bits"),
    ([1, 3, "bits"], "", "payload_length"),
    ([1, 8, "bits"], "0000", "payload_length"),
    ([1, 9, "bits"], "0002", "padding_bits"),
    ([3, 9, "bits"], "030000", "row_range"),
    ([3, 9, "bits"], "03ffff", "row_range"),
    ([3, 9, "bits"], "020002", "padding_bits"),
    ([300, 4, "bits"], "2c0100", "row_range"),
]
TAKEN = [
    ([1, 3, "index"], "02", 0, 2),
    ([25, 5, "index"], "7c", 24, 4),
    ([1, 257, "index"], "0001", 0, 256),
    ([3481, 59, "index"], "ff0103", 3341, 0),
    ([1, 3, "bits"], "05", 0, 5),
    ([1, 9, "bits"], "ff01", 0, 511),
    ([3, 9, "bits"], "020100", 2, 1),
    ([300, 4, "bits"], "2b010f", 299, 15),
]


def layout_vectors() -> dict[str, Any]:
    """Payloads that must be refused, with their codes, and some that must be taken. Written by hand."""
    return {
        "refused": [{"layout": layout, "payload": payload, "code": code} for layout, payload, code in REFUSED],
        "taken": [
            {"layout": layout, "payload": payload, "row": row, "content": content} for layout, payload, row, content in TAKEN
        ],
    }


def documents() -> dict[str, str]:
    """Return the text of each file, by its name."""
    written = {
        "mechanisms.json": mechanism_vectors(),
        "scores.json": score_vectors(),
        "numbers.json": number_vectors(),
        "auto.json": auto_vectors(),
        "permanent.json": permanent_vectors(),
        "reports.json": report_vectors(),
        "layouts.json": layout_vectors(),
    }
    return {name: json.dumps(content, indent=1) + "\n" for name, content in written.items()}


if __name__ == "__main__":
    for name, text in documents().items():
        (HERE / name).write_text(text, "utf-8")
