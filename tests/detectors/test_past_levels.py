"""What was before a change that lasts is known; what recovered or wanders has no such past."""

from __future__ import annotations

import pytest

from latdoctor.detectors.past_levels import past_levels
from latdoctor.evidence.model import Evidence, Origin, Reading, Series


def before(signal: str, values: tuple[float, ...]) -> dict[str, float]:
    """The derived readings, with the series and its last value given."""
    origin = Origin("log")
    found = past_levels(
        Evidence(
            readings=(Reading(signal, "model/a", values[-1], origin),),
            series=(Series(signal, "model/a", tuple(map(float, range(len(values)))), values, origin),),
        )
    )
    return {one.signal: float(one.value) for one in found.readings}


def test_the_level_before_a_change_that_lasts() -> None:
    assert before("prefix_cache.hit_ratio", (0.7, 0.72, 0.69, 0.71, 0.1, 0.08, 0.09, 0.1)) == {
        "prefix_cache.hit_before": pytest.approx(0.705)
    }
    assert before("ttft.mean", (*[0.4] * 30, *[2.0] * 20)) == {"ttft.before": pytest.approx(0.4)}


@pytest.mark.parametrize(
    "values",
    [
        pytest.param((0.7, 0.72, 0.69, 0.71, 0.7, 0.71, 0.7, 0.72), id="as-ever"),
        pytest.param((0.7, 0.7, 0.1, 0.1, 0.1, 0.7, 0.7, 0.7), id="recovered"),
        pytest.param((0.7, 0.1, 0.7, 0.1, 0.7, 0.1, 0.7, 0.1), id="up-and-down"),
        pytest.param((0.7, 0.1, 0.1), id="too-few"),
    ],
)
def test_no_past_where_nothing_changed_for_good(values: tuple[float, ...]) -> None:
    assert before("prefix_cache.hit_ratio", values) == {}


@pytest.mark.parametrize(("requests", "expected"), [(40, [30.0]), (3, [])])
def test_the_length_of_answers_by_counts_needs_requests(requests: float, expected: list[float]) -> None:
    counts = {"output.token_count": 1200.0, "completion.count": requests}
    readings = tuple(Reading(signal, "model/a", value, Origin("page")) for signal, value in counts.items())
    assert [one.value for one in past_levels(Evidence(readings=readings)).readings] == expected
