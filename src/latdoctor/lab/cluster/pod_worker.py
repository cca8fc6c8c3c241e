"""The life of one Pod on its node, on a thread of its own: containers, status, events, deletion."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from typing import Any

from latdoctor.cluster_api import CONFLICT, FORBIDDEN, NO_ANSWER, NOT_FOUND, ApiError, ClusterApi
from latdoctor.lab.cluster.container import Container, ContainerSettings
from latdoctor.lab.cluster.kubelet_server import ContainerUsage
from latdoctor.lab.cluster.pod_status import pod_status

_STEP = 0.1  # seconds between two looks at the processes


class PodWorker:
    """Runs the containers of `pod` until it is deleted, finished, or `abandon` is called."""

    def __init__(
        self,
        api: ClusterApi,
        pod: Mapping[str, Any],
        address: str,
        node_address: str,
        settings: ContainerSettings,
        clock: Callable[[], str],
    ) -> None:
        """`clock`: the present time of its node, as text."""
        self._clock = clock
        self._api, self._address, self._node_address = api, address, node_address
        self._name, self._namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self._uid = pod["metadata"]["uid"]
        self._node = pod["spec"]["nodeName"]
        self._path = f"/api/v1/namespaces/{self._namespace}/pods/{self._name}"
        self._deleted, self._abandoned = Event(), Event()
        self._grace = 0.0
        self._short_of = ""
        self._overwritten = Event()
        self._began = clock()
        self._reported: dict[str, Any] = {}
        self._counts: dict[tuple[str, str], tuple[str, int]] = {}
        environment = {
            **os.environ,
            "POD_IP": address,
            "POD_NAME": self._name,
            "POD_NAMESPACE": self._namespace,
            "NODE_NAME": self._node,
        }
        self._containers = tuple(
            Container(spec, pod["spec"], environment, settings, self._event, clock)
            for spec in pod["spec"]["containers"]
        )
        self._thread = Thread(target=self._run, name=f"pod {self._namespace}/{self._name}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def delete(self, grace: float) -> None:
        """The API server was asked to delete the Pod: ends its containers, then confirms the deletion."""
        self._grace = grace
        self._deleted.set()

    def abandon(self) -> None:
        """Kills the containers and reports nothing: the node is lost, or the Pod no longer exists."""
        self._abandoned.set()
        self._deleted.set()

    def observe(self, status: Mapping[str, Any]) -> None:
        """The status in the API: where another client has changed whether the Pod is ready, it is reported again.

        The controller of nodes does so for the Pods of a node that it believes lost.
        """
        if _readiness(status) != _readiness(self._reported):
            self._overwritten.set()

    def evict(self, resource: str) -> None:
        """Its node is short of a resource: ends its containers at once, and leaves the Pod as failed."""
        self._short_of = resource
        self._deleted.set()

    def usages(self) -> list[ContainerUsage]:
        """Of its containers that run. May be called from any thread."""
        found = (one.usage(self._namespace, self._name, self._uid) for one in self._containers)
        return [one for one in found if one is not None]

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._deleted.is_set():
                for container in self._containers:
                    container.step(self._abandoned)
                self._report_status()
                if all(container.finished is not None for container in self._containers):
                    return
                self._deleted.wait(_STEP)
        finally:
            self._end_containers()
        if self._short_of and not self._abandoned.is_set():
            message = f"The node was low on resource: {self._short_of}. "
            self._event("Warning", "Evicted", message)
            self._report_status({"phase": "Failed", "reason": "Evicted", "message": message})
        elif not self._abandoned.is_set():
            self._report_status()
            confirm_deletion(self._api, self._path, self._uid)

    def _end_containers(self) -> None:
        with ThreadPoolExecutor(len(self._containers)) as pool:
            list(pool.map(lambda one: one.end(self._grace, self._abandoned), self._containers))

    def _report_status(self, more: Mapping[str, Any] | None = None) -> None:
        """A patch where something has changed; it is not needed where the Pod is gone."""
        status = pod_status(
            self._containers, self._address, self._node_address, self._began, self._reported, self._clock
        )
        status |= more or {}
        overwritten = self._overwritten.is_set()
        if (status == self._reported and not overwritten) or self._abandoned.is_set():
            return
        self._overwritten.clear()
        try:
            self._api.patch(f"{self._path}/status", {"metadata": {"uid": self._uid}, "status": status})
            self._reported = status
        except ApiError as error:
            if error.status not in (NOT_FOUND, CONFLICT, NO_ANSWER):
                raise

    def _event(self, kind: str, reason: str, message: str) -> None:
        """An event of the Pod; a repeated one is counted."""
        if self._abandoned.is_set():
            return
        events = f"/api/v1/namespaces/{self._namespace}/events"
        name, count = self._counts.get((reason, message), ("", 0))
        try:
            if name:
                self._api.patch(f"{events}/{name}", {"count": count + 1, "lastTimestamp": self._clock()})
            else:
                name = self._api.create(events, self._new_event(kind, reason, message))["metadata"]["name"]
        except ApiError as error:
            if error.status in (NOT_FOUND, FORBIDDEN, NO_ANSWER):
                return  # the namespace is ending, or the cluster
            raise
        self._counts[reason, message] = (name, count + 1)

    def _new_event(self, kind: str, reason: str, message: str) -> dict[str, Any]:
        about = {"kind": "Pod", "namespace": self._namespace, "name": self._name, "uid": self._uid, "apiVersion": "v1"}
        return {
            "metadata": {"generateName": f"{self._name}."},
            "type": kind,
            "reason": reason,
            "message": message,
            "firstTimestamp": self._clock(),
            "lastTimestamp": self._clock(),
            "count": 1,
            "source": {"component": "kubelet", "host": self._node},
            "involvedObject": about,
        }


def _readiness(status: Mapping[str, Any]) -> str:
    found = [one["status"] for one in status.get("conditions") or () if one["type"] == "Ready"]
    return found[0] if found else ""


def confirm_deletion(api: ClusterApi, path: str, uid: str) -> None:
    """Removes the Pod from the API: its containers have ended."""
    try:
        api.delete(path, {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
    except ApiError as error:
        if error.status not in (NOT_FOUND, CONFLICT, NO_ANSWER):
            raise
