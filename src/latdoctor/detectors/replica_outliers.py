"""Outliers among replicas, GPUs and model versions.

A replica or GPU is compared with the median of the others, so that a single outlier does not move its own reference.
Replicas that were lost, receive no traffic or are still being warmed up by the router are excluded from the reference.
A router's page covers all replicas, and each of those may have a page of its own: subjects of one page are compared
within it. Model versions are compared within a server that answers with several, otherwise across servers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import median

from latdoctor.conditions.evaluator import of_ratio
from latdoctor.evidence.model import Evidence, Origin, Reading, Value, is_unknown

REPLICA, GPU = "replica/", "gpu/"
OF_SERVER = "@"  # separates a subject from its page
VERSION = "model_version"
VERSIONS = ("version.slowest", "version.median_ratio", "version.tail_ratio")
# The derived signal, its source signal, and the prefix of the subjects to compare.
RATIOS = (
    ("replica.load_ratio", "arrival.rate", REPLICA),
    ("replica.latency_ratio", "latency.mean", REPLICA),
    ("gpu.clock_to_others", "gpu.sm_clock", GPU),
    ("gpu.utilization_to_others", "gpu.utilization", GPU),
)
FULL_SHARE = 0.99  # of a replica's weight over the window
MIN_ARRIVALS = 1.0  # per second; below this median, load ratios are meaningless


def compare_replicas(evidence: Evidence) -> Evidence:
    """Derive the ratios of RATIOS for every replica or GPU with siblings, and the `version.*` ratios."""
    found = [one for signal, of, prefix in RATIOS for one in _compared_with_others(evidence, signal, of, prefix)]
    return Evidence(readings=(*found, *_versions(evidence)))


def _compared_with_others(evidence: Evidence, signal: str, of: str, prefix: str) -> Iterator[Reading]:
    reported = {one.subject for one in evidence.readings_by_signal.get(signal, ())}
    own = {
        one.subject: one
        for one in evidence.readings_by_signal.get(of, ())
        if one.subject.startswith(prefix) and not one.labels and not is_unknown(one.value)
    }
    absent = _absent(evidence)
    groups = _groups(own)
    for subject, one in own.items():
        others = [_number(own[name].value) for name in groups[subject] if name != subject and _name(name) not in absent]
        middle = median(others) if others else 0.0
        if subject in reported or middle <= (MIN_ARRIVALS if of == "arrival.rate" else 0.0):
            continue
        note = f"against {len(others)} other{'s' if len(others) > 1 else ''}"
        origin = Origin(one.origin.artifact, f"{of} over the median of the siblings'")
        yield Reading(signal, subject, _number(one.value) / middle, origin, one.window, note=note)


def _groups(subjects: Iterable[str]) -> dict[str, list[str]]:
    """Map each subject to the subjects of its page, or to all that have a page of their own."""
    pages: dict[str, list[str]] = {}
    for subject in subjects:
        pages.setdefault(subject.partition(OF_SERVER)[2], []).append(subject)
    alone = [members[0] for members in pages.values() if len(members) == 1]
    return {subject: members if len(members) > 1 else alone for members in pages.values() for subject in members}


def _name(subject: str) -> str:
    return subject.partition(OF_SERVER)[0]


def _absent(evidence: Evidence) -> frozenset[str]:
    """Names of replicas that were not in full service throughout the window, according to a router."""
    return frozenset(
        _name(one.subject)
        for signal, is_absent in _ABSENT.items()
        for one in evidence.readings_by_signal.get(signal, ())
        if not is_unknown(one.value) and is_absent(_number(one.value))
    )


_ABSENT: Mapping[str, Callable[[float], bool]] = {
    "replica.up": lambda up: up < 1,
    "replica.loss_rate": lambda rate: rate > 0,
    "replica.weight_share": lambda share: share < FULL_SHARE,
}


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
    """Compare the slowest version with the fastest; the readings belong to the slowest one's subject."""
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
