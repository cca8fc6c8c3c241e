"""One look during a run, and what conditions say of it. Unknown is never a success."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from latdoctor.conditions.ast import Condition, comparisons, in_words
from latdoctor.conditions.evaluator import FAILS, HOLDS, UNKNOWN, Atom, Facts, Truth, candidates, evaluate
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.model import Evidence, is_unknown

Remembered = Mapping[tuple[str, str], float]  # (signal, subject) → value


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen from `started` to `ended` (unix seconds), and the state of each finding: `fired`, `clear`, ….

    `bundle` is what it was read from, so that it can be kept.
    """

    evidence: Evidence
    findings: Mapping[str, str]
    slo: Mapping[str, float]
    started: float
    ended: float
    bundle: Bundle | None = None
    baseline: Remembered = field(default_factory=dict)

    @property
    def remembered(self) -> Remembered:
        """Its known numbers, for conditions that compare with what was before."""
        return {
            (reading.signal, reading.subject): float(reading.value)
            for reading in self.evidence.readings
            if not reading.labels and not isinstance(reading.value, str) and not is_unknown(reading.value)
        }


# Looks for that many seconds. Raises LatdoctorError where nothing could be seen.
Observe = Callable[[float], Observation]


class Judged(Struct, frozen=True):
    """A condition or finding as it stood in one look, for the journal and for people."""

    text: str
    status: str  # holds | fails | unknown
    shown: str = ""  # "latency.p99 is 310 ms, wanted < 250 ms (0.5 x before)"

    @property
    def told(self) -> str:
        """What was seen, with the condition where that does not tell which one it was."""
        seen = self.shown or self.status
        return seen if self.text.lstrip("(").split(" ")[0] in seen else f"{self.text}: {seen}"


def judged(condition: Condition, observation: Observation, before: Remembered) -> Judged:
    """It holds only where it does for every subject that shows it; one that cannot be told makes it unknown."""
    truths = list(_truths(condition, observation, before))
    statuses = {truth.status for truth in truths}
    status = FAILS if FAILS in statuses else UNKNOWN if UNKNOWN in statuses or not statuses else HOLDS
    return Judged(in_words(condition), status, _shown(truths, status))


def any_holds(condition: Condition, observation: Observation, before: Remembered) -> Judged:
    """It holds where it does for any subject: what shall make a run stop."""
    truths = list(_truths(condition, observation, before))
    statuses = {truth.status for truth in truths}
    status = HOLDS if HOLDS in statuses else UNKNOWN if UNKNOWN in statuses or not statuses else FAILS
    return Judged(in_words(condition), status, _shown(truths, status))


def cleared(finding: str, observation: Observation) -> Judged:
    """Whether a finding is clear now: what did not fire because nobody could look is unknown."""
    found = observation.findings.get(finding, "not-evaluated")
    status = {"clear": HOLDS, "fired": FAILS}.get(found, UNKNOWN)
    return Judged(f"{finding} clear", status, found.replace("-", " "))


def signals_judged(conditions: Iterable[Condition]) -> tuple[str, ...]:
    """The signals on the left of the conditions, each once: what a before/after table shows."""
    return tuple(dict.fromkeys(c.left.signal for condition in conditions for c in comparisons(condition)))


def _truths(condition: Condition, observation: Observation, before: Remembered) -> Iterator[Truth]:
    facts = Facts(observation.evidence, observation.slo, observation.baseline, before)
    inner, outer = candidates(condition, facts)
    for subject in inner:
        yield evaluate(condition, subject, facts)
    for subject in outer:
        truth = evaluate(condition, subject, facts)
        if truth.status != UNKNOWN:  # an ancestor counts by what it shows itself
            yield truth


def _shown(truths: Iterable[Truth], status: str) -> str:
    telling = [truth for truth in truths if truth.status == status]
    if not telling:
        return "not seen"
    atoms = [atom for truth in telling for atom in truth.atoms]
    several = len({atom.subject for atom in atoms}) > 1
    seen = [_atom(atom, several=several) for atom in atoms]
    missing = [f"{name} is not known" for truth in telling for name in truth.missing]
    return "; ".join(dict.fromkeys([*seen, *missing, *(why for truth in telling for why in truth.unsettled)]))


def _atom(atom: Atom, *, several: bool) -> str:
    of = f" of {atom.subject}" if several else ""
    return f"{atom.signal}{of} is {atom.shown}, wanted {atom.operator} {atom.limit}"
