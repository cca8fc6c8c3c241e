"""Collector of access logs as a source of latency.

Access logs are passed as `--log FILE` like any other log and read by `logs/collector.py`, which creates the artifacts
of those that `recognise` identifies; this module parses them. The subject is `replica/R@FILE` if the lines name their
replica, otherwise `server/FILE`.

Probes (health, metrics) and refused or failed requests are excluded from latency, except timeouts: the time of a
refusal says nothing about the time of an answer. Notes report what was excluded.

With a time range (`--since`, `--until`), only requests that ended within it are read, readings cover its judged window,
and a log that does not reach that window yields only a gap.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from latdoctor.collectors import time_range
from latdoctor.collectors.access_log import (
    ERROR_LINE,
    NAME,
    SIGNALS,
    failure_stats,
    fields,
    formats,
    proxy_errors,
    stage_stats,
)
from latdoctor.collectors.access_log.bare_numbers import apply_unit, decide_unit
from latdoctor.collectors.access_log.entry import AccessLogEntry, Timestamp
from latdoctor.collectors.access_log.formats import AccessLogFormat
from latdoctor.collectors.access_log.recognition import Recognised, recognise_forms, sampled
from latdoctor.collectors.access_log.replica_stats import ReplicaStats
from latdoctor.collectors.access_log.requests import (
    UNZONED,
    RequestColumns,
    RequestGatherer,
    choose_segments,
    time_segments,
)
from latdoctor.collectors.base import (
    Availability,
    Clock,
    CollectRequest,
    CollectResult,
    SourceAvailability,
    SourceReader,
)
from latdoctor.collectors.logs import log_blocks
from latdoctor.collectors.logs.log_clock import ahead_within
from latdoctor.errors import SourceError, UsageError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Event, Evidence, Gap, Origin, Subject, Value
from latdoctor.evidence.redaction.redactor import without_secrets
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

PATTERN = ".pattern"  # suffix of the artifact with the user's pattern
_MINE = "the pattern of --log-pattern"
_PURE = 0.9  # share of the tried lines above which a log is a pure access log
_TELLING = re.compile(rb"NVRM|(?i:cuda)|Traceback|Started server process|Booting worker")
_LATENCY = tuple(signal for signal in SIGNALS if signal.startswith("latency"))
_RATES = ("arrival.rate", "completion.rate", "error.rate", "cancel.rate")
_ERRORS = ("error.ratio", "error.rate", "completion.rate")
_MAX_EVENTS = 1000
_IN_MEMORY = 8 << 20  # bytes of a log; a longer one is read from its file


@dataclass(frozen=True, slots=True)
class LogContent:
    """Whether a log is an access log, contains other lines of interest, and matches the user's pattern."""

    access_log: bool
    other: bool
    fits: bool = False


def recognise(content: bytes, own: str = "") -> LogContent:
    """Recognise `content`. `own`: the user's pattern; empty if there is none."""
    found = _recognised(formats.as_lines(content), own)
    if not found.forms and not (found.errors and found.share >= _PURE):
        return LogContent(access_log=False, other=True)
    other = found.share < _PURE or _TELLING.search(content) is not None
    return LogContent(access_log=True, other=other, fits=bool(found.forms) and found.forms[0].title == _MINE)


def pattern_gaps(own: str, kinds: Sequence[LogContent]) -> tuple[Gap, ...]:
    """Return a gap if the user's pattern matches none of the logs, whose contents are `kinds`."""
    if not own or not kinds or any(kind.fits for kind in kinds):
        return ()
    reason = f"--log-pattern {clean(own, 80)!r} matches none of the lines tried (beginning, middle and end of each log)"
    known = any(kind.access_log for kind in kinds)
    step = "omit it: a log was read in a common format" if known else "compare it with a line of the log"
    return (Gap(NAME, reason, () if known else SIGNALS, next_step=step, code=GapCode.NOT_MATCHED),)


def log_artifacts(
    group: str, source: str, now: float, content: bytes | Path, own: str, requested: time_range.TimeRange | None = None
) -> Sequence[Artifact]:
    """Return the artifacts of an access log, with the pattern and the time range that a replay needs."""
    kept = time_range.with_time_range(Artifact(f"{NAME}/{group}", NAME, group, source, now, content), requested)
    return (*kept, Artifact(f"{NAME}/{group}{PATTERN}", NAME, group, source, now, own.encode())) if own else kept


def parse(artifacts: Sequence[Artifact]) -> Evidence:
    """Return the evidence of one log. Raises SourceError if it contains no request."""
    requested = time_range.read_time_range(artifacts)
    patterns = [one for one in artifacts if one.name.endswith(PATTERN)]
    own = patterns[0].read(fields.MAX_LENGTH * 4).decode("utf-8", "replace") if patterns else ""
    logs = (one for one in artifacts if not one.name.endswith((PATTERN, time_range.SUFFIX)))
    return Evidence.merge(_parse_one(one, own, requested) for one in logs)


def _recognised(content: bytes, own: str) -> Recognised:
    found = recognise_forms(content)
    if own:
        own_format = AccessLogFormat(_MINE, _own(own).read, "look at --log-pattern")
        lines = sampled(content)
        if count := sum(own_format.read(line) is not None for line in lines):
            return replace(found, forms=(own_format,), share=count / len(lines))
    return found


def _own(text: str) -> fields.Pattern:
    """Raises SourceError: the pattern may be from a bundle, not from the command line."""
    try:
        return fields.compiled(text)
    except UsageError as error:
        raise SourceError(f"its pattern is invalid: {error.what}", next_step=error.next_step) from error


def _found_in(artifact: Artifact, own: str) -> tuple[Recognised, Iterable[bytes]]:
    """The formats of a log, and its lines. A long log stays in its file."""
    if isinstance(artifact.content, bytes) or artifact.content.stat().st_size <= _IN_MEMORY:
        content = formats.as_lines(artifact.read())
        return _recognised(content, own), io.BytesIO(content)
    sample = log_blocks.sample(artifact.content)
    lines = (line for block in log_blocks.blocks(artifact.content) for line in io.BytesIO(block))
    return _recognised(sample, own), lines


def _parse_one(artifact: Artifact, own: str, requested: time_range.TimeRange | None) -> Evidence:
    found, lines = _found_in(artifact, own)
    if not found.forms and not found.errors:
        raise SourceError(
            "contains no readable request", where=artifact.source, next_step=_HOW, code=GapCode.UNSUPPORTED
        )
    read = _read_lines(lines, found, requested, artifact)
    parts = [
        _evidence_of(gathering, artifact, form, pure=found.share >= _PURE and not place)
        for place, (form, gathering) in enumerate(read.gathered.items())
        if gathering.kept or gathering.probes or not place
    ]
    events = Evidence(subjects=(Subject(_server(artifact)),), events=tuple(read.events)) if read.events else Evidence()
    if not found.forms:
        reason = f"{artifact.source}: only the error log of a proxy: requests that were answered are not in it"
        gap = Gap(
            NAME, reason, SIGNALS, _server(artifact), "pass the access log too", Origin(artifact.name), GapCode.ABSENT
        )
        return Evidence.merge([events, Evidence(gaps=(gap,))])
    return Evidence.merge([events, _completed(parts)])


@dataclass(frozen=True, slots=True)
class _Lines:
    """The requests of a log by their format, and the failures that the error log of a proxy reports."""

    gathered: dict[AccessLogFormat, RequestGatherer]
    events: list[Event]


def _read_lines(
    lines: Iterable[bytes], found: Recognised, requested: time_range.TimeRange | None, artifact: Artifact
) -> _Lines:
    ahead = ahead_within(log_blocks.head(artifact.content), artifact.written_by)
    read = _Lines({form: RequestGatherer(requested, ahead) for form in found.forms}, [])
    near: Timestamp | None = None  # of the lines before: some servers log requests without a time
    borrowing = timed = 0  # requests without a time of their own, and those of them in a record that has one
    for number, raw in enumerate(lines, 1):
        text = formats.line_text(raw)
        form, entry = _entry(text, found.forms) if text is not None else (None, None)
        if form is not None and entry is not None:
            if entry.ended is not None and not entry.ended.zoned and (taken := formats.carrier_time(raw)) is not None:
                entry = replace(entry, ended=taken)
            if entry.ended is None:
                borrowing += 1
                own = formats.line_time(raw, artifact.taken_at) if timed or borrowing <= _TRIED_FOR_TIMES else None
                timed += own is not None
                entry = replace(entry, ended=own or near)
                read.gathered[form].borrowed |= own is None and near is not None
            read.gathered[form].take(entry, raw, number)
            continue
        if text is not None and found.errors and any(mark in raw for mark in proxy_errors.MARKS):
            error = proxy_errors.read(text)
            if error is not None:
                read.events.extend(_event(error, text, number, artifact, requested, len(read.events)))
                continue
        if raw.strip() and found.forms:
            read.gathered[found.forms[0]].other += 1
            if (borrowing or number <= _BEFORE_BORROWING) and (time := formats.line_time(raw, artifact.taken_at)):
                near = replace(time, fine=False)
    return read


def _entry(text: str, forms: Sequence[AccessLogFormat]) -> tuple[AccessLogFormat, AccessLogEntry] | tuple[None, None]:
    """The request in a line, and its format."""
    for form in forms:
        if (entry := form.read(text)) is not None:
            return form, entry
    return None, None


def _event(
    error: proxy_errors.ErrorLine,
    text: str,
    number: int,
    artifact: Artifact,
    requested: time_range.TimeRange | None,
    count: int,
) -> Iterator[Event]:
    """The event of a line of a proxy's error log, if it reports a failed request within the time range."""
    if error.failure is None or count >= _MAX_EVENTS:
        return
    if requested is not None and (error.time is None or not requested.contains(error.time.time)):
        return
    named: dict[str, Value] = {"reason": str(error.failure)}
    named |= {name: clean(without_secrets(text), 200) for name, text in
              (("path", error.path), ("server", error.server)) if text}  # fmt: skip
    place, time = Origin(artifact.name, f"line {number}"), error.time.time if error.time else None
    yield Event(ERROR_LINE, _server(artifact), place, named, time, clean(without_secrets(text), 2000))


def _server(artifact: Artifact) -> str:
    return f"server/{clean(artifact.group, 100)}"


def _completed(parts: Sequence[Evidence]) -> Evidence:
    """The evidence of the first format, completed by what only the others have: a status, for example."""
    first = parts[0]
    known = {one.signal for one in first.readings}
    if not known:
        return Evidence.merge(parts)
    for other in parts[1:]:
        more = tuple(one for one in other.readings if one.signal not in known)
        series = tuple(one for one in other.series if one.signal not in known)
        known |= {one.signal for one in more}
        first = Evidence.merge([first, Evidence(subjects=other.subjects, readings=more, series=series)])
    lacking = tuple(signal for signal in _ERRORS if signal not in known)
    return structs.replace(first, gaps=tuple(gap for gap in first.gaps if gap.signals != _ERRORS or lacking))


def _evidence_of(gathering: RequestGatherer, artifact: Artifact, form: AccessLogFormat, *, pure: bool) -> Evidence:
    if missed := gathering.missed:
        # It was read but does not cover that time: a gap of its subject, so that checks stay unknown.
        server, reason = _server(artifact), f"{artifact.source}: {missed}"
        gap = Gap(NAME, reason, SIGNALS, server, _REACH, Origin(artifact.name), GapCode.STALE)
        return Evidence(subjects=(Subject(server),), gaps=(gap,))
    parts = [_of_replica(gathering, replica, artifact, form) for replica in gathering.by_replica]
    gaps, clocks = _gaps(gathering, artifact, form, pure=pure), gathering.times.clocks(artifact.name)
    return Evidence.merge([*parts, Evidence(gaps=tuple(gaps), clocks=clocks)])


_TRIED_FOR_TIMES = 100  # requests whose line is searched for a time
_BEFORE_BORROWING = 1000  # lines at the beginning whose time is noted for requests without one
_HOW = "pass the log as its server writes it, or describe its format: --log-pattern"
_HOW_STATUS = "pass the log of the proxy in front of it"
_REACH = "pass a log that covers the judged window (--since, --until, --window)"


def _of_replica(gathering: RequestGatherer, replica: str, artifact: Artifact, form: AccessLogFormat) -> Evidence:
    requests = gathering.by_replica[replica]
    name = clean(artifact.group, 100)
    server = f"server/{name}"
    gaps = []
    unit = decide_unit(requests) if not any(seconds >= 0 for seconds in requests.duration) else None
    if unit is not None:
        apply_unit(requests, unit)
        gathering.unit_unknown = 0
        known = f"{'microseconds' if unit < 1e-3 else 'milliseconds'} by the order of its lines"
        reason = f"{artifact.source}: its durations have no unit: {known}"
        gaps.append(Gap(NAME, reason, (), subject=server, code=GapCode.AMBIGUOUS))
    subject = f"replica/{replica}@{name}" if replica else server
    read, why = choose_segments(time_segments(requests))
    origin = Origin(artifact.name, _place(requests))
    notes, past = _notes(gathering, form), gathering.past
    stats = ReplicaStats(requests, read, subject, origin, notes, past, borrowed=gathering.borrowed)
    if gathering.past and not stats.recent:
        reason = f"{artifact.source}: no request ended in the judged window"
        gaps.append(Gap(NAME, reason, SIGNALS, subject, _REACH, origin, GapCode.STALE))
        return Evidence(subjects=_subjects(server, subject), gaps=tuple(gaps), series=stats.evidence(0.0).series)
    if why:
        next_step = "pass the part that covers the incident"
        gaps.append(Gap(NAME, f"{artifact.source}: {why}", (), None, next_step, origin, GapCode.TOO_LARGE))
    if not stats.timed:
        reason = f"{artifact.source}: {form.title}, and its lines have no time: rates are unknown"
        next_step = "configure the server to log the time of each request"
        gaps.append(Gap(NAME, reason, _RATES, subject, next_step, origin, GapCode.ABSENT))
    if not stats.statuses:
        reason = f"{artifact.source}: {form.title}, and its lines have no status: failed requests are unknown"
        gaps.append(Gap(NAME, reason, _ERRORS, subject, _HOW_STATUS, origin, GapCode.ABSENT))
    if not stats.latencies:
        gaps.append(_without_latency(gathering, artifact, form, subject, stats.total))
    return Evidence.merge(
        [
            Evidence(subjects=_subjects(server, subject), gaps=tuple(gaps)),
            stats.evidence(gathering.coarse),
            stage_stats.stage_evidence(stats),
            failure_stats.failure_evidence(stats),
        ]
    )


def _subjects(server: str, subject: str) -> tuple[Subject, ...]:
    return (Subject(server), *([Subject(subject, parent=server)] if subject != server else []))


def _without_latency(
    gathering: RequestGatherer, artifact: Artifact, form: AccessLogFormat, subject: str, total: int
) -> Gap:
    step, code = form.hint, GapCode.ABSENT
    if gathering.unit_unknown:
        code = GapCode.AMBIGUOUS
        why = "it has a number that may be the duration of a request, but no unit"
    elif gathering.failed or gathering.cancelled:
        why, step = f"none of its {total} requests was answered", "query the server itself: --server URL"
        code = GapCode.EMPTY
    else:
        why = "it has no duration"
    reason = f"{artifact.source}: {form.title}: {why}"
    return Gap(NAME, reason, _LATENCY, subject, step, Origin(artifact.name), code)


def _place(requests: RequestColumns) -> str:
    return f"lines {requests.number[0]} to {requests.number[-1]}" if len(requests) else ""


def _notes(gathering: RequestGatherer, form: AccessLogFormat) -> str:
    """Caveats that apply to every number."""
    total = gathering.kept + gathering.probes
    left = {
        "probes": gathering.probes,
        "failed (their latency)": gathering.failed,
        "cancelled (their latency)": gathering.cancelled,
    }
    counted = [f"{count} {what}" for what, count in left.items() if count]
    excluded_text = f"left out of {total}: {', '.join(counted)}" if counted else ""
    zone = UNZONED if gathering.unzoned else ""
    return "; ".join(part for part in (form.title, excluded_text, zone) if part)


def _gaps(gathering: RequestGatherer, artifact: Artifact, form: AccessLogFormat, *, pure: bool) -> Iterator[Gap]:
    source, origin = artifact.source, Origin(artifact.name)
    if gathering.untimed:
        reason = f"{gathering.untimed} requests have no time, so they cannot be assigned to the requested time range"
        yield Gap(NAME, f"{source}: {reason}", (), None, _REACH, origin, GapCode.AMBIGUOUS)
    if late := gathering.late:
        yield Gap(NAME, f"{source}: {late}", (), None, _REACH, origin, GapCode.STALE)
    if not gathering.kept:
        why = f"{gathering.probes} lines, all of them probes" if gathering.probes else "no request"
        reason = f"{source}: {why}: it contains no requests of clients"
        yield Gap(NAME, reason, SIGNALS, None, _HOW, origin, GapCode.EMPTY)
    if pure and gathering.other:
        reason = f"{gathering.other} of its lines could not be read as {form.title}, or are longer than 64 KiB"
        reason = f"{source}: {reason}: their requests are missing"
        yield Gap(NAME, reason, (), None, _HOW, origin, GapCode.UNREADABLE)
    if gathering.duplicates:
        reason = f"{source}: {gathering.duplicates} lines are duplicates: counted once"
        yield Gap(NAME, reason, (), origin=origin, code=GapCode.INCONSISTENT)
    if gathering.beyond:
        reason = f"{source}: {gathering.beyond} requests of further replicas were not read"
        yield Gap(NAME, reason, (), origin=origin, code=GapCode.TOO_LARGE)
    if gathering.unit_unknown and gathering.unit_unknown < gathering.kept:
        reason = f"{gathering.unit_unknown} requests have a duration without a unit, which is ignored"
        yield Gap(NAME, f"{source}: {reason}", (), None, form.hint, origin, GapCode.AMBIGUOUS)


def _collect(request: CollectRequest, clock: Clock) -> CollectResult:
    """Collects nothing: the log collector reads the files of `--log`, because a pipe can be read only once."""
    return CollectResult()


def _preflight() -> Sequence[SourceAvailability]:
    return (
        SourceAvailability(
            "access log",
            Availability.IF_GIVEN,
            "latency, arrivals and errors for each second",
            "--log access.log",
            "--log FILE",
        ),
    )


READER = SourceReader(_collect, parse, _preflight)
