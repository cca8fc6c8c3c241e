"""A server that holds requests and gives nothing out stands still; one without requests does not."""

from __future__ import annotations

import pytest

from latdoctor.detectors.standstill import standstill
from latdoctor.evidence.model import AT_LEAST, Evidence, Origin, Reading, Window

WINDOW = Window(100.0, 130.0)


def stalls(window: Window = WINDOW, **values: float) -> dict[str, object]:
    """The derived readings of one server; `_` stands for `.` in the names of signals."""
    readings = tuple(
        Reading(name.replace("__", "."), "model/a", value, Origin("page"), window) for name, value in values.items()
    )
    derived = standstill(Evidence(readings=readings)).readings
    return {one.signal.removeprefix("stall."): one.value for one in derived if one.signal.startswith("stall.")}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param({}, {}, id="nothing-known"),
        pytest.param(
            {"output__token_count": 0, "completion__count": 0, "requests__running": 8, "queue__depth": 24},
            {"requests": 32, "duration": 30},
            id="tokens-and-requests-stand-still",
        ),
        pytest.param(
            {"output__token_count": 90, "completion__count": 0, "requests__running": 8},
            {"requests": 0, "arrivals": 0},
            id="long-answers-come-out-token-by-token",
        ),
        pytest.param(
            {"output__token_count": 0, "input__token_count": 9000, "requests__running": 1},
            {"requests": 0, "arrivals": 0},
            id="a-long-prompt-is-computed",
        ),
        pytest.param(
            {"completion__count": 0, "queue__depth": 9, "latency__past_mean": 0.1},
            {"requests": 9, "lengths": 300},
            id="without-tokens-the-usual-length-counts",
        ),
        pytest.param(
            {"completion__count": 0, "queue__depth": 9}, {"requests": 9}, id="without-a-usual-length-no-time-counts"
        ),
        pytest.param(
            {"completion__count": 0, "arrival__count": 12}, {"requests": 12, "arrivals": 12}, id="what-came-counts"
        ),
        pytest.param({"output__token_count": 0, "requests__running": 0, "queue__depth": 0}, {}, id="no-load"),
        pytest.param({"output__token_count": 0}, {}, id="requests-are-not-counted"),
    ],
)
def test_nothing_comes_out_of_a_server_that_has_requests(values: dict[str, float], expected: dict[str, object]) -> None:
    assert stalls(**values) == pytest.approx(expected)


def test_without_times_no_duration_is_claimed() -> None:
    found = stalls(Window(None, None), output__token_count=0, requests__running=8, arrival__count=12)
    assert found == {"requests": 12, "arrivals": 12}


def test_output_of_long_before_the_end_clears_nothing() -> None:
    """The statistics of a log may stop while its lines go on."""
    readings = (
        Reading("output.token_rate", "server/log", 48.0, Origin("log"), Window(100.0, 110.0)),
        Reading("requests.running", "server/log", 5.0, Origin("log"), Window(100.0, 110.0)),
        Reading("arrival.rate", "server/log", 0.1, Origin("log"), Window(100.0, 700.0)),
    )
    assert standstill(Evidence(readings=readings)).readings == ()


@pytest.mark.parametrize(
    ("values", "bound"),
    [
        pytest.param({"queue__depth": 9}, 15.0, id="half-have-waited-for-half-of-the-time"),
        pytest.param({"arrival__count": 12}, 15.0, id="what-came-counts"),
        pytest.param({"queue__depth": 2}, None, id="two-requests-say-little"),
        pytest.param({"queue__depth": 9, "latency__p99": 0.2}, None, id="a-measured-latency-stays"),
    ],
)
def test_requests_without_an_answer_bound_the_latency(values: dict[str, float], bound: float | None) -> None:
    readings = (*values.items(), ("completion__count", 0.0))
    given = tuple(
        Reading(name.replace("__", "."), "model/a", value, Origin("page"), WINDOW) for name, value in readings
    )
    found = [one for one in standstill(Evidence(readings=given)).readings if one.signal == "latency.p99"]
    assert [(one.value, one.bound) for one in found] == ([] if bound is None else [(bound, AT_LEAST)])


@pytest.mark.parametrize(
    ("engine", "ended", "expected"),
    [
        pytest.param({"output__token_count": 0, "completion__count": 0}, 23, 23, id="the-engine-is-frozen"),
        pytest.param({"output__token_count": 0, "completion__count": 0}, 2, None, id="two-requests-say-little"),
        pytest.param({"output__token_count": 0, "completion__count": 23}, 23, 0, id="embeddings-have-no-tokens"),
        pytest.param({"output__token_count": 0, "input__token_count": 900}, 23, 0, id="prompts-are-computed"),
        pytest.param({}, 23, None, id="an-engine-that-counts-nothing"),
    ],
)
def test_what_http_ended_came_to_an_engine_that_gave_nothing(
    engine: dict[str, float], ended: float, expected: float | None
) -> None:
    readings = [Reading("http.answer_count", "server/h:1", ended, Origin("page"), WINDOW)]
    readings += [
        Reading(name.replace("__", "."), "model/a@h:1", value, Origin("page"), WINDOW) for name, value in engine.items()
    ]
    found = standstill(Evidence(readings=tuple(readings))).readings
    assert {one.value for one in found if one.signal == "stall.requests"} == (set() if expected is None else {expected})


def test_another_model_of_the_server_that_answers_is_no_standstill() -> None:
    readings = (
        Reading("http.answer_count", "server/h:1", 23.0, Origin("page"), WINDOW),
        Reading("completion.count", "model/a@h:1", 0.0, Origin("page"), WINDOW),
        Reading("completion.count", "model/b@h:1", 23.0, Origin("page"), WINDOW),
    )
    found = standstill(Evidence(readings=readings)).readings
    assert not any(one.value for one in found if one.signal == "stall.requests")


@pytest.mark.parametrize(("answering", "hidden"), [(0.0, {"server/b"}), (1.0, set())])
def test_of_a_server_that_does_not_answer_nothing_is_known(answering: float, hidden: set[str]) -> None:
    readings = (
        Reading("completion.count", "server/a", 23.0, Origin("page"), WINDOW),
        Reading("server.answering", "server/b", answering, Origin("page"), WINDOW),
    )
    assert {gap.subject for gap in standstill(Evidence(readings=readings)).gaps} == hidden
