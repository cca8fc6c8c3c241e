"""Since when requests fail or wait, from the history of a metric."""

from __future__ import annotations

import pytest

from latdoctor.detectors.level_onset import level_onsets
from latdoctor.evidence.model import Event, Evidence, Origin, Series


def found(signal: str, values: list[float]) -> list[Event]:
    times = tuple(1000.0 + 30 * (point + 1) for point in range(len(values)))
    series = Series(signal, "model/m@a", times, tuple(values), Origin("history"))
    once = level_onsets(Evidence(series=(series,)))
    assert not level_onsets(Evidence(series=(series,), events=once.events)).events
    return list(once.events)


@pytest.mark.parametrize(
    ("signal", "before", "after"),
    [("queue.depth", 0.0, 40.0), ("error.ratio", 0.001, 0.3), ("queue.time.mean", 0.01, 2.0)],
)
def test_a_lasting_worse_level_is_dated(signal: str, before: float, after: float) -> None:
    (event,) = found(signal, [before] * 80 + [after] * 30)
    assert event.time == 1000.0 + 30 * 80
    assert (event.fields["signal"], event.fields["after"]) == (signal, after)
    assert "until" not in event.fields


@pytest.mark.parametrize(("signal", "level"), [("queue.depth", 1.0), ("error.ratio", 0.02), ("queue.time.mean", 0.05)])
def test_a_level_that_does_not_matter_is_none(signal: str, level: float) -> None:
    assert not found(signal, [0.0] * 80 + [level] * 30)
