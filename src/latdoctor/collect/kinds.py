"""What a file looks like that its reader makes nothing of: most often it was given with the wrong option."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from latdoctor.collect.access_log.collector import recognise
from latdoctor.collect.logs import records, stamps
from latdoctor.evidence.bundle import Artifact

_HEAD = 128 << 10  # bytes by which a kind is told
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
class Kind:
    """`readers` are the collectors that such a file is for; `advice` says how it is given."""

    what: str
    readers: tuple[str, ...]
    advice: str
    fits: Callable[[bytes], object]


def _log(head: bytes) -> bool:
    if recognise(head).access_log:
        return True
    lines = [stamps.parse(stamps.cleaned(raw), 0.0) for raw in head.splitlines()[:_TRIED] if raw.strip()]
    told = sum(line.time is not None or line.uptime is not None for line in lines)
    return bool(lines) and told >= _MOST * len(lines)


def _metrics(head: bytes) -> bool:
    return records.is_metrics([line.strip() for line in head.splitlines()[:_TRIED] if line.strip()])


KINDS = (
    Kind("an SQLite database, as nsys exports and nvprof writes", ("nsight",), "give it with --nsys FILE",
         lambda head: head.startswith(b"SQLite format 3\0")),
    Kind("a report of Nsight Systems", ("nsight",), "nsys export --type sqlite FILE, and give that with --nsys",
         lambda head: b"NVIDIA Nsight Systems" in head[:64]),
    Kind("a bundle", (), "diagnose it by itself: latdoctor diagnose FILE",
         lambda head: head.startswith(b"\x28\xb5\x2f\xfd")),
    Kind("a pickle, as torch's memory snapshots are", ("torch_memory",), "give it with --torch-memory FILE",
         re.compile(rb"\A\x80[\x02-\x05]").match),
    Kind("a profiler's trace", ("torch_trace",), "give it with --trace FILE", _TRACE.search),
    Kind("torch's memory_stats", ("torch_memory",), "give it with --torch-memory FILE", _MEMORY_STATS.search),
    Kind("what trtexec writes of an engine", ("tensorrt",), "give it with --tensorrt FILE", _ENGINE.search),
    Kind("a metrics page", ("prometheus",), "give it with --metrics FILE", _metrics),
    Kind("a table of nsys stats or nvprof", ("nsight",), "give it with --nsys FILE", _TABLE.search),
    Kind("a log", ("logs", "access_log", "tensorrt"), "give it with --log FILE", _log),
)  # fmt: skip


def advice(artifact: Artifact, reader: str) -> str:
    """Which option `artifact` is for, where it is not for `reader`, a collector that made nothing of it; else empty."""
    head = _head(artifact.content)
    kind = next((one for one in KINDS if one.fits(head)), None) if head else None
    if kind is None or reader in kind.readers:
        return ""
    return f"it looks like {kind.what}: {kind.advice}"


def _head(content: bytes | Path) -> bytes:
    """The beginning of a file, unpacked; empty where it cannot be read, which its reader has told already."""
    try:
        raw = content[:_HEAD] if isinstance(content, bytes) else _beginning(content)
        return zlib.decompressobj(wbits=31).decompress(raw, _HEAD) if raw.startswith(_GZIP) else raw
    except (OSError, zlib.error):
        return b""


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD)
