"""Plays an incident that stays until somebody mends it, has it mended, and measures what the clients had of that."""

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
from latdoctor.evaluation import machine_state
from latdoctor.evaluation.remediation.run_record import (
    FAILED,
    NO_PLAYBOOK,
    NOTHING_NAMED,
    VERIFIED,
    RunInputs,
    RunProgress,
    SaturatedRates,
    SloAlarm,
    report_of,
)
from latdoctor.evaluation.remediation.run_specs import (
    SLICE,
    WRONG,
    RemediationRunSpec,
    sliced_load,
    unattended_scenario,
)
from latdoctor.evaluation.remediation.scores import RemediationAttempt
from latdoctor.evaluation.remediation.simulated_operator import SelectedPlaybook, ServiceAccess, SimulatedOperator
from latdoctor.evidence.bundle import Bundle
from latdoctor.lab.clients import AdminClient, MetricsDelta, collect_metrics
from latdoctor.lab.faults.injection import inject
from latdoctor.lab.processes import Deployment
from latdoctor.lab.run_report import BEFORE
from latdoctor.lab.runner import RunObserver, calibrated
from latdoctor.lab.scenario import Scenario, ScenarioPhase
from latdoctor.load.plan import LoadPlan
from latdoctor.load.process import saturate, start_load
from latdoctor.load.summary import LoadResult
from latdoctor.remediation.playbook_loader import Library
from latdoctor.remediation.playbook_loader import shipped as shipped_playbooks
from latdoctor.remediation.verification import WINDOW

NOTICED = 15.0  # seconds after which somebody looks though the SLO still holds
AFTER = 3 * SLICE  # seconds that are measured once it is verified
SATURATED = 8.0  # seconds
_SETTLING = 1.0  # seconds of the phase `before` that the look leaves out, on either side

Say = Callable[[str], None]


def attempt(cell: RemediationRunSpec, say: Say, library: Library | None = None) -> RemediationAttempt:
    """Plays and mends `cell` once. Raises LatdoctorError where it cannot be played at all."""
    scenario = unattended_scenario(cell.scenario)
    loaded = machine_state.load_average()
    say("starting the server")
    with Deployment(scenario) as deployment, tempfile.TemporaryDirectory(prefix="latdoctor-state-") as state:
        rate = scenario.load.rate or calibrated(scenario, deployment, cell.seed, RunObserver(say=say))
        plan = sliced_load(scenario.plan(rate, cell.seed))
        operator = SimulatedOperator(
            _place(scenario, deployment), shipped_rules(), library or shipped_playbooks(), Path(state).absolute()
        )
        ill = _saturated(plan, scenario, deployment) if cell.saturated else None
        story, alarm, result = _played(_LiveRun(cell, scenario, plan, deployment, operator, say))
        mended = _saturated(plan, scenario, deployment) if ill and story.outcome == VERIFIED else None
    report = report_of(RunInputs(cell, scenario, plan, rate, tuple(operator.entries)), story, alarm, result)
    complete = structs.replace(
        report,
        saturated=(ill, mended) if ill and mended else None,
        machine=structs.replace(report.machine, load_before=loaded),
    )
    return RemediationAttempt(complete, story.look)


def _place(scenario: Scenario, deployment: Deployment) -> ServiceAccess:
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
    """One run while it lasts."""

    cell: RemediationRunSpec
    scenario: Scenario
    plan: LoadPlan
    deployment: Deployment
    operator: SimulatedOperator
    say: Say
    hearing: Future[LoadResult] | None = None
    clients: str = ""  # the address of the clients' own page
    started: float = 0.0


def _played(live: _LiveRun) -> tuple[RunProgress, SloAlarm, LoadResult]:
    begins = sum(phase.seconds for phase in live.scenario.phases[:-1])
    alarm = SloAlarm(live.scenario.load.slo, begins)
    with start_load(live.plan, live.deployment.address, metrics_port=0, report_s=WINDOW) as load:
        live.started, live.clients = load.wait_started(), load.metrics
        with ThreadPoolExecutor(1) as beside:
            live.hearing = beside.submit(load.wait, alarm.heard)
            try:
                story = _walked(live, alarm)
            finally:
                load.stop()
            return story, alarm, live.hearing.result()


def _walked(live: _LiveRun, alarm: SloAlarm) -> RunProgress:
    """Through the phases before the incident, then the incident and what is done about it."""
    story = RunProgress()
    well: Bundle | None = None
    edge = live.started
    for phase in live.scenario.phases[:-1]:
        _until(live, edge)
        with ExitStack() as gone:
            _begin(live, phase, gone)
            if phase.name == BEFORE:
                story.usage = (machine_state.usage(time.time()), None)
                story.looks["well"] = collect_metrics(live.deployment.servers)
                _until(live, edge + _SETTLING)
                well = live.operator.looked(_request(live))
            edge += phase.seconds
            _until(live, edge)
            story.looks["ill"] = collect_metrics(live.deployment.servers)
            if phase.name == BEFORE:
                story.looks["well ended"] = story.looks["ill"]
    _until(live, edge)
    with ExitStack() as gone:
        _begin(live, live.scenario.incident, gone)
        story.begun = live.started + alarm.begins
        if well is not None:
            live.operator.remember(well)
        _wait_for(live, alarm, story.begun + NOTICED)
        story.noticed = time.time()
        _mended(live, story)
        story.usage = (story.usage[0], machine_state.usage(time.time()))
    return story


def _begin(live: _LiveRun, phase: ScenarioPhase, gone: ExitStack) -> None:
    if phase.config:
        live.deployment.configure(phase.config)
    for fault in phase.faults:
        inject(fault, live.deployment.site, gone)


def _mended(live: _LiveRun, story: RunProgress) -> None:
    """Diagnoses, and does what that leads to."""
    if live.cell.kind == WRONG:
        story.remedy = SelectedPlaybook(live.operator.library.find(live.cell.playbook), None)
    else:
        live.say("diagnosing")
        story.look = live.operator.looked(_request(live))
        diagnosis = live.operator.diagnosis(story.look)
        story.diagnosed, story.named = time.time(), diagnosis.answer.causes
        story.remedy = live.operator.remedy(diagnosis, live.cell.playbook)
    story.at_work = time.time()
    story.looks["at work"] = collect_metrics(live.deployment.servers)
    if story.remedy is None:
        story.outcome = NO_PLAYBOOK if story.named else NOTHING_NAMED
        story.reason = f"named: {', '.join(story.named) or 'nothing'}"
        return
    _run(live, story, story.remedy)
    story.ended = time.time()
    if story.outcome == VERIFIED:
        story.looks["mended"] = collect_metrics(live.deployment.servers)
        _until(live, story.ended + AFTER + SLICE)
        story.measured = time.time()
        story.looks["measured"] = collect_metrics(live.deployment.servers)


def _run(live: _LiveRun, story: RunProgress, remedy: SelectedPlaybook) -> None:
    live.say(f"{remedy.playbook.id} is at work")
    try:
        plan, access = live.operator.planned(remedy)
        admin = AdminClient(access.target.admin, live.deployment.token)
        before = _configuration(admin)
        story.result = live.operator.carried_out(plan, access, _request(live), lambda kind: live.say(f"  {kind}"))
    except LatdoctorError as error:
        story.outcome, story.reason = FAILED, str(error)
        return
    story.outcome, story.reason = story.result.outcome.value, story.result.reason
    story.restored = None if story.outcome == VERIFIED else _configuration(admin) == before
    live.say(f"{story.outcome}: {story.reason}")


def _configuration(admin: AdminClient) -> object:
    """Its values: a tag never comes back, also where they have."""
    return json.loads(admin.ask("GET", "/admin/config")[1])


def _request(live: _LiveRun) -> CollectRequest:
    """The pages of all and the first server's process, as somebody on that machine would look at them."""
    pages = tuple(f"{base.rstrip('/')}/metrics" for base in (*live.deployment.pages, live.clients))
    return CollectRequest(servers=pages, pid=live.deployment.pids[0], host=True)


def _until(live: _LiveRun, moment: float) -> None:
    """Waits until that time (unix seconds). Raises OperationError where the load ends before."""
    if live.hearing is not None and wait([live.hearing], max(0.0, moment - time.time())).done:
        live.hearing.result()
        raise OperationError("the load was over before the incident was")


def _wait_for(live: _LiveRun, alarm: SloAlarm, at_most: float) -> None:
    while not alarm.rung.is_set() and time.time() < at_most:
        _until(live, min(at_most, time.time() + 0.2))
