"""Quantiles and means of distributions, where nobody told them.

A quantile is interpolated linearly inside the bucket it falls into, as Prometheus' histogram_quantile does; its note
names the bucket, for no truth is finer than that. In the bucket without an upper bound only the lower bound is known:
the reading's `bound` says so, and no comparison takes it for the value.
A quantile q needs enough observations beyond it to be more than the luck of one: at least 3 for the median, 20 for the
95th and 100 for the 99th percentile, so that about one observation lies above it.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from typing import NamedTuple

from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import AT_LEAST, AT_MOST, Bucket, Distribution, Evidence, Gap, Labels, Origin, Reading
from latdoctor.units import format_value

# Suffix of the derived signal, the quantile, and how many observations it needs.
QUANTILES = ((".p50", 0.50, 3), (".p95", 0.95, 20), (".p99", 0.99, 100))
MEAN = ".mean"

Key = tuple[str, str, Labels]  # signal, subject, labels


class QuantileEstimate(NamedTuple):
    """A quantile or mean in base units, how sure it is, and AT_LEAST or AT_MOST where it is only a bound."""

    value: float
    note: str
    bound: str = ""


def quantiles(evidence: Evidence) -> Evidence:
    """`.mean`, `.p50`, `.p95` and `.p99` of every distribution for which the catalogue has such a signal."""
    known = {(reading.signal, reading.subject, reading.labels) for reading in evidence.readings}
    found = [piece for distribution in latest_distributions(evidence) for piece in _of_one(distribution, known)]
    return Evidence(
        readings=tuple(piece for piece in found if isinstance(piece, Reading)),
        gaps=tuple(piece for piece in found if isinstance(piece, Gap)),
    )


def latest_distributions(evidence: Evidence) -> tuple[Distribution, ...]:
    """Of each signal, subject and labels the distribution whose window ends last."""
    found: dict[Key, Distribution] = {}
    for one in evidence.distributions:
        key = (one.signal, one.subject, one.labels)
        if key not in found or (one.window.end or -math.inf) > (found[key].window.end or -math.inf):
            found[key] = one
    return tuple(found.values())


def observation_shortfall(evidence: Evidence, signals: Container[str]) -> float:
    """What the fewest observations would have to be multiplied by for each quantile of `signals` to be told.

    At most 1 where there are enough already, 0 where nothing was observed that would tell one of them.
    """
    return max(
        (
            needed / distribution.count
            for distribution in latest_distributions(evidence)
            for suffix, _, needed in QUANTILES
            if distribution.signal + suffix in signals and distribution.count > 0
        ),
        default=0.0,
    )


def is_valid(distribution: Distribution) -> bool:
    """Every count is a number from 0 on and every bucket has its bounds in order."""
    return all(math.isfinite(b.count) and b.count >= 0 and b.low <= b.high for b in distribution.buckets)


def derived_origin(distribution: Distribution, derivation: str) -> Origin:
    """Where `distribution` was read, with what was made of it."""
    place = distribution.origin.place
    return Origin(distribution.origin.artifact, f"{place}, {derivation}" if place else derivation)


def _of_one(distribution: Distribution, known: set[Key]) -> Iterator[Reading | Gap]:
    missing = [
        suffix
        for suffix in (MEAN, *(suffix for suffix, _, _ in QUANTILES))
        if distribution.signal + suffix in catalogue()
        and (distribution.signal + suffix, distribution.subject, distribution.labels) not in known
    ]
    if not missing:
        return
    if not is_valid(distribution):
        yield _gap(distribution, missing, "its counts or bounds make no sense")
        return
    if distribution.count == 0:
        yield _gap(distribution, missing, "nothing was observed")
        return
    if MEAN in missing:
        yield _mean(distribution)
    for suffix, share, needed in QUANTILES:
        if suffix not in missing:
            continue
        if distribution.count < needed:
            yield _gap(distribution, [suffix], f"{distribution.count:g} observed, {needed} are needed")
        else:
            found = quantile(distribution, share)
            if math.isinf(found.value):
                yield _gap(distribution, [suffix], "its buckets have no bound to tell it by")
            else:
                yield _reading(distribution, suffix, found)


def quantile(distribution: Distribution, share: float) -> QuantileEstimate:
    """The value below which `share` of the observations lie.

    `distribution` must make sense and hold at least one observation.
    """
    buckets = sorted((b for b in distribution.buckets if b.count > 0), key=lambda b: (b.low, b.high))
    rank = share * distribution.count
    below = 0.0
    for bucket in buckets:
        if below + bucket.count >= rank:
            return _inside(distribution, bucket, (rank - below) / bucket.count)
        below += bucket.count
    return _inside(distribution, buckets[-1], 1.0)  # rounding: the rank is the last observation's


def _inside(distribution: Distribution, bucket: Bucket, part: float) -> QuantileEstimate:
    count_text = f"of {distribution.count:g} observations"
    low, high = (_show(distribution, bound) for bound in (bucket.low, bucket.high))
    if bucket.low == bucket.high:
        return QuantileEstimate(bucket.low, count_text)
    if bucket.high == math.inf:
        return QuantileEstimate(bucket.low, f"above the highest bound {low}, {count_text}", AT_LEAST)
    if bucket.low == -math.inf:
        return QuantileEstimate(bucket.high, f"below the lowest bound {high}, {count_text}", AT_MOST)
    value = min(bucket.high, bucket.low + (bucket.high - bucket.low) * part)  # rounding must not leave the bucket
    return QuantileEstimate(value, f"interpolated in the bucket {low}–{high}, {count_text}")


def _mean(distribution: Distribution) -> Reading | Gap:
    if distribution.total is not None and math.isfinite(distribution.total):
        return _reading(distribution, MEAN, QuantileEstimate(distribution.total / distribution.count, "sum over count"))
    buckets = [bucket for bucket in distribution.buckets if bucket.count > 0]
    if any(math.isinf(bucket.low) or math.isinf(bucket.high) for bucket in buckets):
        return _gap(distribution, [MEAN], "the sum was not told, and some observations lie beyond every bound")
    total = sum(bucket.count * (bucket.low + bucket.high) / 2 for bucket in buckets)
    exact = all(bucket.low == bucket.high for bucket in buckets)
    note = f"of {distribution.count:g} observations" if exact else "estimated from the middles of the buckets"
    return _reading(distribution, MEAN, QuantileEstimate(total / distribution.count, note))


def _show(distribution: Distribution, value: float) -> str:
    return format_value(value, catalogue()[distribution.signal].dimension)


def _reading(distribution: Distribution, suffix: str, found: QuantileEstimate) -> Reading:
    return Reading(
        signal=distribution.signal + suffix,
        subject=distribution.subject,
        value=found.value,
        origin=derived_origin(distribution, suffix.removeprefix(".")),
        window=distribution.window,
        labels=distribution.labels,
        note=f"{found.note}; {distribution.note}" if distribution.note else found.note,
        bound=found.bound,
    )


def _gap(distribution: Distribution, suffixes: list[str], reason: str) -> Gap:
    return Gap(
        source="derived",
        reason=f"{distribution.signal}: {reason}",
        signals=tuple(distribution.signal + suffix for suffix in suffixes),
        subject=distribution.subject,
        next_step="watch for longer: --window 60s" if "observed" in reason else "",
        origin=distribution.origin,
    )
