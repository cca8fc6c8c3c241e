"""The resources of the API that are read: their groups and versions, and the signals that are unknown without them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from latdoctor.collectors.documents.kubernetes import SIGNALS


def _of(*areas: str) -> tuple[str, ...]:
    return tuple(sorted(signal for signal in SIGNALS if signal.startswith(areas)))


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource: its plural as in paths, and the versions that are understood, the newest first.

    `hides`: the signals that are unknown where it cannot be read. `optional`: an extension that many clusters lack.
    """

    plural: str
    kind: str
    group: str = ""
    versions: tuple[str, ...] = ("v1",)
    namespaced: bool = True
    hides: tuple[str, ...] = ()
    optional: bool = False

    def path(self, version: str, namespace: str = "", name: str = "") -> str:
        """Of a list, or of the object `name`; of all namespaces where none is named."""
        root = f"/apis/{self.group}/{version}" if self.group else f"/api/{version}"
        within = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{root}{within}/{self.plural}" + (f"/{name}" if name else "")

    def served(self, known: Collection[tuple[str, str]]) -> tuple[str, ...]:
        """Those versions that the server has, by the groups and versions it names; all where it named none."""
        if not self.group or not known:
            return self.versions
        return tuple(version for version in self.versions if (self.group, version) in known)


_WORKLOAD, _POD = _of("workload."), _of("pod.", "container.")
DEPLOYMENTS = Resource("deployments", "Deployment", "apps", hides=_WORKLOAD)
STATEFUL_SETS = Resource("statefulsets", "StatefulSet", "apps", hides=_WORKLOAD)
REPLICA_SETS = Resource("replicasets", "ReplicaSet", "apps", hides=_WORKLOAD)
CONTROLLER_REVISIONS = Resource("controllerrevisions", "ControllerRevision", "apps")
PODS = Resource("pods", "Pod", hides=_POD)
CPU_COUNTERS = ("cgroup.cpu.quota", "cgroup.cpu.throttled_ratio", "cgroup.cpu.throttled_time")
NODE_PROXY = Resource("nodes/proxy", "Node", namespaced=False, hides=CPU_COUNTERS)  # the kubelet, by the API server
NODES = Resource("nodes", "Node", namespaced=False, hides=_of("node."))
EVENTS = Resource("events", "Event", hides=_of("kube.", "change."))
AUTOSCALERS = Resource(
    "horizontalpodautoscalers", "HorizontalPodAutoscaler", "autoscaling", ("v2", "v2beta2", "v1"), hides=_of("hpa.")
)
BUDGETS = Resource("poddisruptionbudgets", "PodDisruptionBudget", "policy", ("v1", "v1beta1"))
QUOTAS = Resource("resourcequotas", "ResourceQuota", hides=_of("quota."))
LIMIT_RANGES = Resource("limitranges", "LimitRange")
PRIORITY_CLASSES = Resource("priorityclasses", "PriorityClass", "scheduling.k8s.io", namespaced=False)
SCALED_OBJECTS = Resource("scaledobjects", "ScaledObject", "keda.sh", ("v1alpha1",), optional=True)
ROLLOUTS = Resource("rollouts", "Rollout", "argoproj.io", ("v1alpha1",), optional=True)
LEADER_WORKER_SETS = Resource("leaderworkersets", "LeaderWorkerSet", "leaderworkerset.x-k8s.io", optional=True)
INFERENCE_SERVICES = Resource("inferenceservices", "InferenceService", "serving.kserve.io", ("v1beta1",), optional=True)
DYNAMO_GRAPHS = Resource(
    "dynamographdeployments", "DynamoGraphDeployment", "nvidia.com", ("v1beta1", "v1alpha1"), optional=True
)

# By the kinds of `workload_name`.
WORKLOADS = {
    "deployment": DEPLOYMENTS,
    "statefulset": STATEFUL_SETS,
    "leaderworkerset": LEADER_WORKER_SETS,
    "inferenceservice": INFERENCE_SERVICES,
    "dynamographdeployment": DYNAMO_GRAPHS,
    "rollout": ROLLOUTS,
    "pod": PODS,
}
# Labels by which custom workloads mark their Pods and the objects that they create.
LABELS = {
    "leaderworkerset": "leaderworkerset.sigs.k8s.io/name",
    "inferenceservice": "serving.kserve.io/inferenceservice",
    "dynamographdeployment": "nvidia.com/dynamo-graph-deployment-name",
}
