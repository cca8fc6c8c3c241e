"""Sends all due messages to one receiver, with each attempt journaled before and after.

`notification.begun` is on disk before anything is sent, `notification.sent` after the answer. An attempt that was
killed in between counts, and a message whose attempt cannot be journaled is not sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from latdoctor.evidence.redaction.documents import without_secrets_in
from latdoctor.http.safe_address import ResolveHost, resolve_host
from latdoctor.incident import events
from latdoctor.journal.entry import Moment, unix_seconds
from latdoctor.journal.entry import now as moment_now
from latdoctor.journal.locks import lock
from latdoctor.journal.state_dir import LOCKS
from latdoctor.journal.store import Journal
from latdoctor.notify.outbox import DueMessages
from latdoctor.notify.receiver_config import Message, Receiver
from latdoctor.notify.transport import AttemptResult, Keys, attempt


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """Result of one attempt."""

    message: Message
    outcome: AttemptResult


@dataclass(frozen=True, slots=True)
class DeliveryContext:
    """Dependencies of delivery, replaceable in tests. `on_result` is called with each result."""

    journal: Journal
    state: Path
    on_result: Callable[[DeliveryResult], None] = lambda _: None
    now: Callable[[], Moment] = moment_now
    sleep: Callable[[float], None] = time.sleep
    resolve: ResolveHost = resolve_host


@dataclass(slots=True)
class DeliverySummary:
    """`wait`: seconds until something may be tried again that could not be sent; None: nothing waits.

    `waiting`: how many messages that is.
    """

    results: list[DeliveryResult] = field(default_factory=list)
    wait: float | None = None
    waiting: int = 0

    @property
    def sent(self) -> int:
        return sum(one.outcome.sent for one in self.results)


def deliver(
    receiver: Receiver, keys: Keys, read_due: Callable[[], DueMessages], office: DeliveryContext, seconds: float
) -> DeliverySummary:
    """Send what `read_due` returns until it is empty, for at most `seconds` plus the attempt under way.

    One process at a time per receiver. Raises LockHeldError for another one, JournalError, UsageError.
    """
    done = DeliverySummary()
    with lock(office.state / LOCKS, f"notifying {receiver.name}"):
        until = office.now().monotonic + seconds
        while True:
            found = read_due()
            done.wait, done.waiting = found.wait, found.waiting + len(found.messages)
            left = until - office.now().monotonic
            if found.messages and left > 0:
                done.results += _batch(found.messages, receiver, keys, office, until)
            elif found.wait is not None and found.wait < left:
                office.sleep(found.wait)
            else:
                done.wait = 0.0 if found.messages else found.wait
                break
    return done


def _batch(
    messages: list[Message], receiver: Receiver, keys: Keys, office: DeliveryContext, until: float
) -> list[DeliveryResult]:
    """Up to the first that has to be tried again."""
    results: list[DeliveryResult] = []
    for message in messages:
        if office.now().monotonic >= until:
            break
        results.append(DeliveryResult(message, send_journaled(message, receiver, keys, office)))
        office.on_result(results[-1])
        if results[-1].outcome.again_after is not None:
            break
    return results


def send_journaled(message: Message, receiver: Receiver, keys: Keys, office: DeliveryContext) -> AttemptResult:
    """One try, journaled before and after. Raises JournalError, UsageError."""
    message_id = (message.to, message.what, message.key)
    office.journal.append(message.incident, events.NOTIFYING, events.NotificationStarted(*message_id))
    outcome = attempt(message, receiver, keys, unix_seconds(office.now().at), office.resolve)
    noted = events.NotificationSent(*message_id, outcome.sent, outcome.why, outcome.unsure, outcome.again_after)
    office.journal.append(message.incident, events.NOTIFIED, without_secrets_in(noted))
    return outcome
