"""What was measured of the service while the incident went on, and how it stood to its SLO then."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from latdoctor.evidence.model import AT_LEAST, AT_MOST
from latdoctor.incident.document import Sample
from latdoctor.incident.elapsed import Count
from latdoctor.incident.state import body
from latdoctor.journal.entry import Entry
from latdoctor.text import clean

P99 = "latency.p99"
OVER, WITHIN, UNJUDGED = "over", "within", "unjudged"
SHARE = 0.01  # of the requests may be later than what 99 % of them keep


class _Sampled(Struct, frozen=True):
    """`events.Sampled` as the journal keeps it: what was no number has become null there."""

    seconds: float
    values: dict[str, dict[str, float | None]]
    requests: float | None = None
    over_slo: float | None = None
    slo_p99: float | None = None
    bounds: dict[str, dict[str, str]] = {}
    over_slo_between: tuple[float, float] | None = None


def sample(entry: Entry, count: Count) -> Sample | None:
    """None where another version wrote it otherwise: then nothing was seen."""
    try:
        told = body(entry, _Sampled)
    except msgspec.MsgspecError:
        return None
    return Sample(
        at=entry.at,
        seconds=count.of(entry).seconds,
        length=max(0.0, told.seconds),
        digest=entry.digest,
        values={clean(subject, 200): _values(listed) for subject, listed in told.values.items()},
        requests=_known(told.requests),
        over_slo=_known(told.over_slo),
        slo_p99=_known(told.slo_p99),
        bounds={clean(subject, 200): _cleaned(listed) for subject, listed in told.bounds.items()},
        over_slo_between=told.over_slo_between,
    )


def _values(listed: Mapping[str, float | None]) -> dict[str, float]:
    return {clean(name, 200): value for name, value in listed.items() if value is not None}


def _cleaned(listed: Mapping[str, str]) -> dict[str, str]:
    return {clean(name, 200): clean(bound, 20) for name, bound in listed.items()}


def p99_of(one: Sample) -> float | None:
    """P99 of the subject that has the highest, seconds; None where none was seen. Subjects are never averaged."""
    return max((listed[P99] for listed in one.values.values() if P99 in listed), default=None)


def standing(one: Sample) -> str:
    """OVER where any subject's P99 is over the SLO; where no P99 was seen, where more than 1 % of the requests were.

    A P99 that is only bounded tells where the bound does.
    """
    if one.slo_p99 is None:
        return UNJUDGED
    judged = {
        _judged(listed[P99], one.bounds.get(subject, {}).get(P99, ""), one.slo_p99)
        for subject, listed in one.values.items()
        if P99 in listed
    }
    if judged:
        return OVER if OVER in judged else UNJUDGED if UNJUDGED in judged else WITHIN
    late = late_of(one)
    if not one.requests or late is None:
        return UNJUDGED
    return OVER if late[0] > SHARE * one.requests else WITHIN if late[1] <= SHARE * one.requests else UNJUDGED


def _judged(p99: float, bound: str, slo: float) -> str:
    if p99 > slo:
        return UNJUDGED if bound == AT_MOST else OVER
    return UNJUDGED if bound == AT_LEAST else WITHIN


def late_of(one: Sample) -> tuple[float, float] | None:
    """At least and at most how many requests were later than the SLO."""
    return one.over_slo_between if one.over_slo is None else (one.over_slo, one.over_slo)


def _known(value: float | None) -> float | None:
    return value if value is not None and value >= 0 else None
