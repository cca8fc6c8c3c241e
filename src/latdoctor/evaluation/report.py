"""Result tables, written as CSV files, and the diagnosis scores as such tables and as a summary for the screen.

docs/evaluation.md explains the tables.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from latdoctor.evaluation.baselines.learned_cause_mapping import CauseMapping
from latdoctor.evaluation.calibration import Fit
from latdoctor.evaluation.scoring import (
    OURSELVES,
    PAIR_RUNS,
    PAIR_SEPARATED,
    DiagnosisScores,
    FalseAlarmRate,
    GroupScore,
    MethodInput,
    PairScore,
)
from latdoctor.evaluation.statistics import BootstrapEstimate, Proportion
from latdoctor.output_file import cannot_write, write_text

NONE = "-"  # a value that was not measured


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A table; `name` is its file name without the suffix."""

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def csv(self) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows((self.columns, *self.rows))
        return text.getvalue()


def write_tables(tables: Iterable[ResultTable], folder: Path) -> None:
    """Write `folder/NAME.csv` for every table with rows. Raises BundleError where a file cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, "the tables", error) from error
    for table in tables:
        if table.rows:
            write_text(folder / f"{table.name}.csv", table.csv(), "the table")


def interval(share: Proportion | BootstrapEstimate, *, percent: bool = True) -> str:
    """The value with its 95 % interval: `83.3% [43.6%–97.0%]`, or `0.123 [0.100–0.150]`."""
    if share.value is None or share.low is None or share.high is None:
        return NONE
    low, value, high = (f"{x:.1%}" if percent else f"{x:.3f}" for x in (share.low, share.value, share.high))
    return f"{value} [{low}–{high}]"


def counted(share: Proportion) -> str:
    """`5 of 6: 83.3% [43.6%–97.0%]`."""
    return NONE if share.value is None else f"{share.right:g} of {share.of}: {interval(share)}"


def seconds(value: float | None) -> str:
    """`250 ms` or `2.50 s`."""
    if value is None:
        return NONE
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


_GROUP_COLUMNS = ("", "runs", "AC@1", "AC@3", "nothing named", "precision of named causes", "mean probability")
_METHOD_COLUMNS = ("method", "input", "AC@1", "AC@1, held-out", "AC@3", "Avg@5", "both of two", "failed", "median time")


def tables(scores: DiagnosisScores, fit: Fit | None = None) -> Iterator[ResultTable]:
    """Every result as a table."""
    yield ResultTable("summary", ("", "value"), [("runs", _runs(scores)), *_summary(scores)])
    yield ResultTable("methods", _METHOD_COLUMNS, [*_methods(scores)])
    groups = {
        "families": scores.families,
        "severities": (*scores.kinds, *scores.severities),
        "withheld-sources": scores.withheld,
        "displaced-windows": scores.displaced,
    }
    for name, rows in groups.items():
        yield ResultTable(name, _GROUP_COLUMNS, [_group(row) for row in rows])
    healthy = [(one.name, _alarms(one.false_alarms)) for one in scores.healthy]
    yield ResultTable("healthy-runs", ("runs", "with a named cause"), healthy)
    yield ResultTable("confusable-pairs", ("cause", "confusable with", "ranked first"), [*_pairs(scores.hard_pairs)])
    hidden = [(one.cause, counted(one.wrongly_named)) for one in scores.hidden_causes]
    yield ResultTable("unknown-causes", ("removed from the catalogue", "wrong cause named"), hidden)
    bins = [(f"{one.probability:.3f}", f"{one.right:.3f}", str(one.of)) for one in scores.bins]
    yield ResultTable("reliability", ("mean probability", "correct", "runs"), bins)
    if fit:
        yield ResultTable("temperature", ("temperature", "log loss", "Brier", "ECE"), [*_temperatures(fit)])
    missed = [(one.run, " ".join(one.causes), one.first or NONE, " ".join(one.named) or NONE) for one in scores.misses]
    yield ResultTable("missed", ("run", "injected", "ranked first", "named"), missed)


def summary(scores: DiagnosisScores) -> str:
    """The main results as text."""
    lines = [_runs(scores), *(f"{name:<38} {value}" for name, value in _summary(scores))]
    lines += [f"{f'{method.name}, {method.metrics}':<38} AC@1 {interval(method.ac1)}" for method in scores.methods]
    lines += _leads(scores)
    lines += [f"missed: {miss.run}: {miss.first or 'nothing'}" for miss in scores.misses]
    return "\n".join(lines) + "\n"


def temperature(fit: Fit) -> str:
    """The fitted temperature in one line."""
    before, after = (interval(one.ece, percent=False) for one in (fit.before, fit.after))
    return (
        f"temperature {fit.temperature:g}, fitted on {fit.fitted_on} observations; on {fit.judged_on} others ECE "
        f"{before} without it, {after} with it\n"
    )


def _runs(scores: DiagnosisScores) -> str:
    runs = scores.runs
    missing = f" {runs.missing} of {runs.planned} runs of {runs.chosen} are missing." if runs.missing else ""
    return (
        f"{runs.with_fault} live runs with a fault, {runs.healthy} healthy live runs, {runs.synthetic} synthetic runs; "
        f"{runs.spoiled_tries} spoiled attempts, {runs.given_up} runs given up; version {scores.tool_version}.{missing}"
    )


def _summary(scores: DiagnosisScores) -> Iterator[tuple[str, str]]:
    yield "AC@1", interval(scores.ac1)
    yield "AC@3", interval(scores.ac3)
    yield "Avg@5", interval(scores.avg5)
    yield "both of two", interval(scores.both_of_two)
    yield "AC@1, live runs", interval(scores.live.ac1)
    yield "AC@3, live runs", interval(scores.live.ac3)
    yield "AC@1, tuned families", interval(scores.tuned.ac1)
    yield "AC@1, held-out families", interval(scores.held_out.ac1)
    yield "precision of named causes", interval(scores.named_right)
    yield "runs without a named cause", interval(scores.abstained)
    yield "false alarms", _alarms(scores.false_alarms)
    yield "false alarms, live runs", _alarms(scores.live_false_alarms)
    yield "confusable pairs separated", _separated(scores.hard_pairs)
    yield "wrong cause named for an unknown one", interval(scores.unknown_named)
    yield "Brier score of the top cause", interval(scores.brier, percent=False)
    yield "calibration error (ECE)", interval(scores.ece, percent=False)
    yield "cited findings that the fault changed", interval(scores.grounded)
    slowest = "" if scores.slowest is None else f", at most {scores.slowest:.2f} s"
    yield "time from bundle to diagnosis", f"{seconds(scores.seconds.value)} on average{slowest}"


def _alarms(alarms: FalseAlarmRate) -> str:
    if alarms.bound is None:
        return counted(alarms.share)
    # For zero alarms the exact bound 1 - 0.05^(1/n) is close to the rule of three.
    of_three = "" if alarms.share.right else f", below 3/{alarms.share.of}"
    return f"{counted(alarms.share)}; the true rate is at most {alarms.bound:.1%}{of_three} (one-sided 95 %)"


def _methods(scores: DiagnosisScores) -> Iterator[tuple[str, ...]]:
    for method in sorted(scores.methods, key=lambda one: -(one.ac1.value or 0.0)):
        shares = (method.ac1, method.held_out, method.ac3, method.avg5, method.both_of_two)
        values = (*(interval(share) for share in shares), str(method.crashed), seconds(method.seconds))
        yield (method.name, method.metrics, *values)


def _leads(scores: DiagnosisScores) -> Iterator[str]:
    """The lead of latdoctor over the best other method, for each kind of input."""
    ours = next((method.ac1.value for method in scores.methods if method.name == OURSELVES), None)
    best: dict[str, float] = {}
    for method in scores.methods:
        if method.name != OURSELVES and method.ac1.value is not None:
            best[method.metrics] = max(best.get(method.metrics, 0.0), method.ac1.value)
    if ours is not None:
        yield from (f"AC@1 lead over the best method on {name} input: {ours - one:.2f}" for name, one in best.items())


def _group(row: GroupScore) -> tuple[str, ...]:
    shares = (row.accuracy.ac1, row.accuracy.ac3, row.abstained, row.named_right)
    probability = NONE if row.mean_probability is None else f"{row.mean_probability:.2f}"
    return (row.name, str(row.accuracy.ac1.of), *(interval(share) for share in shares), probability)


def _pairs(pairs: Sequence[PairScore]) -> Iterator[tuple[str, ...]]:
    for pair in pairs:
        few = "" if pair.enough or pair.separated.value is None else " (few)"
        yield pair.cause, pair.neighbour, f"{counted(pair.separated)}{few}"


def _separated(pairs: Sequence[PairScore]) -> str:
    measured = [pair for pair in pairs if pair.separated.value is not None]
    reached, enough = sum(pair.reached for pair in measured), sum(pair.enough for pair in measured)
    return (
        f"{reached} of {len(measured)} in {PAIR_SEPARATED:.0%} of the runs or more; "
        f"{enough} of {len(pairs)} with {PAIR_RUNS} runs"
    )


def _temperatures(fit: Fit) -> Iterator[tuple[str, ...]]:
    for one in (fit.before, fit.after):
        scores = (interval(x, percent=False) for x in (one.log_loss, one.brier, one.ece))
        yield (f"{one.temperature:g}", *scores)


_SHOWN = 2  # causes per signal
_LEAST = 0.1  # smaller shares are not shown


def mapping_tables(
    fitted: Mapping[MethodInput, Sequence[CauseMapping]], titles: Mapping[str, str]
) -> Iterator[ResultTable]:
    """For each kind of input: how each baseline is mapped, and the causes of every signal."""
    columns = ("method", "mapping", "metrics used", "weight of the rules", "training runs")
    for metrics, mappings in fitted.items():
        yield ResultTable(
            f"mapping-{metrics}",
            (*columns, "AC@1, run left out", "AC@1, cause left out"),
            [
                (
                    *(titles[one.method], one.kind, str(one.depth), f"{one.strength:g}", str(one.runs)),
                    *(f"{one.left_out:.2f}", f"{one.cause_left_out:.2f}"),
                )
                for one in mappings
            ],
        )
        signals = sorted({signal for one in mappings for signal in one.table})
        rows = [(signal, *(_main_causes(one.table.get(signal, {})) for one in mappings)) for signal in signals]
        yield ResultTable(
            f"mapping-{metrics}-signals",
            ("signal", *(titles[one.method] for one in mappings)),
            [row for row in rows if any(row[1:])],
        )


def _main_causes(weights: Mapping[str, float]) -> str:
    """The main causes of a signal, each with its share."""
    total = sum(weights.values())
    if total <= 0:
        return ""
    best = sorted(weights, key=lambda cause: (-weights[cause], cause))[:_SHOWN]
    return ", ".join(f"{cause} {weights[cause] / total:.2f}" for cause in best if weights[cause] / total >= _LEAST)
