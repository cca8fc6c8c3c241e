"""How near the number of running requests stays to a ceiling: `requests.limit_share`.

The ceiling is the limit that the server states. Where it states none it is the most that ran in the window: a number
that is cut off by a limit stays there, while one that follows the arrivals swings (of a Poisson number of mean N the
most of n samples lies about sqrt(2 N ln n) above the mean). At least two samples are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean

from latdoctor.detectors.derived_readings import latest_numbers, latest_values
from latdoctor.evidence.model import Evidence, Origin, Reading, Series

RUNNING, LIMIT, SHARE = "requests.running", "requests.limit", "requests.limit_share"
MEAN, MOST = "requests.running_mean", "requests.running_most"
DERIVED = (MEAN, MOST, SHARE)
_FEWEST = 3  # samples of a series


def running_ceilings(evidence: Evidence) -> Evidence:
    """Derive the mean and the most of series, and `requests.limit_share` of every subject with a ceiling."""
    limits, means, most = (latest_values(evidence, name) for name in (LIMIT, MEAN, MOST))
    reported = {one.subject for one in evidence.readings_by_signal.get(SHARE, ())}
    found: list[Reading] = []
    for running, value in latest_numbers(evidence, RUNNING):
        subject = running.subject
        samples = _samples(evidence, running)
        if subject not in most and samples:
            means[subject], most[subject] = mean(samples), max(samples)
            found += (_reading(running, MEAN, means[subject], ""), _reading(running, MOST, most[subject], ""))
        if subject in reported:
            continue
        if limits.get(subject):
            note = f"{value:g} of a limit of {limits[subject]:g}"
            found.append(_reading(running, SHARE, value / limits[subject], note))
        elif most.get(subject) and subject in means:
            # The mean and not the last value: a number that only rises ends at its highest, too.
            note = f"{means[subject]:g} on average, at most {most[subject]:g}"
            found.append(_reading(running, SHARE, means[subject] / most[subject], note))
    return Evidence(readings=tuple(found))


def _samples(evidence: Evidence, running: Reading) -> Sequence[float]:
    """The samples within the window of `running`; none where there are too few."""
    start, end = running.window.start, running.window.end
    for one in _series(evidence, running.subject):
        inside = [
            value
            for at, value in zip(one.times, one.values, strict=True)
            if (start is None or at >= start) and (end is None or at <= end)
        ]
        if len(inside) >= _FEWEST:
            return inside
    return ()


def _series(evidence: Evidence, subject: str) -> Iterator[Series]:
    return (one for one in evidence.series if one.signal == RUNNING and one.subject == subject and not one.labels)


def _reading(source: Reading, signal: str, value: float, note: str) -> Reading:
    return Reading(signal, source.subject, value, Origin(source.origin.artifact, RUNNING), source.window, (), note)
