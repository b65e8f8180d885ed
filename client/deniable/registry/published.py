"""Published registries: the folder of all that any app in use may have, and what they declare together.

Apps take months to update. A server that reads a folder takes the reports of every registry in it::

    registries/
        0001.toml       # in the first app
        0002.toml       # in the app of today; its pages.txt lies beside it
        pages.txt

``deniable registry publish metrics.toml registries`` adds a file, unless it changes what a published one declares.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from deniable import registry
from deniable.errors import ConfigurationError, Fault, RegistryError
from deniable.registry.places import placed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable.registry import Metric, Registry

__all__ = ["MEANING", "add", "files", "load", "load_all", "newest"]

MEANING = (
    *("type", "values", "epsilon", "mechanism", "period", "segments", "max_report_bytes"),
    *("discover", "max_length", "parameters", "factors", "epsilon_permanent", "none", "other"),
    *("per_period", "answers_per_window"),
)
"""What of a metric never changes once it is published; to change it, its version is raised."""

_NAME = re.compile(r"[0-9]{4}\.toml")
_MOST = 9999


def load(path: str | Path) -> Registry:
    """Read a registry file, or all those of a folder as one.

    The last file of a folder is the registry of today: how things are published, kept and segmented. `Registry.metrics` has the
    highest version of each metric that any file declares, and `Registry.older` all others. What may change of a version, such as
    its ``expires``, is as in the last file that declares it. What ``[publication]`` says is as in the last file of all.

    Raises
    ------
    RegistryError
        With every fault of the files; or if two declare one version of a metric differently.
    """
    texts = {str(file): registry.read(file) for file in files(path)}
    *older, (file, text) = texts.items()
    latest = registry.parse(text, file)
    loaded = [*(registry.parse(text, file, latest.publication) for file, text in older), latest]
    faults = [found for fault in _conflicts(loaded) for found in placed(texts[fault.file], [fault])]
    if faults:
        raise RegistryError(faults)
    return replace(_merged(loaded), digest=sha256("".join(texts.values()).encode()).hexdigest())


def load_all(paths: str) -> dict[str, Registry]:
    """Read registries, each a file or a folder, joined as in ``DENIABLE_REGISTRY``; by app.

    Raises
    ------
    ConfigurationError
        If two are of one app.
    RegistryError
        With the faults of the first that has any.
    """
    loaded: dict[str, Registry] = {}
    for path in filter(None, paths.split(os.pathsep)):
        each = load(path)
        if each.app in loaded:
            rule = "DENIABLE_REGISTRY names one registry for each app, or one folder of all that were published"
            raise ConfigurationError(f"{rule}; {each.app} has two")
        loaded[each.app] = each
    return loaded


def files(path: str | Path) -> list[Path]:
    """List the registry files of a folder in order, or the file itself.

    Raises
    ------
    RegistryError
        If the folder cannot be read or has none, or one with a name of another kind.
    """
    folder = Path(path)
    if not folder.is_dir():
        return [folder]
    found = sorted(folder.glob("*.toml"))
    rule = "a folder of published registries has files named 0001.toml, 0002.toml, ...; add them by `deniable registry publish`"
    faults = [Fault(str(folder), "-", rule, each.name) for each in found if not _NAME.fullmatch(each.name)]
    if faults or not found:
        raise RegistryError(faults or [Fault(str(folder), "-", rule, "none")])
    return found


def newest(path: str | Path) -> Registry:
    """Read the registry of today alone: what the newest app asks.

    Raises
    ------
    RegistryError
        With every fault of the file.
    """
    return registry.load(files(path)[-1])


def add(file: Path, folder: Path) -> Path:
    """Add a registry to a folder that it was checked against, with the files that it names; return where it lies.

    The folder that this makes is read as a server reads it before anything is put in place.

    Raises
    ------
    ConfigurationError
        If it cannot be written, the folder has no number left, or a file that it names has the name of another one there.
    RegistryError
        With the faults of the file, or of the folder as it would be.
    """
    loaded = registry.load(file)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        last = max((int(each.stem) for each in folder.glob("*.toml") if _NAME.fullmatch(each.name)), default=0)
        if last == _MOST:
            raise ConfigurationError(f"a folder holds at most {_MOST} registries; remove what no app uses")
        target = folder / f"{last + 1:04d}.toml"
        lists = sorted({metric.candidates for metric in loaded.metrics.values() if metric.candidates})
        for name in lists:
            _check_list(name, loaded, folder)
        with TemporaryDirectory() as made:
            trial = Path(made)
            for each in [each for each in folder.iterdir() if each.is_file()] + [file.parent / name for name in lists]:
                shutil.copyfile(each, trial / each.name)
            shutil.copyfile(file, trial / target.name)
            _try(trial, folder)
            for name in (*lists, target.name):
                _replace(trial / name, folder / name)
    except OSError as error:
        raise ConfigurationError(f"the registry cannot be added: {error}") from None
    return target


def _check_list(name: str, loaded: Registry, folder: Path) -> None:
    """See that a file of candidates can lie in a folder, and takes the place of no other metric's."""
    if Path(name).name != name:
        raise ConfigurationError(f"the candidates of a published registry lie beside it, in no other folder; got {name}")
    if name.endswith(".toml"):
        raise ConfigurationError(f"a file of candidates is not named like a registry; got {name}")
    source, target = Path(loaded.file).parent / name, folder / name
    if not target.exists() or target.read_bytes() == source.read_bytes():
        return
    own = {metric.id for metric in loaded.metrics.values() if metric.candidates == name}
    for each in folder.glob("*.toml"):
        for metric in registry.load(each).metrics.values():
            if metric.candidates == name and metric.id not in own:
                rule = f"{target} has the candidates of {metric.id}, which {each.name} declares; give the new file another name"
                raise ConfigurationError(rule)


def _try(trial: Path, folder: Path) -> None:
    """Read a folder as a server does, with all candidates; its faults are told as of the folder that it is to be."""
    try:
        found = load(trial)
        for metric in found.definitions:
            found.candidates(metric)
    except RegistryError as error:
        places = [str(folder / Path(fault.file).name) for fault in error.faults]
        raise RegistryError([replace(fault, file=at) for fault, at in zip(error.faults, places, strict=True)]) from None


def _replace(source: Path, target: Path) -> None:
    """Copy a file so that nobody ever reads a part of it."""
    unfinished = target.with_name(f".{target.name}.new")
    shutil.copyfile(source, unfinished)
    unfinished.replace(target)


def _merged(loaded: Sequence[Registry]) -> Registry:
    latest = loaded[-1]
    if len(loaded) == 1:
        return latest
    definitions: dict[tuple[str, int], Metric] = {}
    segments: dict[str, tuple[str, ...]] = {}
    above = {}
    for each in loaded:
        definitions |= {(metric.id, metric.version): metric for metric in each.metrics.values()}
        for name, values in each.segments.items():
            segments[name], above[name] = values, each.generalize.get(name, {})
    highest = {id_: metric for (id_, _), metric in sorted(definitions.items())}
    return replace(
        latest,
        metrics={id_: highest[id_] for id_ in dict.fromkeys([*latest.metrics, *highest])},
        older=tuple(metric for _, metric in sorted(definitions.items()) if metric is not highest[metric.id]),
        segments=segments,
        generalize={name: words for name, words in above.items() if words},
    )


def _conflicts(loaded: Sequence[Registry]) -> Iterator[Fault]:
    known: dict[tuple[str, int], tuple[Registry, Metric]] = {}
    highest: dict[str, int] = {}
    for each in loaded:
        if each.app != loaded[0].app:
            yield Fault(each.file, "-", f"all registries of a folder are of one app, here {loaded[0].app}", each.app)
        for metric in each.metrics.values():
            place = metric.id, metric.version
            first, old = known.setdefault(place, (each, metric))
            for name in MEANING:
                if getattr(old, name) != getattr(metric, name):
                    rule = f"{name} is as in {first.file}, which declares version {metric.version} too; raise the version"
                    yield Fault(each.file, metric.id, rule, getattr(metric, name))
            if metric.version < highest.get(metric.id, 0):
                rule = f"a version never goes back: an earlier file has version {highest[metric.id]}"
                yield Fault(each.file, metric.id, rule, metric.version)
            highest[metric.id] = max(metric.version, highest.get(metric.id, 0))
