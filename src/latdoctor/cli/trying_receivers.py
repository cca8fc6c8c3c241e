"""What `latdoctor notify test` sends: a message that is no incident's, and is not journaled."""

from __future__ import annotations

import secrets

from latdoctor.cli.saying import say
from latdoctor.cli.screen import result_console
from latdoctor.incident import events
from latdoctor.incident.notify import pagerduty
from latdoctor.incident.notify.delivering import Result
from latdoctor.incident.notify.due import MAKERS
from latdoctor.incident.notify.receiver import PAGERDUTY, TEST, Message, Receiver
from latdoctor.incident.notify.saying import pairs
from latdoctor.incident.notify.sealing import keys
from latdoctor.incident.notify.sending import attempt
from latdoctor.incident.notify.telling import Telling
from latdoctor.incident.state import Incident
from latdoctor.journal.entry import Moment, now, unix_seconds
from latdoctor.report import notifying as shown
from latdoctor.web.address import resolved

SAYS = "a test of latdoctor: nothing is wrong"


def tested(receiver: Receiver, *, dry_run: bool, as_json: bool) -> int:
    """The exit code. Raises UsageError where a secret is missing."""
    secret = keys(receiver)
    at = now()
    messages = messages_of_test(receiver, at, secrets.token_hex(4))
    if dry_run:
        shown.messages([(receiver, message) for message in messages], result_console(), as_json=as_json)
        return 0
    results: list[Result] = []
    for message in messages:
        results.append(Result(message, attempt(message, receiver, secret, unix_seconds(at.at), resolved)))
        if not as_json:
            say(shown.line_of(results[-1]))
        if not results[-1].outcome.sent:
            break
    well = all(one.outcome.sent for one in results)
    mended = f"mend what it says, then latdoctor notify test {receiver.name}"
    step = "latdoctor notify send --dry-run" if well else mended
    shown.results(results, [], result_console(), step=step, as_json=as_json)
    return 0 if well else 1


def messages_of_test(receiver: Receiver, at: Moment, name: str) -> tuple[Message, ...]:
    """PagerDuty's alert and its end; of the others one message."""
    states = (pagerduty.TRIGGER, pagerduty.RESOLVE) if receiver.kind == PAGERDUTY else ("",)
    incident = Incident(f"test-{name}", events.Opened("latdoctor", (), events.BY_HAND, "", ""))
    made = [
        MAKERS[receiver.kind](
            incident,
            Telling(TEST, state or "once", at.at, SAYS, pairs(Receiver=receiver.name), "info", state),
            receiver,
        )
        for state in states
    ]
    return tuple(message for message in made if message is not None)
