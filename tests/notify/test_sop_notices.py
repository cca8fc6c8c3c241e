"""What is told of the SOP's stages: as its clock has them, never better."""

from __future__ import annotations

import pytest

from latdoctor.incident import events
from latdoctor.incident.sop import loader
from latdoctor.incident.state import Incident, incidents_in
from latdoctor.notify.messages import NO_NOTICES
from latdoctor.notify.outbox import due_messages, minutes, sop_notices
from latdoctor.notify.receiver_config import NoticeKind, Receiver, ReceiverKind
from tests.notify import incident_cases as stories
from tests.notify.incident_cases import at

SOP = loader.shipped()["slow-inference"]
NAMED = Receiver("on-call", ReceiverKind.SLACK, on=())


def begun(upto: int) -> Incident:
    """The story's beginning, whose trouble began when it was opened."""
    told = stories.story("promo-rush")[:upto]
    told[0] = {**told[0], "body": {**told[0]["body"], "began": None}}
    (found,) = incidents_in(stories.entries(told))
    return found


def stages(incident: Incident, seconds: float) -> dict[str, tuple[str, str, float]]:
    return {one.id: (one.what, one.message, one.since) for one in sop_notices(SOP, incident, at(seconds)).stages}


def test_a_stage_is_late_once_its_time_is_over_and_no_moment_before() -> None:
    assert stages(begun(2), 60.0) == {}
    assert stages(begun(2), 61.0) == {"confirmed": (NoticeKind.LATE, "due after 1 min, and not met", 1.0)}
    (told,) = sop_notices(SOP, begun(2), at(61.0)).stages
    assert told.at == "2026-11-22T02:52:00Z"


def test_met_stage_has_evidence_and_time() -> None:
    found = stages(begun(4), 100.0)
    assert {name: (kind, since) for name, (kind, _, since) in found.items()} == {
        "confirmed": (NoticeKind.MET, 50.0),
        "diagnosed": (NoticeKind.MET, 30.0),
        "located": (NoticeKind.MET, 30.0),
    }
    assert "met after 50 s" in found["confirmed"][1]
    late = stages(begun(4), 1801.0)["mitigated"]
    assert late == (NoticeKind.LATE, "due after 30 min, and not met (alert.received: status firing)", 1.0)


def test_late_stage_is_marked_late() -> None:
    story = stories.story("promo-rush")[:2]
    story[0] = {**story[0], "body": {**story[0]["body"], "began": None}}
    story.append({**stories.story("promo-rush")[2], "at": 90})
    (incident,) = incidents_in(stories.entries(story))
    assert "met after 1 min, late by 30 s" in stages(incident, 95.0)["confirmed"][1]


def test_unknown_overdue_stage_counts_as_late() -> None:
    story = stories.story("promo-rush")[:3]
    story[0] = {**story[0], "body": {**story[0]["body"], "began": None}}
    story[2] = {**story[2], "body": {"status": events.Confirmation.UNKNOWN, "says": "no page answers"}}
    (incident,) = incidents_in(stories.entries(story))
    kind, message, _ = stages(incident, 70.0)["confirmed"]
    assert kind == NoticeKind.LATE
    assert "not known to be met" in message


def test_of_a_closed_incident_nothing_is_late() -> None:
    (incident,) = incidents_in(stories.entries(stories.story("false-alarm")))
    assert {kind for kind, _, _ in stages(incident, 5000.0).values()} <= {NoticeKind.MET}


def test_sop_receivers_get_each_notice_once() -> None:
    incident, now = begun(4), at(1801.0)
    told = due_messages(incident, [NAMED], now, sop_notices(SOP, incident, now))
    assert [(one.what, one.message.partition(":")[0]) for one in told] == [
        (NoticeKind.ALERT, "LatencyHigh firing"),
        (NoticeKind.MET, "Component located"),
        (NoticeKind.LATE, "Mitigated"),
    ]
    assert len({one.key for one in told}) == 3


def test_without_the_procedure_nothing_is_made_up() -> None:
    assert sop_notices(None, begun(2), at(5000.0)) == NO_NOTICES


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.2, "0 s"), (59.4, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h"), (3900, "1 h 5 min")],
)
def test_a_time_in_words(seconds: float, told: str) -> None:
    assert minutes(seconds) == told
