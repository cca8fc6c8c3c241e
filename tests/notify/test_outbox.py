"""What is due: each thing once, in its order, again after a pause, and never what is no news any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from latdoctor.incident import events
from latdoctor.incident.state import Incident, incidents_in
from latdoctor.journal.entry import Moment, seconds_between
from latdoctor.notify.messages import SopNotices, StageNotice, notices
from latdoctor.notify.outbox import (
    FORGOTTEN,
    FRESH,
    MOST,
    due_for,
    due_for_all,
    due_messages,
    without_past,
)
from latdoctor.notify.receiver_config import Message, NoticeKind, Receiver
from tests.notify import incident_cases as stories
from tests.notify.incident_cases import RECEIVERS, at

ON_CALL, CHANNEL, ARCHIVE = RECEIVERS
ID = "inc-20261122-0251-4f2a"


class Story:
    """A story that goes on with what is journaled of its telling."""

    def __init__(self, name: str = "promo-rush", upto: int | None = 2) -> None:
        self.told = stories.story(name)[:upto]
        self.clock = float(self.told[-1]["at"]) + 1

    @property
    def incident(self) -> Incident:
        (found,) = incidents_in(stories.entries(self.told))
        return found

    @property
    def now(self) -> Moment:
        return at(self.clock)

    def due(self, *receivers: Receiver, again: bool = False) -> list[Message]:
        return list(due_messages(self.incident, receivers or (CHANNEL,), self.now, again=again))

    def wait(self, receiver: Receiver = CHANNEL) -> float | None:
        return due_for(receiver, self.incident, notices(self.incident), self.now).wait

    def add(self, kind: str, body: dict[str, Any]) -> None:
        self.told.append({"at": self.clock, "run": ID, "kind": kind, "body": body})

    def begin(self, message: Message) -> None:
        self.add(events.NOTIFYING, {"to": message.to, "what": message.what, "key": message.key})

    def end(self, message: Message, *, sent: bool = True, again: float | None = None, unsure: bool = False) -> None:
        told = {"to": message.to, "what": message.what, "key": message.key, "sent": sent, "why": "" if sent else "no"}
        self.add(events.NOTIFIED, {**told, "unsure": unsure, "again_after": again})

    def send(self, message: Message, **how: Any) -> None:
        self.begin(message)
        self.end(message, **how)


def whats(messages: Sequence[Message]) -> list[str]:
    return [message.what for message in messages]


def test_what_was_sent_is_not_due_any_more() -> None:
    story = Story(upto=5)
    assert whats(story.due()) == [
        NoticeKind.ALERT,
        NoticeKind.CONFIRMED,
        NoticeKind.DIAGNOSIS,
        NoticeKind.PLAN,
    ]
    for message in story.due():
        story.send(message)
    assert story.due() == []
    assert story.wait() is None


def test_each_receiver_has_its_own_account() -> None:
    story = Story()
    story.send(story.due(ARCHIVE)[0])
    assert [message.to for message in story.due(*RECEIVERS)] == ["on-call", "channel"]


def test_what_failed_waits_and_nothing_overtakes_it() -> None:
    story = Story(upto=5)
    story.send(story.due()[0], sent=False, again=30.0)
    assert (story.due(), story.wait()) == ([], 30.0)
    story.clock += 29
    assert (story.due(), story.wait()) == ([], 1.0)
    story.clock += 1
    assert whats(story.due()) == [
        NoticeKind.ALERT,
        NoticeKind.CONFIRMED,
        NoticeKind.DIAGNOSIS,
        NoticeKind.PLAN,
    ]
    assert [message.tries for message in story.due()] == [1, 0, 0, 0]


def test_messages_behind_a_waiting_one_are_counted() -> None:
    story = Story(upto=5)
    story.send(story.due()[0])
    story.send(story.due()[0], sent=False, again=30.0)
    found = due_for(CHANNEL, story.incident, notices(story.incident), story.now)
    assert (found.messages, found.wait, found.waiting) == ([], 30.0, 3)
    whole = due_for_all(CHANNEL, [story.incident, Story("by-hand", 1).incident], at(10))
    assert (len(whole.messages), whole.waiting) == (1, 3)


def test_what_the_receiver_will_not_have_is_left_and_the_rest_goes_on() -> None:
    story = Story(upto=4)
    story.send(story.due()[0], sent=False)
    assert whats(story.due()) == [NoticeKind.CONFIRMED, NoticeKind.DIAGNOSIS]
    assert whats(story.due(again=True)) == [NoticeKind.ALERT, NoticeKind.CONFIRMED, NoticeKind.DIAGNOSIS]


@pytest.mark.parametrize(("receiver", "tries"), [(CHANNEL, 2), (ON_CALL, MOST), (ARCHIVE, MOST)], ids=str)
def test_killed_on_the_way_it_is_sent_again_only_so_often(receiver: Receiver, tries: int) -> None:
    """Of PagerDuty and webhooks, which know a message again, as often as after any failure."""
    story = Story()
    for _ in range(tries):
        (message,) = story.due(receiver)
        story.begin(message)
    assert story.due(receiver) == []


def test_what_may_have_arrived_is_sent_to_a_channel_once_more_and_no_more() -> None:
    story = Story()
    story.send(story.due()[0], sent=False, again=1.0, unsure=True)
    story.clock += 1
    story.send(story.due()[0], sent=False, again=1.0, unsure=True)
    story.clock += 1000
    assert (story.due(), story.wait()) == ([], None)


def test_what_surely_did_not_arrive_is_tried_on() -> None:
    story = Story()
    for _ in range(MOST):
        story.send(story.due()[0], sent=False, again=1.0)
        story.clock += 1
    assert story.due() == []


def test_what_was_begun_and_then_sent_is_sent() -> None:
    story = Story()
    message = story.due()[0]
    story.begin(message)
    story.send(message)
    assert story.due() == []
    assert story.due(again=True) == []


def test_only_the_current_alert_state_is_sent() -> None:
    story = Story()
    first = story.due()[0]
    for number in range(1000):
        alert = {**stories.story("promo-rush")[1]["body"]["alerts"][0], "fingerprint": f"{number:016x}"}
        story.add(events.ALERTED, {"key": "k", "receiver": "r", "alerts": [alert]})
    (last,) = story.due()
    assert last.key != first.key
    assert "1001 firing" in last.body.decode()
    story.send(last)
    assert story.due() == []


def test_what_is_an_hour_old_is_no_news() -> None:
    story = Story()
    story.clock += FRESH - 2
    assert len(story.due()) == 1
    story.clock += 3
    assert story.due(*RECEIVERS) == []
    assert story.due(*RECEIVERS, again=True) == []


def test_end_is_always_sent_to_pagerduty() -> None:
    story = Story("promo-rush", 2)
    story.send(story.due(ON_CALL)[0])
    story.told += stories.story("promo-rush")[-1:]
    story.told[-1]["at"] = story.clock
    story.clock += FRESH * 5
    assert whats(story.due(*RECEIVERS)) == [NoticeKind.CLOSED]
    never = Story("promo-rush", None)
    never.clock += FRESH * 5
    assert never.due(*RECEIVERS) == []
    story.clock += FORGOTTEN
    assert story.due(*RECEIVERS) == []


def test_closed_incident_does_not_page() -> None:
    story = Story("false-alarm", None)
    assert [message.message.partition(":")[0] for message in story.due(ON_CALL)] == ["resolve"]


def test_on_selects_notice_kinds() -> None:
    story = Story(upto=5)
    assert whats(story.due(replace(CHANNEL, on=(NoticeKind.PLAN, NoticeKind.DIAGNOSIS)))) == [
        NoticeKind.DIAGNOSIS,
        NoticeKind.PLAN,
    ]
    assert story.due(replace(CHANNEL, on=())) == []


def stage(kind: str, since: float = 10.0, notify: tuple[str, ...] = ()) -> StageNotice:
    return StageNotice("component.located", "Component located", kind, at(900).at, since, "due after 15 min", notify)


def test_stage_notice_goes_to_sop_receivers_and_subscribers() -> None:
    story = Story()
    quiet = (replace(CHANNEL, on=()), replace(ON_CALL, on=()), replace(ARCHIVE, on=(NoticeKind.LATE,)))
    news = SopNotices((stage(NoticeKind.LATE, notify=("channel",)), stage(NoticeKind.MET)))
    told = due_messages(story.incident, quiet, story.now, news)
    assert [(message.to, message.what, message.key) for message in told] == [
        ("channel", NoticeKind.LATE, f"{ID}/late/component-located"),
        ("archive", NoticeKind.LATE, f"{ID}/late/component-located"),
    ]


def test_late_stage_is_sent_once_while_fresh() -> None:
    story = Story()
    only = replace(CHANNEL, on=(NoticeKind.LATE,))
    late = SopNotices((stage(NoticeKind.LATE),))
    (message,) = due_messages(story.incident, [only], story.now, late)
    story.send(message)
    assert due_messages(story.incident, [only], story.now, late) == ()
    assert (
        due_messages(Story().incident, [only], story.now, SopNotices((stage(NoticeKind.LATE, since=FRESH + 1),))) == ()
    )


def test_whom_the_procedure_names_hears_of_start_and_end() -> None:
    story = Story("promo-rush", None)
    told = due_messages(story.incident, [replace(CHANNEL, on=())], story.now, SopNotices(notify=("channel",)))
    assert whats(told) == [NoticeKind.ALERT, NoticeKind.CLOSED]


def closed(story: Story) -> None:
    story.add(events.CLOSED, {"outcome": "resolved", "says": "", "by": "me"})


def test_a_new_receiver_is_sent_nothing_of_what_is_over() -> None:
    over, going_on = Story(), Story("by-hand", 1)
    closed(over)
    assert without_past(CHANNEL, [over.incident, going_on.incident]) == (going_on.incident,)


def test_a_known_receiver_is_sent_the_end_of_what_it_heard_of() -> None:
    story = Story()
    story.send(story.due()[0])
    closed(story)
    assert without_past(CHANNEL, [story.incident]) == (story.incident,)
    assert without_past(ARCHIVE, [story.incident]) == (), "what one receiver was sent says nothing of another"


def test_outbox_covers_all_incidents() -> None:
    waiting, other = Story(), Story("by-hand", 1)
    waiting.send(waiting.due()[0], sent=False, again=60.0)
    found = due_for_all(CHANNEL, [waiting.incident, other.incident], at(10))
    assert (whats(found.messages), found.wait) == ([NoticeKind.ALERT], pytest.approx(51.1))


@pytest.mark.parametrize(
    ("boot", "wall", "monotonic", "seconds"),
    [
        (stories.BOOT, 5.0, 90.0, 90.0),  # the wall clock was set back
        ("boot-2", 5.0, 90.0, 5.0),
        ("", 5.0, 90.0, 5.0),
        ("boot-2", -50.0, 0.0, 0.0),
        (stories.BOOT, 5.0, -1.0, 0.0),
    ],
)
def test_time_is_counted_by_the_clock_that_is_never_set(
    boot: str, wall: float, monotonic: float, seconds: float
) -> None:
    (entry,) = stories.entries(stories.story("by-hand")[:1])
    now = Moment(at(wall).at, entry.monotonic + monotonic, boot)
    assert seconds_between(entry, now) == pytest.approx(seconds)
