"""Incidents from a few lines: entries at seconds after the opening, each with the relevant part of its body."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from latdoctor.incident import events
from latdoctor.incident.sop.loader import shipped
from latdoctor.incident.sop.model import RUN_CLOSED, RUN_OPENED
from latdoctor.incident.state import Incident, incidents_in
from latdoctor.journal.entry import JournalEntry, Moment, encode_body, next_entry, unix_seconds
from latdoctor.remediation import run_history
from latdoctor.remediation.planner import Plan
from latdoctor.remediation.target import Target

OPENED_AT = 1_790_000_000.0  # 2026-09-21T14:13:20Z
BOOT = "a-boot"
SOP = shipped()["slow-inference"]
ID = "inc-20260921-1413-0001"

_USUAL: Mapping[str, Mapping[str, object]] = {
    events.OPENED: {
        "title": "P99 is 3 s",
        "targets": ["http://10.0.0.5:8000/metrics"],
        "source": "hand",
        "sop": SOP.id,
        "sop_digest": SOP.digest,
    },
    events.ALERTED: {"key": "g", "receiver": "latdoctor"},
    events.CONFIRMED: {"status": "confirmed", "says": "P99 is over the SLO"},
    events.DIAGNOSED: {
        "run_id": "d1",
        "target": "10.0.0.5:8000",
        "level": "critical",
        "says": "P99 is over the SLO",
        "answer": "none",
        "causes": [],
        "unseen": [],
    },
    events.PLANNED: {
        "playbook": "app.batching.token-budget",
        "title": "t",
        "digest": "d",
        "target": "t",
        "risk": "low",
    },
    events.SAMPLED: {"seconds": 10.0, "slo_p99": 0.5},
    events.NOTED: {"text": "looked at the dashboard"},
    events.MARKED: {},
    events.NOTIFIED: {"to": "on-call", "what": "opened", "key": "k", "sent": True},
    events.CLOSED: {"outcome": "resolved"},
    RUN_CLOSED: {"outcome": "verified"},
}


def moment(seconds: float, *, boot: str = BOOT, wall: float | None = None) -> Moment:
    """`seconds` after the opening by the monotonic clock; `wall` seconds by the other one, where it was set."""
    at = datetime.datetime.fromtimestamp(OPENED_AT + (seconds if wall is None else wall), datetime.UTC)
    return Moment(at.isoformat(timespec="microseconds").replace("+00:00", "Z"), 5000.0 + seconds, boot)


def plan(playbook: str = "app.batching.token-budget", risk: str = "low", disruption: str = "none") -> Plan:
    target = Target("shop", "reference", "http://10.0.0.5:8000")
    return Plan(playbook, "d", "Another scheduler", target, risk, disruption, "", (), OPENED_AT)


def entries(rows: Sequence[Mapping[str, Any]], opened: Mapping[str, Any] | None = None) -> tuple[JournalEntry, ...]:
    """The journal. A row: `at` (seconds), `kind`, and if they differ `run`, `boot`, `wall`, and what is in its body."""
    found: list[JournalEntry] = []
    for row in ({"at": 0.0, "kind": events.OPENED, **(opened or {})}, *rows):
        told = dict(row)
        at = moment(float(told.pop("at")), boot=str(told.pop("boot", BOOT)), wall=told.pop("wall", None))
        kind, run = str(told.pop("kind")), str(told.pop("run", ID))
        body = {**_USUAL.get(kind, {}), **told}
        if kind == events.DIAGNOSED:
            body = _looked(body, at)
        if kind == RUN_OPENED:
            made = plan(**told)
            raw = msgspec.to_builtins(run_history.RunOpened(made, made.digest, 1))
            body = dict(raw)
        found.append(next_entry(found[-1] if found else None, run, kind, encode_body(body), at))
    return tuple(found)


def incident(rows: Sequence[Mapping[str, Any]], opened: Mapping[str, Any] | None = None) -> Incident:
    (found,) = incidents_in(entries(rows, opened))
    return found


def alert(status: str, fingerprint: str = "a") -> dict[str, Any]:
    return {"fingerprint": fingerprint, "status": status, "name": "SlowP99", "labels": {}, "annotations": {}}


def cause(
    name: str = "app.batching.long-alone", *, named: bool = True, playbooks: Sequence[str] = ()
) -> dict[str, Any]:
    return {
        "id": name,
        "title": "Long requests run alone",
        "tier": "application",
        "probability": 0.94,
        "named": named,
        "subjects": ["replica/1"],
        "because": ["batch sizes peak at 1 and 5"],
        "playbooks": list(playbooks),
    }


def _looked(body: Mapping[str, Any], at: Moment) -> dict[str, Any]:
    """A live look of ten seconds that has just ended, unless the body says otherwise."""
    until = unix_seconds(at.at)
    return {"seen_from": until - 10, "seen_until": until, **body}
