"""What is new of a notification is journaled, once; whatever else it repeats is not; and nothing is lost."""

from __future__ import annotations

import datetime
import json
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from latdoctor.incident import events
from latdoctor.incident.alert_intake import LAG, IncidentTemplate, Intake, IntakeResult, title_of_alerts
from latdoctor.incident.alertmanager import parse
from latdoctor.incident.open import open_incident
from latdoctor.incident.state import Incident, decode_body, incidents_in
from latdoctor.journal.entry import JournalError, Moment
from latdoctor.journal.store import Journal
from tests.incident.alert_builders import alert, alerted, notification

LATER = "2026-11-22T05:00:00Z"


def intake(folder: Path, about: IncidentTemplate | None = None) -> Intake:
    return Intake(Journal.opened(folder / "journal.sqlite"), folder, about or IncidentTemplate())


def found(intake: Intake) -> tuple[Incident, ...]:
    return incidents_in(intake.journal.entries())


def told(incident: Incident) -> list[tuple[str, str]]:
    """Every alert of every entry, in their order: fingerprint and status."""
    entries = (decode_body(entry, events.AlertsReceived) for entry in incident.of(events.ALERTED))
    return [(one.fingerprint.lstrip("0") or "0", one.status) for entry in entries for one in entry.alerts]


def test_a_notification_opens_an_incident(tmp_path: Path) -> None:
    made = intake(tmp_path, IncidentTemplate(targets=("shop",), by="me"))
    taken = made.take(alerted(alert(1), alert(2, starts="2026-11-22T02:40:00Z")))
    (incident,) = found(made)
    assert taken == IntakeResult(incident.id, opened=True, new=2, repeated=0, resolved=False, unexamined=True)
    assert incident.opened.title == "LatencyHigh"
    assert (incident.opened.source, incident.opened.targets, incident.opened.by) == ("alert", ("shop",), "me")
    assert (incident.opened.began, incident.opened.clock) == (1795315200.0, "alertmanager")
    assert told(incident) == [("1", "firing"), ("2", "firing")]


def test_repetitions_make_no_entry(tmp_path: Path) -> None:
    made = intake(tmp_path)
    first = made.take(alerted(alert(1)))
    before = made.journal.verify()
    for _ in range(3):
        assert made.take(alerted(alert(1))) == IntakeResult(first.incident, False, 0, 1, False)
    assert made.take(alerted(alert(1), alert(1))).repeated == 2
    assert made.journal.verify() == before


def test_a_new_alert_of_the_group_joins(tmp_path: Path) -> None:
    made = intake(tmp_path)
    first = made.take(alerted(alert(1)))
    second = made.take(alerted(alert(1), alert(2)))
    assert (second.incident, second.opened, second.new, second.repeated) == (first.incident, False, 1, 1)
    (incident,) = found(made)
    assert told(incident) == [("1", "firing"), ("2", "firing")]


def test_an_alert_that_is_resolved_and_one_that_fires_again(tmp_path: Path) -> None:
    made = intake(tmp_path)
    made.take(alerted(alert(1), alert(2)))
    assert not made.take(alerted(alert(1, "resolved"), alert(2))).resolved
    assert made.take(alerted(alert(1, "resolved"), alert(2, "resolved"))).resolved
    again = made.take(alerted(alert(1, starts=LATER)))
    assert (again.opened, again.new, again.resolved) == (False, 1, False)
    (incident,) = found(made)
    assert incident.open
    assert told(incident)[2:] == [("1", "resolved"), ("2", "resolved"), ("1", "firing")]


def test_the_late_end_of_an_earlier_firing_ends_nothing(tmp_path: Path) -> None:
    made = intake(tmp_path, IncidentTemplate(close_on_resolve=True))
    made.take(alerted(alert(1, starts="2026-11-22T04:00:00Z")))
    late = made.take(alerted(alert(1, "resolved")))
    assert (late.new, late.resolved, late.closed) == (0, False, False)
    (incident,) = found(made)
    assert incident.firing


EARLIER = "2026-11-22T01:00:00Z"


@pytest.mark.parametrize("starts", ["2026-11-22T02:49:10Z", EARLIER])
def test_a_firing_whose_end_is_known_fires_nothing_anew(tmp_path: Path, starts: str) -> None:
    """Of two Alertmanagers the one that lags tells it once more."""
    made = intake(tmp_path)
    first = made.take(alerted(alert(1)))
    made.take(alerted(alert(1, "resolved")))
    before = made.journal.verify()
    assert made.take(alerted(alert(1, starts=starts))) == IntakeResult(first.incident, False, 0, 1, resolved=True)
    assert made.journal.verify() == before
    assert not found(made)[0].firing
    assert made.take(alerted(alert(1, starts=LATER))).new == 1
    assert found(made)[0].firing


@pytest.mark.parametrize(("after", "heard"), [(LAG - 1, False), (LAG + 1, True)])
def test_alert_that_timed_out_and_fires_again_counts(tmp_path: Path, after: float, heard: bool) -> None:
    """It timed out, though it fired all the time, and so it began when it began."""
    passed = [0.0]

    def clock() -> Moment:
        at = datetime.datetime(2026, 11, 22, 3, 0, tzinfo=datetime.UTC) + datetime.timedelta(seconds=passed[0])
        return Moment(at.isoformat(), passed[0], "boot")

    made = Intake(Journal.opened(tmp_path / "journal.sqlite", clock), tmp_path, IncidentTemplate(close_on_resolve=True))
    made.take(alerted(alert(1)))
    assert made.take(alerted(alert(1, "resolved"))).closed
    passed[0] = after
    assert made.take(alerted(alert(1))).opened is heard


def test_firing_without_start_time_counts(tmp_path: Path) -> None:
    made = intake(tmp_path)
    made.take(alerted(alert(1)))
    made.take(alerted(alert(1, "resolved")))
    assert made.take(alerted(alert(1, starts="0001-01-01T00:00:00Z"))).new == 1


def test_a_firing_whose_end_is_known_opens_no_incident_after_the_closing(tmp_path: Path) -> None:
    made = intake(tmp_path, IncidentTemplate(close_on_resolve=True))
    first = made.take(alerted(alert(1))).incident
    assert made.take(alerted(alert(1, "resolved"))).closed
    late = made.take(alerted(alert(1)))
    assert (late.incident, late.opened, late.new) == (first, False, 0)
    assert intake(tmp_path).take(alerted(alert(1))).opened is False, "nor after a restart"
    again = made.take(alerted(alert(1, starts=LATER)))
    assert (again.opened, again.incident != first) == (True, True)


def test_alerts_close_an_incident_only_if_configured(tmp_path: Path) -> None:
    for name, close in (("stays", False), ("closes", True)):
        made = intake(tmp_path / name, IncidentTemplate(close_on_resolve=close, by="listen"))
        made.take(alerted(alert(1)))
        taken = made.take(alerted(alert(1, "resolved")))
        (incident,) = found(made)
        assert (taken.resolved, taken.closed, incident.open) == (True, close, not close)
    assert incident.closed == events.IncidentClosed("resolved", "every alert is resolved", "listen")


def test_what_was_left_out_may_fire_still(tmp_path: Path) -> None:
    made = intake(tmp_path, IncidentTemplate(close_on_resolve=True))
    made.take(alerted(alert(1), truncated=4))
    taken = made.take(alerted(alert(1, "resolved"), truncated=4))
    assert (taken.resolved, taken.closed) == (False, False)
    assert [one.open for one in found(made)] == [True]


def test_a_false_alarm_is_closed_as_one(tmp_path: Path) -> None:
    made = intake(tmp_path, IncidentTemplate(close_on_resolve=True))
    name = made.take(alerted(alert(1))).incident
    made.journal.append(name, events.CONFIRMED, events.AlertConfirmed(events.Confirmation.FALSE_ALARM, "healthy"))
    made.take(alerted(alert(1, "resolved")))
    (incident,) = found(made)
    assert incident.closed is not None
    assert incident.closed.outcome == "false-alarm"


def test_what_is_resolved_already_opens_nothing(tmp_path: Path) -> None:
    made = intake(tmp_path)
    assert made.take(alerted(alert(1, "resolved"))) == IntakeResult("", False, 0, 1, True)
    assert made.journal.verify() is None


def test_after_it_was_closed(tmp_path: Path) -> None:
    made = intake(tmp_path)
    first = made.take(alerted(alert(1))).incident
    made.journal.append(first, events.CLOSED, events.IncidentClosed("resolved"))
    same = made.take(alerted(alert(1)))
    assert (same.incident, same.opened, same.new) == (first, False, 0), "the same firing goes on: nobody is woken again"
    made.take(alerted(alert(1, "resolved"), alert(7, "resolved")))
    assert told(found(made)[0]) == [("1", "firing"), ("1", "resolved")], "its own alert is told to the end"
    again = made.take(alerted(alert(1, starts=LATER)))
    assert again.opened
    assert again.incident != first
    assert [one.open for one in found(made)] == [False, True]


def test_groups_are_apart_unless_they_are_of_one_target(tmp_path: Path) -> None:
    apart, one = (
        intake(tmp_path / "a"),
        intake(tmp_path / "b", IncidentTemplate(targets=("http://127.0.0.1:8002/metrics",))),
    )
    for made in (apart, one):
        made.take(alerted(alert(1), key="a"))
        made.take(alerted(alert(2), key="b"))
        made.take(alerted(alert(2), key="b"))
    assert [told(incident) for incident in found(apart)] == [[("1", "firing")], [("2", "firing")]]
    assert [told(incident) for incident in found(one)] == [[("1", "firing"), ("2", "firing")]]


def test_an_alert_joins_what_was_opened_by_hand_for_its_target(tmp_path: Path) -> None:
    made = intake(tmp_path, IncidentTemplate(targets=("http://127.0.0.1:8002",)))
    by_hand = open_incident(
        made.journal, tmp_path, events.IncidentOpened("slow", ("localhost:8002",), events.OpenedBy.HAND, "", "")
    )
    taken = made.take(alerted(alert(1)))
    assert (taken.incident, taken.opened, taken.new) == (by_hand.id, False, 1)


def test_a_fat_notification_takes_several_entries(tmp_path: Path) -> None:
    made = intake(tmp_path)
    wide = {f"a{n}": "x" * 2000 for n in range(60)}
    many = [{**alert(n), "annotations": wide} for n in range(20)]
    assert made.take(parse(notification(many))).new == 20
    (incident,) = found(made)
    assert len(incident.of(events.ALERTED)) > 1
    assert len(told(incident)) == 20


def crowd(made: Intake, notifications: Sequence[events.AlertsReceived], threads: int = 16) -> Counter[str]:
    """Takes all of them in by many threads at once; what became of them, counted."""
    counted: Counter[str] = Counter()
    counting = threading.Lock()
    waiting = list(notifications)

    def work() -> None:
        while True:
            with counting:
                if not waiting:
                    return
                one = waiting.pop()
            taken = made.take(one)
            with counting:
                counted.update(opened=taken.opened, new=taken.new, repeated=taken.repeated)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return counted


def test_a_thousand_alerts_at_once_are_counted_once_and_none_is_lost(tmp_path: Path) -> None:
    made = intake(tmp_path)
    once = [alerted(alert(n)) for n in range(1000)]
    counted = crowd(made, [*once, *once, *once])
    assert counted == {"opened": 1, "new": 1000, "repeated": 2000}
    (incident,) = found(made)
    assert Counter(told(incident)) == {(f"{n:x}", "firing"): 1 for n in range(1000)}


def test_concurrent_groups_open_one_incident_each(tmp_path: Path) -> None:
    made = intake(tmp_path)
    once = [alerted(alert(n), key=f"group-{n}") for n in range(40)]
    assert crowd(made, [*once, *once]) == {"opened": 40, "new": 40, "repeated": 40}
    assert sorted(told(incident)[0] for incident in found(made)) == sorted((f"{n:x}", "firing") for n in range(40))


def test_two_that_take_in_share_what_they_know(tmp_path: Path) -> None:
    one, other = intake(tmp_path), intake(tmp_path)
    first = one.take(alerted(alert(1)))
    assert other.take(alerted(alert(1))) == IntakeResult(first.incident, False, 0, 1, False)
    other.take(alerted(alert(2)))
    assert one.take(alerted(alert(2))).new == 0


def test_what_could_not_be_journaled_is_new_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = intake(tmp_path)
    made.take(alerted(alert(1)))

    def full(*_: object) -> None:
        raise JournalError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append_all", full)
        with pytest.raises(JournalError):
            made.take(alerted(alert(2)))
    assert made.take(alerted(alert(2))).new == 1
    assert told(found(made)[0]) == [("1", "firing"), ("2", "firing")]


@pytest.mark.parametrize(
    ("alerts", "title"),
    [
        ([alert(1)], "LatencyHigh: host-1 is slow"),
        ([alert(1), alert(2)], "LatencyHigh"),
        ([alert(n, name=f"A{n}") for n in range(5)], "A0, A1, A2 and 2 more"),
        ([{"status": "firing", "fingerprint": "abc"}], "abc"),
    ],
)
def test_titles(alerts: list[dict[str, object]], title: str) -> None:
    assert (
        title_of_alerts(parse(json.dumps({"version": "4", "groupKey": "k", "alerts": alerts}).encode()).alerts) == title
    )
