"""Driver logs and application logs: Xids, lost GPUs, CUDA errors, driver mismatches and out-of-memory kills.

What counts as searched (Evidence.looked), so that no finding is a count of zero:

* `log.xid`, `log.gpu_lost`, `log.sxid`, `log.oom_kill` only where kernel lines stand in the log. Where all of them are
  the GPU driver's own, the log is taken for an extract (`dmesg | grep NVRM`): it can speak of Xids and lost GPUs only.
* `log.cuda_error` only where lines of applications stand in it; the kernel does not report CUDA errors.
* `log.driver_mismatch` in either case. Nothing at all where the end of the log could not be read (`….part`).

Times without a zone (dmesg -T, syslog) are read as UTC, and the event's field `zone` says so.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from latdoctor.collect.logs import events as log_events
from latdoctor.collect.logs.lines import WORTH_A_LOOK
from latdoctor.collect.source import Clock, Collected, Collector, Request, Sight
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap
from latdoctor.text import clean

NAME = "logs"
MAX_READ = 64 << 20  # of a longer log its end is read
MAX_UNPACKED = 1 << 30  # a .gz that holds more is refused
MAX_LINE = 4096  # of a longer line its beginning is read

_PART = ".part"  # ends the name of an artifact whose end is missing
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_CHUNK = 1 << 20
_PACKED = 1 << 14  # packed bytes taken at a time: so much is lost before damaged data


def collect(request: Request, clock: Clock) -> Collected:
    """Reads the files of `request.logs`; one that cannot be read is a gap."""
    artifacts: list[Artifact] = []
    gaps: list[Gap] = []
    for path in request.logs:
        source = clean(str(path))
        try:
            content, missing = _read(path)
        except (OSError, SourceError) as error:
            reason = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else error.what
            gaps.append(_gap(source, clean(reason), log_events.SIGNALS))
            continue
        if missing:
            gaps.append(_gap(source, missing, log_events.SIGNALS))
        name = _unique_name(path, {artifact.group for artifact in artifacts})
        suffix = _PART if missing.startswith("its end") else ""
        artifacts.append(Artifact(f"{NAME}/{name}{suffix}", NAME, name, source, clock.now(), content))
    return Collected(tuple(artifacts), tuple(gaps))


def parse(artifacts: Sequence[Artifact]) -> Evidence:
    """The events of one log. Raises SourceError where it holds no text."""
    return Evidence.merge(_parse_one(artifact) for artifact in artifacts)


def preflight() -> Sequence[Sight]:
    return (
        Sight(
            "driver and application logs",
            "if given",
            "kernel log (Xids, lost GPUs, out-of-memory kills) and the server's own log (CUDA errors)",
            "dmesg -T > dmesg.log, then --log dmesg.log",
        ),
    )


def _read(path: Path) -> tuple[bytes, str]:
    """The log's last MAX_READ bytes, unpacked, and what is missing of it (empty for nothing).

    Raises OSError and SourceError.
    """
    if not path.is_file():
        reason = "is not a regular file" if path.exists() else "does not exist"
        raise SourceError(reason, where=str(path))
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if packed:
            return _read_packed(file)
        size = path.stat().st_size
        if size > MAX_READ:
            file.seek(size - MAX_READ)
        return _tail(file.read(MAX_READ), size)


def _read_packed(file: io.BufferedReader) -> tuple[bytes, str]:
    kept = bytearray()
    size = 0
    broken = ""
    for chunk in _unpacked(file):
        if isinstance(chunk, str):
            broken = chunk
            break
        size += len(chunk)
        if size > MAX_UNPACKED:
            raise SourceError(f"unpacks to more than {MAX_UNPACKED >> 20} MiB: unpack it and give its end")
        kept += chunk
        if len(kept) > 2 * MAX_READ:
            del kept[:-MAX_READ]
    content, missing = _tail(bytes(kept[-MAX_READ:]), size)
    return content, broken or missing


def _unpacked(file: io.BufferedReader) -> Iterator[bytes | str]:
    """The content of a gzip file piece by piece; a text ends it where the file is cut short or damaged."""
    unpacker = zlib.decompressobj(wbits=31)
    pending = file.read(_PACKED)
    while pending:
        try:
            piece = unpacker.decompress(pending, _CHUNK)
        except zlib.error:
            yield "its end could not be read: the gzip data is damaged"
            return
        yield piece
        pending = unpacker.unconsumed_tail
        if unpacker.eof:  # gzip files may be several, one behind the other; padding of zeros may follow
            pending = (unpacker.unused_data or file.read(_PACKED)).lstrip(b"\0")
            if pending:
                unpacker = zlib.decompressobj(wbits=31)
        elif not pending:
            pending = file.read(_PACKED)
    if not unpacker.eof:
        yield "its end could not be read: the gzip file is cut short"


def _tail(content: bytes, size: int) -> tuple[bytes, str]:
    """`content`, the end of a log of `size` bytes, from its first whole line on."""
    if size <= len(content):
        return content, ""
    reason = f"only the last {len(content) >> 20} MiB of {size >> 20} MiB were read; line numbers count from there"
    return content[content.find(b"\n") + 1 :], reason


def _unique_name(path: Path, taken: set[str]) -> str:
    stem = _UNSAFE.sub("_", path.name.removesuffix(".gz"))[:100].strip("._") or "log"
    name, number = stem, 2
    while name in taken:
        name, number = f"{stem}-{number}", number + 1
    return name


def _gap(source: str, reason: str, signals: tuple[str, ...], next_step: str = "") -> Gap:
    return Gap(NAME, f"{source}: {reason}", signals, next_step=next_step)


def _parse_one(artifact: Artifact) -> Evidence:
    content = artifact.read(limit=2 * MAX_READ)
    if b"\0" in content:  # a truncated log begins with zeros, and UTF-16 has one for every other byte
        content = content.replace(b"\0", b"")
    _refuse_binary(content, artifact.source)
    scan = log_events.Scan(artifact)
    for number, raw in enumerate(_lines(content), 1):
        worth = WORTH_A_LOOK.search(raw) is not None
        if worth or scan.wants_writers:
            scan.take(number, _text(raw), worth)
    if not (scan.kernel_lines or scan.application_lines):
        raise SourceError("holds no log line", where=artifact.source, next_step="give a log that is not empty")
    return scan.evidence(complete=not artifact.name.endswith(_PART))


def _refuse_binary(content: bytes, source: str) -> None:
    """Raises SourceError where the beginning is no text: over 5 % control characters or 20 % not UTF-8.

    A Latin-1 log has few such bytes; random bytes have 10 % and over half.
    """
    head = content[:_CHUNK]
    control = len(head) - len(head.translate(None, delete=bytes([*range(1, 9), *range(14, 27), 28, 29, 30, 31])))
    odd = head.decode("utf-8", "replace").count("\ufffd")
    if control > 0.05 * len(head) or odd > 0.2 * len(head):
        next_step = "give it as text (a journal: journalctl -k -o short-iso > kernel.log)"
        raise SourceError("is binary, not a log of lines", where=source, next_step=next_step)


def _lines(content: bytes) -> Iterator[bytes]:
    for raw in io.BytesIO(content):
        yield raw[:MAX_LINE]


def _text(raw: bytes) -> str:
    """The line as clean text. Most lines are plain ASCII and need nothing done to them."""
    text = raw.decode("utf-8", "replace").rstrip("\r\n")
    return text if text.isascii() and text.isprintable() else clean(text, MAX_LINE)


COLLECTOR = Collector(
    name=NAME,
    title="driver and application logs",
    provides=frozenset(log_events.SIGNALS),
    asked=lambda request: bool(request.logs),
    collect=collect,
    parse=parse,
    preflight=preflight,
    ask="--log FILE",
    cost="reads a file",
)
