"""Quantiles and means of distributions whose source did not report them.

A quantile is interpolated linearly within its bucket, as Prometheus' histogram_quantile does; the note names the
bucket, which limits the precision. In the unbounded bucket only the lower bound is known: the reading's `bound` says
so, and comparisons do not take it for the value. Where nearly all observations are in the first bucket, only its bound
is known: between zero and it there is nothing to interpolate by. A quantile q needs enough observations: at least 3 for
the median, 20 for the 95th and 100 for the 99th percentile, so that about one observation is above it.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from typing import NamedTuple

from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import AT_LEAST, AT_MOST, Bucket, Distribution, Evidence, Gap, Labels, Origin, Reading
from latdoctor.gap_code import GapCode
from latdoctor.units import format_value

# Suffix of the derived signal, the quantile, and how many observations it needs.
QUANTILES = ((".p50", 0.50, 3), (".p95", 0.95, 20), (".p99", 0.99, 100))
MEAN = ".mean"
COARSE = 0.95  # share of the observations in the first bucket, from which on it says no more than its bound
_WATCH_LONGER = "watch for longer: --window 60s"

Key = tuple[str, str, Labels]  # signal, subject, labels


class QuantileEstimate(NamedTuple):
    """A quantile or mean in base units, a note on its precision, and AT_LEAST or AT_MOST if it is only a bound."""

    value: float
    note: str
    bound: str = ""


def quantiles(evidence: Evidence) -> Evidence:
    """Derive `.mean`, `.p50`, `.p95` and `.p99` of every distribution, as far as the catalogue has these signals."""
    known = {(reading.signal, reading.subject, reading.labels) for reading in evidence.readings}
    found = [piece for distribution in latest_distributions(evidence) for piece in _of_one(distribution, known)]
    return Evidence(
        readings=tuple(piece for piece in found if isinstance(piece, Reading)),
        gaps=tuple(piece for piece in found if isinstance(piece, Gap)),
    )


def latest_distributions(evidence: Evidence) -> tuple[Distribution, ...]:
    """The distribution whose window ends last, per signal, subject and labels."""
    found: dict[Key, Distribution] = {}
    for one in evidence.distributions:
        key = (one.signal, one.subject, one.labels)
        if key not in found or (one.window.end or -math.inf) > (found[key].window.end or -math.inf):
            found[key] = one
    return tuple(found.values())


def observation_shortfall(evidence: Evidence, signals: Container[str]) -> float:
    """Factor by which the fewest observations must grow before every quantile of `signals` can be derived.

    At most 1 if there are enough, 0 if no matching distribution has observations.
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
    """Whether every count is finite and not negative, and the bounds of every bucket are in order."""
    return all(math.isfinite(b.count) and b.count >= 0 and b.low <= b.high for b in distribution.buckets)


def derived_origin(distribution: Distribution, derivation: str) -> Origin:
    """The origin of `distribution` with the derivation appended."""
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
        yield _gap(distribution, missing, "its counts or bounds are invalid", GapCode.INCONSISTENT)
        return
    if distribution.count == 0:
        yield _gap(distribution, missing, "nothing was observed", GapCode.NOTHING_COUNTED, _WATCH_LONGER)
        return
    if MEAN in missing:
        yield _mean(distribution)
    for suffix, share, needed in QUANTILES:
        if suffix not in missing:
            continue
        if distribution.count < needed:
            yield _gap(
                distribution,
                [suffix],
                f"{distribution.count:g} observed, {needed} are needed",
                GapCode.INSUFFICIENT,
                _WATCH_LONGER,
            )
        else:
            found = quantile(distribution, share)
            if math.isinf(found.value):
                yield _gap(distribution, [suffix], "its buckets have no finite bound", GapCode.INCONSISTENT)
            else:
                yield _reading(distribution, suffix, found)


def quantile(distribution: Distribution, share: float) -> QuantileEstimate:
    """Return the value below which `share` of the observations are.

    `distribution` must be valid and have at least one observation.
    """
    return _inside(distribution, *_bucket_of(distribution, share))


def least(distribution: Distribution, share: float) -> float:
    """The lower end of the bucket in which the quantile is; the same conditions apply."""
    return _above(_bucket_of(distribution, share)[0])


def _above(bucket: Bucket) -> float:
    """The least that an observation of `bucket` may be: more than its lower bound, which the bucket below includes.

    SLOs are often bounds of buckets, and what is over such a bound is over the SLO.
    """
    exact = bucket.low == bucket.high or math.isinf(bucket.low)
    return bucket.low if exact else math.nextafter(bucket.low, math.inf)


def _bucket_of(distribution: Distribution, share: float) -> tuple[Bucket, float]:
    """The bucket of the quantile, and the part of its observations that are below."""
    buckets = sorted((b for b in distribution.buckets if b.count > 0), key=lambda b: (b.low, b.high))
    rank = share * distribution.count
    below = 0.0
    for bucket in buckets:
        if below + bucket.count >= rank:
            return bucket, (rank - below) / bucket.count
        below += bucket.count
    return buckets[-1], 1.0  # rounding: the rank is that of the last observation


def _inside(distribution: Distribution, bucket: Bucket, part: float) -> QuantileEstimate:
    count_text = f"of {distribution.count:g} observations"
    low, high = (_show(distribution, bound) for bound in (bucket.low, bucket.high))
    if bucket.low == bucket.high:
        return QuantileEstimate(bucket.low, count_text)
    if bucket.high == math.inf:
        return QuantileEstimate(_above(bucket), f"above the highest bound {low}, {count_text}", AT_LEAST)
    if bucket.low == -math.inf or (bucket.low == 0 and bucket.count >= COARSE * distribution.count):
        return QuantileEstimate(bucket.high, f"below the lowest bound {high}, {count_text}", AT_MOST)
    value = min(bucket.high, bucket.low + (bucket.high - bucket.low) * part)  # rounding must not leave the bucket
    return QuantileEstimate(value, f"interpolated in the bucket {low}–{high}, {count_text}")


def _mean(distribution: Distribution) -> Reading | Gap:
    if distribution.total is not None and math.isfinite(distribution.total):
        return _reading(distribution, MEAN, QuantileEstimate(distribution.total / distribution.count, "sum over count"))
    buckets = [bucket for bucket in distribution.buckets if bucket.count > 0]
    if any(math.isinf(bucket.low) or math.isinf(bucket.high) for bucket in buckets):
        return _gap(
            distribution,
            [MEAN],
            "the sum is not reported, and some observations are in unbounded buckets",
            GapCode.INSUFFICIENT,
        )
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


def _gap(distribution: Distribution, suffixes: list[str], reason: str, code: GapCode, next_step: str = "") -> Gap:
    return Gap(
        source="derived",
        reason=f"{distribution.signal}: {reason}",
        signals=tuple(distribution.signal + suffix for suffix in suffixes),
        subject=distribution.subject,
        next_step=next_step,
        origin=distribution.origin,
        code=code,
    )
