"""The address of a Pod's metrics page: by the annotations of Prometheus, else by the name of a port."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SCRAPE = "prometheus.io/"
# Names of ports, those of metrics alone first.
_PORTS = ("metrics", "http-metrics", "prometheus", "monitoring", "http", "http1", "api", "openai", "server", "h2c")
Pod = Mapping[str, Any]


def page_of(pod: Pod) -> str:
    """The address of the Pod's page: that of the annotations of Prometheus, else of a port by its name; else empty."""
    address = (pod.get("status") or {}).get("podIP") or ""
    ports = [port for one in pod["spec"].get("containers") or () for port in one.get("ports") or ()]
    notes = pod["metadata"].get("annotations") or {}
    port = str(notes.get(f"{_SCRAPE}port", ""))
    if not port:
        named = {one.get("name"): one["containerPort"] for one in reversed(ports)}
        known = (named[name] for name in _PORTS if name in named)
        first = ports[0]["containerPort"] if ports and notes.get(f"{_SCRAPE}scrape") == "true" else ""
        port = str(next(known, first))
    if not (address and port.isdigit()) or notes.get(f"{_SCRAPE}scrape") == "false":
        return ""
    scheme = "https" if notes.get(f"{_SCRAPE}scheme") == "https" else "http"
    path = str(notes.get(f"{_SCRAPE}path", "/metrics")).lstrip("/")
    host = f"[{address}]" if ":" in address else address
    return f"{scheme}://{host}:{port}/{path}"
