"""Replicas started ahead of a forecast, and only once the load is there: P99 in the same rush, for three services.

Usage: python -m bench.standby [--only ROW] [--output text|json]
The rows are the lab's router with its replicas, a Deployment that no autoscaler scales, and one with an autoscaler,
both on the lab's cluster (KUBEBUILDER_ASSETS). A replica's model sleeps instead of computing, and takes 20 s to load.
Four days of rates are written as CSV, with a rush every two hours, the next one in three minutes. Open-loop load does
just that. "With" runs `latdoctor forecast` and `latdoctor remediate --from`; "without" asks for the same number of
replicas 15 s after the rise, as an autoscaler does at its next look, or leaves that to the autoscaler there is.

A further row is one entry of ROWS. Exits 1 where replicas were not verified as ready.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx
from msgspec import Struct

from bench.harness import arguments, log, markdown, print_result
from latdoctor.cluster_api import ClusterApi, Login
from latdoctor.errors import OperationError
from latdoctor.evaluation.cluster.cluster_run import SETTINGS
from latdoctor.lab.child_process import ChildProcess
from latdoctor.lab.cluster import manifests
from latdoctor.lab.cluster.cluster import Cluster
from latdoctor.lab.cluster.deployed_service import DeployedService
from latdoctor.lab.cluster.external_metrics import RATE
from latdoctor.lab.cluster.manifests import ServiceSpec
from latdoctor.lab.server.load_balancing import RouterConfig
from latdoctor.lab.server.serve_replicas import RouterOptions, serve_router
from latdoctor.lab.server.supervisor import ReplicaCommand, free_ports
from latdoctor.load.arrivals import Poisson
from latdoctor.load.mix import Mix
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.process import start_load
from latdoctor.load.summary import LoadResult

SLO = 0.5  # seconds
LOW, HIGH = 15.0, 60.0  # requests per second
PER_REPLICA = 35.0  # what one replica takes; with 30 % reserve HIGH needs three
TIMES = ("--batch-ms=2", "--token-ms=0.5")  # of the sleeping model
LOAD_SECONDS = 20.0  # until a replica has loaded its model
MINUTE, DAY = 60.0, 86400.0
_DAYS, _AHEAD, _PEAK_LASTS, _LOOK = 4, 3, 90.0, 15.0
_RUSH_EVERY, _RUSH_LASTS = 7200.0, 1800.0  # seconds, in the history
_MIX = Mix(long_share=0.0, audio_share=0.0)
_TOKEN = "a-token-of-the-bench"  # noqa: S105 - of a router that lives for minutes


class Service(Protocol):
    """What is loaded and scaled. `page`: the metrics page; `named`: the options that name it."""

    url: str
    named: tuple[str, ...]

    def scale(self, replicas: int) -> None:
        """Ask for so many replicas, as an autoscaler does once the load is there."""


class Measured(Struct, frozen=True):
    """One rush. P99 in seconds and requests of the rush; `late`: not answered within the SLO."""

    row: str
    standby: bool
    p99: float
    requests: int
    late: int
    lost: int
    replicas: int  # that were asked for
    ready_before: float | None = None  # seconds from the end of the run to the rise
    exit_code: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RouterService:
    """The lab's router with replicas whose model sleeps."""

    url: str

    @property
    def named(self) -> tuple[str, ...]:
        return ("--server", f"{self.url}/metrics")

    def scale(self, replicas: int) -> None:
        headers = {"authorization": f"Bearer {_TOKEN}", "if-match": "*"}
        httpx.put(f"{self.url}/admin/scale", json={"replicas": replicas}, headers=headers).raise_for_status()


@dataclass(frozen=True, slots=True)
class ClusterService:
    """A Deployment behind a router. `scaled`: an autoscaler decides the number."""

    api: ClusterApi
    kubeconfig: Path
    deployed: DeployedService
    scaled: bool

    @property
    def url(self) -> str:
        return self.deployed.router

    @property
    def named(self) -> tuple[str, ...]:
        spec = self.deployed.spec
        kube = ("--kube", f"{spec.namespace}/{spec.name}", "--kubeconfig", str(self.kubeconfig))
        return (*kube, "--server", f"{self.url}/metrics")

    def scale(self, replicas: int) -> None:
        if not self.scaled:
            path = self.deployed.path("deployments", self.deployed.spec.name)
            self.api.patch(path, {"spec": {"replicas": replicas}})


def replica(name: str) -> ReplicaCommand:
    """A reference server whose model sleeps."""
    (port,) = free_ports(1)
    command = (sys.executable, "-m", "latdoctor.lab.cluster.reference_pod", f"--port={port}", *TIMES)
    environment = {"POD_IP": "127.0.0.1", "POD_NAME": name}
    return ReplicaCommand(
        name, (*command, f"--load-seconds={LOAD_SECONDS}"), f"http://127.0.0.1:{port}", environment=environment
    )


@contextmanager
def routed() -> Iterator[RouterService]:
    """The router with one replica, in a process of its own."""
    (port,) = free_ports(1)
    with ChildProcess("the router", "bench.standby", ["--serve", str(port)]) as child:
        url = f"http://127.0.0.1:{port}"
        child.wait_answers(f"{url}/readyz")
        yield RouterService(url)


def serve(port: int) -> None:
    """The process of the router: until SIGTERM."""
    options = RouterOptions((replica("0"),), RouterConfig(), port=port, token=_TOKEN, command_of=replica)
    asyncio.run(serve_router(options, announce=lambda _: None))


@contextmanager
def deployed(kubeconfig: Path, namespace: str, *, scaled: bool) -> Iterator[ClusterService]:
    api = ClusterApi(Login(kubeconfig))
    arguments_ = (*TIMES, f"--load-seconds={LOAD_SECONDS}")
    spec = ServiceSpec(namespace, replicas=1, arguments=arguments_, drain_seconds=1.0, starts_within=120)
    try:
        with DeployedService(api, kubeconfig, spec) as found:
            if scaled:
                target = f"{PER_REPLICA * 0.7:g}"
                api.create(found.path("horizontalpodautoscalers"), manifests.autoscaler(spec, RATE, target, 1, 5))
            yield ClusterService(api, kubeconfig, found, scaled)
    finally:
        api.close()


def rates(end: float, rise: float) -> Iterator[tuple[float, float]]:
    """A rate for each minute until `end`; for half an hour, every two hours and from `rise` on, it is HIGH."""
    chance = random.Random(0)
    for number in range(round(_DAYS * DAY / MINUTE), -1, -1):
        at = end - number * MINUTE
        mean = HIGH if (at - rise) % _RUSH_EVERY < _RUSH_LASTS else LOW
        yield at, max(0.0, chance.gauss(mean, (mean / MINUTE) ** 0.5))


def rush(row: str, service: Service, folder: Path, *, standby: bool) -> Measured:
    """The load rises once; replicas are there before it, or asked for after it."""
    end = time.time() // MINUTE * MINUTE
    rise = end + _AHEAD * MINUTE
    low = LoadPhase("low", rise - time.time(), Poisson(LOW), _MIX)
    plan = LoadPlan((low, LoadPhase("rush", _PEAK_LASTS, Poisson(HIGH), _MIX)), seed=1, slo_s=SLO, timeout_s=5.0)
    before: float | None = None
    result: dict[str, Any] = {}
    with start_load(plan, service.url, report_s=_PEAK_LASTS) as load:
        began = load.wait_started() + low.seconds
        needed = -(-HIGH // (PER_REPLICA * 0.7))
        if standby:
            result = _prepared(service, folder, end, rise)
            before, needed = began - time.time(), result["needed"]
        else:
            time.sleep(max(0.0, began + _LOOK - time.time()))
            service.scale(int(needed))
        found = load.wait()
    return _measured(row, found, int(needed), before, result, standby=standby)


def _prepared(service: Service, folder: Path, end: float, rise: float) -> dict[str, Any]:
    """`latdoctor forecast`, then `latdoctor remediate --from`."""
    csv, forecast = folder / "rates.csv", folder / "forecast.json"
    csv.write_text("\n".join(["time,value", *(f"{at:.0f},{60 * rate:.0f}" for at, rate in rates(end, rise)), ""]))
    given = (f"--csv={csv}", "--counts", f"--ahead={_AHEAD}min", f"--per-replica={PER_REPLICA:g}/s", "--replicas=1")
    done = _latdoctor("forecast", *given, "-o", "json", folder=folder)
    forecast.write_text(done.stdout)
    found = json.loads(done.stdout)
    log(f"  forecast by {found['method']}: {found['planning_value']:.1f}/s, {found['plan']['replicas']} replicas")
    options = (*service.named, f"--slo={SLO * 1000:g}ms", "--apply", "--yes", "--no-incident", "-o", "json")
    done = _latdoctor("remediate", "--from", str(forecast), *options, folder=folder)
    for line in done.stderr.splitlines():
        log(f"  {line}")
    (result,) = json.loads(done.stdout)["results"]
    return {**result, "exit_code": done.returncode, "needed": found["plan"]["replicas"]}


def _latdoctor(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LATDOCTOR_STATE": str(folder / "state"), "LATDOCTOR_ADMIN_TOKEN": _TOKEN}
    command = [sys.executable, "-m", "latdoctor", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)


def _measured(
    row: str, found: LoadResult, replicas: int, before: float | None, result: dict[str, Any], *, standby: bool
) -> Measured:
    part = next(one.whole for one in found.phases if one.name == "rush")
    return Measured(
        row=row,
        standby=standby,
        p99=part.p99 or float("nan"),
        requests=part.counts.requests,
        late=part.counts.requests - part.counts.good,
        lost=part.counts.requests - part.counts.answered,
        replicas=replicas,
        ready_before=before,
        exit_code=result.get("exit_code", 0),
        reason=result.get("reason", ""),
    )


ROWS = {
    "router": "the lab's router",
    "deployment": "a Deployment without an autoscaler",
    "autoscaler": "a Deployment with an autoscaler (minimum 1, maximum 5)",
}


def measured(row: str, kubeconfig: Path | None) -> Iterator[Measured]:
    """The rush without standby replicas, and with them, each on a new service."""
    for standby in (False, True):
        log(f"{row}, {'with' if standby else 'without'} standby replicas")
        with tempfile.TemporaryDirectory(prefix="latdoctor-standby-") as folder:
            if kubeconfig is None:
                with routed() as service:
                    yield rush(row, service, Path(folder), standby=standby)
            else:
                namespace = f"bench-{row}-{'with' if standby else 'without'}"  # a new one: the old may still end
                with deployed(kubeconfig, namespace, scaled=row == "autoscaler") as one:
                    yield rush(row, one, Path(folder), standby=standby)


def _all(rows: Sequence[str]) -> Iterator[Measured]:
    if "router" in rows:
        yield from measured("router", None)
    if len(rows) > ("router" in rows):
        with Cluster(SETTINGS) as cluster:
            for row in rows:
                if row != "router":
                    yield from measured(row, cluster.kubeconfig)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--only", choices=ROWS)
    parser.add_argument("--serve", type=int, metavar="PORT", help="the process of the router")
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    found = list(_all([options.only] if options.only else list(ROWS)))
    columns = ("service", "replicas asked for", "P99 in the rush", "requests over the SLO", "lost")
    lines = markdown(columns, [_cells(one) for one in found])
    print_result({"rows": found}, options.output, "\n".join(lines))
    if any(one.exit_code for one in found):
        raise OperationError("; ".join(f"{one.row}: {one.reason}" for one in found if one.exit_code))


def _cells(one: Measured) -> tuple[str, ...]:
    when = f"{one.ready_before:.0f} s before: all ready" if one.ready_before is not None else f"{_LOOK:g} s after"
    late = f"{one.late} of {one.requests}"
    return (ROWS[one.row], f"{one.replicas}, {when}", f"{one.p99 * 1000:.0f} ms", late, str(one.lost))


if __name__ == "__main__":
    main()
