"""The result of `latdoctor capacity measure` or `capacity history`, as it is saved and read again."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from latdoctor.planning.capacity.binding import Bound
from latdoctor.planning.capacity.level import Level
from latdoctor.planning.capacity.queue_model import ClosedLevel, QueueModel
from latdoctor.planning.replica_count import RESERVE
from latdoctor.planning.stored import read_stored

SCHEMA_VERSION = "1"
_COLLAPSED = 0.75  # of the best throughput of a closed loop, in the deepest one


class CapacitySource(StrEnum):
    """Where the figures come from."""

    MEASURED = "measured"  # by load up to the limit and beyond
    HISTORY = "history"  # from ordinary operation


class HistoryFigures(Struct, frozen=True):
    """What a history shows beside the limit. `at_least`: the limit is only known to be no less.

    `windows` of `step` seconds of all `replicas`; `highest_rate` of one of them. `service_time`: mean latency at the
    lowest load, in seconds. `speeds`: requests in a replica (Little's law) and the rate, by load. `reached`: highest
    load as a share of the model's limit. `misfit`: relative error of the model's mean latency. `batch`: smallest and
    largest mean size of a batch, where the page shows it.
    """

    at_least: bool
    replicas: int
    windows: int
    step: float
    highest_rate: float
    service_time: float
    speeds: tuple[tuple[float, float], ...]
    reached: float | None = None
    misfit: float | None = None
    batch: tuple[float, float] | None = None


class CapacityMeasurement(Struct, frozen=True):
    """Rates in requests per second of one replica or whatever `address` is, times in seconds.

    `limit`: the highest rate at which the share `attainment` of requests is within `slo`, with its 95 % `interval`.
    `first_failing`: None where no level failed; the limit is then at least this. `model_limit`: what the queueing model
    says, `model_error` its relative difference; None without a model. `closed`: the closed loops that it was fitted to.
    `problems`: why the figures cannot be trusted. Of a history (`source`) the levels are windows of about the same
    rate, `closed` is empty, and `limit` is the model's, or observed, or at least this (`history.at_least`).
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
    source: CapacitySource = CapacitySource.MEASURED
    history: HistoryFigures | None = None
    schema_version: str = SCHEMA_VERSION

    @property
    def planned(self) -> float:
        """What to plan for one replica."""
        return self.limit * (1 - RESERVE)

    @property
    def collapse(self) -> tuple[ClosedLevel, ClosedLevel] | None:
        """The best and the deepest closed loop, where throughput collapses with more requests in flight.

        Chance then decides at which rate a queue builds up that the server never works off: the limit differs from run
        to run, and the queueing model, whose speed does not fall, is too hopeful.
        """
        if not self.closed:
            return None
        best, deepest = max(self.closed, key=lambda one: one.rate), max(self.closed, key=lambda one: one.in_flight)
        return (best, deepest) if deepest.rate < _COLLAPSED * best.rate else None


def read_measurement(path: Path) -> CapacityMeasurement:
    """Raises UsageError for a file that is none."""
    made_by = "latdoctor capacity measure URL -o json > FILE"
    return read_stored(path, CapacityMeasurement, SCHEMA_VERSION, what="a measurement of capacity", made_by=made_by)
