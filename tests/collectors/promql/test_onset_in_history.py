"""Since when: the same answer from three minutes after the beginning on, at whatever time the history is read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from latdoctor.collectors.base import CollectRequest, PrometheusServer
from latdoctor.collectors.promql import COLLECTOR
from latdoctor.collectors.promql.client import prometheus_endpoint
from latdoctor.detectors import derive
from latdoctor.detectors.onset import ONSET
from tests.collectors.prometheus.serving import FakeClock
from tests.collectors.promql.climb import BEGAN, BEHIND, END, HEALTHY, openmetrics
from tests.collectors.promql.real import prometheus

HOUR, MINUTE = 3600.0, 60.0


@pytest.fixture(scope="module")
def climbing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus(tmp_path_factory.mktemp("climb"), openmetrics()) as url:
        yield url


def onsets(url: str, until: float, past: float = HOUR) -> dict[str, float]:
    """The onsets that last, by replica."""
    server = PrometheusServer(prometheus_endpoint(url), until - past, until, 300.0, ())
    collected = COLLECTOR.collect(CollectRequest(prometheus=server), FakeClock())
    events = derive(COLLECTOR.parse(collected.artifacts)).events_by_signal.get(ONSET, ())
    return {event.subject.partition("@")[2]: event.time or 0.0 for event in events if "until" not in event.fields}


@pytest.mark.parametrize("past", [HOUR / 2, HOUR, 1.4 * HOUR])
@pytest.mark.parametrize("after", [180, 200, 245, 300, 410, 605, 900, 1210])
def test_a_slowdown_that_lasts_is_dated_alike_whenever_one_looks(climbing: str, after: float, past: float) -> None:
    began = END - BEGAN
    found = onsets(climbing, began + after, past)
    assert set(found) == {BEHIND}
    assert abs(found[BEHIND] - began) <= MINUTE


@pytest.mark.parametrize("after", [-1800, -900, -60, 0])
def test_there_is_none_before_it_began(climbing: str, after: float) -> None:
    assert not onsets(climbing, END - BEGAN + after)


def test_the_other_replica_never_had_one(climbing: str) -> None:
    assert not [after for after in range(600, BEGAN + 1, 300) if HEALTHY in onsets(climbing, END - BEGAN + after)]
