"""A server without latencies: the mean time in it follows from what is in it and what begins."""

from __future__ import annotations

import pytest

from latdoctor.detectors.latency_estimate import latency_estimates
from latdoctor.evidence.model import Evidence, Origin, Reading, Series, Window

WINDOW = Window(100.0, 110.0)
PAGE = {"requests.running": 4.0, "queue.depth": 4.0, "input.token_rate": 400.0}


def estimated(page: dict[str, float], logs: tuple[float, ...] = (200.0,)) -> float | None:
    readings = [Reading(name, "server/h:1", value, Origin("page"), WINDOW) for name, value in page.items()]
    readings += [
        Reading("input.length.mean", f"server/{n}.log", tokens, Origin("log"), Window())
        for n, tokens in enumerate(logs)
    ]
    found = latency_estimates(Evidence(readings=tuple(readings))).readings
    return next((float(one.value) for one in found if one.signal == "latency.mean"), None)


def test_what_arrives_is_what_begins_and_what_the_queue_grows_by() -> None:
    readings = [Reading(name, "server/h:1", value, Origin("page"), WINDOW) for name, value in PAGE.items()]
    readings.append(Reading("input.length.mean", "server/0.log", 200.0, Origin("log"), Window()))
    queue = Series("queue.depth", "server/h:1", (100.0, 110.0), (2.0, 62.0), Origin("page"))
    found = latency_estimates(Evidence(readings=tuple(readings), series=(queue,))).readings
    assert {one.signal: one.value for one in found} == {
        "latency.mean": 4.0,
        "arrival.rate": 8.0,
        "completion.rate": 2.0,
    }


@pytest.mark.parametrize(
    ("changed", "logs", "expected"),
    [
        pytest.param({}, (200.0,), 4.0, id="eight-inside-and-two-a-second"),
        pytest.param({"queue.depth": 0.5}, (200.0,), None, id="hardly-any-waits"),
        pytest.param({"input.token_rate": 60.0}, (200.0,), None, id="few-were-taken-up"),
        pytest.param({"input.token_rate": 0.0}, (200.0,), None, id="none-was-taken-up"),
        pytest.param({"latency.mean": 0.3}, (200.0,), None, id="a-measured-latency-stays"),
        pytest.param({}, (), None, id="the-length-of-prompts-is-not-known"),
        pytest.param({}, (200.0, 300.0), None, id="two-logs-of-which-one-may-be-meant"),
        pytest.param({"input.length.mean": 400.0}, (200.0, 300.0), 8.0, id="its-own-length"),
    ],
)
def test_the_mean_by_what_begins(changed: dict[str, float], logs: tuple[float, ...], expected: float | None) -> None:
    assert estimated(PAGE | changed, logs) == expected
