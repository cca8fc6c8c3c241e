"""The runs of the cluster benchmark: each fault several times, and healthy changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from msgspec import Struct

from latdoctor.errors import UsageError
from latdoctor.lab.cluster import manifests
from latdoctor.lab.cluster.cluster_faults import FAULTS, ClusterFault, FaultSite, find_fault
from latdoctor.lab.cluster.images import REFERENCE_NEXT

REPLICAS = 3
FAULT_RUNS, QUICK_FAULT_RUNS = 3, 1
HEALTHY_RUNS, QUICK_HEALTHY_RUNS = 5, 1
# A playbook is proven over minutes: of the quick runs only these are remediated.
QUICK_REMEDIATED = ("image-wrong", "hpa-at-maximum", "bad-rollout")


class HealthyChange(Struct, frozen=True):
    """A change that is part of normal operation. `load`: the factor by which the clients' load changes with it."""

    id: str
    title: str
    apply: Callable[[FaultSite], None]
    autoscaled: bool = False
    load: float = 1.0


class ClusterRunSpec(Struct, frozen=True):
    """One run: a fault, or a healthy change. `is_remediated`: the fault's playbook is run as well."""

    scenario: str
    number: int
    is_remediated: bool

    @property
    def run(self) -> str:
        return f"{self.scenario}-{self.number}"

    @property
    def fault(self) -> ClusterFault | None:
        return None if self.scenario in _HEALTHY else find_fault(self.scenario)

    @property
    def healthy(self) -> HealthyChange | None:
        return _HEALTHY.get(self.scenario)

    @property
    def title(self) -> str:
        return self._step.title

    @property
    def load(self) -> float:
        return self._step.load

    @property
    def autoscaled(self) -> bool:
        return self._step.autoscaled

    @property
    def gpus(self) -> int:
        return self.fault.gpus if self.fault else 0

    @property
    def settle(self) -> float:
        """Seconds from the step to the observation."""
        return self.fault.settle if self.fault else 6.0

    @property
    def causes(self) -> tuple[str, ...]:
        return self.fault.causes if self.fault else ()

    @property
    def _step(self) -> ClusterFault | HealthyChange:
        step = self.fault or self.healthy
        assert step is not None
        return step

    def begin(self, site: FaultSite, undo: ExitStack) -> None:
        """Injects the fault, or makes the change."""
        if self.fault is not None:
            self.fault.inject(site, undo)
        elif self.healthy is not None:
            self.healthy.apply(site)


def planned_cluster_runs(*, quick: bool, only: str | None = None) -> tuple[ClusterRunSpec, ...]:
    """Raises UsageError for a scenario that there is not."""
    scenarios = (*(fault.id for fault in FAULTS), *_HEALTHY)
    if only is not None and only not in scenarios:
        raise UsageError(f"there is no scenario {only!r} of a cluster", next_step=f"one of {', '.join(scenarios)}")
    return tuple(_runs(scenarios if only is None else (only,), quick=quick))


def _runs(scenarios: tuple[str, ...], *, quick: bool) -> Iterator[ClusterRunSpec]:
    for scenario in scenarios:
        if scenario in _HEALTHY:
            runs = QUICK_HEALTHY_RUNS if quick else HEALTHY_RUNS
        else:
            runs = QUICK_FAULT_RUNS if quick else FAULT_RUNS
        is_remediated = scenario in QUICK_REMEDIATED if quick else scenario not in _HEALTHY
        yield from (ClusterRunSpec(scenario, number, is_remediated) for number in range(1, runs + 1))


def _patch(site: FaultSite, spec: dict[str, Any]) -> None:
    site.api.patch(site.deployment, {"spec": spec})


def _roll_out(site: FaultSite) -> None:
    container = {"name": manifests.CONTAINER, "image": REFERENCE_NEXT}
    _patch(site, {"template": {"spec": {"containers": [container]}}})


def _scale_out(site: FaultSite) -> None:
    _patch(site, {"replicas": REPLICAS + 2})


def _scale_in(site: FaultSite) -> None:
    _patch(site, {"replicas": REPLICAS - 1})


def _nothing(_: FaultSite) -> None:
    """The load changes, and the autoscaler follows."""


_HEALTHY = {
    one.id: one
    for one in (
        HealthyChange("healthy-rollout", "A rollout of a good release", _roll_out),
        HealthyChange("healthy-scale-out", "Two more replicas", _scale_out),
        HealthyChange("healthy-scale-in", "One replica less", _scale_in),
        HealthyChange(
            "healthy-autoscaling", "More load, and the autoscaler follows", _nothing, autoscaled=True, load=1.6
        ),
    )
}
