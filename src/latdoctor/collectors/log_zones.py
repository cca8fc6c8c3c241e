"""Differences of times that are those of time zones."""

from __future__ import annotations

_STEP, _MOST = 900.0, 14 * 3600.0  # seconds: zones differ by quarters of an hour


def whole_zone(difference: float, within: float) -> float | None:
    """The difference of zones, in seconds, that a difference of times is, if it is one to `within` seconds."""
    ahead = round(difference / _STEP) * _STEP
    return ahead if abs(ahead) <= _MOST and abs(difference - ahead) <= within else None
