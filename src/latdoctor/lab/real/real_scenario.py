"""Scenarios of real servers in YAML: the load, the fault of its incident, and the cause that the fault is.

    id: triton-hang
    server: triton
    title: The backend's process hangs
    rate: 15
    slo: 500ms
    incident: {faults: [{kind: hang}]}
    causes: [app.engine.stalled]

A run has the phases warm-up, before, incident, draining and after. The incident differs from the others in its rate,
its body and its faults alone, which all end with it: what `after` restores is their effect.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from latdoctor.errors import DefinitionError, Problem, UsageError
from latdoctor.lab.real.real_faults import RealFault
from latdoctor.lab.real.server_definition import find_server
from latdoctor.load.arrivals import Arrivals, OnOff, Poisson
from latdoctor.load.mix import Length, Mix
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.request_template import RequestTemplate
from latdoctor.strict_yaml import load
from latdoctor.units import parse_duration

FOLDER = Path(__file__).parent / "scenarios"
WARM_UP, BEFORE, INCIDENT, DRAINING, AFTER = "warm-up", "before", "incident", "draining", "after"
_MOST_IN_FLIGHT = 2000
_LATE_SHARE = 0.1  # of the SLO: a generator that is less late decides nowhere whether it was kept


class RealPhases(Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds of each phase. `window` is observed in `before` from its begin, in the incident after `settle`."""

    warm_up: Annotated[float, Meta(gt=0, le=120)] = 4.0
    before: Annotated[float, Meta(gt=0, le=600)] = 20.0
    incident: Annotated[float, Meta(gt=0, le=600)] = 26.0
    draining: Annotated[float, Meta(gt=0, le=120)] = 8.0
    after: Annotated[float, Meta(gt=0, le=600)] = 10.0
    window: Annotated[float, Meta(gt=0, le=120)] = 10.0
    settle: Annotated[float, Meta(ge=0, le=120)] = 3.0

    @property
    def seconds(self) -> float:
        return self.warm_up + self.before + self.incident + self.draining + self.after


class RealIncident(Struct, frozen=True, forbid_unknown_fields=True):
    """What is different in the incident. `rate`: requests per second; None: unchanged.

    `burst_seconds`: the length of bursts at `rate`, every three times that; 0: the rate is constant.
    """

    rate: Annotated[float, Meta(gt=0, le=2000)] | None = None
    burst_seconds: Annotated[float, Meta(ge=0, le=60)] = 0.0
    body: str = ""
    faults: tuple[RealFault, ...] = ()


class RealScenario(Struct, frozen=True, forbid_unknown_fields=True):
    """An incident of one server; healthy without `causes`.

    `accepts`: causes that are as right as those, because the fault is both. `change`: the line of the change log that
    an operator would have, written when the incident begins. `quick`: part of the short selection.
    """

    id: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,59}$")]
    server: str
    title: str
    rate: Annotated[float, Meta(gt=0, le=2000)]
    slo: str = "500ms"
    timeout: Annotated[float, Meta(gt=0, le=60)] = 5.0
    environment: dict[str, str] = {}
    arguments: tuple[str, ...] = ()
    body: str = ""
    words: tuple[Length, Length] = (20, 60)
    incident: RealIncident = RealIncident()
    phases: RealPhases = RealPhases()
    causes: tuple[str, ...] = ()
    accepts: tuple[str, ...] = ()
    change: str = ""
    quick: bool = False

    @property
    def slo_seconds(self) -> float:
        return parse_duration(self.slo)

    @property
    def phase_starts(self) -> dict[str, float]:
        """Seconds from the start of the load to each phase."""
        return dict(zip((WARM_UP, BEFORE, INCIDENT, DRAINING, AFTER), self.plan(0).starts(), strict=True))

    def plan(self, seed: int) -> LoadPlan:
        """The load of a run."""
        calm, mix = Poisson(self.rate), Mix(long_share=0.0, audio_share=0.0, short_tokens=self.words)
        lengths = self.phases
        return LoadPlan(
            (
                LoadPhase(WARM_UP, lengths.warm_up, calm, mix),
                LoadPhase(BEFORE, lengths.before, calm, mix),
                LoadPhase(INCIDENT, lengths.incident, self._arrivals(), mix),
                LoadPhase(DRAINING, lengths.draining, calm, mix),
                LoadPhase(AFTER, lengths.after, calm, mix),
            ),
            seed=seed,
            timeout_s=self.timeout,
            slo_s=self.slo_seconds,
            max_in_flight=_MOST_IN_FLIGHT,
            late_ms=1000 * _LATE_SHARE * self.slo_seconds,
        )

    @property
    def is_of_load(self) -> bool:
        """Whether the incident begins and ends with the load's plan, not when its faults are injected."""
        return bool(self.incident.rate or self.incident.body)

    def template(self, request: RequestTemplate) -> RequestTemplate:
        """`request` with this scenario's bodies."""
        bodies = {INCIDENT: self.incident.body} if self.incident.body else {}
        return RequestTemplate(request.path, self.body or request.body, bodies)

    def _arrivals(self) -> Arrivals:
        rate, burst = self.incident.rate or self.rate, self.incident.burst_seconds
        if not burst:
            return Poisson(rate)
        return OnOff(rate, burst, off_s=2 * burst, off_rate=self.rate, start_s=self.phases.settle)


def real_scenarios() -> tuple[RealScenario, ...]:
    """The shipped scenarios. Raises DefinitionError."""
    return tuple(read_scenario(path) for path in sorted(FOLDER.glob("*.yaml")))


def find_scenario(name: str) -> RealScenario:
    """A shipped scenario by its id, or one in a file. Raises UsageError, DefinitionError."""
    shipped = FOLDER / f"{name}.yaml"
    if "/" not in name and shipped.is_file():
        return read_scenario(shipped)
    if Path(name).is_file():
        return read_scenario(Path(name))
    known = ", ".join(sorted(path.stem for path in FOLDER.glob("*.yaml")))
    raise UsageError(f"there is no scenario {name!r} of real servers", next_step=f"one of {known}, or a file")


def read_scenario(path: Path) -> RealScenario:
    """Raises DefinitionError for a scenario that is not valid."""
    node = load(path)
    try:
        scenario = msgspec.convert(node.plain(), RealScenario, strict=False)
        scenario.plan(0)
        find_server(scenario.server)
    except msgspec.ValidationError as error:
        raise DefinitionError([Problem(node.where, str(error))]) from error
    except (UsageError, ValueError) as error:
        raise DefinitionError([Problem(node.where, str(error))]) from error
    if scenario.id != path.stem:
        raise DefinitionError([Problem(node.where, f"the id {scenario.id!r} differs from the file's name")])
    return scenario
