"""Which pending proofs still go on: the journal says that one began, not that its process lives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from latdoctor.journal.locks import is_held
from latdoctor.remediation.run_history import RunState

_OVERDUE = 60.0  # seconds after its deadline: a rollback takes half of it at most


def with_live_proofs(runs: Iterable[RunState], locks: Path, now: float) -> tuple[RunState, ...]:
    """The runs, without the proofs that no process goes on with: such a run is unfinished, and `recover` ends it.

    `locks`: the folder of the locks of targets. `now` in unix seconds.
    """
    return tuple(run if not run.proof_open or _goes_on(run, locks, now) else replace(run, pending=None) for run in runs)


def _goes_on(run: RunState, locks: Path, now: float) -> bool:
    due = run.pending is not None and now < run.pending.deadline + _OVERDUE
    return due and (is_held(locks, run.plan.target.key) or run.live_prover is not None)
