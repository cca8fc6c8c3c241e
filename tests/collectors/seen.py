"""What came out of a parse, for tests that look at it."""

from __future__ import annotations

from collections.abc import Mapping

from latdoctor.evidence.model import Evidence, Reading


def readings(found: Evidence) -> Mapping[str, Reading]:
    """The readings without labels, by signal."""
    return {reading.signal: reading for reading in found.readings if not reading.labels}


def values(found: Evidence) -> Mapping[str, float]:
    """Those that are numbers."""
    return {name: one.value for name, one in readings(found).items() if not isinstance(one.value, str)}


def hidden(found: Evidence) -> set[str]:
    """The signals that some gap hides."""
    return {signal for gap in found.gaps for signal in gap.signals}
