"""How near the number of running requests stays to a ceiling: `requests.limit_share`.

The ceiling is the limit that the server states. Where it states none it is the most that ran in the window: a number
that is cut off by a limit stays there, while one that follows the arrivals swings (of a Poisson number of mean N the
most of n samples lies about sqrt(2 N ln n) above the mean). At least two samples are needed.
"""

from __future__ import annotations

from collections.abc import Iterator

from latdoctor.detectors.derived_readings import latest_numbers
from latdoctor.evidence.model import Evidence, Origin, Reading, Series

RUNNING, LIMIT, MOST, SHARE = "requests.running", "requests.limit", "requests.running_most", "requests.limit_share"
DERIVED = (MOST, SHARE)
_FEWEST = 3  # samples of a series


def running_ceilings(evidence: Evidence) -> Evidence:
    """Derive `requests.running_most` from series, and `requests.limit_share` of every subject with a ceiling."""
    limits, most = ({one.subject: value for one, value in latest_numbers(evidence, name)} for name in (LIMIT, MOST))
    reported = {one.subject for one in evidence.readings_by_signal.get(SHARE, ())}
    found: list[Reading] = []
    for running, value in latest_numbers(evidence, RUNNING):
        subject = running.subject
        if subject not in most and (highest := _highest(evidence, running)) is not None:
            most[subject] = highest
            found.append(_reading(running, MOST, highest, ""))
        ceiling = limits.get(subject) or most.get(subject)
        if ceiling and subject not in reported:
            note = f"{value:g} of {'a limit of' if limits.get(subject) else 'at most'} {ceiling:g}"
            found.append(_reading(running, SHARE, value / ceiling, note))
    return Evidence(readings=tuple(found))


def _highest(evidence: Evidence, running: Reading) -> float | None:
    """The most of the samples within the window of `running`; None for too few."""
    for one in _series(evidence, running.subject):
        start, end = running.window.start, running.window.end
        inside = [
            value
            for at, value in zip(one.times, one.values, strict=True)
            if (start is None or at >= start) and (end is None or at <= end)
        ]
        if len(inside) >= _FEWEST:
            return max(inside)
    return None


def _series(evidence: Evidence, subject: str) -> Iterator[Series]:
    return (one for one in evidence.series if one.signal == RUNNING and one.subject == subject and not one.labels)


def _reading(source: Reading, signal: str, value: float, note: str) -> Reading:
    return Reading(signal, source.subject, value, Origin(source.origin.artifact, RUNNING), source.window, (), note)
