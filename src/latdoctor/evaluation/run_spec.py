"""One run of the bench: what is played or made for it, what is wrong in it, and about how long it takes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from msgspec import Struct, structs

from latdoctor.evaluation.ground_truth import MADE
from latdoctor.lab.faults.types import Fault
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

LONG = 75.0  # seconds of a phase that a wrong time of a minute does not leave


_LIFETIME = 3 * LONG  # of what is put into a long run


_STARTING = 20.0  # seconds: server and generator start, and capacity is measured


_CALM = 10.0  # seconds of an incident in which nothing happens


class RunSpec(Struct, frozen=True):
    """One run. `beside`: another scenario whose fault is put in too. `calm`: the scenario without its fault. `long`:
    before and incident take LONG seconds each.
    """

    kind: str  # PLAYED | MADE
    scenario: str
    severity: str
    seed: int
    beside: str = ""
    calm: bool = False
    long: bool = False

    @property
    def run(self) -> str:
        """Its name, and that of its files."""
        words = [self.kind, *(["calm"] if self.calm else []), self.scenario, *([self.beside] if self.beside else [])]
        return "-".join([*words, *(["long"] if self.long else []), self.severity, str(self.seed)])

    @property
    def seconds(self) -> float:
        """About how long recording it takes."""
        return seconds(self)


@cache
def found(name: str) -> Scenario:
    """The shipped scenario `name`, read once. Raises UsageError."""
    return find(name)


def injected_causes(cell: RunSpec) -> tuple[str, ...]:
    """The ids of what is put in, of which some may turn out to be harmless."""
    if cell.kind == MADE:
        return tuple(filter(None, (BY_ID[cell.scenario].cause,)))
    both = () if cell.calm else tuple(filter(None, (cell.scenario, cell.beside)))
    return tuple(truth.cause for name in both for truth in found(name).causes)


def seconds(cell: RunSpec) -> float:
    """About how long recording `cell` takes."""
    if cell.kind == MADE:
        return 0.3
    scenario = scenario_of(cell)
    whole = _STARTING + sum(phase.seconds for phase in scenario.phases)
    again = sum(truth.can_be_left_out for truth in scenario.causes)
    until = up_to_incident(scenario)
    return whole + again * (_STARTING / 2 + sum(phase.seconds for phase in until.phases))


def scenario_of(cell: RunSpec) -> Scenario:
    """What is played for `cell`. Raises UsageError, DefinitionError."""
    scenario = graded(found(cell.scenario), cell.severity)
    if cell.beside:
        scenario = together(scenario, found(cell.beside))
    if cell.calm:
        scenario = calm(scenario)
    return stretched(scenario, LONG) if cell.long else up_to_incident(scenario)


def together(first: Scenario, second: Scenario) -> Scenario:
    """One scenario with the incidents of both, at the lower load; each truth is tried by leaving its faults out."""
    faults = (*first.incident.faults, *second.incident.faults)
    incident = structs.replace(first.incident, faults=faults)
    slower = min(first.load.calibrate, second.load.calibrate)
    return structs.replace(
        first,
        title=f"{first.title}. {second.title}",
        phases=tuple(incident if phase == first.incident else phase for phase in first.phases),
        load=structs.replace(first.load, calibrate=slower),
        dependency=first.dependency or second.dependency,
        clients_proxy=first.clients_proxy or second.clients_proxy,
        truth=(
            *(_left(truth, second.incident.faults) for truth in first.causes),
            *(_left(truth, first.incident.faults) for truth in second.causes),
        ),
        severities={},
    )


def _left(truth: InjectedCause, others: tuple[object, ...]) -> InjectedCause:
    return InjectedCause(truth.cause, {INCIDENT: PhaseOverride(faults=others)})  # type: ignore[arg-type]  # faults of a scenario


def calm(scenario: Scenario) -> Scenario:
    """`scenario` in which what was there before just goes on."""
    at = next(number for number, phase in enumerate(scenario.phases) if phase.name == BEFORE)
    going_on = structs.replace(scenario.phases[at], name=INCIDENT, seconds=_CALM)
    return structs.replace(scenario, phases=(*scenario.phases[: at + 1], going_on), truth=(), severities={})


def stretched(scenario: Scenario, longer: float) -> Scenario:
    """`scenario` with so many seconds before the incident, in it and after it; what is put in lives for as long."""
    phases = (_stretched(phase, longer) for phase in scenario.phases)
    return structs.replace(scenario, phases=tuple(phases))


def _stretched(phase: ScenarioPhase, longer: float) -> ScenarioPhase:
    whole = longer if phase.name in (BEFORE, INCIDENT, AFTER) else phase.seconds
    return structs.replace(phase, seconds=whole, faults=lasting(phase.faults, _LIFETIME))


def lasting(faults: Sequence[Fault], lifetime: float) -> tuple[Fault, ...]:
    """`faults`, each of which stays for so many seconds unless it is taken out before."""
    found = []
    for fault in faults:
        if hasattr(fault, "toxic"):
            found.append(structs.replace(fault, toxic=structs.replace(fault.toxic, lifetime=lifetime)))
        else:
            found.append(structs.replace(fault, lifetime=lifetime) if hasattr(fault, "lifetime") else fault)
    return tuple(found)
