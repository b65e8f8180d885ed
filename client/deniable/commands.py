"""Subcommands that need nothing but the SDK: ``registry``, ``explain`` and ``prove``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable import mechanisms, published
from deniable.caps import Caps
from deniable.errors import ConfigurationError, ParameterError, RegistryError
from deniable.explanation import Explanation
from deniable.lint import diff, lint
from deniable.proof import prove as proof_of
from deniable.registry import load, parse
from deniable.restrict import restricted
from deniable.signature import FILE, MAX_BYTES, Envelope, generate, seal
from deniable.wire import sheet

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from deniable.registry import Metric

    Run = Callable[[argparse.Namespace], int]

__all__ = ["explain", "prove", "registry"]


def registry(parser: argparse.ArgumentParser) -> Run:
    """``deniable registry lint | diff | publish | show | keygen | sign | verify``."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("lint", help="explain each fault of a registry with file, metric, rule and value")
    check.add_argument("files", nargs="+", metavar="FILE", help="or a folder of published registries")
    check.set_defaults(run=lambda given: max(_lint(file) for file in given.files))
    compare = actions.add_parser("diff", help="name what a change to a published registry would break")
    compare.add_argument("published", metavar="PUBLISHED", help="a file, or the folder of all that were published")
    compare.add_argument("proposed", metavar="PROPOSED")
    compare.set_defaults(run=lambda given: _diff(given.published, given.proposed))
    add = actions.add_parser("publish", help="add a registry to the folder of all that were published, if it breaks none of them")
    add.add_argument("file", metavar="FILE")
    add.add_argument("folder", metavar="FOLDER", help="made where there is none; DENIABLE_REGISTRY names it")
    add.set_defaults(run=lambda given: _publish(Path(given.file), Path(given.folder)))
    show = actions.add_parser("show", help="tell what a client in another language needs: fingerprints, layouts, constants")
    show.add_argument("file", nargs="?", default="metrics.toml", metavar="FILE", help="default: metrics.toml")
    show.add_argument("--json", action="store_true", help="all of it, as docs/wire.md explains")
    show.set_defaults(run=lambda given: _show(given.file, as_json=given.json))
    keys = actions.add_parser(
        "keygen", help="draw a key pair to sign registries with, and print the public key to pin in the app"
    )
    keys.add_argument("--out", required=True, metavar="FILE", help="where the private key goes; must not exist")
    keys.set_defaults(run=lambda given: _keygen(given.out))
    sign = actions.add_parser("sign", help="sign a registry that a server is to hand to devices")
    sign.add_argument("file", metavar="FILE")
    sign.add_argument("--key", required=True, metavar="FILE", help="private key, from keygen")
    sign.add_argument("--out", metavar="FILE", help="default: metrics.signed.json beside metrics.toml")
    sign.set_defaults(run=lambda given: _sign(Path(given.file), given.key, given.out))
    verify = actions.add_parser("verify", help="check a signed registry as devices do")
    verify.add_argument("file", metavar="FILE")
    verify.add_argument("--public-key", required=True, metavar="KEY", help="as pinned in the app")
    verify.add_argument("--against", metavar="FILE", help="the metrics.toml that the app brings along")
    verify.set_defaults(run=lambda given: _verify(given.file, given.public_key, given.against))

    def run(arguments: argparse.Namespace) -> int:
        status: int = arguments.run(arguments)
        return status

    return run


def _lint(path: str) -> int:
    """Check a file, or each of a folder and then all of them together."""
    found = published.files(path)
    if max(_lint_file(str(file)) for file in found):
        return 1
    try:
        published.load(path)
    except RegistryError as error:
        for fault in error.faults:
            print(f"error: {fault}")
        return 1
    return 0


def _lint_file(file: str) -> int:
    found = lint(file)
    for fault in found.faults:
        print(f"error: {fault}")
    for warning in found.warnings:
        print(f"warning: {warning}")
    for note in found.notes:
        print(f"{file}: {note}")
    print(f"{file}: {len(found.faults)} errors, {len(found.warnings)} warnings")
    return 1 if found.faults else 0


def _diff(before: str, proposed: str) -> int:
    changes = diff(published.load(before), load(proposed))
    for change in changes:
        print(change)
    breaking = sum(change.breaking for change in changes)
    print(f"{len(changes)} changes, {breaking} breaking")
    return 1 if breaking else 0


def _publish(file: Path, folder: Path) -> int:
    """Add a registry to a folder, unless it has faults, breaks what is published, or is the last one again."""
    if _lint_file(str(file)):
        return 1
    earlier = published.files(folder) if any(folder.glob("*.toml")) else []
    if earlier and earlier[-1].read_bytes() == file.read_bytes():
        print(f"{file} is published already: {earlier[-1]}")
        return 0
    if earlier and _diff(str(folder), str(file)):
        print("nothing was published: mend what is BREAKING")
        return 1
    print(f"published as {published.add(file, folder)}; start the server and the worker anew with DENIABLE_REGISTRY={folder}")
    return 0


def _show(file: str, *, as_json: bool) -> int:
    written = sheet(load(file))
    if as_json:
        print(json.dumps(written, indent=2))
        return 0
    for id_, metric in written["metrics"].items():
        layout = metric["layout"]
        shape = f"{layout['rows']} x {layout['width']} {layout['kind']}, {layout['payload_bytes']} bytes"
        print(f"{id_} version {metric['version']}: {metric['fingerprint']}, {metric['mechanism']}, {shape}")
    return 0


def _keygen(out: str) -> int:
    private, public = generate()
    try:
        with os.fdopen(os.open(out, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(private)
    except OSError as error:
        raise ConfigurationError(f"the key cannot be written to a new file: {error}") from None
    print(public)
    return 0


def _sign(file: Path, key: str, out: str | None) -> int:
    if _lint(str(file)):
        return 1
    text = _read(str(file)).decode()  # not as text, which would change the ends of lines
    revision = parse(text, str(file)).revision
    if not revision:
        print(f"error: {file}: -: a registry that is served has a revision, raised with every publication; got none")
        return 1
    envelope, public = seal(text, _read(key))
    written = envelope.write()
    if len(written) > MAX_BYTES:
        print(f"error: {file}: -: an envelope has at most {MAX_BYTES} bytes; got {len(written)}")
        return 1
    target = Path(out) if out else file.with_suffix(".signed.json")
    try:
        target.write_bytes(written)
    except OSError as error:
        raise ConfigurationError(f"the envelope cannot be written: {error}") from None
    print(f"{target}: revision {revision}, SHA-256 of the text {envelope.digest}, public key {public}")
    return 0


def _verify(file: str, public_key: str, against: str | None) -> int:
    try:
        envelope = Envelope.read(_read(file))
        if envelope is None:
            print(f"error: {file}: this is no envelope")
            return 1
        envelope.verify(public_key)
        served = parse(envelope.text, FILE)
        if not served.revision:
            print(f"error: {file}: a registry that is served has a revision; got none")
            return 1
        if against:
            restricted(load(against), served)
    except RegistryError as error:
        for fault in error.faults:
            print(f"error: {fault}")
        return 1
    print(f"{file}: revision {served.revision} of {served.app}, SHA-256 of the text {envelope.digest}")
    return 0


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"a file cannot be read: {error}") from None


def explain(parser: argparse.ArgumentParser) -> Run:
    """``deniable explain METRIC [ANSWER] [--registry FILE]``."""
    parser.add_argument("metric", metavar="METRIC")
    parser.add_argument("answer", nargs="?", metavar="ANSWER", help="to draw an example of a report for; a product's with commas")
    parser.add_argument("--registry", default="metrics.toml", metavar="FILE", help="default: metrics.toml")

    def run(arguments: argparse.Namespace) -> int:
        declared = load(arguments.registry)
        if arguments.metric not in declared.metrics:
            raise ParameterError(f"a metric of {arguments.registry} is one of {', '.join(declared.metrics)}", arguments.metric)
        answer = None if arguments.answer is None else _answer(declared.metrics[arguments.metric], arguments.answer)
        print(Explanation.of(declared, arguments.metric, Caps().tightened(declared.budget), answer))
        return 0

    return run


def _answer(metric: Metric, written: str) -> object:
    """Read an answer; what is none stays a text, which the metric will refuse."""
    if metric.type == "boolean":
        return {"yes": True, "true": True, "no": False, "false": False}.get(written.lower(), written)
    if metric.type == "key":
        return int(written) if written.isdecimal() else written
    return written.split(",") if metric.type == "product" else written


def prove(parser: argparse.ArgumentParser) -> Run:
    """``deniable prove [MECHANISM...] [--domain-size D] [--epsilon E] [--option NAME=VALUE]``."""
    parser.add_argument("mechanisms", nargs="*", metavar="MECHANISM", help=f"by default all: {', '.join(mechanisms.names())}")
    parser.add_argument("--domain-size", type=int, nargs="+", default=[2, 3, 4, 5], metavar="D", help="small; default 2 3 4 5")
    parser.add_argument("--epsilon", nargs="+", default=["0.5", "1", "2"], metavar="E", help="nats; default 0.5 1 2")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the mechanism, e.g. rows=8")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each proof")

    def run(arguments: argparse.Namespace) -> int:
        options = dict(map(_option, arguments.option))
        verdicts = [
            _prove(name, domain_size, epsilon, options, as_json=arguments.json)
            for name in arguments.mechanisms or mechanisms.names()
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
        if name in ("coin", "binary"):  # these exist for two values, and the coin for ln 3, only
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
