"""Which runs there are: every fault at several severities and seeds, faults together, nothing wrong, and what is made.

The cells of a matrix come in an order in which any beginning of it is balanced: all scenarios at one seed and severity,
then all at the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain

from msgspec import Struct, structs

from latdoctor.errors import UsageError
from latdoctor.lab.faults.injection import Fault
from latdoctor.lab.scenario import INCIDENT, USUAL, Change, Phase, Scenario, Truth, find, graded, names
from latdoctor.lab.telemetry.kinds import KINDS
from latdoctor.trials.truth import MADE, PLAYED

MATRICES = ("quick", "hour", "full")
SEVERITIES = (USUAL, "mild", "severe")
MADE_SEVERITIES = (0.7, 0.4, 1.0)
BEFORE = "before"
LONG = 75.0  # seconds of a phase that a wrong time of a minute does not leave
_LIFETIME = 3 * LONG  # of what is put into a long run
_STARTING = 20.0  # seconds: server and generator start, and capacity is measured
_CALM = 10.0  # seconds of an incident in which nothing happens
_LONG_SEEDS = 2
_FAST = 0.9  # a load above this share of what the server can do is no calm one

# Two faults that each add about as much to every request, so that taking either away moves the tail.
TOGETHER = (
    ("dependency-slow", "network-jitter"),
    ("dependency-slow", "loop-block"),
    ("network-jitter", "loop-block"),
    ("dependency-slow", "network-saturated"),
    ("dependency-slow", "waits-too-long"),
    ("network-jitter", "waits-too-long"),
)
# For the wrong time of an incident: faults that go on alike for as long as they are there.
STEADY = (
    "dependency-slow", "network-jitter", "bad-rollout", "waits-too-long", "slow-attention", "alloc-storm", "loop-block",
    "network-saturated", "disk-neighbour", "no-timer",
)  # fmt: skip
QUICK = ("dependency-slow", "waits-too-long", "cpu-quota")
_CALM_IN_AN_HOUR = ("dependency-slow", "network-jitter", "hot-replica", "session-cache-miss", "slow-attention",
                    "disk-neighbour", "too-small", "gc-pauses")  # fmt: skip


class Cell(Struct, frozen=True):
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
def _found(name: str) -> Scenario:
    return find(name)


def cells(matrix: str) -> tuple[Cell, ...]:
    """The runs of `matrix`, in the order in which they are recorded. Raises UsageError."""
    if matrix not in MATRICES:
        raise UsageError(f"there is no matrix {matrix!r}", next_step=f"one of {', '.join(MATRICES)}")
    return {"quick": _quick, "hour": _hour, "full": _full}[matrix]()


def _quick() -> tuple[Cell, ...]:
    played = (Cell(PLAYED, name, USUAL, 1) for name in (*QUICK, "no-fault"))
    return (*_made((1,), MADE_SEVERITIES[:1]), *played)


def _hour() -> tuple[Cell, ...]:
    """Its runs are runs of the full matrix, too."""
    calm = (Cell(PLAYED, name, USUAL, 1, calm=True) for name in _CALM_IN_AN_HOUR)
    return (
        *_made((1, 2), MADE_SEVERITIES[:2]),
        *_faults(USUAL, 1),
        *_well((1,)),
        *calm,
        *(Cell(PLAYED, first, USUAL, 1, beside=second) for first, second in TOGETHER[:2]),
        *(Cell(PLAYED, name, USUAL, 1, long=True) for name in STEADY[:2]),
    )


def _full() -> tuple[Cell, ...]:
    hour = _hour()
    wider = chain(
        _made((1, 2, 3), MADE_SEVERITIES),
        *(
            chain(
                _faults(USUAL, seed),
                _well((3 * seed - 2, 3 * seed - 1, 3 * seed)),
                (Cell(PLAYED, name, USUAL, seed, calm=True) for name in _that_can_be_calm()),
                (Cell(PLAYED, first, USUAL, seed, beside=second) for first, second in TOGETHER),
                *(_faults(severity, seed) for severity in SEVERITIES[1:]),
                (Cell(PLAYED, name, USUAL, seed, long=True) for name in STEADY if seed <= _LONG_SEEDS),
            )
            for seed in (1, 2, 3, 4)
        ),
    )
    return tuple(dict.fromkeys((*hour, *wider)))


def _made(seeds: tuple[int, ...], severities: tuple[float, ...]) -> Iterator[Cell]:
    for seed in seeds:
        for severity in severities:
            yield from (Cell(MADE, kind.id, f"{severity:g}", seed) for kind in KINDS)


def _faults(severity: str, seed: int) -> Iterator[Cell]:
    for name in names():
        scenario = _found(name)
        if scenario.truth and (severity == USUAL or severity in scenario.severities):
            yield Cell(PLAYED, name, severity, seed)


def _well(seeds: tuple[int, ...]) -> Iterator[Cell]:
    for seed in seeds:
        yield from (Cell(PLAYED, name, USUAL, seed) for name in names() if not _found(name).truth)


def _that_can_be_calm() -> Iterator[str]:
    for name in names():
        scenario = _found(name)
        before = next((phase for phase in scenario.phases if phase.name == BEFORE), scenario.phases[0])
        if scenario.truth and scenario.load.calibrate < _FAST and before.mix == scenario.incident.mix:
            yield name


def seconds(cell: Cell) -> float:
    """About how long recording `cell` takes."""
    if cell.kind == MADE:
        return 0.3
    scenario = scenario_of(cell)
    whole = _STARTING + sum(phase.seconds for phase in scenario.phases)
    again = sum(truth.can_be_left_out for truth in scenario.causes)
    until = scenario.phases[: scenario.phases.index(scenario.incident) + 1]
    return whole + again * (_STARTING / 2 + sum(phase.seconds for phase in until))


def scenario_of(cell: Cell) -> Scenario:
    """What is played for `cell`. Raises UsageError, DefinitionError."""
    scenario = graded(_found(cell.scenario), cell.severity)
    if cell.beside:
        scenario = together(scenario, _found(cell.beside))
    if cell.calm:
        scenario = calm(scenario)
    return stretched(scenario, LONG) if cell.long else scenario


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


def _left(truth: Truth, others: tuple[object, ...]) -> Truth:
    return Truth(truth.cause, {INCIDENT: Change(faults=others)})  # type: ignore[arg-type]  # faults of a scenario


def calm(scenario: Scenario) -> Scenario:
    """`scenario` in which what was there before just goes on."""
    at = next(number for number, phase in enumerate(scenario.phases) if phase.name == BEFORE)
    going_on = structs.replace(scenario.phases[at], name=INCIDENT, seconds=_CALM)
    return structs.replace(scenario, phases=(*scenario.phases[: at + 1], going_on), truth=(), severities={})


def stretched(scenario: Scenario, longer: float) -> Scenario:
    """`scenario` with so many seconds before the incident, in it and after it; what is put in lives for as long."""
    phases = (_stretched(phase, longer) for phase in scenario.phases)
    return structs.replace(scenario, phases=tuple(phases))


def _stretched(phase: Phase, longer: float) -> Phase:
    whole = longer if phase.name in (BEFORE, INCIDENT, "after") else phase.seconds
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
