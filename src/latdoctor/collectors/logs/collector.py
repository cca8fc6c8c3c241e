"""Collector of driver and application logs: Xids, lost GPUs, CUDA errors, driver mismatches and OOM kills.

Which signals count as searched (Evidence.looked), so that no finding means a count of zero:

* `log.xid`, `log.gpu_lost`, `log.sxid`, `log.oom_kill` only if the log contains lines of several parts of the kernel.
  Else it is taken for an extract; one with lines of the GPU driver (`dmesg | grep NVRM`) covers Xids and lost GPUs.
* `log.cuda_error` only if it is an application's log (`log_nature.py`), because the kernel does not report CUDA errors.
* `log.driver_mismatch` in either case. None if the end of the log could not be read (`….part`) or only the end was read
  (`….tail`), because the rest may contain events.

Times without a zone (dmesg -T, syslog) are read as UTC, and the event's field `zone` says so.

With a time range (`--since`, `--until`), events outside it do not count, and a log that does not reach the judged
window counts as not searched (`time_coverage.py`). Changes count even if they are older.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from latdoctor.collectors import piped_input, time_range
from latdoctor.collectors.access_log import collector as access_log
from latdoctor.collectors.base import (
    Availability,
    Clock,
    CollectRequest,
    CollectResult,
    SourceAvailability,
    SourceReader,
)
from latdoctor.collectors.input_files import modified_at
from latdoctor.collectors.logs import NAME, SIGNALS, formats, line_prefix
from latdoctor.collectors.logs import scanner as log_events
from latdoctor.collectors.logs.line_kind import LineLocation, LineReader
from latdoctor.collectors.logs.line_kinds import CANDIDATE, LINE_KINDS
from latdoctor.collectors.logs.line_prefix import MAX_LINE
from latdoctor.collectors.logs.time_coverage import LogTimeCoverage
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap
from latdoctor.gap_code import GapCode, code_of_os_error
from latdoctor.sanitize import clean

MAX_READ = 64 << 20  # only the end of a longer log is read
MAX_UNPACKED = 1 << 30  # limit of a .gz file or a stream
MAX_RECORD = 1 << 20  # bytes of a JSON record

# Suffixes of incomplete artifacts, so that a replay recognises them.
_PART = ".part"  # its end
_TAIL = ".tail"  # its beginning
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_CHUNK = 1 << 20
_PACKED = 1 << 14  # packed bytes per read: at most this much is lost before damaged data
_GZIP = b"\x1f\x8b"
_CHECK_PATH = "check the path of --log"


@dataclass(frozen=True, slots=True)
class _Raw:
    """The content of a log. `lacks` is _PART or _TAIL if it is incomplete, and `missing` says what is missing."""

    content: bytes
    lacks: str = ""
    missing: str = ""
    code: GapCode = GapCode.UNSPECIFIED


def collect(request: CollectRequest, clock: Clock) -> CollectResult:
    """Read the files of `request.logs`; an unreadable one is a gap. `-` is standard input."""
    artifacts: list[Artifact] = []
    gaps: list[Gap] = []
    kinds: list[access_log.LogContent] = []
    for path in request.logs:
        name = piped_input.shown_name(path) if piped_input.is_stream(path) else path.name
        source = clean(piped_input.display(path))
        try:
            raw = _read(path, request.timeout)
            kind = access_log.recognise(raw.content, request.log_pattern)
        except (OSError, SourceError) as error:
            reason = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else error.what
            next_step = _CHECK_PATH if isinstance(error, OSError) else error.next_step
            code = code_of_os_error(error) if isinstance(error, OSError) else error.code
            gaps.append(_gap(source, clean(reason), next_step, code))
            continue
        kinds.append(kind)
        if raw.missing:
            hidden = SIGNALS if kind.other else ()
            step = "pass the part that covers the incident as a separate file"
            gaps.append(Gap(NAME, f"{source}: {raw.missing}", hidden, next_step=step, code=raw.code))
        group = _unique_name(name, {artifact.group for artifact in artifacts})
        if kind.other or any(one.has_needle(raw.content) for one in LINE_KINDS):
            written = None if piped_input.is_stream(path) else modified_at(path)
            log = Artifact(f"{NAME}/{group}{raw.lacks}", NAME, group, source, clock.now(), raw.content, written)
            artifacts += time_range.with_time_range(log, request.past)
        if kind.access_log:
            artifacts += access_log.log_artifacts(
                group, source, clock.now(), raw.content, request.log_pattern, request.past
            )
    return CollectResult(tuple(artifacts), (*gaps, *access_log.pattern_gaps(request.log_pattern, kinds)))


def parse(artifacts: Sequence[Artifact]) -> Evidence:
    """Return the events of one log. Raises SourceError if it contains no text."""
    requested = time_range.read_time_range(artifacts)
    return Evidence.merge(_parse_one(one, requested) for one in artifacts if not one.name.endswith(time_range.SUFFIX))


def preflight() -> Sequence[SourceAvailability]:
    return (
        SourceAvailability(
            "driver and application logs",
            Availability.IF_GIVEN,
            "kernel log (Xids, lost GPUs, out-of-memory kills) and the server's own log (CUDA errors)",
            "dmesg -T > dmesg.log, then --log dmesg.log",
            "--log FILE",
        ),
    )


def _read(path: Path, timeout: float) -> _Raw:
    """Read the log's last MAX_READ bytes, unpacked. Raises OSError, and SourceError for anything but a log."""
    if piped_input.is_stream(path):
        return _read_stream(path, timeout)
    if not path.is_file():
        reason = "is a folder" if path.is_dir() else "is not a regular file" if path.exists() else "does not exist"
        raise SourceError(reason, where=str(path), next_step=_CHECK_PATH)
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        if packed:
            return _read_packed(file)
        size = path.stat().st_size
        if size > MAX_READ:
            _must_be_log(file.read(formats.HEAD))
            file.seek(size - MAX_READ)
        return _tail(file.read(MAX_READ), size)


def _read_stream(path: Path, timeout: float) -> _Raw:
    stream = piped_input.read_stream(path, timeout, MAX_READ, MAX_UNPACKED)
    if stream.content.startswith(_GZIP):
        return _read_packed(io.BytesIO(stream.content))
    raw = _tail(stream.content, stream.size)
    if stream.unfinished:
        lost = f"; {raw.missing}" if raw.missing else ""
        return _Raw(raw.content, _PART, f"incomplete: {stream.unfinished}{lost}", GapCode.TIMEOUT)
    return raw


def _must_be_log(head: bytes) -> None:
    """Raises SourceError. Only the end of a long file is kept, which no longer identifies its type."""
    formats.form_of(formats.decoded(head), "")


def _read_packed(file: IO[bytes]) -> _Raw:
    kept = bytearray()
    size = 0
    broken = ""
    for chunk in _unpacked(file):
        if isinstance(chunk, str):
            broken = chunk
            break
        size += len(chunk)
        if size > MAX_UNPACKED:
            raise SourceError(
                f"unpacks to more than {MAX_UNPACKED >> 20} MiB: unpack it and pass its end", code=GapCode.TOO_LARGE
            )
        kept += chunk
        if len(kept) > 2 * MAX_READ:
            _must_be_log(bytes(kept[: formats.HEAD])) if size == len(kept) else None
            del kept[:-MAX_READ]
    raw = _tail(bytes(kept[-MAX_READ:]), size)
    return _Raw(raw.content, _PART, broken, GapCode.UNREADABLE) if broken else raw


def _unpacked(file: IO[bytes]) -> Iterator[bytes | str]:
    """Yield the content of a gzip file in pieces; a string at the end means that it is truncated or damaged."""
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
        if unpacker.eof:  # a gzip file may have several members, followed by zero padding
            pending = (unpacker.unused_data or file.read(_PACKED)).lstrip(b"\0")
            if pending:
                unpacker = zlib.decompressobj(wbits=31)
        elif not pending:
            pending = file.read(_PACKED)
    if not unpacker.eof:
        yield "its end could not be read: the gzip file is truncated"


def _tail(content: bytes, size: int) -> _Raw:
    """Return `content`, the end of a log of `size` bytes, from its first complete line on."""
    if size <= len(content):
        return _Raw(content)
    reason = (
        f"only the last {len(content) >> 20} MiB of {size >> 20} MiB were read, so events may be in "
        "the rest; line numbers count from there"
    )
    return _Raw(content[content.find(b"\n") + 1 :], _TAIL, reason, GapCode.TOO_LARGE)


def _unique_name(name: str, taken: set[str]) -> str:
    stem = _UNSAFE.sub("_", name.removesuffix(".gz"))[:100].strip("._") or "log"
    unique, number = stem, 2
    while unique in taken:
        unique, number = f"{stem}-{number}", number + 1
    return unique


def _gap(source: str, reason: str, next_step: str, code: GapCode) -> Gap:
    return Gap(NAME, f"{source}: {reason}", SIGNALS, next_step=next_step, code=code)


def _parse_one(artifact: Artifact, requested: time_range.TimeRange | None) -> Evidence:
    content = formats.decoded(artifact.read(limit=2 * MAX_READ))
    form = formats.form_of(content, artifact.source)
    scan = log_events.LogScanner(artifact, LogTimeCoverage(requested, artifact.written_by) if requested else None)
    lines = _Lines(scan, artifact, tuple(kind.of(artifact, requested) for kind in LINE_KINDS))
    unread = lines.read_records(content) if form == formats.RECORDS else 0
    if form == formats.PLAIN:
        lines.read(content)
    elif form == formats.DOCUMENT:
        lines.read_document(content)
    if not (scan.nature.kernel_lines or scan.nature.application_lines):
        raise SourceError(
            "contains no log line", where=artifact.source, next_step="pass a log that is not empty", code=GapCode.EMPTY
        )
    complete = not artifact.name.endswith((_PART, _TAIL)) and not unread
    found = [scan.evidence(complete=complete), *(reader.evidence(complete=complete) for reader in lines.readers)]
    if unread:
        reason = f"{unread} of its JSON records could not be read; they may contain events"
        gap = _gap(artifact.source, reason, "journalctl --all -o json", GapCode.UNREADABLE)
        found.append(Evidence(gaps=(gap,)))
    return Evidence.merge(found)


@dataclass(frozen=True, slots=True)
class _Lines:
    """Passes the lines of one log to its scanner and to the readers of LINE_KINDS."""

    scan: log_events.LogScanner
    artifact: Artifact
    readers: tuple[LineReader, ...]

    def read(self, content: bytes) -> None:
        """Read a log of plain lines."""
        scan = self.scan
        for number, raw in enumerate(io.BytesIO(content), 1):
            start = raw[:MAX_LINE]
            if CANDIDATE.search(start):
                text, line = formats.line_of(raw[:MAX_RECORD], self.artifact.written_by)
                self._take(LineLocation(number, text, line, raw=raw[:MAX_RECORD]), start)
            elif scan.nature.is_sampled(number):
                scan.take(LineLocation(number, *_plain(start, self.artifact)), False)
            if scan.coverage:
                scan.coverage.add_line(start, number)
        if scan.coverage:
            scan.coverage.finish()

    def read_document(self, content: bytes) -> None:
        """Read a JSON document; its records are counted instead of lines."""
        for number, lines in enumerate(formats.lines_of_document(content, self.artifact.written_by), 1):
            for text, line in lines:
                self._take(LineLocation(number, text, line, "record"), line.message.encode("utf-8", "replace"))

    def read_records(self, content: bytes) -> int:
        """Read a log of JSON records. Returns how many could not be read."""
        unread = 0
        for number, raw in enumerate(io.BytesIO(content), 1):
            if not raw.strip():
                continue
            try:
                if len(raw) > MAX_RECORD:
                    raise ValueError("record too long")
                for text, line in formats.lines_of(raw, self.artifact.written_by):
                    searched = line.message.encode("utf-8", "replace") + b"\n" + raw  # numbers may be in other fields
                    self._take(LineLocation(number, text, line, raw=raw), searched)
            except ValueError:
                unread += 1
        return unread

    def _take(self, at: LineLocation, raw: bytes) -> None:
        """Pass a line on; `raw` are the bytes that are searched for needles."""
        at = self.scan.take(at, CANDIDATE.search(raw) is not None)
        if self.scan.coverage and (
            at.line.time is None or self.scan.coverage.excludes(at.line.time, earlier_too=False)
        ):
            return
        for kind, reader in zip(LINE_KINDS, self.readers, strict=True):
            if kind.has_needle(raw):
                reader.take(at)


def _plain(raw: bytes, artifact: Artifact) -> tuple[str, line_prefix.LogLine]:
    """Parse only the prefix of a line."""
    text = line_prefix.clean_line(raw)
    return text, line_prefix.parse(text, artifact.written_by)


READER = SourceReader(collect, parse, preflight)
