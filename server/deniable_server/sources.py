"""What a server reads from the files that its settings name, app by app: a fault in the files of one app stops no other.

gunicorn's first process reads them once, and the processes that it starts inherit what it read. So a file that is edited with
faults stops none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from deniable.declared import versions
from deniable.errors import RegistryError
from deniable.limits import admission
from deniable.registry import comparison, published
from deniable.registry.published import Faulty, identity, identity_on_disk, in_a_line
from deniable_aggregator.publish import definitions
from deniable_aggregator.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deniable.declared import Declared
    from deniable.errors import DeniableError
    from deniable.registry import Registry
    from deniable.served_registry.signature import Envelope
    from deniable_aggregator.store import Client
    from deniable_server.settings import Settings


class Source(NamedTuple):
    """The registry of an app, with all that a server needs of it."""

    registry: Registry
    versions: Mapping[tuple[str, int], Declared]  # every version of every metric
    envelope: Envelope | None  # the signed registry for devices; None if devices have their own
    path: str  # the file or folder that it was read from
    identity: str  # of its files, as in `deniable.registry.published`

    @classmethod
    def of(cls, registry: Registry, envelope: Envelope | None, path: str) -> Source:
        """Return the source of a registry that was just read."""
        return cls(registry, versions(registry), envelope, path, identity(registry))

    @property
    def on_disk(self) -> str:
        """The identity of what the path has now; empty if it cannot be read."""
        return identity_on_disk(self.registry, self.path)


class Files(NamedTuple):
    """What was read."""

    apps: dict[str, Source]  # what can be served, by app, in the order of the files
    faulty: tuple[Faulty, ...]  # the other files: their app goes on with what was read before, or is off

    @property
    def off(self) -> dict[str, str]:
        """Why each other app is off, by its name; a file that does not name its app is left out."""
        return {each.app: in_a_line(each.error) for each in self.faulty if each.app and each.app not in self.apps}

    @property
    def lines(self) -> Iterator[str]:
        """A line for each file that cannot be used: what follows from it, and why."""
        for path, app, error in self.faulty:
            if app in self.apps:
                yield f"the edited registry of {app} cannot be used, so the one before stays in use: {in_a_line(error)}"
            else:
                yield f"{app or path} is off, and devices keep its reports, until this is mended: {in_a_line(error)}"


_inherited: dict[tuple[str, str], Files] = {}
"""What gunicorn's first process read, by the settings that name the files."""


class _Signed(NamedTuple):
    """The signed registries."""

    envelopes: dict[str, Envelope]  # by app
    errors: dict[str, DeniableError]  # why others cannot be used, by app; under an empty name, one that any app may have meant

    @classmethod
    def read(cls, settings: Settings, loaded: Mapping[str, Registry], faulty: list[Faulty]) -> Self:
        """Read them; an error of a file for an app that is not served may be of any app."""
        envelopes, errors = settings.envelopes(loaded)
        names = {*loaded, *(each.app for each in faulty)}
        if "" not in names and (strangers := [error for app, error in errors.items() if app not in names]):
            errors[""] = strangers[0]
        return cls(envelopes, errors)

    def error(self, app: str) -> DeniableError | None:
        """Return why the signed registry of an app cannot be used."""
        return self.errors.get(app) or (None if app in self.envelopes else self.errors.get(""))


def read(
    settings: Settings,
    before: Mapping[str, Source] | None = None,  # what was read before; a change that breaks it is a fault
) -> Files:
    """Read the files; raise if no app can be served, or if two files are of one."""
    paths = settings.registry_paths
    loaded, faulty = published.tried(settings.registry, admission.load_all)
    signed = _Signed.read(settings, loaded, faulty)
    former = {source.path: source for source in (before or {}).values()}
    bad = {each.path: each for each in faulty}
    sources = _sources([path for path in paths if path not in bad], loaded, signed)
    bad |= {path: Faulty(path, source.registry.app, error) for path, source, error in _refused(sources, signed, former)}
    bad |= {path: bad[path]._replace(app=former[path].registry.app) for path in bad.keys() & former.keys()}
    used = [former.get(path) if path in bad else sources[path] for path in paths]
    apps = {source.registry.app: source for source in used if source}
    if not apps:
        raise published.joined(bad.values())
    return Files(apps, tuple(bad.values()))


def _sources(paths: list[str], loaded: Mapping[str, Registry], signed: _Signed) -> dict[str, Source]:
    """Return the source of each path that could be read."""
    return {
        path: Source.of(registry, signed.envelopes.get(app), path)
        for path, (app, registry) in zip(paths, loaded.items(), strict=True)
    }


def _refused(
    sources: Mapping[str, Source], signed: _Signed, former: Mapping[str, Source]
) -> Iterator[tuple[str, Source, DeniableError]]:
    """Yield what could be read and cannot be used: its signed registry has a fault, or it would break what is in use."""
    for path, source in sources.items():
        error = signed.error(source.registry.app) or (_broken(former[path], source.registry) if path in former else None)
        if error:
            yield path, source, error


def _broken(before: Source, now: Registry) -> RegistryError | None:
    """Return what a registry would break if it took the place of another, as `deniable registry publish` decides it."""
    faults = comparison.faults(comparison.diff(before.registry, now), now.file)
    return RegistryError(faults) if faults else None


def refusals(client: Client, files: Files) -> Iterator[str]:
    """Yield a line for each app of which reports are refused, because its file was changed without a new version."""
    for app, source in files.apps.items():
        if line := definitions.refusal(Store(client, app), source.registry):
            yield line


def hand_on(settings: Settings) -> Files:
    """Read the files for this process and those that it forks; if that raises, they have what was read before."""
    files = settings.registry, settings.signed_registry
    before = _inherited.get(files)
    _inherited[files] = read(settings, before.apps if before else None)
    return _inherited[files]


def inherited(settings: Settings) -> Files | None:
    """Return what was handed on, or None."""
    return _inherited.get((settings.registry, settings.signed_registry))
