"""Standard operating procedure: stages with due times, the evidence that meets them, and the actions they permit.

A stage is met by a sign: a journal entry of a given kind with matching qualifiers, or a condition that holds in service
samples. `KINDS` lists the allowed qualifiers; `stage_evidence` evaluates signs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from latdoctor.conditions.ast import Condition
from latdoctor.incident import events
from latdoctor.incident.events import AlertStatus, Confirmation
from latdoctor.remediation.playbook import Risk

LOOK: Final = "diagnose"
RESTART: Final = "restart"
REMEDIES: Final[Mapping[str, str]] = {risk: f"remediate-{risk}" for risk in Risk}  # by risk, the lowest first
ACTIONS: Final = (LOOK, *REMEDIES.values(), RESTART)

# Next steps of a stage; `next_step` turns them into commands.
STEPS: Final = ("diagnose", "remediate", "close")

# Kinds of a run's own entries that signs can use; the others are those of `events`.
RUN_OPENED, RUN_CLOSED = "run.opened", "run.closed"

# Allowed values by kind and qualifier. Values that mean "unknown" meet nothing and are not listed.
KINDS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    events.ALERTED: {"status": (AlertStatus.FIRING, AlertStatus.RESOLVED)},
    events.CONFIRMED: {"status": (Confirmation.CONFIRMED, Confirmation.FALSE_ALARM)},
    events.DIAGNOSED: {
        "answer": ("named", "one-of", "unexplained", "none"),
        "level": ("critical", "warning", "info", "healthy"),
        "tier": ("infrastructure", "framework", "application"),
    },
    events.PLANNED: {"risk": tuple(Risk)},
    RUN_OPENED: {"risk": tuple(Risk)},
    RUN_CLOSED: {"outcome": ("verified", "rolled-back", "failed", "refused", "held")},
    events.SAMPLED: {},
    events.NOTIFIED: {"sent": ("true", "false")},
    events.CLOSED: {"outcome": ("resolved", Confirmation.FALSE_ALARM)},
}


@dataclass(frozen=True, slots=True)
class Sign:
    """Evidence that meets a stage. Each qualifier must have one of its values.

    `when` is evaluated on service samples, and must hold in all of them for `holds` consecutive seconds. `after` is the
    id of an earlier stage: only evidence from after that stage was met counts.
    """

    event: str
    qualifiers: Mapping[str, tuple[str, ...]]
    where: str
    when: Condition | None = None
    holds: float = 0.0
    after: str = ""


@dataclass(frozen=True, slots=True)
class SopStage:
    """One stage. `due` in seconds from the start; the first sign of `met` that occurs meets it.

    `permits`: actions permitted from then on. `notify`: receivers notified when it is met or late. `step`: the kind of
    the next step.
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
    """One procedure. `permits`: actions permitted from the start. `notify`: receivers of its start and end."""

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
    """Whether `action` is among `permits`; permission for a higher risk includes lower ones."""
    granted = set(permits)
    if action not in REMEDIES.values():
        return action in granted
    order = list(REMEDIES.values())
    return any(one in granted for one in order[order.index(action) :])


def needed(risk: str, disruption: str) -> tuple[str, ...]:
    """Permissions that a playbook of that risk and disruption needs."""
    return (REMEDIES[risk], RESTART) if disruption == "restarts" else (REMEDIES[risk],)
