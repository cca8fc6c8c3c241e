"""Opens an incident, and never two of one: one open incident for each group of alerts and for each target.

Whoever opens holds a lock meanwhile that the kernel frees however its holder ends. Killed before the entry is on the
disk nothing was opened; killed after it the next one to ask is given what is open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from latdoctor.incident import events
from latdoctor.incident.lookup import matching_addresses, matching_hosts, new_id
from latdoctor.incident.sop import loader
from latdoctor.incident.sop.model import Sop
from latdoctor.incident.state import Incident, decode_body, incidents_in
from latdoctor.journal.locks import LockHeldError, lock
from latdoctor.journal.state_dir import LOCKS
from latdoctor.journal.store import Journal

LOCK = "the opening of incidents"
PATIENCE = 5.0  # seconds for which others may open theirs first
_LOOK = 0.01  # seconds between two tries


@dataclass(frozen=True, slots=True)
class Opening:
    """The incident that is open now; `new` where this opened it."""

    id: str
    new: bool


def open_incident(
    journal: Journal,
    place: Path,
    wanted: events.IncidentOpened,
    sop: Sop | None = None,
    standing: Callable[[], Sequence[Incident]] | None = None,
) -> Opening:
    """Opens `wanted`, unless it is open. `place` is the state folder, in which its `sop` is kept as it is now.

    `standing` tells the open incidents to who reads on; the whole journal is read otherwise.

    Raises JournalError, UsageError, OperationError, and Busy where others open theirs for longer than PATIENCE.
    """
    with exclusive(place, LOCK):
        known = incidents_in(journal.entries()) if standing is None else standing()
        found = open_duplicate(known, wanted)
        if found is not None:
            return Opening(found.id, new=False)
        name = new_id(journal.clock())
        while name in {one.id for one in known}:
            name = new_id(journal.clock())
        if sop is not None:
            loader.keep(place, name, sop)
        journal.append(name, events.OPENED, wanted)
        return Opening(name, new=True)


def open_duplicate(found: Sequence[Incident], wanted: events.IncidentOpened) -> Incident | None:
    """The open incident that `wanted` would double: of the same group of alerts, else of one of its targets.

    By hand and for no target: one that was opened so too. Where a host alone could mean several it is none of them.
    """
    standing = [one for one in found if one.open]
    if wanted.key:
        known = next((one for one in standing if wanted.key in group_keys(one)), None)
        if known is not None:
            return known
    if wanted.targets:
        known = next(iter(matching_addresses(standing, wanted.targets)), None)
        if known is not None:
            return known
        of_host = matching_hosts(standing, wanted.targets, wanted.hosts)
        return of_host[0] if len(of_host) == 1 else None
    if wanted.source == events.BY_HAND:
        by_hand = (one for one in standing if one.opened.source == events.BY_HAND)
        return next((one for one in by_hand if not one.opened.targets), None)
    return None


def group_keys(incident: Incident) -> frozenset[str]:
    """The groups of alerts that belong to it."""
    alerted = (decode_body(entry, events.AlertsReceived).key for entry in incident.of(events.ALERTED))
    return frozenset(key for key in (incident.opened.key, *alerted) if key)


@contextmanager
def exclusive(place: Path, what: str) -> Iterator[None]:
    """No other process does `what` meanwhile. Raises Busy where one does for longer than PATIENCE."""
    until = time.monotonic() + PATIENCE
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(lock(place / LOCKS, what))
                break
            except LockHeldError:
                if time.monotonic() > until:
                    raise
                time.sleep(_LOOK)
        yield
