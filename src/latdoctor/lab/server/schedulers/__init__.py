"""Schedulers: which requests form the next batch, and when. No I/O, no clock.

An idle worker calls `take`, and `wake_at` for the time of the next attempt. The caller owns the lock.
"""

from __future__ import annotations

from latdoctor.lab.server.config import BatchingConfig
from latdoctor.lab.server.schedulers.base import SchedulingRule
from latdoctor.lab.server.schedulers.batch import Scheduler
from latdoctor.lab.server.schedulers.cost_model import CostModel
from latdoctor.lab.server.schedulers.length_window import DurationBounded, TokenBudget
from latdoctor.lab.server.schedulers.rules import CountOnly, Lanes, LengthBuckets, LongAlone, NoTimer, Single

SCHEDULERS: dict[str, type[SchedulingRule]] = {
    "count-only": CountOnly,
    "duration-bounded": DurationBounded,
    "length-buckets": LengthBuckets,
    "long-alone": LongAlone,
    "no-timer": NoTimer,
    "single": Single,
    "token-budget": TokenBudget,
}


def build(
    batching: BatchingConfig,
    model: CostModel | None = None,
    *,
    lane_boundary: int | None = None,
    lane_age: float = 0.25,
) -> Scheduler:
    """The empty scheduler for `batching`.

    `model` is the server's cost model, by which an adaptive wait is judged; without one there is no adaptive wait.
    `lane_boundary` (tokens) splits it into a lane for short requests and one for those longer than that, which have
    priority once one of them has waited `lane_age` (seconds).
    """
    rule = SCHEDULERS[batching.scheduler]
    if lane_boundary is None:
        return rule(batching, model)
    return Lanes(rule(batching, model), rule(batching, model), lane_boundary, lane_age)
