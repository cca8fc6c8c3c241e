"""What the SOP's clock adds to the journal: stages that are met, and stages that are late by the time alone."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from latdoctor.incident.clock import LATE, NOT_TOLD, StageState, clock
from latdoctor.incident.notify import receiver as what
from latdoctor.incident.notify.due import seconds_since
from latdoctor.incident.notify.telling import NOTHING, News, StageNews
from latdoctor.incident.sop import Sop
from latdoctor.incident.state import Incident
from latdoctor.journal.entry import Moment


def news(sop: Sop | None, incident: Incident, now: Moment) -> News:
    """How the stages of `sop` stand at `now`, as far as somebody is told. Raises msgspec.ValidationError."""
    if sop is None:
        return NOTHING
    return News(tuple(_stages(clock(sop, incident, now), incident, now)), sop.notify)


def _stages(states: tuple[StageState, ...], incident: Incident, now: Moment) -> Iterator[StageNews]:
    entries = {entry.digest: entry for entry in incident.entries}
    for state in states:
        if state.met_at is not None:
            entry = entries.get(state.by)
            since = seconds_since(entry, now) if entry else 0.0
            after = "" if state.seconds is None else f" after {minutes(state.seconds)}"
            late = f", late by {minutes(-state.margin)}" if state.margin is not None and state.margin < 0 else ""
            says = f"met{after}{late}{f' ({state.how})' if state.how else ''}"
            yield StageNews(state.id, state.title, what.MET, state.met_at, since, says, state.notify)
        elif incident.open and state.margin is not None and state.margin < 0 and state.status in (LATE, NOT_TOLD):
            # Overdue, and not known to be met: nobody may take that for well.
            unmet = "not met" if state.status == LATE else "not known to be met"
            why = f" ({state.why})" if state.why else ""
            says = f"due after {minutes(state.due)}, and {unmet}{why}"
            at = _before(now, -state.margin)
            yield StageNews(state.id, state.title, what.LATE, at, -state.margin, says, state.notify)


def _before(now: Moment, seconds: float) -> str:
    at = datetime.datetime.fromisoformat(now.at) - datetime.timedelta(seconds=seconds)
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def minutes(seconds: float) -> str:
    """`40 s`, `3 min`, `1 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, left = divmod(whole // 60, 60)
    if not hours:
        return f"{left} min"
    return f"{hours} h {left} min" if left else f"{hours} h"
