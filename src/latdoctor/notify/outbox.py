"""Which messages have not been sent yet, from the journal alone."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from latdoctor.incident import events
from latdoctor.incident.events import AlertStatus
from latdoctor.incident.sop.clock import StageState, StageStatus, stage_states
from latdoctor.incident.sop.model import Sop
from latdoctor.incident.state import Incident, decode_body
from latdoctor.journal.entry import JournalEntry, Moment, seconds_between
from latdoctor.notify import pagerduty, slack, webhook
from latdoctor.notify.messages import NO_NOTICES, Notice, SopNotices, StageNotice, notices
from latdoctor.notify.receiver_config import Message, NoticeKind, Receiver, ReceiverKind

FRESH = 3600.0  # seconds: older notices are not sent
FORGOTTEN = 7 * 86_400.0  # seconds without an entry, after which the end is not sent either
MOST = 20  # tries of one message: with pauses up to 5 min they end after an hour, as FRESH does
# Limit of attempts that may have been delivered, for a receiver that cannot deduplicate: one retry, because a duplicate
# is better than a lost message.
UNSURE = 2

MAKERS: Final[Mapping[str, Callable[[Incident, Notice, Receiver], Message | None]]] = {
    ReceiverKind.PAGERDUTY: pagerduty.message,
    ReceiverKind.SLACK: slack.message,
    ReceiverKind.WEBHOOK: webhook.message,
}


@dataclass(slots=True)
class DeliveryHistory:
    """Attempts to send one message."""

    started: int = 0
    unsure: int = 0  # of which it is not known whether it arrived
    sent: bool = False
    ended: bool = False  # the receiver will not have it
    wait: float = 0.0  # seconds from `last` on until it may be tried again
    last: JournalEntry | None = None
    under_way: bool = False  # or killed on the way

    def add(self, entry: JournalEntry) -> None:
        if entry.kind == events.NOTIFYING:
            self.started += 1
            self.unsure += self.under_way  # the one before it was killed
            self.under_way, self.wait = True, 0.0
        else:
            outcome = decode_body(entry, events.NotificationSent)
            self.under_way = False
            self.unsure += outcome.unsure
            self.sent = self.sent or outcome.sent
            self.ended = not outcome.sent and outcome.again_after is None
            self.wait = outcome.again_after or 0.0
        self.last = entry

    def over(self, kind: str, *, again: bool) -> bool:
        """Whether no further attempt is made. `again`: retry what was given up."""
        if self.sent or again:
            return self.sent
        unsure = self.unsure + self.under_way
        return self.ended or self.started >= MOST or (kind == ReceiverKind.SLACK and unsure >= UNSURE)

    def left(self, now: Moment) -> float:
        """Seconds until it may be tried again."""
        return max(0.0, self.wait - seconds_between(self.last, now)) if self.last else 0.0


@dataclass(slots=True)
class DueMessages:
    """Messages due for one receiver, in order, and seconds until the next retry, if any.

    `waiting`: messages delayed until then, because they or an earlier one were just tried.
    """

    messages: list[Message] = field(default_factory=list)
    wait: float | None = None
    waiting: int = 0


def due_messages(
    incident: Incident,
    receivers: Iterable[Receiver],
    now: Moment,
    sop_notices: SopNotices = NO_NOTICES,
    *,
    again: bool = False,
) -> tuple[Message, ...]:
    """Messages to send now, for each receiver in order. Raises msgspec.ValidationError."""
    pending = notices(incident, sop_notices)
    return tuple(one for to in receivers for one in due_for(to, incident, pending, now, again=again).messages)


def due_for(
    receiver: Receiver, incident: Incident, pending: Sequence[Notice], now: Moment, *, again: bool = False
) -> DueMessages:
    """Messages for one receiver. A waiting message delays the later ones, so that the order is kept."""
    found = DueMessages()
    if not incident.entries or seconds_between(incident.entries[-1], now) > FORGOTTEN:
        return found
    tried = _tried(incident, receiver.name)
    for notice in _subscribed(pending, receiver):
        message = MAKERS[receiver.kind](incident, notice, receiver)
        before = tried.get(message.key, DeliveryHistory()) if message else DeliveryHistory()
        if message is None or before.over(receiver.kind, again=again) or not _is_current(notice, receiver, tried, now):
            continue
        if found.wait is None and not again:
            found.wait = before.left(now) or None
        if found.wait is None:
            found.messages.append(replace(message, tries=before.started))
        else:
            found.waiting += 1
    return found


def due_for_all(
    receiver: Receiver,
    found: Iterable[Incident],
    now: Moment,
    sop_notices: Callable[[Incident], SopNotices] = lambda _: NO_NOTICES,
    *,
    again: bool = False,
) -> DueMessages:
    """Messages for one receiver of all incidents, oldest first. Raises msgspec.ValidationError."""
    each = [due_for(receiver, one, notices(one, sop_notices(one)), now, again=again) for one in found]
    waits = [one.wait for one in each if one.wait is not None]
    messages = [message for one in each for message in one.messages]
    return DueMessages(messages, min(waits, default=None), sum(one.waiting for one in each))


def without_past(receiver: Receiver, found: Sequence[Incident]) -> tuple[Incident, ...]:
    """`found` without the incidents that were closed before anything was first sent to `receiver`.

    A receiver that is new is sent neither the course nor the end of what it never heard of.
    """
    attempts = [entry.seq for one in found for entry in _attempts(one, receiver.name)]
    first = min(attempts, default=None)

    def over_before(one: Incident) -> bool:
        closings = one.of(events.CLOSED)
        return not one.open and bool(closings) and (first is None or closings[-1].seq < first)

    return tuple(one for one in found if not over_before(one))


def _attempts(incident: Incident, name: str) -> Iterator[JournalEntry]:
    for entry in incident.of(events.NOTIFYING):
        if decode_body(entry, events.NotificationStarted).to == name:
            yield entry


def _subscribed(pending: Sequence[Notice], receiver: Receiver) -> list[Notice]:
    """Notices that the receiver subscribes to; of the alert states only the last."""
    selected = [one for one in pending if one.what in receiver.on or receiver.name in one.also]
    alerts = [one for one in selected if one.what == NoticeKind.ALERT]
    return [one for one in selected if one.what != NoticeKind.ALERT or one is alerts[-1]]


def _is_current(notice: Notice, receiver: Receiver, tried: Mapping[str, DeliveryHistory], now: Moment) -> bool:
    """Whether the notice is recent. PagerDuty always gets the end of what it was notified of: else it stays open."""
    age = seconds_between(notice.entry, now) if notice.entry else notice.since
    ends = notice.state == AlertStatus.RESOLVED and receiver.kind == ReceiverKind.PAGERDUTY and bool(tried)
    return age <= FRESH or ends


def _tried(incident: Incident, name: str) -> dict[str, DeliveryHistory]:
    """By the key of the message."""
    found: dict[str, DeliveryHistory] = {}
    for entry in incident.entries:
        if entry.kind not in (events.NOTIFYING, events.NOTIFIED):
            continue
        pending = decode_body(entry, events.NotificationStarted)  # the common fields of both kinds
        if pending.to == name:
            found.setdefault(pending.key, DeliveryHistory()).add(entry)
    return found


def sop_notices(sop: Sop | None, incident: Incident, now: Moment) -> SopNotices:
    """Notices of the stages of `sop` at `now`. Raises msgspec.ValidationError."""
    if sop is None:
        return NO_NOTICES
    return SopNotices(tuple(_stages(stage_states(sop, incident, now), incident, now)), sop.notify)


def _stages(states: tuple[StageState, ...], incident: Incident, now: Moment) -> Iterator[StageNotice]:
    entries = {entry.digest: entry for entry in incident.entries}
    for state in states:
        if state.met_at is not None:
            entry = entries.get(state.by)
            since = seconds_between(entry, now) if entry else 0.0
            after = "" if state.seconds is None else f" after {minutes(state.seconds)}"
            late = f", late by {minutes(-state.margin)}" if state.margin is not None and state.margin < 0 else ""
            message = f"met{after}{late}{f' ({state.how})' if state.how else ''}"
            yield StageNotice(state.id, state.title, NoticeKind.MET, state.met_at, since, message, state.notify)
        elif (
            incident.open
            and state.margin is not None
            and state.margin < 0
            and state.status in (StageStatus.LATE, StageStatus.UNKNOWN)
        ):
            # Overdue and not known to be met counts as late.
            unmet = "not met" if state.status == StageStatus.LATE else "not known to be met"
            why = f" ({state.why})" if state.why else ""
            message = f"due after {minutes(state.due)}, and {unmet}{why}"
            at = _before(now, -state.margin)
            yield StageNotice(state.id, state.title, NoticeKind.LATE, at, -state.margin, message, state.notify)


def _before(now: Moment, seconds: float) -> str:
    at = datetime.datetime.fromisoformat(now.at) - datetime.timedelta(seconds=seconds)
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def minutes(seconds: float) -> str:
    """`40 s`, `3 min`, `1 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, left = divmod(whole // 60, 60)
    if not hours:
        return f"{left} min"
    return f"{hours} h {left} min" if left else f"{hours} h"
