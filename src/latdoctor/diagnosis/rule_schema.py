"""Findings and causes as types. A finding is written once and shared; a cause says what it makes us see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from latdoctor.conditions.ast import Condition
from latdoctor.diagnosis.codes import CauseStatus, FindingKind

SEVERITIES = ("info", "warning", "critical")

# What an incident outside the catalogue is taken to show: pain usually, anything specific hardly ever.
OTHER_EXPECTS = {FindingKind.SYMPTOM: 0.80, FindingKind.ERROR: 0.30}
OTHER_SPECIFIC = 0.04

# A cause grounds itself only on a finding that it expects at least this much.
GROUNDING = 0.5


@dataclass(frozen=True, slots=True)
class SiteLimit:
    """A comparison of a finding whose limit an overlay replaced: as it stands now, and as it was shipped."""

    text: str
    shipped: str
    rationale: str
    where: str  # file:line of the overlay


@dataclass(frozen=True, slots=True)
class Finding:
    """A named statement about a departure from normal."""

    id: str
    message: str  # with {signal} places, filled from the evidence; a part in [] goes where a place in it is unknown
    when: Condition
    leak: float  # how often it holds with none of the causes present
    area: str  # the file that holds it
    where: str  # file:line
    tier: str = ""  # may be empty for symptoms
    kind: FindingKind = FindingKind.SPECIFIC
    required: bool = False  # an essential of its tier: without it nothing is called healthy
    severity: str = ""
    outage: bool = False  # where it holds, requests get no answer: it is user impact by itself
    usual: float = 0.0  # what a cause that is silent about this symptom is taken to expect
    group: str = ""
    not_applicable_when: Condition | None = None
    rationale: str = ""  # where the threshold comes from
    rationale_from: str = ""  # id of a finding with the same threshold or reasoning
    site: tuple[SiteLimit, ...] = ()  # limits that an overlay replaced
    shipped: Condition | None = None  # `when` before an overlay replaced limits of it; None where none did
    disabled: str = ""  # why the site does not want it judged; empty where it is judged

    @property
    def specific(self) -> bool:
        return self.kind == FindingKind.SPECIFIC

    @property
    def other_expects(self) -> float:
        return OTHER_EXPECTS.get(self.kind, min(OTHER_SPECIFIC, 2 * self.leak))


@dataclass(frozen=True, slots=True)
class Cause:
    """What a rule names. `severity` says what to do; how sure we are is computed, never written here."""

    id: str
    title: str
    tier: str
    severity: str
    prior: float  # relative odds
    expects: Mapping[str, float]
    where: str
    stage: str = ""
    status: CauseStatus = CauseStatus.STABLE
    excluded_by: tuple[str, ...] = ()
    leads_to: tuple[str, ...] = ()  # causes that may be named beside it and follow from it
    playbooks: tuple[str, ...] = ()
    playbooks_when: Mapping[str, str] = field(default_factory=dict)  # before the others, where that finding fired
    owner: str = ""
    escalate_after: float | None = None  # seconds
    explanation: str = ""
    confirm: str = ""
    remediation: str = ""
    remediation_when: Mapping[str, str] = field(default_factory=dict)  # instead, where that finding fired
    next_look: str = ""
    keep_evidence: bool = False  # a restart would destroy what proves it
    false_positives: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    disabled: str = ""  # why the site does not want it ranked; empty where it is ranked

    def weight(self, finding: Finding) -> float:
        """How often this cause makes `finding` hold."""
        return self.expects.get(finding.id, finding.usual)


@dataclass(frozen=True)
class RuleSet:
    """All findings and causes, each in the order of their ids."""

    findings: tuple[Finding, ...]
    causes: tuple[Cause, ...]

    @cached_property
    def finding(self) -> Mapping[str, Finding]:
        return {finding.id: finding for finding in self.findings}

    @cached_property
    def cause(self) -> Mapping[str, Cause]:
        return {cause.id: cause for cause in self.causes}

    @cached_property
    def with_shipped_essentials(self) -> RuleSet | None:
        """These rules with the shipped limits of the required findings; None where the site replaced none of them."""
        if not any(finding.required and finding.shipped for finding in self.findings):
            return None
        return RuleSet(
            tuple(
                replace(finding, when=finding.shipped) if finding.required and finding.shipped else finding
                for finding in self.findings
            ),
            self.causes,
        )
