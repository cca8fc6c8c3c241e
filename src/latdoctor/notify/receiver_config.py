"""A configured receiver, and a message for it without secrets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final


class ReceiverKind(StrEnum):
    """Service behind a receiver."""

    PAGERDUTY = "pagerduty"
    SLACK = "slack"
    WEBHOOK = "webhook"


class NoticeKind(StrEnum):
    """Kind of a notice (`on:` in the configuration), in the order of an incident."""

    ALERT = "alert"
    CONFIRMED = "confirmed"
    TAKEN = "taken"
    DIAGNOSIS = "diagnosis"
    PLAN = "plan"
    CHANGE = "change"
    VERIFY = "verify"
    ROLLBACK = "rollback"
    MET = "met"
    LATE = "late"
    CLOSED = "closed"
    TEST = "test"  # not configurable


KINDS: Final = tuple(ReceiverKind)
NOTICE_KINDS: Final = tuple(kind for kind in NoticeKind if kind is not NoticeKind.TEST)

MASK: Final = "…"  # placeholder of a secret

# Default address of a receiver kind.
EVENTS: Final = "https://events.pagerduty.com"
# Default parents of its secret address: PagerDuty's and Slack's own hosts.
HOSTS: Final = {
    ReceiverKind.PAGERDUTY: (EVENTS, "https://events.eu.pagerduty.com"),
    ReceiverKind.SLACK: ("https://hooks.slack.com", "https://hooks.slack-gov.com"),
    ReceiverKind.WEBHOOK: (),
}


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver. `url` is public; `url_file` contains a secret address. `key_file`: PagerDuty's routing key, or the
    signing secret of a webhook. `allow`: permitted parents of the address. `allow_private`: the address may be on this
    machine or a private network.
    """

    name: str
    kind: ReceiverKind
    url: str = ""
    url_file: Path | None = None
    key_file: Path | None = None
    on: tuple[NoticeKind, ...] = NOTICE_KINDS
    allow: tuple[str, ...] = ()
    allow_private: bool = False
    authorities: Path | None = None  # certificates that are trusted; None: those of the system

    @property
    def base(self) -> str:
        """Public form of the address; MASK where the address is secret."""
        return self.url.rstrip("/") or (EVENTS if self.kind == ReceiverKind.PAGERDUTY else MASK)

    @property
    def allowed(self) -> tuple[str, ...]:
        """Permitted parents of the address; a `url` in the configuration permits itself."""
        return self.allow or ((self.url,) if self.url else HOSTS[self.kind])

    @property
    def variable(self) -> str:
        """Environment variable of its secret, where no file is configured."""
        return "LATDOCTOR_NOTIFY_" + "".join(char if char.isalnum() else "_" for char in self.name.upper())


@dataclass(frozen=True, slots=True)
class Message:
    """A message for one receiver. Secrets are replaced by MASK.

    `key` identifies it among all messages of the receiver, and is the same on every attempt.
    """

    to: str
    kind: ReceiverKind
    what: NoticeKind
    incident: str
    key: str
    message: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes  # JSON
    tries: int = 0  # previous attempts
