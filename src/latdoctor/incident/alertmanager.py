"""Parser of Alertmanager webhook notifications (version 4).

The input is untrusted: bytes, alerts, labels and texts are bounded, and texts are cleaned of control characters and
credentials (`without_credentials`; an address may contain a password, a label a token). A malformed notification is an
AlertError with the position; unknown fields are ignored. Too many or too long labels are cut and reported, not refused:
an Alertmanager does not resend after a 4xx, so the whole notification would be lost.
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

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import UsageError
from latdoctor.incident.events import Alert, AlertsReceived, AlertStatus
from latdoctor.incident.recorder import field_without_credentials, without_credentials
from latdoctor.sanitize import clean, counted

MAX_BYTES = 8 << 20
MAX_ALERTS = 10_000
# With these limits an alert takes at most 900 kB in the journal, whose entries are limited to 1 MiB.
MAX_LABELS = 64  # and as many annotations
LONGEST_NAME, LONGEST_LABEL, LONGEST_ANNOTATION, LONGEST_KEY = 100, 1000, 2000, 500
_LONGEST_FINGERPRINT = 64
# Preferred labels where not all fit: titles, messages and severities are built from them.
_KEPT_FIRST: Final = frozenset(
    ("alertname", "severity", "instance", "job", "namespace", "pod", "service", "summary", "description", "runbook_url")
)
_ENTRY_BYTES = 512 << 10  # size that `split_for_journal` aims at

_LOOK = "send an Alertmanager webhook notification, version 4"


class AlertError(UsageError):
    """Malformed notification: the problem and its position."""


Texts = dict[str, str] | None  # Go writes a nil map as null
Time = Annotated[datetime, Meta(tz=True)] | None


class _Alert(Struct, frozen=True, rename="camel"):
    status: AlertStatus
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
    """Notification in `content`. `where` names the source in messages. Raises AlertError."""
    if len(content) > MAX_BYTES:
        raise AlertError(
            f"it has more than {MAX_BYTES} bytes", where=where, next_step="set max_alerts in the webhook_config"
        )
    try:
        raw = msgspec.json.decode(content, type=_Notification)
    except UNDECODABLE as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else clean(str(error), 300)
        raise AlertError(what, where=where, next_step=_LOOK) from None
    return AlertsReceived(
        key=_key(raw.group_key),
        receiver=clean(raw.receiver, LONGEST_NAME),
        alerts=tuple(_alert(one, f"{where}: alerts[{index}]") for index, one in enumerate(raw.alerts)),
        truncated=raw.truncated_alerts,
    )


def split_for_journal(read_notification: AlertsReceived) -> tuple[AlertsReceived, ...]:
    """The notification in pieces that each fit into a journal entry, each with the sender's `truncated` count."""
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


def _alert(raw: _Alert, where: str) -> Alert:
    cut: list[str] = []
    labels = _texts(raw.labels, LONGEST_LABEL, "label", cut)
    annotations = _texts(raw.annotations, LONGEST_ANNOTATION, "annotation", cut)
    generator = without_credentials(raw.generator, LONGEST_ANNOTATION)
    if _is_cut(raw.generator, LONGEST_ANNOTATION):
        cut.append("its address shortened")
    return Alert(
        fingerprint=_fingerprint(raw, where),
        status=raw.status,
        name=without_credentials((raw.labels or {}).get("alertname", ""), LONGEST_LABEL),
        labels=labels,
        annotations=annotations,
        starts_at=_moment(raw.starts_at),
        # While firing, this is the time at which the alert would expire, not its end.
        ends_at=None if raw.status == AlertStatus.FIRING else _moment(raw.ends_at),
        generator=generator,
        cut=", ".join(cut) or UNSET,
    )


def _texts(raw: Texts, longest: int, what: str, cut: list[str]) -> dict[str, str]:
    """At most MAX_LABELS texts without credentials; what is dropped is added to `cut`."""
    texts = raw or {}
    names = list(texts)
    if len(names) > MAX_LABELS:
        names = sorted(names, key=lambda name: name not in _KEPT_FIRST)[:MAX_LABELS]
        cut.append(f"{counted(len(texts) - MAX_LABELS, what)} left out")
    short = sum(_is_cut(name, LONGEST_NAME) or _is_cut(texts[name], longest) for name in names)
    if short:
        cut.append(f"{counted(short, what)} shortened")
    named = ((without_credentials(name, LONGEST_NAME), texts[name]) for name in names)
    return {name: field_without_credentials(name, value, longest) for name, value in named}


def _is_cut(text: str, longest: int) -> bool:
    return len(clean(text, len(text))) > longest


def _fingerprint(raw: _Alert, where: str) -> str:
    """Fingerprint as sent; else that of its labels, which is the same (Alertmanager before 0.19 sends none).

    It identifies the alert, so it is refused rather than cut.
    """
    if not raw.fingerprint:
        return fingerprint_of(raw.labels or {})
    if clean(raw.fingerprint, _LONGEST_FINGERPRINT) != raw.fingerprint:
        raise AlertError(
            f"it is no text of at most {_LONGEST_FINGERPRINT} plain characters",
            where=f"{where}.fingerprint",
            next_step=_LOOK,
        )
    return raw.fingerprint


def fingerprint_of(labels: Mapping[str, str]) -> str:
    """FNV-1a (64 bits) over sorted names and values, each ended by 0xff: LabelSet.Fingerprint of prometheus/common."""
    value = 0xCBF29CE484222325
    for text in (text for name in sorted(labels) for text in (name, labels[name])):
        for byte in (*text.encode(), 0xFF):
            value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def _key(raw: str) -> str:
    """Group key without credentials; if that changes it, with a digest of the original, to stay unique."""
    shown = without_credentials(raw, LONGEST_KEY)
    if shown == raw:
        return raw
    return f"{shown} #{hashlib.sha256(raw.encode()).hexdigest()[:16]}"


def _moment(raw: datetime | None) -> float | None:
    """Unix seconds; None for Go's zero time `0001-01-01T00:00:00Z`."""
    return None if raw is None or raw.year <= 1 else raw.timestamp()


STDIN = Path("-")


def read_notification(path: Path) -> AlertsReceived:
    """Notification from a file or stdin. Raises AlertError, and UsageError where it cannot be read."""
    where = "stdin" if path == STDIN else clean(str(path), 200)
    try:
        return parse(_content(path), where)
    except OSError as error:
        raise UsageError(
            f"the alert cannot be read: {error.strerror}", where=where, next_step="check path and rights"
        ) from error


def _content(path: Path) -> bytes:
    """Content, limited to one byte more than allowed, so that an oversized one is detected."""
    if path == STDIN:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)
