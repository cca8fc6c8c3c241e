"""Objects of a test's namespace, and waiting for them by watching."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from latdoctor.cluster_api import ClusterApi, Listed

WITHIN = 45.0  # seconds: far more than any of it takes
WORKLOAD = Path(__file__).with_name("workload.py")
Object = dict[str, Any]
HEALTH = {"httpGet": {"path": "/healthz", "port": 8000}, "periodSeconds": 1}


def container(*arguments: str, image: str = "lab/workload:1", **more: Any) -> Object:
    command = [sys.executable, "-S", str(WORKLOAD), *arguments]
    return {"name": "server", "image": image, "command": command, **more}


class Namespace:
    """A new namespace."""

    def __init__(self, api: ClusterApi) -> None:
        self.api = api
        self.name = f"test-{uuid.uuid4().hex[:8]}"
        api.create("/api/v1/namespaces", {"metadata": {"name": self.name}})

    def delete(self) -> None:
        self.api.delete(f"/api/v1/namespaces/{self.name}")

    def path(self, kind: str, name: str = "") -> str:
        group = "/apis/apps/v1" if kind in ("deployments", "replicasets") else "/api/v1"
        return f"{group}/namespaces/{self.name}/{kind}" + (f"/{name}" if name else "")

    def pod(self, name: str, spec: Mapping[str, Any]) -> Object:
        grace = {"terminationGracePeriodSeconds": 1}
        return self.api.create(self.path("pods"), {"metadata": {"name": name}, "spec": {**grace, **spec}})

    def deployment(self, name: str, replicas: int, one: Mapping[str, Any], **more: Any) -> Object:
        labels = {"app": name}
        spec = {"terminationGracePeriodSeconds": 1, "containers": [one], **more}
        body = {
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
        return self.api.create(self.path("deployments"), body)

    def wait(self, kind: str, holds: Callable[[Mapping[str, Object]], Any], path: str = "") -> dict[str, Object]:
        """All objects of a kind by name, as soon as `holds` is true of them."""
        known: dict[str, Object] = {}
        stop = threading.Event()
        timer = threading.Timer(WITHIN, stop.set)
        timer.start()
        try:
            for update in self.api.follow(path or self.path(kind), stop):
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
        raise AssertionError(f"not within {WITHIN:g} s; {kind}: {known}")


def condition(one: Mapping[str, Any], kind: str) -> str:
    """The status of a condition: True, False, Unknown; empty where there is none."""
    found = [c["status"] for c in one.get("status", {}).get("conditions", ()) if c["type"] == kind]
    return found[0] if found else ""


def server(pod: Mapping[str, Any]) -> Object:
    """The status of its container."""
    statuses = pod.get("status", {}).get("containerStatuses", [{}])
    found: Object = statuses[0]
    return found


def waiting(pod: Mapping[str, Any]) -> str:
    """Why its container waits."""
    return str(server(pod).get("state", {}).get("waiting", {}).get("reason", ""))
