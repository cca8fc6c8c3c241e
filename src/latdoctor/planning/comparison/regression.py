"""Stored runs of a fixed load, and whether today's runs of the same load are slower beyond doubt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, structs

from latdoctor.planning.comparison.comparison import Comparison, paired_comparison
from latdoctor.planning.comparison.effect import ComparisonVerdict, Quantity
from latdoctor.planning.comparison.run_figures import RunFigures
from latdoctor.planning.stored import read_stored

SCHEMA_VERSION = "1"
_ASSUMPTION = "the machine is as fast as when the stored runs were made: the runs are not taken in turns"


class StoredRun(Struct, frozen=True):
    """One run. `schedule`: the digest of what was sent and when."""

    seed: int
    schedule: str
    figures: RunFigures


class RegressionRuns(Struct, frozen=True):
    """Runs of one load. `machine`: the processor model and their number; `rate` in requests per second."""

    date: str
    tool_version: str
    machine: str
    rate: float
    seconds: float
    runs: tuple[StoredRun, ...]
    schema_version: str = SCHEMA_VERSION


RunLoad = Callable[[int], StoredRun]  # with this seed


def read_runs(path: Path) -> RegressionRuns:
    """Raises UsageError for a file that is none."""
    made_by = "latdoctor lab bench regression --baseline FILE --record"
    return read_stored(path, RegressionRuns, SCHEMA_VERSION, what="stored runs", made_by=made_by)


def regression(stored: RegressionRuns, now: RegressionRuns, quantity: Quantity, margin: float) -> Comparison:
    """Today's runs (B) against the stored ones (A), in pairs of the same schedule.

    Another machine, or another load, makes it inconclusive.
    """
    pairs = _pairs(stored.runs, now.runs)
    names = (f"{stored.tool_version} of {stored.date}", f"{now.tool_version} of {now.date}")
    found = paired_comparison(names, pairs, quantity, margin)
    problems = list(found.problems)
    if stored.machine != now.machine:
        problems.append(f"another machine: {stored.machine}, now {now.machine}")
    if len(pairs) < len(stored.runs):
        problems.append(f"{len(stored.runs) - len(pairs)} of {len(stored.runs)} runs have another schedule now")
    return structs.replace(
        found,
        verdict=ComparisonVerdict.INCONCLUSIVE if problems else found.verdict,
        assumptions=(_ASSUMPTION, *found.assumptions[1:]),
        problems=tuple(problems),
    )


def _pairs(a: Sequence[StoredRun], b: Sequence[StoredRun]) -> list[tuple[RunFigures, RunFigures]]:
    now = {one.schedule: one.figures for one in b}
    return [(one.figures, now[one.schedule]) for one in a if one.schedule in now]
