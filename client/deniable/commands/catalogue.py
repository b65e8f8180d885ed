"""The catalogue of subcommands: what each is for, which extra brings it, and examples, before any of them is imported."""

from __future__ import annotations

from deniable.frozen import NamedTuple


class CommandInfo(NamedTuple):
    """What is known of a subcommand."""

    summary: str  # what it does, in a line
    extra: str  # the smallest extra that brings all it needs; empty where the base install does
    examples: tuple[str, ...]  # command lines, at least one for each of its actions
    actions: tuple[str, ...] = ()  # of a command that also runs without any; else the examples say them


NOT_ON_WINDOWS = frozenset({"demo", "serve"})
"""These start processes that Windows cannot run, whatever is installed."""

_HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_STORE = "--redis-url redis://localhost --app shop"

CATALOGUE: dict[str, CommandInfo] = {
    "account": CommandInfo(
        "add up what a device gives away, and say which sum to quote",
        "aggregator",
        (
            "deniable account metrics.toml",
            "deniable account metrics.toml --metric ui.theme --days 365",
            "deniable account --epsilon 1 --reports 365 --epsilon-permanent 2",
            "deniable account --epsilon 1 --reports 30 --crowd 1000",
            "deniable account --gaussian 10 --sensitivity 1 --queries 100 --delta 1e-5",
        ),
    ),
    "attack": CommandInfo(
        "simulate an attacker who guesses people's answers",
        "aggregator",
        (
            "deniable attack averaging",
            "deniable attack averaging --mechanism l_grr --epsilon 1 --plot averaging.svg",
            "deniable attack differencing --people 500 --epsilon 1",
            "deniable attack linkage --story voters --people 2000",
        ),
    ),
    "audit": CommandInfo(
        "find a lower bound for the epsilon of any randomizer",
        "aggregator",
        ("deniable audit app:randomize --epsilon 1", "deniable audit app:randomize --epsilon 1 --inputs dark,light --calls 1e6"),
    ),
    "audit-log": CommandInfo(
        "show and verify the audit log, and move old entries to files",
        "aggregator",
        (
            f"deniable audit-log verify {_STORE} --files audit --anchor 120:{_HASH}",
            f"deniable audit-log list {_STORE} --json",
            f"deniable audit-log head {_STORE}",
            f"deniable audit-log rotate {_STORE} --to audit --older-than 30 --retain 400",
            f"deniable audit-log restored {_STORE} --files audit",
        ),
    ),
    "backup": CommandInfo(
        "copy a running store into a file",
        "aggregator",
        ("deniable backup --to copies", "deniable backup --redis-url redis://localhost --to copies --keep-days 7"),
    ),
    "conformance": CommandInfo(
        "check a client in any language against the wire specification",
        "",
        ("deniable conformance node adapter.js", "deniable conformance --level 1 -- ./adapter --quiet"),
    ),
    "dead-letters": CommandInfo(
        "list batches that could not be counted, and try again",
        "aggregator",
        (
            f"deniable dead-letters list {_STORE}",
            f"deniable dead-letters show 1760000000000-0 {_STORE}",
            f"deniable dead-letters requeue --all {_STORE}",
            f"deniable dead-letters purge 1760000000000-0 {_STORE}",
        ),
    ),
    "demo": CommandInfo(
        "run real devices and processes, and compare with the truth",
        "demo",
        ("deniable demo", "deniable demo --relay", "deniable demo --input people.csv --column browser --devices 5000 --keep"),
    ),
    "divide": CommandInfo(
        "divide an app over a cluster, before its first upload",
        "aggregator",
        (f"deniable divide {_STORE} --into 3",),
    ),
    "doctor": CommandInfo(
        "check settings or a running service, and say what to do",
        "ingest",
        ("deniable doctor --settings", "deniable doctor", "deniable doctor --data data"),
    ),
    "erase": CommandInfo(
        "delete all data of a metric or an app from the store",
        "aggregator",
        (
            f"deniable erase {_STORE} --metric ui.theme",
            f"deniable erase {_STORE} --metric ui.theme --version 1 --yes",
            f"deniable erase {_STORE}",
        ),
    ),
    "explain": CommandInfo(
        "say in words what a metric sends, and with what probabilities",
        "",
        ("deniable explain ui.theme", "deniable explain ui.theme dark --registry metrics.toml"),
    ),
    "init": CommandInfo(
        "write a first metrics.toml, and say what to do next",
        "",
        (
            "deniable init",
            "deniable init --app shop --trial",
            "deniable init --app shop --cli",
            "deniable init --app shop --file shop.toml",
        ),
    ),
    "keys": CommandInfo(
        "make, list and revoke the keys of an app",
        "ingest",
        (
            f"deniable keys create {_STORE} --role ingest --name 'release 2.4'",
            "deniable keys create --role read --epsilon 0.1 --name Zoë",
            "deniable keys list --data data --json",
            f"deniable keys revoke 3f9a1c {_STORE}",
        ),
    ),
    "plan": CommandInfo(
        "say what a number of users shows, or how many you need",
        "aggregator",
        (
            "deniable plan metrics.toml --users 1e5",
            "deniable plan --values 128 --epsilon 1 --users 1e5 --per-day 2000",
            "deniable plan --values 8 --epsilon 1 --within 0.02",
            "deniable plan --values 128 --users 20000 --within 0.02",
        ),
    ),
    "prove": CommandInfo(
        "prove each mechanism's privacy by walking every draw it can make",
        "",
        (
            "deniable prove",
            "deniable prove grr oue --domain-size 3 4 --epsilon 1 2",
            "deniable prove window --domain-size 6 --option blocks=2 --option length=3",
        ),
    ),
    "publish": CommandInfo(
        "publish counted reports that are due",
        "aggregator",
        (f"deniable publish {_STORE} --registry metrics.toml",),
    ),
    "query": CommandInfo(
        "ask a server for the published results of a metric",
        "",
        (
            "deniable query",
            "deniable query ui.theme",
            "deniable query ui.theme --by platform --last 90d",
            "deniable query ui.theme --range 2026-10 --compare platform=linux",
            "deniable query ui.theme --by time --csv",
            "deniable query ui.theme --withheld 2026-11-20 --where platform=beos --epsilon 0.1",
        ),
    ),
    "rappor": CommandInfo(
        "decode what a google/rappor deployment has collected",
        "aggregator",
        (
            "deniable rappor decode --params params.csv --counts counts.csv --map map.csv",
            "deniable rappor count --params params.csv --reports reports.csv --out counts.csv",
            "deniable rappor map --params params.csv --candidates candidates.txt --out map.csv",
            "deniable rappor associate --reports r.csv --variable page p.csv pages.txt --variable premium q.csv -",
        ),
    ),
    "relay": CommandInfo(
        "mix sealed reports for another organisation's server",
        "relayserver",
        (
            "deniable relay --registry metrics.toml --server https://telemetry.example.org --data /var/lib/relay",
            "deniable relay doctor --data /var/lib/relay",
        ),
        actions=("doctor",),
    ),
    "recount": CommandInfo(
        "count the reports of an archive again, and compare the tallies",
        "archive",
        (
            f"deniable recount {_STORE} --archive /var/lib/deniable/archive",
            f"deniable recount {_STORE} --archive s3://bucket/reports --metric plugin --executor dask://scheduler:8786",
        ),
    ),
    "registry": CommandInfo(
        "check a metrics.toml, compare two, or sign one for devices",
        "",
        (
            "deniable registry lint metrics.toml",
            "deniable registry diff published metrics.toml",
            "deniable registry publish metrics.toml published",
            "deniable registry show metrics.toml --json",
            "deniable registry lint metrics.toml --users 1e5",
            "deniable registry keygen --out key.pem",
            "deniable registry keygen --sealing 1 --out seal.pem",
            "deniable registry sign metrics.toml --against shop/metrics.toml --key key.pem",
            "deniable registry verify metrics.signed.json --public-key PUBLIC_KEY",
        ),
    ),
    "report": CommandInfo(
        "write what a privacy reviewer needs to know",
        "server",
        ("deniable report privacy --registry metrics.toml --output report.html",),
    ),
    "sent": CommandInfo(
        "show what this device has sent, and how much still waits",
        "",
        ("deniable sent", "deniable sent ~/.local/state/deniable/shop --json"),
    ),
    "serve": CommandInfo(
        "run a server, its pages, a store and a worker on this machine",
        "serve",
        ("deniable serve", "deniable serve --registry metrics.toml --bind 0.0.0.0:8080 --data data"),
    ),
    "simulate": CommandInfo(
        "measure errors without devices, or send simulated reports",
        "aggregator",
        (
            "deniable simulate metrics.toml --users 1e9",
            "deniable simulate metrics.toml --users 1e6 --shares shares.csv --seed 1 --plot errors.svg",
            "deniable simulate metrics.toml --send --devices 20000 --days 90",
            "deniable simulate metrics.toml --send --csv people.csv --truth truth.csv --data data",
        ),
    ),
    "status": CommandInfo(
        "show how much waits to be counted, and whether workers run",
        "aggregator",
        ("deniable status", "deniable status --data data", f"deniable status {_STORE} --json"),
    ),
    "worker": CommandInfo(
        "count reports from the stream into tallies",
        "aggregator",
        ("deniable worker --redis-url redis://localhost --registry metrics.toml",),
    ),
}
"""By name; a command that another package brings stands in no catalogue."""

GROUPS: dict[str, tuple[str, ...]] = {
    "first steps": ("demo", "init", "serve"),
    "for your app": ("plan", "registry", "explain", "sent", "query"),
    "run the service": (
        "status",
        "doctor",
        "keys",
        "publish",
        "worker",
        "dead-letters",
        "relay",
        "backup",
        "erase",
        "recount",
        "audit-log",
        "divide",
    ),
    "review and research": ("report", "account", "prove", "conformance", "audit", "attack", "simulate", "rappor"),
}
"""The commands in the order of the help, the most needed first."""


def actions() -> dict[str, list[str]]:
    """Return the commands that have each action, such as ``lint``. The examples tell them: each names its action first."""
    commands: dict[str, list[str]] = {}
    for name, entry in CATALOGUE.items():
        seconds = [f"{example} ".split(" ")[2] for example in entry.examples]
        always = dict.fromkeys(seconds) if all(second.isalpha() for second in seconds) else ()
        for action in entry.actions or always:
            commands.setdefault(action, []).append(name)
    return commands
