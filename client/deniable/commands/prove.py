"""``deniable prove``: walk every draw that a mechanism can make."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from deniable import mechanisms
from deniable.errors import ConfigurationError, ParameterError
from deniable.exact.epsilon import exact
from deniable.proof import prove as proof_of

if TYPE_CHECKING:
    import argparse

    from deniable.commands.parser import Run

_ALL = mechanisms.provable()


def prove(parser: argparse.ArgumentParser) -> Run:
    """``deniable prove [MECHANISM...] [--domain-size D] [--epsilon E] [--option NAME=VALUE]``."""
    parser.add_argument("mechanisms", nargs="*", metavar="MECHANISM", help=f"by default all: {', '.join(_ALL)}")
    parser.add_argument("--domain-size", type=int, nargs="+", default=[2, 3, 4, 5], metavar="D", help="small; default 2 3 4 5")
    parser.add_argument("--epsilon", nargs="+", default=["0.5", "1", "2"], metavar="E", help="nats; default 0.5 1 2")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the mechanism, e.g. rows=8")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each proof")

    def run(arguments: argparse.Namespace) -> int:
        options = dict(map(_option, arguments.option))
        for name in arguments.mechanisms:
            if name not in mechanisms.every():
                raise ConfigurationError(f"{name!r} is no mechanism: write one of {', '.join(_ALL)}")
        for epsilon in arguments.epsilon:
            exact(epsilon)  # one that is none is refused once, not for each mechanism
        verdicts = [
            _prove(name, domain_size, epsilon, options, as_json=arguments.json)
            for name in arguments.mechanisms or _ALL
            for domain_size in arguments.domain_size
            for epsilon in arguments.epsilon
        ]
        if verdicts.count(None) == len(verdicts):
            print("nothing was proved: no such mechanism exists for these domain sizes and epsilons", file=sys.stderr)
        return 0 if True in verdicts and False not in verdicts else 1

    return run


def _option(written: str) -> tuple[str, Any]:
    name, _, value = written.partition("=")
    return name, int(value) if value.isdecimal() else value


def _prove(name: str, domain_size: int, epsilon: str, options: dict[str, Any], *, as_json: bool) -> bool | None:
    """Prove one mechanism; None where it does not exist for this domain and epsilon."""
    try:
        mechanism = mechanisms.make(name, domain_size=domain_size, epsilon=epsilon, **options)
    except ParameterError as error:
        if not mechanisms.any_size(name):
            return None
        print(f"{name} d={domain_size} epsilon={epsilon}: {error}")
        return False
    proof = proof_of(mechanism)
    if as_json:
        record = {"mechanism": name, "domain_size": domain_size, "asked": epsilon, "epsilon": proof.epsilon}
        record |= {"ratio": str(proof.ratio), "outputs": proof.outputs, "faults": proof.faults}
        if proof.permanent is not None:
            record |= {"permanent_ratio": str(proof.permanent), "epsilon_permanent": proof.epsilon_permanent}
        print(json.dumps(record))
    else:
        verdict = "proved" if proof.holds else "; ".join(proof.faults)
        if proof.permanent is not None:
            verdict = f"permanent {proof.epsilon_permanent:.10f}: {verdict}"
        print(
            f"{name:<11} d={domain_size} asked {epsilon}: exact epsilon {proof.epsilon:.10f}, {proof.outputs} payloads: {verdict}"
        )
    return proof.holds
