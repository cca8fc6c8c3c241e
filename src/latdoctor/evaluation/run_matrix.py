"""The benchmark's matrices: every fault at several severities and seeds, combined faults, healthy and synthetic runs.

The runs of a matrix are ordered so that any prefix is balanced: every fault with a new seed, as many healthy runs,
combined faults, other severities, then the next seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum

from latdoctor.errors import UsageError
from latdoctor.evaluation.ground_truth import RunKind, split
from latdoctor.evaluation.run_spec import RunSpec, injected_causes, shipped_scenario
from latdoctor.evaluation.scoring import PAIR_RUNS
from latdoctor.lab.run_report import BEFORE
from latdoctor.lab.scenario import USUAL, names
from latdoctor.lab.telemetry.generate import INCIDENT_KINDS


class Matrix(StrEnum):
    """A set of planned runs."""

    QUICK = "quick"
    HOUR = "hour"
    FULL = "full"
    FRESH = "fresh"  # seeds that no other matrix uses
    RCA_LLM = "rca-llm"  # the protocol and the faults of rca-llm (arXiv 2603.02057)
    RECORDED = "recorded"  # the runs of a folder, whatever they are; plans nothing


SEVERITIES = (USUAL, "mild", "severe")
SYNTHETIC_SEVERITIES = (0.7, 0.4, 1.0)
_SEEDS = (1, 2, 3, 4)  # of every scenario
_LONG_SEEDS = 2
_SPARE = 8  # runs beyond PAIR_RUNS: some are given up, and some faults turn out harmless
_MOST_SEEDS = 12  # of a scenario whose cause is confusable with another
FRESH_SEED = 100  # the first seed of FRESH
_HEALTHY = 8  # seeds of each healthy scenario per seed of the others: more than sixty runs in all
_FAST = 0.9  # a load above this share of the capacity is not calm

# Pairs of faults that each add about as much to every request, so that removing either lowers P99.
COMBINED = (
    ("dependency-slow", "network-jitter"),
    ("dependency-slow", "loop-block"),
    ("network-jitter", "loop-block"),
    ("dependency-slow", "network-saturated"),
    ("dependency-slow", "waits-too-long"),
    ("network-jitter", "waits-too-long"),
)
# Faults with a constant effect while they are active: for windows displaced in time.
STEADY = (
    "dependency-slow", "network-jitter", "bad-rollout", "waits-too-long", "slow-attention", "alloc-storm", "loop-block",
    "network-saturated", "disk-neighbour", "no-timer",
)  # fmt: skip
RCA_LLM = ("network-jitter", "cpu-neighbour", "memory-pressure")  # its fourth fault, a power limit, needs a GPU
QUICK = ("dependency-slow", "waits-too-long", "cpu-quota")
_CALM_IN_AN_HOUR = ("dependency-slow", "network-jitter", "hot-replica", "session-cache-miss", "slow-attention",
                    "disk-neighbour", "too-small", "gc-pauses")  # fmt: skip


def planned_runs(matrix: str, seed: int = FRESH_SEED) -> tuple[RunSpec, ...]:
    """The runs of `matrix`, in recording order; `seed` is the first seed of FRESH. Raises UsageError."""
    if matrix not in tuple(Matrix):
        raise UsageError(f"there is no matrix {matrix!r}", next_step=f"use one of {', '.join(Matrix)}")
    match Matrix(matrix):
        case Matrix.QUICK:
            return _quick()
        case Matrix.HOUR:
            return _hour()
        case Matrix.FULL:
            return _full()
        case Matrix.FRESH:
            return _fresh(seed)
        case Matrix.RCA_LLM:
            return tuple(RunSpec(RunKind.LIVE, name, USUAL, seed, rca_llm=True) for seed in _SEEDS for name in RCA_LLM)
        case Matrix.RECORDED:
            return ()


def _live(scenarios: Sequence[str], seed: int, *, calm: bool = False, long: bool = False) -> Iterator[RunSpec]:
    return (RunSpec(RunKind.LIVE, name, USUAL, seed, calm=calm, long=long) for name in scenarios)


def _combined(seed: int, pairs: Sequence[tuple[str, str]] = COMBINED) -> Iterator[RunSpec]:
    return (RunSpec(RunKind.LIVE, first, USUAL, seed, beside=second) for first, second in pairs)


def _quick() -> tuple[RunSpec, ...]:
    return (*_synthetic((1,), SYNTHETIC_SEVERITIES[:1]), *_live((*QUICK, "no-fault"), 1))


def _hour() -> tuple[RunSpec, ...]:
    """A prefix of the full matrix."""
    return (
        *_synthetic((1, 2), SYNTHETIC_SEVERITIES[:2]),
        *_faults(USUAL, 1),
        *_healthy((1,)),
        *_live(_CALM_IN_AN_HOUR, 1, calm=True),
        *_combined(1, COMBINED[:2]),
        *_live(STEADY[:2], 1, long=True),
    )


def _full() -> tuple[RunSpec, ...]:
    """The hour, two seeds of everything, more seeds of confusable causes, then the remaining seeds."""
    first, rest = _SEEDS[:2], _SEEDS[2:]
    whole = [*_hour(), *_synthetic((1, 2, 3), SYNTHETIC_SEVERITIES)]
    for seed in first:
        whole += [*_faults(USUAL, seed + 1), *_of_seed(seed)]
    whole += _confusable_causes(whole, first[-1] + 1)
    for seed in rest:
        whole += _of_seed(seed)
    return tuple(dict.fromkeys(whole))


def _fresh(seed: int) -> tuple[RunSpec, ...]:
    """Three rounds from `seed` on, one severity each. Raises UsageError for a seed that other matrices use."""
    if seed < FRESH_SEED:
        raise UsageError(
            f"runs of the seed {seed} may have been used to tune rules", next_step=f"use {FRESH_SEED} or greater"
        )
    whole: list[RunSpec] = []
    for number, (severity, synthetic) in enumerate(zip(SEVERITIES, SYNTHETIC_SEVERITIES, strict=True), seed):
        whole += _synthetic((number,), (synthetic,))
        whole += _faults(severity, number)
        whole += _healthy((number,))
        whole += _combined(number)
    return tuple(whole)


def _of_seed(seed: int) -> tuple[RunSpec, ...]:
    """Every live run with `seed`."""
    return (
        *_faults(USUAL, seed),
        *_healthy(tuple(range(_HEALTHY * (seed - 1) + 1, _HEALTHY * seed + 1))),
        *_live(tuple(_can_be_calm()), seed, calm=True),
        *_combined(seed),
        *(spec for severity in SEVERITIES[1:] for spec in _faults(severity, seed)),
        *_live(STEADY if seed <= _LONG_SEEDS else (), seed, long=True),
    )


def _confusable_causes(so_far: Sequence[RunSpec], seed: int) -> Iterator[RunSpec]:
    """Further runs from `seed` on, until each confusable cause has PAIR_RUNS runs and some spare ones.

    Combined faults are not counted: one of the two is often harmless.
    """
    planned = frozenset(so_far)
    runs = Counter(pair for spec in planned if not spec.beside for pair in separating_pairs(spec))
    for number in range(seed, _MOST_SEEDS + 1):
        short = frozenset(pair for pair, count in runs.items() if count < PAIR_RUNS + _SPARE)
        for severity in SEVERITIES:
            for spec in _faults(severity, number):
                if spec not in planned and separating_pairs(spec) & short:
                    runs.update(separating_pairs(spec))
                    yield spec


def separating_pairs(spec: RunSpec) -> frozenset[tuple[str, str]]:
    """The ordered pairs of confusable causes of which `spec` injects the first and not the second."""
    injected = frozenset(injected_causes(spec))
    ordered = (pair for one, other in split().pairs for pair in ((one, other), (other, one)))
    return frozenset(pair for pair in ordered if pair[0] in injected and pair[1] not in injected)


def _synthetic(seeds: tuple[int, ...], severities: tuple[float, ...]) -> Iterator[RunSpec]:
    for seed in seeds:
        for severity in severities:
            yield from (RunSpec(RunKind.SYNTHETIC, kind.id, f"{severity:g}", seed) for kind in INCIDENT_KINDS)


def _faults(severity: str, seed: int) -> Iterator[RunSpec]:
    for name in names():
        scenario = shipped_scenario(name)
        if scenario.causes and (severity == USUAL or severity in scenario.severities):
            yield RunSpec(RunKind.LIVE, name, severity, seed)


def _healthy(seeds: tuple[int, ...]) -> Iterator[RunSpec]:
    scenarios = [name for name in names() if not shipped_scenario(name).causes]
    for seed in seeds:
        yield from _live(scenarios, seed)


def _can_be_calm() -> Iterator[str]:
    for name in names():
        scenario = shipped_scenario(name)
        before = next((phase for phase in scenario.phases if phase.name == BEFORE), scenario.phases[0])
        if scenario.causes and scenario.load.calibrate < _FAST and before.mix == scenario.incident.mix:
            yield name
