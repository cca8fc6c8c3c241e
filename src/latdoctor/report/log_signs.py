"""What a log was searched for, in words: errors that it has though no finding fired for them, and those it has not."""

from __future__ import annotations

from collections.abc import Iterator

from latdoctor.diagnosis.codes import CheckStatus
from latdoctor.diagnosis.result import Diagnosis, Vital
from latdoctor.evidence.model import CoverageStatus
from latdoctor.gap_code import GapCode

_ONE = {
    "log.xid": "Xid",
    "log.gpu_lost": "lost GPU",
    "log.driver_mismatch": "driver mismatch",
    "log.cuda_error": "CUDA error",
    "log.oom_kill": "out-of-memory kill",
    "log.dcgm_error": "DCGM error",
    "log.sxid": "NVSwitch fault (SXid)",
}
_SEVERAL = {"log.driver_mismatch": "driver mismatches", "log.sxid": "NVSwitch faults (SXid)"}


def unjudged(diagnosis: Diagnosis) -> tuple[Vital, ...]:
    """The errors in a log that no finding fired for; one that only repeats another is none of them."""
    fired = {
        atom.signal for check in diagnosis.checks if check.status == CheckStatus.FIRED for atom in check.atoms
    }  # `count(log.xid, code in [79])`
    return tuple(
        one
        for one in diagnosis.vitals
        if one.signal in _ONE and one.value and not any(name.startswith(f"count({one.signal}") for name in fired)
    )


def lines(diagnosis: Diagnosis) -> Iterator[str]:
    """`2 CUDA errors (cudaErrorECCUncorrectable)`, then what the log has none of."""
    present = ", ".join(_said(one) for one in unjudged(diagnosis))
    if present:
        yield present
    for gap in diagnosis.gaps:
        if gap.code == GapCode.BEFORE_BOOT:
            yield gap.reason
    # A trace is searched for CUDA errors too, and is no log.
    if any(
        row.collector == "logs" and row.status in (CoverageStatus.READ, CoverageStatus.PARTLY)
        for row in diagnosis.coverage
    ):
        absent = [_ONE[one.signal] for one in diagnosis.vitals if one.signal in _ONE and not one.value]
        if absent:
            yield f"the log has no {', no '.join(dict.fromkeys(absent))}"


def _said(sign: Vital) -> str:
    one = _ONE[sign.signal]
    words = one if sign.value == 1 else _SEVERAL.get(sign.signal, f"{one}s")
    return f"{sign.shown} {words}{f' ({sign.part})' if sign.part else ''}"
