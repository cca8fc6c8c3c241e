"""Whether an alert is real, by what a look at the service itself said: confirmed, false alarm, or not known."""

from __future__ import annotations

from latdoctor.diagnosis.result import Check, Diagnosis
from latdoctor.diagnosis.rules import SEVERITIES
from latdoctor.incident.events import FALSE_ALARM, REAL, UNKNOWN, Confirmed
from latdoctor.text import clean

HARMFUL = "warning"  # a verdict from this level on confirms; one below it says neither
_SHOWN = 3
_LONGEST = 500  # characters


def confirmed(diagnosis: Diagnosis) -> Confirmed:
    """A broken SLO makes the verdict critical, so the verdict alone decides. Healthy is said only where every essential
    was seen; whatever else could not be told is unknown.
    """
    verdict = diagnosis.verdict
    level = verdict.level
    if level in SEVERITIES and SEVERITIES.index(level) >= SEVERITIES.index(HARMFUL):
        pain = [check.says for check in diagnosis.checks if _hurts(check)]
        return _said(REAL, (verdict.says, *pain[:_SHOWN]), diagnosis)
    if level == "healthy":
        return _said(FALSE_ALARM, (verdict.says,), diagnosis)
    return _said(UNKNOWN, (verdict.says, *verdict.reasons[:_SHOWN]), diagnosis)


def unseen(why: str) -> Confirmed:
    """Nothing could be looked at, for which there is a reason."""
    return Confirmed(UNKNOWN, clean(f"nothing could be seen: {why}", _LONGEST))


def _hurts(check: Check) -> bool:
    return check.status == "fired" and check.kind != "specific" and bool(check.severity)


def _said(status: str, parts: tuple[str, ...], diagnosis: Diagnosis) -> Confirmed:
    return Confirmed(status, clean("; ".join(parts), _LONGEST), diagnosis.run_id)
