"""``deniable conformance``: whether a client in any language does what the wire specification says."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from deniable.conformance.scripts import LEVELS

if TYPE_CHECKING:
    import argparse

    from deniable.commands.parser import Run


def conformance(parser: argparse.ArgumentParser) -> Run:
    """``deniable conformance [--level N] COMMAND [ARGUMENT...]``."""
    about = "put only the scripts up to this level; by default all, whatever the client claims"
    parser.add_argument("--level", type=int, choices=list(LEVELS), metavar="N", help=about)
    about = "what starts the client's test adapter, which answers lines of JSON; its options after --"
    parser.add_argument("adapter", nargs="+", metavar="COMMAND", help=about)

    def run(arguments: argparse.Namespace) -> int:
        from deniable.conformance.run import run as put

        outcome = put(arguments.adapter, arguments.level)
        for failure in outcome.failures:
            print(failure, file=sys.stderr)
        for line in outcome.lines():
            print(line)
        return 0 if outcome.conforms else 1

    return run
