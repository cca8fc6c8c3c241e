"""What stands on the target of an incident, and what was not brought to its end there, by runs that are not its own:
of another incident, or of none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from latdoctor.incident.joining import of_hosts, of_places
from latdoctor.incident.state import Incident, incidents
from latdoctor.journal.entry import Entry, unix_seconds
from latdoctor.remedy import history
from latdoctor.remedy.history import RunState


def inherited(incident: Incident, entries: Iterable[Entry]) -> tuple[RunState, ...]:
    """Of the whole journal, oldest first. Of a closed incident those that were begun before its closing.

    A run is on the target of what it changed and of the incident that it belongs to. An incident that names no target
    may be about any of them. Raises msgspec.ValidationError for an entry that another version wrote otherwise.
    """
    listed = tuple(entries)
    own = set(incident.runs)
    about = {run: one.opened.targets for one in incidents(listed) for run in one.runs}
    until = unix_seconds(incident.closed_at) if incident.closed_at else None
    return tuple(
        run
        for run in history.runs(listed)
        if run.id not in own
        and (run.open or run.standing)
        and (until is None or run.opened_at <= until)
        and _meets(incident, (*_places(run), *about.get(run.id, ())))
    )


def _places(run: RunState) -> Iterator[str]:
    target = run.plan.target
    return (place for place in (target.name, target.admin, target.configured) if place)


def _meets(incident: Incident, targets: tuple[str, ...]) -> bool:
    return not incident.opened.targets or bool(of_places([incident], targets) or of_hosts([incident], targets))
