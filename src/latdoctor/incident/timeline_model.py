"""Types of an incident's timeline; the JSON document has exactly these fields.

All texts are cleaned. Seconds count from `Timeline.start`; times are RFC 3339 in UTC.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from latdoctor.incident.events import Alert, CauseRecord
from latdoctor.incident.sop.clock import StageStatus

SCHEMA_VERSION = "1"

OWN = "this machine"  # clock of the journal's own times


class Basis(StrEnum):
    """How a statement is known."""

    FACT = "fact"  # measured, done or received
    INFERENCE = "inference"  # of a diagnosis
    REPORTED = "said"  # by a human


class TimelineSubject(StrEnum):
    """What a timeline is about."""

    INCIDENT = "incident"
    RUN = "run"


class TimelineEvent(Struct, frozen=True):
    """One event of the timeline.

    `clock` names the clock of `at`: this machine's, or the sender's. `measured` is how `seconds` were measured:
    `monotonic` within one boot, else the difference of two wall clocks; null where a clock was set back, so that only
    the order is known. `part` distinguishes several events of one entry; empty for the entry itself.
    """

    at: str
    clock: str
    seconds: float | None
    measured: str  # monotonic | wall
    kind: str  # of the entry: events.*, or a kind of a run's entries
    part: str
    message: str
    basis: Basis
    by: str  # author; empty where unknown
    run: str  # the entry's own: an incident's id, or that of a run
    seq: int  # in the journal
    digest: str  # of the entry
    evidence: tuple[str, ...] = ()  # files in the state folder
    level: str = ""  # level of a verdict, or critical for a failure; for markers on a page

    @property
    def id(self) -> str:
        """Stable across renderings."""
        return f"{self.digest}.{self.part}" if self.part else self.digest


class TimelineStart(Struct, frozen=True):
    """Origin of the seconds. `digest`: its entry."""

    at: str
    clock: str
    message: str
    digest: str


class StageReport(Struct, frozen=True):
    """A stage of the SOP at the last entry. `due` and `margin` (remaining; negative: late by) are seconds."""

    id: str
    title: str
    due: float
    status: StageStatus
    met_at: str | None = None
    margin: float | None = None
    digest: str = ""  # the entry that met it
    how: str = ""  # message of that entry
    why: str = ""  # reason of an unknown status, or what is known of an unmet stage


class ResponseTime(Struct, frozen=True):
    """MTTD, MTTA, MTTM or MTTR of this incident. `seconds` is null where an event is missing, with the reason `why`."""

    id: str
    title: str
    definition: str
    seconds: float | None
    begins: str = ""  # first event, and its source
    ends: str = ""
    basis: Basis = Basis.FACT
    measured: str = ""
    begin_digest: str = ""
    end_digest: str = ""
    why: str = ""


class Impact(Struct, frozen=True):
    """User impact. Null is unknown; unmeasured time never counts as good.

    `span` is the time from the start to the end (or the last entry); `seen` the measured part, of which `over` and
    `within` were judged against the SLO. `requests`, and the minimum `requests_over` and maximum `requests_over_most`
    of late ones, cover `counted` seconds.
    """

    definition: str
    span: float
    seen: float
    over: float | None
    within: float | None
    unjudged: float  # watched, and no P99 or no SLO known
    requests: float | None
    requests_over: float | None
    requests_over_most: float | None
    counted: float
    slo_p99: tuple[float, ...]  # the SLOs that were judged by, seconds
    worst_p99: float | None
    sources: tuple[str, ...]

    @property
    def unseen(self) -> float:
        return max(0.0, self.span - self.seen)


class DiagnosisEvent(Struct, frozen=True):
    """A diagnosis in short."""

    at: str
    seconds: float | None
    digest: str
    run_id: str
    target: str
    level: str
    message: str
    answer: str
    causes: tuple[CauseRecord, ...]
    fired: tuple[str, ...]  # ids of the specific findings that fired
    unseen: tuple[str, ...]
    since: str | None = None  # since when it is slow
    document: str = ""
    bundle: str = ""


class ChangedValue(Struct, frozen=True):
    """One value that a run changed. `stands`: the change may still be in place."""

    step: str
    resource: str
    name: str
    before: str
    after: str
    stands: bool


class MeasuredSignal(Struct, frozen=True):
    """A signal before a run and in the last observation after it, in base units."""

    signal: str
    message: str
    subject: str
    before: float
    after: float | None


class RunReport(Struct, frozen=True):
    """A run of a playbook. `outcome` is empty while it has not ended."""

    id: str
    playbook: str
    title: str
    target: str
    risk: str
    cause: str  # named cause that it addresses; may be empty
    outcome: str
    reason: str
    opened_at: str
    ended_at: str | None
    seconds: float | None  # that it took
    changes: tuple[ChangedValue, ...]
    figures: tuple[MeasuredSignal, ...]

    @property
    def stands(self) -> bool:
        """Whether the run is verified and nothing was rolled back."""
        return self.outcome == "verified"


class SloSample(Struct, frozen=True):
    """State of the service in the `length` seconds before `seconds`: values by subject and signal, in base units.

    `bounds`: marks values that are only a lower or upper bound. `over_slo_between`: minimum and maximum count where the
    exact one is unknown.
    """

    at: str
    seconds: float | None
    length: float
    digest: str
    values: dict[str, dict[str, float]]
    requests: float | None
    over_slo: float | None
    slo_p99: float | None
    bounds: dict[str, dict[str, str]] = {}
    over_slo_between: tuple[float, float] | None = None


class LastEntry(Struct, frozen=True):
    """The last entry of the timeline, which is complete up to there."""

    seq: int
    digest: str
    at: str


class Timeline(Struct, frozen=True):
    """An incident or a single run, from its start to the end of the journal."""

    schema_version: str
    subject: TimelineSubject
    id: str
    title: str
    targets: tuple[str, ...]
    source: str  # alert | hand | run
    sop: str
    opened_at: str
    closed_at: str | None
    outcome: str  # resolved | false-alarm; of a run its own; empty while it goes on
    start: TimelineStart
    last: LastEntry
    stages: tuple[StageReport, ...]
    measures: tuple[ResponseTime, ...]
    impact: Impact
    alerts: tuple[Alert, ...]
    looks: tuple[DiagnosisEvent, ...]
    runs: tuple[RunReport, ...]
    responders: tuple[str, ...]
    moments: tuple[TimelineEvent, ...]
    samples: tuple[SloSample, ...]
    unseen: tuple[str, ...]  # reasons for missing evidence

    @property
    def open(self) -> bool:
        return self.closed_at is None
