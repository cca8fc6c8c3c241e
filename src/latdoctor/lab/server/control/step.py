"""One step of the controller: what it changes, what it expects, and what was measured afterwards."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class ControlledKnob(StrEnum):
    """The knobs that the controller of a server changes, as `group.knob`."""

    DEADLINE = "queue.deadline_ms"
    BATCH_TOKENS = "batching.max_batch_tokens"
    BATCH_REQUESTS = "batching.max_batch_requests"
    WAIT = "batching.max_wait_ms"


class StepReason(StrEnum):
    """Why a step is taken."""

    ARM = "arm-admission"  # requests that would miss the objective are refused from now on
    LATE = "late"  # too many answers are late
    SHEDS_EARLY = "sheds-early"  # requests are refused though the answers are well within the objective
    BATCH_TOO_LONG = "batch-too-long"
    BATCH_BOUND = "batch-bound"  # the bound closes the batches of a busy worker
    WAIT_COSTS = "wait-costs"  # a worker that has time waits for more requests
    WAIT_SAVES = "wait-saves"  # a call costs as much for many requests as for one
    ROLLBACK = "rollback"  # of a step that made it worse
    RELEASE = "release"  # control was switched off: the operator's value again


class RouteReason(StrEnum):
    """Why the weight of a replica is changed."""

    SLOW = "slow-replica"
    RECOVERED = "replica-recovered"
    DRAW_IN = "draw-in"  # the standby replica, because the latency begins to rise
    SET_ASIDE = "set-aside"  # the standby replica, because the others have room
    ROLLBACK = "rollback"
    RELEASE = "release"


class HoldReason(StrEnum):
    """Why no step is taken."""

    OFF = "off"
    OBSERVING = "observing"  # the step was journaled, and not taken
    STALE = "stale"  # nothing was measured lately, though requests wait or arrive
    IDLE = "idle"  # there are no requests
    FEW = "few"  # too few requests for a judgement
    PENDING = "pending"  # the effect of the last step cannot be seen yet
    IN_BAND = "in-band"
    BLOCKED = "blocked"  # the step that it would take was rolled back, or its knob oscillated, not long ago
    OPERATOR = "operator"  # the operator changed a knob meanwhile


class StepVerdict(StrEnum):
    """What the verification of a step found."""

    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    WORSE = "worse"
    UNKNOWN = "unknown"  # the load changed meanwhile, or too little was measured
    SUPERSEDED = "superseded"  # the operator changed the knob before it could be seen


class Metric(StrEnum):
    """The quantity that a step is expected to change; all of them better when lower."""

    P99 = "p99_seconds"
    P50 = "p50_seconds"
    MISSED = "missed_share"  # late or refused, of all that were answered or refused
    BUSY = "busy_share"  # of the worker
    P95 = "p95_seconds"  # of the router


class Prediction(Struct, frozen=True):
    """`before` is what was measured, `expected` what the step shall make of it."""

    metric: Metric
    before: float
    expected: float


class Verification(Struct, frozen=True):
    """What was measured once the effect of the step could be seen, `seconds` after it."""

    verdict: StepVerdict
    measured: float | None
    seconds: float
    missed_before: float
    missed_after: float | None


class ControlStep(Struct, frozen=True):
    """A change of one knob. `applied` is false in observe-only mode; `undoes` is the number of a rolled back step."""

    number: int
    at: float  # Unix time
    knob: str  # `group.knob`, or `weights.REPLICA`
    old: float
    new: float
    reason: StepReason | RouteReason
    applied: bool
    prediction: Prediction | None = None
    undoes: int | None = None
    verification: Verification | None = None

    @property
    def direction(self) -> int:
        return 1 if self.new > self.old else -1
