"""The time that a diagnosis is about: its scope, since when it is slow, and what changed shortly before."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from latdoctor.conditions.evaluator import show
from latdoctor.diagnosis.codes import Level
from latdoctor.diagnosis.result import Change, Diagnosis, Onset
from latdoctor.evidence.model import CoverageStatus
from latdoctor.report.subject_names import shortened, subject_name
from latdoctor.units import format_value

_DOWN = "server.down"  # the signal of an onset: a server that gives no more answers
_CLUSTER = "kube."  # of an onset that an event of Kubernetes shows
_CHANGES = "changes"  # the collector of notes and processes
_TARGET_WIDTH = 33  # so that target and time stand on one line of 80 columns
_SLACK = 60.0  # seconds by which an observation's own readings may precede its start, or clocks differ
_SURE = 1.0  # seconds: a moment known to the second is printed without its uncertainty
_CENTURY = 3.2e9  # seconds: further ahead is not a time at all
_MAX_CHANGES = 3
_OF_LATE, _BEFORE, _ABOUT, _AFTER = "Changed recently", "Changed before", "Changed about then", "Changed just after"


def scope(diagnosis: Diagnosis) -> str:
    """What was observed, and the time that the evidence covers; where it has no times, when it was read."""
    looked, known = diagnosis.window, diagnosis.evidence_window
    parts = [shortened(diagnosis.service or diagnosis.target, _TARGET_WIDTH)]
    watched = (looked.seconds or 0.0) >= 1
    if watched and looked.end is not None:
        parts.append(f"{format_value(looked.seconds or 0.0, 'time')} to {utc_moment(looked.end)}")
    begun = looked.start if watched else None
    if known.start is not None and known.end is not None and (begun is None or known.start < begun - _SLACK):
        parts.append(f"recorded {_span(known.start, known.end)}{_ahead(known.end, looked.end)}")
    elif not watched and looked.end is not None:
        parts.append(f"read {utc_moment(looked.end)}")
    return " · ".join(parts)


def _ahead(end: float, now: float | None) -> str:
    """A note on times in the future: most often their time zone is not in the file."""
    if now is None or not _SLACK < end - now < _CENTURY:
        return ""
    return f", {format_value(end - now, 'time')} ahead of the clock here"


def since(diagnosis: Diagnosis) -> str:
    """Since when it is slow: `since 01:00:43 (34 s)`; empty where it is not known, or nothing is wrong."""
    onset = None if diagnosis.verdict.level == Level.HEALTHY else diagnosis.since
    if onset is None:
        return ""
    about = f" (± {format_value(onset.within, 'time')})" if onset.within > _SURE else ""
    end = onset.until if onset.until is not None else diagnosis.evidence_window.end
    lasted = f", {format_value(end - onset.time, 'time')}" if end is not None and end > onset.time else ""
    until = f" until {_clock(onset.until, utc_moment(onset.time)[:10])}" if onset.until is not None else ""
    what = "down since" if onset.signal == _DOWN else "since"
    return f"{what} {utc_moment(onset.time)}{about}{until}{lasted}"


def since_lines(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Since when it is slow, and what changed shortly before, at about that time, and just after it."""
    lines = []
    onset = None if diagnosis.verdict.level == Level.HEALTHY else diagnosis.since
    if onset is not None and onset.signal == _DOWN:
        lines.append(f"{since(diagnosis)} ({shortened(onset.subject)})")
    elif onset is not None and onset.signal.startswith(_CLUSTER):
        lines.append(f"wrong in the cluster {since(diagnosis)} ({subject_name(onset.subject)})")
    elif onset is not None:
        name = onset.signal.rpartition(".")[2].upper()
        slow = onset.signal.startswith("latency")
        name, what = (name, "slow") if slow else (onset.signal, "worse")
        rise = f"{name} {show(onset.signal, onset.before)} before, {show(onset.signal, onset.after)} then"
        lines.append(f"{what} {since(diagnosis)}: {rise} ({shortened(onset.subject)})")
    return (*lines, *change_lines(diagnosis))


def change_lines(diagnosis: Diagnosis) -> tuple[str, ...]:
    """What changed shortly before, at about that time, and just after it."""
    if diagnosis.verdict.level == Level.HEALTHY:
        return ()
    if diagnosis.changes:
        return tuple(_changed(diagnosis, utc_moment(diagnosis.since.time)[:10] if diagnosis.since else ""))
    return (f"{_BEFORE}: {_no_change(diagnosis)}",) if diagnosis.since else ()


def _changed(diagnosis: Diagnosis, day: str) -> Iterator[str]:
    """The nearest changes, each before, about or after the onset."""
    shown = [(_when(one, diagnosis.since), one) for one in diagnosis.changes[:_MAX_CHANGES]]
    left = len(diagnosis.changes) - len(shown)
    for when in (_OF_LATE, _BEFORE, _ABOUT, _AFTER):
        known = "; ".join(
            f"{_clock(one.time, day)} {one.message}{_of_subject(one, diagnosis)}" for of, one in shown if of == when
        )
        if known:
            yield f"{when}: {known}" + (f" and {left} more" if left else "")
            left = 0


def _of_subject(change: Change, diagnosis: Diagnosis) -> str:
    """` (pod a/b)`; of a machine that is known only as the log of a file, the file, unless it is the only one."""
    name = change.subject.removeprefix("node/")
    if name == change.subject or name != change.origin.artifact.rpartition("/")[2]:
        return f" ({subject_name(change.subject)})"
    return "" if name in (diagnosis.service, diagnosis.target) else f" ({shortened(name)})"


def _when(change: Change, since: Onset | None) -> str:
    if since is None:
        return _OF_LATE
    if change.seconds_before > since.within:
        return _BEFORE
    return _AFTER if change.seconds_before < -since.within else _ABOUT


def _no_change(diagnosis: Diagnosis) -> str:
    """What is known where no change was found: a search that failed is not "none"."""
    unread = [gap.reason for gap in diagnosis.gaps if gap.source == _CHANGES]
    if not unread:
        return "no change seen in what was read"
    more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
    failed = any(row.collector == _CHANGES and row.status == CoverageStatus.FAILED for row in diagnosis.coverage)
    known = "unknown, as the source of changes could not be read" if failed else "no change seen, but not all was read"
    return f"{known} ({unread[0]}{more})"


def _clock(time: float, day: str) -> str:
    """A moment without the day where that is printed already."""
    moment = utc_moment(time)
    return moment[11:19] if moment.startswith(day or "no day") else moment


def _span(start: float, end: float) -> str:
    first, last = utc_moment(start), utc_moment(end)
    if first == last:
        return first
    same_day = first[:10] == last[:10]
    return f"{first[:-4]} to {last[11:] if same_day else last}"


def utc_moment(time: float) -> str:
    """`2026-11-22 01:07:14 UTC`."""
    try:
        return datetime.datetime.fromtimestamp(time, tz=datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):  # a source may contain any number
        return "at an impossible time"


def moment(diagnosis: Diagnosis, time: float) -> str:
    """The time without its day where that is the day on which the evidence ends."""
    shown, end = utc_moment(time), diagnosis.evidence_window.end
    same_day = end is not None and utc_moment(end)[:10] == shown[:10]
    return shown[11:19] if same_day else shown
