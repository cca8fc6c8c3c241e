"""Comparison of the Pods of a workload's newest revision with those of earlier ones, which serve at the same time.

They see the same load on the same cluster, so that a newest revision whose requests take longer is a bad rollout. The
median of the Pods stands for each side: one slow Pod is no property of a revision. Pods that have only just become
ready are cold and left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from latdoctor.detectors.derived_readings import latest_numbers, latest_values
from latdoctor.detectors.version_means import TIMES
from latdoctor.evidence.model import Evidence, Labels, Origin, Reading, kind_of

_COUNTS = ("completion.count", "arrival.count")
RATIO = "rollout.mean_ratio"
WARM = 60.0  # seconds since a Pod became ready
_FEWEST = 20  # requests of a Pod, where they are counted
REVISION, AGE = "pod.revision", "pod.ready_age"
_Found = dict[float, list[tuple[Reading, float]]]


def revision_means(evidence: Evidence) -> Evidence:
    """Derive `rollout.mean_ratio` of the newest revision of each workload with Pods of several."""
    ages = latest_values(evidence, AGE)
    revisions = {
        one.subject: one for one in evidence.readings_by_signal.get(REVISION, ()) if ages.get(one.subject, 0.0) >= WARM
    }
    if len({one.value for one in revisions.values()}) < 2:
        return Evidence()
    counts = {subject: value for name in _COUNTS for subject, value in latest_values(evidence, name).items()}
    known: set[Labels] = set()
    found: list[Reading] = []
    for signal in TIMES:
        for workload, by_revision in _by_workload(evidence, signal, revisions, counts).items():
            if workload not in known and len(by_revision) > 1:
                known.add(workload)
                found += _compared(by_revision, signal)
    return Evidence(readings=tuple(found))


def _by_workload(
    evidence: Evidence, signal: str, revisions: Mapping[str, Reading], counts: Mapping[str, float]
) -> dict[Labels, _Found]:
    """The times of the servers in Pods, by workload and revision."""
    found: dict[Labels, _Found] = {}
    for one, value in latest_numbers(evidence, signal):
        pod = next((revisions[name] for name in evidence.lineage(one.subject) if name in revisions), None)
        if pod is None or isinstance(pod.value, str) or kind_of(one.subject) == "pod" or value <= 0:
            continue
        if counts.get(one.subject, _FEWEST) >= _FEWEST:
            found.setdefault(pod.labels, {}).setdefault(pod.value, []).append((one, value))
    return found


def _compared(by_revision: _Found, signal: str) -> Iterator[Reading]:
    newest = max(by_revision)
    source = by_revision[newest][0][0]
    new = median(value for _, value in by_revision[newest])
    old = median(value for number, pods in by_revision.items() if number != newest for _, value in pods)
    others = ", ".join(f"{number:.0f}" for number in sorted(by_revision) if number != newest)
    note = f"Pods of revision {newest:.0f} against {others}"
    yield Reading(RATIO, source.subject, new / old, Origin(source.origin.artifact, signal), source.window, (), note)
