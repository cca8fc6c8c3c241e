"""What an entry of a run says, in a line: while it works, when it is shown, in the timeline of an incident."""

from __future__ import annotations

from typing import Any

import msgspec

from latdoctor.evidence.judging import HOLDS, show
from latdoctor.journal.entry import Entry
from latdoctor.remedy.observation import Judged
from latdoctor.remedy.plan import Plan
from latdoctor.remedy.result import Measure
from latdoctor.remedy.verifying import ABORT

_LINES = {
    "run.opened": "run {run}: watching before anything is changed",
    "evidence.kept": "evidence kept: {path}",
    "before.longer": "few are answered: each look takes {seconds:g} s instead of {usual:g} s, so that it tells enough",
    "stage.skipped": "stage {playbook} skipped: what it mends is not to be seen",
    "stage.verified": "stage {playbook} verified",
    "verify.passed": "verified",
    "verify.failed": "not verified: {reason}",
    "rollback.begun": "taking back: {reason}",
    "undo.failed": "NOT taken back: {step}: {why}",
    "undo.left": "left as it is: {step}: {why}",
    "run.refused": "refused: {reason} (guard {guard})",
    "run.closed": "ended: {outcome}",
}
_TOUCHED = {
    "change.intended": "changing",
    "change.made": "changed",
    "undo.intended": "putting back",
    "undo.made": "put back",
}


def line_of(entry: Entry, plan: Plan | None = None) -> str:
    """What `entry` says; its kind where this version does not know it.

    Raises KeyError, msgspec.ValidationError for an entry that another version wrote otherwise.
    """
    body: dict[str, Any] = msgspec.json.decode(entry.body)
    if entry.kind in _TOUCHED:
        return _touched(entry.kind, body, plan)
    if entry.kind == "before.measured":
        return "before: " + ", ".join(_measured(msgspec.convert(one, Measure)) for one in body["measures"][:4])
    if entry.kind == "settled":
        return "settled" if body["settled"] else "not settled in time; judging it as it is"
    if entry.kind == "verify.window":
        return f"window: {body['status']}" + (f" ({_why(body)})" if _why(body) else "")
    return _LINES.get(entry.kind, entry.kind).format(**{**body, "run": entry.run})


def _measured(one: Measure) -> str:
    return f"{one.signal} {show(one.signal, one.before)}"


def _touched(kind: str, body: dict[str, Any], plan: Plan | None) -> str:
    step = f"change {body['index'] + 1}"
    if plan is not None:
        step = plan.stages[body["stage"]].changes[body["index"]].step
    return f"{_TOUCHED[kind]} {step}"


def _why(body: dict[str, Any]) -> str:
    if "why" in body:
        return str(body["why"])
    conditions = msgspec.convert(body.get("conditions", ()), tuple[Judged, ...])
    return "; ".join(one.told for one in conditions if (one.status == HOLDS) is (body["status"] == ABORT))
