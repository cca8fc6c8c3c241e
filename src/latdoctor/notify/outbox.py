"""Which messages have not been sent yet, from the journal alone."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from latdoctor.incident import events
from latdoctor.incident.sop.clock import LATE, UNKNOWN_STAGE, StageState, stage_states
from latdoctor.incident.sop.model import Sop
from latdoctor.incident.state import Incident, decode_body
from latdoctor.journal.entry import JournalEntry, Moment, unix_seconds
from latdoctor.notify import pagerduty, slack, webhook
from latdoctor.notify import receiver as what
from latdoctor.notify.messages import NO_NOTICES, Notice, SopNotices, StageNotice, notices
from latdoctor.notify.receiver import PAGERDUTY, SLACK, WEBHOOK, Message, Receiver

FRESH = 3600.0  # seconds: what is older wakes nobody any more
FORGOTTEN = 7 * 86_400.0  # seconds without an entry: then nobody is told of its end either
MOST = 20  # tries of one message: with pauses up to 5 min they end after an hour, as FRESH does
# Of a receiver that does not know a message again, the tries that may each have arrived. A second one is made: better
# told twice than never.
UNSURE = 2

MAKERS: Final[Mapping[str, Callable[[Incident, Notice, Receiver], Message | None]]] = {
    PAGERDUTY: pagerduty.message,
    SLACK: slack.message,
    WEBHOOK: webhook.message,
}


@dataclass(slots=True)
class DeliveryHistory:
    """What was tried with one message."""

    begun: int = 0
    unsure: int = 0  # of which it is not known whether it arrived
    sent: bool = False
    ended: bool = False  # the receiver will not have it
    wait: float = 0.0  # seconds from `last` on until it may be tried again
    last: JournalEntry | None = None
    under_way: bool = False  # or killed on the way

    def add(self, entry: JournalEntry) -> None:
        if entry.kind == events.NOTIFYING:
            self.begun += 1
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
        """Whether it is not tried any more. `again`: what was given up is tried all the same."""
        if self.sent or again:
            return self.sent
        unsure = self.unsure + self.under_way
        return self.ended or self.begun >= MOST or (kind == SLACK and unsure >= UNSURE)

    def left(self, now: Moment) -> float:
        """Seconds until it may be tried again."""
        return max(0.0, self.wait - seconds_since(self.last, now)) if self.last else 0.0


@dataclass(slots=True)
class DueMessages:
    """What one receiver has to be told now, in order; and after how many seconds there is more to try, if there is.

    `waiting`: messages that cannot be sent before then, because they were tried just now or stand behind one that was.
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
    """What has to be sent now, for each receiver in order. Raises msgspec.ValidationError."""
    told = notices(incident, sop_notices)
    return tuple(one for to in receivers for one in due_for(to, incident, told, now, again=again).messages)


def due_for(
    receiver: Receiver, incident: Incident, told: Sequence[Notice], now: Moment, *, again: bool = False
) -> DueMessages:
    """The same for one. A message that has to wait holds up those behind it, so that none overtakes another."""
    found = DueMessages()
    if not incident.entries or seconds_since(incident.entries[-1], now) > FORGOTTEN:
        return found
    tried = _tried(incident, receiver.name)
    for telling in _wanted(told, receiver):
        message = MAKERS[receiver.kind](incident, telling, receiver)
        before = tried.get(message.key, DeliveryHistory()) if message else DeliveryHistory()
        if message is None or before.over(receiver.kind, again=again) or not _counts(telling, receiver, tried, now):
            continue
        if found.wait is None and not again:
            found.wait = before.left(now) or None
        if found.wait is None:
            found.messages.append(replace(message, tries=before.begun))
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
    """What one receiver has to be told of all incidents, the oldest first. Raises msgspec.ValidationError."""
    each = [due_for(receiver, one, notices(one, sop_notices(one)), now, again=again) for one in found]
    waits = [one.wait for one in each if one.wait is not None]
    messages = [message for one in each for message in one.messages]
    return DueMessages(messages, min(waits, default=None), sum(one.waiting for one in each))


def seconds_since(entry: JournalEntry, now: Moment) -> float:
    """By the monotonic clock within one boot, else by the wall clock; never negative."""
    if entry.boot and entry.boot == now.boot:
        return max(0.0, now.monotonic - entry.monotonic)
    return max(0.0, unix_seconds(now.at) - unix_seconds(entry.at))


def _wanted(told: Sequence[Notice], receiver: Receiver) -> list[Notice]:
    """What this receiver asks for; of how the alerts stand only the last, however often that has changed."""
    wanted = [one for one in told if one.what in receiver.on or receiver.name in one.also]
    alerts = [one for one in wanted if one.what == what.ALERT]
    return [one for one in wanted if one.what != what.ALERT or one is alerts[-1]]


def _counts(telling: Notice, receiver: Receiver, tried: Mapping[str, DeliveryHistory], now: Moment) -> bool:
    """Whether it is news still. The end of what PagerDuty was told of is: else it stands open there for ever."""
    age = seconds_since(telling.entry, now) if telling.entry else telling.since
    ends = telling.state == events.RESOLVED and receiver.kind == PAGERDUTY and bool(tried)
    return age <= FRESH or ends


def _tried(incident: Incident, name: str) -> dict[str, DeliveryHistory]:
    """By the key of the message."""
    found: dict[str, DeliveryHistory] = {}
    for entry in incident.entries:
        if entry.kind not in (events.NOTIFYING, events.NOTIFIED):
            continue
        told = decode_body(entry, events.NotificationStarted)  # what both begin with
        if told.to == name:
            found.setdefault(told.key, DeliveryHistory()).add(entry)
    return found


def sop_notices(sop: Sop | None, incident: Incident, now: Moment) -> SopNotices:
    """How the stages of `sop` stand at `now`, as far as somebody is told. Raises msgspec.ValidationError."""
    if sop is None:
        return NO_NOTICES
    return SopNotices(tuple(_stages(stage_states(sop, incident, now), incident, now)), sop.notify)


def _stages(states: tuple[StageState, ...], incident: Incident, now: Moment) -> Iterator[StageNotice]:
    entries = {entry.digest: entry for entry in incident.entries}
    for state in states:
        if state.met_at is not None:
            entry = entries.get(state.by)
            since = seconds_since(entry, now) if entry else 0.0
            after = "" if state.seconds is None else f" after {minutes(state.seconds)}"
            late = f", late by {minutes(-state.margin)}" if state.margin is not None and state.margin < 0 else ""
            says = f"met{after}{late}{f' ({state.how})' if state.how else ''}"
            yield StageNotice(state.id, state.title, what.MET, state.met_at, since, says, state.notify)
        elif incident.open and state.margin is not None and state.margin < 0 and state.status in (LATE, UNKNOWN_STAGE):
            # Overdue, and not known to be met: nobody may take that for well.
            unmet = "not met" if state.status == LATE else "not known to be met"
            why = f" ({state.why})" if state.why else ""
            says = f"due after {minutes(state.due)}, and {unmet}{why}"
            at = _before(now, -state.margin)
            yield StageNotice(state.id, state.title, what.LATE, at, -state.margin, says, state.notify)


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
