"""Replicas for a rate: what a measurement of one replica says of many. Pure."""

from __future__ import annotations

from msgspec import Struct

from latdoctor.load.latencies import quantile
from latdoctor.planning.capacity.measurement import CapacityMeasurement, CapacitySource
from latdoctor.planning.replica_count import RESERVE, replica_count

SCHEMA_VERSION = "1"


class CapacityPlan(Struct, frozen=True):
    """`replicas` for `rate` requests per second, so that each has the reserve. Latencies in seconds.

    `least`: replicas that meet the SLO without any reserve. `p99`: of the model at `per_replica`; None without a model.
    `with_one_lost`: the share of its limit that each of the others has to take if one replica fails; above 1 the SLO is
    missed. `collapses`: the throughput of the measured replica falls with more requests in flight, so that neither its
    limit nor the model can be relied on; None where no closed loop was measured.
    """

    rate: float
    slo: float
    attainment: float
    limit: float
    reserve: float
    replicas: int
    least: int
    per_replica: float
    p99: float | None
    with_one_lost: float | None
    model_error: float | None
    problems: tuple[str, ...] = ()
    source: CapacitySource = CapacitySource.MEASURED
    at_most: bool = False  # the limit is a lower bound: fewer replicas may do
    collapses: bool | None = None
    schema_version: str = SCHEMA_VERSION


def plan_replicas(measured: CapacityMeasurement, rate: float, reserve: float = RESERVE) -> CapacityPlan:
    """Raises ValueError where the measured replica meets the SLO at no rate."""
    if measured.limit <= 0:
        raise ValueError("the measured replica meets the SLO at no rate")
    replicas = replica_count(rate, measured.limit, reserve)
    per_replica = rate / replicas
    p99 = quantile(measured.model.latencies(per_replica), 0.99) if measured.model else None
    return CapacityPlan(
        rate=rate,
        slo=measured.slo,
        attainment=measured.attainment,
        limit=measured.limit,
        reserve=reserve,
        replicas=replicas,
        least=replica_count(rate, measured.limit, 0.0),
        per_replica=per_replica,
        p99=p99,
        with_one_lost=rate / (replicas - 1) / measured.limit if replicas > 1 else None,
        model_error=measured.model_error,
        problems=measured.problems,
        source=measured.source,
        at_most=measured.history is not None and measured.history.at_least,
        collapses=measured.collapse is not None if measured.closed else None,
    )
