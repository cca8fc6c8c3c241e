"""Records one run of the cluster benchmark: a service under load, a fault or change, and what an operator collects."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from latdoctor import __version__
from latdoctor.cluster_api import ClusterApi, Login
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.errors import OperationError
from latdoctor.evaluation.cluster.cluster_remediation import MOST_SECONDS, ClusterRemediation, remediate
from latdoctor.evaluation.cluster.cluster_run_spec import REPLICAS, ClusterRunSpec
from latdoctor.evaluation.real.real_run import run_collect
from latdoctor.evaluation.real.real_store import ClientFigures
from latdoctor.evaluation.store import read_json
from latdoctor.lab.cluster import manifests
from latdoctor.lab.cluster.cluster import ClusterSettings
from latdoctor.lab.cluster.cluster_faults import FaultSite
from latdoctor.lab.cluster.control_plane import AutoscalerTiming, NodeTiming
from latdoctor.lab.cluster.deployed_service import DeployedService
from latdoctor.lab.cluster.external_metrics import RATE
from latdoctor.lab.cluster.manifests import ServiceSpec
from latdoctor.load.arrivals import Poisson
from latdoctor.load.mix import Mix
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.process import start_load
from latdoctor.load.summary import LoadResult
from latdoctor.sanitize import clean

Log = Callable[[str], None]

BUNDLES, TRUTHS = "bundles", "truths"
SLO = 0.5  # seconds
_RATE = 24.0  # requests per second of all clients
_PER_REPLICA = "12"  # that the autoscaler aims at; a replica takes about 25
_MOST_REPLICAS = 6
_ARGUMENTS = ("--batch-ms=2", "--token-ms=1")  # 42 ms for an average request
_MIX = Mix(long_share=0.0, audio_share=0.0)
_BEFORE, _WINDOW, _AFTER = 8.0, 10.0, 4.0  # seconds
_SPARE = 45.0  # seconds of load beyond the plan, for a collection that takes longer
_COLLECT_WITHIN = 60.0
_REPORT = 60.0  # seconds: reports that are read only at the end fill a pipe within five minutes
_DRAIN_SECONDS = 1.0  # from the preStop hook on, in which the router still sends requests

SETTINGS = ClusterSettings(
    nodes=6,
    zones=3,
    gpus=1,
    backoff=2.0,
    heartbeat=1.0,
    timing=NodeTiming(not_ready_after=8, evicted_after=30),
    autoscaler=AutoscalerTiming(sync=2, downscale_stabilization=60),
)


class ClusterTruth(Struct, frozen=True):
    """What was done in a run, and what the clients measured. Times are unix seconds.

    `causes`: the right ones; empty where the run is healthy. `spoiled`: why the run counts for nothing.
    """

    run: str
    scenario: str
    date: str
    tool_version: str
    causes: tuple[str, ...]
    since: float
    before: ClientFigures
    during: ClientFigures
    remediation: ClusterRemediation | None = None
    spoiled: tuple[str, ...] = ()

    @property
    def lost(self) -> int:
        """Requests of the whole run that were not answered."""
        return sum(one.requests - one.answered for one in (self.before, self.during))


class ClusterRecording(Struct, frozen=True):
    """A recorded run: what the operator has collected, and the truth, which is stored apart."""

    bundle: Path
    truth: ClusterTruth


def cluster_recordings(folder: Path) -> tuple[ClusterRecording, ...]:
    """The runs in `folder`, by name. Raises BundleError for a damaged truth."""
    found = (read_json(path, ClusterTruth) for path in sorted((folder / TRUTHS).glob("*.json")))
    return tuple(ClusterRecording(_bundle(folder, truth.run), truth) for truth in found)


def _bundle(folder: Path, run: str) -> Path:
    return folder / BUNDLES / f"{run}.tar.zst"


def record_cluster_run(
    spec: ClusterRunSpec, kubeconfig: Path, folder: Path, rules: RuleSet, log: Log
) -> ClusterRecording:
    """Records `spec` in `folder`; it replaces an earlier one. Raises OperationError where it cannot be run.

    What `rules` make of a fault is remediated while it lasts.
    """
    for name in (BUNDLES, TRUTHS):
        (folder / name).mkdir(parents=True, exist_ok=True)
    api = ClusterApi(Login(kubeconfig))
    try:
        truth = _RunInProgress(spec, api, kubeconfig, rules, log).record(_bundle(folder, spec.run))
    finally:
        api.close()
    (folder / TRUTHS / f"{spec.run}.json").write_bytes(msgspec.json.encode(truth))
    return ClusterRecording(_bundle(folder, spec.run), truth)


@dataclass(frozen=True, slots=True)
class _RunInProgress:
    """A run in progress."""

    spec: ClusterRunSpec
    api: ClusterApi
    kubeconfig: Path
    rules: RuleSet
    log: Log

    def record(self, bundle: Path) -> ClusterTruth:
        spec, remediation = self.spec, None
        service = ServiceSpec(
            f"bench-{spec.run}",
            replicas=REPLICAS,
            arguments=_ARGUMENTS,
            gpus=spec.gpus,
            drain_seconds=_DRAIN_SECONDS,
        )
        with DeployedService(self.api, self.kubeconfig, service) as deployed:
            if spec.autoscaled:
                scaler = manifests.autoscaler(service, RATE, _PER_REPLICA, REPLICAS, _MOST_REPLICAS)
                self.api.create(deployed.path("horizontalpodautoscalers"), scaler)
            with start_load(_plan(spec), deployed.router, report_s=_REPORT) as load:
                started = load.wait_started()
                _until(started + _BEFORE)
                since = time.time()
                self.log(f"  {spec.title}")
                with ExitStack() as undo:
                    undo.callback(_uncordon_all, self.api)
                    spec.begin(FaultSite(self.api, service), undo)
                    _until(since + spec.settle)
                    _collect(self._sources(deployed), bundle)
                    if spec.is_remediated:
                        remediation = self._remediated(bundle, deployed)
                    else:
                        _until(time.time() + _AFTER)
                    load.stop()
                    result = load.wait()
        return ClusterTruth(
            run=spec.run,
            scenario=spec.scenario,
            date=time.strftime("%Y-%m-%d", time.gmtime(since)),
            tool_version=__version__,
            causes=spec.causes,
            since=since,
            before=ClientFigures.of(result.phase("before").whole),
            during=ClientFigures.of(result.phase("during").whole),
            remediation=remediation,
            spoiled=tuple(_spoiled(result)),
        )

    def _remediated(self, bundle: Path, deployed: DeployedService) -> ClusterRemediation | None:
        remediation = remediate(bundle, self.rules, self._sources(deployed))
        if remediation is not None:
            self.log(f"  {remediation.playbook}: exit code {remediation.exit_code}: {remediation.reason}")
        return remediation

    def _sources(self, deployed: DeployedService) -> tuple[str, ...]:
        """The options of an operator who knows the workload and its router."""
        spec = deployed.spec
        return (
            *("--kube", f"{spec.namespace}/{spec.name}", "--kubeconfig", str(self.kubeconfig)),
            *("--server", f"{deployed.router}/metrics", "--slo", f"{SLO * 1000:g}ms"),
        )


def _uncordon_all(api: ClusterApi) -> None:
    """What a playbook has cordoned is there for the next run."""
    for node in api.get("/api/v1/nodes")["items"]:
        if node["spec"].get("unschedulable"):
            api.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": None}})


def _plan(spec: ClusterRunSpec) -> LoadPlan:
    during = spec.settle + _WINDOW + _AFTER + _SPARE + (MOST_SECONDS if spec.is_remediated else 0.0)
    phases = (
        LoadPhase("before", _BEFORE, Poisson(_RATE), _MIX),
        LoadPhase("during", during, Poisson(_RATE * spec.load), _MIX),
    )
    return LoadPlan(phases, seed=spec.number, slo_s=SLO, timeout_s=5.0)


def _spoiled(result: LoadResult) -> Iterator[str]:
    """Why the run shows nothing: it was not healthy before."""
    before = ClientFigures.of(result.phase("before").whole)
    if not before.within(SLO):
        yield f"not healthy before: P99 {before.p99} s, {before.answered} of {before.requests} answered"


def _until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.time()))


def _collect(sources: Sequence[str], to: Path) -> None:
    """Saves a bundle as an operator would. Raises OperationError."""
    if to.exists():
        to.unlink()
    output = run_collect([*sources, "--window", f"{_WINDOW:g}s", "--to", str(to)], _WINDOW + _COLLECT_WITHIN)
    if not to.exists():
        raise OperationError(f"latdoctor collect saved nothing: {clean(output[-300:])}")
