"""``deniable registry``: check, compare, publish, show and sign registries."""

from __future__ import annotations

import argparse
import json
import os
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from operator import attrgetter
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from deniable.commands.parser import REGISTRY
from deniable.commands.sheet import sheet
from deniable.commands.terminal import print_table
from deniable.errors import ConfigurationError, ParameterError, RegistryError
from deniable.forecast import space
from deniable.lint import lint
from deniable.messages.plural import plural
from deniable.registry import load, published, read, refusal
from deniable.registry.comparison import diff
from deniable.served_registry.derivation import derived
from deniable.served_registry.restrictions import Restriction
from deniable.served_registry.signature import MAX_BYTES, Envelope, generate, seal
from deniable.wire import sealing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date

    from deniable.commands.parser import Run
    from deniable.lint import Lint, Note
    from deniable.registry import Registry

_SIGNED = "metrics.signed.json"
_DEFAULT = f"default: {REGISTRY}"
_WIDTH = 100
_EARNED = (
    "// A new browser answers one question at first: it may spend as much as one report of the dearest metric, "
    "and earns the rest in 30 days."
)
"""What the person who tries a page should know, where there is more than one question."""


def registry(parser: argparse.ArgumentParser) -> Run:
    """``deniable registry lint | diff | publish | show | keygen | sign | verify``."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("lint", help="explain each fault of a registry with file, metric, rule and value")
    about = f"or a folder of published registries; default: {REGISTRY}"
    check.add_argument("files", nargs="*", default=[REGISTRY], metavar="FILE", help=about)
    about = "of the store, such as 512mb: warn if the sums of all metrics may not fit"
    check.add_argument("--maxmemory", metavar="BYTES", help=about)
    about = "people who report once a period, such as 1e5: refuse `shuffled` where they do not fill the pools of a relay"
    check.add_argument("--users", type=_users, metavar="N", help=about)
    check.set_defaults(run=_lint_all)
    compare = actions.add_parser("diff", help="name what a change to a published registry would break")
    compare.add_argument("published", metavar="PUBLISHED", help="a file, or the folder of all that were published")
    compare.add_argument("proposed", nargs="?", default=REGISTRY, metavar="PROPOSED", help=_DEFAULT)
    compare.set_defaults(run=lambda parsed: _compare(parsed.published, parsed.proposed))
    add = actions.add_parser("publish", help="add a registry to the folder of all that were published, if it breaks none of them")
    add.add_argument("file", nargs="?", default=REGISTRY, metavar="FILE", help=_DEFAULT)
    add.add_argument("folder", metavar="FOLDER", help="made where there is none; DENIABLE_REGISTRY names it")
    add.set_defaults(run=lambda parsed: _publish(Path(parsed.file), Path(parsed.folder)))
    show = actions.add_parser("show", help="tell what a client in another language needs: fingerprints, layouts, constants")
    show.add_argument("file", nargs="?", default=REGISTRY, metavar="FILE", help=_DEFAULT)
    show.add_argument("--json", action="store_true", help="all of it, as in https://deniable.github.io/deniable/reference/wire/")
    show.add_argument("--typescript", action="store_true", help="all of it, as a module for the package `deniable` of npm")
    show.add_argument("--script", action="store_true", help="all of it, as a script for a web page")
    show.set_defaults(run=_show)
    keys = actions.add_parser(
        "keygen", help="draw a key pair to sign registries with, and print the public key to pin in the app"
    )
    keys.add_argument("--out", required=True, metavar="FILE", help="where the private key goes; must not exist")
    about = "a key pair to seal reports with instead, of this number from 1 to 255; print the key of [relay]"
    keys.add_argument("--sealing", type=int, metavar="NUMBER", help=about)
    keys.set_defaults(run=lambda parsed: _keygen(parsed.out, parsed.sealing))
    sign = actions.add_parser("sign", help="sign what a metrics.toml turns off or down, for a server to hand to devices")
    sign.add_argument("file", nargs="?", default=REGISTRY, metavar="FILE", help=_DEFAULT)
    sign.add_argument("--against", required=True, metavar="FILE", help="the metrics.toml that the app brings along")
    sign.add_argument("--key", required=True, metavar="FILE", help="private key, from keygen")
    sign.add_argument("--out", metavar="FILE", help=f"default: {_SIGNED} beside {REGISTRY}")
    sign.add_argument(
        "--valid-for", metavar="DAYS", help="days for which a server may hand it to devices that have not had it, such as 30d"
    )
    sign.set_defaults(run=lambda parsed: _sign(Path(parsed.file), parsed))
    verify = actions.add_parser("verify", help="check a signed registry as devices do")
    verify.add_argument("file", nargs="?", default=_SIGNED, metavar="FILE", help=f"default: {_SIGNED}")
    verify.add_argument("--public-key", required=True, metavar="KEY", help="as pinned in the app")
    verify.add_argument("--against", metavar="FILE", help="the metrics.toml that the app brings along")
    verify.set_defaults(run=lambda parsed: _verify(parsed.file, parsed.public_key, parsed.against))

    def run(arguments: argparse.Namespace) -> int:
        status: int = arguments.run(arguments)
        return status

    return run


def _lint_all(arguments: argparse.Namespace) -> int:
    try:
        maxmemory = space.read(arguments.maxmemory) if arguments.maxmemory else None
    except ParameterError as error:
        raise ConfigurationError(f"--{error}") from None
    return max(_lint(file, maxmemory, arguments.users) for file in arguments.files)


def _users(written: str) -> int:
    try:
        number = Decimal(written)
        if number >= 1 and number == int(number):
            return int(number)
    except (InvalidOperation, ValueError, OverflowError):
        pass
    raise argparse.ArgumentTypeError(f"a number of people is needed, such as 100000 or 1e5, not {written!r}")


def _lint(path: str, maxmemory: int | None = None, users: int | None = None) -> int:
    """Check a file, or each of a folder and then all of them together; tell what they take in the store."""
    files = published.files(path)
    for file in files:
        read(file)  # what cannot be read is a wrong argument, not a finding
    if max(_print_findings(str(file), lint(file, users)) for file in files):
        return 1
    try:
        spaces = space.spaces(published.load(path))
    except RegistryError as error:
        for fault in error.faults:
            print(f"error: {fault}")
        return 1
    doubt = space.doubt(spaces, maxmemory) if maxmemory else None
    print(f"{path}: warning: {doubt}" if doubt else f"{path}: {space.summary(spaces)}")
    return 0


def _print_findings(file: str, findings: Lint) -> int:
    for note in findings.notes:
        _print_note(note)
    if findings.spending:
        print("\nWhat a device may give away, in nats:")
        print_table(findings.spending)
        for sentence in findings.legend:
            print(fill(sentence, _WIDTH))
        print()
    if findings.exposed:
        print(findings.exposed)
    return _print_faults(file, findings)


def _print_faults(file: str, findings: Lint, more: str = "") -> int:
    for fault in findings.faults:
        print(f"error: {fault}")
    for warning in findings.warnings:
        print(f"warning: {warning}")
    print(f"{file}: {plural(len(findings.faults), 'error')}, {plural(len(findings.warnings), 'warning')}{more}")
    return 1 if findings.faults else 0


def _print_note(note: Note) -> None:
    print(note.metric)
    width = max(map(len, note.facts))
    for about, words in note.facts.items():
        print(fill(words, _WIDTH, initial_indent=f"  {about:<{width}}  ", subsequent_indent=" " * (width + 4)))


def _compare(before: str, proposed: str) -> int:
    with suppress(OSError):  # said when it is read
        if Path(before).samefile(proposed):
            mended = f"name the published registry first, `deniable registry diff PUBLISHED {proposed}`"
            raise ConfigurationError(f"{proposed} is compared with itself: {mended}")
    return _diff(before, proposed)


def _diff(before: str, proposed: str, *, in_short: bool = False) -> int:
    changes = sorted(diff(published.load(before), load(proposed)), key=attrgetter("breaking"), reverse=True)
    breaking = sum(change.breaking for change in changes)
    worst = changes[:breaking] if in_short and breaking else changes
    for change in worst:
        print(change)
    more = f"; all of them: deniable registry diff {before} {proposed}" if len(worst) < len(changes) else ""
    print(f"{plural(len(changes), 'change')}, {breaking} breaking{more}")
    if breaking:
        print("reports of apps that have the published registry would be refused")
    return 1 if breaking else 0


def _publish(file: Path, folder: Path) -> int:
    """Add a registry to a folder, unless it has faults, breaks what is published, or is the last one again."""
    if folder.is_file() or (folder.suffix == ".toml" and not folder.is_dir()):
        meant = folder if str(file) == REGISTRY else file
        raise ConfigurationError(f"FOLDER is missing: write `deniable registry publish {meant} registries`")
    read(file)
    findings, all_of_lint = lint(str(file)), f"; more about each metric: deniable registry lint {file}"
    if findings.faults:
        return _print_faults(str(file), findings, all_of_lint)
    earlier = published.files(folder) if any(folder.glob("*.toml")) else []
    if earlier and earlier[-1].read_bytes() == file.read_bytes():
        print(f"{file} is published already: {earlier[-1]}")
        return 0
    if earlier and _diff(str(folder), str(file), in_short=True):
        print("nothing was published: mend what is BREAKING")
        return 1
    _print_faults(str(file), findings, all_of_lint)
    print(f"published as {published.add(file, folder)}; start the server and the worker anew with DENIABLE_REGISTRY={folder}")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    written = sheet(load(arguments.file))
    text = json.dumps(written, indent=2)
    name = Path(arguments.file).name
    earned = f"{_EARNED}\n" if len(written["metrics"]) > 1 else ""
    if arguments.typescript:
        # A constant, so that a misspelt metric or answer does not compile.
        print(f"// Written by: deniable registry show --typescript {name}\n{earned}export default {text} as const;")
        return 0
    if arguments.script:
        print(f"// Written by: deniable registry show --script {name}\n{earned}var registry = {text};")
        return 0
    if arguments.json:
        print(text)
        return 0
    for id_, metric in written["metrics"].items():
        layout = metric["layout"]
        shape = f"{layout['rows']} x {layout['width']} {layout['kind']}, {plural(layout['payload_bytes'], 'byte')}"
        print(f"{id_} version {metric['version']}: {metric['fingerprint']}, {metric['mechanism']}, {shape}")
    return 0


def _keygen(out: str, number: int | None) -> int:
    if number is not None and not 1 <= number <= sealing.MOST_KEYS:
        raise ConfigurationError(f"--sealing {number}: number keys from 1 to {sealing.MOST_KEYS}")
    if number is not None and (lack := sealing.lacking()):
        raise ConfigurationError(f"no key can be drawn: {lack}")
    private, public = generate() if number is None else sealing.generate(number)
    try:
        with os.fdopen(os.open(out, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(private)
    except FileExistsError:
        raise ConfigurationError(f"{out} is there already, and is left alone; name a new file") from None
    except OSError as error:
        raise ConfigurationError(f"{out} cannot be written: {error.strerror}") from None
    print(public)
    return 0


def _sign(file: Path, arguments: argparse.Namespace) -> int:
    until = _until(arguments.valid_for) if arguments.valid_for else None
    if _lint(str(file)):
        return 1
    bundled = load(arguments.against)
    try:
        restriction = derived(bundled, load(file))
    except RegistryError as error:
        return _refused(refusal(str(file), error.faults).faults)
    envelope, public = seal(restriction.write(), _read(arguments.key), until)
    written = envelope.write()
    if len(written) > MAX_BYTES:
        print(f"error: {file}: the envelope has {len(written):,} bytes, and {MAX_BYTES:,} are allowed: turn down fewer metrics")
        return 1
    target = Path(arguments.out) if arguments.out else file.with_suffix(".signed.json")
    try:
        target.write_bytes(written)
    except OSError as error:
        raise ConfigurationError(f"{target} cannot be written: {error.strerror}") from None
    for line in _effects(bundled, restriction):
        print(line)
    summary = f"{target}: revision {restriction.revision}, {_validity(envelope)}"
    print(f"{summary}, SHA-256 of the text {envelope.digest}, public key {public}")
    if until is None:
        print("note: a server may hand it to new devices for ever, also when later ones turn more off; --valid-for 30d ends that")
    return 0


def _effects(bundled: Registry, restriction: Restriction) -> Iterator[str]:
    """Tell what becomes of each metric of an app that a restriction changes."""
    used = restriction.applied(bundled).metrics
    for id_, metric in bundled.metrics.items():
        if id_ not in used:
            yield f"{id_}: off"
        elif used[id_] != metric:
            yield f"{id_}: sample {used[id_].sample}, last day {used[id_].expires or 'none'}"


def _refused(faults: Sequence[object]) -> int:
    for fault in faults:
        print(f"error: {fault}")
    return 1


def _until(valid_for: str) -> date:
    days = re.fullmatch(r"([1-9][0-9]{0,2})d", valid_for)
    if days is None:
        raise ConfigurationError(f"--valid-for {valid_for!r} is no number of days: write 1d to 999d, such as 30d")
    return datetime.now(UTC).date() + timedelta(days=int(days[1]))


def _validity(envelope: Envelope) -> str:
    return f"valid until {envelope.valid_until}" if envelope.valid_until else "valid without end"


def _verify(file: str, public_key: str, against: str | None) -> int:
    try:
        envelope = Envelope.read(_read(file))
        if envelope is None:
            print(f"error: {file}: this is no signed registry: write one with `deniable registry sign`")
            return 1
        envelope.verify(public_key)
        restriction = Restriction.read(envelope.text)
        for line in _effects(load(against), restriction) if against else ():
            print(line)
    except RegistryError as error:
        return _refused(error.faults)
    summary = (
        f"revision {restriction.revision} of {restriction.app}, {_validity(envelope)}, SHA-256 of the text {envelope.digest}"
    )
    if not envelope.is_fresh(datetime.now(UTC).date()):
        print(f"error: {file}: {summary}: devices that have not had it do not use it any more; sign it again")
        return 1
    print(f"{file}: {summary}")
    return 0


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from None
