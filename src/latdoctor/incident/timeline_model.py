"""What the timeline of an incident is, as frozen values: the JSON document is this, field by field.

Every text in it has been cleaned. Seconds are those since `Timeline.start`; times are RFC 3339 in UTC.
"""

from __future__ import annotations

from msgspec import Struct

from latdoctor.incident.events import Alert, CauseRecord

SCHEMA_VERSION = "1"

FACT, INFERENCE, SAID = "fact", "inference", "said"
OWN = "this machine"  # whose clock the journal's own times are by
INCIDENT, RUN = "incident", "run"


class TimelineEvent(Struct, frozen=True):
    """One moment of the timeline.

    `clock` is whose clock told the time: this machine's, or that of whoever is named there. `measured` is what
    `seconds` were counted with: `monotonic` within one boot, else the difference of two wall clocks; null where a clock
    was set back meanwhile, so that the order is known and the time is not. `part` tells moments apart that one entry of
    the journal tells of; it is empty for the entry itself.
    """

    at: str
    clock: str
    seconds: float | None
    measured: str  # monotonic | wall
    kind: str  # of the entry: events.*, or a kind of a run's entries
    part: str
    message: str
    basis: str  # FACT: measured, done or received | INFERENCE: of a diagnosis | SAID: by a human
    by: str  # who said or did it; empty where the journal does not tell
    run: str  # the entry's own: an incident's id, or that of a run
    seq: int  # in the journal
    digest: str  # of the entry
    evidence: tuple[str, ...] = ()  # files in the state folder
    level: str = ""  # of a diagnosis' verdict, critical where something failed; for marks on a screen

    @property
    def id(self) -> str:
        """The same whenever it is told again."""
        return f"{self.digest}.{self.part}" if self.part else self.digest


class TimelineStart(Struct, frozen=True):
    """What the seconds are counted from. `digest`: the entry that tells it."""

    at: str
    clock: str
    message: str
    digest: str


class StageReport(Struct, frozen=True):
    """A stage of the SOP, as its clock stood with the last entry. `due` and `margin` (to spare; negative: too late) are
    seconds.
    """

    id: str
    title: str
    due: float
    status: str  # met | late | unmet | unknown
    met_at: str | None = None
    margin: float | None = None
    digest: str = ""  # the entry that met it
    how: str = ""  # what that says
    why: str = ""  # why it is unknown, or what is known of one that is not met


class ResponseTime(Struct, frozen=True):
    """One of MTTD, MTTA, MTTM, MTTR of this incident alone. `seconds` is null where a moment is missing: `why`."""

    id: str
    title: str
    definition: str
    seconds: float | None
    begins: str = ""  # the moment it was counted from, and who told it
    ends: str = ""
    basis: str = FACT
    measured: str = ""
    begin_digest: str = ""
    end_digest: str = ""
    why: str = ""


class Impact(Struct, frozen=True):
    """What it cost. Null is not known; what was not seen is never taken for well.

    `span` is the whole time from the start to the end (or to the last entry); `seen` the part of it that was watched,
    of which `over` and `within` were judged against the SLO. `requests`, and at least `requests_over` and at most
    `requests_over_most` of them that were late, are of `counted` seconds.
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
    fired: tuple[str, ...]  # ids of the specific findings that held
    unseen: tuple[str, ...]
    since: str | None = None  # since when it is slow
    document: str = ""
    bundle: str = ""


class ChangedValue(Struct, frozen=True):
    """One value that a run changed. `stands`: it may still be so."""

    step: str
    resource: str
    name: str
    before: str
    after: str
    stands: bool


class MeasuredSignal(Struct, frozen=True):
    """A signal before a run and in its last look after it, in base units."""

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
    cause: str  # that it was to mend, as a diagnosis named it; may be empty
    outcome: str
    reason: str
    opened_at: str
    ended_at: str | None
    seconds: float | None  # that it took
    changes: tuple[ChangedValue, ...]
    figures: tuple[MeasuredSignal, ...]

    @property
    def stands(self) -> bool:
        """Whether it verified, and nothing of it was taken back since."""
        return self.outcome == "verified"


class SloSample(Struct, frozen=True):
    """How the service stood in the `length` seconds before `seconds`: by subject and signal, in base units.

    `bounds`: where a value is only "at least" or "at most" what there is. `over_slo_between`: at least and at most so
    many, where no more is known.
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
    """The last entry that is told of: up to here the timeline is whole."""

    seq: int
    digest: str
    at: str


class Timeline(Struct, frozen=True):
    """An incident (or a single run) from its start to where the journal ends."""

    schema_version: str
    subject: str  # INCIDENT | RUN
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
    unseen: tuple[str, ...]  # what could not be seen, and why

    @property
    def open(self) -> bool:
        return self.closed_at is None
