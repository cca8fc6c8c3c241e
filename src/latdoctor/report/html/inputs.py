"""What a page is made from: looks with all that they saw, as whoever may read bundles hands them in."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from latdoctor.diagnosis.result import Diagnosis
from latdoctor.evidence.model import Evidence
from latdoctor.incident.timeline_model import DiagnosisEvent, Timeline

BEFORE, AT_WORST, AFTER, ONLY = "before", "in the incident", "afterwards", "in this look"
COLORS = {BEFORE: 1, AT_WORST: 2, AFTER: 3}  # the same in every chart, whichever of them there are
_LEVELS = ("healthy", "info", "inconclusive", "warning", "critical")  # the worst is last
_ENOUGH = ("healthy", "info")


@dataclass(frozen=True, slots=True)
class Seen:
    """One look. What of it is missing is None, and `why` says for what reason. `slo_p99` in seconds."""

    name: str
    diagnosis: Diagnosis | None
    evidence: Evidence | None
    slo_p99: float | None = None
    time: float | None = None
    why: str = ""


def chosen(timeline: Timeline) -> tuple[tuple[str, DiagnosisEvent], ...]:
    """The looks that a page compares: the last healthy one before the worst, the worst, and the last after it.

    Of looks that are equally bad it is the one that names a cause most surely. One that is as bad, and was made before
    anything had been changed, is no look at how it was afterwards; the last one after a change always is, were it the
    worst of all. Their bundles are to be read.
    """
    if not timeline.looks:
        return ()
    last = len(timeline.looks) - 1
    changed = _changed(timeline, last)
    hurt = any(look.level not in _ENOUGH for look in timeline.looks[:last])
    until = last if changed and hurt else last + 1
    worst = max(range(until), key=lambda place: _badness(timeline.looks, place))
    found = [(AT_WORST, timeline.looks[worst])]
    before = [look for look in timeline.looks[:worst] if look.level in _ENOUGH]
    if before:
        found.insert(0, (BEFORE, before[-1]))
    if last > worst and (changed or _level(timeline.looks[last]) < _level(timeline.looks[worst])):
        found.append((AFTER, timeline.looks[last]))
    return tuple(found)


def _changed(timeline: Timeline, place: int) -> bool:
    """Whether a run that changed something had ended when that look was made."""
    at = unix(timeline.looks[place].at)
    ends = (unix(run.ended_at) for run in timeline.runs if run.changes and run.ended_at)
    return at is not None and any(end is not None and end <= at for end in ends)


def _badness(looks: Sequence[DiagnosisEvent], place: int) -> tuple[int, float, int]:
    ramp = max((cause.probability for cause in looks[place].causes if cause.named), default=0.0)
    return _level(looks[place]), ramp, -place


def _level(look: DiagnosisEvent) -> int:
    return _LEVELS.index(look.level) if look.level in _LEVELS else 0


def unix(at: str) -> float | None:
    """RFC 3339 as unix seconds; None where it is no time."""
    try:
        return datetime.datetime.fromisoformat(at).timestamp()
    except (ValueError, OverflowError):
        return None
