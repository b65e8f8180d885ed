"""Published registries: the folder of all registries that apps in use may have, read as one.

Users take months to update an app. A server that reads the folder takes the reports of every registry in it::

    registries/
        0001.toml       # in the first app
        0002.toml       # in the app of today; its pages.txt lies beside it
        pages.txt

``deniable registry publish metrics.toml registries`` adds a file, unless it changes the meaning of a published metric.
"""

from __future__ import annotations

import os
import re
import shutil
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from deniable import registry
from deniable.errors import ConfigurationError, DeniableError, Fault, RegistryError
from deniable.frozen import NamedTuple, replace
from deniable.messages.plural import few
from deniable.platform.files import rename_onto
from deniable.registry.places import placed
from deniable.registry.tables import covered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from deniable.registry import Metric, Registry

MEANING = (
    *("type", "values", "epsilon", "mechanism", "period", "segments", "max_report_bytes"),
    *("discover", "max_length", "parameters", "factors", "epsilon_permanent", "none", "other"),
    *("per_period", "answers_per_month", "shuffled"),
    *("range", "unit", "scale", "estimate", "joint", "most"),
)
"""The fields of a metric that never change once it is published. To change them, raise its version."""

_NAME = re.compile(r"[0-9]{4}\.toml")
_APP = re.compile(r'^app\s*=\s*"([\w.-]+)"', re.MULTILINE)
_MOST = 9999


def load(path: str | Path) -> Registry:
    """Read a registry file, or all files of a folder as one registry; raise `RegistryError` with all faults of the files."""
    # The last file of a folder is the current registry: its tables for all metrics are used. `Registry.metrics` has the highest
    # version of each metric of any file, and `Registry.older` all other versions. Fields of a version that may change, such as
    # `expires`, are taken from the last file that declares it. The error has all faults.
    texts = {str(file): registry.read(file) for file in files(path)}
    *older, (file, text) = texts.items()
    latest = registry.parse(text, file)
    loaded = [*(registry.parse(text, file, latest.publication) for file, text in older), latest]
    faults = [located for fault in _conflicts(loaded) for located in placed(texts[fault.file], [fault])]
    if faults:
        raise RegistryError(faults)
    return replace(_merged(loaded), digest=sha256("".join(texts.values()).encode()).hexdigest())


def paths(joined: str) -> list[str]:
    """Return the files and folders that are joined as in ``DENIABLE_REGISTRY``."""
    return [path for path in joined.split(os.pathsep) if path]


def load_all(joined: str) -> dict[str, Registry]:
    """Read registries, each a file or a folder, by app; two of one app are refused."""
    loaded: dict[str, Registry] = {}
    for path in paths(joined):
        declared = load(path)
        if declared.app in loaded:
            raise _second(declared.app)
        loaded[declared.app] = declared
    return loaded


def _second(app: str) -> ConfigurationError:
    rule = "DENIABLE_REGISTRY names one registry for each app, or one folder of all that were published"
    return ConfigurationError(f"{rule}; {app} has two")


class Faulty(NamedTuple):
    """A registry that cannot be used."""

    path: str
    app: str  # as the file names it; empty if it does not
    error: DeniableError


def in_a_line(error: DeniableError | OSError) -> str:
    """Write why files cannot be used: the first fault, and how many more there are."""
    if not isinstance(error, RegistryError):
        return str(error)
    more = f" ({len(error.faults) - 1} more)" if len(error.faults) > 1 else ""
    return f"{error.faults[0]}{more}"


def tried(
    joined: str,  # as `load_all` takes them
    load: Callable[[str], dict[str, Registry]] = load_all,
) -> tuple[dict[str, Registry], list[Faulty]]:
    """Read registries one by one, so that a fault of one stops no other; raise if two are of one app."""
    loaded: dict[str, Registry] = {}
    faulty: list[Faulty] = []
    for path in paths(joined):
        try:
            read = load(path)
        except DeniableError as error:
            faulty.append(Faulty(path, _app_named(path), error))
            continue
        if second := next(iter(read.keys() & loaded.keys()), None):
            raise _second(second)
        loaded |= read
    return loaded, faulty


def joined(
    faulty: Iterable[Faulty],  # at least one
) -> DeniableError:
    """Return one error for several files, with all of their faults."""
    errors = [each.error for each in faulty]
    return errors[0] if len(errors) == 1 else ConfigurationError("\n".join(map(str, errors)))


def _app_named(path: str) -> str:
    try:
        text = files(path)[-1].read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError, RegistryError):
        return ""
    named = _APP.search(text)
    return named[1] if named else ""


def identity(loaded: Registry) -> str:
    """Return the digest of a registry with the files of candidates that it names, as they are now: for one that was just read."""
    return _with_lists(loaded.digest, loaded)


def identity_on_disk(
    loaded: Registry,
    path: str | Path,  # from which it was loaded
) -> str:
    """Return the `identity` of what a path has now. It is that of the loaded one while the files are the same, else another."""
    # Nothing is parsed. Files of other text may name other lists, but then they differ in any case. Empty: they cannot be read.
    try:
        text = b"".join(file.read_bytes() for file in files(path))
    except (OSError, RegistryError):
        return ""
    return _with_lists(sha256(text).hexdigest(), loaded)


def _with_lists(digest: str, loaded: Registry) -> str:
    for name in sorted({metric.candidates for metric in loaded.definitions if metric.candidates}):
        try:
            content = (Path(loaded.file).parent / name).read_bytes()
        except OSError:  # who only counts needs no candidates
            content = b""
        digest = sha256(digest.encode() + content).hexdigest()
    return digest


def files(path: str | Path) -> list[Path]:
    """List the registry files of a folder in order, or the file itself; raise `RegistryError` for a folder of anything else."""
    folder = Path(path)
    if not folder.is_dir():
        return [folder]
    paths = sorted(folder.glob("*.toml"))
    others = [each.name for each in paths if not _NAME.fullmatch(each.name)]
    if others or not paths:
        wrong = f"the folder has {few(others)}" if others else "the folder has no registry"
        rule = "add registries with `deniable registry publish`, which names them 0001.toml, 0002.toml, ..."
        raise RegistryError([Fault(str(folder), "-", f"{wrong}: {rule}")])
    return paths


def newest(path: str | Path) -> Registry:
    """Read only the current registry, which the newest app has; raise `RegistryError` if the file has faults."""
    return registry.load(files(path)[-1])


def add(file: Path, folder: Path) -> Path:
    """Add a registry to a folder, with the files that it names, unless the folder would have faults; return its path."""
    # Raises ConfigurationError if it cannot be written, if the folder has no number left, or if a file that it names would
    # replace another one.
    loaded = registry.load(file)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        last = max((int(path.stem) for path in folder.glob("*.toml") if _NAME.fullmatch(path.name)), default=0)
        if last == _MOST:
            raise ConfigurationError(f"a folder holds at most {_MOST} registries; remove what no app uses")
        target = folder / f"{last + 1:04d}.toml"
        lists = sorted({metric.candidates for metric in loaded.metrics.values() if metric.candidates})
        for name in lists:
            _check_list(name, loaded, folder)
        # First the folder with the new files is read as a server reads it. Nothing is written if this fails.
        with TemporaryDirectory() as temporary:
            trial = Path(temporary)
            for path in [path for path in folder.iterdir() if path.is_file()] + [file.parent / name for name in lists]:
                shutil.copyfile(path, trial / path.name)
            shutil.copyfile(file, trial / target.name)
            _try(trial, folder)
            for name in (*lists, target.name):
                _replace(trial / name, folder / name)
    except OSError as error:
        raise ConfigurationError(f"the registry cannot be added: {error}") from None
    return target


def _check_list(name: str, loaded: Registry, folder: Path) -> None:
    """Check that a file of candidates can be added to a folder, and replaces no file of another metric."""
    if Path(name).name != name:
        raise ConfigurationError(
            f"the file of candidates {name!r} is in another folder: put it beside the registry, and write its name alone"
        )
    if name.endswith(".toml"):
        raise ConfigurationError(
            f"the file of candidates {name!r} has the name of a registry: give it another one, such as answers.txt"
        )
    source, target = Path(loaded.file).parent / name, folder / name
    if not target.exists() or target.read_bytes() == source.read_bytes():
        return
    own = {metric.id for metric in loaded.metrics.values() if metric.candidates == name}
    for other in folder.glob("*.toml"):
        for metric in registry.load(other).metrics.values():
            if metric.candidates == name and metric.id not in own:
                rule = f"{target} has the candidates of {metric.id}, which {other.name} declares; give the new file another name"
                raise ConfigurationError(rule)


def _try(trial: Path, folder: Path) -> None:
    """Read a trial copy of a folder as a server does, with all candidates. Faults name the real folder."""
    try:
        joined = load(trial)
        for metric in joined.definitions:
            joined.candidates(metric)
    except RegistryError as error:
        places = [str(folder / Path(fault.file).name) for fault in error.faults]
        raise RegistryError([replace(fault, file=at) for fault, at in zip(error.faults, places, strict=True)]) from None


def _replace(source: Path, target: Path) -> None:
    """Copy a file in one step, so that nobody reads a part of it."""
    unfinished = target.with_name(f".{target.name}.new")
    shutil.copyfile(source, unfinished)
    rename_onto(unfinished, target)


def _merged(loaded: Sequence[Registry]) -> Registry:
    latest = loaded[-1]
    if len(loaded) == 1:
        return latest
    definitions: dict[tuple[str, int], Metric] = {}
    segments: dict[str, tuple[str, ...]] = {}
    above = {}
    for declared in loaded:
        definitions |= {(metric.id, metric.version): metric for metric in declared.metrics.values()}
        for name, values in declared.segments.items():
            segments[name], above[name] = values, declared.generalize.get(name, {})
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
    keys: dict[int, Registry] = {}
    for declared in loaded:
        if declared.app != loaded[0].app:
            yield Fault(
                declared.file, "-", f"app: keep each app in a folder of its own; this one is of {loaded[0].app!r}", declared.app
            )
        if declared.relay:
            other = keys.setdefault(declared.relay.number, declared)
            if other.relay and other.relay.key != declared.relay.key:
                rule = f"relay.key: write it with another number; {other.file} has another key of this one"
                yield Fault(declared.file, "-", rule, declared.relay.number)
        for metric in declared.metrics.values():
            place = metric.id, metric.version
            first, old = known.setdefault(place, (declared, metric))
            for name in MEANING:
                if getattr(old, name) != getattr(metric, name):
                    rule = f"{name}: raise version, or write it as in {first.file}, which declares version {metric.version} too"
                    yield Fault(declared.file, metric.id, rule, getattr(metric, name))
            if metric.delay is not None and not covered(metric.delay, metric.grace):
                rule = f"delay: write at least an hour less than the grace of {loaded[-1].file}, which is {metric.grace!r}"
                yield Fault(declared.file, metric.id, rule, metric.delay)
            if metric.version < highest.get(metric.id, 0):
                rule = f"version: write {highest[metric.id]} or more; an earlier file has version {highest[metric.id]}"
                yield Fault(declared.file, metric.id, rule, metric.version)
            highest[metric.id] = max(metric.version, highest.get(metric.id, 0))
