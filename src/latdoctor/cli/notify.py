"""`latdoctor notify`: tell the configured receivers what they have not been told yet, or try whether they can be."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli.console import result_console, say
from latdoctor.cli.remediate import Form, OutputOption
from latdoctor.http.address import resolve_host
from latdoctor.incident import events
from latdoctor.incident.state import Incident
from latdoctor.journal.entry import Moment, now, unix_seconds
from latdoctor.notify import pagerduty
from latdoctor.notify.dispatcher import DeliveryResult
from latdoctor.notify.messages import Notice, details_of
from latdoctor.notify.outbox import MAKERS
from latdoctor.notify.receiver import PAGERDUTY, TEST, Message, Receiver
from latdoctor.notify.transport import attempt, load_keys
from latdoctor.report import notifications as shown

if TYPE_CHECKING:
    from latdoctor.journal.store import Journal


SAYS = "a test of latdoctor: nothing is wrong"


def run_test(receiver: Receiver, *, dry_run: bool, as_json: bool) -> int:
    """The exit code. Raises UsageError where a secret is missing."""
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
    incident = Incident(f"test-{name}", events.IncidentOpened("latdoctor", (), events.BY_HAND, "", ""))
    made = [
        MAKERS[receiver.kind](
            incident,
            Notice(TEST, state or "once", at.at, SAYS, details_of(Receiver=receiver.name), "info", state),
            receiver,
        )
        for state in states
    ]
    return tuple(message for message in made if message is not None)


app = typer.Typer(
    help="Who is told of incidents: PagerDuty, Slack, webhooks.", no_args_is_help=True, rich_markup_mode=None
)

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show exactly what would be sent, with secrets masked. Nothing is.")
]


@app.command("test")
def send_test(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A receiver of latdoctor.yaml.")],
    dry_run: DryRun = False,
    output: OutputOption = Form.TEXT,
) -> None:
    """Send a test to one receiver.

    PagerDuty gets an alert of severity info, which is resolved at once: whoever is on call may hear of it.

    Exit codes: 0 it was taken · 1 it was not · 2 usage, or there is no such receiver.
    """
    pass  # import of a merged module

    raise typer.Exit(run_test(_named(name), dry_run=dry_run, as_json=output is Form.JSON))


@app.command("send")
def send(
    incident: Annotated[
        str, typer.Option("--incident", metavar="ID", help="Of one incident only, also one that is closed.")
    ] = "",
    to: Annotated[str, typer.Option("--to", metavar="NAME", help="To one receiver only.")] = "",
    again: Annotated[bool, typer.Option("--again", help="Try once more what was given up.")] = False,
    dry_run: DryRun = False,
    output: OutputOption = Form.TEXT,
) -> None:
    """Send what has not been sent yet.

    Done twice it sends nothing more, so it can be run every minute. What is older than an hour is no news any more.

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
            load_keys(receiver)  # what is missing is told now, and not when it burns
        due = [(receiver, notifier.due_now(journal, receiver, one, again=again)) for receiver in receivers]
        messages = [(receiver, message) for receiver, found in due for message in found.messages]
        waiting = [
            shown.PendingMessages(to.name, found.waiting, found.wait) for to, found in due if found.wait is not None
        ]
        shown.messages(messages, result_console(), waiting, as_json=output is Form.JSON)
        return
    told = notifier.send_all(receivers, journal, one, again=again, as_json=output is Form.JSON)
    results = [result for each in told for result in each.done.results]
    waiting = [
        shown.PendingMessages(each.receiver.name, each.done.waiting, each.done.wait)
        for each in told
        if each.done.wait is not None
    ]
    failures = [each.why for each in told if each.why]
    shown.results(results, failures, result_console(), waiting, as_json=output is Form.JSON)
    if any(each.why or each.done.wait is not None for each in told) or not all(one.outcome.sent for one in results):
        raise typer.Exit(1)


def _receivers(to: str) -> tuple[Receiver, ...]:
    """Raises UsageError where there is nobody to be told."""
    from latdoctor.cli.config import configuration
    from latdoctor.errors import UsageError

    if to:
        return (_named(to),)
    all_incidents = tuple(configuration().receivers.values())
    if not all_incidents:
        raise UsageError("nobody is configured to be told", next_step="name them under `notify:` in latdoctor.yaml")
    return all_incidents


def _named(name: str) -> Receiver:
    """Raises UsageError."""
    from latdoctor.cli.config import configuration
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
    from latdoctor.cli.remediation_session import own_folder
    from latdoctor.journal import state_dir
    from latdoctor.journal.store import Journal

    if reading:
        return Journal.reading(state_dir.folder() / state_dir.JOURNAL)
    return Journal.opened(own_folder() / state_dir.JOURNAL)
