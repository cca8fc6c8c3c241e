"""`latdoctor notify`: send pending notifications to the configured receivers, or a test."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli.console import notice, result_console
from latdoctor.cli.options import OutputFormat, OutputOption
from latdoctor.http.safe_address import resolve_host
from latdoctor.incident import events
from latdoctor.incident.events import OpenedBy
from latdoctor.incident.state import Incident
from latdoctor.journal.entry import Moment, now, unix_seconds
from latdoctor.notify import pagerduty
from latdoctor.notify.journaled_delivery import DeliveryResult
from latdoctor.notify.messages import Notice, details_of
from latdoctor.notify.outbox import MAKERS
from latdoctor.notify.receiver_config import Message, NoticeKind, Receiver, ReceiverKind
from latdoctor.notify.transport import attempt, load_keys
from latdoctor.report import notifications as shown

if TYPE_CHECKING:
    from latdoctor.journal.store import Journal


TEST_MESSAGE = "a test of latdoctor: nothing is wrong"


def run_test(receiver: Receiver, *, dry_run: bool, as_json: bool) -> int:
    """Send a test; return the exit code. Raises UsageError where a secret is missing."""
    secret = load_keys(receiver)
    at = now()
    messages = messages_of_test(receiver, at, secrets.token_hex(4))
    if dry_run:
        shown.messages([(receiver, message) for message in messages], result_console(), as_json=as_json)
        return 0
    results: list[DeliveryResult] = []
    for message in messages:
        results.append(DeliveryResult(message, attempt(message, receiver, secret, unix_seconds(at.at), resolve_host)))
        if not as_json:
            notice(shown.line_of(results[-1]))
        if not results[-1].outcome.sent:
            break
    well = all(one.outcome.sent for one in results)
    after_fix = f"fix the reported problem, then latdoctor notify test {receiver.name}"
    step = "latdoctor notify send --dry-run" if well else after_fix
    shown.results(results, [], result_console(), step=step, as_json=as_json)
    return 0 if well else 1


def messages_of_test(receiver: Receiver, at: Moment, name: str) -> tuple[Message, ...]:
    """PagerDuty's alert and its end; of the others one message."""
    states = (
        (pagerduty.EventAction.TRIGGER, pagerduty.EventAction.RESOLVE)
        if receiver.kind == ReceiverKind.PAGERDUTY
        else ("",)
    )
    incident = Incident(f"test-{name}", events.IncidentOpened("latdoctor", (), OpenedBy.HAND, "", ""))
    built = [
        MAKERS[receiver.kind](
            incident,
            Notice(
                NoticeKind.TEST, state or "once", at.at, TEST_MESSAGE, details_of(Receiver=receiver.name), "info", state
            ),
            receiver,
        )
        for state in states
    ]
    return tuple(message for message in built if message is not None)


app = typer.Typer(
    help="Notify PagerDuty, Slack and webhooks of incidents.", no_args_is_help=True, rich_markup_mode=None
)

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show exactly what would be sent, with secrets masked, and send nothing.")
]


@app.command("test")
def send_test(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A receiver of latdoctor.yaml.")],
    dry_run: DryRun = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Send a test to one receiver.

    PagerDuty gets an alert of severity info, which is resolved at once: it may notify the person on call.

    Exit codes: 0 accepted · 1 not accepted · 2 usage, or there is no such receiver.
    """

    raise typer.Exit(run_test(_named(name), dry_run=dry_run, as_json=output is OutputFormat.JSON))


@app.command("send")
def send(
    incident: Annotated[
        str, typer.Option("--incident", metavar="ID", help="Of one incident only, also one that is closed.")
    ] = "",
    to: Annotated[str, typer.Option("--to", metavar="NAME", help="To one receiver only.")] = "",
    again: Annotated[bool, typer.Option("--again", help="Retry messages that were given up.")] = False,
    dry_run: DryRun = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Send pending notifications.

    Messages are sent once, so this can run every minute. Messages older than an hour are dropped.

    Exit codes: 0 nothing is left to send · 1 something could not be sent · 2 usage.
    """
    from latdoctor.cli import notifier
    from latdoctor.cli.console import result_console
    from latdoctor.incident.lookup import select_incident
    from latdoctor.incident.recorder import all_incidents
    from latdoctor.notify.transport import load_keys
    from latdoctor.report import notifications as shown

    receivers = _receivers(to)
    journal = _journal(reading=dry_run)
    one = select_incident(all_incidents(journal), incident, only_open=False).id if incident else ""
    if dry_run:
        for receiver in receivers:
            load_keys(receiver)  # report missing secrets now, not during an incident
        due = [(receiver, notifier.due_now(journal, receiver, one, again=again)) for receiver in receivers]
        messages = [(receiver, message) for receiver, found in due for message in found.messages]
        waiting = [
            shown.PendingMessages(to.name, found.waiting, found.wait) for to, found in due if found.wait is not None
        ]
        shown.messages(messages, result_console(), waiting, as_json=output is OutputFormat.JSON)
        return
    deliveries = notifier.send_all(receivers, journal, one, again=again, as_json=output is OutputFormat.JSON)
    results = [result for each in deliveries for result in each.done.results]
    waiting = [
        shown.PendingMessages(each.receiver.name, each.done.waiting, each.done.wait)
        for each in deliveries
        if each.done.wait is not None
    ]
    failures = [each.why for each in deliveries if each.why]
    shown.results(results, failures, result_console(), waiting, as_json=output is OutputFormat.JSON)
    if any(each.why or each.done.wait is not None for each in deliveries) or not all(
        one.outcome.sent for one in results
    ):
        raise typer.Exit(1)


def _receivers(to: str) -> tuple[Receiver, ...]:
    """Raises UsageError where no receiver is configured."""
    from latdoctor.cli.config_file import configuration
    from latdoctor.errors import UsageError

    if to:
        return (_named(to),)
    all_incidents = tuple(configuration().receivers.values())
    if not all_incidents:
        raise UsageError("no receiver is configured", next_step="add one under `notify:` in latdoctor.yaml")
    return all_incidents


def _named(name: str) -> Receiver:
    """Raises UsageError."""
    from latdoctor.cli.config_file import configuration
    from latdoctor.errors import UsageError
    from latdoctor.sanitize import clean

    all_incidents = configuration().receivers
    if name not in all_incidents:
        raise UsageError(
            f"there is no receiver {clean(name, 80)!r} (there are: {', '.join(all_incidents) or 'none'})",
            next_step="name it under `notify:` in latdoctor.yaml",
        )
    return all_incidents[name]


def _journal(*, reading: bool) -> Journal:
    from latdoctor.journal import state_dir
    from latdoctor.journal.store import Journal

    if reading:
        return Journal.reading(state_dir.folder() / state_dir.JOURNAL)
    return Journal.opened(state_dir.private_folder() / state_dir.JOURNAL)
