"""The newest version of a model against those that serve beside it, by means."""

from __future__ import annotations

import pytest

from latdoctor.detectors.version_means import RATIO, version_means
from latdoctor.evidence.model import Evidence, Origin, Reading

COMPUTE, LATENCY, COUNT = "compute.time.mean", "latency.mean", "completion.count"


def ratios(values: dict[str, dict[str, float]]) -> dict[str, float]:
    """The derived ratios by the number of the version, of values by signal and version."""
    readings = tuple(
        Reading(signal, f"model/lid:version={version}@host", value, Origin("page"))
        for signal, of in values.items()
        for version, value in of.items()
    )
    found = version_means(Evidence(readings=readings)).readings
    assert {one.signal for one in found} <= {RATIO}
    return {one.subject.partition("=")[2].partition("@")[0]: float(one.value) for one in found}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param({COMPUTE: {"1": 0.02, "2": 0.06}}, {"2": 3.0}, id="newer-is-slower"),
        pytest.param({COMPUTE: {"1": 0.06, "2": 0.02}}, {"2": 1 / 3}, id="newer-is-faster"),
        pytest.param({COMPUTE: {"9": 0.02, "10": 0.06}}, {"10": 3.0}, id="numbers-and-not-words"),
        pytest.param({COMPUTE: {"1": 0.01, "2": 0.03, "3": 0.06}}, {"3": 3.0}, id="against-the-median"),
        pytest.param({LATENCY: {"1": 0.2, "2": 0.5}}, {"2": 2.5}, id="latency-where-compute-is-unknown"),
        pytest.param({COMPUTE: {"1": 0.02, "2": 0.02}, LATENCY: {"1": 1, "2": 9}}, {"2": 1.0}, id="compute-first"),
        pytest.param({COMPUTE: {"1": 0.02}}, {}, id="alone"),
        pytest.param({COMPUTE: {"canary": 0.09, "stable": 0.02}}, {}, id="names"),
        pytest.param({COMPUTE: {"1": 0.02, "2": 0.06}, COUNT: {"1": 900, "2": 19}}, {}, id="too-few"),
        pytest.param({COMPUTE: {"1": 0.02, "2": 0.06}, COUNT: {"1": 900, "2": 20}}, {"2": 3.0}, id="enough"),
        pytest.param({COMPUTE: {"1": 0.0, "2": 0.06}}, {}, id="nothing-computed"),
    ],
)
def test_the_newest_version_is_compared(values: dict[str, dict[str, float]], expected: dict[str, float]) -> None:
    assert ratios(values) == pytest.approx(expected)
