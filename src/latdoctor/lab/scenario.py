"""Scenarios in YAML: the server, its load, the injected faults by phase, and their removal.

    id: promo-rush
    server: {batching: {scheduler: long-alone}, memory: {glibc: returning}}
    load: {calibrate: 1.15, timeout: 15s, slo: 500ms}
    phases:
      - {name: before, seconds: 6, rate: 100%, mix: {long_share: 2%}}
      - {name: incident, seconds: 12, rate: 100%, mix: {long_share: 15%}}
      - {name: after, seconds: 12, rate: 100%, mix: {long_share: 15%}, config: {batching: {scheduler: token-budget}}}
    truth: [{cause: app.batching.long-alone, without: {incident: {config: {batching: {scheduler: token-budget}}}}}]

A phase's `config` is applied at its beginning and stays; its `faults` end with it. `truth` names the injected causes of
the phase `incident`, each with the change that removes it alone; a cause without one is removed in the phase `after`.
The runner writes the truth to a separate file, outside the diagnosed evidence.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from latdoctor.errors import DefinitionError, Problem, UsageError
from latdoctor.lab.dependency_service import StoreSettings
from latdoctor.lab.faults.injection import Fault, Knobs
from latdoctor.lab.redis_server import RedisSettings
from latdoctor.lab.server.config import ServerConfig, patched
from latdoctor.load.arrivals import Arrivals, OnOff, Poisson
from latdoctor.load.mix import Mix
from latdoctor.load.plan import LoadPhase, LoadPlan, RetryPolicy
from latdoctor.strict_yaml import load

FOLDER = Path(__file__).parent / "scenarios"
INCIDENT = "incident"
USUAL = "usual"  # the severity that a scenario has as it is written


class LoadSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`rate`: requests per second; 0: `calibrate` times what the server completes when saturated with the
    incident's mix before the run. Times in seconds.
    """

    rate: Annotated[float, Meta(ge=0, le=5000)] = 0.0
    calibrate: Annotated[float, Meta(gt=0, le=5)] = 1.0
    calibrate_seconds: Annotated[float, Meta(gt=0, le=30)] = 3.0  # of each of the measurements
    timeout: Annotated[float, Meta(gt=0, le=120)] = 15.0
    slo: Annotated[float, Meta(gt=0, le=60)] = 0.5
    retry: RetryPolicy = RetryPolicy()


class Burst(Struct, frozen=True, forbid_unknown_fields=True):
    """A burst of `times` the rate for `seconds`, starting `after` seconds into the phase."""

    times: Annotated[float, Meta(gt=0, le=20)]
    after: Annotated[float, Meta(ge=0, le=3600)]
    seconds: Annotated[float, Meta(gt=0, le=3600)]

    def arrivals(self, rate: float, whole: float) -> OnOff:
        """At `rate` requests per second, in a phase of `whole` seconds."""
        return OnOff(rate * self.times, self.seconds, off_s=whole, off_rate=rate, start_s=self.after)


class ScenarioPhase(Struct, frozen=True, forbid_unknown_fields=True):
    """A phase of the run. `rate` is a share of the load's rate."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
    seconds: Annotated[float, Meta(gt=0, le=3600)]
    rate: Annotated[float, Meta(gt=0, le=20)] = 1.0
    mix: Mix = Mix()
    arrivals: Arrivals | None = None  # instead of a Poisson stream at the rate
    burst: Burst | None = None  # on top of that stream
    config: Knobs = {}
    faults: tuple[Fault, ...] = ()


class PhaseOverride(Struct, frozen=True, forbid_unknown_fields=True):
    """Changes to a phase for another run; fields that are not set stay."""

    rate: Annotated[float, Meta(gt=0, le=20)] | None = None
    mix: Mix | None = None
    config: Knobs = {}
    faults: tuple[Fault, ...] | None = None


class InjectedCause(Struct, frozen=True, forbid_unknown_fields=True):
    """An injected cause, and the changes that remove it alone, by phase; none: the phase `after` removes it.

    One that does not slow anything (`slows: false`: answers are wrong, not late) cannot be confirmed by P99.
    """

    cause: str
    without: dict[str, PhaseOverride] = {}
    without_retries: bool = False
    slows: bool = True

    @property
    def can_be_left_out(self) -> bool:
        return bool(self.without) or self.without_retries


class Scenario(Struct, frozen=True, forbid_unknown_fields=True):
    """A complete incident. `edge`: nodes of an edge tier beside the replicas. `router`: settings of the router in front
    of several replicas. `dependency`: the server calls it for each request. `session_store`: a real
    Redis keeps the sessions. `clients_proxy`: the clients connect
    through a proxy that can inject network faults. `severities`: by name, the settings (as `overridden` takes them)
    that make it milder or more severe.
    """

    id: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9.-]{0,59}$")]
    title: str
    phases: Annotated[tuple[ScenarioPhase, ...], Meta(min_length=1, max_length=20)]
    server: Knobs = {}
    load: LoadSettings = LoadSettings()
    truth: tuple[str | InjectedCause, ...] = ()
    replicas: Annotated[int, Meta(ge=1, le=8)] = 1
    edge: Annotated[int, Meta(ge=0, le=8)] = 0
    router: dict[str, Any] = {}
    dependency: StoreSettings | None = None
    session_store: RedisSettings | None = None
    clients_proxy: bool = False
    severities: dict[str, dict[str, Any]] = {}

    @property
    def causes(self) -> tuple[InjectedCause, ...]:
        return tuple(InjectedCause(one) if isinstance(one, str) else one for one in self.truth)

    @property
    def incident(self) -> ScenarioPhase:
        """The phase with the fault; the last phase where none is named `incident`."""
        return next((phase for phase in self.phases if phase.name == INCIDENT), self.phases[-1])

    def config(self) -> ServerConfig:
        """The configuration that the server starts with. Raises UsageError."""
        return patched(ServerConfig(), self.server, strict=False)

    def plan(self, rate: float, seed: int) -> LoadPlan:
        """The load at `rate` requests per second."""
        phases = tuple(
            LoadPhase(
                name=phase.name,
                seconds=phase.seconds,
                arrivals=phase.arrivals or _stream(phase, rate * phase.rate),
                mix=phase.mix,
            )
            for phase in self.phases
        )
        return LoadPlan(phases, seed=seed, timeout_s=self.load.timeout, slo_s=self.load.slo, retry=self.load.retry)


def _stream(phase: ScenarioPhase, rate: float) -> Arrivals:
    return Poisson(rate) if phase.burst is None else phase.burst.arrivals(rate, phase.seconds)


def up_to_incident(scenario: Scenario) -> Scenario:
    """`scenario` without the phases after the incident, as an operator observes it."""
    last = scenario.phases.index(scenario.incident)
    return msgspec.structs.replace(scenario, phases=scenario.phases[: last + 1])


def without(scenario: Scenario, truth: InjectedCause) -> Scenario:
    """`scenario` up to its incident, with this one cause removed."""
    until = up_to_incident(scenario).phases
    phases = tuple(_changed(phase, truth.without.get(phase.name, PhaseOverride())) for phase in until)
    load = msgspec.structs.replace(scenario.load, retry=RetryPolicy()) if truth.without_retries else scenario.load
    return msgspec.structs.replace(scenario, phases=phases, load=load, truth=())


def _changed(phase: ScenarioPhase, change: PhaseOverride) -> ScenarioPhase:
    return msgspec.structs.replace(
        phase,
        rate=phase.rate if change.rate is None else change.rate,
        mix=phase.mix if change.mix is None else change.mix,
        config={**phase.config, **change.config},
        faults=phase.faults if change.faults is None else change.faults,
    )


def names() -> tuple[str, ...]:
    """The shipped scenarios."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def find(name: str) -> Scenario:
    """A shipped scenario by its id, or one in a file. Raises UsageError, DefinitionError."""
    shipped = FOLDER / f"{name}.yaml"
    if "/" not in name and shipped.is_file():
        return read(shipped)
    if Path(name).is_file():
        return read(Path(name))
    raise UsageError(f"there is no scenario {name!r}", next_step=f"one of {', '.join(names())}, or a file")


def read(path: Path) -> Scenario:
    """Raises DefinitionError for a scenario that is not valid."""
    node = load(path)
    try:
        scenario = msgspec.convert(node.plain(_scalar), Scenario, strict=False)
        config = scenario.config()
        for phase in scenario.phases:
            config = patched(config, phase.config, strict=False)
        for severity in scenario.severities:
            graded(scenario, severity)
        unknown = {name for truth in scenario.causes for name in truth.without} - {one.name for one in scenario.phases}
    except msgspec.ValidationError as error:
        raise DefinitionError([Problem(node.where, str(error))]) from error
    except UsageError as error:
        raise DefinitionError([Problem(node.where, error.what)]) from error
    if unknown:
        raise DefinitionError([Problem(node.where, f"truth names an unknown phase {sorted(unknown)[0]!r}")])
    if scenario.id != path.stem:
        raise DefinitionError([Problem(node.where, f"the id {scenario.id!r} differs from the file's name")])
    return scenario


def graded(scenario: Scenario, severity: str) -> Scenario:
    """`scenario` at `severity`; USUAL: unchanged. Raises UsageError for a severity that it does not have."""
    if severity == USUAL:
        return scenario
    if severity not in scenario.severities:
        known = ", ".join((USUAL, *sorted(scenario.severities)))
        raise UsageError(f"{scenario.id} has no severity {severity!r}", next_step=f"one of {known}")
    return overridden(scenario, iter(scenario.severities[severity].items()))


def overridden(scenario: Scenario, settings: Iterator[tuple[str, Any]]) -> Scenario:
    """`scenario` with `load.rate=80`, `server.batching.scheduler=count-only` or, by the name of a phase and the number
    of a fault, `phases.incident.faults.0.strength=3` replaced. Raises UsageError.
    """
    whole = msgspec.to_builtins(scenario)
    for path, value in settings:
        place = whole
        *parents, last = path.split(".")
        for key in parents:
            place = _inside(place, key)
        if not isinstance(place, dict):
            raise UsageError(f"unknown setting {path!r}")
        place[last] = value
    try:
        changed = msgspec.convert(whole, Scenario, strict=False)
        changed.config()
    except msgspec.ValidationError as error:
        raise UsageError(f"--set: {error}") from error
    return changed


def _inside(place: Any, key: str) -> Any:
    """The value at `key`; in a list, `key` is a phase name or an index. None where there is none."""
    if isinstance(place, dict):
        return place.setdefault(key, {})
    named = [one for one in place or () if isinstance(one, dict) and one.get("name") == key]
    if named or not key.isdecimal():
        return named[0] if named else None
    return place[int(key)] if isinstance(place, list | tuple) and int(key) < len(place) else None


def _scalar(text: str) -> object:
    """A percentage as its fraction; any other scalar as text, which msgspec converts by the field's type."""
    if text.endswith("%") and text[:-1].replace(".", "", 1).isdigit():
        return float(text[:-1]) / 100
    return text
