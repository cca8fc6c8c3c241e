"""The result of a run: its outcome, the code of its reason, and the measurements before and after the change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct, field

from latdoctor.conditions.evaluator import HOLDS, show
from latdoctor.remediation.observation import ConditionResult, Observation, left_signals
from latdoctor.remediation.playbook import Playbook


class Outcome(StrEnum):
    """How a run, a rollback or a recovery ended. Each has an exit code."""

    PLANNED = "planned"
    VERIFIED = "verified"
    FAILED = "failed"  # nothing was changed
    ROLLED_BACK = "rolled-back"
    PARTLY_ROLLED_BACK = "partly-rolled-back"  # stages that were verified before the failed one stay in effect
    HELD = "held"  # waits for a decision of the operator
    REFUSED = "refused"  # by a guard
    PENDING = "proof-pending"  # the change is in effect, and another process goes on with its proof
    INCOMPLETE = "incomplete"  # a change may still be in effect although it should be rolled back

    @property
    def exit_code(self) -> int:
        return _EXIT_CODES[self]


_EXIT_CODES = {
    Outcome.PLANNED: 0,
    Outcome.VERIFIED: 0,
    Outcome.FAILED: 1,
    Outcome.ROLLED_BACK: 3,
    Outcome.PARTLY_ROLLED_BACK: 3,
    Outcome.HELD: 4,
    Outcome.REFUSED: 5,
    Outcome.INCOMPLETE: 6,
    Outcome.PENDING: 7,
}


class Reason(StrEnum):
    """Why a run ended as it did. The text of a result is for people; decisions use this code."""

    VERIFIED = "verified"
    # Guards, before anything is touched.
    KILL_SWITCH = "kill-switch"
    LOCKED = "lock"
    UNFINISHED_RUN = "unfinished"
    NO_CHANGE = "no-change"
    PLAN_OUTDATED = "plan"
    LOW_CERTAINTY = "certainty"
    EVIDENCE_OUTDATED = "age"
    NO_FORECAST = "no-forecast"  # or one that is no better than the last value
    NOT_YET = "not-yet"  # standby replicas are kept until their peak has passed
    LOAD_TOO_HIGH = "load"  # for fewer replicas
    HIGH_RISK = "risk"
    NOT_PERMITTED_BY_SOP = "sop"
    COOLDOWN = "cooldown"
    ATTEMPTS = "attempts"
    CIRCUIT_BREAKER = "circuit-breaker"
    TARGET_MODIFIED = "drift"
    OWNED = "owner"  # another controller sets what would be changed
    NO_RIGHTS = "rights"
    NO_CAPACITY = "capacity"
    # The observations before the change.
    PRECONDITION = "precondition"
    NOT_VERIFIABLE = "not-verifiable"
    ALREADY_MET = "already-met"
    CAUSE_ABSENT = "cause-absent"
    RECOVERING = "recovering-on-its-own"
    # The change and its verification.
    MODIFIED_BY_OTHER_CLIENT = "modified-by-other-client"
    TARGET_REJECTED = "target-rejected"
    NO_IMPROVEMENT = "no-improvement"
    INCONCLUSIVE = "inconclusive"
    UNPROVEN = "unproven"
    NOT_OBSERVED = "not-observed"
    ABORT_CONDITION = "abort-condition"
    CHANGE_LOST = "change-lost"
    NOT_COMPLETE = "rollout-not-complete"
    WORSE = "worse"  # of a change that prepares: something is no longer as it was
    # Other.
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    REQUESTED = "requested"
    NOTHING_TO_UNDO = "nothing-to-undo"
    NEWER_RUN = "newer-run"
    TARGET_UNREADABLE = "target-unreadable"
    STILL_RUNNING = "still-running"
    ERROR = "error"
    DEFECT = "defect"


class Verdict(StrEnum):
    """An outcome together with its reason, in the words of incident management."""

    PLANNED = "planned"
    SUCCEEDED = "succeeded"
    PROOF_PENDING = "proof pending"
    NO_EFFECT = "no effect"  # rolled back: the change did not help
    INCONCLUSIVE = "inconclusive"  # rolled back: it is unclear whether it helped
    SUPERSEDED = "superseded"  # another client changed the same values
    ROLLED_BACK = "rolled back"  # for another reason: an abort condition, an error, on request
    HELD = "held for a human"
    REFUSED = "refused"
    FAILED = "failed"


_NOT_TOLD = frozenset({Reason.INCONCLUSIVE, Reason.UNPROVEN, Reason.NOT_OBSERVED})
_SUPERSEDED = frozenset({Reason.MODIFIED_BY_OTHER_CLIENT, Reason.CHANGE_LOST})
_VERDICTS = {
    Outcome.PLANNED: Verdict.PLANNED,
    Outcome.VERIFIED: Verdict.SUCCEEDED,
    Outcome.PENDING: Verdict.PROOF_PENDING,
    Outcome.HELD: Verdict.HELD,
    Outcome.INCOMPLETE: Verdict.HELD,
    Outcome.REFUSED: Verdict.REFUSED,
    Outcome.FAILED: Verdict.FAILED,
}


def verdict_of(outcome: Outcome, code: Reason | None) -> Verdict:
    """A change that could not be undone waits for a human, whatever led to the rollback."""
    if outcome is not Outcome.INCOMPLETE and code in _SUPERSEDED:
        return Verdict.SUPERSEDED
    if outcome in _VERDICTS:
        return _VERDICTS[outcome]
    if code is Reason.NO_IMPROVEMENT:
        return Verdict.NO_EFFECT
    return Verdict.INCONCLUSIVE if code in _NOT_TOLD else Verdict.ROLLED_BACK


class Measure(Struct, frozen=True):
    """One signal of one subject before the change and in the last observation after it, in base units."""

    signal: str
    subject: str
    before: float
    after: float | None = None


class Result(Struct, frozen=True):
    """The result of a run, a rollback or a recovery."""

    run: str
    outcome: Outcome
    reason: str
    next_step: str = ""
    manual: tuple[str, ...] = ()  # commands for the operator that undo what could not be undone
    overwrite: tuple[str, ...] = field(default=(), name="theirs")  # commands that overwrite values of other clients
    last: tuple[ConditionResult, ...] = ()  # the conditions in the last observation
    measures: tuple[Measure, ...] = ()
    seconds: float = 0.0
    note: str = ""
    target: str = ""
    playbook: str = ""
    unmet: tuple[str, ...] = ()  # of a verified run: parts of the SLO that its last observation does not show as met
    code: Reason | None = None


class WindowStatus(StrEnum):
    """The result of one window of a verification."""

    SUCCESS = "success"
    FAILURE = "failure"
    INCONCLUSIVE = "inconclusive"
    UNPROVEN = "unproven"  # as good as demanded, which may be chance
    ABORT = "abort"
    UNKNOWN = "unknown"  # the window has no data


class WindowResult(Struct, frozen=True):
    """The result of one window of a verification, or of all windows up to it. `started` and `ended` in unix seconds."""

    started: float
    ended: float
    status: WindowStatus
    conditions: tuple[ConditionResult, ...]

    @property
    def reason(self) -> str:
        """The conditions because of which it is not a success."""
        aborted = self.status == WindowStatus.ABORT
        return "; ".join(one.summary for one in self.conditions if (one.status == HOLDS) is aborted)


PAIN_SIGNALS = ("latency.p99", "error.ratio", "arrival.rate", "queue.depth")
_SLO_TERMS = (("latency.p99", "slo.p99", "P99"), ("error.ratio", "slo.error_ratio", "error ratio"))
_NOTABLE_ERROR_RATIO = 0.01  # reported even without an SLO


def measures_of(
    playbook: Playbook, before: Observation | None, after: Observation | None = None
) -> tuple[Measure, ...]:
    """The signals of the playbook's verification and `PAIN_SIGNALS`, as far as they were measured before the change."""
    if before is None:
        return ()
    verify = playbook.verify
    signals = (*PAIN_SIGNALS, *left_signals([*verify.succeed, *verify.mechanism_conditions, *verify.abort]))
    now = after.values if after else {}
    return tuple(
        Measure(signal, subject, value, now.get((signal, subject)))
        for name in dict.fromkeys(signals)
        for (signal, subject), value in before.values.items()
        if signal == name
    )


def slo_violations(measures: Sequence[Measure], slo: Mapping[str, float]) -> tuple[str, ...]:
    """The parts of `slo` (slo.p99 in seconds, slo.error_ratio) that the last observation violates or does not show.

    Without an SLO for it, the error ratio is reported if it is higher than before the change.
    """
    found: list[str] = []
    for signal, term, label in _SLO_TERMS:
        matching = [one for one in measures if one.signal == signal]
        if term in slo and not matching:
            found.append(f"{label} was not measured: whether it meets the SLO is unknown")
        elif term in slo:
            found += _violations(matching, slo[term], label)
        elif signal == "error.ratio":
            found += _increases(matching, label)
    return tuple(found)


def _violations(measures: Sequence[Measure], limit: float, label: str) -> Iterator[str]:
    for one in measures:
        subject = f"{label}{f' of {one.subject}' if len(measures) > 1 else ''}"
        allowed = show(one.signal, limit)
        if one.after is None:
            yield f"{subject} was not measured after the change: whether it meets the SLO of {allowed} is unknown"
        elif one.after > limit:
            yield f"{subject} {show(one.signal, one.after)} still exceeds the SLO of {allowed}"


def _increases(measures: Sequence[Measure], label: str) -> Iterator[str]:
    for one in measures:
        if one.after is not None and one.after >= _NOTABLE_ERROR_RATIO and one.after > one.before:
            subject = f"{label}{f' of {one.subject}' if len(measures) > 1 else ''}"
            yield f"{subject} {show(one.signal, one.after)}, {show(one.signal, one.before)} before the change"
