"""Replicas and model versions against each other: is one of them unlike the rest?

A replica is compared with the median of the others, so that a single outlier does not move what it is measured
against. Versions of the model are compared where one server answers with several, else between servers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from latdoctor.evidence.comparing import of_ratio
from latdoctor.evidence.model import Evidence, Origin, Reading, Value, is_unknown

REPLICA = "replica/"
VERSION = "model_version"
RATIOS = (("replica.load_ratio", "arrival.rate"), ("replica.latency_ratio", "latency.mean"))
MIN_ARRIVALS = 1.0  # per second; a median of less says nothing about who takes more


def siblings(evidence: Evidence) -> Evidence:
    """The ratios of RATIOS for every replica that has siblings, and the `version.*` ratios."""
    found = [one for signal, of in RATIOS for one in _replicas(evidence, signal, of)]
    return Evidence(readings=(*found, *_versions(evidence)))


def _replicas(evidence: Evidence, signal: str, of: str) -> Iterator[Reading]:
    told = {one.subject for one in evidence.readings_by_signal.get(signal, ())}
    own = {
        one.subject: one
        for one in evidence.readings_by_signal.get(of, ())
        if one.subject.startswith(REPLICA) and not one.labels and not is_unknown(one.value)
    }
    for subject, one in own.items():
        others = [_number(other.value) for name, other in own.items() if name != subject]
        middle = median(others) if others else 0.0
        if subject in told or middle <= (MIN_ARRIVALS if of == "arrival.rate" else 0.0):
            continue
        note = f"against {len(others)} other{'s' if len(others) > 1 else ''}"
        origin = Origin(one.origin.artifact, f"{of} over the median of the siblings'")
        yield Reading(signal, subject, _number(one.value) / middle, origin, one.window, note=note)


def _versions(evidence: Evidence) -> Iterator[Reading]:
    if evidence.readings_by_signal.get("version.median_ratio"):
        return
    medians, tails = (_by_version(evidence, f"version.latency.{name}") for name in ("p50", "p95"))
    compared = False
    for subject in {subject: None for subject, _ in medians}:
        own = {version: one for (owner, version), one in medians.items() if owner == subject}
        if len(own) > 1:
            compared = True
            yield from _compared(own, {version: tails.get((subject, version)) for version in own})
    everywhere: dict[str, tuple[str, Reading]] = {}
    for (owner, version), one in medians.items():
        if version not in everywhere or _number(one.value) > _number(everywhere[version][1].value):
            everywhere[version] = (owner, one)
    if not compared and len(everywhere) > 1:
        of = {version: tails.get((owner, version)) for version, (owner, _) in everywhere.items()}
        yield from _compared({version: one for version, (_, one) in everywhere.items()}, of)


def _by_version(evidence: Evidence, signal: str) -> Mapping[tuple[str, str], Reading]:
    found: dict[tuple[str, str], Reading] = {}
    for one in evidence.readings_by_signal.get(signal, ()):
        version = dict(one.labels).get(VERSION)
        if version and not is_unknown(one.value):
            found[one.subject, version] = one
    return found


def _compared(medians: Mapping[str, Reading], tails: Mapping[str, Reading | None]) -> Iterator[Reading]:
    """The slowest version against the quickest, as told of the slowest one's subject."""
    slowest = max(medians, key=lambda version: _number(medians[version].value))
    quickest = min(medians, key=lambda version: _number(medians[version].value))
    source, low = medians[slowest], _number(medians[quickest].value)
    note = f"version {slowest} against {quickest}"
    pairs: list[tuple[str, Value, str | None]] = [("version.slowest", slowest, "")]
    if low > 0:
        bound = of_ratio(source.bound, medians[quickest].bound)
        pairs.append(("version.median_ratio", _number(source.value) / low, bound))
    tail, other = tails.get(slowest), tails.get(quickest)
    if tail and other and _number(other.value) > 0:
        bound = of_ratio(tail.bound, other.bound)
        pairs.append(("version.tail_ratio", _number(tail.value) / _number(other.value), bound))
    for signal, value, bound in pairs:
        origin = Origin(source.origin.artifact, "latency by model version")
        if bound is not None:
            yield Reading(signal, source.subject, value, origin, source.window, note=note, bound=bound)


def _number(value: Value) -> float:
    return 0.0 if isinstance(value, str) else value
