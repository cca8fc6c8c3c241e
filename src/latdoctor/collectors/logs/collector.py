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

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

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
from latdoctor.collectors.logs import NAME, SIGNALS, broken_lines, carriers, formats, log_blocks, log_source
from latdoctor.collectors.logs import scanner as log_events
from latdoctor.collectors.logs.line_kinds import CANDIDATE, LINE_KINDS
from latdoctor.collectors.logs.line_reading import LineReading
from latdoctor.collectors.logs.log_clock import LogTimes, ahead_within
from latdoctor.collectors.logs.log_source import LogSource
from latdoctor.collectors.logs.time_coverage import LogTimeCoverage
from latdoctor.collectors.logs.undated_times import UndatedTimes, is_undated, undated_times
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap
from latdoctor.evidence.prefilter import Prefilter
from latdoctor.gap_code import GapCode, code_of_os_error
from latdoctor.sanitize import clean

MAX_DOCUMENT = 64 << 20  # bytes of a JSON document; the rest of a longer one is not read

# Words of lines that are no requests, as they make a log of requests worth reading as an application log too.
_NO_REQUESTS = Prefilter(
    (
        rb"NVRM|(?i:cuda)|Traceback|Started server process|Booting worker",
        *(needle for kind in LINE_KINDS for needle in kind.needles),
    )
)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_REST_OF_DOCUMENT = f"only the first {MAX_DOCUMENT >> 20} MiB of its JSON document were read"


def collect(request: CollectRequest, clock: Clock) -> CollectResult:
    """Read the files of `request.logs`; an unreadable one is a gap. `-` is standard input."""
    artifacts: list[Artifact] = []
    gaps: list[Gap] = []
    kinds: list[access_log.LogContent] = []
    for path in request.logs:
        name = piped_input.shown_name(path) if piped_input.is_stream(path) else path.name
        source = clean(piped_input.display(path))
        try:
            raw = log_source.read(path, request.timeout)
            kind = _kind(raw, request.log_pattern)
        except (OSError, SourceError) as error:
            reason = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else error.what
            next_step = log_source.CHECK_PATH if isinstance(error, OSError) else error.next_step
            code = code_of_os_error(error) if isinstance(error, OSError) else error.code
            gaps.append(_gap(source, clean(reason), next_step, code))
            continue
        kinds.append(kind)
        if raw.missing:
            hidden = SIGNALS if kind.other else ()
            step = "pass the part that covers the incident as a separate file"
            gaps.append(Gap(NAME, f"{source}: {raw.missing}", hidden, next_step=step, code=raw.code))
        group = _unique_name(name, {artifact.group for artifact in artifacts})
        if kind.other:
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


def _kind(raw: LogSource, pattern: str) -> access_log.LogContent:
    """Whether it contains requests and other lines; of a long log by parts of it, and by all of it for other lines."""
    kind = access_log.recognise(raw.sample(), pattern)
    if kind.other:
        return kind
    content = raw.content
    blocks = (content,) if isinstance(content, bytes) else log_blocks.blocks(content)
    return replace(kind, other=any(_NO_REQUESTS.search(block) for block in blocks))


def _unique_name(name: str, taken: set[str]) -> str:
    stem = _UNSAFE.sub("_", name.removesuffix(".gz"))[:100].strip("._") or "log"
    unique, number = stem, 2
    while unique in taken:
        unique, number = f"{stem}-{number}", number + 1
    return unique


def _gap(source: str, reason: str, next_step: str, code: GapCode) -> Gap:
    return Gap(NAME, f"{source}: {reason}", SIGNALS, next_step=next_step, code=code)


def _parse_one(artifact: Artifact, requested: time_range.TimeRange | None) -> Evidence:
    try:
        return _read_lines(artifact, requested)
    except OSError as error:
        code = code_of_os_error(error)
        raise SourceError(f"cannot be read: {error.strerror}", where=artifact.source, code=code) from error


def _read_lines(artifact: Artifact, requested: time_range.TimeRange | None) -> Evidence:
    raw = broken_lines.without_cut_number(log_blocks.blocks(artifact.content))
    blocks = (block for block in carriers.unwrapped(raw) if block)
    head = _head(blocks)
    form = formats.form_of(head, artifact.source)
    scan = log_events.LogScanner(artifact, LogTimeCoverage(requested) if requested else None)
    kinds = [(kind, kind.of(artifact, requested)) for kind in LINE_KINDS]
    times = LogTimes(ahead_within(head, artifact.written_by) if form != formats.DOCUMENT else None)
    undated = _undated(head, artifact, requested) if form == formats.PLAIN else None
    lines = LineReading(
        scan, kinds, CANDIDATE, artifact.written_by, times, records=form == formats.RECORDS, undated=undated
    )
    missing = ""
    if form == formats.DOCUMENT:
        content, missing = _document(itertools.chain([head], blocks))
        lines.read_document(formats.lines_of_document(content, artifact.written_by))
    else:
        lines.read(itertools.chain([head], blocks))
    if not (scan.nature.kernel_lines or scan.nature.application_lines):
        raise SourceError(
            "contains no log line", where=artifact.source, next_step="pass a log that is not empty", code=GapCode.EMPTY
        )
    if lines.unread:
        missing = f"{lines.unread} of its JSON records could not be read; they may contain events"
    complete = not artifact.name.endswith((log_source.PART, log_source.TAIL)) and not missing
    found = [scan.evidence(complete=complete), *(reader.evidence(complete=complete) for _, reader in kinds)]
    found.append(Evidence(clocks=times.clocks(artifact.name)))
    if undated and (gap := undated.gap(artifact)):
        found.append(Evidence(gaps=(gap,)))
    if missing:
        code = GapCode.UNREADABLE if lines.unread else GapCode.TOO_LARGE
        step = "journalctl --all -o json" if lines.unread else "pass the part that covers the incident"
        found.append(Evidence(gaps=(_gap(artifact.source, missing, step, code),)))
    return Evidence.merge(found)


def _undated(head: bytes, artifact: Artifact, requested: time_range.TimeRange | None) -> UndatedTimes | None:
    """What dates a log whose times have no date; None where a time range is asked for and its day is not certain."""
    if not is_undated(head):
        return None
    found = undated_times(log_blocks.blocks(artifact.content), artifact)
    return found if found and (found.certain or requested is None) else None


def _head(blocks: Iterator[bytes]) -> bytes:
    """The beginning of a log, long enough to recognise its form."""
    content = b""
    while len(content) < formats.HEAD // 2 and (block := next(blocks, b"")):
        content += block
    return content


def _document(blocks: Iterable[bytes]) -> tuple[bytes, str]:
    """A JSON document, and what is missing of one that is too long."""
    content = bytearray()
    for block in blocks:
        content += block
        if len(content) > MAX_DOCUMENT:
            return bytes(content[:MAX_DOCUMENT]), _REST_OF_DOCUMENT
    return bytes(content), ""


READER = SourceReader(collect, parse, preflight)
