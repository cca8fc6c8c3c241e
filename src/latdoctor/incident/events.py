"""What is journaled of an incident: the bodies of its entries, by kind. An entry's `run` is the incident's id.

A run of a playbook keeps its own entries under its own id; `RUN_JOINED` says which incident it was for. Times in a body
are unix seconds by the clock of whoever told them; an entry's own time is this machine's.
"""

from __future__ import annotations

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

FIRING, RESOLVED = "firing", "resolved"
BY_ALERT, BY_HAND = "alert", "hand"
REAL, FALSE_ALARM, UNKNOWN = "confirmed", "false-alarm", "unknown"


class IncidentOpened(Struct, frozen=True):
    """`targets`: names of configured targets or addresses of servers; none: whatever is looked at while it is open.

    `began`: when the trouble began, by `clock` ("alertmanager", "given by hand"); None: not told. `hosts`: those of
    `targets` that are neither configured nor an address with a port.
    """

    title: str
    targets: tuple[str, ...]
    source: str  # BY_ALERT | BY_HAND
    sop: str
    sop_digest: str
    began: float | None = None
    clock: str = ""
    by: str = ""
    key: str = ""  # of the alert's group, by which its repetitions are known
    hosts: tuple[str, ...] = ()


class Alert(Struct, frozen=True):
    """One alert of a notification. `fingerprint` tells it from others. `cut`: what of it was too much to be kept."""

    fingerprint: str
    status: str  # FIRING | RESOLVED
    name: str
    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at: float | None = None
    ends_at: float | None = None
    generator: str = ""
    cut: str | UnsetType = UNSET  # not written where nothing was


class AlertsReceived(Struct, frozen=True):
    """A notification that brought something new. `truncated`: alerts that the sender left out."""

    key: str
    receiver: str
    alerts: tuple[Alert, ...]
    truncated: int = 0


class AlertConfirmed(Struct, frozen=True):
    """What a look at the service itself said of the alert."""

    status: str  # REAL | FALSE_ALARM | UNKNOWN
    message: str = field(name="says")
    diagnosis: str = ""  # its run_id


class CauseRecord(Struct, frozen=True):
    """A cause as a diagnosis named it, or as a candidate. `because`: what its fired findings say."""

    id: str
    title: str
    tier: str
    probability: float
    named: bool
    subjects: tuple[str, ...]
    because: tuple[str, ...]
    against: tuple[str, ...] = ()
    playbooks: tuple[str, ...] = ()


class DiagnosisRecord(Struct, frozen=True):
    """A diagnosis in short. `document` and `bundle` are files in the state folder; empty where none was kept."""

    run_id: str
    target: str
    level: str  # of the verdict
    message: str = field(name="says")
    answer: str  # its kind
    causes: tuple[CauseRecord, ...]
    unseen: tuple[str, ...]  # why something could not be seen
    seen_from: float | None = None
    seen_until: float | None = None
    since: float | None = None  # since when it is slow
    document: str = ""
    bundle: str = ""
    fired: tuple[str, ...] = ()  # ids of the specific findings that held: what tells incidents apart
    servers: tuple[str, ...] = ()  # the pages that were read, where that was no replay under other names


class PlanRecord(Struct, frozen=True):
    """A plan that was made. Nothing was changed by it."""

    playbook: str
    title: str
    digest: str
    target: str
    risk: str
    cause: str = ""


class RunJoined(Struct, frozen=True):
    joined: str  # the id of the run


class ServiceSampled(Struct, frozen=True):
    """How the service stood for `seconds`: by subject and signal, in base units. None: not known.

    `bounds`: where a value is only "at least" or "at most" what there is. `over_slo_between`: where the SLO lies within
    a bucket of the server's, at least and at most so many; `over_slo` is not known then.
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
    """A human says that a stage of the SOP is met."""

    stage: str
    by: str = ""
    text: str = ""


class NotificationStarted(Struct, frozen=True):
    """A receiver is about to be told. Journaled before it is, so that each try counts, also one that was killed."""

    to: str
    what: str
    key: str


class NotificationSent(Struct, frozen=True):
    """How that went. `key`: which message it was; the same when it is tried again.

    `unsure`: it may have arrived all the same. `again_after`: seconds after which it may be tried again; None: no more.
    """

    to: str
    what: str
    key: str
    sent: bool
    why: str = ""
    unsure: bool = False
    again_after: float | None = None


class IncidentClosed(Struct, frozen=True):
    outcome: str  # resolved | false-alarm
    message: str = field(default="", name="says")
    by: str = ""
