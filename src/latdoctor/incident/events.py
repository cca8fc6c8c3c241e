"""Bodies of an incident's journal entries, by kind. An entry's `run` is the incident's id.

A playbook run has entries under its own id; `RUN_JOINED` links it to its incident. Times in a body are unix seconds by
the sender's clock; the time of an entry is by this machine's clock.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import UNSET, Struct, UnsetType, field

OPENED = "incident.opened"
ALERTED = "alert.received"
CONFIRMED = "alert.confirmed"
DIAGNOSED = "diagnosis.made"
PLANNED = "plan.made"
RUN_JOINED = "run.joined"
SAMPLED = "service.sampled"
NOTED = "note.made"
MARKED = "stage.marked"
NOTIFYING = "notification.begun"
NOTIFIED = "notification.sent"
CLOSED = "incident.closed"


class AlertStatus(StrEnum):
    """Status of an alert, as Alertmanager sends it."""

    FIRING = "firing"
    RESOLVED = "resolved"


class OpenedBy(StrEnum):
    """What opened an incident."""

    ALERT = "alert"
    HAND = "hand"


class Confirmation(StrEnum):
    """Result of checking an alert by a diagnosis."""

    CONFIRMED = "confirmed"
    FALSE_ALARM = "false-alarm"
    UNKNOWN = "unknown"


class IncidentOutcome(StrEnum):
    """How an incident ended."""

    RESOLVED = "resolved"
    FALSE_ALARM = "false-alarm"


class IncidentOpened(Struct, frozen=True):
    """Opening of an incident. `targets`: configured names or server addresses; empty: any target diagnosed while open.

    `began`: start of the trouble by `clock` ("alertmanager", "given by hand"); None: unknown. `hosts`: those of
    `targets` that are neither configured nor an address with a port.
    """

    title: str
    targets: tuple[str, ...]
    source: OpenedBy
    sop: str
    sop_digest: str
    began: float | None = None
    clock: str = ""
    by: str = ""
    key: str = ""  # of the alert's group, by which its repetitions are known
    hosts: tuple[str, ...] = ()


class Alert(Struct, frozen=True):
    """One alert of a notification, identified by `fingerprint`. `cut`: what was dropped to fit the size limits."""

    fingerprint: str
    status: AlertStatus
    name: str
    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at: float | None = None
    ends_at: float | None = None
    generator: str = ""
    cut: str | UnsetType = UNSET  # absent where nothing was dropped


class AlertsReceived(Struct, frozen=True):
    """A notification that brought something new. `truncated`: alerts that the sender left out."""

    key: str
    receiver: str
    alerts: tuple[Alert, ...]
    truncated: int = 0


class AlertConfirmed(Struct, frozen=True):
    """Verdict of a diagnosis on whether the alert is real."""

    status: Confirmation
    message: str = field(name="says")
    diagnosis: str = ""  # its run_id


class CauseRecord(Struct, frozen=True):
    """A cause as named by a diagnosis, or a candidate. `because`: messages of its fired findings."""

    id: str
    title: str
    tier: str
    probability: float
    named: bool
    subjects: tuple[str, ...]
    because: tuple[str, ...]
    against: tuple[str, ...] = ()
    playbooks: tuple[str, ...] = ()


class ChangeRecord(Struct, frozen=True):
    """Something that was changed about the service, as the evidence shows. `at`: unix seconds."""

    at: float
    kind: str  # the signal of the event: change.deploy, change.config, …
    message: str


class DiagnosisRecord(Struct, frozen=True):
    """Short form of a diagnosis. `document` and `bundle` are files in the state folder; empty: not stored."""

    run_id: str
    target: str
    level: str  # of the verdict; text, as a journal may hold the level of a newer version
    message: str = field(name="says")
    answer: str  # its kind
    causes: tuple[CauseRecord, ...]
    unseen: tuple[str, ...]  # reasons for missing evidence
    seen_from: float | None = None
    seen_until: float | None = None
    since: float | None = None  # since when it is slow
    document: str = ""
    bundle: str = ""
    fired: tuple[str, ...] = ()  # ids of the specific findings that fired, for comparing incidents
    servers: tuple[str, ...] = ()  # metrics pages that were read; empty for a redacted replay
    changes: tuple[ChangeRecord, ...] = ()  # before the onset, the nearest first


class PlanRecord(Struct, frozen=True):
    """A plan of a playbook. Planning changes nothing."""

    playbook: str
    title: str
    digest: str
    target: str
    risk: str
    cause: str = ""


class RunJoined(Struct, frozen=True):
    joined: str  # the id of the run


class ServiceSampled(Struct, frozen=True):
    """State of the service over `seconds`: values by subject and signal, in base units. None: unknown.

    `bounds`: marks values that are only a lower or upper bound. `over_slo_between`: minimum and maximum count where the
    SLO is inside a histogram bucket; `over_slo` is None then.
    """

    seconds: float
    values: dict[str, dict[str, float]]
    requests: float | None = None  # answered well
    over_slo: float | None = None  # of these, later than the SLO
    slo_p99: float | None = None  # seconds
    bounds: dict[str, dict[str, str]] = {}
    over_slo_between: tuple[float, float] | None = None


class NoteAdded(Struct, frozen=True):
    text: str
    by: str = ""


class StageMarked(Struct, frozen=True):
    """An operator marks a stage of the SOP as met."""

    stage: str
    by: str = ""
    text: str = ""


class NotificationStarted(Struct, frozen=True):
    """An attempt to notify a receiver, journaled before sending, so that a killed attempt counts too."""

    to: str
    what: str
    key: str


class NotificationSent(Struct, frozen=True):
    """Result of an attempt. `key` identifies the message across attempts.

    `unsure`: the message may have been delivered. `again_after`: seconds before the next attempt; None: no retry.
    """

    to: str
    what: str
    key: str
    sent: bool
    why: str = ""
    unsure: bool = False
    again_after: float | None = None


class IncidentClosed(Struct, frozen=True):
    outcome: IncidentOutcome
    message: str = field(default="", name="says")
    by: str = ""
