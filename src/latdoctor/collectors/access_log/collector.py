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

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from latdoctor.collectors import time_range
from latdoctor.collectors.access_log import (
    NAME,
    SIGNALS,
    failure_stats,
    fields,
    formats,
    pause_stats,
    stage_stats,
    step_series,
    upstream_stats,
)
from latdoctor.collectors.access_log.bare_numbers import apply_unit, decide_unit
from latdoctor.collectors.access_log.formats import AccessLogFormat
from latdoctor.collectors.access_log.recognition import Recognised, recognise_forms, sampled
from latdoctor.collectors.access_log.replica_stats import ReplicaStats
from latdoctor.collectors.access_log.request_gathering import MOST, RequestGatherer
from latdoctor.collectors.access_log.request_reading import read_lines, server_subject
from latdoctor.collectors.access_log.requests import (
    UNZONED,
    RequestColumns,
    choose_segments,
    time_segments,
)
from latdoctor.collectors.access_log.step_table import StepTable
from latdoctor.collectors.base import (
    Availability,
    Clock,
    CollectRequest,
    CollectResult,
    SourceAvailability,
    SourceReader,
)
from latdoctor.collectors.logs import log_blocks
from latdoctor.errors import SourceError, UsageError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin, Subject
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

PATTERN = ".pattern"  # suffix of the artifact with the user's pattern
_MINE = "the pattern of --log-pattern"
_PURE = 0.9  # share of the tried lines above which a log is a pure access log
_TELLING = re.compile(rb"NVRM|(?i:cuda)|Traceback|Started server process|Booting worker|BentoServer")
_LATENCY = tuple(signal for signal in SIGNALS if signal.startswith("latency"))
_RATES = ("arrival.rate", "completion.rate", "error.rate", "cancel.rate")
_ERRORS = ("error.ratio", "error.rate", "completion.rate")
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


def forms_and_blocks(artifact: Artifact, own: str) -> tuple[Recognised, Iterable[bytes]]:
    """The formats of a log, and its blocks of lines. A long log stays in its file."""
    if isinstance(artifact.content, bytes) or artifact.content.stat().st_size <= _IN_MEMORY:
        content = formats.as_lines(artifact.read())
        return _recognised(content, own), (content,)
    sample = log_blocks.sample(artifact.content)
    return _recognised(sample, own), log_blocks.blocks(artifact.content)


def _parse_one(artifact: Artifact, own: str, requested: time_range.TimeRange | None) -> Evidence:
    found, blocks = forms_and_blocks(artifact, own)
    if not found.forms and not found.errors:
        raise SourceError(
            "contains no readable request", where=artifact.source, next_step=_HOW, code=GapCode.UNSUPPORTED
        )
    read = read_lines(blocks, found, requested, artifact)
    parts = [
        _evidence_of(gathering, artifact, form, pure=found.share >= _PURE and not place)
        for place, (form, gathering) in enumerate(read.gathered.items())
        if gathering.kept or gathering.probes or not place
    ]
    events = (
        Evidence(subjects=(Subject(server_subject(artifact)),), events=tuple(read.events))
        if read.events
        else Evidence()
    )
    if not found.forms:
        reason = f"{artifact.source}: only the error log of a proxy: requests that were answered are not in it"
        gap = Gap(
            NAME,
            reason,
            SIGNALS,
            server_subject(artifact),
            "pass the access log too",
            Origin(artifact.name),
            GapCode.ABSENT,
        )
        return Evidence.merge([events, Evidence(gaps=(gap,))])
    return Evidence.merge([events, _completed(parts)])


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
        server = server_subject(artifact)
        reason = f"{artifact.source}: {missed}"
        gap = Gap(NAME, reason, SIGNALS, server, _REACH, Origin(artifact.name), GapCode.STALE)
        return Evidence(subjects=(Subject(server),), gaps=(gap,))
    parts = [_of_replica(gathering, replica, artifact, form) for replica in gathering.by_replica]
    gaps, clocks = _gaps(gathering, artifact, form, pure=pure), gathering.times.clocks(artifact.name)
    return Evidence.merge([*parts, Evidence(gaps=tuple(gaps), clocks=clocks)])


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
    segments = time_segments(requests)
    read, why = choose_segments(segments)
    table = gathering.tables.get(replica)
    origin = Origin(artifact.name, _place(requests, table))
    notes, past = _notes(gathering, form), gathering.past
    stats = ReplicaStats(requests, read, subject, origin, notes, past, table, borrowed=gathering.borrowed)
    if gathering.past and not stats.recent:
        reason = f"{artifact.source}: no request ended in the judged window"
        gaps.append(Gap(NAME, reason, SIGNALS, subject, _REACH, origin, GapCode.STALE))
        return Evidence(subjects=_subjects(server, subject), gaps=tuple(gaps), series=stats.evidence(0.0).series)
    if past and gathering.since is not None and past.judged < gathering.since:
        reason = f"{artifact.source}: too many requests in the judged window: single values are of its last {MOST}"
        gaps.append(Gap(NAME, reason, (), subject, "--window with less time", origin, GapCode.TOO_LARGE))
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
    found = Evidence.merge(
        [
            Evidence(subjects=_subjects(server, subject), gaps=tuple(gaps)),
            stats.evidence(gathering.coarse),
            pause_stats.pause_evidence(stats, segments),
            stage_stats.stage_evidence(stats),
            failure_stats.failure_evidence(stats),
            upstream_stats.upstream_evidence(stats, name) if not replica else Evidence(),
        ]
    )
    return step_series.with_whole_log(found, stats, table) if table else found


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


def _place(requests: RequestColumns, table: StepTable | None) -> str:
    first = table.first_line if table else requests.number[0] if len(requests) else 0
    return f"lines {first} to {requests.number[-1]}" if len(requests) else ""


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
    if gathering.undated_left:
        reason = f"{source}: {gathering.undated_left} requests without a time are left out; the last {MOST} are read"
        yield Gap(NAME, reason, (), origin=origin, code=GapCode.TOO_LARGE)
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
