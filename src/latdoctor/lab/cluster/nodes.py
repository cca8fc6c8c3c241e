"""The nodes of the cluster: their labels, resources, conditions and leases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from latdoctor.cluster_api import CONFLICT, ApiError, ClusterApi
from latdoctor.lab.cluster.container import timestamp

GPU = "nvidia.com/gpu"
MIG_SLICE = "nvidia.com/mig-1g.5gb"
LOST = "lab.latdoctor/lost"  # the annotation of a node that is to disappear, as by a power failure
CLOCK_AHEAD = "lab.latdoctor/clock-ahead"  # of one whose clock is to be so many seconds ahead
PRESSURE = "lab.latdoctor/pressure"  # of one that is to be short of `memory` or `disk`
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_LEASE_SECONDS = 40
_HEALTHY = {
    "MemoryPressure": ("KubeletHasSufficientMemory", "False"),
    "DiskPressure": ("KubeletHasNoDiskPressure", "False"),
    "PIDPressure": ("KubeletHasSufficientPID", "False"),
    "Ready": ("KubeletReady", "True"),
}
_SHORT_OF = {
    "memory": ("MemoryPressure", "KubeletHasInsufficientMemory"),
    "disk": ("DiskPressure", "KubeletHasDiskPressure"),
}


@dataclass(frozen=True, slots=True)
class NodeMarks:
    """What the annotations of a node want. `short_of`: memory, disk or empty."""

    lost: bool
    short_of: str
    clock_ahead: float = 0.0


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node; its Pods get addresses below `127.NETWORK.`."""

    name: str
    zone: str
    network: int
    resources: Mapping[str, str]

    @property
    def address(self) -> str:
        return f"127.{self.network}.0.1"

    def pod_address(self, number: int) -> str:
        """The address of the Pod with this number, from 0 on."""
        high, low = divmod(number % 60_000, 250)
        return f"127.{self.network}.{high + 1}.{low + 1}"


def make_nodes(
    count: int, zones: int, network: int, *, gpus: int = 0, mig_slices: int = 0, cpus: int = 16
) -> tuple[ClusterNode, ...]:
    """`node-0`, `node-1` …, spread over `zone-a`, `zone-b` …; `network` is that of the first."""
    resources = {"cpu": str(cpus), "memory": "64Gi", "pods": "110"}
    resources |= {GPU: str(gpus)} if gpus else {}
    resources |= {MIG_SLICE: str(mig_slices)} if mig_slices else {}
    return tuple(
        ClusterNode(f"node-{number}", f"zone-{chr(ord('a') + number % zones)}", network + number, resources)
        for number in range(count)
    )


class NodeAgent:
    """Registers a node and renews its lease and status, as long as it is not marked as lost."""

    def __init__(self, api: ClusterApi, node: ClusterNode) -> None:
        self.node = node
        self._api = api
        self._path = f"/api/v1/nodes/{node.name}"
        self._ready_since = timestamp()
        self._pressed_since = ""
        self.short_of = ""
        self.port = 0  # of the node's kubelet server
        self.clock_ahead = 0.0  # seconds

    def register(self) -> None:
        """Raises ApiError."""
        labels = {
            "kubernetes.io/hostname": self.node.name,
            "kubernetes.io/os": "linux",
            "topology.kubernetes.io/zone": self.node.zone,
        }
        body = {"metadata": {"name": self.node.name, "labels": labels}}
        lease = {"metadata": {"name": self.node.name}, **self._lease()}
        for path, content in (("/api/v1/nodes", body), (_LEASES, lease)):
            try:
                self._api.create(path, content)
            except ApiError as error:
                if error.status != CONFLICT:  # it exists
                    raise
        self.heartbeat()

    def marks(self) -> NodeMarks:
        """Raises ApiError."""
        annotations = self._api.get(self._path)["metadata"].get("annotations", {})
        short_of = annotations.get(PRESSURE, "")
        ahead = float(annotations.get(CLOCK_AHEAD, 0.0))
        return NodeMarks(LOST in annotations, short_of if short_of in _SHORT_OF else "", ahead)

    def now(self) -> str:
        """The present time by the clock of the node."""
        return timestamp(self.clock_ahead)

    def press(self, short_of: str) -> bool:
        """From now on it is short of that resource, or of none; whether that is a new shortage."""
        if short_of == self.short_of:
            return False
        self.short_of, self._pressed_since = short_of, self.now()
        return bool(short_of)

    def heartbeat(self) -> None:
        """Raises ApiError."""
        self._api.patch(f"{_LEASES}/{self.node.name}", self._lease())
        self._api.patch(f"{self._path}/status", {"status": self._status()})

    def returned(self) -> None:
        """The node was lost and is back: it is ready from now on."""
        self._ready_since = self.now()

    def _lease(self) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self.node.name, "leaseDurationSeconds": _LEASE_SECONDS, "renewTime": now}
        return {"spec": spec}

    def _conditions(self) -> list[dict[str, Any]]:
        short_of, why = _SHORT_OF.get(self.short_of, ("", ""))
        values = {**_HEALTHY, **({short_of: (why, "True")} if short_of else {})}
        pressures = {kind for kind, _ in _SHORT_OF.values()}
        return [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "lastHeartbeatTime": self.now(),
                "lastTransitionTime": (self._pressed_since if kind in pressures else "") or self._ready_since,
            }
            for kind, (reason, status) in values.items()
        ]

    def _status(self) -> dict[str, Any]:
        addresses = [
            {"type": "InternalIP", "address": self.node.address},
            {"type": "Hostname", "address": self.node.name},
        ]
        return {
            "capacity": dict(self.node.resources),
            "allocatable": dict(self.node.resources),
            "conditions": self._conditions(),
            "addresses": addresses,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
            "nodeInfo": {"kubeletVersion": "v1.20.2-lab", "operatingSystem": "linux", "architecture": "amd64"},
        }
