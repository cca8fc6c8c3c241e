"""What a diagnosis is, as frozen values: the JSON document is this, field by field."""

from __future__ import annotations

from msgspec import Struct

from latdoctor.conditions.evaluator import Atom
from latdoctor.diagnosis.codes import (
    AnswerKind,
    CauseStatus,
    CheckStatus,
    Confidence,
    FindingKind,
    Level,
    ReasonCode,
    TierCoverage,
    UserImpact,
)
from latdoctor.evidence.diff import Difference
from latdoctor.evidence.model import Coverage, Gap, Origin, SourceQuery, Value, Window
from latdoctor.evidence.speed import SpeedChange

SCHEMA_VERSION = "2"


class Reason(Struct, frozen=True):
    """Why a check has no outcome. `options` are the command-line options that would read a source for it."""

    code: ReasonCode
    message: str
    options: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()  # the signals that are missing, where the code is about signals


class Check(Struct, frozen=True):
    """A finding as reported. `ln_lambda` is how strongly the evidence speaks for (+) or against (−) it."""

    id: str
    status: CheckStatus
    message: str  # the finding with its numbers
    tier: str  # may be empty for symptoms
    kind: FindingKind
    severity: str
    required: bool
    subjects: tuple[str, ...]
    ln_lambda: float
    atoms: tuple[Atom, ...]
    reason: str = ""  # why it was not evaluated, or not applicable: the messages of `reasons`
    reasons: tuple[Reason, ...] = ()
    site: bool = False  # whether a limit of the site replaced a shipped one
    outage: bool = False  # where it fired, requests get no answer

    @property
    def source_missing(self) -> bool:
        """Whether it was not evaluated only because no source was read that shows it."""
        codes = [reason.code for reason in self.reasons]
        missing = ReasonCode.SOURCE_NOT_GIVEN, ReasonCode.NOT_SHOWN
        return self.status == CheckStatus.NOT_EVALUATED and codes[:1] == [missing[0]] and set(codes) <= set(missing)


class Contribution(Struct, frozen=True):
    """One line of the account of a cause's probability, in points: ten points make it ten times likelier."""

    points: int
    message: str
    check: str | None = None  # the finding behind it


class RankedCause(Struct, frozen=True):
    """A cause with its probability and the account of it against its best rival."""

    id: str
    title: str
    tier: str
    severity: str
    status: CauseStatus
    probability: float
    confidence: Confidence
    named: bool
    grounded: bool
    impact: UserImpact
    subjects: tuple[str, ...]
    evidence_for: tuple[str, ...]  # ids of fired checks that it expects
    evidence_against: tuple[str, ...]  # ids of clear checks that it expects, and of fired ones that rule it out
    unseen: tuple[str, ...]  # ids of checks that it expects and that were not evaluated
    rival: str
    contributions: tuple[Contribution, ...]
    explanation: str
    confirm: str
    remediation: str
    owner: str
    playbooks: tuple[str, ...]
    keep_evidence: bool


class Verdict(Struct, frozen=True):
    """How the service is."""

    level: Level
    message: str
    reasons: tuple[str, ...]


class RuledOut(Struct, frozen=True):
    """A cause that would explain something, but for findings that rule it out."""

    cause: str
    explains: tuple[str, ...]  # ids of unexplained checks that it expects
    by: tuple[str, ...]  # ids of the fired checks that rule it out


class Answer(Struct, frozen=True):
    """Why."""

    kind: AnswerKind
    causes: tuple[str, ...]
    no_known_cause: float  # P(∅) + P(other)
    unexplained: tuple[str, ...]  # fired specific checks that none of `causes` expects
    ruled_out: tuple[RuledOut, ...] = ()  # the likeliest first


class Tier(Struct, frozen=True):
    """One tier of the walk."""

    name: str
    seen: TierCoverage
    fired: tuple[str, ...]
    clear: tuple[str, ...]
    not_evaluated: tuple[str, ...]
    not_applicable: tuple[str, ...]


class NextSource(Struct, frozen=True):
    """A source that was not read and would change the ranking most; `bits` is the mutual information."""

    source: str
    ask: str
    cost: str
    bits: float
    checks: tuple[str, ...]


class Tool(Struct, frozen=True):
    name: str
    version: str


class Onset(Struct, frozen=True):
    """Since when it is slow, down or otherwise worse: the median of `signal` before, and from then on, in its unit.

    Both are 0 where `signal` is an event: of a server that gives no more answers, or of Kubernetes. Times are unix
    seconds UTC. `within`: by how many seconds `time` may be wrong either way; 0 where that is unknown.
    """

    time: float
    until: float | None  # null while it lasts to the end of what was read
    signal: str
    subject: str
    before: float
    after: float
    origin: Origin
    within: float = 0.0


class Change(Struct, frozen=True):
    """What changed shortly before. `seconds_before` the onset, or the end of the evidence where there is none."""

    kind: str  # the signal of the event: change.model, change.config, …
    subject: str
    time: float
    message: str
    seconds_before: float
    origin: Origin


class Place(Struct, frozen=True):
    """Where a cause stands in one diagnosis; `rank` counts from one."""

    rank: int
    probability: float
    named: bool


class CauseShift(Struct, frozen=True):
    """A cause that stands otherwise; None where that diagnosis does not list it."""

    id: str
    title: str
    before: Place | None
    after: Place | None


class CheckShift(Struct, frozen=True):
    """A finding whose status differs; None where those rules do not have it."""

    id: str
    kind: FindingKind
    before: CheckStatus | None
    after: CheckStatus | None
    message: str  # where it stands last

    @property
    def appeared(self) -> bool:
        return self.after == CheckStatus.FIRED

    @property
    def went(self) -> bool:
        return self.before == CheckStatus.FIRED


class Contrast(Struct, frozen=True):
    """The first diagnosis against the second."""

    verdicts: tuple[Verdict, Verdict]
    answers: tuple[Answer, Answer]
    causes: tuple[CauseShift, ...]  # in the order of the second, then what only the first lists
    checks: tuple[CheckShift, ...]

    @property
    def answer_changed(self) -> bool:
        """Whether the answer is another one: the level, or the named causes."""
        levels = {verdict.level for verdict in self.verdicts}
        first, second = self.answers
        return len(levels) > 1 or first.kind != second.kind or set(first.causes) != set(second.causes)

    @property
    def any(self) -> bool:
        return self.answer_changed or bool(self.causes or self.checks)


class Against(Struct, frozen=True):
    """The observation (`name`) against another moment or another replica (`than`), where that was requested."""

    name: str
    than: str
    contrast: Contrast
    values: tuple[Difference, ...]  # values that differ by more than a fifth or are seen on one side only
    speed: SpeedChange | None = None  # faster, slower or the same


class Vital(Struct, frozen=True):
    """A key number of what was measured. `part`: which of several, such as a kind of kernel; empty for the only one."""

    signal: str
    subject: str
    value: Value
    shown: str  # with its unit
    part: str = ""
    since: float | None = None  # unix seconds UTC: when it moved to this level, or an event first happened
    before: str = ""  # what it was before, with its unit


class Diagnosis(Struct, frozen=True):
    """Ranked causes with evidence for and against, the tier walk, and the gaps."""

    schema_version: str
    tool: Tool
    run_id: str
    generated_at: str  # RFC 3339 UTC
    target: str
    window: Window  # when it was looked
    evidence_window: Window  # the time that the evidence covers; null where it has no times
    verdict: Verdict
    since: Onset | None
    changes: tuple[Change, ...]  # the nearest first
    answer: Answer
    causes: tuple[RankedCause, ...]
    tiers: tuple[Tier, ...]
    checks: tuple[Check, ...]
    next_looks: tuple[NextSource, ...]
    coverage: tuple[Coverage, ...]
    gaps: tuple[Gap, ...]
    against: Against | None = None  # null without a comparison
    vitals: tuple[Vital, ...] = ()  # in the order of importance, the worst subject of each
    slo_p99: float | None = None  # seconds; null where none was given
    slo_error_ratio: float | None = None
    disabled_causes: tuple[str, ...] = ()  # of the catalogue, that the site does not want ranked
    service: str = ""  # the model and its deployment; the target where that is a name, or no more is known
    queries: tuple[SourceQuery, ...] = ()  # PromQL behind the checks, those that fired first
