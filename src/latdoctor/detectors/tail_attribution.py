"""Attribution of tail latency to stages.

The share of a stage is its mean time among the slowest 1 % of requests minus its mean among those between the 40th and
60th percentile, divided by the same difference of whole latencies. The part of no stage is `other`, so that the shares
add up to one; a stage that is faster in the tail has a negative share.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from latdoctor.evidence.model import Evidence, Gap, Labels, Origin, Reading, Series, Value, Window
from latdoctor.gap_code import GapCode

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]


LATENCY = "request.latency"


def pending_latencies(evidence: Evidence, derived: str) -> tuple[Series, ...]:
    """The latency series of all subjects for which `derived` does not exist yet."""
    rows = {one.subject for one in evidence.readings_by_signal.get(derived, ())}
    return tuple(one for one in evidence.series if one.signal == LATENCY and one.subject not in rows)


def insufficient_data(series: Series, reason: str, signals: tuple[str, ...]) -> Evidence:
    """Return a gap that says why `signals` cannot be derived from `series`."""
    return Evidence(gaps=(Gap("derived", reason, signals, series.subject, "", series.origin, GapCode.INSUFFICIENT),))


def too_few_requests(series: Series, what: str, observed: int, needed: int, signals: tuple[str, ...]) -> Evidence:
    return insufficient_data(series, f"{what}: {observed} requests observed, {needed} are needed", signals)


def derived_readings(series: Series, how: str, rows: Iterable[tuple[str, Value, Labels]], observed: int) -> Evidence:
    """Build readings from `rows` (signal, value, labels), derived from `observed` requests by the method `how`."""
    origin = Origin(series.origin.artifact, f"{series.origin.place}, {how}")
    window, note = Window(series.times[0], series.times[-1]), f"of {observed} requests"
    return Evidence(
        readings=tuple(
            Reading(name, series.subject, value, origin, window, labels, note) for name, value, labels in rows
        )
    )


STAGE, DERIVED = "request.stage_time", "tail.share"
LABEL, OTHER = "stage", "other"
MIN_REQUESTS = 500  # so that five are the slowest hundredth
SLOWEST = 0.99
MIDDLE = (0.4, 0.6)


def tail_shares(evidence: Evidence) -> Evidence:
    """Derive DERIVED by stage for every latency series whose stages cover the same requests."""
    wholes = pending_latencies(evidence, DERIVED)
    return Evidence.merge(_of_one(whole, stages) for whole in wholes if (stages := _stages(evidence, whole)))


def _stages(evidence: Evidence, whole: Series) -> dict[str, Series]:
    return {
        dict(one.labels)[LABEL]: one
        for one in evidence.series
        if one.signal == STAGE and one.subject == whole.subject and one.times == whole.times
    }


def _of_one(whole: Series, stages: dict[str, Series]) -> Evidence:
    import numpy as np

    if len(whole.values) < MIN_REQUESTS:
        return too_few_requests(whole, "the tail by stage", len(whole.values), MIN_REQUESTS, (DERIVED,))
    shares = attribute_tail(
        np.array(whole.values), {stage: np.array(series.values) for stage, series in sorted(stages.items())}
    )
    rows = ((DERIVED, share, ((LABEL, stage),)) for stage, share in shares.items())
    return derived_readings(whole, "the slowest hundredth against the middle fifth", rows, len(whole.values))


def attribute_tail(
    latencies: Numbers, stages: dict[str, Numbers], slowest: float = SLOWEST, least: int = MIN_REQUESTS
) -> dict[str, float]:
    """Return the share of each stage and of OTHER; empty if the tail is not slower or data is missing.

    The tail is what exceeds the quantile `slowest`; fewer than `least` requests give nothing.
    """
    import numpy as np

    known = np.isfinite(latencies)
    for times in stages.values():
        known &= np.isfinite(times)
    latencies = latencies[known]
    if len(latencies) < least:
        return {}
    low, high = np.quantile(latencies, MIDDLE)
    middle = (latencies >= low) & (latencies <= high)
    tail = latencies >= np.quantile(latencies, slowest)
    excess = float(latencies[tail].mean() - latencies[middle].mean())
    if excess <= 0:
        return {}
    shares = {
        stage: float(times[known][tail].mean() - times[known][middle].mean()) / excess
        for stage, times in stages.items()
    }
    return {**shares, OTHER: 1.0 - sum(shares.values())}
