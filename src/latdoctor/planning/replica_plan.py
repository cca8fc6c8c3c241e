"""How many replicas a forecast needs, and by when they must be started."""

from __future__ import annotations

from dataclasses import dataclass

from latdoctor.planning.forecast.result import Forecast, ReplicaPlan
from latdoctor.planning.replica_count import replica_count


@dataclass(frozen=True, slots=True)
class ReplicaCapacity:
    """What a replica can take (in the unit of the forecast), and the share of it that is kept free.

    `running`: replicas now, if known; `start_up`: seconds from a start to the first answer.
    """

    per_replica: float
    reserve: float
    running: int | None
    start_up: float


def replica_plan(found: Forecast, capacity: ReplicaCapacity) -> ReplicaPlan | None:
    """Replicas for the planning figure; None without a forecast. Fewer than one never suffice."""
    if found.planning_value is None or found.at is None:
        return None
    replicas = replica_count(found.planning_value, capacity.per_replica, capacity.reserve)
    start = None if capacity.running is None else replicas - capacity.running
    start_by = found.at - capacity.start_up if start is None or start > 0 else None
    return ReplicaPlan(capacity.per_replica, capacity.reserve, replicas, capacity.running, start, start_by)
