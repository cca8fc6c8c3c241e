"""Scores of the remediation benchmark: verified playbooks, and wrong playbooks that were refused or rolled back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import msgspec
from msgspec import Struct

from latdoctor import __version__
from latdoctor.evaluation.remediation.run_record import RemediationOutcome, RemediationReport
from latdoctor.evaluation.remediation.run_specs import PROMO_RUSH, PlaybookChoice
from latdoctor.evaluation.statistics import Proportion, proportion
from latdoctor.evaluation.store import RunFolder, read_json
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.bundle_files import save

# Targets of the promo-rush scenario, from a field incident.
P99_DOWN, GOODPUT_TIMES, CALLS_DOWN, FAULTS_DOWN, WITHIN = 0.7, 2.0, 0.6, 0.9, 60.0


class PromoRushScore(Struct, frozen=True):
    """The promo-rush scenario, by playbook. `*_down` are reductions, as shares of the incident's figure."""

    run: str
    playbook: str
    outcome: str
    p99_down: float | None
    goodput_times: float | None
    calls_down: float | None  # forward calls per answer, at the live rate
    calls_down_saturated: float | None  # the same, with the server saturated
    capacity_times: float | None  # answers per second of the saturated server
    faults_down: float | None  # page faults per call
    allocations_down: float | None  # device allocations per call
    to_verified: float | None


class RemediationScores(Struct, frozen=True):
    """The scores of a set of runs.

    `verified`: of the runs in which an injected cause was acted on, the verified ones. `wrong_refused`: of the wrong
    playbooks, those that were rolled back or refused; `wrong_restored`: of those, the ones with the previous
    configuration restored. `missing`: planned runs without a report.
    """

    tool_version: str
    runs: tuple[RemediationReport, ...]
    outcomes: dict[str, int]
    right: Proportion
    verified: Proportion
    wrong_refused: Proportion
    wrong_restored: Proportion
    rush: tuple[PromoRushScore, ...]
    spoiled_tries: int = 0
    given_up: int = 0
    missing: tuple[str, ...] = ()


def score(
    runs: Sequence[RemediationReport], spoiled_tries: int = 0, given_up: int = 0, missing: Sequence[str] = ()
) -> RemediationScores:
    wrong = [run for run in runs if run.kind is PlaybookChoice.WRONG]
    real = [run for run in runs if run.kind is not PlaybookChoice.WRONG]
    acted = [run for run in real if run.right]
    stopped = [run for run in wrong if run.outcome in (RemediationOutcome.ROLLED_BACK, RemediationOutcome.REFUSED)]
    return RemediationScores(
        tool_version=__version__,
        runs=tuple(runs),
        outcomes=dict(sorted(Counter(run.outcome for run in real).items())),
        right=proportion(len(acted), len(real)),
        verified=proportion(sum(run.outcome is RemediationOutcome.VERIFIED for run in acted), len(acted)),
        wrong_refused=proportion(len(stopped), len(wrong)),
        wrong_restored=proportion(sum(run.restored is not False for run in stopped), len(stopped)),
        rush=tuple(_rush(run) for run in real if run.scenario == PROMO_RUSH),
        spoiled_tries=spoiled_tries,
        given_up=given_up,
        missing=tuple(missing),
    )


def _rush(run: RemediationReport) -> PromoRushScore:
    incident, after = run.incident, run.after
    first, last = run.saturated or (None, None)
    return PromoRushScore(
        run=run.run,
        playbook=run.playbook,
        outcome=run.outcome,
        p99_down=_down(incident.p99, after.p99 if after else None),
        goodput_times=_times(after.goodput if after else None, incident.goodput),
        calls_down=_down(incident.calls_per_answer, after.calls_per_answer if after else None),
        calls_down_saturated=_down(first.calls_per_answer if first else None, last.calls_per_answer if last else None),
        capacity_times=_times(last.rate if last else None, first.rate if first else None),
        faults_down=_down(incident.page_faults_per_call, after.page_faults_per_call if after else None),
        allocations_down=_down(incident.allocations_per_call, after.allocations_per_call if after else None),
        to_verified=run.moments.to_verified,
    )


def _down(before: float | None, after: float | None) -> float | None:
    """The reduction as a share of `before`; None where unknown."""
    return None if before is None or after is None or before <= 0 else 1 - after / before


def _times(after: float | None, before: float | None) -> float | None:
    return None if before is None or after is None or before <= 0 else after / before


REPORTS, OBSERVATIONS = "mended", "looks"  # folder names on disk


@dataclass(frozen=True, slots=True)
class RemediationAttempt:
    """One attempt at a run, and the diagnosed evidence (None: no diagnosis)."""

    report: RemediationReport
    observation: Bundle | None

    @property
    def spoiled(self) -> tuple[str, ...]:
        return self.report.spoiled


@dataclass(frozen=True, slots=True)
class RemediationStore(RunFolder):
    """A folder of reports."""

    complete: ClassVar[str] = REPORTS

    def keep(self, attempt: RemediationAttempt) -> None:
        """Raises BundleError where a file cannot be written."""
        run = attempt.report.run
        path = self.observation(run)
        path.unlink(missing_ok=True)  # of an attempt that was interrupted before its report was written
        if attempt.observation is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            save(attempt.observation, path, __version__)
        tries = len(self.spoiled(run)) + 1
        self.write(REPORTS, run, msgspec.structs.replace(attempt.report, tries=tries))

    def observation(self, run: str) -> Path:
        """The path of the diagnosed evidence."""
        return self.folder / OBSERVATIONS / f"{run}.tar.zst"

    def report(self, run: str) -> RemediationReport:
        """Raises BundleError."""
        return read_json(self.json(REPORTS, run), RemediationReport)
