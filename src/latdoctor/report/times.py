"""Of what time a diagnosis tells: what was looked at, since when it is slow, and what changed about then."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from latdoctor.diagnosis.result import Change, Diagnosis, Onset
from latdoctor.report.view import shortened
from latdoctor.units import format_value

_CHANGES = "changes"  # the collector of notes and processes
_TARGET_WIDTH = 33  # so that target and time stand on one line of 80 columns
_SLACK = 60.0  # seconds by which a look's own readings may reach back behind its beginning, or clocks differ
_SURE = 1.0  # seconds: a moment that is known to the second is told as it is
_CENTURY = 3.2e9  # seconds: further ahead lies what is no time at all
_SHOWN = 3
_OF_LATE, _BEFORE, _ABOUT, _AFTER = "changed of late", "shortly before", "about then, before or after", "just after"


def scope(diagnosis: Diagnosis) -> str:
    """What was looked at, and the time that it tells of; where it does not tell, when it was looked at."""
    looked, told = diagnosis.window, diagnosis.evidence_window
    parts = [f"target {shortened(diagnosis.target, _TARGET_WIDTH)}"]
    watched = (looked.seconds or 0.0) >= 1
    if watched and looked.end is not None:
        parts.append(f"{format_value(looked.seconds or 0.0, 'time')} to {_moment(looked.end)}")
    begun = looked.start if watched else None
    if told.start is not None and told.end is not None and (begun is None or told.start < begun - _SLACK):
        parts.append(f"evidence from {_span(told.start, told.end)}{_ahead(told.end, looked.end)}")
    elif not watched and looked.end is not None:
        parts.append(f"looked at {_moment(looked.end)}")
    return " · ".join(parts)


def _ahead(end: float, now: float | None) -> str:
    """What a reader must know of times that lie in the future: most often their zone was not told."""
    if now is None or not _SLACK < end - now < _CENTURY:
        return ""
    return f", {format_value(end - now, 'time')} ahead of the clock here"


def since_lines(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Since when it is slow, and what changed shortly before, at about that time, and just after it."""
    lines = []
    # Within the SLO a rise is no trouble: the document has it, the first lines do not.
    since, day = None if diagnosis.verdict.level == "healthy" else diagnosis.since, ""
    if since is not None:
        name = since.signal.rpartition(".")[2].upper()
        rise = f"{name} {format_value(since.before, 'time')} before, {format_value(since.after, 'time')} then"
        until = f" until {_clock(since.until, _moment(since.time)[:10])}" if since.until is not None else ""
        about = f" (± {format_value(since.within, 'time')})" if since.within > _SURE else ""
        lines.append(f"slow since {_moment(since.time)}{about}{until}: {rise} ({shortened(since.subject)})")
        day = _moment(since.time)[:10]
    if diagnosis.changes and diagnosis.verdict.level != "healthy":
        lines += _changed(diagnosis, day)
    elif since is not None:
        lines.append(f"{_BEFORE}: {_no_change(diagnosis)}")
    return tuple(lines)


def _changed(diagnosis: Diagnosis, day: str) -> Iterator[str]:
    """The nearest changes: one that came after the onset, or may have, is not said to have come before it."""
    shown = [(_when(one, diagnosis.since), one) for one in diagnosis.changes[:_SHOWN]]
    left = len(diagnosis.changes) - len(shown)
    for when in (_OF_LATE, _BEFORE, _ABOUT, _AFTER):
        told = "; ".join(
            f"{_clock(one.time, day)} {one.says} ({shortened(one.subject)})" for of, one in shown if of == when
        )
        if told:
            yield f"{when}: {told}" + (f" and {left} more" if left else "")
            left = 0


def _when(change: Change, since: Onset | None) -> str:
    if since is None:
        return _OF_LATE
    if change.seconds_before > since.within:
        return _BEFORE
    return _AFTER if change.seconds_before < -since.within else _ABOUT


def _no_change(diagnosis: Diagnosis) -> str:
    """What an answer without a change may say: where one was looked for in vain, that is no "none"."""
    unread = [gap.reason for gap in diagnosis.gaps if gap.source == _CHANGES]
    if not unread:
        return "no change seen in what was read"
    more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
    failed = any(row.collector == _CHANGES and row.status == "failed" for row in diagnosis.coverage)
    told = "unknown, as what tells of changes could not be read" if failed else "no change seen, but not all was read"
    return f"{told} ({unread[0]}{more})"


def _clock(time: float, day: str) -> str:
    """A moment without the day where that is told already."""
    moment = _moment(time)
    return moment[11:19] if moment.startswith(day or "no day") else moment


def _span(start: float, end: float) -> str:
    first, last = _moment(start), _moment(end)
    return first if first == last else f"{first} to {last}"


def _moment(time: float) -> str:
    try:
        return datetime.datetime.fromtimestamp(time, tz=datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):  # a source may tell of any number
        return "a time that makes no sense"
