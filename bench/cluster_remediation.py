"""Measures playbooks on a service of the lab's cluster: P99 before, in the incident and after, and the time it took.

Usage: python -m bench.cluster_remediation [--only ROW] [--output text|json]
Starts a cluster as `lab cluster` does, and for each row a service behind a router, a Prometheus that scrapes the router
every 5 s, and open-loop load. After five healthy minutes, which are the history that the proof compares with, the
incident begins. The alert is the first time that P99 at the router over 10 s exceeds the SLO of 500 ms; at that moment
`latdoctor remediate --apply` is started. The seconds run from the alert until it has said that the change is verified.

The row of vLLM needs its program start-vllm (`latdoctor lab real list`).

Needs the binaries of a control plane (KUBEBUILDER_ASSETS) and Prometheus (in the path, or its folder in
LATDOCTOR_PROMETHEUS). A further row is one entry of ROWS. Exits 1 where a change was not verified.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from msgspec import Struct

from bench.harness import arguments, log, markdown, print_result
from bench.prometheus_process import prometheus
from latdoctor.cluster_api import ClusterApi, Login
from latdoctor.errors import OperationError
from latdoctor.evaluation.cluster.cluster_run import SETTINGS
from latdoctor.lab.cluster import manifests
from latdoctor.lab.cluster.cluster import Cluster
from latdoctor.lab.cluster.cluster_faults import FaultSite
from latdoctor.lab.cluster.deployed_service import DeployedService
from latdoctor.lab.cluster.external_metrics import RATE
from latdoctor.lab.cluster.images import REFERENCE_SLOW
from latdoctor.lab.cluster.manifests import ServiceSpec
from latdoctor.lab.cluster.reference_pod import PORT
from latdoctor.lab.real.server_definition import ROOT_VARIABLE, find_server
from latdoctor.load.arrivals import Poisson
from latdoctor.load.mix import Mix
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.process import start_load
from latdoctor.load.request_template import RequestTemplate
from latdoctor.load.summary import LoadResult

SLO = 0.5  # seconds
_SCRAPE = 5.0
_HEALTHY, _INCIDENT = 340.0, 300.0  # seconds of load: with 300 s of history a proof takes 30 s, with less 90 s
_REPORT = 60.0  # seconds: reports that are read only at the end fill a pipe within five minutes
_ALERT_WITHIN, _REMEDIATED_WITHIN = 90.0, 280.0
_MIX = Mix(long_share=0.0, audio_share=0.0)
_P99 = "histogram_quantile(0.99, sum by (le) (rate(ref_router_seconds_bucket[{}s])))"
_VERIFIED = 0
_START_VLLM = Path(os.environ.get(ROOT_VARIABLE, "")) / "start-vllm"


def _nothing(_: FaultSite) -> None:
    """The load rises, and nothing else changes."""


def _slow_revision(site: FaultSite) -> None:
    container = {"name": manifests.CONTAINER, "image": REFERENCE_SLOW}
    site.api.patch(site.deployment, {"spec": {"template": {"spec": {"containers": [container]}}}})


@dataclass(frozen=True, slots=True)
class Row:
    """One incident and its playbook. `rate` and `rush`: requests per second before and in the incident.

    `most`: replicas that an autoscaler may have at most; 0: there is none. `vllm`: arguments of a vLLM that is the
    workload instead of the reference server.
    """

    name: str
    title: str
    playbook: str
    settings: tuple[str, ...]
    replicas: int
    token_ms: float  # of computing; 40 tokens are an average request
    rate: float
    rush: float
    begin: Callable[[FaultSite], None] = _nothing
    most: int = 0
    within: float | None = None  # seconds from the alert to verified that are promised
    vllm: tuple[str, ...] = ()

    @property
    def service(self) -> ServiceSpec:
        """What is deployed."""
        name = f"bench-{self.name}"
        if not self.vllm:
            arguments = ("--batch-ms=2", f"--token-ms={self.token_ms:g}")
            return ServiceSpec(name, replicas=self.replicas, arguments=arguments, drain_seconds=1.0)
        return ServiceSpec(
            name,
            replicas=self.replicas,
            image="lab/workload:1",
            command=(str(_START_VLLM),),
            arguments=(str(PORT), "--host=$(POD_IP)", *self.vllm),
            drain_seconds=2.0,
            live_path="/health",
            ready_path="/health",
            starts_within=240,
        )

    @property
    def request(self) -> RequestTemplate | None:
        return find_server("vllm").request if self.vllm else None


ROWS = (
    Row(
        "scale-out",
        "scale out 1 → 3 at 90 requests/s",
        "app.scale.out",
        ("add=2",),
        replicas=1,
        token_ms=0.5,
        rate=20.0,
        rush=90.0,
        within=90.0,
    ),
    Row(
        "rollout-undo",
        "undo the rollout of a slow revision, 3 replicas at 50 requests/s",
        "framework.model.rollout-undo",
        (),
        replicas=3,
        token_ms=0.5,
        rate=50.0,
        rush=50.0,
        begin=_slow_revision,
    ),
    Row(
        "promo-rush",
        "promotion rush: autoscaler's maximum 2 → 4, then a bound of the queue, at 60 requests/s",
        "promo-rush-cluster",
        ("add=2", "argument=--set=queue.max_requests", "value=3"),
        replicas=2,
        token_ms=2.0,
        rate=16.0,
        rush=60.0,
        most=2,
    ),
    Row(
        "vllm-sequences",
        "a real vLLM's `--max-num-seqs` 2 → 32",
        "app.governance.server-argument",
        ("argument=--max-num-seqs", "value=32"),
        replicas=1,
        token_ms=0.0,
        rate=2.0,
        rush=20.0,
        vllm=("--max-num-seqs=2",),
    ),
)


class Measured(Struct, frozen=True):
    """A row as measured.

    P99 at the router in seconds: before, the worst over 10 s in the incident, and over the last 20 s when it had ended.
    """

    row: str
    title: str
    playbook: str
    p99_before: float
    p99_incident: float
    p99_after: float
    seconds: float  # from the alert to the end of `remediate`
    exit_code: int
    reason: str
    requests: int
    lost: int

    @property
    def is_verified(self) -> bool:
        return self.exit_code == _VERIFIED


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--only", choices=[row.name for row in ROWS])
    options = parser.parse_args()
    rows = [row for row in ROWS if options.only in (None, row.name)]
    if not os.access(_START_VLLM, os.X_OK):
        log(f"rows of vLLM are left out: no program start-vllm in {ROOT_VARIABLE} (latdoctor lab real list)")
        rows = [row for row in rows if not row.vllm]
    log("starting the cluster")
    with Cluster(SETTINGS) as cluster:
        measured = [_measured(row, cluster.kubeconfig) for row in rows]
    print_result({"rows": measured}, options.output, "\n".join(_table(measured)))
    late = [one for one, row in zip(measured, rows, strict=True) if row.within and one.seconds > row.within]
    if late or not all(one.is_verified for one in measured):
        sys.exit(1)


def _measured(row: Row, kubeconfig: Path) -> Measured:
    api = ClusterApi(Login(kubeconfig))
    spec = row.service
    try:
        with (
            DeployedService(api, kubeconfig, spec) as deployed,
            prometheus(deployed.router, "router", _SCRAPE) as url,
        ):
            if row.most:
                scaler = manifests.autoscaler(spec, RATE, "12", row.replicas, row.most)
                api.create(deployed.path("horizontalpodautoscalers"), scaler)
            return _remediated(row, FaultSite(api, spec), deployed.router, url, kubeconfig)
    finally:
        api.close()


def _remediated(row: Row, site: FaultSite, router: str, prometheus: str, kubeconfig: Path) -> Measured:
    phases = (
        LoadPhase("before", _HEALTHY, Poisson(row.rate), _MIX),
        LoadPhase("during", _INCIDENT, Poisson(row.rush), _MIX),
    )
    log(f"{row.name}: {_HEALTHY:g} s of load before the incident")
    plan = LoadPlan(phases, seed=1, slo_s=SLO, timeout_s=5.0)
    with start_load(plan, router, report_s=_REPORT, request=row.request) as load:
        began = load.wait_started() + _HEALTHY
        time.sleep(max(0.0, began - time.time()))
        before = _p99(prometheus, 60.0)
        row.begin(site)
        alert = _alerted(prometheus)
        log(f"{row.name}: the alert came {alert - began:.0f} s after the incident began")
        done = _remediate(row, site, router, prometheus, kubeconfig)
        ended = time.time()
        after = _p99(prometheus, 20.0)
        worst = _queried(prometheus, f"max_over_time(({_P99.format(10)})[{ended - alert + 10:.0f}s:5s])")
        load.stop()
        result = load.wait()
    for line in done.stderr.splitlines():
        log(f"  {line}")
    log(f"{row.name}: exit code {done.returncode} {ended - alert:.0f} s after the alert: {_reason(done)}")
    return Measured(
        row=row.name,
        title=row.title,
        playbook=row.playbook,
        p99_before=before,
        p99_incident=worst,
        p99_after=after,
        seconds=ended - alert,
        exit_code=done.returncode,
        reason=_reason(done),
        requests=result.total.counts.requests,
        lost=_lost(result),
    )


def _lost(result: LoadResult) -> int:
    return result.total.counts.requests - result.total.counts.answered


def _alerted(prometheus: str) -> float:
    """When P99 exceeds the SLO. Raises OperationError where it does not."""
    deadline = time.monotonic() + _ALERT_WITHIN
    while time.monotonic() < deadline:
        if _p99(prometheus, 2 * _SCRAPE) > SLO:
            return time.time()
        time.sleep(1.0)
    raise OperationError(f"P99 did not exceed {SLO:g} s within {_ALERT_WITHIN:g} s")


def _remediate(
    row: Row, site: FaultSite, router: str, prometheus: str, kubeconfig: Path
) -> subprocess.CompletedProcess[str]:
    service = site.service
    command = [
        *(sys.executable, "-m", "latdoctor", "remediate", "--playbook", row.playbook),
        *(f"--set={one}" for one in row.settings),
        *("--kube", f"{service.namespace}/{service.name}", "--kubeconfig", str(kubeconfig)),
        *("--server", f"{router}/metrics", "--prometheus", prometheus, "--slo", f"{SLO * 1000:g}ms"),
        *("--apply", "--yes", "--wait", "--approve", "--no-incident", "--output", "json"),
    ]
    with tempfile.TemporaryDirectory(prefix="latdoctor-state-") as state:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_REMEDIATED_WITHIN,
            env={**os.environ, "LATDOCTOR_STATE": state},
        )


def _result(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(done.stdout)["results"][0]
    except (ValueError, LookupError):
        return {"reason": done.stderr.strip()[-300:]}
    return found


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    return str(_result(done).get("reason", ""))


def _p99(prometheus: str, seconds: float) -> float:
    """P99 at the router over the last `seconds`; NaN without a request."""
    return _queried(prometheus, _P99.format(round(seconds)))


def _queried(prometheus: str, query: str) -> float:
    """The value of `query` now; NaN where there is none."""
    found = httpx.get(f"{prometheus}/api/v1/query", params={"query": query}, timeout=5.0).json()["data"]["result"]
    return float(found[0]["value"][1]) if found else float("nan")


def _table(measured: Sequence[Measured]) -> Iterator[str]:
    columns = ("what", "playbook", "P99 before", "in the incident", "after", "alert to verified", "requests lost")
    yield from markdown(columns, (_cells(one) for one in measured))
    yield from (f"{one.row} was not verified: {one.reason}" for one in measured if not one.is_verified)


def _cells(one: Measured) -> tuple[str, ...]:
    ended = f"{one.seconds:.0f} s" if one.is_verified else f"not verified ({one.seconds:.0f} s)"
    times = (f"{value * 1000:.0f} ms" for value in (one.p99_before, one.p99_incident, one.p99_after))
    return (one.title, f"`{one.playbook}`", *times, ended, f"{one.lost} of {one.requests}")


if __name__ == "__main__":
    main()
