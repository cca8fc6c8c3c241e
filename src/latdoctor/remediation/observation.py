"""One observation during a run, and the evaluation of conditions on it. Unknown is never a success."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from latdoctor.conditions.ast import Condition, comparisons, in_words
from latdoctor.conditions.evaluator import (
    FAILS,
    HOLDS,
    UNKNOWN,
    Atom,
    Compare,
    Facts,
    Truth,
    TruthStatus,
    candidates,
    evaluate,
)
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.model import Evidence, is_unknown
from latdoctor.evidence.page_state import PageState
from latdoctor.remediation.playbook import ClearedFinding

SignalValues = Mapping[tuple[str, str], float]  # (signal, subject) → value in base units


@dataclass(frozen=True, slots=True)
class Observation:
    """The evidence from `started` to `ended` (unix seconds), and the status of each finding: `fired`, `clear`, ….

    `bundle` contains the artifacts that it was parsed from, `pages` what tells the processes behind its pages apart.
    """

    evidence: Evidence
    findings: Mapping[str, str]
    slo: Mapping[str, float]
    started: float
    ended: float
    bundle: Bundle | None = None
    baseline: SignalValues = field(default_factory=dict)
    pages: tuple[PageState, ...] = ()

    @property
    def values(self) -> SignalValues:
        """Its known numbers, for conditions that compare with the values before the change."""
        return {
            (reading.signal, reading.subject): float(reading.value)
            for reading in self.evidence.readings
            if not reading.labels and not isinstance(reading.value, str) and not is_unknown(reading.value)
        }


# Observes for the given number of seconds. Raises LatdoctorError if no source can be read.
Observe = Callable[[float], Observation]


class ConditionResult(Struct, frozen=True):
    """A condition or finding evaluated on one observation, for the journal and for people."""

    text: str
    status: TruthStatus
    shown: str = ""  # "latency.p99 is 310 ms, expected < 250 ms (0.5 x before)"

    @property
    def summary(self) -> str:
        """The measured values, preceded by the condition unless they name its signal."""
        values = self.shown or self.status
        return values if self.text.lstrip("(").split(" ")[0] in values else f"{self.text}: {values}"


def evaluate_all(
    condition: Condition, observation: Observation, before: SignalValues, compare: Compare | None = None
) -> ConditionResult:
    """Holds if it holds for every subject that has the signal; unknown if it is unknown for one and fails for none."""
    return _combined(condition, observation, before, (FAILS, UNKNOWN, HOLDS), compare)


def evaluate_any(condition: Condition, observation: Observation, before: SignalValues) -> ConditionResult:
    """Holds if it holds for any subject: for conditions that abort a run."""
    return _combined(condition, observation, before, (HOLDS, UNKNOWN, FAILS))


_CLEARED = {"clear": "yes", "fired": "no, it still fires"}


def evaluate_cleared(finding: str, observation: Observation) -> ConditionResult:
    """Whether a finding is clear. A finding that was not evaluated is unknown."""
    status = observation.findings.get(finding, "not-evaluated")
    cleared = {"clear": HOLDS, "fired": FAILS}.get(status, UNKNOWN)
    return ConditionResult(f"{finding} cleared", cleared, _CLEARED.get(status, "not evaluated"))


def evaluate_mechanism(
    item: ClearedFinding | Condition, observation: Observation, before: SignalValues, compare: Compare | None = None
) -> ConditionResult:
    """Whether a finding of `Verify.mechanism` is clear, or a condition of it holds for every subject."""
    if isinstance(item, str):
        return evaluate_cleared(item, observation)
    return evaluate_all(item, observation, before, compare)


def left_signals(conditions: Iterable[Condition]) -> tuple[str, ...]:
    """The signals on the left of the comparisons, each once: the rows of a before/after table."""
    return tuple(dict.fromkeys(c.left.signal for condition in conditions for c in comparisons(condition)))


def _combined(
    condition: Condition,
    observation: Observation,
    before: SignalValues,
    precedence: tuple[TruthStatus, TruthStatus, TruthStatus],
    compare: Compare | None = None,
) -> ConditionResult:
    """The status that comes first in `precedence` among the subjects; unknown without a subject."""
    truths = list(_truths(condition, observation, before, compare))
    statuses = {truth.status for truth in truths} or {UNKNOWN}
    status = next(status for status in precedence if status in statuses)
    return ConditionResult(in_words(condition), status, _measured(truths, status))


def _truths(
    condition: Condition, observation: Observation, before: SignalValues, compare: Compare | None
) -> Iterator[Truth]:
    facts = Facts(observation.evidence, observation.slo, observation.baseline, before)
    inner, outer = candidates(condition, facts)
    for subject in inner:
        yield evaluate(condition, subject, facts, compare)
    for subject in outer:
        truth = evaluate(condition, subject, facts, compare)
        if truth.status != UNKNOWN:  # a parent subject counts only with signals of its own
            yield truth


def _measured(truths: Iterable[Truth], status: str) -> str:
    """The values behind `status`, each once."""
    relevant = [truth for truth in truths if truth.status == status]
    if not relevant:
        return "not measured"
    atoms = [atom for truth in relevant for atom in _deciding(truth)]
    several = len({atom.subject for atom in atoms}) > 1
    known = [_atom_text(atom, several=several) for atom in atoms]
    missing = [f"{name} is unknown" for truth in relevant for name in truth.missing]
    return "; ".join(dict.fromkeys([*known, *missing, *(why for truth in relevant for why in truth.unsettled)]))


def _deciding(truth: Truth) -> Sequence[Atom]:
    """The atoms that explain the status: what holds, or is explained by `unsettled`, leaves nothing unknown."""
    if truth.status != UNKNOWN or not truth.unsettled:
        return truth.atoms
    return [atom for atom in truth.atoms if atom.status == FAILS]


def _atom_text(atom: Atom, *, several: bool) -> str:
    subject = f" of {atom.subject}" if several else ""
    return f"{atom.signal}{subject} is {atom.shown}, expected {atom.operator} {atom.limit}"
