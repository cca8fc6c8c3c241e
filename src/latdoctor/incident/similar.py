"""Similarity of past incidents, and the playbooks that worked then.

The similarity is a weighted mean of Jaccard indices (Ruzicka for causes, where a candidate counts with its probability
and a named cause with 1):

    causes 50 %    the same playbook fixes the same cause
    findings 30 %  specific findings that fired; comparable also without a named cause
    subjects 10 %  kinds of subjects (replica, gpu, service)
    tiers 10 %     infrastructure, framework, application

A part that neither incident has is left out and the other weights are scaled. The result is symmetric, 1 for an
incident with itself, and 0 where nothing is shared or known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from msgspec import Struct

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.diagnosis.codes import CheckStatus, FindingKind
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.evidence.model import kind_of
from latdoctor.incident import events
from latdoctor.incident.elapsed import of_incident
from latdoctor.incident.state import Incident
from latdoctor.incident.timeline import diagnosis_events, run_reports
from latdoctor.remediation import run_history
from latdoctor.sanitize import clean

CAUSES, FINDINGS, SUBJECTS, TIERS = 0.5, 0.3, 0.1, 0.1
CANDIDATE = 0.2  # from here on a cause that was not named counts
ALIKE = 0.3  # minimum to report: one of two causes, or most findings and the same subjects


class Features(Struct, frozen=True):
    """Features that are compared. `causes`: probability by id."""

    causes: dict[str, float]
    findings: frozenset[str]
    subjects: frozenset[str]
    tiers: frozenset[str]


class RunSummary(Struct, frozen=True):
    """A playbook that was run: `verified`, `rolled-back`, …."""

    playbook: str
    outcome: str
    run: str


class PastIncident(Struct, frozen=True):
    """A past incident for comparison: what it was, and which playbooks worked."""

    id: str
    title: str
    opened_at: str
    closed_at: str | None
    outcome: str
    level: str  # of the worst diagnosis
    features: Features
    named: tuple[str, ...]
    remedies: tuple[RunSummary, ...]

    @property
    def worked(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.playbook for one in self.remedies if one.outcome == "verified"))

    @property
    def taken_back(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.playbook for one in self.remedies if one.outcome == "rolled-back"))


class SimilarIncident(Struct, frozen=True):
    past: PastIncident
    likeness: float
    same_causes: tuple[str, ...]


def past_incident(incident: Incident) -> PastIncident:
    """Raises msgspec.ValidationError for a run that another version wrote otherwise."""
    diagnoses = diagnosis_events(incident.entries, of_incident(incident))
    runs = {run.id: run for run in run_history.runs(incident.entries)}
    reports = run_reports(incident.runs, runs, incident.entries)
    ended = next(iter(reversed(incident.of(events.CLOSED))), None)
    causes = [cause for diagnosis in diagnoses for cause in diagnosis.causes]
    levels = {diagnosis.level for diagnosis in diagnoses}
    return PastIncident(
        id=incident.id,
        title=clean(incident.opened.title, 300),
        opened_at=incident.entries[0].at,
        closed_at=ended.at if ended else None,
        outcome=clean(incident.closed.outcome, 40) if incident.closed else "",
        level=next((level for level in _WORST if level in levels), ""),
        features=_features(causes, [name for diagnosis in diagnoses for name in diagnosis.fired]),
        named=tuple(dict.fromkeys(cause.id for cause in causes if cause.named)),
        remedies=tuple(RunSummary(run.playbook, run.outcome, run.id) for run in reports if run.playbook),
    )


_WORST = ("critical", "warning", "info", "inconclusive", "healthy")


def of_diagnosis(diagnosis: Diagnosis) -> Features:
    """The same of a diagnosis that belongs to no incident."""
    causes = [
        events.CauseRecord(cause.id, cause.title, cause.tier, cause.probability, cause.named, cause.subjects, ())
        for cause in diagnosis.causes
        if cause.named or cause.id in diagnosis.answer.causes
    ]
    return _features(causes, fired(diagnosis))


def fired(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Specific findings that fired. Symptoms are common to all incidents and do not count."""
    return tuple(
        check.id
        for check in diagnosis.checks
        if check.status == CheckStatus.FIRED and check.kind == FindingKind.SPECIFIC
    )


def _features(causes: Iterable[events.CauseRecord], findings: Iterable[str]) -> Features:
    listed = tuple(cause for cause in causes if cause.named or cause.probability >= CANDIDATE)
    certainty: dict[str, float] = {}
    for cause in listed:
        certainty[cause.id] = max(certainty.get(cause.id, 0.0), 1.0 if cause.named else cause.probability)
    return Features(
        causes=certainty,
        findings=frozenset(findings),
        subjects=frozenset(kind_of(subject) for cause in listed for subject in cause.subjects),
        tiers=frozenset(cause.tier for cause in listed),
    )


def likeness(one: Features, other: Features) -> float:
    """From 0, nothing in common, to 1."""
    shares = (
        (CAUSES, _ruzicka(one.causes, other.causes)),
        (FINDINGS, _jaccard(one.findings, other.findings)),
        (SUBJECTS, _jaccard(one.subjects, other.subjects)),
        (TIERS, _jaccard(one.tiers, other.tiers)),
    )
    known = [(weight, share) for weight, share in shares if share is not None]
    whole = sum(weight for weight, _ in known)
    return sum(weight * share for weight, share in known) / whole if whole else 0.0


def _jaccard(one: Set[str], other: Set[str]) -> float | None:
    either = one | other
    return len(one & other) / len(either) if either else None


def _ruzicka(one: Mapping[str, float], other: Mapping[str, float]) -> float | None:
    names = sorted(one.keys() | other.keys())  # in one order, so that both sides add up alike
    most = sum(max(one.get(name, 0.0), other.get(name, 0.0)) for name in names)
    return sum(min(one.get(name, 0.0), other.get(name, 0.0)) for name in names) / most if most else None


def similar(features: Features, known: Sequence[PastIncident], least: float = ALIKE) -> tuple[SimilarIncident, ...]:
    """Those that are alike by `least`, the likest first, of equal ones the latest."""
    ended = []
    for one in known:
        how = likeness(features, one.features)
        if how >= least:
            same = tuple(name for name in one.named if features.causes.get(name) == 1.0)
            ended.append(SimilarIncident(one, how, same))
    return tuple(sorted(sorted(ended, key=lambda x: x.past.opened_at, reverse=True), key=lambda x: -x.likeness))


def past_incidents(ended: Iterable[Incident]) -> tuple[PastIncident, ...]:
    """All incidents in comparable form; those with an unreadable run are left out."""
    listed = []
    for incident in ended:
        try:
            listed.append(past_incident(incident))
        except UNDECODABLE:
            continue
    return tuple(listed)
