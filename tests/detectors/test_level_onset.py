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


@pytest.mark.parametrize(
    ("answers", "arrivals", "dated"),
    [
        pytest.param([40.0] * 80 + [0.0] * 30, [41.0] * 110, True, id="they-cease-while-requests-come"),
        pytest.param([40.0] * 80 + [0.0] * 30, [41.0] * 80 + [0.0] * 30, False, id="no-more-come"),
        pytest.param([40.0] * 80 + [20.0] * 30, [41.0] * 110, False, id="half-are-answered"),
        pytest.param([40.0] * 80 + [0.0] * 30, None, False, id="arrivals-are-not-known"),
    ],
)
def test_answers_that_cease_are_dated(answers: list[float], arrivals: list[float] | None, dated: bool) -> None:
    times = tuple(1000.0 + 30 * (point + 1) for point in range(len(answers)))
    series = [Series("completion.rate", "model/m@a", times, tuple(answers), Origin("history"))]
    series += [Series("arrival.rate", "model/m@a", times, tuple(arrivals), Origin("history"))] if arrivals else []
    events = level_onsets(Evidence(series=tuple(series))).events
    assert [event.time for event in events] == ([1000.0 + 30 * 80] if dated else [])


def test_errors_that_begin_at_once_need_no_long_history() -> None:
    (event,) = found("error.ratio", [0.0] * 12 + [0.9] * 3)
    assert event.time == 1000.0 + 30 * 12
    assert not found("queue.depth", [0.0] * 12 + [90.0] * 3)


@pytest.mark.parametrize(("signal", "level"), [("queue.depth", 1.0), ("error.ratio", 0.02), ("queue.time.mean", 0.05)])
def test_a_level_that_does_not_matter_is_none(signal: str, level: float) -> None:
    assert not found(signal, [0.0] * 80 + [level] * 30)
