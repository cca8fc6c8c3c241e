"""What was not looked at, in a line or two: where only a file was given, that is most of the checks."""

from __future__ import annotations

from collections import Counter

from latdoctor.diagnosis.result import Check, Diagnosis

_UNLOOKED, _NOWHERE = "not looked at: needs ", "nothing shows "  # how reasons begin (diagnosis/judge.py)
_BEHIND = " — "  # stands before the reason in a verdict's line
_SHOWN = 4


def is_unlooked(check: Check) -> bool:
    """Whether it was not evaluated because no source was given that shows it, and for nothing else."""
    return check.status == "not-evaluated" and _is_one(check.reason)


def _is_one(reason: str) -> bool:
    parts = reason.split("; ")
    return all(part.startswith((_UNLOOKED, _NOWHERE)) for part in parts) and parts[0].startswith(_UNLOOKED)


def verdict_reasons(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Why nothing is called healthy: what was not looked at is one line, behind the others."""
    reasons = diagnosis.verdict.reasons
    folded = [reason for reason in reasons if _is_one(reason.partition(_BEHIND)[2])]
    if len(folded) < 2:
        return reasons
    named = [reason.partition(": ")[2].partition(_BEHIND)[0] for reason in folded]
    return (*(reason for reason in reasons if reason not in folded), f"not looked at: {', '.join(named)}")


def summary(diagnosis: Diagnosis) -> str:
    """How many checks were not looked at, and what would show most of them; empty where there are none."""
    reasons = [check.reason for check in diagnosis.checks if is_unlooked(check)]
    if not reasons:
        return ""
    counts = Counter(ask for reason in reasons for ask in _asks(reason))
    (first, most), *others = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    more = "".join(f", {ask} {count}" for ask, count in others[: _SHOWN - 1])
    return f"not looked at: {len(reasons)} checks, of which {first} would show {most}{more} (-v)"


def _asks(reason: str) -> set[str]:
    """The options that a reason names: `needs --server URL (or --metrics FILE) or --log FILE` names two."""
    parts = (part[len(_UNLOOKED) :] for part in reason.split("; ") if part.startswith(_UNLOOKED))
    return {ask for part in parts for ask in part.split(" or ")}
