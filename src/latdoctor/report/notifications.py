"""Messages to receivers and their delivery results, on a screen and as JSON. Secrets are masked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from latdoctor.notify.journaled_delivery import DeliveryResult
from latdoctor.notify.receiver_config import MASK, Message, Receiver, ReceiverKind
from latdoctor.report.text_utils import print_json
from latdoctor.sanitize import clean, fitted
from latdoctor.units import format_value

_LONGEST = 120  # columns of a message in a line
_OFTEN = "latdoctor notify send"


@dataclass(frozen=True, slots=True)
class PendingMessages:
    """`count` messages for one receiver that may be tried again in so many seconds."""

    to: str
    count: int
    seconds: float


def messages(
    found: Sequence[tuple[Receiver, Message]],
    console: Console,
    waiting: Sequence[PendingMessages] = (),
    *,
    as_json: bool,
) -> None:
    """Messages that would be sent, in full, with the secrets masked; and those that wait."""
    if as_json:
        shown = [_shown(receiver, message) for receiver, message in found]
        print_json({"messages": shown, "waiting": [_waits(one) for one in waiting]}, console)
        return
    for receiver, message in found:
        of = f" of {message.incident}" if message.incident else ""
        console.print(Text(clean(f"{message.to} ({message.kind}): {message.what}{of}"), style="bold"))
        console.print(Text(clean(message.message, 500)))
        console.print(Text(f"POST {_address(receiver, message)}"))
        for name, value in _headers(receiver, message):
            console.print(Text(f"{name}: {value}"))
        console.file.write(msgspec.json.format(message.body, indent=2).decode() + "\n\n")
    _print_waiting(waiting, console)
    what = "nothing is due now" if not found else "Dry run: nothing was sent"
    step = "the same without --dry-run" if found else _later(waiting) if waiting else "latdoctor incidents list"
    console.print(Text(f"{what}. Next: {step}"))


def line_of(result: DeliveryResult) -> str:
    """Result of one attempt, in a line."""
    message, outcome = result.message, result.outcome
    of = f" of {message.incident}" if message.incident else ""
    if outcome.sent:
        return clean(f"{message.to}: sent {message.what}{of}: {fitted(message.message, _LONGEST)}", 400)
    later = "given up" if outcome.again_after is None else f"next attempt in {_span(outcome.again_after)}"
    return clean(f"{message.to}: NOT sent {message.what}{of}: {outcome.why} ({later})", 600)


def results(
    found: Sequence[DeliveryResult],
    failures: Sequence[str],
    console: Console,
    waiting: Sequence[PendingMessages] = (),
    *,
    step: str = "",
    as_json: bool,
) -> None:
    """Sent, failed and waiting messages; the lines of the attempts were printed before.

    `step`: the next step, if it does not follow from these.
    """
    sent = sum(one.outcome.sent for one in found)
    if as_json:
        document = {"sent": sent, "tries": [_tried(one) for one in found], "failures": failures}
        print_json({**document, "waiting": [_waits(one) for one in waiting]}, console)
        return
    for failure in failures:
        console.print(Text(clean(failure, 600)))
    _print_waiting(waiting, console)
    unsent = "" if sent == len(found) else f", {_counted(len(found) - sent, 'try', 'tries')} failed"
    what = f"{sent} sent{unsent}" if found or failures else "Nothing is due now"
    console.print(Text(f"{what}. Next: {step or _step(found, failures, waiting)}"))


def _step(found: Sequence[DeliveryResult], failures: Sequence[str], waiting: Sequence[PendingMessages]) -> str:
    """Next step: retries first."""
    if waiting:
        return _later(waiting)
    if failures:
        return f"fix that, then {_OFTEN}"
    if any(not one.outcome.sent and one.outcome.again_after is None for one in found):
        return f"fix the reported problem, then {_OFTEN} --again"
    return "latdoctor timeline"


def _later(waiting: Sequence[PendingMessages]) -> str:
    soonest = min(one.seconds for one in waiting)
    return f"{_OFTEN}, in {_span(soonest)}" if soonest else _OFTEN


def _print_waiting(waiting: Sequence[PendingMessages], console: Console) -> None:
    for one in waiting:
        what = _counted(one.count, "message waits", "messages wait")
        when = f"in {_span(one.seconds)}" if one.seconds else "at any time"
        console.print(Text(clean(f"{one.to}: {what}, next try {when}")))


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _span(seconds: float) -> str:
    return format_value(float(max(1, round(seconds))), "time")


def _waits(one: PendingMessages) -> dict[str, Any]:
    return {"to": one.to, "count": one.count, "again_after": one.seconds}


def _tried(one: DeliveryResult) -> dict[str, Any]:
    return {
        "to": one.message.to,
        "what": one.message.what,
        "incident": one.message.incident,
        "key": one.message.key,
        "sent": one.outcome.sent,
        "why": one.outcome.why,
        "unsure": one.outcome.unsure,
        "again_after": one.outcome.again_after,
    }


def _shown(receiver: Receiver, message: Message) -> dict[str, Any]:
    return {
        "to": message.to,
        "kind": message.kind,
        "what": message.what,
        "incident": message.incident,
        "key": message.key,
        "says": message.message,
        "method": "POST",
        "url": _address(receiver, message),
        "headers": dict(_headers(receiver, message)),
        "body": msgspec.Raw(message.body),
    }


def _address(receiver: Receiver, message: Message) -> str:
    if receiver.url_file is not None:
        return f"{MASK} (the address in {clean(str(receiver.url_file), 200)})"
    return message.url if message.url != MASK else f"{MASK} (the address in {receiver.variable})"


def _headers(receiver: Receiver, message: Message) -> tuple[tuple[str, str], ...]:
    if message.kind == ReceiverKind.WEBHOOK and receiver.key_file is not None:
        return (*message.headers, ("webhook-timestamp", MASK), ("webhook-signature", MASK))
    return message.headers
