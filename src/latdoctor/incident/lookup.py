"""Which incident a command belongs to, and how a new one is named."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from latdoctor.errors import UsageError
from latdoctor.http.address import is_loopback
from latdoctor.incident.state import Incident, incidents_in
from latdoctor.journal.entry import JournalEntry, Moment, unix_seconds
from latdoctor.journal.state_dir import INCIDENTS, folder
from latdoctor.remediation import run_history
from latdoctor.remediation.run_history import RunState
from latdoctor.sanitize import clean, fitted

PREFIX = "inc-"
_LISTED = 4  # open incidents, where one has to be chosen
_WIDTH = 76  # columns of a line of these
_ID = re.compile(r"[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*")


def new_id(now: Moment) -> str:
    """`inc-20261122-0712-4f2a`: when it was opened (UTC), and what tells it from others of that minute."""
    day, clock = now.at[:10].replace("-", ""), now.at[11:16].replace(":", "")
    return f"{PREFIX}{day}-{clock}-{secrets.token_hex(2)}"


def folder_of(place: Path, incident: str) -> Path:
    """Where an incident's evidence is kept, below the state folder `place`. Raises UsageError for what is no id."""
    if not _ID.fullmatch(incident):
        raise UsageError(f"{clean(incident, 80)!r} is no incident", next_step="latdoctor incidents list")
    return place / INCIDENTS / incident


def select_incident(found: Sequence[Incident], asked: str = "", *, only_open: bool = True) -> Incident:
    """The incident `asked` for, by its id or its only beginning; else the one that is open, else (unless `only_open`)
    the last. Raises UsageError.
    """
    if asked:
        fitting = [one for one in found if one.id == asked] or [one for one in found if one.id.startswith(asked)]
        if len(fitting) != 1:
            what = f"{len(fitting)} incidents begin with" if fitting else "there is no incident"
            raise UsageError(f"{what} {asked!r}", where=str(folder()), next_step="latdoctor incidents list")
        return fitting[0]
    standing = [one for one in found if one.open]
    if len(standing) > 1:
        more = f"; {len(standing) - _LISTED} more: latdoctor incidents list" if len(standing) > _LISTED else ""
        raise UsageError(
            f"{len(standing)} incidents are open",
            next_step=f"say which with --incident ID{more}",
            listed=lines(standing, time.time()),
        )
    if standing:
        return standing[0]
    if found and not only_open:
        return found[-1]
    raise UsageError("no incident is open", where=str(folder()), next_step="latdoctor sop start")


def lines(standing: Sequence[Incident], now: float) -> tuple[str, ...]:
    """The last of `standing` (oldest first), a line each, the newest first: id, age at `now` (unix seconds), title."""
    return tuple(
        fitted(f"{one.id}  {_age(one, now):>9}  {one.opened.title}", _WIDTH) for one in standing[::-1][:_LISTED]
    )


def _age(incident: Incident, now: float) -> str:
    """How long ago it was opened: `0:12 h ago`."""
    if not incident.entries:
        return ""
    minutes = max(0, int(now - unix_seconds(incident.entries[0].at))) // 60
    return f"{minutes // 1440} d ago" if minutes >= 2880 else f"{minutes // 60}:{minutes % 60:02d} h ago"


def incident_option(found: Iterable[Incident], incident: str) -> str:
    """` --incident ID`, by which a command is about `incident`; empty where that alone is open, and so meant anyway."""
    return "" if [one.id for one in found if one.open] == [incident] else f" --incident {incident}"


def open_incident_for(found: Sequence[Incident], targets: Sequence[str]) -> str:
    """The open incident that a look at `targets`, or a change of them, is for; empty where there is none, or where
    several could be meant: nothing is guessed.
    """
    fitting = open_incidents_for(found, targets)
    return fitting[0].id if len(fitting) == 1 else ""


def open_incidents_for(found: Sequence[Incident], targets: Sequence[str]) -> tuple[Incident, ...]:
    """The open incidents of one of `targets`; where there is none those of its host, else those that name no target."""
    standing = [one for one in found if one.open]
    return (
        matching_addresses(standing, targets)
        or matching_hosts(standing, targets)
        or tuple(one for one in standing if not one.opened.targets)
    )


def matching_addresses(found: Iterable[Incident], targets: Iterable[str]) -> tuple[Incident, ...]:
    """The incidents of one of `targets`."""
    asked = addresses(targets)
    return tuple(one for one in found if addresses(one.opened.targets) & asked)


def matching_hosts(
    found: Iterable[Incident], targets: Iterable[str], hosts: Iterable[str] = ()
) -> tuple[Incident, ...]:
    """The incidents that meet one of `targets` by its host alone, as one of both names no port: `hosts` are those of
    `targets` that name none.
    """
    asked, bare = _hosts(targets), addresses(hosts)
    return tuple(one for one in found if addresses(one.opened.hosts) & asked or _hosts(one.opened.targets) & bare)


def addresses(targets: Iterable[str]) -> frozenset[str]:
    """What `targets` mean: an address its host and port, whatever stands around them; a name itself."""
    return frozenset(place for target in targets if (place := _place(target)))


def _hosts(targets: Iterable[str]) -> frozenset[str]:
    """The hosts of those of `targets` that name a port."""
    parts = (place.rpartition(":") for place in addresses(targets))
    return frozenset(host for host, _, port in parts if host and port.isdecimal())


def _place(target: str) -> str:
    text = target.strip().lower()
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:  # no address: a name
        return text
    if not host:
        return text
    if is_loopback(host):
        host = "localhost"
    port = port or {"http": 80, "https": 443}.get(parts.scheme)
    return host if port is None else f"{host}:{port}"


def other_runs(incident: Incident, entries: Iterable[JournalEntry]) -> tuple[RunState, ...]:
    """Of the whole journal, oldest first. Of a closed incident those that were begun before its closing.

    A run is on the target of what it changed and of the incident that it belongs to. An incident that names no target
    may be about any of them. Raises msgspec.ValidationError for an entry that another version wrote otherwise.
    """
    listed = tuple(entries)
    own = set(incident.runs)
    about = {run: one.opened.targets for one in incidents_in(listed) for run in one.runs}
    until = unix_seconds(incident.closed_at) if incident.closed_at else None
    return tuple(
        run
        for run in run_history.runs(listed)
        if run.id not in own
        and (run.open or run.standing)
        and (until is None or run.opened_at <= until)
        and _meets(incident, (*_places(run), *about.get(run.id, ())))
    )


def _places(run: RunState) -> Iterator[str]:
    target = run.plan.target
    return (place for place in (target.name, target.admin, target.configured) if place)


def _meets(incident: Incident, targets: tuple[str, ...]) -> bool:
    return not incident.opened.targets or bool(
        matching_addresses([incident], targets) or matching_hosts([incident], targets)
    )
