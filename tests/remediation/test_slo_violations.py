"""SLO violations reported after a verified change."""

from __future__ import annotations

import pytest

from latdoctor.remediation.run_result import Measure, slo_violations

P99 = Measure("latency.p99", "service", 3.0, 1.08)
ERRORS = Measure("error.ratio", "service", 0.0, 0.45)
SLO = {"slo.p99": 0.5}


@pytest.mark.parametrize(
    ("measures", "slo", "expected"),
    [
        ((P99,), SLO, ["P99 1.08 s still exceeds the SLO of 500 ms"]),
        ((P99,), {"slo.p99": 2.0}, []),
        ((P99,), {}, []),
        ((), SLO, ["P99 was not measured: whether it meets the SLO is unknown"]),
        (
            (Measure("latency.p99", "service", 3.0),),
            SLO,
            ["P99 was not measured after the change: whether it meets the SLO of 500 ms is unknown"],
        ),
        ((ERRORS,), {}, ["error ratio 45 %, 0 % before the change"]),
        ((ERRORS,), {"slo.error_ratio": 0.01}, ["error ratio 45 % still exceeds the SLO of 1 %"]),
        ((Measure("error.ratio", "service", 0.5, 0.45),), {}, []),
        ((Measure("error.ratio", "service", 0.0, 0.009),), {}, []),
        (
            (P99, Measure("latency.p99", "replica/1", 3.0, 0.1)),
            SLO,
            ["P99 of service 1.08 s still exceeds the SLO of 500 ms"],
        ),
    ],
)
def test_violations_are_reported(measures: tuple[Measure, ...], slo: dict[str, float], expected: list[str]) -> None:
    assert list(slo_violations(measures, slo)) == expected
