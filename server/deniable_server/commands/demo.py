"""The subcommand ``demo``: its options, which need nothing to be installed."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from deniable_server.commands.needed import require

if TYPE_CHECKING:
    from deniable.commands.parser import Run


_DEVICES, _DEVICES_MIXED = 100_000, 10_000


def demo(parser: argparse.ArgumentParser) -> Run:
    """``deniable demo [--web] [--devices N] [--epsilon E] [--input FILE --column NAME ...]``."""
    parser.add_argument("--web", action="store_true", help="instead, a page that asks you, among 2,000 simulated people")
    about = "have a relay mix the reports; it waits for the end of a period, so this takes up to ten minutes"
    parser.add_argument("--relay", action="store_true", help=about)
    about = "devices that answer (default 100000; with --relay 10000)"
    parser.add_argument("--devices", type=int, metavar="N", help=about)
    about = "privacy loss of each answer in nats (default 1; with --relay 3)"
    parser.add_argument("--epsilon", metavar="E", help=about)
    parser.add_argument("--input", metavar="FILE.csv", help="your own data, one device a row")
    parser.add_argument("--column", nargs="+", action="extend", default=[], metavar="NAME", help="columns of --input to ask for")
    parser.add_argument("--string", nargs="+", action="extend", default=[], metavar="NAME", help="columns to ask for as strings")
    parser.add_argument("--seed", type=int, default=2013, help="which devices are picked; the noise is never repeatable")
    parser.add_argument("--redis-url", metavar="URL", help="store to use (default: one of our own)")
    parser.add_argument("--port", type=int, help="port of the server on this machine (default: a free one)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--all", action="store_true", help="show every value, not only the most frequent")
    parser.add_argument("--year", action=argparse.BooleanOptionalAction, default=True, help="have the second act: a year of days")
    about = "leave the page up until Ctrl-C, or not (default: in a terminal)"
    parser.add_argument("--keep", action=argparse.BooleanOptionalAction, help=about)
    return _run


def _run(arguments: argparse.Namespace) -> int:
    require("rich")
    if arguments.devices is None:
        arguments.devices = _DEVICES_MIXED if arguments.relay else _DEVICES
    arguments.epsilon = arguments.epsilon or ("3" if arguments.relay else "1")
    if arguments.web:
        from deniable_server.local.web import run as serve_page

        return serve_page(arguments)
    print("Reading what the devices will answer ...", file=sys.stderr, flush=True)
    from deniable_server.local.demo import run

    return run(arguments)
