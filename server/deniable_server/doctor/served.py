"""What the doctor's server would serve: each registry that can be used, and a finding for each that cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deniable.limits import admission
from deniable.messages.finding import Finding
from deniable.registry import published
from deniable_server import sources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable_server.settings import Settings


_OFF = (
    "processes that start leave the app off: its uploads get 503, so devices keep their reports; those that run go on as they are"
)


@dataclass(frozen=True, slots=True)
class Served:
    """The apps of a server."""

    apps: tuple[str, ...]  # their names, also of those whose registry has faults
    sources: Mapping[str, sources.Source]  # by app, of the others
    faults: tuple[Finding, ...]  # of files that cannot be used

    @property
    def real(self) -> bool:
        """Whether an app is known to be no trial, which must not lose what it has."""
        return any(not source.registry.publication.trial for source in self.sources.values())

    @classmethod
    def read(cls, settings: Settings) -> Served:
        """Read the registries one by one: a fault of one says nothing about the others, or about the store."""
        loaded, faulty = published.tried(settings.registry, admission.load_all)
        faults = [_fault(each) for each in faulty]
        if not settings.registry:
            meaning, remedy = "no app can be looked at, and no server starts", "set it to the metrics.toml that is served"
            faults.append(Finding("registry", "fault", "DENIABLE_REGISTRY is not set", meaning, remedy))
        envelopes, unsigned = settings.envelopes(loaded)
        for app, error in unsigned.items():
            if app and app not in loaded and faulty:  # it is compared with the registry when that is mended
                continue
            meaning = _OFF if app in loaded else "servers leave each app off that has no other signed registry"
            remedy = "correct DENIABLE_SIGNED_REGISTRY, or sign the file again (`deniable registry sign`)"
            faults.append(Finding("signed registry", "fault", str(error), meaning, remedy, app))
        envelopes = {app: envelope for app, envelope in envelopes.items() if app not in unsigned}
        bad = {each.path for each in faulty}
        good = [path for path in published.paths(settings.registry) if path not in bad]
        apps = dict.fromkeys([*loaded, *(each.app for each in faulty if each.app)])
        loaded_sources = {
            app: sources.Source.of(registry, envelopes.get(app), path)
            for (app, registry), path in zip(loaded.items(), good, strict=True)
        }
        return cls(tuple(apps), loaded_sources, tuple(faults))


def _fault(faulty: published.Faulty) -> Finding:
    remedy = (
        f"correct what `deniable registry lint {faulty.path}` names, send SIGHUP to gunicorn's first process, restart the worker"
    )
    return Finding("registry", "fault", published.in_a_line(faulty.error), _OFF, remedy, faulty.app)
