"""The folder: where the archive's files are, on this machine's disk or in an object store.

::

    <URL>/<number of the partition>/<metric>/<version>-<fingerprint>/commits/<random>.parquet
    <URL>/<number of the partition>/<metric>/<version>-<fingerprint>/hours/<random>.parquet
    <URL>/<number of the partition>/<metric>/<version>-<fingerprint>/period=<period>/segment=<segment>/<random>.parquet

Files of commits make way for those of an hour, and these for those of a closed period. No path tells order, or more of the time.
"""

from __future__ import annotations

import math
import os
import re
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote
from uuid import uuid4

from pyarrow import ArrowException, fs

from deniable.errors import ConfigurationError, DeniableError, PayloadError
from deniable_aggregator.archive import file
from deniable_aggregator.archive.errors import ArchiveError, DamagedFileError, MissingFileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deniable.wire.layout import Layout
    from deniable.wire.report import Stratum

COMMITS, HOURS, PERIOD = "commits/", "hours/", ""
"""How names of files begin: of those of a commit, of the commits of an hour, and of all of a period."""
_ENDING = ".parquet"
_PROBE = 1 << 20  # bytes of a file that is written to see whether one can be
_USER = re.compile(r"^(\w+://).*@")
_PATH = re.compile(
    rf"([^/]+)/(\d+)-[^/]+/(?:({COMMITS}|{HOURS})|period=[^/]*/segment=[^/]*/)([0-9a-f]{{32}}){re.escape(_ENDING)}"
)


class Found(NamedTuple):
    """A file that was found."""

    path: str  # within the folder
    # metric, version: of its reports
    metric: str
    version: int
    name: str  # as the store notes it
    size: int  # in bytes
    changed: float  # Unix time in seconds at which it was written; infinite if the place does not tell


class Folder:
    """The files of one partition.

    Raises
    ------
    ConfigurationError
        If the URL is invalid.
    """

    def __init__(
        self,
        url: str,  # a path, or a URL such as `s3://bucket/reports`, `gs://...`, `abfs://...` or `fsspec+sftp://...`
        number: str = "",  # The partition's, which names its folder. So stores that share a URL leave each other's files alone.
    ) -> None:
        self.url = url if "://" in url else str(Path(url).absolute())
        self.number = number
        try:
            with suppress(OSError):  # it is away, as the first use tells
                _place(self.url)
        except (ArrowException, ImportError, ValueError):  # its text may contain a password
            raise ConfigurationError("DENIABLE_ARCHIVE, --archive: a path or a URL, see docs/archive.md") from None

    @property
    def _fs(self) -> fs.FileSystem:
        return _place(self.url)[0]

    @property
    def _root(self) -> str:
        root = _place(self.url)[1].rstrip("/")
        return f"{root}/{self.number}" if self.number else root

    @property
    def _local(self) -> bool:
        return bool(self._fs.type_name == "local")

    def of(self, number: str) -> Folder:
        """Return the folder of a partition."""
        return Folder(self.url, number)

    def check(self) -> None:
        """Write a file and delete it. A disk that is all but full has no room for it.

        Raises
        ------
        ArchiveError
            If that fails.
        """
        with _told():
            path = f"{self._root}/{uuid4().hex}"
            with self._opened(path) as sink:
                sink.write(bytes(_PROBE))
            self._fs.delete_file(path)

    def write(
        self,
        # stratum, layout: what they are
        stratum: Stratum,
        layout: Layout,
        payloads: bytes,  # whole payloads, one after another
        kind: str = COMMITS,  # `COMMITS`, `HOURS` or `PERIOD`
    ) -> str:
        """Write reports to a new file. It is on the disk when this returns.

        Returns
        -------
        str
            The file's name, to be noted under the stratum.

        Raises
        ------
        ArchiveError
            If it cannot be written.
        """
        name = kind + uuid4().hex
        with _told(), self._opened(f"{self._root}/{self.path(stratum, name)}") as sink:
            file.write(sink, file.Head(stratum, layout), payloads)
        return name

    @contextmanager
    def read(
        self,
        # stratum, name: as the store notes it
        stratum: Stratum,
        name: str,
    ) -> Iterator[tuple[file.Head, Iterator[bytes]]]:
        """Open a file; yield what `file.read` returns.

        Raises
        ------
        MissingFileError
            If there is no such file.
        DamagedFileError
            If it is not what a worker wrote there; perhaps not before all is read.
        ArchiveError
            If it cannot be read.
        """
        with _told(), self._fs.open_input_file(f"{self._root}/{self.path(stratum, name)}") as source:
            try:
                head, payloads = file.read(source)
                late = name.startswith(COMMITS)  # perhaps: then it tells the devices' period
                if head.stratum != (stratum._replace(period=head.stratum.period) if late else stratum):
                    raise DamagedFileError("it has reports of something else")
                yield head, payloads
            except PayloadError:
                raise DamagedFileError("it has reports that no device sends") from None
            except (ArrowException, OSError) as error:
                if self._local and not getattr(error, "errno", None):
                    raise DamagedFileError(f"it is damaged ({type(error).__name__})") from error
                raise

    def find(self, metric: str = "") -> list[Found]:
        """List all files, or those of a metric, in the order of their paths. What no worker wrote is left out.

        Raises
        ------
        MissingFileError
            If the folder is not there: a disk that is not mounted has no files, but that says nothing.
        ArchiveError
            If they cannot be listed.
        """
        with _told():
            if self._local and self.number and not Path(self._root).is_dir():
                raise MissingFileError("the folder is not there; is the disk?")
            start = f"{self._root}/{quote(metric, safe='')}".rstrip("/")
            selected = fs.FileSelector(start, allow_not_found=True, recursive=True)
            found = [each for each in self._fs.get_file_info(selected) if each.type == fs.FileType.File]
        listed = [_found(each.path[len(self._root) + 1 :], each) for each in found]
        return sorted(filter(None, listed))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files, and folders that this leaves empty. A file that is not there is no error.

        Raises
        ------
        ArchiveError
            If one cannot be deleted.
        """
        for path in paths:
            with _told(), suppress(FileNotFoundError):
                self._fs.delete_file(f"{self._root}/{path}")
            if self._local:
                self._prune(Path(self._root, path).parent)

    def address(self, path: str) -> str:
        """Return where a file is, as other programs take it: without keys and options of the URL."""
        place = _USER.sub(r"\1", self.url.partition("?")[0].removeprefix("fsspec+"))
        return "/".join(filter(None, (place.rstrip("/"), self.number, path)))

    @staticmethod
    def path(stratum: Stratum, name: str) -> str:
        """Return where a file of a stratum is, within the folder."""
        metric, version, fingerprint, period, segment = (quote(str(part), safe="") for part in stratum)
        within = "" if "/" in name else f"period={period}/segment={segment}/"
        return f"{metric}/{version}-{fingerprint}/{within}{name}{_ENDING}"

    @contextmanager
    def _opened(self, path: str) -> Iterator[fs.NativeFile]:
        try:
            sink = self._fs.open_output_stream(path)
        except FileNotFoundError:
            self._make(path.rpartition("/")[0])
            sink = self._fs.open_output_stream(path)
        try:
            with sink:
                yield sink
        except BaseException:
            with suppress(Exception):
                self._fs.delete_file(path)
            raise
        if self._local:
            _sync(path)
            _sync(path.rpartition("/")[0])

    def _make(self, folder: str) -> None:
        if not self._local:
            self._fs.create_dir(folder)
            return
        missing = [each for each in (Path(folder), *Path(folder).parents) if not each.exists()]
        for each in reversed(missing):  # nobody else may read what is made here
            each.mkdir(0o700, exist_ok=True)
            _sync(str(each.parent))

    def _prune(self, folder: Path) -> None:
        with suppress(OSError):  # it is not empty
            while folder != Path(self._root):
                folder.rmdir()
                folder = folder.parent


@lru_cache(8)
def _place(url: str) -> tuple[fs.FileSystem, str]:
    """Return what speaks to a place, and the path in it."""
    speaker, path = fs.FileSystem.from_uri(url)
    return speaker, path


@contextmanager
def _told() -> Iterator[None]:
    """Raise errors of any library that speaks to an archive as one of ours."""
    try:
        yield
    except DeniableError:
        raise
    except FileNotFoundError as error:
        raise MissingFileError("a file is not there") from error
    except Exception as error:
        number = getattr(error, "errno", None)  # the error's own text may contain a password
        raise ArchiveError(type(error).__name__ + (f": {os.strerror(number)}" if number else "")) from error


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _found(path: str, told: fs.FileInfo) -> Found | None:
    parts = _PATH.fullmatch(path)
    if not parts:
        return None
    changed = math.inf if told.mtime_ns is None else told.mtime_ns / 1e9
    return Found(path, unquote(parts[1]), int(parts[2]), (parts[3] or "") + parts[4], told.size, changed)
