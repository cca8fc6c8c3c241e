"""Inputs of a page: diagnoses with their evidence, and the times that they are about."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from latdoctor.diagnosis.result import Diagnosis, Vital
from latdoctor.evidence.model import Evidence, Window
from latdoctor.incident.timeline_model import DiagnosisEvent, Timeline
from latdoctor.report.html.page_model import Highlight
from latdoctor.report.vital_signs import headline_latency, phrase

BEFORE, AT_WORST, AFTER, ONLY = "before", "during the incident", "afterwards", "in this observation"
COLORS = {BEFORE: 1, AT_WORST: 2, AFTER: 3}  # the same in every chart, whichever of them there are
_LEVELS = ("healthy", "info", "inconclusive", "warning", "critical")  # the worst is last
_WELL = ("healthy", "info")
_CONTEXT = 0.5  # of the period in front, shown before it and after it
_MIN_CONTEXT = 30.0  # seconds
_MAX_FRONT = 1800.0  # seconds; of a longer incident the recent minutes are in front


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One observation. Missing parts are None, for the reason `why`. `slo_p99` in seconds."""

    name: str
    diagnosis: Diagnosis | None
    evidence: Evidence | None
    slo_p99: float | None = None
    time: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Period:
    """Unix seconds."""

    start: float
    end: float


def highlight(snapshot: Snapshot) -> Highlight | None:
    """The latency of the answer's verdict line, with the time that it was measured over."""
    sign = headline_latency(snapshot.diagnosis) if snapshot.diagnosis else None
    if snapshot.diagnosis is None or sign is None or not isinstance(sign.value, float):
        return None
    period = _measured_over(sign, snapshot.diagnosis, snapshot.evidence)
    return Highlight("headline", phrase(sign), sign.value, period.start, period.end) if period else None


def front(diagnosis: Diagnosis, measured: Highlight | None) -> Period | None:
    """The time that charts show first: what was judged, back to the onset, with context on both sides.

    Of a longer incident these are the recent 30 minutes, and at least the time of the answer's latency.
    """
    known = _period(diagnosis.evidence_window) or _period(diagnosis.window)
    end = measured.end if measured else known.end if known else None
    if end is None:
        return None
    start = measured.start if measured else end
    if diagnosis.since is not None and diagnosis.since.time < end:
        start = min(start, max(diagnosis.since.time, end - _MAX_FRONT))
    if start == end and known is not None:
        start = max(known.start, end - _MAX_FRONT)
    context = max(_MIN_CONTEXT, _CONTEXT * (end - start))
    return Period(start - context, end + context)


def _measured_over(sign: Vital, diagnosis: Diagnosis, evidence: Evidence | None) -> Period | None:
    """The window of the reading behind a vital sign; else that of the evidence, or of the observation."""
    readings = evidence.readings_by_signal.get(sign.signal, ()) if evidence else ()
    windows = [one.window for one in readings if (one.subject, one.value) == (sign.subject, sign.value)]
    candidates = (*windows[-1:], diagnosis.evidence_window, diagnosis.window)
    return next((period for window in candidates if (period := _period(window))), None)


def _period(window: Window) -> Period | None:
    return Period(window.start, window.end) if window.start is not None and window.end is not None else None


def chosen(timeline: Timeline) -> tuple[tuple[str, DiagnosisEvent], ...]:
    """The diagnoses that a page compares: the last healthy one before the worst, the worst, and the last after it.

    Among equally bad ones the worst is the one that names a cause with the highest probability. An equally bad one
    counts as afterwards only if a run had changed something by then; the last one after a change always does.
    """
    if not timeline.looks:
        return ()
    last = len(timeline.looks) - 1
    changed = _changed(timeline, last)
    hurt = any(event.level not in _WELL for event in timeline.looks[:last])
    until = last if changed and hurt else last + 1
    worst = max(range(until), key=lambda place: _badness(timeline.looks, place))
    found = [(AT_WORST, timeline.looks[worst])]
    before = [event for event in timeline.looks[:worst] if event.level in _WELL]
    if before:
        found.insert(0, (BEFORE, before[-1]))
    if last > worst and (changed or _level(timeline.looks[last]) < _level(timeline.looks[worst])):
        found.append((AFTER, timeline.looks[last]))
    return tuple(found)


def _changed(timeline: Timeline, place: int) -> bool:
    """Whether a run that changed something had ended before that diagnosis."""
    at = unix(timeline.looks[place].at)
    ends = (unix(run.ended_at) for run in timeline.runs if run.changes and run.ended_at)
    return at is not None and any(end is not None and end <= at for end in ends)


def _badness(events: Sequence[DiagnosisEvent], place: int) -> tuple[int, float, int]:
    probability = max((cause.probability for cause in events[place].causes if cause.named), default=0.0)
    return _level(events[place]), probability, -place


def _level(event: DiagnosisEvent) -> int:
    return _LEVELS.index(event.level) if event.level in _LEVELS else 0


def unix(at: str) -> float | None:
    """RFC 3339 as unix seconds; None for an invalid time."""
    try:
        return datetime.datetime.fromisoformat(at).timestamp()
    except (ValueError, OverflowError):
        return None
