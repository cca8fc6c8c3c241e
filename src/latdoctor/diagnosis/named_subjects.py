"""What a cause names: its subjects, and those that its evidence was read on. A Pod is hurt, and its node is lost."""

from __future__ import annotations

from latdoctor.conditions.evaluator import HOLDS
from latdoctor.diagnosis.codes import CheckStatus
from latdoctor.diagnosis.result import Diagnosis, RankedCause


def named_subjects(cause: RankedCause, diagnosis: Diagnosis) -> tuple[str, ...]:
    """The subjects of `cause`, then those of what holds in the findings that speak for it, each once."""
    fired = [one for one in diagnosis.checks if one.id in cause.evidence_for and one.status == CheckStatus.FIRED]
    read_on = (atom.subject for check in fired for atom in check.atoms if atom.status == HOLDS)
    return tuple(dict.fromkeys((*cause.subjects, *read_on)))
