"""A cluster: the control plane and the kubelet of its nodes."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from latdoctor.cluster_api import ClusterApi, Login
from latdoctor.lab.cluster.container import ContainerSettings
from latdoctor.lab.cluster.control_plane import AutoscalerTiming, ControlPlane, NodeTiming
from latdoctor.lab.cluster.external_metrics import ExternalMetrics
from latdoctor.lab.cluster.images import IMAGES
from latdoctor.lab.cluster.kubelet import Kubelet
from latdoctor.lab.cluster.nodes import make_nodes
from latdoctor.lab.cluster.self_signed import self_signed, server_context


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Nodes, what each of them has, the images that can be pulled, and times in seconds."""

    nodes: int = 3
    zones: int = 3
    gpus: int = 0
    mig_slices: int = 0
    images: Mapping[str, Sequence[str]] = field(default_factory=lambda: IMAGES)
    backoff: float = 10.0
    heartbeat: float = 10.0
    timing: NodeTiming = field(default_factory=NodeTiming)
    autoscaler: AutoscalerTiming = field(default_factory=AutoscalerTiming)


class Cluster:
    """A context manager that starts a cluster and ends all of its processes."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._ends = ExitStack()
        self.control_plane = ControlPlane(settings.timing, settings.autoscaler)

    @property
    def kubeconfig(self) -> Path:
        return self.control_plane.kubeconfig

    def __enter__(self) -> Self:
        """Raises OperationError."""
        wanted = self._settings
        with self._ends:
            self._ends.enter_context(self.control_plane)
            api = ClusterApi(Login(self.kubeconfig))
            self._ends.callback(api.close)
            plane = self.control_plane
            self._ends.enter_context(ExternalMetrics(api, plane.folder, plane.openssl))
            logs = plane.folder / "pods"
            logs.mkdir()
            # Two clusters on one machine must not give the same addresses to their Pods.
            network = random.SystemRandom().randrange(10, 250 - wanted.nodes)
            nodes = make_nodes(wanted.nodes, wanted.zones, network, gpus=wanted.gpus, mig_slices=wanted.mig_slices)
            containers = ContainerSettings(wanted.images, wanted.backoff, logs)
            addresses = ",".join(f"IP:{node.address}" for node in nodes)
            tls = server_context(*self_signed(plane.folder, plane.openssl, "kubelet", addresses))
            self._ends.enter_context(Kubelet(api, nodes, containers, tls, wanted.heartbeat))
            self._ends = self._ends.pop_all()
        return self

    def wait(self) -> None:
        """Until the process is interrupted. Raises OperationError where a program of the control plane ends."""
        while True:
            self.control_plane.must_run()
            time.sleep(1)

    def __exit__(self, *_: object) -> None:
        self._ends.close()
