"""The parts of Kubernetes objects that are read, as typed values. Unknown fields are ignored, absent ones are empty.

Numbers may be text: YAML scalars are read as they are written, and quantities are text anyway.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

Quantities = dict[str, str | float | None]


class Owner(Struct, frozen=True):
    """`metadata.ownerReferences[]`."""

    kind: str = ""
    name: str = ""
    controller: bool | None = False


class ManagedFields(Struct, frozen=True, rename="camel"):
    """`metadata.managedFields[]`: which client last set which fields, and when."""

    manager: str | None = ""
    time: str | None = None
    subresource: str | None = ""
    fields: dict[str, Any] | None = field(default=None, name="fieldsV1")


class Meta(Struct, frozen=True, rename="camel"):
    """`metadata`."""

    name: str = ""
    namespace: str | None = ""
    creation_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None
    managed_fields: list[ManagedFields] | None = None


class ObjectRef(Struct, frozen=True, rename="camel"):
    """The object of an event, or the target of an autoscaler."""

    kind: str = ""
    namespace: str | None = ""
    name: str = ""
    field_path: str | None = ""


class Condition(Struct, frozen=True, rename="camel"):
    """`status.conditions[]` of any object."""

    type: str = ""
    status: str = ""
    reason: str | None = ""
    message: str | None = ""
    last_transition_time: str | None = None
    last_heartbeat_time: str | None = None


class Waiting(Struct, frozen=True):
    """A container that does not run yet."""

    reason: str | None = ""
    message: str | None = ""


class Running(Struct, frozen=True, rename="camel"):
    """A container that runs."""

    started_at: str | None = None


class Terminated(Struct, frozen=True, rename="camel"):
    """How a container ended."""

    exit_code: float | None = None
    signal: float | None = None
    reason: str | None = ""
    message: str | None = ""
    started_at: str | None = None
    finished_at: str | None = None


class State(Struct, frozen=True):
    """`state` and `lastState` of a container; one of them."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Struct, frozen=True, rename="camel"):
    """`status.containerStatuses[]`."""

    name: str = ""
    ready: bool | None = None
    restart_count: float | None = None
    state: State | None = None
    last_state: State | None = None


class ProbeSpec(Struct, frozen=True, rename="camel"):
    """A probe; the defaults are those of Kubernetes."""

    initial_delay_seconds: float | None = 0.0
    timeout_seconds: float | None = 1.0
    period_seconds: float | None = 10.0
    failure_threshold: float | None = 3.0


class Resources(Struct, frozen=True):
    """`resources` of a container."""

    limits: Quantities | None = None
    requests: Quantities | None = None


class ContainerSpec(Struct, frozen=True, rename="camel"):
    """`spec.containers[]`."""

    name: str = ""
    resources: Resources | None = None
    liveness_probe: ProbeSpec | None = None
    readiness_probe: ProbeSpec | None = None
    startup_probe: ProbeSpec | None = None


class PodSpec(Struct, frozen=True, rename="camel"):
    """`spec` of a pod or of a template."""

    node_name: str | None = ""
    containers: list[ContainerSpec] | None = None
    init_containers: list[ContainerSpec] | None = None


class PodStatus(Struct, frozen=True, rename="camel"):
    """`status` of a pod."""

    phase: str = ""
    reason: str | None = ""
    message: str | None = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class Pod(Struct, frozen=True):
    """A pod, or a part of one."""

    metadata: Meta = Meta()
    spec: PodSpec | None = None
    status: PodStatus | None = None


class Taint(Struct, frozen=True):
    """`spec.taints[]` of a node."""

    key: str = ""
    value: str | None = ""
    effect: str = ""


class NodeSpec(Struct, frozen=True):
    """`spec` of a node."""

    unschedulable: bool | None = False
    taints: list[Taint] | None = None


class NodeStatus(Struct, frozen=True):
    """`status` of a node."""

    allocatable: Quantities | None = None
    capacity: Quantities | None = None
    conditions: list[Condition] | None = None


class Node(Struct, frozen=True):
    """A node."""

    metadata: Meta = Meta()
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class QuotaStatus(Struct, frozen=True):
    """`status` of a ResourceQuota."""

    hard: Quantities | None = None
    used: Quantities | None = None


class Quota(Struct, frozen=True):
    """A ResourceQuota."""

    metadata: Meta = Meta()
    status: QuotaStatus | None = None


class Template(Struct, frozen=True):
    """`spec.template` of a workload."""

    spec: PodSpec | None = None


class WorkloadSpec(Struct, frozen=True):
    """`spec` of a Deployment, StatefulSet or ReplicaSet."""

    replicas: float | None = None
    template: Template | None = None


class WorkloadStatus(Struct, frozen=True, rename="camel"):
    """`status` of a workload; a count of zero is left out by Kubernetes."""

    replicas: float | None = None
    ready_replicas: float | None = None
    available_replicas: float | None = None
    updated_replicas: float | None = None
    unavailable_replicas: float | None = None
    conditions: list[Condition] | None = None
    update_revision: str | None = ""
    current_revision: str | None = ""


class Workload(Struct, frozen=True):
    """A Deployment, StatefulSet or ReplicaSet."""

    metadata: Meta = Meta()
    spec: WorkloadSpec | None = None
    status: WorkloadStatus | None = None


class CustomStatus(Struct, frozen=True):
    """`status` of a custom resource."""

    conditions: list[Condition] | None = None


class CustomObject(Struct, frozen=True):
    """A custom resource of KEDA, KServe, Argo Rollouts, LeaderWorkerSet or NVIDIA Dynamo."""

    metadata: Meta = Meta()
    status: CustomStatus | None = None


class MetricValue(Struct, frozen=True, rename="camel"):
    """`target` or `current` of a metric, of v2 and of v2beta2."""

    average_utilization: float | None = None
    average_value: str | float | None = None
    value: str | float | None = None


class MetricName(Struct, frozen=True):
    """`metric` of a metric."""

    name: str = ""


class MetricSource(Struct, frozen=True):
    """One of `resource`, `pods`, `object`, `external`, `containerResource`, of a specification or of a status."""

    name: str = ""
    metric: MetricName = MetricName()
    target: MetricValue = MetricValue()
    current: MetricValue = MetricValue()


class Metric(Struct, frozen=True, rename="camel"):
    """`spec.metrics[]` or `status.currentMetrics[]`."""

    type: str = ""
    resource: MetricSource | None = None
    pods: MetricSource | None = None
    object: MetricSource | None = None
    external: MetricSource | None = None
    container_resource: MetricSource | None = None

    @property
    def source(self) -> MetricSource:
        found = (self.resource, self.pods, self.object, self.external, self.container_resource)
        return next((one for one in found if one is not None), MetricSource())


class HpaSpec(Struct, frozen=True):
    """`spec` of an autoscaler. v1 has the target of the processor alone."""

    target: ObjectRef | None = field(default=None, name="scaleTargetRef")
    min_replicas: float | None = field(default=None, name="minReplicas")
    max_replicas: float | None = field(default=None, name="maxReplicas")
    metrics: list[Metric] | None = None
    target_cpu: float | None = field(default=None, name="targetCPUUtilizationPercentage")


class HpaStatus(Struct, frozen=True):
    """`status` of an autoscaler."""

    current: float | None = field(default=None, name="currentReplicas")
    desired: float | None = field(default=None, name="desiredReplicas")
    metrics: list[Metric] | None = field(default=None, name="currentMetrics")
    conditions: list[Condition] | None = None
    current_cpu: float | None = field(default=None, name="currentCPUUtilizationPercentage")


class Autoscaler(Struct, frozen=True):
    """A HorizontalPodAutoscaler."""

    metadata: Meta = Meta()
    spec: HpaSpec | None = None
    status: HpaStatus | None = None


class Series(Struct, frozen=True, rename="camel"):
    """`series` of an event that repeats."""

    count: float | None = None
    last_observed_time: str | None = None


class EventObject(Struct, frozen=True, rename="camel"):
    """An event, of v1 and of events.k8s.io."""

    metadata: Meta = Meta()
    involved_object: ObjectRef | None = None
    regarding: ObjectRef | None = None
    reason: str | None = ""
    message: str | None = ""
    note: str | None = ""
    type: str | None = ""
    count: float | None = None
    deprecated_count: float | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    deprecated_last_timestamp: str | None = None
    event_time: str | None = None
    series: Series | None = None


class Usage(Struct, frozen=True):
    """The use of one container, of metrics.k8s.io."""

    name: str = ""
    usage: Quantities | None = None


class PodMetrics(Struct, frozen=True):
    """PodMetrics of metrics.k8s.io."""

    metadata: Meta = Meta()
    containers: list[Usage] | None = None
