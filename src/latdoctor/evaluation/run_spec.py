"""The specification of one benchmark run: scenario, severity, seed, and the scenario as it is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from msgspec import Struct, structs

from latdoctor.evaluation.ground_truth import RunKind
from latdoctor.lab.faults.injection import Fault
from latdoctor.lab.run_report import AFTER, BEFORE
from latdoctor.lab.scenario import (
    INCIDENT,
    InjectedCause,
    PhaseOverride,
    Scenario,
    ScenarioPhase,
    find,
    graded,
    up_to_incident,
)
from latdoctor.lab.telemetry.generate import BY_ID

LONG = 75.0  # seconds of a phase in long runs: longer than the displaced windows of `variants.SHIFTS`
# The protocol of rca-llm: replicas, and the seconds of the phases. Its rate, 5 requests per second, is instead a share
# of the capacity measured on this machine.
RCA_LLM_REPLICAS = 4
RCA_LLM = {BEFORE: 285.0, INCIDENT: 60.0}
_LIFETIME = 3 * LONG  # of the faults of a long run
_STARTUP = 20.0  # seconds: server and generator start, capacity is measured
_FAULT_FREE = 10.0  # seconds of an incident without a fault


class RunSpec(Struct, frozen=True):
    """One run. `beside`: a second scenario whose fault is injected too. `calm`: the scenario without its fault. `long`:
    the phases before and incident take LONG seconds each. `rca_llm`: as in rca-llm (arXiv 2603.02057), see RCA_LLM.
    """

    kind: RunKind
    scenario: str
    severity: str
    seed: int
    beside: str = ""
    calm: bool = False
    long: bool = False
    rca_llm: bool = False

    @property
    def run(self) -> str:
        """The name of the run and of its files."""
        words = [self.kind, *(["calm"] if self.calm else []), self.scenario, *([self.beside] if self.beside else [])]
        return "-".join(
            [
                *words,
                *(["long"] if self.long else []),
                *(["rca-llm"] if self.rca_llm else []),
                self.severity,
                str(self.seed),
            ]
        )

    @property
    def seconds(self) -> float:
        """The approximate duration of recording it."""
        if self.kind is RunKind.SYNTHETIC:
            return 0.3
        scenario = scenario_of(self)
        whole = _STARTUP + sum(phase.seconds for phase in scenario.phases)
        repeats = sum(cause.can_be_left_out for cause in scenario.causes)
        return whole + repeats * (_STARTUP / 2 + sum(phase.seconds for phase in up_to_incident(scenario).phases))


@cache
def shipped_scenario(name: str) -> Scenario:
    """The shipped scenario `name`. Raises UsageError."""
    return find(name)


def injected_causes(spec: RunSpec) -> tuple[str, ...]:
    """The ids of the injected causes; some may turn out to be harmless."""
    if spec.kind is RunKind.SYNTHETIC:
        return tuple(filter(None, (BY_ID[spec.scenario].cause,)))
    scenarios = () if spec.calm else tuple(filter(None, (spec.scenario, spec.beside)))
    return tuple(cause.cause for name in scenarios for cause in shipped_scenario(name).causes)


def scenario_of(spec: RunSpec) -> Scenario:
    """The scenario that is run for `spec`. Raises UsageError, DefinitionError."""
    scenario = graded(shipped_scenario(spec.scenario), spec.severity)
    if spec.beside:
        scenario = _combined(scenario, shipped_scenario(spec.beside))
    if spec.calm:
        scenario = _without_fault(scenario)
    if spec.long:
        return _lengthened(scenario, dict.fromkeys((BEFORE, INCIDENT, AFTER), LONG))
    if spec.rca_llm:
        return structs.replace(_lengthened(scenario, RCA_LLM), replicas=RCA_LLM_REPLICAS)
    return up_to_incident(scenario)


def _combined(first: Scenario, second: Scenario) -> Scenario:
    """One scenario with the faults of both, at the lower load; each cause is confirmed by leaving its faults out."""
    faults = (*first.incident.faults, *second.incident.faults)
    incident = structs.replace(first.incident, faults=faults)
    lower = min(first.load.calibrate, second.load.calibrate)

    def only(cause: InjectedCause, others: tuple[Fault, ...]) -> InjectedCause:
        return InjectedCause(cause.cause, {INCIDENT: PhaseOverride(faults=others)})

    return structs.replace(
        first,
        title=f"{first.title}. {second.title}",
        phases=tuple(incident if phase == first.incident else phase for phase in first.phases),
        load=structs.replace(first.load, calibrate=lower),
        dependency=first.dependency or second.dependency,
        session_store=first.session_store or second.session_store,
        clients_proxy=first.clients_proxy or second.clients_proxy,
        truth=(
            *(only(cause, second.incident.faults) for cause in first.causes),
            *(only(cause, first.incident.faults) for cause in second.causes),
        ),
        severities={},
    )


def _without_fault(scenario: Scenario) -> Scenario:
    """`scenario` with its phase `before` continued in place of the incident."""
    at = next(number for number, phase in enumerate(scenario.phases) if phase.name == BEFORE)
    continued = structs.replace(scenario.phases[at], name=INCIDENT, seconds=_FAULT_FREE)
    return structs.replace(scenario, phases=(*scenario.phases[: at + 1], continued), truth=(), severities={})


def _lengthened(scenario: Scenario, seconds: Mapping[str, float]) -> Scenario:
    """`scenario` with phases of `seconds`, by name; its faults last as long."""

    def lengthened(phase: ScenarioPhase) -> ScenarioPhase:
        whole = seconds.get(phase.name, phase.seconds)
        return structs.replace(phase, seconds=whole, faults=lasting(phase.faults, _LIFETIME))

    return structs.replace(scenario, phases=tuple(lengthened(phase) for phase in scenario.phases))


def lasting(faults: Sequence[Fault], lifetime: float) -> tuple[Fault, ...]:
    """`faults` with a lifetime of `lifetime` seconds each, where they have one."""
    extended = []
    for fault in faults:
        if hasattr(fault, "toxic"):
            extended.append(structs.replace(fault, toxic=structs.replace(fault.toxic, lifetime=lifetime)))
        else:
            extended.append(structs.replace(fault, lifetime=lifetime) if hasattr(fault, "lifetime") else fault)
    return tuple(extended)
