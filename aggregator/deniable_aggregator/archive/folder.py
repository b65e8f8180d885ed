"""The folder: where the archive's files are, on this machine's disk or in an object store.

::

    <URL>/<number of the partition>/<metric>/<version>-<fingerprint>/commits/<random>.parquet
    <URL>/<number of the partition>/<metric>/<version>-<fingerprint>/hours/<random>.parquet
    <URL>/<number of the partition>/<metric>/<version>-<fingerprint>/period=<period>/segment=<segment>/<random>.parquet

Files of commits are replaced by files of an hour, and these by files of a closed period. No path tells an order or another time.
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
"""How names of files begin: of a commit, of the commits of an hour, and of a closed period."""
_ENDING = ".parquet"
_PROBE = 1 << 20  # bytes of the file that `check` writes
_USER = re.compile(r"^(\w+://).*@")
_PATH = re.compile(
    rf"([^/]+)/(\d+)-[^/]+/(?:({COMMITS}|{HOURS})|period=[^/]*/segment=[^/]*/)([0-9a-f]{{32}}){re.escape(_ENDING)}"
)


class ArchiveFile(NamedTuple):
    """A file of the archive."""

    path: str  # within the folder
    # metric, version: of its reports
    metric: str
    version: int
    name: str  # as the store notes it
    size: int  # in bytes
    changed: float  # Unix time in seconds at which it was written; infinite if the file system has no such time


class Folder:
    """The files of one partition. ConfigurationError if the URL is invalid."""

    def __init__(
        self,
        url: str,  # a path, or a URL such as `s3://bucket/reports`, `gs://...`, `abfs://...` or `fsspec+sftp://...`
        number: str = "",  # The partition's, which names its folder. So stores that share a URL leave each other's files alone.
    ) -> None:
        self.url = url if "://" in url else str(Path(url).absolute())
        self.number = number
        try:
            with suppress(OSError):  # the place is away: the first use raises that
                _place(self.url)
        except (ArrowException, ImportError, ValueError):  # its text may contain a password
            about = "https://deniable.github.io/deniable/how-to/operate/archive/"
            raise ConfigurationError(f"DENIABLE_ARCHIVE, --archive: write a path or a URL, as in {about}") from None

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
        """Write a file and delete it, to see whether there is room for one. ArchiveError if that fails."""
        with _archive_errors():
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
        """Write reports to a new file, which is on the disk when this returns; return its name. ArchiveError if it fails."""
        name = kind + uuid4().hex
        with _archive_errors(), self._opened(f"{self._root}/{self.path(stratum, name)}") as sink:
            file.write(sink, file.Head(stratum, layout), payloads)
        return name

    @contextmanager
    def read(
        self,
        # stratum, name: as the store notes it
        stratum: Stratum,
        name: str,
    ) -> Iterator[tuple[file.Head, Iterator[bytes]]]:
        """Open a file; yield what `file.read` returns. Any error in the block of the caller, too, becomes an ArchiveError."""
        with _archive_errors(), self._fs.open_input_file(f"{self._root}/{self.path(stratum, name)}") as source:
            try:
                head, payloads = file.read(source)
                # The file of a commit has the period of the devices. If they were late, its reports count in another one.
                expected = stratum._replace(period=head.stratum.period) if name.startswith(COMMITS) else stratum
                if head.stratum != expected:
                    raise DamagedFileError("it has reports of something else")
                yield head, payloads
            except PayloadError:
                raise DamagedFileError("it has reports that no device sends") from None
            except (ArrowException, OSError) as error:
                # Arrow raises a wrong checksum as an OSError without a number. From afar that may also be a lost connection.
                if self._local and not getattr(error, "errno", None):
                    raise DamagedFileError(f"it is damaged ({type(error).__name__})") from error
                raise

    def find(self, metric: str = "") -> list[ArchiveFile]:
        """List all files, or those of a metric, in the order of their paths. Files that no worker wrote are left out."""
        with _archive_errors():
            # A disk that is not mounted seems to have no files. To say so would be taken for an empty archive.
            if self._local and self.number and not Path(self._root).is_dir():
                raise MissingFileError("the folder is not there; is the disk?")
            start = f"{self._root}/{quote(metric, safe='')}".rstrip("/")
            selected = fs.FileSelector(start, allow_not_found=True, recursive=True)
            files = [each for each in self._fs.get_file_info(selected) if each.type == fs.FileType.File]
        listed = [_parsed(each.path[len(self._root) + 1 :], each) for each in files]
        return sorted(filter(None, listed))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files, and folders that this leaves empty. A file that is not there is no error."""
        for path in paths:
            with _archive_errors(), suppress(FileNotFoundError):
                self._fs.delete_file(f"{self._root}/{path}")
            if self._local:
                self._prune(Path(self._root, path).parent)

    def address(self, path: str) -> str:
        """Return the path or URL of a file, without secret keys and options, for other programs."""
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
        except BaseException:  # a half-written file would stay for a day
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
        missing = [ancestor for ancestor in (Path(folder), *Path(folder).parents) if not ancestor.exists()]
        for ancestor in reversed(missing):  # readable by nobody else
            ancestor.mkdir(0o700, exist_ok=True)
            _sync(str(ancestor.parent))

    def _prune(self, folder: Path) -> None:
        with suppress(OSError):  # it is not empty
            while folder != Path(self._root):
                folder.rmdir()
                folder = folder.parent


@lru_cache(8)
def _place(url: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URL, and the path in it."""
    system, path = fs.FileSystem.from_uri(url)
    return system, path


@contextmanager
def _archive_errors() -> Iterator[None]:
    """Raise the errors of any library as errors of ours."""
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


def _parsed(path: str, info: fs.FileInfo) -> ArchiveFile | None:
    """Return the file of a path; None if it is not the path of a worker's file."""
    parts = _PATH.fullmatch(path)
    if not parts:
        return None
    changed = math.inf if info.mtime_ns is None else info.mtime_ns / 1e9
    return ArchiveFile(path, unquote(parts[1]), int(parts[2]), (parts[3] or "") + parts[4], info.size, changed)
