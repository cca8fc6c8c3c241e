"""How many of the requests that arrive get no answer, and what a diagnosis makes of it."""

from __future__ import annotations

import pytest

from latdoctor.detectors import derive
from latdoctor.detectors.unanswered import unanswered_requests
from latdoctor.diagnosis.codes import Level
from latdoctor.diagnosis.diagnose import Case, Stamp, diagnose
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.diagnosis.rule_loader import shipped
from latdoctor.evidence.bundle import Context
from latdoctor.evidence.model import AT_LEAST, Evidence, Origin, Reading, Window

WELL = {"latency.p99": 0.02, "error.ratio": 0.0, "queue.depth": 1.0}


def rates(seconds: float = 10.0, bound: str = "", late: float = 0.0, **values: float) -> Evidence:
    """Readings of one window; `_` stands for `.`, and the answers are of a window that ends `late` later."""
    origin = Origin("page")
    readings = []
    for name, value in values.items():
        signal = name.replace("__", ".")
        answers = signal == "completion.rate"
        window = Window(0.0, seconds + (late if answers else 0.0))
        readings.append(Reading(signal, "service", value, origin, window, bound=bound if answers else ""))
    return Evidence(readings=tuple(readings))


SHARES = {
    "a third is not answered": ({"arrival__rate": 60.0, "completion__rate": 40.0}, 1 / 3),
    "as many as arrive": ({"arrival__rate": 60.0, "completion__rate": 59.0}, 0.0),
    "few requests differ by chance": ({"arrival__rate": 2.0, "completion__rate": 1.0}, 0.0),
    "none is answered": ({"arrival__rate": 10.0, "completion__rate": 0.0}, 1.0),
    "nothing arrives": ({"arrival__rate": 0.0, "completion__rate": 0.0}, 0.0),
    "the queue drains": ({"arrival__rate": 60.0, "completion__rate": 90.0}, 0.0),
    "malformed ones are the client's": (
        {"arrival__rate": 60.0, "completion__rate": 30.0, "reject__rate": 30.0},
        0.0,
    ),
}


@pytest.mark.parametrize(("values", "share"), SHARES.values(), ids=SHARES.keys())
def test_the_share_is_what_chance_does_not_explain(values: dict[str, float], share: float) -> None:
    (found,) = unanswered_requests(rates(**values)).readings
    assert (found.signal, found.value) == ("unanswered.share", pytest.approx(share))


UNKNOWN = {
    "a bound": {"bound": AT_LEAST},
    "another time": {"late": 2.0},
    "no time": {"seconds": 0.0},
}


@pytest.mark.parametrize("how", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_rates_that_cannot_be_compared_say_nothing(how: dict[str, float]) -> None:
    assert unanswered_requests(rates(arrival__rate=60.0, completion__rate=0.0, **how)).readings == ()  # type: ignore[arg-type]


def diagnosed(**values: float) -> Diagnosis:
    evidence = derive(rates(**{name.replace(".", "__"): value for name, value in (WELL | values).items()}))
    case = Case(Context("service", slo_p99=0.5, slo_error_ratio=0.01), Window(0.0, 10.0), evidence, {})
    return diagnose(case, shipped(), Stamp("test", ""))


LEVELS = {
    "nothing is answered": ({"arrival__rate": 60.0, "completion__rate": 0.0}, Level.CRITICAL),
    "one in sixty is": ({"arrival__rate": 60.0, "completion__rate": 1.0}, Level.CRITICAL),
    "nothing, and requests used to take a second": (
        {"arrival__rate": 60.0, "completion__rate": 0.0, "latency__past_mean": 1.0},
        Level.CRITICAL,
    ),
    "requests take longer than the window": (
        {"arrival__rate": 60.0, "completion__rate": 0.0, "latency__past_mean": 9.0},
        Level.WARNING,
    ),
    "long answers are being written": (
        {"arrival__rate": 60.0, "completion__rate": 0.0, "output__token_rate": 900.0},
        Level.WARNING,
    ),
    "a third is not answered": ({"arrival__rate": 60.0, "completion__rate": 40.0}, Level.WARNING),
}


@pytest.mark.parametrize(("values", "level"), LEVELS.values(), ids=LEVELS.keys())
def test_unanswered_requests_have_a_severity(values: dict[str, float], level: Level) -> None:
    diagnosis = diagnosed(**values)
    assert diagnosis.verdict.level is level
    assert any("answered" in reason for reason in diagnosis.verdict.reasons)


@pytest.mark.parametrize("answered", [48.0, 60.0, 80.0])
def test_a_fifth_more_or_less_is_no_symptom(answered: float) -> None:
    checks = diagnosed(arrival__rate=60.0, completion__rate=answered).checks
    fired = {check.id for check in checks if check.status == "fired"}
    assert not fired & {"many-requests-unanswered", "hardly-any-request-answered"}


BOUNDS = {
    "the few that are answered are quick": ({"arrival__rate": 60.0, "completion__rate": 1.0, "latency__p99": 0.1}, 5.0),
    "the few that are answered are slow": ({"arrival__rate": 60.0, "completion__rate": 1.0, "latency__p99": 9.0}, 9.0),
    "none is answered": ({"arrival__rate": 60.0, "completion__rate": 0.0}, 5.0),
}
MEASURED = {
    "half are answered": {"completion__rate": 30.0},
    "tokens come out": {"completion__rate": 0.0, "output__token_rate": 900.0},
    "requests take longer": {"completion__rate": 0.0, "latency__past_mean": 9.0},
}


@pytest.mark.parametrize(("values", "least"), BOUNDS.values(), ids=BOUNDS.keys())
def test_p99_is_not_that_of_the_few_answered_ones(values: dict[str, float], least: float) -> None:
    once = derive(rates(**values))
    for evidence in (once, derive(once)):
        (found,) = (one for one in evidence.readings if one.signal == "latency.p99")
        assert (found.value, found.bound) == (least, AT_LEAST)


@pytest.mark.parametrize("values", MEASURED.values(), ids=MEASURED.keys())
def test_p99_stays_as_measured_elsewhere(values: dict[str, float]) -> None:
    (found,) = (
        one
        for one in derive(rates(arrival__rate=60.0, latency__p99=0.1, **values)).readings
        if one.signal == "latency.p99"
    )
    assert (found.value, found.bound) == (0.1, "")
