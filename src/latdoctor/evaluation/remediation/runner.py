"""Runs an incident that lasts until it is remediated, has it remediated, and measures the clients' latency."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from latdoctor.collectors.base import CollectRequest
from latdoctor.diagnosis.rule_loader import shipped as shipped_rules
from latdoctor.errors import LatdoctorError, OperationError
from latdoctor.evaluation.remediation.run_record import (
    RemediationOutcome,
    RunInputs,
    RunProgress,
    SaturatedRates,
    SloAlarm,
    report_of,
)
from latdoctor.evaluation.remediation.run_specs import (
    SLICE,
    PlaybookChoice,
    RemediationRunSpec,
    sliced_load,
    unattended_scenario,
)
from latdoctor.evaluation.remediation.scores import RemediationAttempt
from latdoctor.evaluation.remediation.simulated_operator import SelectedPlaybook, ServiceAccess, SimulatedOperator
from latdoctor.evidence.bundle import Bundle
from latdoctor.lab.admin_client import AdminClient
from latdoctor.lab.faults.injection import inject
from latdoctor.lab.metrics_snapshot import MetricsDelta, collect_metrics
from latdoctor.lab.processes import Deployment
from latdoctor.lab.run_report import BEFORE
from latdoctor.lab.runner import RunObserver, calibrated
from latdoctor.lab.scenario import Scenario, ScenarioPhase
from latdoctor.load import machine_state
from latdoctor.load.plan import LoadPlan
from latdoctor.load.process import saturate, start_load
from latdoctor.load.summary import LoadResult
from latdoctor.remediation.playbook_library import Library
from latdoctor.remediation.playbook_library import shipped as shipped_playbooks
from latdoctor.remediation.run_observer import WINDOW

NOTICED = 15.0  # seconds after which the operator diagnoses even if the SLO is met
AFTER = 3 * SLICE  # seconds measured after verification
SATURATED = 8.0  # seconds
_SETTLING = 1.0  # seconds at either end of the phase `before` that are not observed

Log = Callable[[str], None]


def attempt(spec: RemediationRunSpec, log: Log, library: Library | None = None) -> RemediationAttempt:
    """Run `spec` once. Raises LatdoctorError where the scenario cannot be run."""
    scenario = unattended_scenario(spec.scenario)
    load_before = machine_state.load_average()
    log("starting the server")
    with Deployment(scenario) as deployment, tempfile.TemporaryDirectory(prefix="latdoctor-state-") as state:
        rate = scenario.load.rate or calibrated(scenario, deployment, spec.seed, RunObserver(log=log))
        plan = sliced_load(scenario.plan(rate, spec.seed))
        access = _service_access(scenario, deployment)
        operator = SimulatedOperator(access, shipped_rules(), library or shipped_playbooks(), Path(state).absolute())
        faulty = _saturated(plan, scenario, deployment) if spec.saturated else None
        progress, alarm, result = _LiveRun(spec, scenario, plan, deployment, operator, log).run()
        verified = progress.outcome is RemediationOutcome.VERIFIED
        remediated = _saturated(plan, scenario, deployment) if faulty and verified else None
    report = report_of(RunInputs(spec, scenario, plan, rate, tuple(operator.entries)), progress, alarm, result)
    complete = structs.replace(
        report,
        saturated=(faulty, remediated) if faulty and remediated else None,
        machine=structs.replace(report.machine, load_before=load_before),
    )
    return RemediationAttempt(complete, progress.observation)


def _service_access(scenario: Scenario, deployment: Deployment) -> ServiceAccess:
    servers = deployment.servers
    model = AdminClient(servers[0], deployment.token).config()[0].model
    return ServiceAccess(
        servers, deployment.router, deployment.token, model.version, model.precision, scenario.load.slo
    )


def _saturated(plan: LoadPlan, scenario: Scenario, deployment: Deployment) -> SaturatedRates:
    first = collect_metrics(deployment.servers)
    rate = saturate(plan, deployment.address, SATURATED, phase=scenario.incident.name).rate
    between = MetricsDelta(first, collect_metrics(deployment.servers))
    return SaturatedRates(
        rate=rate,
        calls_per_answer=between.per("ref_forward_calls_total", "ref_requests_total"),
        page_faults_per_call=between.per("ref_page_faults_total", "ref_forward_calls_total"),
        allocations_per_call=between.per("ref_device_alloc_total", "ref_forward_calls_total"),
    )


@dataclass
class _LiveRun:
    """A run in progress."""

    spec: RemediationRunSpec
    scenario: Scenario
    plan: LoadPlan
    deployment: Deployment
    operator: SimulatedOperator
    log: Log
    load: Future[LoadResult] | None = None
    clients: str = ""  # the address of the clients' metrics page
    started: float = 0.0

    def run(self) -> tuple[RunProgress, SloAlarm, LoadResult]:
        begins = sum(phase.seconds for phase in self.scenario.phases[:-1])
        alarm = SloAlarm(self.scenario.load.slo, begins)
        with start_load(self.plan, self.deployment.address, metrics_port=0, report_s=WINDOW) as load:
            self.started, self.clients = load.wait_started(), load.metrics
            with ThreadPoolExecutor(1) as pool:
                self.load = pool.submit(load.wait, alarm.on_progress)
                try:
                    progress = self._phases(alarm)
                finally:
                    load.stop()
                return progress, alarm, self.load.result()

    def _phases(self, alarm: SloAlarm) -> RunProgress:
        """Run the phases before the incident, then the incident and its remediation."""
        progress = RunProgress()
        healthy: Bundle | None = None
        edge = self.started
        for phase in self.scenario.phases[:-1]:
            self._until(edge)
            with ExitStack() as undo:
                self._begin(phase, undo)
                if phase.name == BEFORE:
                    progress.usage = (machine_state.usage(time.time()), None)
                    progress.pages["before"] = collect_metrics(self.deployment.servers)
                    self._until(edge + _SETTLING)
                    healthy = self.operator.observe(self._request())
                edge += phase.seconds
                self._until(edge)
                progress.pages["incident"] = collect_metrics(self.deployment.servers)
                if phase.name == BEFORE:
                    progress.pages["before ended"] = progress.pages["incident"]
        self._until(edge)
        with ExitStack() as undo:
            self._begin(self.scenario.incident, undo)
            progress.begun = self.started + alarm.begins
            if healthy is not None:
                self.operator.record_baseline(healthy)
            deadline = progress.begun + NOTICED
            while not alarm.fired.is_set() and time.time() < deadline:
                self._until(min(deadline, time.time() + 0.2))
            progress.noticed = time.time()
            self._remediate(progress)
            progress.usage = (progress.usage[0], machine_state.usage(time.time()))
        return progress

    def _begin(self, phase: ScenarioPhase, undo: ExitStack) -> None:
        if phase.config:
            self.deployment.configure(phase.config)
        for fault in phase.faults:
            inject(fault, self.deployment.injection_targets, undo)

    def _remediate(self, progress: RunProgress) -> None:
        """Diagnose, and runs the playbook that the diagnosis leads to."""
        if self.spec.kind is PlaybookChoice.WRONG:
            progress.selected = SelectedPlaybook(self.operator.library.find(self.spec.playbook), None)
        else:
            self.log("diagnosing")
            progress.observation = self.operator.observe(self._request())
            diagnosis = self.operator.diagnose(progress.observation)
            progress.diagnosed, progress.named = time.time(), diagnosis.answer.causes
            progress.selected = self.operator.select_playbook(diagnosis, self.spec.playbook)
        progress.acting = time.time()
        progress.pages["acting"] = collect_metrics(self.deployment.servers)
        if progress.selected is None:
            named = bool(progress.named)
            progress.outcome = RemediationOutcome.NO_PLAYBOOK if named else RemediationOutcome.NOTHING_NAMED
            progress.reason = f"named: {', '.join(progress.named) or 'nothing'}"
            return
        self._run_playbook(progress, progress.selected)
        progress.ended = time.time()
        if progress.outcome is RemediationOutcome.VERIFIED:
            progress.pages["verified"] = collect_metrics(self.deployment.servers)
            self._until(progress.ended + AFTER + SLICE)
            progress.measured = time.time()
            progress.pages["measured"] = collect_metrics(self.deployment.servers)

    def _run_playbook(self, progress: RunProgress, selected: SelectedPlaybook) -> None:
        self.log(f"running {selected.playbook.id}")
        try:
            plan, access = self.operator.plan(selected)
            admin = AdminClient(access.target.admin, self.deployment.token)
            before = _configuration(admin)
            result = self.operator.execute(plan, access, self._request(), lambda kind: self.log(f"  {kind}"))
        except LatdoctorError as error:
            progress.outcome, progress.reason = RemediationOutcome.FAILED, str(error)
            return
        progress.result, progress.reason = result, result.reason
        progress.outcome = RemediationOutcome(result.outcome.value)
        verified = progress.outcome is RemediationOutcome.VERIFIED
        progress.restored = None if verified else _configuration(admin) == before
        self.log(f"{progress.outcome}: {progress.reason}")

    def _request(self) -> CollectRequest:
        """All metrics pages and the first server's process."""
        pages = tuple(f"{base.rstrip('/')}/metrics" for base in (*self.deployment.pages, self.clients))
        return CollectRequest(servers=pages, pid=self.deployment.pids[0], host=True)

    def _until(self, moment: float) -> None:
        """Wait until `moment` (unix seconds). Raises OperationError where the load ends earlier."""
        if self.load is not None and wait([self.load], max(0.0, moment - time.time())).done:
            self.load.result()
            raise OperationError("the load ended before the incident")


def _configuration(admin: AdminClient) -> object:
    """The configuration without its ETag, which differs after every change."""
    return json.loads(admin.ask("GET", "/admin/config")[1])
