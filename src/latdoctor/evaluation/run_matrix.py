"""Which runs there are: every fault at several severities and seeds, faults together, nothing wrong, and what is made.

The cells of a matrix come in an order in which any beginning of it is balanced: every fault with a fresh seed, then as
much that is well, faults together, other severities, and then the next seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from latdoctor.errors import UsageError
from latdoctor.evaluation.ground_truth import MADE, PLAYED, split
from latdoctor.evaluation.run_spec import RunSpec, found, injected_causes
from latdoctor.evaluation.scoring import PAIR_RUNS
from latdoctor.lab.run_report import BEFORE
from latdoctor.lab.scenario import USUAL, names
from latdoctor.lab.telemetry.generate import INCIDENT_KINDS

FRESH = "fresh"
RECORDED = "recorded"  # whatever a folder holds, of any matrix; nothing is planned for it
MATRICES = ("quick", "hour", "full", FRESH, RECORDED)
SEVERITIES = (USUAL, "mild", "severe")
MADE_SEVERITIES = (0.7, 0.4, 1.0)
_SEEDS = (1, 2, 3, 4)  # of every scenario
_LONG_SEEDS = 2
_SPARE = 8  # runs of it beyond those that telling takes: some are given up, and some faults turn out harmless
_MOST_SEEDS = 12  # of a scenario whose cause is hard to tell from another
FRESH_SEED = 100  # where the seeds begin that no run of the other matrices has
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


def cells(matrix: str, seed: int = FRESH_SEED) -> tuple[RunSpec, ...]:
    """The runs that `matrix` plans, in the order in which they are recorded; `seed` is the first of the fresh ones.

    Raises UsageError.
    """
    if matrix not in MATRICES:
        raise UsageError(f"there is no matrix {matrix!r}", next_step=f"one of {', '.join(MATRICES)}")
    if matrix == FRESH:
        return _fresh(seed)
    return () if matrix == RECORDED else {"quick": _quick, "hour": _hour, "full": _full}[matrix]()


def _quick() -> tuple[RunSpec, ...]:
    played = (RunSpec(PLAYED, name, USUAL, 1) for name in (*QUICK, "no-fault"))
    return (*_made((1,), MADE_SEVERITIES[:1]), *played)


def _hour() -> tuple[RunSpec, ...]:
    """Its runs are runs of the full matrix, too."""
    calm = (RunSpec(PLAYED, name, USUAL, 1, calm=True) for name in _CALM_IN_AN_HOUR)
    return (
        *_made((1, 2), MADE_SEVERITIES[:2]),
        *_faults(USUAL, 1),
        *_well((1,)),
        *calm,
        *(RunSpec(PLAYED, first, USUAL, 1, beside=second) for first, second in TOGETHER[:2]),
        *(RunSpec(PLAYED, name, USUAL, 1, long=True) for name in STEADY[:2]),
    )


def _full() -> tuple[RunSpec, ...]:
    """The hour first. Two seeds of everything; further ones of what is hard to tell apart; then the rest."""
    first, rest = _SEEDS[:2], _SEEDS[2:]
    whole = [*_hour(), *_made((1, 2, 3), MADE_SEVERITIES)]
    for seed in first:
        whole += [*_faults(USUAL, seed + 1), *_of_seed(seed)]
    whole += _until_told_apart(whole, first[-1] + 1)
    for seed in rest:
        whole += _of_seed(seed)
    return tuple(dict.fromkeys(whole))


def _fresh(seed: int) -> tuple[RunSpec, ...]:
    """Seeds that no other matrix has: in each round everything at one severity, faults together, and what is well.

    Raises UsageError for a seed that may have been seen.
    """
    if seed < FRESH_SEED:
        raise UsageError(f"runs of the seed {seed} may have been seen", next_step=f"one from {FRESH_SEED} on")
    whole: list[RunSpec] = []
    for round_, (severity, made) in enumerate(zip(SEVERITIES, MADE_SEVERITIES, strict=True), seed):
        whole += _made((round_,), (made,))
        whole += _faults(severity, round_)
        whole += _well((round_,))
        whole += (RunSpec(PLAYED, first, USUAL, round_, beside=second) for first, second in TOGETHER)
    return tuple(whole)


def _of_seed(seed: int) -> tuple[RunSpec, ...]:
    """Everything that is played with `seed`: what is usual, well, together, of other severities, and long."""
    return (
        *_faults(USUAL, seed),
        *_well(tuple(range(_WELL * (seed - 1) + 1, _WELL * seed + 1))),
        *(RunSpec(PLAYED, name, USUAL, seed, calm=True) for name in _that_can_be_calm()),
        *(RunSpec(PLAYED, first, USUAL, seed, beside=second) for first, second in TOGETHER),
        *(cell for severity in SEVERITIES[1:] for cell in _faults(severity, seed)),
        *(RunSpec(PLAYED, name, USUAL, seed, long=True) for name in STEADY if seed <= _LONG_SEEDS),
    )


def _until_told_apart(so_far: Sequence[RunSpec], seed: int) -> Iterator[RunSpec]:
    """Runs from `seed` on until each cause that is hard to tell from another has as many as telling that takes.

    For a scenario that has both there is nothing to wait for. Of two faults together one is often harmless: such runs
    are not counted on, and there are some to spare.
    """
    planned = frozenset(so_far)
    runs = Counter(pair for cell in planned if not cell.beside for pair in separated(cell))
    for number in range(seed, _MOST_SEEDS + 1):
        short = frozenset(pair for pair, count in runs.items() if count < PAIR_RUNS + _SPARE)
        for severity in SEVERITIES:
            for cell in _faults(severity, number):
                if cell not in planned and separated(cell) & short:
                    runs.update(separated(cell))
                    yield cell


def separated(cell: RunSpec) -> frozenset[tuple[str, str]]:
    """The hard pairs for which `cell` counts: the first cause is in it, and the other one is not."""
    there = frozenset(injected_causes(cell))
    both_ways = (way for one, other in split().pairs for way in ((one, other), (other, one)))
    return frozenset(way for way in both_ways if way[0] in there and way[1] not in there)


def _made(seeds: tuple[int, ...], severities: tuple[float, ...]) -> Iterator[RunSpec]:
    for seed in seeds:
        for severity in severities:
            yield from (RunSpec(MADE, kind.id, f"{severity:g}", seed) for kind in INCIDENT_KINDS)


def _faults(severity: str, seed: int) -> Iterator[RunSpec]:
    for name in names():
        scenario = found(name)
        if scenario.truth and (severity == USUAL or severity in scenario.severities):
            yield RunSpec(PLAYED, name, severity, seed)


def _well(seeds: tuple[int, ...]) -> Iterator[RunSpec]:
    for seed in seeds:
        yield from (RunSpec(PLAYED, name, USUAL, seed) for name in names() if not found(name).truth)


def _that_can_be_calm() -> Iterator[str]:
    for name in names():
        scenario = found(name)
        before = next((phase for phase in scenario.phases if phase.name == BEFORE), scenario.phases[0])
        if scenario.truth and scenario.load.calibrate < _FAST and before.mix == scenario.incident.mix:
            yield name
