"""What a diagnosis is, as frozen values: the JSON document is this, field by field."""

from __future__ import annotations

from msgspec import Struct

from latdoctor.evidence.judging import Atom
from latdoctor.evidence.model import Coverage, Gap, Origin, Window

SCHEMA_VERSION = "1"


class Check(Struct, frozen=True):
    """A finding as reported. `ln_lambda` is how strongly the evidence speaks for (+) or against (−) it."""

    id: str
    status: str  # fired | clear | not-evaluated | not-applicable
    says: str  # the finding with its numbers
    tier: str  # may be empty for symptoms
    kind: str
    severity: str
    required: bool
    subjects: tuple[str, ...]
    ln_lambda: float
    atoms: tuple[Atom, ...]
    reason: str = ""  # why it was not evaluated, or not applicable


class Contribution(Struct, frozen=True):
    """One line of the account of a cause's probability, in points: ten points make it ten times likelier."""

    points: int
    says: str
    check: str | None = None  # the finding behind it


class RankedCause(Struct, frozen=True):
    """A cause with its probability and the account of it against its best rival."""

    id: str
    title: str
    tier: str
    severity: str
    status: str
    probability: float
    confidence: str  # confirmed | likely | candidate
    named: bool
    grounded: bool
    standing: str  # hurting | present, not hurting | harm not seen
    subjects: tuple[str, ...]
    evidence_for: tuple[str, ...]  # ids of fired checks that it expects
    evidence_against: tuple[str, ...]  # ids of clear checks that it expects, and of fired ones that rule it out
    unseen: tuple[str, ...]  # ids of checks that it expects and that were not evaluated
    rival: str
    contributions: tuple[Contribution, ...]
    explanation: str
    confirm: str
    mend: str
    owner: str
    playbooks: tuple[str, ...]
    keep_evidence: bool


class Verdict(Struct, frozen=True):
    """How the service is. `level`: critical | warning | info | healthy | inconclusive."""

    level: str
    says: str
    reasons: tuple[str, ...]


class Answer(Struct, frozen=True):
    """Why. `kind`: named | one-of | unexplained | none."""

    kind: str
    causes: tuple[str, ...]
    no_known_cause: float  # P(∅) + P(other)
    unexplained: tuple[str, ...]  # fired specific checks that none of `causes` expects


class Tier(Struct, frozen=True):
    """One tier of the walk."""

    name: str
    seen: str  # seen | partly | unseen | not-applicable
    fired: tuple[str, ...]
    clear: tuple[str, ...]
    not_evaluated: tuple[str, ...]
    not_applicable: tuple[str, ...]


class NextLook(Struct, frozen=True):
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
    """Since when it is slow: the median of `signal` (seconds) before, and from then on. Times unix seconds UTC."""

    time: float
    until: float | None  # null while it lasts to the end of what was read
    signal: str
    subject: str
    before: float
    after: float
    origin: Origin


class Change(Struct, frozen=True):
    """What changed shortly before. `seconds_before` the onset, or the end of the evidence where there is none."""

    kind: str  # the signal of the event: change.model, change.config, …
    subject: str
    time: float
    says: str
    seconds_before: float
    origin: Origin


class Diagnosis(Struct, frozen=True):
    """Ranked causes with evidence for and against, the tier walk, and the gaps."""

    schema_version: str
    tool: Tool
    run_id: str
    generated_at: str  # RFC 3339 UTC
    target: str
    window: Window  # when it was looked
    evidence_window: Window  # the time that the evidence itself tells of; null where it does not
    verdict: Verdict
    since: Onset | None
    changes: tuple[Change, ...]  # the nearest first
    answer: Answer
    causes: tuple[RankedCause, ...]
    tiers: tuple[Tier, ...]
    checks: tuple[Check, ...]
    next_looks: tuple[NextLook, ...]
    coverage: tuple[Coverage, ...]
    gaps: tuple[Gap, ...]
