"""The kubelet of all nodes: follows the Pods bound to them, and gives each a worker."""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from threading import Event, Lock, Thread
from typing import Any, Self

from latdoctor.cluster_api import NO_ANSWER, ApiError, ClusterApi, Listed
from latdoctor.lab.cluster.container import ContainerSettings
from latdoctor.lab.cluster.kubelet_server import ContainerUsage, KubeletServer
from latdoctor.lab.cluster.nodes import ClusterNode, NodeAgent
from latdoctor.lab.cluster.pod_worker import PodWorker, confirm_deletion

_FINISHED = ("Succeeded", "Failed")


class Kubelet:
    """A context manager that registers the nodes and runs their Pods; at the end it kills every container.

    A node with the annotation `lab.latdoctor/lost` disappears as by a power failure, until the annotation is removed.
    One with `lab.latdoctor/pressure` (memory, disk) reports that pressure and evicts a Pod. The clock of one with
    `lab.latdoctor/clock-ahead` is so many seconds ahead.
    """

    def __init__(
        self,
        api: ClusterApi,
        nodes: Sequence[ClusterNode],
        settings: ContainerSettings,
        tls: ssl.SSLContext,
        heartbeat: float = 10.0,
    ) -> None:
        self._api, self._settings, self._tls, self._heartbeat = api, settings, tls, heartbeat
        self._servers: list[KubeletServer] = []
        self._agents = {node.name: NodeAgent(api, node) for node in nodes}
        self._numbers: Counter[str] = Counter()
        self._pods: dict[str, dict[str, Any]] = {}
        self._workers: dict[str, PodWorker] = {}
        self._lost: set[str] = set()
        self._lock = Lock()
        self._stop = Event()
        self._threads = (
            Thread(target=self._follow, name="kubelet: pods", daemon=True),
            Thread(target=self._beat, name="kubelet: heartbeat", daemon=True),
        )

    def __enter__(self) -> Self:
        """Raises ApiError where a node cannot be registered."""
        for agent in self._agents.values():
            server = KubeletServer(agent.node.address, self._tls, partial(self._usages, agent.node.name))
            self._servers.append(server)
            agent.port = server.port
            agent.register()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        with self._lock:
            workers = tuple(self._workers.values())
        for worker in workers:
            worker.abandon()
        for worker in workers:
            worker.join()
        for server in self._servers:
            server.close()

    def _usages(self, node: str) -> list[ContainerUsage]:
        """Of the containers that run on the node."""
        with self._lock:
            found = [self._workers.get(uid) for uid, pod in self._pods.items() if pod["spec"]["nodeName"] == node]
        return [usage for worker in found if worker is not None for usage in worker.usages()]

    def _follow(self) -> None:
        for update in self._api.follow("/api/v1/pods", self._stop):
            with self._lock:
                if isinstance(update, Listed):
                    present = {pod["metadata"]["uid"] for pod in update.objects}
                    for uid in self._pods.keys() - present:
                        self._forget(uid)
                    for pod in update.objects:
                        self._sync(pod)
                elif update.kind == "DELETED":
                    self._forget(update.object["metadata"]["uid"])
                else:
                    self._sync(update.object)

    def _forget(self, uid: str) -> None:
        """The Pod no longer exists."""
        self._pods.pop(uid, None)
        worker = self._workers.pop(uid, None)
        if worker is not None:
            worker.abandon()

    def _sync(self, pod: dict[str, Any]) -> None:
        """Brings the worker of a Pod in line with it."""
        agent = self._agents.get(pod["spec"].get("nodeName", ""))
        if agent is None or self._stop.is_set():
            return
        uid, metadata = pod["metadata"]["uid"], pod["metadata"]
        self._pods[uid] = pod
        if agent.node.name in self._lost:
            return
        worker = self._workers.get(uid)
        deleted = "deletionTimestamp" in metadata
        if worker is not None and worker.alive:
            if deleted:
                worker.delete(float(metadata.get("deletionGracePeriodSeconds", 0)))
            else:
                worker.observe(pod.get("status", {}))
        elif deleted:
            confirm_deletion(self._api, f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}", uid)
        elif worker is None and pod.get("status", {}).get("phase") not in _FINISHED:
            self._workers[uid] = self._start(agent, pod)

    def _start(self, agent: NodeAgent, pod: Mapping[str, Any]) -> PodWorker:
        """A Pod of a node that was lost keeps its address."""
        node = agent.node
        address = pod.get("status", {}).get("podIP")
        if not address:
            address = node.pod_address(self._numbers[node.name])
            self._numbers[node.name] += 1
        return PodWorker(self._api, pod, address, node.address, self._settings, agent.now)

    def _beat(self) -> None:
        """Heartbeats; a node that is marked as lost has none, and none of its processes."""
        while not self._stop.wait(self._heartbeat):
            for agent in self._agents.values():
                try:
                    self._attend(agent)
                except ApiError as error:
                    if error.status != NO_ANSWER:
                        raise

    def _attend(self, agent: NodeAgent) -> None:
        name = agent.node.name
        marks = agent.marks()
        agent.clock_ahead = marks.clock_ahead
        lost = marks.lost
        with self._lock:
            if lost and name not in self._lost:
                self._lost.add(name)
                self._kill_all(name)
            elif not lost and name in self._lost:
                self._lost.remove(name)
                agent.returned()
                for pod in [pod for pod in self._pods.values() if pod["spec"]["nodeName"] == name]:
                    self._sync(pod)
        if not lost:
            if agent.press(marks.short_of):
                self._evict_one(name, marks.short_of)
            agent.heartbeat()

    def _evict_one(self, node: str, resource: str) -> None:
        """The newest Pod of the node."""
        with self._lock:
            running = [
                (pod["metadata"]["creationTimestamp"], uid)
                for uid, pod in self._pods.items()
                if pod["spec"]["nodeName"] == node and uid in self._workers and self._workers[uid].alive
            ]
            if running:
                self._workers[max(running)[1]].evict(resource)

    def _kill_all(self, node: str) -> None:
        for uid, pod in self._pods.items():
            worker = self._workers.pop(uid, None) if pod["spec"]["nodeName"] == node else None
            if worker is not None:
                worker.abandon()
