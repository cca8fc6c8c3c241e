"""The external metrics API of the cluster (external.metrics.k8s.io/v1beta1), served over TLS as an aggregated API.

The autoscaler of the control plane reads the load of a service here, as it does from an adapter such as KEDA's. The
values are those of the service's router, averaged over the last seconds; the annotation `lab.latdoctor/router` of the
Service names the router.
"""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

from latdoctor.cluster_api import NOT_FOUND, ApiError, ClusterApi
from latdoctor.errors import OperationError
from latdoctor.lab.cluster.self_signed import self_signed, server_context
from latdoctor.lab.metrics_snapshot import scrape

IN_FLIGHT = "requests_in_flight"
RATE = "requests_per_second"
METRICS = (IN_FLIGHT, RATE)
ROUTER = "lab.latdoctor/router"  # the annotation of a Service with the URL of its router
_GROUP, _VERSION = "external.metrics.k8s.io", "v1beta1"
_ROOT = f"/apis/{_GROUP}/{_VERSION}"
_SERVICE, _NAMESPACE = "external-metrics", "kube-system"
_NAME = f"{_SERVICE}.{_NAMESPACE}.svc"  # to which the API server verifies the certificate
_SAMPLE_EVERY = 0.5  # seconds
_AVERAGED = 4.0  # seconds
_FORGOTTEN_AFTER = 60.0  # seconds in which no autoscaler asked
_AVAILABLE_WITHIN = 30.0


class _Sample(Struct, frozen=True):
    at: float  # of the monotonic clock
    in_flight: float
    arrivals: float


class RouterLoad:
    """The load at a router in the last seconds. `read` may be called from any thread."""

    def __init__(self, url: str, now: float) -> None:
        self._url = url
        self.asked = now
        self._samples: deque[_Sample] = deque()
        self._lock = Lock()

    def sample(self, now: float) -> None:
        """Reads the router's page; a page that does not answer is left out."""
        try:
            values = scrape(self._url, 2.0).values
        except OperationError:
            values = None
        with self._lock:
            while self._samples and self._samples[0].at < now - _AVERAGED:
                self._samples.popleft()
            if values is not None:
                in_flight = values.get("ref_router_in_flight", 0.0)
                self._samples.append(_Sample(now, in_flight, values.get("ref_router_arrivals_total", 0.0)))

    def read(self, metric: str) -> float | None:
        """None: unknown, such as before the second sample."""
        with self._lock:
            samples = tuple(self._samples)
        if len(samples) < 2 or metric not in METRICS:
            return None
        if metric == IN_FLIGHT:
            return sum(one.in_flight for one in samples) / len(samples)
        first, last = samples[0], samples[-1]
        return (last.arrivals - first.arrivals) / (last.at - first.at)


class ExternalMetrics:
    """A context manager that registers the API in the cluster and serves it.

    A metric is found by its name and the label `service` of the selector, in the namespace of the autoscaler.
    """

    def __init__(self, api: ClusterApi, folder: Path, openssl: str) -> None:
        self._api, self._folder, self._openssl = api, folder, openssl
        self._loads: dict[tuple[str, str], RouterLoad] = {}
        self._stop = Event()
        self._threads: list[Thread] = []
        self._server: ThreadingHTTPServer | None = None

    def read(self, namespace: str, metric: str, service: str) -> float | None:
        """None: unknown. A service that is asked for is sampled from then on. Raises ApiError."""
        key, now = (namespace, service), monotonic()
        if key not in self._loads:
            router = self._router(namespace, service)
            if not router:
                return None
            self._loads[key] = RouterLoad(router, now)
        load = self._loads[key]
        load.asked = now
        return load.read(metric)

    def _router(self, namespace: str, service: str) -> str:
        """The URL of its router; empty: there is none. Raises ApiError."""
        try:
            found = self._api.get(f"/api/v1/namespaces/{namespace}/services/{service}")
        except ApiError as error:
            if error.status == NOT_FOUND:
                return ""
            raise
        return str(found["metadata"].get("annotations", {}).get(ROUTER, ""))

    def __enter__(self) -> Self:
        """Returns when the API server passes requests on. Raises OperationError."""
        certificate, key = self_signed(self._folder, self._openssl, _SERVICE, f"DNS:{_NAME}")
        context = server_context(certificate, key)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        for name, run in (("serve", self._server.serve_forever), ("sample", self._sample)):
            thread = Thread(target=run, name=f"external metrics: {name}", daemon=True)
            thread.start()
            self._threads.append(thread)
        try:
            self._register(certificate, self._server.server_address[1])
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stop.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        for thread in self._threads:
            thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(_SAMPLE_EVERY):
            for key, load in tuple(self._loads.items()):
                if load.asked < monotonic() - _FORGOTTEN_AFTER:
                    del self._loads[key]
                else:
                    load.sample(monotonic())

    def _register(self, certificate: Path, port: int) -> None:
        """Raises OperationError where the API server does not find the service."""
        service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
        self._api.create(f"/api/v1/namespaces/{_NAMESPACE}/services", {"metadata": {"name": _SERVICE}, "spec": service})
        spec = {
            "group": _GROUP,
            "version": _VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "caBundle": base64.b64encode(certificate.read_bytes()).decode(),
            "service": {"namespace": _NAMESPACE, "name": _SERVICE, "port": port},
        }
        body = {"metadata": {"name": f"{_VERSION}.{_GROUP}"}, "spec": spec}
        self._api.create("/apis/apiregistration.k8s.io/v1/apiservices", body)
        deadline = monotonic() + _AVAILABLE_WITHIN
        while True:
            try:
                self._api.get(_ROOT)
                return
            except ApiError as error:
                if monotonic() > deadline or self._stop.wait(0.1):
                    raise OperationError(f"the external metrics API is not available: {error}") from error


def _discovery() -> dict[str, Any]:
    resources = [
        {"name": name, "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
        for name in METRICS
    ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": _ROOT[len("/apis/") :],
        "resources": resources,
    }


def _values(metric: str, labels: Mapping[str, str], value: float) -> dict[str, Any]:
    item = {
        "metricName": metric,
        "metricLabels": dict(labels),
        "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "value": f"{round(value * 1000)}m",
    }
    return {"kind": "ExternalMetricValueList", "apiVersion": f"{_GROUP}/{_VERSION}", "metadata": {}, "items": [item]}


def _failure(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}


def _handler(metrics: ExternalMetrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path.rstrip("/") == _ROOT:
                self._reply(200, _discovery())
                return
            words = parts.path.removeprefix(_ROOT).strip("/").split("/")  # namespaces/NAMESPACE/METRIC
            labels = dict(
                part.split("=", 1)
                for text in parse_qs(parts.query).get("labelSelector", ())
                for part in text.split(",")
                if "=" in part
            )
            try:
                value = metrics.read(words[1], words[2], labels.get("service", "")) if len(words) == 3 else None
            except ApiError as error:
                self._reply(503, _failure(503, str(error)))
                return
            if value is None:
                self._reply(404, _failure(404, "there is no such metric, or no value of it yet"))
            else:
                self._reply(200, _values(words[2], labels, value))

        def _reply(self, status: int, body: Mapping[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """The API server asks every few seconds."""

    return Handler
