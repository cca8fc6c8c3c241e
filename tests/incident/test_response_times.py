"""How fast it went: each time between two moments of the journal, and unknown where one is missing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from latdoctor.incident import events
from latdoctor.incident.response_times import mean
from latdoctor.incident.timeline import timeline
from latdoctor.incident.timeline_model import ResponseTime
from latdoctor.remediation.run_result import Outcome
from tests.incident.scenarios import BEGAN, RUN, Log, carried_out, diagnosed, promo_rush, sampled


def measured(log: Log) -> dict[str, ResponseTime]:
    return {one.id: one for one in timeline(log.incident).measures}


def by_hand(began: float | None = None) -> Log:
    log = Log()
    log.add(
        0,
        events.OPENED,
        events.IncidentOpened("x", (), events.OpenedBy.HAND, "", "", began, "given by hand" if began else ""),
    )
    return log


def test_response_times_of_a_fixed_and_closed_incident() -> None:
    found = measured(promo_rush())
    assert {name: one.seconds for name, one in found.items()} == {
        "MTTD": pytest.approx(27.0),  # from what the evidence shows, 15 s before the alert's own beginning
        "MTTA": pytest.approx(17.0),  # from the opening to the alert's confirmation
        "MTTM": pytest.approx(117.2),  # from the alert's beginning to the proof of the run
        "MTTR": pytest.approx(150.0),
    }
    assert found["MTTD"].basis == "inference"
    assert all(one.definition and one.begins and one.ends and one.end_digest for one in found.values())
    assert found["MTTA"].measured == "monotonic"
    assert found["MTTR"].measured == "wall"  # its start is by another clock


def only_opened() -> Log:
    return by_hand()


def false_alarm() -> Log:
    log = by_hand()
    log.add(5, events.CLOSED, events.IncidentClosed("false-alarm"))
    return log


def taken_back() -> Log:
    log = by_hand()
    log.add(1, events.RUN_JOINED, events.RunJoined(RUN))
    carried_out(log, 1, outcome=Outcome.ROLLED_BACK)
    return log


def verified_then_taken_back() -> Log:
    log = by_hand()
    log.add(1, events.RUN_JOINED, events.RunJoined(RUN))
    carried_out(log, 1)
    log.add(40, "rollback.begun", {"reason": "asked for"}, RUN)
    log.add(41, "undo.made", {"stage": 0, "index": 0}, RUN)
    log.add(42, "run.closed", {"outcome": "rolled-back", "reason": "asked for"}, RUN)
    return log


def over_at_the_end() -> Log:
    log = by_hand()
    for at, p99 in ((10, 3.2), (20, 0.3), (30, 3.0)):
        log.add(at, events.SAMPLED, sampled(p99))
    return log


def unseen_at_the_end() -> Log:
    log = by_hand()
    for at, p99 in ((10, 3.2), (20, 0.3), (30, None)):
        log.add(at, events.SAMPLED, sampled(p99))
    return log


UNKNOWN: list[tuple[Callable[[], Log], str, str]] = [
    (only_opened, "MTTD", "the start of the trouble is unknown"),
    (only_opened, "MTTA", "the incident has not been acknowledged yet"),
    (only_opened, "MTTM", "no run is verified and in place"),
    (only_opened, "MTTR", "it is still open"),
    (false_alarm, "MTTR", "it was a false alarm"),
    (taken_back, "MTTM", "no run is verified and in place"),
    (verified_then_taken_back, "MTTM", "no run is verified and in place"),
    (over_at_the_end, "MTTM", "samples do not show"),
    (unseen_at_the_end, "MTTM", "samples do not show"),
    (lambda: by_hand(BEGAN + 500), "MTTD", "is after"),
]


@pytest.mark.parametrize(("story", "name", "why"), UNKNOWN)
def test_missing_event_makes_the_time_unknown_with_a_reason(story: Callable[[], Log], name: str, why: str) -> None:
    found = measured(story())[name]
    assert found.seconds is None
    assert why in found.why


def test_without_a_run_samples_show_when_it_no_longer_hurt() -> None:
    log = by_hand()
    for at, p99 in ((10, 3.2), (20, 3.0), (30, 0.3), (40, 0.2)):
        log.add(at, events.SAMPLED, sampled(p99))
    found = measured(log)["MTTM"]
    assert found.seconds == pytest.approx(20.0)
    assert "the SLO was met again" in found.ends


def test_a_server_that_gave_no_answers_met_the_slo_only_when_it_answered_again() -> None:
    log = by_hand()
    for at, p99 in ((10, 3.2), (20, 3.0), (100, 0.3), (110, 0.2)):  # it was down in between
        log.add(at, events.SAMPLED, sampled(p99))
    assert measured(log)["MTTM"].seconds == pytest.approx(90.0)


def test_start_by_hand_is_used_without_evidence() -> None:
    assert measured(by_hand(BEGAN - 90))["MTTD"].seconds == pytest.approx(90.0)
    log = by_hand(BEGAN - 90)
    log.add(5, events.DIAGNOSED, diagnosed())
    assert measured(log)["MTTD"].seconds == pytest.approx(15.0)


def test_a_rise_after_the_opening_is_not_how_it_began() -> None:
    log = by_hand(BEGAN - 90)
    log.add(50, events.DIAGNOSED, msgspec.structs.replace(diagnosed(), since=BEGAN + 20))
    found = measured(log)["MTTD"]
    assert (found.seconds, found.basis) == (pytest.approx(90.0), "fact")


def test_means_are_of_what_is_known() -> None:
    found = [*measured(promo_rush()).values(), *measured(only_opened()).values()]
    assert mean(found, "MTTR") == (pytest.approx(150.0), 1)
    assert mean(found[4:], "MTTR") == (None, 0)
