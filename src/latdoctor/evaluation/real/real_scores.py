"""Scores of the diagnoses of recorded real runs. Pure but for reading the bundles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec
from msgspec import Struct

from latdoctor.case_from_bundle import case, seen
from latdoctor.diagnosis.codes import Level
from latdoctor.diagnosis.diagnose import Stamp, diagnose
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.evaluation.real.real_store import RealRecording, RealTruth
from latdoctor.evaluation.statistics import Proportion, proportion
from latdoctor.evidence.baseline import record
from latdoctor.evidence.bundle_files import opened

SCHEMA_VERSION = "1"
POOLED = "all"
_ONSET_WITHIN = 10.0  # seconds
_STAMP = Stamp("bench", "")

_Item = TypeVar("_Item")


class RealAnswer(Struct, frozen=True):
    """What one diagnosis said. `onset`: unix seconds; None: none was dated. `fired`: the findings that hold."""

    verdict: Level
    named: tuple[str, ...]
    ranked: tuple[str, ...]
    probability: float | None
    onset: float | None
    fired: tuple[str, ...]
    unexplained: tuple[str, ...]


class RealRunScore(Struct, frozen=True):
    """A run with its diagnoses: of the incident alone, with the healthy time as baseline, and of the healthy time."""

    truth: RealTruth
    alone: RealAnswer
    with_history: RealAnswer
    healthy: RealAnswer

    @property
    def first_is_right(self) -> bool:
        return _first_is_right(self.truth, self.alone)

    @property
    def wrongly_named(self) -> tuple[str, ...]:
        """Causes that were named and are not true."""
        return tuple(name for name in _beside(self.truth, self.alone.named) if name not in self.truth.right)


class RealGroupScore(Struct, frozen=True):
    """The scores of the runs of one server, or of all. Each has its n (`of`) and Wilson's interval.

    Of incidents: `ac1`, `ac1_with_history`: the first-ranked cause is a right one; `named`: a right one is named;
    `wrong_named`: a wrong one is. Of incidents that broke the SLO: `outages_below_critical`. `onset_within_10s`: of the
    onsets that were dated, of incidents. Of healthy observations, the time before each incident included:
    `false_alarms` (a cause named, or critical) and `healthy_said`. Where other processes had the processors, naming
    them is neither right nor wrong.
    """

    server: str
    runs: int
    spoiled: int
    ac1: Proportion
    ac1_with_history: Proportion
    named: Proportion
    wrong_named: Proportion
    outages_below_critical: Proportion
    onset_within_10s: Proportion
    false_alarms: Proportion
    healthy_said: Proportion


class RealMiss(Struct, frozen=True):
    """A run whose first cause is not a right one, or which has a wrong name."""

    run: str
    server: str
    causes: tuple[str, ...]
    verdict: Level
    named: tuple[str, ...]
    ranked: tuple[str, ...]
    fired: tuple[str, ...]


class RealScores(RealGroupScore, frozen=True):
    """The scores of a folder of recordings, of all servers and of each.

    `skipped`: server or run → why it was not run. `why_spoiled`: run → why it does not count.
    """

    servers: tuple[RealGroupScore, ...]
    misses: tuple[RealMiss, ...]
    skipped: dict[str, str]
    why_spoiled: dict[str, tuple[str, ...]]
    schema_version: str = SCHEMA_VERSION


def score_run(recording: RealRecording, rules: RuleSet) -> RealRunScore:
    """Diagnose a recorded run with `rules`. Raises BundleError."""
    with opened(recording.healthy) as calm, opened(recording.incident) as incident:
        calm_evidence, calm_coverage = seen(calm)
        healthy = diagnose(case(calm, calm_evidence, calm_coverage), rules, _STAMP)
        alone = case(incident, *seen(incident))
        recorded = record(calm_evidence, calm.context.target, recording.truth.date)
        later = case(replace(incident, baseline=recorded), alone.evidence, alone.coverage)
        return RealRunScore(
            recording.truth,
            real_answer(diagnose(alone, rules, _STAMP)),
            real_answer(diagnose(later, rules, _STAMP)),
            real_answer(healthy),
        )


def real_answer(found: Diagnosis) -> RealAnswer:
    """The parts of a diagnosis that are scored."""
    return RealAnswer(
        verdict=found.verdict.level,
        named=found.answer.causes,
        ranked=tuple(cause.id for cause in found.causes[:3]),
        probability=found.causes[0].probability if found.causes else None,
        onset=found.since.time if found.since else None,
        fired=tuple(check.id for check in found.checks if check.status == "fired"),
        unexplained=found.answer.unexplained,
    )


def score_real(runs: Sequence[RealRunScore], skipped: dict[str, str]) -> RealScores:
    """The scores of `runs`, by server and of all. Spoiled runs are counted and listed, nothing else."""
    servers = sorted({run.truth.server for run in runs})
    counted = [run for run in runs if not run.truth.spoiled]
    return RealScores(
        **msgspec.structs.asdict(_group(POOLED, runs)),
        servers=tuple(_group(name, [run for run in runs if run.truth.server == name]) for name in servers),
        misses=tuple(_misses(counted)),
        skipped=skipped,
        why_spoiled={run.truth.run: run.truth.spoiled for run in runs if run.truth.spoiled},
    )


def _group(server: str, runs: Sequence[RealRunScore]) -> RealGroupScore:
    valid = [run for run in runs if not run.truth.spoiled]
    faulty = [run for run in valid if run.truth.causes]
    dated = [run for run in faulty if run.alone.onset is not None]
    calm = [(run.truth, run.healthy) for run in valid]
    calm += [(run.truth, run.alone) for run in valid if not run.truth.causes]
    return RealGroupScore(
        server=server,
        runs=len(valid),
        spoiled=len(runs) - len(valid),
        ac1=_share(faulty, lambda run: run.first_is_right),
        ac1_with_history=_share(faulty, lambda run: _first_is_right(run.truth, run.with_history)),
        named=_share(faulty, lambda run: bool(set(run.alone.named) & set(run.truth.right))),
        wrong_named=_share(faulty, lambda run: bool(run.wrongly_named)),
        outages_below_critical=_share(
            [run for run in faulty if run.truth.is_outage], lambda run: run.alone.verdict != Level.CRITICAL
        ),
        onset_within_10s=_share(dated, _dated_well),
        false_alarms=_share(calm, lambda one: _alarms(*one)),
        healthy_said=_share(calm, lambda one: one[1].verdict == Level.HEALTHY),
    )


def _share(items: Sequence[_Item], holds: Callable[[_Item], bool]) -> Proportion:
    return proportion(sum(holds(item) for item in items), len(items))


def _first_is_right(truth: RealTruth, said: RealAnswer) -> bool:
    first = _beside(truth, said.ranked)[:1]
    return bool(first) and first[0] in truth.right


def _beside(truth: RealTruth, causes: Sequence[str]) -> tuple[str, ...]:
    """`causes` without what is true of the machine anyway."""
    return tuple(name for name in causes if name not in truth.also_true)


def _alarms(truth: RealTruth, said: RealAnswer) -> bool:
    """Whether a healthy observation was taken for an incident. A loaded machine is named rightly, and hurts no user."""
    return bool(_beside(truth, said.named)) or said.verdict == Level.CRITICAL


def _dated_well(run: RealRunScore) -> bool:
    return run.alone.onset is not None and abs(run.alone.onset - run.truth.since) <= _ONSET_WITHIN


def _misses(runs: Iterable[RealRunScore]) -> Iterable[RealMiss]:
    for run in runs:
        if run.truth.causes and (not run.first_is_right or run.wrongly_named):
            said = run.alone
            yield RealMiss(
                run.truth.run, run.truth.server, run.truth.causes, said.verdict, said.named, said.ranked, said.fired
            )
