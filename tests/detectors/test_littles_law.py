"""A queue whose figures violate Little's law is dropped."""

from __future__ import annotations

import pytest

from latdoctor.detectors import derive
from latdoctor.detectors.littles_law import DOUBTED, drop_inconsistent_queues
from latdoctor.evidence.model import Evidence, Origin, Reading


def queue(**values: float) -> Evidence:
    names = {
        "depth": "queue.depth",
        "wait": "queue.time.mean",
        "arrivals": "arrival.rate",
        "answers": "completion.rate",
    }
    return Evidence(readings=tuple(Reading(names[n], "model/a", v, Origin("page")) for n, v in values.items()))


@pytest.mark.parametrize(
    ("values", "believed"),
    [
        ({"depth": 100, "wait": 1.0, "arrivals": 100}, True),
        ({"depth": 300, "wait": 1.7, "arrivals": 185, "answers": 141}, True),  # growing: measured in a real rush
        ({"depth": 0, "wait": 1.0, "arrivals": 100}, False),  # a depth that leaves the queue out
        ({"depth": 5000, "wait": 0.05, "arrivals": 100}, False),  # a wait in another unit
        ({"depth": 4, "wait": 0.001, "arrivals": 100}, True),  # few: one sample decides
        ({"depth": 0, "wait": 1.0}, True),  # no rate, no law
        ({"depth": 0, "wait": float("nan"), "arrivals": 100}, True),
    ],
)
def test_depth_against_rate_times_wait(values: dict[str, float], believed: bool) -> None:
    evidence = queue(**values)
    found = drop_inconsistent_queues(evidence)
    if believed:
        assert found == evidence
    else:
        assert not any(one.signal in DOUBTED for one in found.readings)
        assert "Little's law" in found.gaps[0].reason
        assert found.gaps[0].subject == "model/a"
        assert drop_inconsistent_queues(found) == found


def test_nothing_is_derived_from_what_is_not_believed() -> None:
    evidence = queue(depth=0, wait=1.0, arrivals=100)
    latency = Reading("latency.mean", "model/a", 1.2, Origin("page"))
    derived = derive(Evidence.merge([evidence, Evidence(readings=(latency,))]))
    assert not derived.readings_by_signal.get("queue.time_share")
