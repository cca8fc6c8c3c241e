"""Since when it is slow, and what changed shortly before: picked from the events, and put into words.

What comes shortly before need not be the cause; it is what a person looks at first, and can undo.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from latdoctor.diagnosis.result import Change, Onset
from latdoctor.evidence.model import Event, Evidence, is_unknown

ONSET, DOWN, LEVEL = "latency.onset", "server.down", "level.onset"
# What users suffer from besides latency; the time since which it is worse counts where latency has none.
_SUFFERED = ("error.ratio", "queue.depth", "queue.time.mean", "completion.rate")
_KINDS = {
    "change.deployment": "",
    "change.model": "",
    "change.version": "",
    "change.replicas": "",
    "change.config": "configuration",
    "change.package": "installed",
    "change.process_start": "process started",
}
# What a deployment brings about: many for one change, which must not crowd it out.
_EFFECTS = frozenset({"change.process_start", "change.replicas"})
SHORTLY = 1800.0  # seconds before the onset; most incidents that a change brings show within half an hour of it
SLACK = 60.0  # seconds after it: clocks of different machines, and steps of a series
MOST = 5


def onset(evidence: Evidence) -> Onset | None:
    """Since when a server is down; else the earliest rise that still lasts, else the latest one that is over."""
    down = [event for event in evidence.events_by_signal.get(DOWN, ()) if event.time is not None]
    if down:
        return _onset(min(down, key=_time))
    found = [event for event in evidence.events_by_signal.get(ONSET, ()) if event.time is not None]
    lasting = [event for event in found if "until" not in event.fields]
    if lasting:
        return _onset(min(lasting, key=_time))
    worse = [event for event in evidence.events_by_signal.get(LEVEL, ()) if _lasts_and_hurts(event)]
    if worse and not found:
        return _onset(min(worse, key=_time))
    return _onset(max(found, key=_time)) if found else None


def _lasts_and_hurts(event: Event) -> bool:
    fields = event.fields
    return event.time is not None and "until" not in fields and fields.get("signal") in _SUFFERED


def _time(event: Event) -> float:
    return event.time or 0.0


def _onset(event: Event) -> Onset:
    before, after, until, within = (_number(event, name) for name in ("before", "after", "until", "within"))
    signal = str(event.fields.get("signal", event.signal))
    return Onset(_time(event), until, signal, event.subject, before or 0.0, after or 0.0, event.origin, within or 0.0)


def _number(event: Event, name: str) -> float | None:
    value = event.fields.get(name)
    return value if isinstance(value, float | int) else None


def changes(evidence: Evidence, since: Onset | None) -> tuple[Change, ...]:
    """What changed in the half hour before the onset, or before the end of the evidence; the nearest first.

    What came after an onset by no more than clocks may differ or the onset be wrong is among them, too.
    """
    moment = since.time if since else evidence.time.end
    if moment is None:
        return ()
    until = moment + (max(SLACK, since.within) if since else 0.0)
    near = [
        event
        for signal in _KINDS
        for event in evidence.events_by_signal.get(signal, ())
        if event.time is not None and moment - SHORTLY <= event.time <= until
    ]
    nearest = sorted(near, key=lambda event: abs(moment - _time(event)))
    found = list(_once(_change(event, moment) for event in nearest))
    made = [one for one in found if one.kind not in _EFFECTS]
    shown = [*made, *(one for one in found if one.kind in _EFFECTS)][:MOST]
    return tuple(one for one in found if one in shown)


def _once(found: Iterable[Change]) -> Iterable[Change]:
    """Two sources that report one thing at one time are one change."""
    seen: set[tuple[str, str, int]] = set()
    for one in found:
        mark = (one.message, one.subject, round(one.time))
        if mark not in seen:
            seen.add(mark)
            yield one


def _change(event: Event, moment: float) -> Change:
    what, before, to = (str(event.fields.get(name, "")) for name in ("what", "from", "to"))
    versions = f"{before} → {to}" if before and to else to
    named = " ".join(part for part in (_KINDS[event.signal], what, versions) if part)
    message = named if named and not (event.signal == "change.deployment" and event.text) else event.text
    return Change(
        event.signal, event.subject, _time(event), message or event.signal, moment - _time(event), event.origin
    )


SIGNAL, LABEL = "tail.share", "stage"
UNSEEN = 1.0
# What a server's log may call the part of the way that holds a stage, where it does not report it itself.
_WITHIN = {"preprocess": "prepare", "session": "prepare", "dependency": "prepare"}


def tail_shares(evidence: Evidence) -> Mapping[str, float]:
    """By stage, 0..1: the largest of all subjects, for any of them may be the one that hurts."""
    found: dict[str, float] = {}
    for one in evidence.readings_by_signal.get(SIGNAL, ()):
        stage = dict(one.labels).get(LABEL, "")
        if stage and not isinstance(one.value, str) and not is_unknown(one.value):
            found[stage] = max(found.get(stage, 0.0), min(1.0, max(0.0, one.value)))
    return found


def impact(stage: str, shares: Mapping[str, float]) -> float:
    """The share of the tail that lies in the stage `stage`."""
    return shares.get(stage, shares.get(_WITHIN.get(stage, ""), UNSEEN))
