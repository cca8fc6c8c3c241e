"""How a run ended."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from latdoctor.remediation.observation import (
    Judged,
)


class Outcome(StrEnum):
    """Each with its exit code."""

    PLANNED = "planned"
    VERIFIED = "verified"
    FAILED = "failed"  # nothing was changed
    ROLLED_BACK = "rolled-back"
    PARTLY = "partly-rolled-back"  # stages that were verified before the one that failed stay
    HELD = "held"  # a human must decide
    REFUSED = "refused"  # by a guard
    INCOMPLETE = "incomplete"  # what was changed is not known to be taken back

    @property
    def exit_code(self) -> int:
        return _EXIT[self]


_EXIT = {
    Outcome.PLANNED: 0,
    Outcome.VERIFIED: 0,
    Outcome.FAILED: 1,
    Outcome.ROLLED_BACK: 3,
    Outcome.PARTLY: 3,
    Outcome.HELD: 4,
    Outcome.REFUSED: 5,
    Outcome.INCOMPLETE: 6,
}


class Measure(Struct, frozen=True):
    """One signal of one subject before the change and in the last look after it, in base units."""

    signal: str
    subject: str
    before: float
    after: float | None = None


class Result(Struct, frozen=True):
    """What a run, a rollback or a recovery came to."""

    run: str
    outcome: Outcome
    reason: str
    next_step: str = ""
    manual: tuple[str, ...] = ()  # what a person types where we could not
    theirs: tuple[str, ...] = ()  # what would overwrite what somebody else has set meanwhile
    last: tuple[Judged, ...] = ()  # how the conditions stood in the last look
    measures: tuple[Measure, ...] = ()
    seconds: float = 0.0
    note: str = ""
    target: str = ""
    playbook: str = ""
    unmet: tuple[str, ...] = ()  # of a run that verified: what of the SLO its last look does not show as met


SUCCESS, FAILURE, INCONCLUSIVE, ABORT = "success", "failure", "inconclusive", "abort"
