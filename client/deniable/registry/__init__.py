"""The registry: all metrics of an app, declared in ``metrics.toml`` before anything is collected.

::

    format = 1
    app = "shop"

    [segments]
    platform = ["linux", "macos", "windows"]
    version = ["2.4.0", "2.4.1", "3.0"]
    arm = ["control", "large.button"]

    [generalize]                  # a rare value is shown within a more common one; optional
    version = "."                 # 2.4.1, 2.4, 2

    [experiments]                 # segments whose values are arms; optional
    arm = { base = "control", planned = 0.02 }

    [publication]                 # optional
    min_reports = 1000            # fewest reports behind anything published; a metric may have its own number
    grace = "12h"                 # how long a period takes reports after its end; a metric may have its own

    [analysts]                    # cost of questions about withheld numbers of reports; optional
    epsilon = 1.0                 # nats of all keys together, about the reports of a month
    per_key = 0.5                 # nats of one key

    [retention]                   # days after a period has closed; optional
    tallies = 30                  # exact sums
    releases = 1095               # releases

    [relay]                       # who mixes the reports of metrics with `shuffled`, and the server's public key; optional
    operator = "Example Foundation"
    key = "1:..."                 # from: deniable registry keygen --sealing 1

    [budget]                      # of a device, over all metrics, in nats; optional
    per_month = 8.0               # in a calendar month
    lifetime = 480.0              # ever

    [caps]                        # a metric that asks for more is off; optional
    epsilon = 4.0                 # nats of one report
    permanent = 4.0               # nats of all reports of one kept answer

    [metrics."ui.theme"]
    type = "categorical"
    values = ["light", "dark", "system"]
    epsilon = 1.0                 # of one report
    epsilon_permanent = 2.0       # of all reports of one answer, for a question asked every day; optional
    period = "day"
    other = "system"              # reported for every answer that is not listed; optional
    delay = "6h"                  # a report waits on the device for a random time up to that; optional
    segments = ["platform"]
    description = "Which theme people use"
    owner = "design@shop.example"
    expires = 2027-12-31

    [metrics."startup.ms"]
    type = "number"
    range = [1, 60000]            # numbers beyond are reported as the nearer end
    unit = "ms"
    scale = "log"
    estimate = "distribution"     # quantiles and the mean; or: "mean"
    epsilon = 2.0
    description = "How long the app takes to start"
    owner = "core@shop.example"

    [metrics."home.page"]
    type = "string"
    candidates = "pages.txt"      # or: discover = true
    epsilon = 2.0
    description = "Which home page is set"
    owner = "core@shop.example"

A published metric is immutable: its reports can only be decoded as it was declared when they were made. To change it, raise its
``version``. This begins a new count.
"""

from __future__ import annotations

import tomllib
from decimal import Decimal
from os import PathLike, pathsep
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import Fault, ParameterError, RegistryError
from deniable.exact.sha import sha256
from deniable.frozen import dataclass, field, fields
from deniable.registry import hierarchy, text
from deniable.registry.answers import types
from deniable.registry.metric import Metric
from deniable.registry.relay import Relay, Shuffled
from deniable.registry.rules import COIN_EPSILON, faults_of
from deniable.registry.tables import Analysts, Budget, Caps, Experiment, Publication, Retention

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["OTHER", "Metric", "Registry", "load", "parse", "read"]

OTHER = "(other)"
"""The value of a segment for reports with an unlisted value. It cannot be a listed value."""


@dataclass(frozen=True, slots=True)
class Registry:
    """All metrics of an app.

    Parameters
    ----------
    app
        The app's name, a lower-case word.
    metrics
        The metrics, by id.
    segments
        The declared values of each segment, by its name.
    budget
        What a device may spend over all metrics. None for the default, or that of the caps in the app's code.
    caps
        Bounds on what any metric may ask. None for the defaults. Those in an app's code hold instead.
    revision
        Raised with every publication of a served registry; 0 for others.
    file
        The file. Files that it names are beside it.
    generalize
        By segment, the next more general word of each word (see ``deniable.registry.hierarchy``).
    experiments
        By segment, the experiment of which its values are the arms.
    publication
        How results are published.
    retention
        How long sums, releases and alarms are kept.
    analysts
        The budget of questions about withheld numbers of reports.
    digest
        SHA-256 of its text, or of the texts of all files of a folder, one after another.
    relay
        Who mixes the reports of metrics with ``shuffled``, and the key that they are sealed to. None if no metric has that.
    older
        Versions of metrics that only earlier registries declare. Apps may still use them (see ``deniable.registry.published``).
    """

    app: str
    metrics: Mapping[str, Metric]
    segments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    budget: Budget | None = None
    caps: Caps | None = None
    revision: int = 0
    file: str = field(default="metrics.toml", compare=False)
    generalize: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    experiments: Mapping[str, Experiment] = field(default_factory=dict)
    publication: Publication = field(default_factory=Publication)
    retention: Retention = field(default_factory=Retention)
    analysts: Analysts = field(default_factory=Analysts)
    digest: str = field(default="", compare=False)
    relay: Relay | None = None
    older: tuple[Metric, ...] = ()

    @property
    def definitions(self) -> tuple[Metric, ...]:
        """All versions of all metrics."""
        return (*self.metrics.values(), *self.older)

    def candidates(self, metric: Metric) -> tuple[int, ...]:
        """Read a metric's candidates as positions in its domain; empty if the metric names no file.

        Raises
        ------
        RegistryError
            If the file cannot be read, is empty, or has a line that is no answer or occurs twice. The error has every fault.
        """
        if metric.candidates is None:
            return ()
        path = Path(self.file).parent / metric.candidates
        try:
            lines = text.lines(path)
        except (OSError, UnicodeDecodeError) as error:
            rule = f"candidates: {text.unreadable(error)}; the file must have one answer to a line, in UTF-8"
            raise refusal(self.file, [Fault(self.file, metric.id, rule, metric.candidates)]) from None
        faults, first_lines = [], dict[int, int]()
        for number, line in enumerate(lines, 1):
            where = f"line {number}: {line!r}"
            try:
                position = metric.kind.candidate(metric, line)
            except ParameterError as error:
                faults.append(Fault(str(path), metric.id, f"{where}: {error.rule}"))
                continue
            if position in first_lines:
                faults.append(Fault(str(path), metric.id, f"{where}: remove it; it is on line {first_lines[position]} already"))
            first_lines.setdefault(position, number)
        if not lines:
            faults.append(Fault(str(path), metric.id, "the file is empty: write one answer to a line"))
        if faults:
            raise RegistryError(faults)
        return tuple(first_lines)

    def segment(self, metric: Metric, values: Mapping[str, str]) -> str:
        """Write a report's segment, e.g. ``platform=linux,version=2.4``; empty if the metric has no segments.

        Parameters
        ----------
        metric
            A metric of this registry.
        values
            The device's value of each segment. Segments that the metric does not name are ignored.

        Raises
        ------
        ParameterError
            If a segment is missing or its value is not declared.
        """
        words = []
        for name in metric.segments:
            value, declared = values.get(name), self.segments[name]
            if value not in declared:
                from deniable.messages.lookalike import nearest  # noqa: PLC0415 - only a mistake needs it

                wrong = (
                    f"the segment {name} is missing"
                    if value is None
                    else f"the segment {name} is {value!r}, which is not declared"
                )
                meant = nearest(value, declared) or declared[0]
                mended = f'pass segments={{"{name}": "{meant}"}} to init, with one of {", ".join(declared)}'
                raise ParameterError(f"{wrong}: {mended}")
            words.append(f"{name}={values[name]}")
        return ",".join(words)

    def filed(self, metric: Metric, written: str) -> str:
        """Rewrite a report's segment with the values that this registry lists. Any other value becomes ``(other)``.

        Raises
        ------
        ParameterError
            If it does not have a value for exactly the metric's segments, in their order.
        """
        pairs = [part.partition("=") for part in written.split(",") if written]
        if tuple(name if equals else None for name, equals, _ in pairs) != metric.segments:
            shape = ",".join(f"{name}=..." for name in metric.segments) or "as an empty text"
            raise ParameterError(f"the segment of {metric.id}: write it {shape}", written[:60])
        return ",".join(f"{name}={value if value in self.segments[name] else OTHER}" for name, _, value in pairs)


def load(path: str | Path) -> Registry:
    """Read a registry file, of which a path may begin with ``~``.

    Raises
    ------
    RegistryError
        If the file has faults. The error has all of them.
    ParameterError
        If that is no path.
    """
    if not isinstance(path, str | PathLike):
        raise ParameterError(f"registry: write the path of metrics.toml, not an object of type {type(path).__name__}", ...)
    path = Path(path).expanduser()
    return parse(read(path), str(path))


def read(path: str | Path) -> str:
    """Read the text of a registry file, with unchanged line ends, and without the byte order mark of some editors."""
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        rule = "the registry is missing: name another file, or have `deniable init` write one"
        if "," in str(path):
            rule = f"{rule}; if these are several, join them by '{pathsep}'"
        raise RegistryError([Fault(str(Path(path).absolute()), "-", rule)]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise RegistryError([Fault(str(path), "-", f"the registry cannot be read: {text.unreadable(error)}")]) from None


def parse(text: str, file: str = "metrics.toml", publication: Publication | None = None) -> Registry:
    """Read a registry from TOML text.

    Parameters
    ----------
    text
        TOML.
    file
        The file's name in faults.
    publication
        The publication of metrics that declare none themselves; None for that of the text.

    Raises
    ------
    RegistryError
        If the text has faults. The error has all of them.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        from deniable.registry.syntax import fault_of  # noqa: PLC0415 - only a text that is no TOML needs it

        raise RegistryError([fault_of(text, file, str(error))]) from None
    faults = [Fault(file, *details) for details in document_faults(document)]
    if faults:
        raise _refusal(text, faults)
    return made_of(document, text, file, publication)


def document_faults(document: dict[str, Any]) -> Iterator[tuple[str, str, object]]:
    """Find every fault of a parsed text, as `rules.faults_of` does."""
    return faults_of(document, KEYS)


def made_of(document: dict[str, Any], text: str, file: str, publication: Publication | None = None) -> Registry:
    """Make a registry of a parsed text without faults; the arguments are those of `parse`."""
    segments = {name: tuple(values) for name, values in document.get("segments", {}).items()}
    publication = publication or Publication(**document.get("publication", {}))
    metrics = {id_: _metric(id_, table, publication) for id_, table in document["metrics"].items()}
    return Registry(
        document["app"],
        metrics,
        segments,
        budget=Budget(**document["budget"]) if "budget" in document else None,
        caps=Caps(**document["caps"]) if "caps" in document else None,
        revision=document.get("revision", 0),
        file=file,
        generalize={
            name: hierarchy.parents(segments[name], declared) for name, declared in document.get("generalize", {}).items()
        },
        experiments={name: Experiment(**declared) for name, declared in document.get("experiments", {}).items()},
        publication=publication,
        retention=Retention(**document.get("retention", {})),
        analysts=Analysts(**document.get("analysts", {})),
        relay=Relay(**document["relay"]) if "relay" in document else None,
        digest=sha256(text.encode()).hexdigest(),
    )


def _refusal(text: str, faults: list[Fault]) -> RegistryError:
    from deniable.registry.places import placed  # noqa: PLC0415 - only a registry with faults needs it

    return RegistryError(placed(text, faults))


def refusal(file: str, faults: Iterable[Fault]) -> RegistryError:
    """Return the error of the faults of a file, each with its line. A registry that was never a file has no lines."""
    faults = list(faults)
    try:
        return _refusal(read(file), faults)
    except RegistryError:
        return RegistryError(faults)


def _metric(id_: str, table: dict[str, Any], publication: Publication) -> Metric:
    members: dict[str, Any] = {"min_reports": publication.min_reports, "grace": publication.grace} | table
    kind = types.of(members["type"])
    members["values"] = kind.values(members)
    members["factors"] = tuple((name, tuple(listed)) for name, listed in members.get("factors", {}).items())
    members["parameters"] = tuple(sorted(members.get("parameters", {}).items()))
    members.setdefault("epsilon", COIN_EPSILON)
    if members.pop("whole", False):
        members["step"] = 1
    for name in ("epsilon", "epsilon_permanent", "sample", "least_shift", *kind.decimals):
        if name in members:
            members[name] = _decimal(members[name])
    members["range"] = tuple(map(_decimal, members.get("range", ())))
    members["segments"] = tuple(members.get("segments", ()))
    if "shuffled" in members:
        members["shuffled"] = Shuffled(**members["shuffled"])
    return Metric(id=id_, **members)


def _decimal(written: object) -> str:
    """Write a number in one way: 1 and 1.0 are the same."""
    return f"{Decimal(str(written)).normalize():f}"


KEYS = (*(f.name for f in fields(Metric) if f.init and f.name != "id"), "whole")
"""The keys that a metric may have."""
