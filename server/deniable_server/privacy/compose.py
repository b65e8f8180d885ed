"""Composes a report as Markdown, with all values escaped."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from deniable.limits.allowance import MICRO
from deniable_aggregator.accounting.account import METHODS
from deniable_aggregator.store import schema
from deniable_server.privacy import elsewhere, words
from deniable_server.privacy.guess import posterior

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from deniable_server.privacy.facts import Facts
    from deniable_server.privacy.proofs import Proved
    from deniable_server.privacy.published import Published

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$]|:(?=//)|(?<=www)\.)")
_NAMED = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_AT_THE_START = re.compile(r"^([-+=#]|\d+[.)](?=\s|$))")


def compose(
    facts: Facts,  # of the registry
    *,
    now: datetime,  # when, in UTC
    software: str,  # version of the software
    published: Sequence[Published] | None = None,  # of each metric; None if no store was read
    spent: Mapping[str, Mapping[str, int]] | None = None,  # by analysts, as `Budgets.spent` returns it; None if no store was read
    proved: Sequence[Proved] | None = None,  # of each metric; None if no proof was requested
) -> str:
    """Compose a report: one page for the reviewer, then the annex."""
    registry = facts.registry
    return (
        _environment()
        .get_template("report.md.jinja")
        .render(
            facts=facts,
            registry=registry,
            metrics=facts.metrics,
            budget=facts.plan.budget,
            file=Path(registry.file).name,
            made=now,
            software=software,
            published=published,
            spent=spent,
            proved=proved,
            kept={"store": schema.ALL, "servers": elsewhere.SERVERS, "device": elsewhere.DEVICE},
            methods=METHODS,
            micro=MICRO,
        )
    )


def escape(value: object) -> str:
    """Escape a value as one line of plain text in Markdown: no block, link, picture or HTML."""
    text = words.plain(str(value)).replace("&", "&amp;")
    text = _SPECIAL.sub(lambda match: _NAMED.get(match[1], f"\\{match[1]}"), text)
    return _AT_THE_START.sub(lambda match: f"{match[1][:-1]}\\{match[1][-1]}", text)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("deniable_server.privacy"),
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else Markup(escape(value)),  # noqa: S704 - escaped
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {name: getattr(words, name) for name in words.__all__}
    environment.filters["posterior"] = posterior
    return environment
