"""A service of the lab with its router: created, waited for, and removed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Timer
from typing import Any, Self

from latdoctor.cluster_api import ClusterApi, Listed
from latdoctor.errors import OperationError
from latdoctor.lab.child_process import ChildProcess
from latdoctor.lab.cluster import manifests
from latdoctor.lab.cluster.external_metrics import ROUTER
from latdoctor.lab.cluster.manifests import ServiceSpec
from latdoctor.lab.server.supervisor import free_ports

READY_WITHIN = 120.0

Objects = dict[str, dict[str, Any]]  # by name


class ServiceRouter:
    """The router of a Service in a process of its own; a context manager that ends it."""

    def __init__(self, kubeconfig: Path, namespace: str, name: str) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        arguments = [f"{namespace}/{name}", f"--kubeconfig={kubeconfig}", f"--port={port}"]
        self._child = ChildProcess("the router", "latdoctor.lab.cluster.service_router", arguments)

    def __enter__(self) -> Self:
        self._child.wait_answers(f"{self.url}/healthz")
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()


def wait_for(api: ClusterApi, path: str, holds: Callable[[Objects], bool], within: float = READY_WITHIN) -> Objects:
    """The objects of `path` as soon as `holds` is true of them. Raises OperationError after `within` seconds."""
    stop = Event()
    timer = Timer(within, stop.set)
    timer.daemon = True
    timer.start()
    known: Objects = {}
    try:
        for update in api.follow(path, stop):
            if isinstance(update, Listed):
                known = {one["metadata"]["name"]: one for one in update.objects}
            elif update.kind == "DELETED":
                known.pop(update.object["metadata"]["name"], None)
            else:
                known[update.object["metadata"]["name"]] = update.object
            if holds(known):
                return known
    finally:
        timer.cancel()
    raise OperationError(f"did not reach the expected state within {within:g} s", where=path)


def is_rolled_out(deployment: dict[str, Any]) -> bool:
    """All replicas are of the present template, and ready; none of another is left."""
    status, replicas = deployment.get("status", {}), deployment["spec"]["replicas"]
    counts = {status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")}
    return status.get("observedGeneration", 0) >= deployment["metadata"]["generation"] and counts == {replicas}


class DeployedService:
    """Creates the objects of a service in its namespace, and starts its router; removes both at the end."""

    def __init__(self, api: ClusterApi, kubeconfig: Path, spec: ServiceSpec) -> None:
        self.spec = spec
        self._api, self._kubeconfig = api, kubeconfig
        self._ends = ExitStack()
        self.router = ""  # its URL

    def __enter__(self) -> Self:
        """Returns when all replicas are ready. Raises OperationError."""
        namespace = self.spec.namespace
        with self._ends:
            self._api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
            self._ends.callback(self._remove)
            self._api.create(manifests.path(namespace, "deployments"), manifests.deployment(self.spec))
            self._api.create(manifests.path(namespace, "services"), manifests.kubernetes_service(self.spec))
            router = self._ends.enter_context(ServiceRouter(self._kubeconfig, namespace, self.spec.name))
            self.router = router.url
            annotation = {"metadata": {"annotations": {ROUTER: router.url}}}  # where the autoscaler's metrics are
            self._api.patch(manifests.path(namespace, "services", self.spec.name), annotation)
            self.wait_rolled_out()
            self._ends = self._ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def path(self, kind: str, name: str = "") -> str:
        return manifests.path(self.spec.namespace, kind, name)

    def wait_rolled_out(self, within: float = READY_WITHIN) -> None:
        """Raises OperationError."""
        wait_for(
            self._api,
            self.path("deployments"),
            lambda all_: self.spec.name in all_ and is_rolled_out(all_[self.spec.name]),
            within,
        )

    def _remove(self) -> None:
        """Deletes the namespace, and returns when its Pods have ended."""
        self._api.delete(f"/api/v1/namespaces/{self.spec.namespace}")
        wait_for(self._api, self.path("pods"), lambda pods: not pods)
