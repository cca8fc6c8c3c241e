"""Scores of the diagnoses of recorded cluster runs. Pure but for reading the bundles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from latdoctor.case_from_bundle import case, seen
from latdoctor.diagnosis.codes import Level
from latdoctor.diagnosis.diagnose import Stamp, diagnose
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.evaluation.cluster.cluster_remediation import ClusterRemediation
from latdoctor.evaluation.cluster.cluster_run import ClusterRecording, ClusterTruth
from latdoctor.evaluation.real.real_scores import RealAnswer, real_answer
from latdoctor.evaluation.report import counted
from latdoctor.evaluation.statistics import Proportion, proportion
from latdoctor.evidence.bundle_files import opened

SCHEMA_VERSION = "1"
_SINCE_WITHIN = 10.0  # seconds
_STAMP = Stamp("bench", "")
# The Pods of the lab and its control plane share the processors of one machine: where it names them, that is true.
_ALSO_TRUE = ("infra.cpu.contention",)


class ClusterRunScore(Struct, frozen=True):
    """A run and what the diagnosis said of it."""

    truth: ClusterTruth
    answer: RealAnswer

    @property
    def first_is_right(self) -> bool:
        return any(cause in self.truth.causes for cause in _beside(self.answer.ranked)[:1])

    @property
    def is_named(self) -> bool:
        return bool(set(self.answer.named) & set(self.truth.causes))

    @property
    def is_false_alarm(self) -> bool:
        """A healthy change for which a cause is named, or that is called critical."""
        return bool(_beside(self.answer.named)) or self.answer.verdict == Level.CRITICAL

    @property
    def seconds_off(self) -> float | None:
        """From the injection to the onset that the diagnosis dates; None: it dates none."""
        return None if self.answer.onset is None else self.answer.onset - self.truth.since


def _beside(causes: Sequence[str]) -> tuple[str, ...]:
    """`causes` without what is true of the machine anyway."""
    return tuple(cause for cause in causes if cause not in _ALSO_TRUE)


class ClusterRunLine(Struct, frozen=True):
    """One run in the report. `seconds_off`: of the dated onset."""

    run: str
    causes: tuple[str, ...]
    verdict: str
    named: tuple[str, ...]
    ranked: tuple[str, ...]
    seconds_off: float | None
    right: bool
    fired: tuple[str, ...]
    p99_before: float | None
    p99_during: float | None
    lost: int
    requests: int
    remediation: ClusterRemediation | None


class ClusterScores(Struct, frozen=True):
    """The scores of a folder of cluster runs.

    `ac1`: of the faults, the first cause is right; `named`: a right one is named; `since_within_10s`: of the faults,
    the onset is dated within ten seconds. `false_alarms`: of the healthy changes. `requests_lost`: in healthy changes,
    of `requests`; those lost in faults are no fault of the tool. `playbooks_run` is 0 where none was run.
    """

    runs: int
    spoiled: int
    ac1: Proportion
    named: Proportion
    since_within_10s: Proportion
    false_alarms: Proportion
    playbooks_run: int
    playbooks_verified: int
    playbooks_rolled_back: int
    requests: int
    requests_lost: int
    requests_lost_in_faults: int
    details: tuple[ClusterRunLine, ...]
    failed: dict[str, str]
    why_spoiled: dict[str, tuple[str, ...]]
    schema_version: str = SCHEMA_VERSION


def score_cluster_run(recording: ClusterRecording, rules: RuleSet) -> ClusterRunScore:
    """Diagnose the bundle of a run. Raises BundleError."""
    with opened(recording.bundle) as bundle:
        return ClusterRunScore(recording.truth, real_answer(diagnose(case(bundle, *seen(bundle)), rules, _STAMP)))


def score_cluster(runs: Sequence[ClusterRunScore], failed: dict[str, str]) -> ClusterScores:
    """The scores of `runs`. Spoiled ones are counted and listed, nothing else."""
    valid = [run for run in runs if not run.truth.spoiled]
    faults = [run for run in valid if run.truth.causes]
    healthy = [run for run in valid if not run.truth.causes]
    remediations = [run.truth.remediation for run in valid if run.truth.remediation is not None]
    return ClusterScores(
        runs=len(valid),
        spoiled=len(runs) - len(valid),
        ac1=_share(faults, lambda run: run.first_is_right),
        named=_share(faults, lambda run: run.is_named),
        since_within_10s=_share(faults, _is_dated),
        false_alarms=_share(healthy, lambda run: run.is_false_alarm),
        playbooks_run=len(remediations),
        playbooks_verified=sum(one.is_verified for one in remediations),
        playbooks_rolled_back=sum(one.is_rolled_back for one in remediations),
        requests=sum(run.truth.before.requests + run.truth.during.requests for run in healthy),
        requests_lost=sum(run.truth.lost for run in healthy),
        requests_lost_in_faults=sum(run.truth.lost for run in faults),
        details=tuple(map(_line, valid)),
        failed=failed,
        why_spoiled={run.truth.run: run.truth.spoiled for run in runs if run.truth.spoiled},
    )


def _share(runs: Sequence[ClusterRunScore], holds: Callable[[ClusterRunScore], bool]) -> Proportion:
    return proportion(sum(map(holds, runs)), len(runs))


def _is_dated(run: ClusterRunScore) -> bool:
    return run.seconds_off is not None and abs(run.seconds_off) <= _SINCE_WITHIN


def _line(run: ClusterRunScore) -> ClusterRunLine:
    truth, answer = run.truth, run.answer
    return ClusterRunLine(
        run=truth.run,
        causes=truth.causes,
        verdict=answer.verdict,
        named=answer.named,
        ranked=answer.ranked,
        seconds_off=run.seconds_off,
        right=run.first_is_right if truth.causes else not run.is_false_alarm,
        fired=answer.fired,
        p99_before=truth.before.p99,
        p99_during=truth.during.p99,
        lost=truth.lost,
        requests=truth.before.requests + truth.during.requests,
        remediation=truth.remediation,
    )


_ROWS = (
    ("ac1", "first cause right"),
    ("named", "a right cause named"),
    ("since_within_10s", "onset dated within 10 s"),
    ("false_alarms", "false alarms of healthy changes"),
)


def cluster_summary(scores: ClusterScores) -> str:
    """The scores as text, with a line for each run."""
    return "\n".join(_lines(scores))


def _lines(scores: ClusterScores) -> Iterator[str]:
    yield f"{scores.runs} runs, {scores.spoiled} spoiled"
    for name, title in _ROWS:
        if getattr(scores, name).of:
            yield f"  {title}: {counted(getattr(scores, name))}"
    yield f"  requests lost in healthy changes: {scores.requests_lost} of {scores.requests}"
    if scores.playbooks_run:
        yield (
            f"  playbooks: {scores.playbooks_verified} of {scores.playbooks_run} verified, "
            f"{scores.playbooks_rolled_back} rolled back"
        )
    for run in scores.details:
        said = ", ".join(run.named) or f"nothing (first {', '.join(run.ranked[:1]) or 'none'})"
        off = "undated" if run.seconds_off is None else f"{run.seconds_off:+.0f} s"
        yield f"{'  ' if run.right else '! '}{run.run}: {run.verdict}, named {said}, {off}, {run.lost} lost"
        if run.remediation is not None:
            yield f"    {run.remediation.playbook}: exit code {run.remediation.exit_code}: {run.remediation.reason}"
    yield from (f"{run} is spoiled: {'; '.join(why)}" for run, why in scores.why_spoiled.items())
    yield from (f"{run} failed: {why}" for run, why in scores.failed.items())
