"""Recognise the kind of a file by its content, and choose the collector that reads it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from latdoctor.evidence.bundle import Artifact

_SNIFFED = 128 << 10  # bytes read to recognise a kind
_TRIED = 60  # lines
_MOST = 0.6  # share of lines that must have a timestamp for a log
_SOME, _FEWEST_IN_ORDER = (
    0.25,
    3,
)  # the same where the first line has one and all are in order of time; how many must be
_HTTP_HEADERS = re.compile(rb"HTTP/[\d.]{1,3} \d{3}[^\n]*\n(?:[\w-]{1,60}:[^\n]*\n){0,60}\r?\n")
_CURL_VERBOSE = re.compile(rb"(?:[*<>{}](?: [^\n]*)?\r?\n){3,200}")
_FENCED = re.compile(rb"^```\w{0,20}\r?\n(.*?)(?:^```|\Z)", re.MULTILINE | re.DOTALL)
_GZIP = b"\x1f\x8b"

_TRACE = re.compile(rb'"traceEvents"\s*:|\A\s*\[\s*\{[^{}]{0,400}"ph"\s*:\s*"')
_MEMORY_STATS = re.compile(rb'"(?:allocated|reserved|active)_bytes(?:\.all\.current)?"\s*:')
_ENGINE = re.compile(rb'"Layers"\s*:\s*\[|"averageMs"\s*:|"(?:startComputeMs|startEnqMs|enqMs)"\s*:|&&&& \w+ TensorRT')
_KERNEL_LINE = re.compile(rb"NVRM: |\] pcieport | kernel: ")  # pasted with it: then it is read part by part
_TABLE = re.compile(
    rb'^"?(?:Type"?,"?)?(?:Time ?\(%\)|Start ?\(ns\)|Start|Total \(MB\))"?,"?[^\r\n]{0,400}\b(?:Name|Operation)"?\s*$',
    re.MULTILINE,
)
_NSIGHT_REPORT = re.compile(rb"NVIDIA (?:Nsight Systems|Tegra Profiler Report)")


class FileKind(StrEnum):
    """The kinds of files, by the option that reads them; `DOCUMENT` is any other text with known parts."""

    BUNDLE = "bundle"
    METRICS = "metrics"
    TRACE = "trace"
    NSIGHT = "nsys"
    NSIGHT_REPORT = "nsys-rep"
    TENSORRT = "tensorrt"
    TORCH_MEMORY = "torch-memory"
    LOG = "log"
    DOCUMENT = "document"


@dataclass(frozen=True, slots=True)
class _Test:
    """`readers` are the collectors that accept the kind, `what` describes it, `advice` says how to pass it."""

    kind: FileKind
    what: str
    readers: tuple[str, ...]
    advice: str
    fits: Callable[[bytes], object]


def _is_log(head: bytes) -> bool:
    from latdoctor.collectors.access_log.collector import recognise as recognise_access_log
    from latdoctor.collectors.logs import carriers, formats
    from latdoctor.collectors.logs.undated_times import is_undated
    from latdoctor.errors import SourceError

    head = b"".join(carriers.unwrapped([formats.decoded(head)]))
    if recognise_access_log(head).access_log:
        return True
    try:
        form = formats.form_of(head, "")
    except SourceError:
        return False
    lines = [formats.line_of(raw, 0.0)[1] for raw in head.splitlines()[:_TRIED] if raw.strip()]
    if form == formats.PLAIN and is_undated(head):
        return True
    if form != formats.PLAIN:
        return True
    times = [line.time if line.time is not None else line.uptime for line in lines]
    known = [time for time in times if time is not None]
    if not known or times[0] is None:
        return bool(lines) and len(known) >= _MOST * len(lines)
    # The lines of a stack below a message have no time of their own.
    with_stacks = len(known) >= _FEWEST_IN_ORDER and known == sorted(known)
    return len(known) >= (_SOME if with_stacks else _MOST) * len(lines)


def _is_metrics(head: bytes) -> bool:
    from latdoctor.collectors.logs import formats

    return formats.is_metrics([line.strip() for line in _page(head).splitlines()[:_TRIED] if line.strip()])


def _page(head: bytes) -> bytes:
    """What stands behind what curl prints with -i or -v, or in the first fenced block of a pasted message."""
    headers = _HTTP_HEADERS.match(head) or _CURL_VERBOSE.match(head)
    fenced = _FENCED.search(head)
    return head[headers.end() :] if headers else fenced[1] if fenced else head


def _is_document(head: bytes) -> bool:
    from latdoctor.collectors.documents.formats import FORMATS, WHOLE
    from latdoctor.collectors.documents.splitting import cleaned_lines, split, unwrapped
    from latdoctor.collectors.logs.formats import decoded

    text = decoded(head).decode("utf-8", "replace")
    document = unwrapped(text)
    if any(one.begins.search(document) for one in WHOLE):
        return True
    found = {part.format.in_logs for part in split(cleaned_lines(text), FORMATS) if part.format}
    return False in found or (True in found and not _is_log(head))


_TESTS = (
    _Test(FileKind.NSIGHT, "an SQLite database, as nsys exports and nvprof writes", ("nsight",),
          "pass it with --nsys FILE", lambda head: head.startswith(b"SQLite format 3\0")),
    _Test(FileKind.NSIGHT_REPORT, "a report of Nsight Systems", ("nsight",),
          "nsys export --type sqlite FILE, and pass the result", lambda head: _NSIGHT_REPORT.search(head[:64])),
    _Test(FileKind.BUNDLE, "a bundle", (), "diagnose it by itself: latdoctor diagnose FILE",
          lambda head: head.startswith(b"\x28\xb5\x2f\xfd")),
    _Test(FileKind.TORCH_MEMORY, "a pickle, as torch's memory snapshots are", ("torch_memory",),
          "pass it with --torch-memory FILE", re.compile(rb"\A\x80[\x02-\x05]").match),
    _Test(FileKind.TRACE, "a profiler trace", ("torch_trace",), "pass it with --trace FILE", _TRACE.search),
    _Test(FileKind.TORCH_MEMORY, "torch's memory_stats", ("torch_memory",), "pass it with --torch-memory FILE",
          _MEMORY_STATS.search),
    _Test(FileKind.TENSORRT, "output of trtexec for an engine", ("tensorrt",), "pass it with --tensorrt FILE",
          lambda head: _ENGINE.search(head) and not _KERNEL_LINE.search(head)),
    _Test(FileKind.METRICS, "a metrics page", ("prometheus",), "pass it with --metrics FILE", _is_metrics),
    _Test(FileKind.NSIGHT, "a table of nsys stats or nvprof", ("nsight",), "pass it with --nsys FILE", _TABLE.search),
    _Test(FileKind.DOCUMENT, "output of a command", ("documents",), "pass it without an option", _is_document),
    _Test(FileKind.LOG, "a log", ("logs", "access_log", "tensorrt"), "pass it with --log FILE", _is_log),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recognition:
    """The kind of a file, and what it is in words."""

    kind: FileKind
    what: str


def recognise(path: Path) -> Recognition | None:
    """The kind of the file at `path`; None where nothing fits, or it cannot be read (its reader reports that)."""
    found = _test(head_of(path))
    return Recognition(found.kind, found.what) if found else None


def wrong_option_hint(artifact: Artifact, reader: str) -> str:
    """How `artifact` is passed if not to `reader`, the collector that failed to parse it; else ""."""
    found = _test(head_of(artifact.content))
    return "" if found is None or reader in found.readers else f"it looks like {found.what}: {found.advice}"


def by_kind(recognised: Mapping[Path, Recognition | None]) -> dict[FileKind, tuple[Path, ...]]:
    """The files of each kind, in their order; what nothing recognises is a document, whose reader says so."""
    found: dict[FileKind, tuple[Path, ...]] = {}
    for path, known in recognised.items():
        kind = known.kind if known else FileKind.DOCUMENT
        found[kind] = (*found.get(kind, ()), path)
    return found


def _test(head: bytes) -> _Test | None:
    return next((one for one in _TESTS if one.fits(head)), None) if head else None


def head_of(content: bytes | Path) -> bytes:
    """The beginning of a file, unpacked; empty if unreadable."""
    try:
        raw = content[:_SNIFFED] if isinstance(content, bytes) else _beginning(content)
        return zlib.decompressobj(wbits=31).decompress(raw, _SNIFFED) if raw.startswith(_GZIP) else raw
    except (OSError, zlib.error):
        return b""


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_SNIFFED)
