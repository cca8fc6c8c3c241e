"""Which incident a command belongs to, and how a new one is named."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from latdoctor.errors import UsageError
from latdoctor.http.safe_address import is_loopback
from latdoctor.incident.state import Incident, incidents_in
from latdoctor.journal.entry import JournalEntry, Moment, unix_seconds
from latdoctor.journal.state_dir import INCIDENTS, folder
from latdoctor.remediation import run_history
from latdoctor.remediation.run_history import RunState
from latdoctor.sanitize import clean, fitted

PREFIX = "inc-"
_LISTED = 4  # open incidents listed in the error
_WIDTH = 76  # columns of a line of these
_ID = re.compile(r"[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*")


def new_id(now: Moment) -> str:
    """Id from the opening time in UTC and a random suffix: `inc-20261122-0712-4f2a`."""
    day, clock = now.at[:10].replace("-", ""), now.at[11:16].replace(":", "")
    return f"{PREFIX}{day}-{clock}-{secrets.token_hex(2)}"


def folder_of(place: Path, incident: str) -> Path:
    """Evidence folder of an incident below the state folder `place`. Raises UsageError for an invalid id."""
    if not _ID.fullmatch(incident):
        raise UsageError(f"{clean(incident, 80)!r} is no incident", next_step="latdoctor incidents list")
    return place / INCIDENTS / incident


def select_incident(found: Sequence[Incident], requested: str = "", *, only_open: bool = True) -> Incident:
    """The incident with the id or unique id prefix `requested`; else the open one; else, unless `only_open`, the last.

    Raises UsageError.
    """
    if requested:
        fitting = [one for one in found if one.id == requested] or [
            one for one in found if one.id.startswith(requested)
        ]
        if len(fitting) != 1:
            what = f"{len(fitting)} incidents begin with" if fitting else "there is no incident"
            raise UsageError(f"{what} {requested!r}", where=str(folder()), next_step="latdoctor incidents list")
        return fitting[0]
    open_ones = [one for one in found if one.open]
    if len(open_ones) > 1:
        more = f"; {len(open_ones) - _LISTED} more: latdoctor incidents list" if len(open_ones) > _LISTED else ""
        raise UsageError(
            f"{len(open_ones)} incidents are open",
            next_step=f"name one with --incident ID{more}",
            listed=lines(open_ones, time.time()),
        )
    if open_ones:
        return open_ones[0]
    if found and not only_open:
        return found[-1]
    raise UsageError("no incident is open", where=str(folder()), next_step="latdoctor sop start")


def lines(open_ones: Sequence[Incident], now: float) -> tuple[str, ...]:
    """The last of `open_ones` (oldest first), a line each, the newest first: id, age at `now` (unix seconds), title."""
    return tuple(
        fitted(f"{one.id}  {_age(one, now):>9}  {one.opened.title}", _WIDTH) for one in open_ones[::-1][:_LISTED]
    )


def _age(incident: Incident, now: float) -> str:
    """How long ago it was opened: `0:12 h ago`."""
    if not incident.entries:
        return ""
    minutes = max(0, int(now - unix_seconds(incident.entries[0].at))) // 60
    return f"{minutes // 1440} d ago" if minutes >= 2880 else f"{minutes // 60}:{minutes % 60:02d} h ago"


def incident_option(found: Iterable[Incident], incident: str) -> str:
    """` --incident ID` for the next command; empty where `incident` is the only open one, and so the default."""
    return "" if [one.id for one in found if one.open] == [incident] else f" --incident {incident}"


def open_incident_for(found: Sequence[Incident], targets: Sequence[str]) -> str:
    """Id of the open incident for `targets`; empty where there is none or several fit."""
    fitting = open_incidents_for(found, targets)
    return fitting[0].id if len(fitting) == 1 else ""


def open_incidents_for(found: Sequence[Incident], targets: Sequence[str]) -> tuple[Incident, ...]:
    """Open incidents of one of `targets`; else those of its host, else those without a target."""
    open_ones = [one for one in found if one.open]
    return (
        matching_addresses(open_ones, targets)
        or matching_hosts(open_ones, targets)
        or tuple(one for one in open_ones if not one.opened.targets)
    )


def matching_addresses(found: Iterable[Incident], targets: Iterable[str]) -> tuple[Incident, ...]:
    """The incidents of one of `targets`."""
    requested = addresses(targets)
    return tuple(one for one in found if addresses(one.opened.targets) & requested)


def matching_hosts(
    found: Iterable[Incident], targets: Iterable[str], hosts: Iterable[str] = ()
) -> tuple[Incident, ...]:
    """The incidents that meet one of `targets` by its host alone, as one of both names no port: `hosts` are those of
    `targets` that name none.
    """
    requested, bare = _hosts(targets), addresses(hosts)
    return tuple(one for one in found if addresses(one.opened.hosts) & requested or _hosts(one.opened.targets) & bare)


def addresses(targets: Iterable[str]) -> frozenset[str]:
    """Comparable form of `targets`: host and port of an address; a name as it is."""
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
    """Unfinished runs, and runs with remaining changes, that are not of `incident` but on its target.

    `entries` is the whole journal, oldest first; for a closed incident only runs opened before its closing count. The
    target of a run is what it changed and the targets of its incident. An incident without targets matches any run.
    Raises msgspec.ValidationError for an entry in the format of another version.
    """
    listed = tuple(entries)
    own = set(incident.runs)
    about = {run: one.opened.targets for one in incidents_in(listed) for run in one.runs}
    until = unix_seconds(incident.closed_at) if incident.closed_at else None
    return tuple(
        run
        for run in run_history.runs(listed)
        if run.id not in own
        and (run.open or run.in_effect)
        and (until is None or run.opened_at <= until)
        and _shares_target(incident, (*_run_addresses(run), *about.get(run.id, ())))
    )


def _run_addresses(run: RunState) -> Iterator[str]:
    target = run.plan.target
    return (place for place in (target.name, target.admin, target.configured) if place)


def _shares_target(incident: Incident, targets: tuple[str, ...]) -> bool:
    return not incident.opened.targets or bool(
        matching_addresses([incident], targets) or matching_hosts([incident], targets)
    )
