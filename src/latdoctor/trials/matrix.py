"""Which runs there are: every fault at several severities and seeds, faults together, nothing wrong, and what is made.

The cells of a matrix come in an order in which any beginning of it is balanced: every fault with a fresh seed, then as
much that is well, faults together, other severities, and then the next seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache

from msgspec import Struct, structs

from latdoctor.errors import UsageError
from latdoctor.lab.faults.injection import Fault
from latdoctor.lab.scenario import INCIDENT, USUAL, Change, Phase, Scenario, Truth, find, graded, names, up_to_incident
from latdoctor.lab.telemetry.kinds import BY_ID, KINDS
from latdoctor.trials.families import split
from latdoctor.trials.scores import PAIR_RUNS
from latdoctor.trials.truth import MADE, PLAYED

MATRICES = ("quick", "hour", "full")
SEVERITIES = (USUAL, "mild", "severe")
MADE_SEVERITIES = (0.7, 0.4, 1.0)
BEFORE = "before"
LONG = 75.0  # seconds of a phase that a wrong time of a minute does not leave
_LIFETIME = 3 * LONG  # of what is put into a long run
_STARTING = 20.0  # seconds: server and generator start, and capacity is measured
_CALM = 10.0  # seconds of an incident in which nothing happens
_SEEDS = (1, 2, 3, 4)  # of every scenario
_LONG_SEEDS = 2
_SPARE = 8  # runs of it beyond those that telling takes: some are given up, and some faults turn out harmless
_MOST_SEEDS = 12  # of a scenario whose cause is hard to tell from another
_WELL = 8  # seeds of each scenario without a fault, for each seed of the others: more than sixty runs in all
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
    """The hour first. Two seeds of everything; further ones of what is hard to tell apart; then the rest."""
    first, rest = _SEEDS[:2], _SEEDS[2:]
    whole = [*_hour(), *_made((1, 2, 3), MADE_SEVERITIES)]
    for seed in first:
        whole += [*_faults(USUAL, seed + 1), *_of_seed(seed)]
    whole += _until_told_apart(whole, first[-1] + 1)
    for seed in rest:
        whole += _of_seed(seed)
    return tuple(dict.fromkeys(whole))


def _of_seed(seed: int) -> tuple[Cell, ...]:
    """Everything that is played with `seed`: what is usual, well, together, of other severities, and long."""
    return (
        *_faults(USUAL, seed),
        *_well(tuple(range(_WELL * (seed - 1) + 1, _WELL * seed + 1))),
        *(Cell(PLAYED, name, USUAL, seed, calm=True) for name in _that_can_be_calm()),
        *(Cell(PLAYED, first, USUAL, seed, beside=second) for first, second in TOGETHER),
        *(cell for severity in SEVERITIES[1:] for cell in _faults(severity, seed)),
        *(Cell(PLAYED, name, USUAL, seed, long=True) for name in STEADY if seed <= _LONG_SEEDS),
    )


def _until_told_apart(so_far: Sequence[Cell], seed: int) -> Iterator[Cell]:
    """Runs from `seed` on until each cause that is hard to tell from another has as many as telling that takes.

    For a scenario that has both there is nothing to wait for. Of two faults together one is often harmless: such runs
    are not counted on, and there are some to spare.
    """
    planned = frozenset(so_far)
    runs = Counter(pair for cell in planned if not cell.beside for pair in told_apart(cell))
    for number in range(seed, _MOST_SEEDS + 1):
        short = frozenset(pair for pair, count in runs.items() if count < PAIR_RUNS + _SPARE)
        for severity in SEVERITIES:
            for cell in _faults(severity, number):
                if cell not in planned and told_apart(cell) & short:
                    runs.update(told_apart(cell))
                    yield cell


def told_apart(cell: Cell) -> frozenset[tuple[str, str]]:
    """The hard pairs for which `cell` counts: the first cause is in it, and the other one is not."""
    there = frozenset(causes_of(cell))
    both_ways = (way for one, other in split().pairs for way in ((one, other), (other, one)))
    return frozenset(way for way in both_ways if way[0] in there and way[1] not in there)


def causes_of(cell: Cell) -> tuple[str, ...]:
    """The ids of what is put in, of which some may turn out to be harmless."""
    if cell.kind == MADE:
        return tuple(filter(None, (BY_ID[cell.scenario].cause,)))
    both = () if cell.calm else tuple(filter(None, (cell.scenario, cell.beside)))
    return tuple(truth.cause for name in both for truth in _found(name).causes)


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
    until = up_to_incident(scenario)
    return whole + again * (_STARTING / 2 + sum(phase.seconds for phase in until.phases))


def scenario_of(cell: Cell) -> Scenario:
    """What is played for `cell`. Raises UsageError, DefinitionError."""
    scenario = graded(_found(cell.scenario), cell.severity)
    if cell.beside:
        scenario = together(scenario, _found(cell.beside))
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
