"""What sealing a report for a relay costs a device, in CPU time of one run.

    python benchmarks/sealing.py
    python benchmarks/sealing.py --seals 20000

seal      one report, as the sending thread does it, with what it is bound to. Below 120 microseconds on a quiet machine
agree     what no sealing can do without: a new X25519 key pair and one agreement, by the same library. The ratio to it does not
          depend on the machine; at 3 times or more the benchmark fails
"""

from __future__ import annotations

import argparse
import sys
from time import process_time
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from deniable.wire.report import Report, Stratum
from deniable.wire.sealing import LONGER, Sealer

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 5
MOST = 3.0


def best(call: Callable[[], object], number: int) -> float:
    """Return the CPU time of a call in microseconds: that of the best round, since others are disturbed."""
    times = []
    for _ in range(ROUNDS):
        start = process_time()
        for _ in range(number):
            call()
        times.append((process_time() - start) / number)
    return 1e6 * min(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seals", type=int, default=4000, metavar="N", help="of each round")
    seals = parser.parse_args().seals
    public = X25519PrivateKey.generate().public_key()
    stratum = Stratum("ui.theme", 1, "b3efbd07dae03e5b", "2026-W47", "platform=linux,version=2.4")
    report, sealer = Report(stratum, b"\2\1"), Sealer("shop", 1, public.public_bytes_raw())
    sealer.prepare()
    seal = best(lambda: sealer(report), seals)
    agree = best(lambda: X25519PrivateKey.generate().exchange(public), seals)
    print(f"seal: {seal:.0f} us, {LONGER} bytes more than the payload")
    print(f"agree: {agree:.0f} us; sealing takes {seal / agree:.2f} times that")
    return int(seal / agree >= MOST)


if __name__ == "__main__":
    sys.exit(main())
