"""What a server reads from the files that its settings name: all of it, or nothing if anything has a fault.

gunicorn's first process reads them once, and the processes that it starts inherit what it read. So a file that is edited with
faults stops none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from deniable.declared import versions
from deniable.errors import ConfigurationError, RegistryError
from deniable.registry.published import identity, identity_on_disk, paths

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from deniable.declared import Declared
    from deniable.errors import DeniableError
    from deniable.registry import Registry
    from deniable.served_registry.signature import Envelope
    from deniable_server.settings import Settings


class Source(NamedTuple):
    """The registry of an app, with all that a server needs of it."""

    registry: Registry
    versions: Mapping[tuple[str, int], Declared]  # every version of every metric
    envelope: Envelope | None  # the signed registry for devices; None if devices have their own
    path: str  # the file or folder that it was read from
    identity: str  # of its files, as in `deniable.registry.published`

    @property
    def on_disk(self) -> str:
        """The identity of what the path has now; empty if it cannot be read."""
        return identity_on_disk(self.registry, self.path)


_inherited: dict[tuple[str, str], dict[str, Source]] = {}
"""What gunicorn's first process read, by the settings that name the files."""


def read(settings: Settings) -> dict[str, Source]:
    """Read the files, by app, in their order; raise for whatever would stop a server."""
    registries = settings.registries()
    return of(registries, settings.envelopes(registries), paths(settings.registry))


def read_again(
    settings: Settings,
    apps: Collection[str],  # those of the files as they were read before, in their order
) -> dict[str, Source]:
    """Read the files anew, as `read` does; raise also if they are of other apps."""
    loaded = read(settings)
    if list(loaded) != list(apps):
        rule = "stop this and start it again to serve another app"
        raise ConfigurationError(f"the app was {', '.join(apps)} and is {', '.join(loaded)}: {rule}")
    return loaded


def of(
    registries: Mapping[str, Registry],  # by app
    envelopes: Mapping[str, Envelope],  # by app, of those that have one
    places: Sequence[str],  # the files and folders of the registries, in their order
) -> dict[str, Source]:
    """Return the sources of registries that were just read, by app."""
    return {
        app: Source(registry, versions(registry), envelopes.get(app), path, identity(registry))
        for (app, registry), path in zip(registries.items(), places, strict=True)
    }


def hand_on(settings: Settings) -> list[str]:
    """Read the files for this process and those that it forks; if that raises, they have what was read before.

    Returns
    -------
    For each metric that means something else now, in the same version, a sentence that says so.
    """
    files = settings.registry, settings.signed_registry
    before = _inherited.get(files, {})
    now = _inherited[files] = read_again(settings, before) if before else read(settings)
    remedy = "raise `version`; apps that have the former definition are refused"
    return [
        f"{app}: {id_} says something else under version {version}: {remedy}"
        for app, source in before.items()
        for (id_, version), declared in now[app].versions.items()
        if (former := source.versions.get((id_, version))) and former.fingerprint != declared.fingerprint
    ]


def inherited(settings: Settings) -> dict[str, Source]:
    """Return what was handed on; else read the files."""
    return _inherited.get((settings.registry, settings.signed_registry)) or read(settings)


def fault(error: DeniableError | OSError) -> str:
    """Write why files cannot be used in one line: the first fault, and how many more there are."""
    if not isinstance(error, RegistryError):
        return str(error)
    more = f" ({len(error.faults) - 1} more)" if len(error.faults) > 1 else ""
    return f"{error.faults[0]}{more}"
