"""A standard operating procedure as types: stages with their due times, what meets them, and what becomes permitted.

A stage is met by a sign: an entry of the journal of a named kind, with small typed qualifiers, or a condition that
holds in a sample of the service. What each kind can be asked is `KINDS`; what the journal says of it tells `signs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from latdoctor.conditions.ast import Condition
from latdoctor.incident import events
from latdoctor.remediation.playbook import RISKS

LOOK: Final = "diagnose"
RESTART: Final = "restart"
REMEDIES: Final[Mapping[str, str]] = {risk: f"remediate-{risk}" for risk in RISKS}  # by risk, the lowest first
ACTIONS: Final = (LOOK, *REMEDIES.values(), RESTART)

# What a stage's next step may be; `standing.next_step` makes a command of it.
STEPS: Final = ("diagnose", "remediate", "close")

# Kinds of a run's own entries that can be asked for (remedy.run); the others are those of `events`.
RUN_OPENED, RUN_CLOSED = "run.opened", "run.closed"

# By kind and qualifier, the values that can be asked for. One that says "not known" meets nothing and is not listed.
KINDS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    events.ALERTED: {"status": (events.FIRING, events.RESOLVED)},
    events.CONFIRMED: {"status": (events.REAL, events.FALSE_ALARM)},
    events.DIAGNOSED: {
        "answer": ("named", "one-of", "unexplained", "none"),
        "level": ("critical", "warning", "info", "healthy"),
        "tier": ("infrastructure", "framework", "application"),
    },
    events.PLANNED: {"risk": RISKS},
    RUN_OPENED: {"risk": RISKS},
    RUN_CLOSED: {"outcome": ("verified", "rolled-back", "failed", "refused", "held")},
    events.SAMPLED: {},
    events.NOTIFIED: {"sent": ("true", "false")},
    events.CLOSED: {"outcome": ("resolved", events.FALSE_ALARM)},
}


@dataclass(frozen=True, slots=True)
class Sign:
    """What counts as met. Each qualifier has to have one of its values.

    `when` is judged on samples of the service, and has to hold in all of them for `holds` seconds on end. `after` is
    the id of an earlier stage: only what came after that was met counts.
    """

    event: str
    qualifiers: Mapping[str, tuple[str, ...]]
    where: str
    when: Condition | None = None
    holds: float = 0.0
    after: str = ""


@dataclass(frozen=True, slots=True)
class SopStage:
    """One stage. `due` in seconds from the start; the first of `met` that is seen meets it.

    `permits`: what may be done from then on. `notify`: names of those who are told when it is met, and when it is late.
    `step`: what is done next to meet it.
    """

    id: str
    title: str
    due: float
    met: tuple[Sign, ...]
    step: str
    where: str
    permits: tuple[str, ...] = ()
    notify: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sop:
    """One procedure. `permits`: what may be done from its start on. `notify`: who is told of its start and its end."""

    id: str
    title: str
    stages: tuple[SopStage, ...]
    where: str
    digest: str  # SHA-256 of `source`
    source: bytes  # the file as it was read
    permits: tuple[str, ...] = ()
    notify: tuple[str, ...] = ()
    explanation: str = ""

    def stage(self, name: str) -> SopStage | None:
        return next((stage for stage in self.stages if stage.id == name), None)

    def permitting(self, action: str) -> SopStage | None:
        """The first stage from which on `action` is permitted, if there is one."""
        return next((stage for stage in self.stages if allows(stage.permits, action)), None)


def allows(permits: Iterable[str], action: str) -> bool:
    """Whether `action` is among `permits`; who may run what is of higher risk may run what is of lower."""
    granted = set(permits)
    if action not in REMEDIES.values():
        return action in granted
    order = list(REMEDIES.values())
    return any(one in granted for one in order[order.index(action) :])


def needed(risk: str, disruption: str) -> tuple[str, ...]:
    """What has to be permitted for a playbook of that risk and disruption."""
    return (REMEDIES[risk], RESTART) if disruption == "restarts" else (REMEDIES[risk],)
