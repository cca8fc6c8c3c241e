"""The stretch of an engine's log lines in which requests are running and nothing is computed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from latdoctor.detectors.level_change import LevelChange

STALLED_SAMPLES = 3


def stall(running: Sequence[float], generated: Sequence[float], prompts: Sequence[float]) -> LevelChange | None:
    """The last run of samples in which requests are running and no token is computed; None without one."""
    stalled = [
        busy > 0 and output == 0 and prompt == 0
        for busy, output, prompt in zip(running, generated, prompts, strict=True)
    ]
    last = len(stalled)
    while last:
        last -= 1
        first = last
        while first >= 0 and stalled[first]:
            first -= 1
        if last - first >= STALLED_SAMPLES:
            before = [value for value, still in zip(generated[: first + 1], stalled, strict=False) if not still]
            return LevelChange(first + 1, last, median(before) if before else 0.0, 0.0)
        last = min(last, first + 1)
    return None
