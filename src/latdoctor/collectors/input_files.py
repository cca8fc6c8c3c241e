"""Files and folders that the user named: which of them can be read, what their artifacts are called, and the
collectors that do nothing but find such files.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from latdoctor.collectors.access_log.collector import recognise
from latdoctor.collectors.base import Clock, Collector, CollectRequest, CollectResult, SourceAvailability
from latdoctor.collectors.logs import formats, line_prefix
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap
from latdoctor.sanitize import clean

MAX_FILES = 64  # of a folder
_HEAD = 16  # bytes by which a kind of file is told
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")
_LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that can be read, its first bytes, and the folder that the user named in its place, if one was."""

    path: Path
    head: bytes
    folder: Path | None = None


@dataclass(slots=True)
class FileFinder:
    """Looks which of the named files can be read; those that cannot become gaps that hide `signals`.

    `endings` are those of the files of a folder that are meant, `nothing` what to do where it holds none.
    """

    source: str
    signals: tuple[str, ...]
    endings: tuple[str, ...]
    nothing: str
    gaps: list[Gap] = field(default_factory=list)

    def files(self, given: Iterable[Path]) -> tuple[InputFile, ...]:
        """The files, each once, in the order given; those of a folder by name."""
        found: dict[Path, InputFile] = {}
        for one in given:
            for path, folder in self._files(one):
                if path not in found and (head := self._opened(path)) is not None:
                    found[path] = InputFile(path, head, folder)
        return tuple(found.values())

    def _files(self, given: Path) -> Iterator[tuple[Path, Path | None]]:
        try:
            if given.is_dir():
                for path in self._inside(given):
                    yield path, given
            elif given.is_file():
                yield given, None
            else:
                self._gap(given, "is not a regular file" if given.exists() else "does not exist", "check the path")
        except OSError as error:  # its folder may not be entered
            self._gap(given, f"cannot be read: {error.strerror}", "check path and rights")

    def _inside(self, folder: Path) -> Sequence[Path]:
        found = sorted(path for path in folder.iterdir() if path.name.endswith(self.endings) and path.is_file())
        if not found:
            self._gap(folder, "holds no file of this kind", self.nothing)
        if len(found) > MAX_FILES:
            reason = f"holds {len(found)} files; only the first {MAX_FILES} are read"
            self.gaps.append(Gap(self.source, f"{clean(str(folder))}: {reason}", next_step="give the ones that matter"))
        return found[:MAX_FILES]

    def _opened(self, path: Path) -> bytes | None:
        try:
            with path.open("rb") as file:
                return file.read(_HEAD)
        except OSError as error:
            self._gap(path, f"cannot be read: {error.strerror}", "check path and rights")
            return None

    def _gap(self, path: Path, reason: str, next_step: str) -> None:
        self.gaps.append(Gap(self.source, f"{clean(str(path))}: {reason}", self.signals, next_step=next_step))


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file as the artifact `name` of its collector, read together with the others of `group`."""

    path: Path
    group: str
    name: str


def file_collector(
    finder: Callable[[], FileFinder],
    *,
    title: str,
    given: Callable[[CollectRequest], tuple[Path, ...]],
    named: Callable[[FileFinder, tuple[Path, ...]], Iterable[NamedFile]],
    parse: Callable[[Sequence[Artifact]], Evidence],
    sight: SourceAvailability,
    ask: str,
) -> Collector:
    """A collector of files that the user names: `given` are those of a request, `named` finds and names them.

    `finder` makes a Finder of its own for each look; its source and signals are those of the collector.
    """
    name, signals = finder().source, finder().signals

    def collect(request: CollectRequest, clock: Clock) -> CollectResult:
        own = finder()
        artifacts = tuple(
            Artifact(f"{name}/{one.name}", name, one.group, clean(str(one.path)), clock.now(), one.path)
            for one in named(own, given(request))
        )
        return CollectResult(artifacts, tuple(own.gaps))

    return Collector(
        name=name,
        title=title,
        provides=frozenset(signals),
        asked=lambda request: bool(given(request)),
        collect=collect,
        parse=parse,
        preflight=lambda: (sight,),
        ask=ask,
        cost="reads a file",
    )


def safe_name(name: str, otherwise: str) -> str:
    """`name` as a part of an artifact's name; `otherwise` where nothing of it is left."""
    kept = _UNSAFE.sub("-", name.replace("..", "."))[:_LONGEST_NAME].strip("._+-")
    return re.sub(r"\.{2,}", ".", kept) or otherwise


def unique_name(name: str, taken: Iterable[str]) -> str:
    """`name`, or `name-2` and so on where it is taken."""
    known = set(taken)
    found, number = name, 2
    while found in known:
        found, number = f"{name}-{number}", number + 1
    return found


_SNIFFED_BYTES = 128 << 10  # bytes by which a kind is told
_TRIED = 60  # lines
_MOST = 0.6  # share of the lines that must look like those of a log
_GZIP = b"\x1f\x8b"

_TRACE = re.compile(rb'"traceEvents"\s*:|\A\s*\[\s*\{[^{}]{0,400}"ph"\s*:\s*"')
_MEMORY_STATS = re.compile(rb'"(?:allocated|reserved|active)_bytes(?:\.all\.current)?"\s*:')
_ENGINE = re.compile(rb'"Layers"\s*:\s*\[|"averageMs"\s*:|"(?:startComputeMs|startEnqMs|enqMs)"\s*:|&&&& \w+ TensorRT')
_TABLE = re.compile(
    rb'^"?(?:Type"?,"?)?(?:Time ?\(%\)|Start ?\(ns\)|Start|Total \(MB\))"?,"?[^\r\n]{0,400}\b(?:Name|Operation)"?\s*$',
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class FileKind:
    """`readers` are the collectors that such a file is for; `advice` says how it is given."""

    what: str
    readers: tuple[str, ...]
    advice: str
    fits: Callable[[bytes], object]


def _log(head: bytes) -> bool:
    if recognise(head).access_log:
        return True
    lines = [line_prefix.parse(line_prefix.clean_line(raw), 0.0) for raw in head.splitlines()[:_TRIED] if raw.strip()]
    told = sum(line.time is not None or line.uptime is not None for line in lines)
    return bool(lines) and told >= _MOST * len(lines)


def _metrics(head: bytes) -> bool:
    return formats.is_metrics([line.strip() for line in head.splitlines()[:_TRIED] if line.strip()])


FILE_KINDS = (
    FileKind("an SQLite database, as nsys exports and nvprof writes", ("nsight",), "give it with --nsys FILE",
         lambda head: head.startswith(b"SQLite format 3\0")),
    FileKind("a report of Nsight Systems", ("nsight",), "nsys export --type sqlite FILE, and give that with --nsys",
         lambda head: b"NVIDIA Nsight Systems" in head[:64]),
    FileKind("a bundle", (), "diagnose it by itself: latdoctor diagnose FILE",
         lambda head: head.startswith(b"\x28\xb5\x2f\xfd")),
    FileKind("a pickle, as torch's memory snapshots are", ("torch_memory",), "give it with --torch-memory FILE",
         re.compile(rb"\A\x80[\x02-\x05]").match),
    FileKind("a profiler's trace", ("torch_trace",), "give it with --trace FILE", _TRACE.search),
    FileKind("torch's memory_stats", ("torch_memory",), "give it with --torch-memory FILE", _MEMORY_STATS.search),
    FileKind("what trtexec writes of an engine", ("tensorrt",), "give it with --tensorrt FILE", _ENGINE.search),
    FileKind("a metrics page", ("prometheus",), "give it with --metrics FILE", _metrics),
    FileKind("a table of nsys stats or nvprof", ("nsight",), "give it with --nsys FILE", _TABLE.search),
    FileKind("a log", ("logs", "access_log", "tensorrt"), "give it with --log FILE", _log),
)  # fmt: skip


def wrong_option_hint(artifact: Artifact, reader: str) -> str:
    """Which option `artifact` is for, where it is not for `reader`, a collector that made nothing of it; else empty."""
    head = _head(artifact.content)
    kind = next((one for one in FILE_KINDS if one.fits(head)), None) if head else None
    if kind is None or reader in kind.readers:
        return ""
    return f"it looks like {kind.what}: {kind.advice}"


def _head(content: bytes | Path) -> bytes:
    """The beginning of a file, unpacked; empty where it cannot be read, which its reader has told already."""
    try:
        raw = content[:_SNIFFED_BYTES] if isinstance(content, bytes) else _beginning(content)
        return zlib.decompressobj(wbits=31).decompress(raw, _SNIFFED_BYTES) if raw.startswith(_GZIP) else raw
    except (OSError, zlib.error):
        return b""


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_SNIFFED_BYTES)
