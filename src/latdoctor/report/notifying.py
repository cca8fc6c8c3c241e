"""Messages to receivers and what came of them, for a screen and as JSON. No message holds a secret: MASK is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from latdoctor.incident.notify.delivering import Result
from latdoctor.incident.notify.receiver import MASK, WEBHOOK, Message, Receiver
from latdoctor.report.printing import print_json
from latdoctor.text import clean

_LONGEST = 120  # characters of what was said, in a line


def messages(found: Sequence[tuple[Receiver, Message]], console: Console, *, as_json: bool) -> None:
    """What would be sent, whole, with the secrets masked."""
    if as_json:
        print_json({"messages": [_shown(receiver, message) for receiver, message in found]}, console)
        return
    for receiver, message in found:
        of = f" of {message.incident}" if message.incident else ""
        console.print(Text(clean(f"{message.to} ({message.kind}): {message.what}{of}"), style="bold"))
        console.print(Text(clean(message.says, 500)))
        console.print(Text(f"POST {_address(receiver, message)}"))
        for name, value in _headers(receiver, message):
            console.print(Text(f"{name}: {value}"))
        console.file.write(msgspec.json.format(message.body, indent=2).decode() + "\n\n")
    what = "nothing is due now" if not found else "Dry run: nothing was sent"
    console.print(Text(f"{what}. Next: {'latdoctor incidents list' if not found else 'the same without --dry-run'}"))


def line_of(result: Result) -> str:
    """What came of one try, in a line."""
    message, outcome = result.message, result.outcome
    of = f" of {message.incident}" if message.incident else ""
    if outcome.sent:
        return clean(f"{message.to}: told {message.what}{of}: {clean(message.says, _LONGEST)}", 400)
    later = "given up" if outcome.again_after is None else f"to be tried again in {outcome.again_after:.0f} s"
    return clean(f"{message.to}: NOT told {message.what}{of}: {outcome.why} ({later})", 600)


def results(found: Sequence[Result], failures: Sequence[str], console: Console, *, as_json: bool) -> None:
    """What was sent and what was not; the lines of the tries were printed as they came."""
    sent = sum(one.outcome.sent for one in found)
    if as_json:
        print_json({"sent": sent, "tries": [_tried(one) for one in found], "failures": failures}, console)
        return
    for failure in failures:
        console.print(Text(clean(failure, 600)))
    if not found and not failures:
        console.print("Nothing is due now; what failed is tried again after a while. Next: latdoctor timeline")
        return
    unsent = "" if sent == len(found) else f", {len(found) - sent} failed"
    console.print(Text(f"{sent} told{unsent}. Next: latdoctor timeline, or this again for what could not be sent"))


def _tried(one: Result) -> dict[str, Any]:
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
        "says": message.says,
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
    if message.kind == WEBHOOK and receiver.key_file is not None:
        return (*message.headers, ("webhook-timestamp", MASK), ("webhook-signature", MASK))
    return message.headers
