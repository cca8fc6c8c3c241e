"""The first requests after a start against the later ones."""

from __future__ import annotations

import pytest

from latdoctor.detectors.first_requests import RATIO, TIME, first_requests
from latdoctor.evidence.model import Event, Evidence, Origin, Series

OTHERS = [0.1] * 27 + [0.2] * 3


def derived(started: float | None, latencies: list[float], of: str = "node/a.log") -> dict[str, float]:
    """`started`: seconds before the first request."""
    times = tuple(5000.0 + number for number in range(len(latencies)))
    series = Series("request.latency", "server/a.log", times, tuple(latencies), Origin("log"))
    time = None if started is None else times[0] - started
    event = Event("change.process_start", of, Origin("log"), {}, time)
    return {
        one.signal: float(one.value) for one in first_requests(Evidence(series=(series,), events=(event,))).readings
    }


@pytest.mark.parametrize(
    ("started", "latencies", "slow", "ratio"),
    [
        pytest.param(20, [15, 9, 6, 2, 1, *OTHERS], 9, 45, id="lazy-loading"),
        pytest.param(20, [15, 0.1, 6, *OTHERS], 6, 60, id="a-lucky-second"),
        pytest.param(20, [15, 0.1, 0.1, *OTHERS], 0.1, 1, id="one-slow-request"),
        pytest.param(20, [0.1, 0.1, 0.1, *OTHERS, 30, 30, 30], 0.1, 0.5, id="slow-later"),
        pytest.param(20, [15, 9, 6, *[8] * 30], 9, 9 / 8, id="always-slow"),
    ],
)
def test_the_first_against_the_others(started: float, latencies: list[float], slow: float, ratio: float) -> None:
    assert derived(started, latencies) == {TIME: pytest.approx(slow), RATIO: pytest.approx(ratio)}


@pytest.mark.parametrize(
    ("started", "latencies", "of"),
    [
        pytest.param(None, [15, 9, 6, *OTHERS], "node/a.log", id="no-time"),
        pytest.param(-5, [15, 9, 6, *OTHERS], "node/a.log", id="started-later"),
        pytest.param(7200, [15, 9, 6, *OTHERS], "node/a.log", id="started-hours-before"),
        pytest.param(20, [15, 9, 6, *OTHERS], "node/b.log", id="another-log"),
        pytest.param(20, [15, 9, 6, *OTHERS[:19]], "node/a.log", id="too-few"),
        pytest.param(20, [15, 9, 6, *[0] * 30], "node/a.log", id="no-time-at-all"),
    ],
)
def test_what_shows_nothing(started: float | None, latencies: list[float], of: str) -> None:
    assert derived(started, latencies, of) == {}
