"""Comparison of the versions of a model that one server serves at the same time, where it reports their means.

The newest version is the one with the highest number; versions that are not numbered are not compared, since only a
newer one that is slower is a bad rollout. Versions see the same load on the same machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median

from latdoctor.detectors.derived_readings import latest_numbers, latest_values
from latdoctor.evidence.model import Evidence, Origin, Reading

RATIO = "version.mean_ratio"
TIMES = ("compute.time.mean", "latency.mean")  # the first that all versions have
_COUNTS = ("completion.count", "arrival.count")
_FEWEST = 20  # requests of each version, where they are counted
_VERSION = re.compile(r"[:,](?:model_)?version=(?P<number>\d{1,18})(?=[,:@]|$)")


def version_means(evidence: Evidence) -> Evidence:
    """Derive `version.mean_ratio` of the newest of several versions of a model."""
    counts = {subject: value for name in _COUNTS for subject, value in latest_values(evidence, name).items()}
    known: set[str] = set()
    found: list[Reading] = []
    for signal in TIMES:
        models: dict[str, dict[int, tuple[Reading, float]]] = {}
        for one, value in latest_numbers(evidence, signal):
            version = _VERSION.search(one.subject)
            if version and counts.get(one.subject, _FEWEST) >= _FEWEST and value > 0:
                models.setdefault(_VERSION.sub("", one.subject), {})[int(version["number"])] = (one, value)
        for model, versions in models.items():
            if model not in known and len(versions) > 1:
                known.add(model)
                found += _compared(versions, signal)
    return Evidence(readings=tuple(found))


def _compared(versions: dict[int, tuple[Reading, float]], signal: str) -> Iterator[Reading]:
    newest = max(versions)
    source, value = versions[newest]
    usual = median(other for number, (_, other) in versions.items() if number != newest)
    note = f"version {newest} against {', '.join(str(number) for number in sorted(versions) if number != newest)}"
    yield Reading(RATIO, source.subject, value / usual, Origin(source.origin.artifact, signal), source.window, (), note)
