"""A router in front of the ready Pods of a Service: `python -m latdoctor.lab.cluster.service_router`.

It takes the place of kube-proxy, which the lab does not have: the address of a Service leads nowhere. It follows the
EndpointSlices of the Service. Each request goes to the ready Pod with the fewest requests in flight, and is not sent
again where that fails.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

from msgspec import Struct

from latdoctor.cluster_api import ApiError, ClusterApi, Listed, Login
from latdoctor.errors import LatdoctorError
from latdoctor.lab.hardened_http_server import HttpServer, allow_files, stop_event
from latdoctor.lab.server.load_balancing import RouterConfig
from latdoctor.lab.server.replica_pool import ReplicaPool
from latdoctor.lab.server.router import Router

_DRAIN_SECONDS = 10.0
_RETRY_AFTER = 1.0  # seconds until a refused watch is tried again

Slice = Mapping[str, Any]
Ready = dict[str, str]  # name of the Pod → URL
_NAME_LABEL = "kubernetes.io/service-name"


class ServiceName(Struct, frozen=True):
    """A Service and its namespace."""

    namespace: str
    name: str


def ready_pods(slices: Iterable[Slice]) -> Ready:
    """The URLs of the Pods that take requests, on the first port of their slice."""
    return {
        endpoint["targetRef"]["name"]: f"http://{endpoint['addresses'][0]}:{one['ports'][0]['port']}"
        for one in slices
        for endpoint in one["endpoints"] or ()
        if endpoint["conditions"].get("ready") and one["ports"]
    }


class EndpointFollower:
    """Follows the EndpointSlices of a Service on a thread, and passes on the ready Pods after every change."""

    def __init__(self, api: ClusterApi, service: ServiceName, changed: Callable[[Ready], None]) -> None:
        """Raises ApiError where there is no such Service."""
        api.get(f"/api/v1/namespaces/{service.namespace}/services/{service.name}")
        self._api, self._changed = api, changed
        self._path = f"/apis/discovery.k8s.io/v1beta1/namespaces/{service.namespace}/endpointslices"
        self._selector = f"{_NAME_LABEL}={service.name}"
        self._slices: dict[str, Slice] = {}
        self._stop = Event()
        self._thread = Thread(target=self._follow, name=f"endpoints of {service.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Passes nothing on from now on; the thread ends with its watch, in some seconds."""
        self._stop.set()

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                for update in self._api.follow(self._path, self._stop, labelSelector=self._selector):
                    if isinstance(update, Listed):
                        self._slices = {one["metadata"]["name"]: one for one in update.objects}
                    elif update.kind == "DELETED":
                        self._slices.pop(update.object["metadata"]["name"], None)
                    else:
                        self._slices[update.object["metadata"]["name"]] = update.object
                    if not self._stop.is_set():
                        self._changed(ready_pods(self._slices.values()))
            except ApiError as error:
                print(error, file=sys.stderr, flush=True)
                self._stop.wait(_RETRY_AFTER)


async def route(login: Login, service: ServiceName, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT; `announce` gets the address. Raises OperationError."""
    allow_files()
    stop_requested = stop_event()
    loop = asyncio.get_running_loop()
    pool = ReplicaPool({}, RouterConfig(slow_start_ms=0), dynamic=True)
    api = ClusterApi(login)
    follower = EndpointFollower(api, service, lambda ready: _pass_on(loop, pool, ready))
    async with Router(pool, one_try=True) as router:
        listening = HttpServer(router.app(), host=host, port=port, drain_seconds=_DRAIN_SECONDS)
        await listening.start()
        follower.start()
        try:
            announce(listening.url)
            await stop_requested.wait()
        finally:
            follower.stop()
            await listening.stop()
            api.close()


def _pass_on(loop: asyncio.AbstractEventLoop, pool: ReplicaPool, ready: Ready) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(pool.replace_ready, ready)


def _announce(url: str) -> None:
    print(url, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The process: exit code 0 after a clean end."""
    import uvloop

    parser = argparse.ArgumentParser(prog="python -m latdoctor.lab.cluster.service_router", description=__doc__)
    parser.add_argument("service", help="NAMESPACE/NAME")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    options = parser.parse_args(arguments)
    service = ServiceName(*options.service.split("/", 1))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(route(Login(options.kubeconfig), service, options.host, options.port, _announce))
    except LatdoctorError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
