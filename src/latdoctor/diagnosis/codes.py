"""Codes of a diagnosis: what programs branch on, where people read the sentence beside it."""

from __future__ import annotations

from enum import StrEnum


class Level(StrEnum):
    """How the service is, worst first."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"
    HEALTHY = "healthy"
    INCONCLUSIVE = "inconclusive"


class AnswerKind(StrEnum):
    """What is known of the cause."""

    NAMED = "named"
    ONE_OF = "one-of"
    UNEXPLAINED = "unexplained"
    NONE = "none"


class CheckStatus(StrEnum):
    """The outcome of one finding."""

    FIRED = "fired"
    CLEAR = "clear"
    NOT_EVALUATED = "not-evaluated"
    NOT_APPLICABLE = "not-applicable"


class FindingKind(StrEnum):
    """What a finding says about causes."""

    SPECIFIC = "specific"  # points at causes
    SYMPTOM = "symptom"  # generic pain that names no cause
    ERROR = "error"  # failing requests


class CauseStatus(StrEnum):
    """How mature a cause's definition is."""

    EXPERIMENTAL = "experimental"  # never leads to a playbook
    TEST = "test"
    STABLE = "stable"
    DEPRECATED = "deprecated"  # not ranked


class ReasonCode(StrEnum):
    """Why a finding has no outcome."""

    NO_SLO = "no-slo"
    NO_BASELINE = "no-baseline"
    NOT_IN_BASELINE = "not-in-baseline"
    ZERO_REFERENCE = "zero-reference"  # a multiple of zero says nothing
    GAP = "gap"  # a source was read and did not show it
    SOURCE_NOT_GIVEN = "source-not-given"
    NOT_SHOWN = "not-shown"  # no source that could be read shows it
    UNSETTLED = "unsettled"  # measured, but a bound or too few samples leave it open
    DISABLED = "disabled"  # by an overlay of the site
    NOT_APPLICABLE = "not-applicable"
    COVERED = "covered"  # the search found events that other findings judge


class Confidence(StrEnum):
    """How sure a cause is."""

    CONFIRMED = "confirmed"
    LIKELY = "likely"
    CANDIDATE = "candidate"


class UserImpact(StrEnum):
    """Whether users suffer, by the symptoms that were measured."""

    HURTING = "hurting"
    NOT_HURTING = "not-hurting"
    NOT_MEASURED = "not-measured"


class TierCoverage(StrEnum):
    """How much of a tier could be evaluated."""

    SEEN = "seen"
    PARTLY = "partly"
    UNSEEN = "unseen"
    NOT_APPLICABLE = "not-applicable"
