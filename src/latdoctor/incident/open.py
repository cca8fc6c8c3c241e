"""Opens incidents without duplicates: one open incident per group of alerts and per target.

Opening holds a kernel lock, which is freed however its process ends. A process killed before the entry is on disk has
opened nothing; after that, the next caller gets the open incident.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from latdoctor.evidence.redaction.documents import without_secrets_in
from latdoctor.incident import events
from latdoctor.incident.events import OpenedBy
from latdoctor.incident.lookup import matching_addresses, matching_hosts, new_id
from latdoctor.incident.sop import loader
from latdoctor.incident.sop.model import Sop
from latdoctor.incident.state import Incident, decode_body, incidents_in
from latdoctor.journal.locks import LockHeldError, lock
from latdoctor.journal.state_dir import LOCKS
from latdoctor.journal.store import Journal

LOCK = "the opening of incidents"
PATIENCE = 5.0  # seconds for which others may open theirs first
_POLL = 0.01  # seconds between two tries


@dataclass(frozen=True, slots=True)
class Opening:
    """The open incident; `new` if this call opened it."""

    id: str
    new: bool


def open_incident(
    journal: Journal,
    place: Path,
    opening: events.IncidentOpened,
    sop: Sop | None = None,
    open_ones: Callable[[], Sequence[Incident]] | None = None,
) -> Opening:
    """Open `opening`, unless it is open already. Its `sop` is stored in the state folder `place`.

    `open_ones` returns the open incidents where the caller knows them; else the whole journal is read.

    Raises JournalError, UsageError, OperationError, and LockHeldError after waiting PATIENCE for other processes.
    """
    opening = without_secrets_in(opening)
    with exclusive(place, LOCK):
        known = incidents_in(journal.entries()) if open_ones is None else open_ones()
        found = open_duplicate(known, opening)
        if found is not None:
            return Opening(found.id, new=False)
        name = new_id(journal.clock())
        while name in {one.id for one in known}:
            name = new_id(journal.clock())
        if sop is not None:
            loader.keep(place, name, sop)
        journal.append(name, events.OPENED, opening)
        return Opening(name, new=True)


def open_duplicate(found: Sequence[Incident], opening: events.IncidentOpened) -> Incident | None:
    """The open incident that `opening` would duplicate: of the same group of alerts, else of one of its targets.

    Opened by hand without a target: one opened the same way. A bare host that fits several incidents matches none.
    """
    open_ones = [one for one in found if one.open]
    if opening.key:
        known = next((one for one in open_ones if opening.key in group_keys(one)), None)
        if known is not None:
            return known
    if opening.targets:
        known = next(iter(matching_addresses(open_ones, opening.targets)), None)
        if known is not None:
            return known
        of_host = matching_hosts(open_ones, opening.targets, opening.hosts)
        return of_host[0] if len(of_host) == 1 else None
    if opening.source == OpenedBy.HAND:
        by_hand = (one for one in open_ones if one.opened.source == OpenedBy.HAND)
        return next((one for one in by_hand if not one.opened.targets), None)
    return None


def group_keys(incident: Incident) -> frozenset[str]:
    """The groups of alerts that belong to it."""
    alerted = (decode_body(entry, events.AlertsReceived).key for entry in incident.of(events.ALERTED))
    return frozenset(key for key in (incident.opened.key, *alerted) if key)


@contextmanager
def exclusive(place: Path, what: str) -> Iterator[None]:
    """Exclude other processes from `what`. Raises LockHeldError after PATIENCE seconds."""
    until = time.monotonic() + PATIENCE
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(lock(place / LOCKS, what))
                break
            except LockHeldError:
                if time.monotonic() > until:
                    raise
                time.sleep(_POLL)
        yield
