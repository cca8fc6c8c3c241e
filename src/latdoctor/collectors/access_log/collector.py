"""Access logs as a source of latency.

They are given as `--log FILE` like every other log and read together with those (`logs/collector.py`), which hands
over what `recognise` knows; here is what is made of them. The subject is `replica/R@FILE` where the lines tell their
replica, else `server/FILE`.

Left out of latency are probes (health, metrics) and requests that were refused or failed, but for those that timed out:
how long a refusal takes tells nothing of how long an answer takes. What was left out is told.

Where a part of its time is asked for (`--since`, `--until`), only requests that ended within it are read, the readings
are of its judged end, and a log that does not reach that gives nothing but a gap.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from latdoctor.collectors import time_range
from latdoctor.collectors.access_log import fields, formats
from latdoctor.collectors.access_log.formats import AccessLogFormat
from latdoctor.collectors.access_log.replica_stats import SIGNALS, ReplicaStats
from latdoctor.collectors.access_log.requests import (
    UNZONED,
    RequestColumns,
    RequestGatherer,
    choose_segments,
    time_segments,
)
from latdoctor.collectors.base import Clock, Collector, CollectRequest, CollectResult, SourceAvailability
from latdoctor.errors import SourceError, UsageError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin, Subject
from latdoctor.sanitize import clean

NAME = "access_log"
PATTERN = ".pattern"  # ends the name of the artifact that keeps a pattern of one's own
_MINE = "the pattern given with --log-pattern"
_TRIED = 60  # lines at each of three places by which a log is known
_PIECE = 256 << 10
_PURE = 0.9  # share of the tried lines from which on a log is nothing but an access log
_TELLING = re.compile(rb"NVRM|(?i:cuda)|Traceback|Started server process|Booting worker")
_LATENCY = tuple(signal for signal in SIGNALS if signal.startswith("latency"))
_RATES = ("arrival.rate", "completion.rate", "error.rate", "cancel.rate")


@dataclass(frozen=True, slots=True)
class LogContent:
    """What a log is: an access log, one that holds other lines of interest too, one that fits the given pattern."""

    access_log: bool
    other: bool
    fits: bool = False


def recognise(content: bytes, own: str = "") -> LogContent:
    """What `content` is. `own`: a pattern of one's own; empty where none was given."""
    lines = _tried(content)
    form = _form(lines, own)
    if form is None:
        return LogContent(access_log=False, other=True)
    share = sum(form.read(line) is not None for line in lines) / len(lines)
    other = share < _PURE or _TELLING.search(content) is not None
    return LogContent(access_log=True, other=other, fits=form.title == _MINE)


def pattern_gaps(own: str, kinds: Sequence[LogContent]) -> tuple[Gap, ...]:
    """What must be said where a pattern was given that fits none of the logs, which are of `kinds`."""
    if not own or not kinds or any(kind.fits for kind in kinds):
        return ()
    reason = (
        f"--log-pattern {clean(own, 80)!r} fits no line that was tried of any log (of its beginning, middle and end)"
    )
    known = any(kind.access_log for kind in kinds)
    step = "leave it out: a log was read in its common form" if known else "compare it with a line of the log"
    return (Gap(NAME, reason, () if known else SIGNALS, next_step=step),)


def log_artifacts(
    group: str, source: str, now: float, content: bytes, own: str, requested: time_range.TimeRange | None = None
) -> Sequence[Artifact]:
    """An access log as it is kept: with the pattern and the time that a replay reads it by."""
    kept = time_range.with_time_range(Artifact(f"{NAME}/{group}", NAME, group, source, now, content), requested)
    return (*kept, Artifact(f"{NAME}/{group}{PATTERN}", NAME, group, source, now, own.encode())) if own else kept


def parse(artifacts: Sequence[Artifact]) -> Evidence:
    """The evidence of one log. Raises SourceError where it holds no request."""
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
    """Raises SourceError: of a bundle, nobody gave the pattern on the command line."""
    try:
        return fields.compiled(text)
    except UsageError as error:
        raise SourceError(f"its pattern makes no sense: {error.what}", next_step=error.next_step) from error


def _parse_one(artifact: Artifact, own: str, requested: time_range.TimeRange | None) -> Evidence:
    content = artifact.read()
    lines = _tried(content)
    form = _form(lines, own)
    if form is None:
        raise SourceError("holds no request that can be read", where=artifact.source, next_step=_HOW)
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
        # It was read, and says nothing of that time: a gap of its subject, which leaves the answer open.
        server = f"server/{clean(artifact.group, 100)}"
        gap = Gap(NAME, f"{artifact.source}: {missed}", SIGNALS, server, _REACH, Origin(artifact.name))
        return Evidence(subjects=(Subject(server),), gaps=(gap,))
    parts = [_of_replica(gathering, replica, artifact, form) for replica in gathering.by_replica]
    return Evidence.merge([*parts, Evidence(gaps=tuple(_gaps(gathering, artifact, form, pure=pure)))])


_HOW = "give the log as its server writes it, or say how it is written: --log-pattern"
_REACH = "give a log that covers the judged time (--since, --until, --window)"


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
        reason = f"{artifact.source}: no request of {subject} ended in the judged time"
        gaps.append(Gap(NAME, reason, SIGNALS, subject, _REACH, origin))
        return Evidence(subjects=_subjects(server, subject), gaps=tuple(gaps), series=stats.evidence(0.0).series)
    if why:
        gaps.append(Gap(NAME, f"{artifact.source}: {why}", (), None, "give the part that covers the incident", origin))
    if not stats.timed:
        reason = f"{artifact.source}: {form.title}, and its lines tell no time: rates cannot be told"
        gaps.append(Gap(NAME, reason, _RATES, subject, "let the server log the time of each request", origin))
    if not stats.latencies:
        gaps.append(_without_latency(gathering, artifact, form, subject, stats.total))
    parts = [Evidence(subjects=_subjects(server, subject), gaps=tuple(gaps)), stats.evidence(gathering.coarse)]
    return Evidence.merge(parts)


def _subjects(server: str, subject: str) -> tuple[Subject, ...]:
    return (Subject(server), *([Subject(subject, parent=server)] if subject != server else []))


def _without_latency(
    gathering: RequestGatherer, artifact: Artifact, form: AccessLogFormat, subject: str, total: int
) -> Gap:
    step = form.hint
    if gathering.unit_unknown:
        why = "a number stands there that may be the time a request took, but not its unit"
    elif gathering.failed or gathering.cancelled:
        why, step = f"none of its {total} requests was answered", "ask the server itself: --server URL"
    else:
        why = "it tells no duration"
    return Gap(NAME, f"{artifact.source}: {form.title}: {why}", _LATENCY, subject, step, Origin(artifact.name))


def _place(requests: RequestColumns) -> str:
    return f"lines {requests.number[0]} to {requests.number[-1]}" if len(requests) else ""


def _notes(gathering: RequestGatherer, form: AccessLogFormat) -> str:
    """What a reader must know of every number."""
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
        reason = f"{gathering.untimed} requests tell no time, so nobody knows whether they belong to the time asked for"
        yield Gap(NAME, f"{source}: {reason}", (), None, _REACH, origin)
    if late := gathering.late:
        yield Gap(NAME, f"{source}: {late}", (), None, _REACH, origin)
    if not gathering.kept:
        why = f"{gathering.probes} lines, all of them probes" if gathering.probes else "no request"
        yield Gap(NAME, f"{source}: {why}: it tells nothing of requests", SIGNALS, None, _HOW, origin)
    if pure and gathering.other:
        reason = f"{gathering.other} of its lines could not be read as {form.title}, or are longer than 64 KiB"
        yield Gap(NAME, f"{source}: {reason}: what they tell is missing", (), None, _HOW, origin)
    if gathering.duplicates:
        yield Gap(NAME, f"{source}: {gathering.duplicates} lines stand there twice: counted once", (), origin=origin)
    if gathering.beyond:
        yield Gap(
            NAME, f"{source}: {gathering.beyond} requests of yet more replicas were left unread", (), origin=origin
        )
    if gathering.unit_unknown and gathering.unit_unknown < gathering.kept:
        reason = f"{gathering.unit_unknown} requests tell a duration without its unit, which is not guessed at"
        yield Gap(NAME, f"{source}: {reason}", (), None, form.hint, origin)


def _collect(request: CollectRequest, clock: Clock) -> CollectResult:
    """Nothing: the files of `--log` are read once, by the collector of logs, because a pipe can be read only once."""
    return CollectResult()


def _preflight() -> Sequence[SourceAvailability]:
    return (
        SourceAvailability(
            "access log", "if given", "latency, arrivals and errors for each second", "--log access.log"
        ),
    )


COLLECTOR = Collector(
    name=NAME,
    title="access logs",
    provides=frozenset(SIGNALS),
    is_requested=lambda request: False,
    collect=_collect,
    parse=parse,
    preflight=_preflight,
    option="--log FILE (an access log)",
    cost="reads a file",
)
