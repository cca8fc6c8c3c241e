"""A service whose answers are fast is not healthy where many requests get none."""

from __future__ import annotations

import pytest

from latdoctor.diagnosis.codes import Level
from latdoctor.diagnosis.result import Verdict
from latdoctor.diagnosis.unanswered import verdict_by_answers
from latdoctor.evidence.model import AT_LEAST, Evidence, Origin, Reading, Window

HEALTHY = Verdict(Level.HEALTHY, "healthy", ())
CASES = {
    "a third is not answered": (60.0, 39.0, 10.0, Level.INCONCLUSIVE),
    "as many as arrive": (60.0, 59.0, 10.0, Level.HEALTHY),
    "a fifth more or less is no lack": (60.0, 48.0, 60.0, Level.HEALTHY),
    "few requests differ by chance": (2.0, 1.0, 10.0, Level.HEALTHY),
    "none is answered": (10.0, 0.0, 10.0, Level.INCONCLUSIVE),
    "nothing arrives": (0.0, 0.0, 10.0, Level.HEALTHY),
    "the queue drains": (60.0, 90.0, 10.0, Level.HEALTHY),
}


def rates(arriving: float, answered: float, seconds: float, bound: str = "") -> Evidence:
    window, origin = Window(0.0, seconds), Origin("page")
    return Evidence(
        readings=(
            Reading("arrival.rate", "service", arriving, origin, window),
            Reading("completion.rate", "service", answered, origin, window, bound=bound),
        )
    )


@pytest.mark.parametrize(("arriving", "answered", "seconds", "level"), CASES.values(), ids=CASES.keys())
def test_healthy_only_where_requests_are_answered(
    arriving: float, answered: float, seconds: float, level: Level
) -> None:
    assert verdict_by_answers(HEALTHY, rates(arriving, answered, seconds)).level is level


def test_a_rate_that_is_only_a_bound_says_nothing() -> None:
    assert verdict_by_answers(HEALTHY, rates(60.0, 39.0, 10.0, AT_LEAST)) is HEALTHY


def test_another_verdict_stays() -> None:
    critical = Verdict(Level.CRITICAL, "critical", ())
    assert verdict_by_answers(critical, rates(60.0, 0.0, 10.0)) is critical
