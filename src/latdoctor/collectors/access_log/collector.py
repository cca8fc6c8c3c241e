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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from latdoctor.collectors import time_range
from latdoctor.collectors.access_log import NAME, SIGNALS, fields, formats
from latdoctor.collectors.access_log.formats import AccessLogFormat
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
from latdoctor.errors import SourceError, UsageError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin, Subject
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

PATTERN = ".pattern"  # suffix of the artifact with the user's pattern
_MINE = "the pattern of --log-pattern"
_TRIED = 60  # lines at each of three places used to recognise a log
_PIECE = 256 << 10
_PURE = 0.9  # share of the tried lines above which a log is a pure access log
_TELLING = re.compile(rb"NVRM|(?i:cuda)|Traceback|Started server process|Booting worker")
_LATENCY = tuple(signal for signal in SIGNALS if signal.startswith("latency"))
_RATES = ("arrival.rate", "completion.rate", "error.rate", "cancel.rate")


@dataclass(frozen=True, slots=True)
class LogContent:
    """Whether a log is an access log, contains other lines of interest, and matches the user's pattern."""

    access_log: bool
    other: bool
    fits: bool = False


def recognise(content: bytes, own: str = "") -> LogContent:
    """Recognise `content`. `own`: the user's pattern; empty if there is none."""
    lines = _tried(content)
    form = _form(lines, own)
    if form is None:
        return LogContent(access_log=False, other=True)
    share = sum(form.read(line) is not None for line in lines) / len(lines)
    other = share < _PURE or _TELLING.search(content) is not None
    return LogContent(access_log=True, other=other, fits=form.title == _MINE)


def pattern_gaps(own: str, kinds: Sequence[LogContent]) -> tuple[Gap, ...]:
    """Return a gap if the user's pattern matches none of the logs, whose contents are `kinds`."""
    if not own or not kinds or any(kind.fits for kind in kinds):
        return ()
    reason = f"--log-pattern {clean(own, 80)!r} matches none of the lines tried (beginning, middle and end of each log)"
    known = any(kind.access_log for kind in kinds)
    step = "omit it: a log was read in a common format" if known else "compare it with a line of the log"
    return (Gap(NAME, reason, () if known else SIGNALS, next_step=step, code=GapCode.NOT_MATCHED),)


def log_artifacts(
    group: str, source: str, now: float, content: bytes, own: str, requested: time_range.TimeRange | None = None
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


def _tried(content: bytes) -> list[str]:
    """Lines from the beginning, the middle and the end."""
    found: list[str] = []
    for start in dict.fromkeys((0, len(content) // 2, max(0, len(content) - _PIECE))):
        piece = content[start : start + _PIECE].split(b"\n")
        whole = piece[1 if start else 0 : -1 if start + _PIECE < len(content) else None]
        found.extend(text for raw in whole[:_TRIED] if (text := formats.line_text(raw)) is not None)
    return found


def _form(lines: Sequence[str], own: str) -> AccessLogFormat | None:
    if own:
        own_format = AccessLogFormat(_MINE, _own(own).read, "look at --log-pattern")
        if any(own_format.read(line) for line in lines):
            return own_format
    found = formats.recognise_format(lines)
    return found[0] if found else None


def _own(text: str) -> fields.Pattern:
    """Raises SourceError: the pattern may be from a bundle, not from the command line."""
    try:
        return fields.compiled(text)
    except UsageError as error:
        raise SourceError(f"its pattern is invalid: {error.what}", next_step=error.next_step) from error


def _parse_one(artifact: Artifact, own: str, requested: time_range.TimeRange | None) -> Evidence:
    content = artifact.read()
    lines = _tried(content)
    form = _form(lines, own)
    if form is None:
        raise SourceError(
            "contains no readable request", where=artifact.source, next_step=_HOW, code=GapCode.UNSUPPORTED
        )
    pure = sum(form.read(line) is not None for line in lines) >= _PURE * len(lines)
    gathering = RequestGatherer(requested)
    for number, raw in enumerate(io.BytesIO(content), 1):
        text = formats.line_text(raw)
        entry = form.read(text) if text is not None else None
        if entry is not None:
            gathering.take(entry, raw, number)
        elif raw.strip():
            gathering.other += 1
    if missed := gathering.missed:
        # It was read but does not cover that time: a gap of its subject, so that checks stay unknown.
        server = f"server/{clean(artifact.group, 100)}"
        reason = f"{artifact.source}: {missed}"
        gap = Gap(NAME, reason, SIGNALS, server, _REACH, Origin(artifact.name), GapCode.STALE)
        return Evidence(subjects=(Subject(server),), gaps=(gap,))
    parts = [_of_replica(gathering, replica, artifact, form) for replica in gathering.by_replica]
    return Evidence.merge([*parts, Evidence(gaps=tuple(_gaps(gathering, artifact, form, pure=pure)))])


_HOW = "pass the log as its server writes it, or describe its format: --log-pattern"
_REACH = "pass a log that covers the judged window (--since, --until, --window)"


def _of_replica(gathering: RequestGatherer, replica: str, artifact: Artifact, form: AccessLogFormat) -> Evidence:
    requests = gathering.by_replica[replica]
    name = clean(artifact.group, 100)
    server = f"server/{name}"
    subject = f"replica/{replica}@{name}" if replica else server
    read, why = choose_segments(time_segments(requests))
    origin = Origin(artifact.name, _place(requests))
    stats = ReplicaStats(requests, read, subject, origin, _notes(gathering, form), gathering.past)
    gaps = []
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
    if not stats.latencies:
        gaps.append(_without_latency(gathering, artifact, form, subject, stats.total))
    parts = [Evidence(subjects=_subjects(server, subject), gaps=tuple(gaps)), stats.evidence(gathering.coarse)]
    return Evidence.merge(parts)


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
