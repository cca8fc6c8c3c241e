"""`latdoctor notify`: tell the configured receivers what they have not been told yet, or try whether they can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli.remediate import Form, OutputOption

if TYPE_CHECKING:
    from latdoctor.incident.notify.receiver import Receiver
    from latdoctor.journal.store import Journal

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
    from latdoctor.cli.trying_receivers import tested

    raise typer.Exit(tested(_named(name), dry_run=dry_run, as_json=output is Form.JSON))


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
    from latdoctor.cli import notifying
    from latdoctor.cli.screen import result_console
    from latdoctor.incident.joining import chosen
    from latdoctor.incident.marking import known
    from latdoctor.incident.notify.sealing import keys
    from latdoctor.report import notifying as shown

    receivers = _receivers(to)
    journal = _journal(reading=dry_run)
    one = chosen(known(journal), incident, only_open=False).id if incident else ""
    if dry_run:
        for receiver in receivers:
            keys(receiver)  # what is missing is told now, and not when it burns
        due = [(receiver, notifying.look(journal, receiver, one, again=again)) for receiver in receivers]
        messages = [(receiver, message) for receiver, found in due for message in found.messages]
        waiting = [shown.Waiting(to.name, found.waiting, found.wait) for to, found in due if found.wait is not None]
        shown.messages(messages, result_console(), waiting, as_json=output is Form.JSON)
        return
    told = notifying.send_all(receivers, journal, one, again=again, as_json=output is Form.JSON)
    results = [result for each in told for result in each.done.results]
    waiting = [
        shown.Waiting(each.receiver.name, each.done.waiting, each.done.wait)
        for each in told
        if each.done.wait is not None
    ]
    failures = [each.why for each in told if each.why]
    shown.results(results, failures, result_console(), waiting, as_json=output is Form.JSON)
    if any(each.why or each.done.wait is not None for each in told) or not all(one.outcome.sent for one in results):
        raise typer.Exit(1)


def _receivers(to: str) -> tuple[Receiver, ...]:
    """Raises UsageError where there is nobody to be told."""
    from latdoctor.cli.configuration import configuration
    from latdoctor.errors import UsageError

    if to:
        return (_named(to),)
    known = tuple(configuration().receivers.values())
    if not known:
        raise UsageError("nobody is configured to be told", next_step="name them under `notify:` in latdoctor.yaml")
    return known


def _named(name: str) -> Receiver:
    """Raises UsageError."""
    from latdoctor.cli.configuration import configuration
    from latdoctor.errors import UsageError
    from latdoctor.text import clean

    known = configuration().receivers
    if name not in known:
        raise UsageError(
            f"there is no receiver {clean(name, 80)!r} (there are: {', '.join(known) or 'none'})",
            next_step="name it under `notify:` in latdoctor.yaml",
        )
    return known[name]


def _journal(*, reading: bool) -> Journal:
    from latdoctor.cli.mending import own_folder
    from latdoctor.journal import state
    from latdoctor.journal.store import Journal

    if reading:
        return Journal.reading(state.folder() / state.JOURNAL)
    return Journal.opened(own_folder() / state.JOURNAL)
