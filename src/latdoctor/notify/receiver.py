"""A receiver as it is configured, and a message for it as it may be shown to anybody."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGERDUTY, SLACK, WEBHOOK = "pagerduty", "slack", "webhook"
KINDS: Final = (PAGERDUTY, SLACK, WEBHOOK)

# What is told (`on:` of the configuration), in the order in which an incident goes.
ALERT, CONFIRMED, TAKEN, DIAGNOSIS, PLAN = "alert", "confirmed", "taken", "diagnosis", "plan"
CHANGE, VERIFY, ROLLBACK, MET, LATE, CLOSED = "change", "verify", "rollback", "met", "late", "closed"
WHATS: Final = (ALERT, CONFIRMED, TAKEN, DIAGNOSIS, PLAN, CHANGE, VERIFY, ROLLBACK, MET, LATE, CLOSED)
TEST: Final = "test"

MASK: Final = "…"  # stands where a secret is put in

# Where a receiver of a kind is, where the configuration names no address.
EVENTS: Final = "https://events.pagerduty.com"
# What its secret address may lie under, where the configuration does not say. PagerDuty's and Slack's own.
HOSTS: Final = {
    PAGERDUTY: (EVENTS, "https://events.eu.pagerduty.com"),
    SLACK: ("https://hooks.slack.com", "https://hooks.slack-gov.com"),
    WEBHOOK: (),
}


@dataclass(frozen=True, slots=True)
class Receiver:
    """`url` may be shown; `url_file` holds one that may not. `key_file`: PagerDuty's routing key, or what a webhook is
    signed with. `allow`: what the address has to lie under. `allow_private`: it may lead to this machine or its
    network.
    """

    name: str
    kind: str  # one of KINDS
    url: str = ""
    url_file: Path | None = None
    key_file: Path | None = None
    on: tuple[str, ...] = WHATS
    allow: tuple[str, ...] = ()
    allow_private: bool = False
    authorities: Path | None = None  # certificates that are trusted; None: those of the system

    @property
    def base(self) -> str:
        """The address as it may be shown; MASK where it is itself the secret."""
        return self.url.rstrip("/") or (EVENTS if self.kind == PAGERDUTY else MASK)

    @property
    def allowed(self) -> tuple[str, ...]:
        """What is asked has to lie under one of these: a name that stands in the configuration is meant."""
        return self.allow or ((self.url,) if self.url else HOSTS[self.kind])

    @property
    def variable(self) -> str:
        """The environment's variable with its secret, where no file is named."""
        return "LATDOCTOR_NOTIFY_" + "".join(char if char.isalnum() else "_" for char in self.name.upper())


@dataclass(frozen=True, slots=True)
class Message:
    """What one receiver is told of one thing. Nothing in it is secret: where a secret goes it has MASK.

    `key` tells it from all others that this receiver gets, and is the same whenever it is made again.
    """

    to: str
    kind: str  # of the receiver
    what: str  # one of WHATS, or TEST
    incident: str
    key: str
    message: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes  # JSON
    tries: int = 0  # that were made before
