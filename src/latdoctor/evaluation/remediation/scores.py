"""What the mended incidents come to: how often a right playbook proves itself, how often a wrong one is taken back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import msgspec
from msgspec import Struct

from latdoctor import __version__
from latdoctor.evaluation.remediation.run_record import REFUSED, ROLLED_BACK, VERIFIED, RemediationReport
from latdoctor.evaluation.remediation.run_specs import PROMO_RUSH, WRONG
from latdoctor.evaluation.statistics import Proportion, proportion
from latdoctor.evaluation.store import RunFolder, read_json
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.bundle_files import save

# What the field's incident is held to (MISSION.md's figures are set beside them on the page).
P99_DOWN, GOODPUT_TIMES, CALLS_DOWN, TAKEN_DOWN, WITHIN = 0.7, 2.0, 0.6, 0.9, 60.0


class PromoRushScore(Struct, frozen=True):
    """The field's incident, by the playbook that mended it. Shares are of the incident's figure; seconds."""

    run: str
    playbook: str
    outcome: str
    p99_down: float | None
    goodput_times: float | None
    calls_down: float | None  # forward calls per answer, at the live rate
    calls_down_saturated: float | None  # the same, with the server never idle before and after
    capacity_times: float | None  # answers per second of the saturated server
    faults_down: float | None  # page faults per call
    allocations_down: float | None  # device allocations per call
    to_verified: float | None


class RemediationScores(Struct, frozen=True):
    """`mended`: of the runs in which a true cause was acted on, those that were verified. `wrong_refused`: of the
    playbooks tried to no avail, those that were taken back or refused; `wrong_restored`: of those, the ones after which
    the configuration was the one from before. `missing` are the runs of the bench that were not played yet.
    """

    tool_version: str
    runs: tuple[RemediationReport, ...]
    outcomes: dict[str, int]
    right: Proportion
    mended: Proportion
    wrong_refused: Proportion
    wrong_restored: Proportion
    rush: tuple[PromoRushScore, ...]
    spoiled_tries: int = 0
    given_up: int = 0
    missing: tuple[str, ...] = ()


def score(
    runs: Sequence[RemediationReport], spoiled_tries: int = 0, given_up: int = 0, missing: Sequence[str] = ()
) -> RemediationScores:
    """Pure."""
    tried = [run for run in runs if run.kind == WRONG]
    real = [run for run in runs if run.kind != WRONG]
    acted = [run for run in real if run.right]
    stopped = [run for run in tried if run.outcome in (ROLLED_BACK, REFUSED)]
    return RemediationScores(
        tool_version=__version__,
        runs=tuple(runs),
        outcomes=dict(sorted(Counter(run.outcome for run in real).items())),
        right=proportion(len(acted), len(real)),
        mended=proportion(sum(run.outcome == VERIFIED for run in acted), len(acted)),
        wrong_refused=proportion(len(stopped), len(tried)),
        wrong_restored=proportion(sum(run.restored is not False for run in stopped), len(stopped)),
        rush=tuple(_rush(run) for run in real if run.scenario == PROMO_RUSH),
        spoiled_tries=spoiled_tries,
        given_up=given_up,
        missing=tuple(missing),
    )


def _rush(run: RemediationReport) -> PromoRushScore:
    ill, after = run.incident, run.after
    first, last = run.saturated or (None, None)
    return PromoRushScore(
        run=run.run,
        playbook=run.playbook,
        outcome=run.outcome,
        p99_down=_down(ill.p99, after.p99 if after else None),
        goodput_times=_times(after.goodput if after else None, ill.goodput),
        calls_down=_down(ill.calls_per_answer, after.calls_per_answer if after else None),
        calls_down_saturated=_down(first.calls_per_answer if first else None, last.calls_per_answer if last else None),
        capacity_times=_times(last.rate if last else None, first.rate if first else None),
        faults_down=_down(ill.page_faults_per_call, after.page_faults_per_call if after else None),
        allocations_down=_down(ill.allocations_per_call, after.allocations_per_call if after else None),
        to_verified=run.moments.to_verified,
    )


def _down(before: float | None, after: float | None) -> float | None:
    """By which share it fell; None where either was not measured, or there was nothing to fall."""
    return None if before is None or after is None or before <= 0 else 1 - after / before


def _times(after: float | None, before: float | None) -> float | None:
    return None if before is None or after is None or before <= 0 else after / before


MENDED, LOOKS = "mended", "looks"


@dataclass(frozen=True, slots=True)
class RemediationAttempt:
    """One go at a run, and the look by which it was diagnosed (None: nobody looked)."""

    report: RemediationReport
    look: Bundle | None

    @property
    def spoiled(self) -> tuple[str, ...]:
        return self.report.spoiled


@dataclass(frozen=True, slots=True)
class RemediationStore(RunFolder):
    """A folder of reports."""

    complete: ClassVar[str] = MENDED

    def keep(self, attempt: RemediationAttempt) -> None:
        """Raises BundleError where it cannot be written."""
        run = attempt.report.run
        look = self.look(run)
        look.unlink(missing_ok=True)  # of a try that was interrupted before its report was written
        if attempt.look is not None:
            look.parent.mkdir(parents=True, exist_ok=True)
            save(attempt.look, look, __version__)
        tries = len(self.spoiled(run)) + 1
        self.write(MENDED, run, msgspec.structs.replace(attempt.report, tries=tries))

    def look(self, run: str) -> Path:
        """Where its look is kept."""
        return self.folder / LOOKS / f"{run}.tar.zst"

    def report(self, run: str) -> RemediationReport:
        """Raises BundleError."""
        return read_json(self.json(MENDED, run), RemediationReport)
