"""The subcommand ``report``: documents for people who review the service."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import deniable
from deniable.errors import ConfigurationError
from deniable.messages.plural import plural
from deniable_aggregator.commands import options

if TYPE_CHECKING:
    import argparse

    from deniable.commands.parser import Run

_HTML, _MARKDOWN = (".html", ".htm"), (".md", ".markdown")
_LEAST_DEVICES = 2
_DELTA, _DEVICES = 1e-6, 4


def report(parser: argparse.ArgumentParser) -> Run:
    """``deniable report privacy --registry FILE [--redis-url URL] [--prove] [--output FILE]``."""
    # Exit status: 0 done; 1 if a proof fails; 2 for wrong usage or a registry that cannot be read; 3 if the given store cannot be
    # used.
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    privacy = kinds.add_parser(
        "privacy", help="what a registry asks, what reports reveal, what is stored and published; for a DPIA"
    )
    privacy.add_argument("--registry", default=os.environ.get("DENIABLE_REGISTRY", "metrics.toml"), metavar="FILE")
    privacy.add_argument("--output", type=Path, metavar="FILE", help="FILE.html or FILE.md (default: Markdown, to the terminal)")
    about = "a store to read releases from (default: DENIABLE_REDIS_URL; without one, only the registry is read)"
    privacy.add_argument("--redis-url", default=os.environ.get("DENIABLE_REDIS_URL"), help=about)
    privacy.add_argument("--offline", action="store_true", help="read the registry only, whatever DENIABLE_REDIS_URL says")
    privacy.add_argument("--prove", action="store_true", help="prove each mechanism by walking all draws, if that takes seconds")
    privacy.add_argument(
        "--delta", type=float, default=_DELTA, metavar="P", help=f"of totals below the plain sum (default {_DELTA:g})"
    )
    about = f"of a person or a household, {_LEAST_DEVICES} or more (default {_DEVICES})"
    privacy.add_argument("--devices", type=int, default=_DEVICES, metavar="N", help=about)
    return _privacy


@options.answered
def _privacy(arguments: argparse.Namespace) -> int:
    from deniable_aggregator.questions.budgets import Budgets
    from deniable_aggregator.store import Store
    from deniable_server.privacy import compose, gather, page
    from deniable_server.privacy.proofs import attempt
    from deniable_server.privacy.published import read_published

    html = _is_html(arguments.output)
    if os.pathsep in arguments.registry:
        raise ConfigurationError("a report is about one registry; name it with --registry")
    if arguments.devices < _LEAST_DEVICES:
        raise ConfigurationError(f"--devices {arguments.devices}: write a whole number of at least {_LEAST_DEVICES}")
    facts = gather(Path(arguments.registry), delta=arguments.delta, devices=arguments.devices)
    published = spent = None
    if arguments.redis_url and not arguments.offline:
        with options.opened(arguments.redis_url) as client:
            store = Store(client, facts.registry.app)
            published = [read_published(store, each) for each in facts.metrics]
            spent = Budgets(store, facts.registry.analysts).spent()
    proved = [attempt(each.metric, each.mechanism) for each in facts.metrics] if arguments.prove else None
    text = compose(facts, now=datetime.now(UTC), software=deniable.__version__, published=published, spent=spent, proved=proved)
    text = page(text) if html else text
    if arguments.output is None:
        print(text, end="")
    else:
        try:
            arguments.output.write_text(text, "utf-8")
        except OSError as error:
            raise ConfigurationError(f"the report cannot be written: {error}") from None
        print(f"{arguments.output}: {plural(len(facts.metrics), 'metric')}, SHA-256 of the registry {facts.digest}")
    failed = [each.metric for each in proved or () if each.proof and not each.proof.holds]
    if failed:
        print(f"not proved: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def _is_html(output: Path | None) -> bool:
    ending = output.suffix.lower() if output else _MARKDOWN[0]
    if ending not in (*_HTML, *_MARKDOWN):
        raise ConfigurationError(
            f"--output {output and output.name!r}: write a name that ends with {', '.join((*_HTML, *_MARKDOWN))}"
        )
    return ending in _HTML
