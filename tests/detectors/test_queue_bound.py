"""A bounded queue is full in a share of its samples."""

from __future__ import annotations

import pytest

from latdoctor.detectors.queue_bound import queue_bounds
from latdoctor.evidence.model import Evidence, Origin, Reading, Series


@pytest.mark.parametrize(
    ("depths", "limit", "share"),
    [
        pytest.param([0, 0, 1, 1, 2, 2, 0, 2], 2.0, 0.375, id="full-again-and-again"),
        pytest.param([0, 0, 1, 1, 2, 0, 0, 1], 2.0, None, id="one-full-sample-may-be-chance"),
        pytest.param([0, 0, 1, 1, 1, 0, 0, 1], 2.0, 0.0, id="never-full"),
        pytest.param([2, 2, 2, 2], 2.0, None, id="few-samples"),
        pytest.param([9, 9, 9, 9, 9], 0.0, None, id="no-limit"),
        pytest.param([9, 9, 9, 9, 9], None, None, id="a-limit-that-is-not-known"),
    ],
)
def test_the_share_of_full_samples(depths: list[float], limit: float | None, share: float | None) -> None:
    times = tuple(100.0 + number for number in range(len(depths)))
    series = Series("queue.depth", "model/a", times, tuple(map(float, depths)), Origin("page"))
    limits = () if limit is None else (Reading("config.queue_limit", "model/a", limit, Origin("config")),)
    found = queue_bounds(Evidence(readings=limits, series=(series,))).readings
    assert [one.value for one in found] == ([] if share is None else [share])
    assert not queue_bounds(Evidence(readings=(*limits, *found), series=(series,))).readings or not found
