"""The kubelet's own HTTPS server of a node, behind `/api/v1/nodes/NODE/proxy` of the API server: /metrics/cadvisor.

It listens on the node's loopback address. The families and labels are those of cAdvisor in the kubelet, without the
control groups above containers.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from msgspec import Struct

from latdoctor.lab.cluster.cpu_limit import PERIOD, CpuCounters

PAGE = "/metrics/cadvisor"


class ContainerUsage(Struct, frozen=True):
    """A running container. `cpus`: its limit, None without one; `used`: seconds of processor time; `memory`: bytes."""

    namespace: str
    pod: str
    uid: str
    container: str
    image: str
    restarts: int
    cpus: float | None
    used: float
    memory: int
    counters: CpuCounters


Usages = Callable[[], Iterable[ContainerUsage]]
# Family, its type, and its value of a container; None where the container has no such limit.
_FAMILIES: tuple[tuple[str, str, Callable[[ContainerUsage], float | None]], ...] = (
    ("container_cpu_cfs_periods_total", "counter", lambda one: _limited(one, one.counters.periods)),
    ("container_cpu_cfs_throttled_periods_total", "counter", lambda one: _limited(one, one.counters.throttled_periods)),
    ("container_cpu_cfs_throttled_seconds_total", "counter", lambda one: _limited(one, one.counters.throttled)),
    ("container_cpu_usage_seconds_total", "counter", lambda one: one.used),
    ("container_memory_working_set_bytes", "gauge", lambda one: one.memory),
    ("container_spec_cpu_period", "gauge", lambda one: round(PERIOD * 1e6)),
    ("container_spec_cpu_quota", "gauge", lambda one: _limited(one, round((one.cpus or 0.0) * PERIOD * 1e6))),
)


def _limited(one: ContainerUsage, value: float) -> float | None:
    return None if one.cpus is None else value


def cadvisor_page(usages: Iterable[ContainerUsage], now: float) -> str:
    """The page at `now`, unix seconds."""
    return "".join(f"{line}\n" for line in _lines(tuple(usages), now))


def _lines(usages: tuple[ContainerUsage, ...], now: float) -> Iterator[str]:
    for family, kind, value_of in _FAMILIES:
        yield f"# TYPE {family} {kind}"
        for one in usages:
            value = value_of(one)
            if value is not None:
                labels = {
                    "container": one.container,
                    **({"cpu": "total"} if family == "container_cpu_usage_seconds_total" else {}),
                    "id": f"/kubepods/pod{one.uid}/{one.container}-{one.restarts}",
                    "image": one.image,
                    "name": f"{one.uid}-{one.container}-{one.restarts}",
                    "namespace": one.namespace,
                    "pod": one.pod,
                }
                shown = ",".join(f'{name}="{text}"' for name, text in labels.items())
                yield f"{family}{{{shown}}} {value:.15g} {round(now * 1000)}"


class KubeletServer:
    """Serves the page of a node until `close`."""

    def __init__(self, address: str, context: ssl.SSLContext, usages: Usages) -> None:
        self._server = ThreadingHTTPServer((address, 0), _handler(usages))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = Thread(target=self._server.serve_forever, name=f"kubelet server of {address}", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(usages: Usages) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def do_GET(self) -> None:
            found = self.path.partition("?")[0] == PAGE
            content = cadvisor_page(usages(), time.time()).encode() if found else b"404 page not found\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """The API server asks often."""

    return Handler
