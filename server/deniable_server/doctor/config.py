"""The settings of a server in this environment, without starting one. The store says its memory and former definitions."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING

from deniable import mechanisms
from deniable.client import environment as sdk
from deniable.errors import ConfigurationError, DeniableError, RegistryError
from deniable.forecast import space
from deniable.registry import published
from deniable_aggregator.commands import options
from deniable_aggregator.process import ports, variables
from deniable_aggregator.publish import definitions
from deniable_aggregator.store import Store
from deniable_aggregator.store.errors import StoreError, cause
from deniable_aggregator.store.server import room
from deniable_aggregator.store.server.embedded import redacted
from deniable_server.settings import DEFAULT_PROCESSES, PROCESSES, VARIABLES, Keys, Settings, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deniable.registry import Registry

_PATIENCE = 2.0  # seconds for each answer of the store
_SECRET = {f"DENIABLE_{setting.name.upper()}" for setting in fields(Settings) if not setting.repr} | {"DENIABLE_DSN"}


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in effect."""

    name: str  # its variable
    value: str  # its value, without secrets
    origin: str  # "environment" or "default"


@dataclass(slots=True)
class ConfigReport:
    """The result of checking an environment."""

    settings: list[Setting] = field(default_factory=list)  # all of servers and workers, and those of the SDK that are set
    apps: dict[str, int] = field(default_factory=dict)  # number of served metrics by app
    store: str = ""  # what their sums take in the store at most
    errors: list[str] = field(default_factory=list)  # what would stop the start, or has no effect
    warnings: list[str] = field(default_factory=list)  # what may not be intended


def inspect(environment: Mapping[str, str] = os.environ) -> ConfigReport:
    """Read an environment as a server and a worker would, and go on after each error."""
    report = ConfigReport()
    report.errors += map(str, variables.strays(environment))
    good: dict[str, str] = {}
    for name in VARIABLES:
        if name in environment and _tried(report, partial(Settings.from_environment, {name: environment[name]})):
            good[name] = environment[name]
    for number in variables.WORKER:
        _tried(report, partial(number.choose, environment=environment))
    if bind := environment.get("DENIABLE_METRICS_BIND"):
        _tried(report, partial(ports.of_numbers, bind))
    _tried(report, partial(processes, environment))
    settings = Settings.from_environment(good)
    if settings.redis_url:
        _tried(report, lambda: options.opened(settings.redis_url).close())
    else:
        report.errors.append("DENIABLE_REDIS_URL is not set; `deniable serve` brings a store of its own")
    registries = _registries(report, settings)
    report.apps = {app: len(registry.metrics) for app, registry in registries.items()}
    if registries and not report.errors:
        _tried(report, partial(_compare, report, settings, registries))
    _advise(report, settings, set(registries), environment)
    report.settings += _settings(environment)
    return report


def _tried(report: ConfigReport, step: Callable[[], object]) -> bool:
    """Try a step of a server's start; record the error if it fails."""
    try:
        step()
    except RegistryError as error:
        report.errors += map(str, error.faults)
    except DeniableError as error:
        report.errors.append(str(error))
    else:
        return True
    return False


def _registries(report: ConfigReport, settings: Settings) -> dict[str, Registry]:
    """Load every registry, signed and not, one by one and then together."""
    before = len(report.errors)
    loaded: dict[str, Registry] = {}
    for path in published.paths(settings.registry):
        _tried(report, partial(_load, loaded, replace(settings, registry=path)))
    if len(report.errors) == before:
        _tried(report, settings.registries)
    for registry in loaded.values():
        for metric in registry.metrics.values():
            _tried(report, partial(mechanisms.of, metric))
    if len(report.errors) > before:  # a signed registry is compared with the one that is served
        return loaded
    for path in published.paths(settings.signed_registry):
        report.errors += map(str, replace(settings, signed_registry=path).envelopes(loaded)[1].values())
    if len(report.errors) == before:
        _tried(report, lambda: settings.envelopes(loaded))
    return loaded


def _load(loaded: dict[str, Registry], settings: Settings) -> None:
    loaded |= settings.registries()


def _compare(report: ConfigReport, settings: Settings, registries: Mapping[str, Registry]) -> None:
    """Compare what sums take at most with the store's memory, if the store answers."""
    divided = dict.fromkeys(registries, 1)
    most, unknown = 0, "the store has no maxmemory, or does not show it"
    try:
        with closing(options.opened(settings.redis_url, timeout=_PATIENCE)) as client:
            most = room.most(client)
            divided = {app: len(Store(client, app).partitions) for app in registries}
            report.errors += filter(None, (definitions.refusal(Store(client, app), each) for app, each in registries.items()))
    except StoreError as error:
        unknown = f"the store's maxmemory is not known: {cause(error)}"
    taken = [part for app, registry in registries.items() for part in space.spaces(registry, divided[app])]
    report.store = f"{space.summary(taken)}; " + (f"maxmemory is {space.written(most)}" if most else unknown)
    doubt = space.doubt(taken, most) if most else None
    if doubt:
        report.warnings.append(doubt)


def _advise(report: ConfigReport, settings: Settings, served: set[str], environment: Mapping[str, str]) -> None:
    """Record warnings, which do not stop a start."""
    warn = report.warnings.append
    for name in ("ingest_keys", "read_keys"):
        strangers = {app for app, _ in Keys(getattr(settings, name))} - served
        if served and strangers:
            warn(
                f"DENIABLE_{name.upper()} has keys of {', '.join(sorted(strangers))}, which no registry is of: they open nothing"
            )
    apps = {app.strip() for app in environment.get("DENIABLE_APPS", "").split(",")} - {""}
    if apps and served and apps != served:
        warn(f"DENIABLE_APPS has workers count {', '.join(sorted(apps))}; the registries are of {', '.join(sorted(served))}")
    if settings.serves == "ingest":
        return
    if settings.dashboard == "open":
        warn("DENIABLE_DASHBOARD=open shows the pages to whoever reaches the server; key asks for a read key")


def _settings(environment: Mapping[str, str]) -> list[Setting]:
    defaults = variables.VARIABLES | VARIABLES | {PROCESSES: DEFAULT_PROCESSES}
    defaults |= {name: text for name, text in sdk.VARIABLES.items() if name in environment}
    return [
        Setting(name, _without_secrets(name, environment.get(name, default)), "environment" if name in environment else "default")
        for name, default in defaults.items()
    ]


def _without_secrets(name: str, text: str) -> str:
    if name.endswith("_URL") or (name == variables.ARCHIVE and "://" in text):
        return redacted(text) if text else ""
    if name not in _SECRET or not text:
        return text
    if not name.endswith("_KEYS"):
        return "(hidden)"
    try:
        apps = sorted(app for app, _ in Keys(text))
    except ConfigurationError:
        return "(hidden)"
    return f"(hidden) {len(apps)} of {', '.join(dict.fromkeys(apps))}"
