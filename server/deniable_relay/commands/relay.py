"""The subcommand ``relay``: its options, the process, and its doctor."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from deniable.commands.parser import Run
    from deniable_relay.settings import Settings


def relay(parser: argparse.ArgumentParser) -> Run:
    """``deniable relay --registry metrics.toml --server https://telemetry.example.org``: mix sealed reports, and forward them."""
    parser.add_argument(
        "--registry", metavar="FILE", help="metrics.toml of the app (default: DENIABLE_RELAY_REGISTRY, metrics.toml)"
    )
    parser.add_argument("--server", metavar="URL", help="server to forward to (default: DENIABLE_RELAY_SERVER)")
    parser.add_argument("--data", metavar="DIR", help="folder of what waits (default: DENIABLE_RELAY_DATA, relay)")
    parser.add_argument("--bind", metavar="HOST:PORT", help="default: DENIABLE_RELAY_BIND, 127.0.0.1:8090")
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    about = "check folder, process, server and what waits, without changing it"
    doctor = actions.add_parser("doctor", help=about)
    doctor.add_argument("--json", action="store_true", help="for programs: one JSON object for each finding, by line")

    def run(arguments: argparse.Namespace) -> int:
        from deniable_relay.settings import Settings

        options = {name: getattr(arguments, name) for name in ("registry", "server", "data", "bind")}
        if arguments.action == "doctor":
            return _examine(Settings.of(options), as_json=arguments.json)
        from deniable_relay.process import serve  # first of all: what is not installed is more than what is not set

        settings = Settings.of(options)
        print(f"Relay: http://{settings.bind}, forwards to {settings.server}. Ctrl-C stops it.", file=sys.stderr, flush=True)
        serve(settings)
        return 0

    return run


def _examine(settings: Settings, *, as_json: bool) -> int:
    """Check the relay; return 1 if a fault was found."""
    from deniable.commands.findings import print_all, print_line
    from deniable_relay.doctor import examine

    findings = []
    for finding in examine(settings):
        findings.append(finding)
        if as_json:
            print_line(finding)
    if not as_json:
        print_all(findings)
    return int(any(each.status == "fault" for each in findings))
