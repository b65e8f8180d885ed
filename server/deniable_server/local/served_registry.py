"""The registries of ``deniable serve``: copies of the last ones without faults, and a look at the files.

Processes are started from the copies. So a file that has faults, or is half written, stops none of them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Self

from deniable.errors import DeniableError, RegistryError
from deniable.messages.plural import few
from deniable.registry import comparison, published
from deniable_server import sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from deniable.registry import Registry
    from deniable_server.settings import Settings
    from deniable_server.sources import Source


@dataclass(frozen=True, slots=True)
class Look:
    """What has become of the files since the last look."""

    line: str  # what to tell
    changed: bool  # whether the copies are new
    fault: str = ""  # why the files cannot be served; empty if they are what the copies are of


class ServedRegistry:
    """The registries that settings name, copied into a private folder."""

    def __init__(
        self,
        settings: Settings,  # name the files
    ) -> None:
        self._named = settings
        self.files = sources.read(settings)
        self._last = self._seen = self._served = self._content()  # at the last look, of the last that was told, of the copies
        self._number = 0

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="deniable-registry-"))
        self._copy()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def settings(self) -> Settings:
        """The settings with the copies in place of the files. These paths stay the same."""
        return replace(
            self._named,
            registry=os.pathsep.join(str(self._place(path)) for path in published.paths(self._named.registry)),
            signed_registry=os.pathsep.join(str(self._place(path)) for path in published.paths(self._named.signed_registry)),
        )

    @property
    def sources(self) -> dict[str, Source]:
        """What is served, by app."""
        return self.files.apps

    @property
    def registries(self) -> dict[str, Registry]:
        """What is served, by app."""
        return {app: source.registry for app, source in self.sources.items()}

    @property
    def on_disk(self) -> dict[str, str]:
        """The identity of each app's registry as its file is now; empty if it cannot be read."""
        return {app: source.on_disk for app, source in self.sources.items()}

    def look(self) -> Look | None:
        """Look at the files; None if there is nothing new to tell."""
        content = self._content()
        steady, self._last = content == self._last, content
        if content == self._seen or not steady:  # an editor may still be writing
            return None
        edited = sorted(file for file in content.keys() | self._seen.keys() if content.get(file) != self._seen.get(file))
        one, names = len(edited) == 1, " and ".join(dict.fromkeys(Path(file).name for file in edited))
        were = f"{names} {'was' if one else 'were'} edited"
        self._seen = content
        if content == self._served:
            return Look(f"{were}, and {'is' if one else 'are'} again what is in use", changed=False)
        try:
            changes = self._take(content)
        except (DeniableError, OSError) as error:
            reason = published.in_a_line(error)
            line = f"{were} and cannot be used, so what was served before stays in use: {reason}"
            return Look(line, changed=False, fault=reason)
        return Look(f"{were}, and the processes read {'it' if one else 'them'}: {changes}", changed=True)

    def _take(self, content: Mapping[str, bytes]) -> str:
        """Check the files and copy them; return what changed. Raise if they cannot be used."""
        before = self.files
        files = sources.read(self._named, before.apps)
        refused = [each.error for each in files.faulty if each.app in before.apps]
        if refused:
            raise refused[0]
        self.files = files
        try:
            self._copy()
        except OSError:
            self.files = before
            raise
        self._served = content
        return _changes({app: source.registry for app, source in before.apps.items()}, self.registries)

    def _place(self, path: str | Path, root: str = "current") -> Path:
        """Return where the copy of a path is: under a folder that stands for the root of all."""
        return self._folder / root / os.path.abspath(path).lstrip("/")  # noqa: PTH100 - no link is followed

    def _copy(self) -> None:
        """Copy all files, and put them in the place of the copies before in one step."""
        self._number += 1
        number = str(self._number)
        for path in (*published.paths(self._named.registry), *published.paths(self._named.signed_registry)):
            files = [Path(path)] if Path(path).is_file() else published.files(path)
            for file in files:
                _put(file, self._place(file, number))
        for registry in self.registries.values():
            for name in _lists(registry):
                file = Path(registry.file).parent / name
                if not Path(name).is_absolute():  # else it is read where it is
                    _put(file, self._place(file, number))
        link = self._folder / "next"
        link.symlink_to(number)
        link.replace(self._folder / "current")
        shutil.rmtree(self._folder / str(self._number - 2), ignore_errors=True)

    def _content(self) -> Mapping[str, bytes]:
        """Return a digest of each file."""
        paths = (*published.paths(self._named.registry), *published.paths(self._named.signed_registry))
        files = [file for path in paths for file in _files(path)]
        lists = [Path(registry.file).parent / name for registry in self.registries.values() for name in _lists(registry)]
        return {str(file): sha256(_read(file)).digest() for file in (*files, *lists)}


def _put(file: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, place)


def _changes(before: Mapping[str, Registry], after: Mapping[str, Registry]) -> str:
    """Say in a line what changed."""
    changes: list[str] = []
    for app, registry in after.items():
        if app not in before:
            changes.append(f"{app} is on")
            continue
        for change in comparison.diff(before[app], registry):
            line = str(change).removeprefix("ok").strip()
            changes += [line] if line not in changes else []
    return few(changes, between="; ") or "no metric has changed"


def _files(path: str) -> Iterator[Path]:
    """Yield the files of a path: itself, or the registries of a folder."""
    try:
        yield from published.files(path)
    except RegistryError:  # a folder of something else
        yield from sorted(Path(path).glob("*"))


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _lists(registry: Registry) -> list[str]:
    """Name the files of candidates that a registry names, relative to it."""
    return sorted({metric.candidates for metric in registry.definitions if metric.candidates})
