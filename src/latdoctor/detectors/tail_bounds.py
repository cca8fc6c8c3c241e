"""A lower bound for a 99th percentile that no source reports: it is no less than the median or the 95th percentile.

Three slow requests do not tell the P99, but where half of the requests take longer than the SLO, so do the slowest 1 %.
The reading is marked as a bound (`at least`): it can show that a limit is exceeded, never that it is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from latdoctor.detectors.quantiles import QUANTILES, is_valid, latest_distributions, least
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import AT_LEAST, AT_MOST, Distribution, Evidence, Labels, Origin, Reading, is_unknown

P99 = ".p99"
LOWER = {suffix: share for suffix, share, _ in QUANTILES if suffix != P99}


def tail_bounds(evidence: Evidence) -> Evidence:
    """Derive `X.p99`, as a bound, for each subject that has `X.p50` or `X.p95` and no `X.p99`."""
    signals = sorted(name.removesuffix(P99) for name in catalogue() if name.endswith(P99))
    spread = latest_distributions(evidence)
    return Evidence(readings=tuple(one for signal in signals for one in _of_signal(signal, evidence, spread)))


def _of_signal(signal: str, evidence: Evidence, spread: Sequence[Distribution]) -> Iterator[Reading]:
    measured = {(one.subject, one.labels) for one in evidence.readings_by_signal.get(signal + P99, ())}
    ends = {(one.subject, one.labels): one for one in spread if one.signal == signal}
    greatest: dict[tuple[str, Labels], tuple[float, Reading]] = {}
    for suffix, share in LOWER.items():
        for key, one in _latest(evidence, signal + suffix).items():
            value = least(ends[key], share) if key in ends and is_valid(ends[key]) else _number(one)
            if key not in measured and 0 < value < math.inf and value > greatest.get(key, (0.0, one))[0]:
                greatest[key] = (value, one)
    for value, one in greatest.values():
        origin = Origin(one.origin.artifact, f"{one.origin.place}, no less than {one.signal}".removeprefix(", "))
        yield Reading(signal + P99, one.subject, value, origin, one.window, one.labels, one.note, AT_LEAST)


def _latest(evidence: Evidence, signal: str) -> dict[tuple[str, Labels], Reading]:
    """The last known reading per subject and labels; one that is itself at most so much bounds nothing from below."""
    known = [
        one
        for one in evidence.readings_by_signal.get(signal, ())
        if not is_unknown(one.value) and not isinstance(one.value, str) and one.bound != AT_MOST
    ]
    return {(one.subject, one.labels): one for one in sorted(known, key=lambda one: one.window.end or 0.0)}


def _number(reading: Reading) -> float:
    return reading.value if not isinstance(reading.value, str) else 0.0
