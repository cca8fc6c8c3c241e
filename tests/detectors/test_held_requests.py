"""What each replica holds against its siblings."""

from __future__ import annotations

import pytest

from latdoctor.detectors.held_requests import OTHERS, RATIO, held_requests
from latdoctor.evidence.model import Evidence, Origin, Reading


def derived(running: dict[str, float], queues: dict[str, float], up: dict[str, float]) -> dict[tuple[str, str], float]:
    given = {"requests.running": running, "queue.depth": queues, "replica.up": up}
    readings = tuple(
        Reading(signal, subject, value, Origin("page")) for signal, of in given.items() for subject, value in of.items()
    )
    return {(one.signal, one.subject): float(one.value) for one in held_requests(Evidence(readings=readings)).readings}


@pytest.mark.parametrize(
    ("running", "queues", "up", "ratios"),
    [
        pytest.param(
            {"model/a:engine=0": 9, "model/a:engine=1": 1}, {"model/a:engine=0": 30, "model/a:engine=1": 0}, {},
            {"model/a:engine=0": 20, "model/a:engine=1": 0.05}, id="engines-with-queues",
        ),
        pytest.param({"replica/0": 99, "replica/1": 3, "replica/2": 5}, {}, {},
                     {"replica/0": 20, "replica/2": 6 / 52}, id="a-router-shows-no-queues"),
        pytest.param({"replica/0": 99, "replica/1": 3, "replica/2": 5}, {}, {"replica/1": 0.0},
                     {"replica/0": 100 / 6}, id="one-that-is-down-is-no-sibling"),
        pytest.param(
            {"server/10.0.0.1:8000": 4, "server/10.0.0.2:8000": 0, "server/10.0.0.3:8000": 1},
            {"server/10.0.0.1:8000": 6, "server/10.0.0.2:8000": 0, "server/10.0.0.3:8000": 0},
            {"replica/http://10.0.0.1:8000@lb:29000": 1, "replica/http://10.0.0.2:8000@lb:29000": 1},
            {"server/10.0.0.1:8000": 11}, id="servers-that-a-router-names",
        ),
        pytest.param({"server/10.0.0.1:8000": 4, "server/10.0.0.3:8000": 1}, {"server/10.0.0.1:8000": 6}, {}, {},
                     id="servers-without-a-router"),
        pytest.param({"model/a:engine=0": 9, "model/a:engine=1": 1}, {}, {}, {}, id="engines-without-queues"),
        pytest.param({"model/a": 90, "model/b": 3}, {"model/a": 90, "model/b": 3}, {}, {}, id="two-models"),
        pytest.param({"replica/0": 90}, {}, {}, {}, id="alone"),
        pytest.param({"replica/0@a": 90, "replica/0@b": 3}, {}, {}, {}, id="two-routers"),
    ],
)  # fmt: skip
def test_what_a_replica_holds(
    running: dict[str, float], queues: dict[str, float], up: dict[str, float], ratios: dict[str, float]
) -> None:
    found = derived(running, queues, up)
    assert {subject: found[RATIO, subject] for subject in ratios} == pytest.approx(ratios)
    assert ratios or not found


def test_only_a_replica_that_reports_a_queue_is_compared_by_queues() -> None:
    running = {"replica/0": 9.0, "replica/1": 9.0, "replica/2": 9.0}
    found = derived(running, {"replica/0": 40.0, "replica/1": 2.0}, {})
    assert found[OTHERS, "replica/0"] == 2
    assert (OTHERS, "replica/2") not in found
