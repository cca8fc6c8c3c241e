"""Withdraw what a log seems to rule out where another line says that the driver cannot reach a GPU.

A kernel log without Xids is no clean bill for a GPU that the driver could not initialise, and an application without
CUDA errors is none where NVML fails. Such searches count as not made; events that were found stay.
"""

from __future__ import annotations

from msgspec import structs

from latdoctor.evidence.gpu_access import ACCESS_ERROR
from latdoctor.evidence.model import Evidence, Gap
from latdoctor.gap_code import GapCode

CONTRADICTIONS = (ACCESS_ERROR, "log.fabric_error")
_OF_GPUS = frozenset({"log.xid", "log.sxid", "log.gpu_lost", "log.cuda_error", "log.driver_mismatch"})
_COUNT, _EXPECTED = "gpu.count", "gpu.count_expected"


def withdraw_contradicted_searches(evidence: Evidence) -> Evidence:
    """Return `evidence` without the searches and counts that a report of an unreachable GPU contradicts. Idempotent."""
    contradictions = [one for signal in CONTRADICTIONS for one in evidence.events_by_signal.get(signal, ())]
    if not contradictions:
        return evidence
    found = {(one.signal, one.subject) for one in evidence.events}
    withdrawn = [one for one in evidence.looked if one[0] in _OF_GPUS and one not in found]
    counted = {one.subject: one.value for one in evidence.readings_by_signal.get(_COUNT, ())}
    complete = {
        one.subject for one in evidence.readings_by_signal.get(_EXPECTED, ()) if counted.get(one.subject) == one.value
    }
    if not withdrawn and not complete:
        return evidence
    signals = (*dict.fromkeys(signal for signal, _ in withdrawn), *([_EXPECTED] if complete else []))
    first = contradictions[0]
    kind = f" ({first.fields['kind']})" if "kind" in first.fields else ""
    reason = f"not ruled out: {first.origin} reports that a GPU cannot be reached{kind}"
    gap = Gap("derived", reason, signals, origin=first.origin, code=GapCode.INCONSISTENT)
    return structs.replace(
        evidence,
        looked=tuple(one for one in evidence.looked if one not in withdrawn),
        readings=tuple(one for one in evidence.readings if one.signal != _EXPECTED or one.subject not in complete),
        gaps=(*evidence.gaps, gap),
    )
