"""Scenarios as YAML: what server, what load, what goes wrong when, and how it is mended.

    id: promo-rush
    server: {batching: {scheduler: long-alone}, memory: {glibc: returning}}
    load: {calibrate: 1.15, timeout: 15s, slo: 500ms}
    phases:
      - {name: before, seconds: 6, rate: 100%, mix: {long_share: 2%}}
      - {name: incident, seconds: 12, rate: 100%, mix: {long_share: 15%}}
      - {name: after, seconds: 12, rate: 100%, mix: {long_share: 15%}, config: {batching: {scheduler: token-budget}}}

A phase's `config` is turned live at its beginning and stays; its `faults` end with it. `truth` names the causes that
really act in the phase `incident`; the player writes it to a place of its own, where diagnosis does not look.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from latdoctor.errors import DefinitionError, Problem, UsageError
from latdoctor.lab.faults.injection import Fault
from latdoctor.lab.load.arrivals import Arrivals, Poisson
from latdoctor.lab.load.mix import Mix
from latdoctor.lab.load.plan import LoadPlan, RetryPolicy
from latdoctor.lab.load.plan import Phase as LoadPhase
from latdoctor.lab.server.config import ServerConfig, patched
from latdoctor.yamlfile import Node, load

FOLDER = Path(__file__).parent / "scenarios"
INCIDENT = "incident"

Knobs = dict[str, dict[str, Any]]


class Load(Struct, frozen=True, forbid_unknown_fields=True):
    """`rate`: requests per second; 0: `calibrate` times what the server completes when saturated with the
    incident's mix before the run. Times in seconds.
    """

    rate: Annotated[float, Meta(ge=0, le=5000)] = 0.0
    calibrate: Annotated[float, Meta(gt=0, le=5)] = 1.0
    calibrate_seconds: Annotated[float, Meta(gt=0, le=30)] = 3.0
    timeout: Annotated[float, Meta(gt=0, le=120)] = 15.0
    slo: Annotated[float, Meta(gt=0, le=60)] = 0.5
    retry: RetryPolicy = RetryPolicy()


class Phase(Struct, frozen=True, forbid_unknown_fields=True):
    """A stretch of the run. `rate` is a share of the load's rate."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
    seconds: Annotated[float, Meta(gt=0, le=3600)]
    rate: Annotated[float, Meta(gt=0, le=20)] = 1.0
    mix: Mix = Mix()
    arrivals: Arrivals | None = None  # instead of a Poisson stream at the rate
    config: Knobs = {}
    faults: tuple[Fault, ...] = ()


class Scenario(Struct, frozen=True, forbid_unknown_fields=True):
    """One incident, whole."""

    id: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9.-]{0,59}$")]
    title: str
    phases: Annotated[tuple[Phase, ...], Meta(min_length=1, max_length=20)]
    server: Knobs = {}
    load: Load = Load()
    truth: tuple[str, ...] = ()
    replicas: Annotated[int, Meta(ge=1, le=8)] = 1

    def config(self) -> ServerConfig:
        """The configuration that the server starts with. Raises UsageError."""
        return patched(ServerConfig(), self.server, strict=False)

    def plan(self, rate: float, seed: int) -> LoadPlan:
        """The load at `rate` requests per second."""
        phases = tuple(
            LoadPhase(
                name=phase.name,
                seconds=phase.seconds,
                arrivals=phase.arrivals or Poisson(rate * phase.rate),
                mix=phase.mix,
            )
            for phase in self.phases
        )
        return LoadPlan(phases, seed=seed, timeout_s=self.load.timeout, slo_s=self.load.slo, retry=self.load.retry)


def typed(knobs: Knobs) -> Knobs:
    """`knobs` with each value of its own type, as the admin interface takes it. Raises UsageError."""
    whole = msgspec.to_builtins(patched(ServerConfig(), knobs, strict=False))
    return {group: {name: whole[group][name] for name in values} for group, values in knobs.items()}


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
        scenario = msgspec.convert(_plain(node), Scenario, strict=False)
        config = scenario.config()
        for phase in scenario.phases:
            config = patched(config, phase.config, strict=False)
    except msgspec.ValidationError as error:
        raise DefinitionError([Problem(node.where, str(error))]) from error
    except UsageError as error:
        raise DefinitionError([Problem(node.where, error.what)]) from error
    if scenario.id != path.stem:
        raise DefinitionError([Problem(node.where, f"the id {scenario.id!r} differs from the file's name")])
    return scenario


def overridden(scenario: Scenario, settings: Iterator[tuple[str, str]]) -> Scenario:
    """`scenario` with `load.rate=80` or `server.batching.scheduler=count-only` put in its place. Raises UsageError."""
    whole = msgspec.to_builtins(scenario)
    for path, value in settings:
        place = whole
        *parents, last = path.split(".")
        for key in parents:
            place = place.setdefault(key, {}) if isinstance(place, dict) else {}
        if not isinstance(place, dict):
            raise UsageError(f"{path!r} is no setting of a scenario")
        place[last] = value
    try:
        changed = msgspec.convert(whole, Scenario, strict=False)
        changed.config()
    except msgspec.ValidationError as error:
        raise UsageError(f"--set: {error}") from error
    return changed


def _plain(node: Node) -> object:
    """Scalars stay text (msgspec converts them by type); a percentage becomes its fraction, `5s` its seconds."""
    if isinstance(node.value, dict):
        return {key: _plain(child) for key, child in node.value.items()}
    if isinstance(node.value, tuple):
        return [_plain(child) for child in node.value]
    text = node.value
    if text.endswith("%") and text[:-1].replace(".", "", 1).isdigit():
        return float(text[:-1]) / 100
    return text
