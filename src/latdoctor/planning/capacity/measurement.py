"""The result of `latdoctor capacity measure`, as it is saved and read again."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from latdoctor.planning.capacity.binding import Bound
from latdoctor.planning.capacity.level import Level
from latdoctor.planning.capacity.queue_model import ClosedLevel, QueueModel
from latdoctor.planning.replica_count import RESERVE
from latdoctor.planning.stored import read_stored

SCHEMA_VERSION = "1"


class CapacityMeasurement(Struct, frozen=True):
    """Rates in requests per second of one replica or whatever `address` is, times in seconds.

    `limit`: the highest rate at which the share `attainment` of requests is within `slo`, with its 95 % `interval`.
    `first_failing`: None where no level failed; the limit is then at least this. `model_limit`: what the queueing model
    says, `model_error` its relative difference; None without a model. `closed`: the closed loops that it was fitted to.
    `problems`: why the figures cannot be trusted.
    """

    address: str
    target: str
    date: str
    tool_version: str
    slo: float
    attainment: float
    limit: float
    interval: tuple[float, float]
    first_failing: float | None
    bound_by: Bound
    is_cliff: bool | None
    levels: tuple[Level, ...]
    closed: tuple[ClosedLevel, ...]
    lasted: float
    model: QueueModel | None
    model_limit: float | None
    model_error: float | None
    problems: tuple[str, ...] = ()
    schema_version: str = SCHEMA_VERSION

    @property
    def planned(self) -> float:
        """What to plan for one replica."""
        return self.limit * (1 - RESERVE)


def read_measurement(path: Path) -> CapacityMeasurement:
    """Raises UsageError for a file that is none."""
    made_by = "latdoctor capacity measure URL -o json > FILE"
    return read_stored(path, CapacityMeasurement, SCHEMA_VERSION, what="a measurement of capacity", made_by=made_by)
