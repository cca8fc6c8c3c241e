"""What an Alertmanager sends (webhook, version 4), out of its bytes.

Whoever can reach the listener may have written them: bytes, alerts, labels and texts are bounded; texts are cleaned,
and lose their credentials (`without_credentials`): an address may hold a password, and a label a token.
What is not of the form is an AlertError that says what and where; a field that is not known is left out. An alert with
too many labels, or too long ones, is cut and says so: refused it would be lost, with all that came beside it, as an
Alertmanager does not send again what was answered 4xx.
https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, field

from latdoctor.errors import UNDECODABLE, UsageError
from latdoctor.incident.events import FIRING, Alert, AlertsReceived
from latdoctor.incident.recorder import field_without_credentials, without_credentials
from latdoctor.sanitize import clean, counted

MAX_BYTES = 8 << 20
MAX_ALERTS = 10_000
# So bounded, no alert takes more than 900 kB in the journal, whose entries hold 1 MiB.
MAX_LABELS = 64  # and as many annotations
LONGEST_NAME, LONGEST_LABEL, LONGEST_ANNOTATION, LONGEST_KEY = 100, 1000, 2000, 500
_LONGEST_FINGERPRINT = 64
# What is kept where not all can be: what titles, messages and severities are made of.
_KEPT_FIRST: Final = frozenset(
    ("alertname", "severity", "instance", "job", "namespace", "pod", "service", "summary", "description", "runbook_url")
)
_ENTRY_BYTES = 512 << 10  # what `split_for_journal` puts together

_LOOK = "give what an Alertmanager sends to a webhook, version 4"


class AlertError(UsageError):
    """It is no notification of an Alertmanager: what is wrong, and where in it."""


Texts = dict[str, str] | None  # Go writes a map that was never made as null
Time = Annotated[datetime, Meta(tz=True)] | None


class _Alert(Struct, frozen=True, rename="camel"):
    status: Literal["firing", "resolved"]
    labels: Texts = None
    annotations: Texts = None
    starts_at: Time = None
    ends_at: Time = None
    generator: str = field(default="", name="generatorURL")
    fingerprint: str = ""


class _Notification(Struct, frozen=True, rename="camel"):
    version: Literal["4"]
    group_key: Annotated[str, Meta(min_length=1)]
    alerts: Annotated[list[_Alert], Meta(min_length=1, max_length=MAX_ALERTS)]
    receiver: str = ""
    truncated_alerts: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0


def parse(content: bytes, where: str = "alert") -> AlertsReceived:
    """The notification in `content`. `where` is what a message calls its source. Raises AlertError."""
    if len(content) > MAX_BYTES:
        raise AlertError(
            f"it has more than {MAX_BYTES} bytes", where=where, next_step="set max_alerts in the webhook_config"
        )
    try:
        told = msgspec.json.decode(content, type=_Notification)
    except UNDECODABLE as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else clean(str(error), 300)
        raise AlertError(what, where=where, next_step=_LOOK) from None
    return AlertsReceived(
        key=_key(told.group_key),
        receiver=clean(told.receiver, LONGEST_NAME),
        alerts=tuple(_alert(one, f"{where}: alerts[{index}]") for index, one in enumerate(told.alerts)),
        truncated=told.truncated_alerts,
    )


def split_for_journal(read_notification: AlertsReceived) -> tuple[AlertsReceived, ...]:
    """The same in pieces that each fit into an entry of the journal. Each says how many alerts the sender left out."""
    pieces: list[list[Alert]] = [[]]
    size = 0
    for alert in read_notification.alerts:
        adds = len(msgspec.json.encode(alert))
        if pieces[-1] and size + adds > _ENTRY_BYTES:
            pieces.append([])
            size = 0
        pieces[-1].append(alert)
        size += adds
    return tuple(msgspec.structs.replace(read_notification, alerts=tuple(piece)) for piece in pieces)


def _alert(told: _Alert, where: str) -> Alert:
    cut: list[str] = []
    labels = _texts(told.labels, LONGEST_LABEL, "label", cut)
    annotations = _texts(told.annotations, LONGEST_ANNOTATION, "annotation", cut)
    generator = without_credentials(told.generator, LONGEST_ANNOTATION)
    if _is_cut(told.generator, LONGEST_ANNOTATION):
        cut.append("its address shortened")
    return Alert(
        fingerprint=_fingerprint(told, where),
        status=told.status,
        name=without_credentials((told.labels or {}).get("alertname", ""), LONGEST_LABEL),
        labels=labels,
        annotations=annotations,
        starts_at=_moment(told.starts_at),
        # While it fires this is not an end but the time at which it would be given up.
        ends_at=None if told.status == FIRING else _moment(told.ends_at),
        generator=generator,
        cut=", ".join(cut) or UNSET,
    )


def _texts(told: Texts, longest: int, what: str, cut: list[str]) -> dict[str, str]:
    """Made harmless, MAX_LABELS of them at most; what is lost of them is added to `cut`."""
    given = told or {}
    kept = list(given)
    if len(kept) > MAX_LABELS:
        kept = sorted(kept, key=lambda name: name not in _KEPT_FIRST)[:MAX_LABELS]
        cut.append(f"{counted(len(given) - MAX_LABELS, what)} left out")
    short = sum(_is_cut(name, LONGEST_NAME) or _is_cut(given[name], longest) for name in kept)
    if short:
        cut.append(f"{counted(short, what)} shortened")
    named = ((without_credentials(name, LONGEST_NAME), given[name]) for name in kept)
    return {name: field_without_credentials(name, value, longest) for name, value in named}


def _is_cut(text: str, longest: int) -> bool:
    return len(text) > longest and clean(text, longest).endswith("…")


def _fingerprint(told: _Alert, where: str) -> str:
    """As it was sent; else that of its labels, which is the same (Alertmanager before 0.19 sent none).

    It tells alerts apart, so it is refused rather than cut.
    """
    if not told.fingerprint:
        return fingerprint_of(told.labels or {})
    if clean(told.fingerprint, _LONGEST_FINGERPRINT) != told.fingerprint:
        raise AlertError(
            f"it is no text of at most {_LONGEST_FINGERPRINT} plain characters",
            where=f"{where}.fingerprint",
            next_step=_LOOK,
        )
    return told.fingerprint


def fingerprint_of(labels: Mapping[str, str]) -> str:
    """FNV-1a (64 bits) over sorted names and values, each ended by 0xff: LabelSet.Fingerprint of prometheus/common."""
    value = 0xCBF29CE484222325
    for text in (text for name in sorted(labels) for text in (name, labels[name])):
        for byte in (*text.encode(), 0xFF):
            value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def _key(told: str) -> str:
    """Made harmless; what that changes keeps a digest of what it was, so that no two groups become one."""
    shown = without_credentials(told, LONGEST_KEY)
    if shown == told:
        return told
    return f"{shown} #{hashlib.sha256(told.encode()).hexdigest()[:16]}"


def _moment(told: datetime | None) -> float | None:
    """Unix seconds; None where the time is not told: Go writes `0001-01-01T00:00:00Z` for that."""
    return None if told is None or told.year <= 1 else told.timestamp()


STDIN = Path("-")


def read_notification(path: Path) -> AlertsReceived:
    """The notification in the file, or on stdin. Raises AlertError, and UsageError where it cannot be read."""
    where = "stdin" if path == STDIN else clean(str(path), 200)
    try:
        return parse(_content(path), where)
    except OSError as error:
        raise UsageError(
            f"the alert cannot be read: {error.strerror}", where=where, next_step="check path and rights"
        ) from error


def _content(path: Path) -> bytes:
    """At most one byte more than is read of a notification: then it is too long, and told so."""
    if path == STDIN:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)
