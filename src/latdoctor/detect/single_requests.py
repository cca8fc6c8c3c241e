"""What the detectors over single requests have in common: which series they read, and how they tell what they found."""

from __future__ import annotations

from collections.abc import Iterable

from latdoctor.evidence.model import Evidence, Gap, Labels, Origin, Reading, Series, Value, Window

LATENCY = "request.latency"


def untold(evidence: Evidence, derived: str) -> tuple[Series, ...]:
    """The latencies of single requests of each subject of which `derived` is not told yet."""
    told = {one.subject for one in evidence.readings_by_signal.get(derived, ())}
    return tuple(one for one in evidence.series if one.signal == LATENCY and one.subject not in told)


def lacking(series: Series, reason: str, signals: tuple[str, ...]) -> Evidence:
    """Why `signals` cannot be told of `series`."""
    return Evidence(gaps=(Gap("derived", reason, signals, series.subject, "", series.origin),))


def too_few(series: Series, what: str, seen: int, needed: int, signals: tuple[str, ...]) -> Evidence:
    return lacking(series, f"{what}: {seen} requests seen, {needed} are needed", signals)


def found(series: Series, how: str, told: Iterable[tuple[str, Value, Labels]], seen: int) -> Evidence:
    """(signal, value, labels) of `seen` requests, made of `series` in the way that `how` names."""
    origin = Origin(series.origin.artifact, f"{series.origin.place}, {how}")
    window, note = Window(series.times[0], series.times[-1]), f"of {seen} requests"
    return Evidence(
        readings=tuple(
            Reading(name, series.subject, value, origin, window, labels, note) for name, value, labels in told
        )
    )
