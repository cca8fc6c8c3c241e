"""The remediation scores as result tables and as a summary for the screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latdoctor.evaluation.remediation.run_record import RemediationOutcome, RemediationReport
from latdoctor.evaluation.remediation.run_specs import PlaybookChoice
from latdoctor.evaluation.remediation.scores import (
    CALLS_DOWN,
    FAULTS_DOWN,
    GOODPUT_TIMES,
    P99_DOWN,
    WITHIN,
    PromoRushScore,
    RemediationScores,
)
from latdoctor.evaluation.report import NONE, ResultTable, seconds
from latdoctor.evaluation.statistics import Proportion
from latdoctor.lab.run_report import PhaseReport

_INCIDENT_COLUMNS = (
    *("incident", "injected", "named", "acted on", "correct", "playbook", "outcome"),
    *("P99 before", "P99 in the incident", "P99 after", "goodput before", "goodput in the incident", "goodput after"),
    *("calls per answer", "page faults per call", "device allocations per call", "time to verified"),
)
_TIME_COLUMNS = (
    *("incident", "first window over the SLO", "noticed", "diagnosed", "changed", "queue drained", "verified"),
    "closed",
)
_WRONG_COLUMNS = ("incident", "playbook", "outcome", "configuration restored", "reason")

# The figures of the field incident that the scenario reproduces.
_FIELD = {
    "P99": "−35 % for batching alone; −61 % (2.3 → 0.89 s) with FP16, INT8 and a state cache together",
    "goodput at the SLO": "QPS × 2.2 (950 → 2 100) with all of these together",
    "forward calls per answer, saturated": "launches −78 %",
}


def tables(scores: RemediationScores) -> Iterator[ResultTable]:
    """Every result as a table."""
    real = [run for run in scores.runs if run.kind is not PlaybookChoice.WRONG]
    wrong = [run for run in scores.runs if run.kind is PlaybookChoice.WRONG]
    unverified = [run for run in real if run.outcome is not RemediationOutcome.VERIFIED]
    yield ResultTable("remediation-summary", ("", "value"), [("runs", _runs(scores)), *_summary(scores)])
    playbooks = (rush.playbook or rush.outcome for rush in scores.rush)
    yield ResultTable("promo-rush", ("", "target", "field incident", *playbooks), [*_rush(scores.rush)])
    yield ResultTable("remediation-incidents", _INCIDENT_COLUMNS, [_incident(run) for run in real])
    yield ResultTable("remediation-times", _TIME_COLUMNS, [_times_of(run) for run in real])
    not_verified = [(run.scenario, run.outcome, run.reason) for run in unverified]
    yield ResultTable("remediation-not-verified", ("incident", "outcome", "reason"), not_verified)
    restored = {True: "yes", False: "no", None: "nothing was changed"}
    refused = [(run.scenario, run.playbook, run.outcome, restored[run.restored], run.reason) for run in wrong]
    yield ResultTable("wrong-playbooks", _WRONG_COLUMNS, refused)


def summary(scores: RemediationScores) -> str:
    """The main results as text."""
    lines = [_runs(scores), *(f"{name:<44} {value}" for name, value in _summary(scores))]
    for rush in scores.rush:
        figures = ", ".join(f"{name} {value}" for name, value, _ in _figures(rush))
        lines.append(f"{rush.run} ({rush.playbook or 'no playbook'}): {figures}")
    for run in scores.runs:
        lines.append(f"{run.run:<60} {run.outcome:<14} P99 {' → '.join(_p99s(run))} {seconds(run.moments.to_verified)}")
    return "\n".join(lines) + "\n"


def _runs(scores: RemediationScores) -> str:
    missing = f" Missing: {', '.join(scores.missing)}." if scores.missing else ""
    outcomes = ", ".join(f"{count} {name}" for name, count in scores.outcomes.items()) or "none"
    processors = " or ".join(map(str, sorted({run.machine.processors for run in scores.runs})))
    return (
        f"{sum(scores.outcomes.values())} incidents: {outcomes}; {scores.spoiled_tries} spoiled attempts, "
        f"{scores.given_up} runs given up; {processors} processors; version {scores.tool_version}.{missing}"
    )


def _summary(scores: RemediationScores) -> Iterator[tuple[str, str]]:
    yield "an injected cause was acted on", _share(scores.right)
    yield "of those, verified", _share(scores.verified)
    yield "wrong playbooks refused or rolled back", _share(scores.wrong_refused)
    yield "of those, configuration restored", _share(scores.wrong_restored)


def _rush(rush: Sequence[PromoRushScore]) -> Iterator[tuple[str, ...]]:
    columns = [_figures(one) for one in rush]
    for number, (name, _, target) in enumerate(columns[0] if columns else ()):
        yield (name, target, _FIELD.get(name, NONE), *(column[number][1] for column in columns))


def _figures(rush: PromoRushScore) -> tuple[tuple[str, str, str], ...]:
    """Name, value and target."""
    return (
        ("outcome", rush.outcome, RemediationOutcome.VERIFIED),
        ("P99", _reduction(rush.p99_down), f"at least {_reduction(P99_DOWN)}"),
        ("goodput at the SLO", _times(rush.goodput_times), f"at least {_times(GOODPUT_TIMES)}"),
        (
            "forward calls per answer, saturated",
            _reduction(rush.calls_down_saturated),
            f"at least {_reduction(CALLS_DOWN)}",
        ),
        ("forward calls per answer, live", _reduction(rush.calls_down), NONE),
        ("answers per second, saturated", _times(rush.capacity_times), NONE),
        ("page faults per call", _reduction(rush.faults_down), f"at least {_reduction(FAULTS_DOWN)}"),
        ("first window over the SLO to verified", seconds(rush.to_verified), f"under {seconds(WITHIN)}"),
    )


def _incident(run: RemediationReport) -> tuple[str, ...]:
    incident, after = run.incident, run.after
    return (
        *(run.scenario, " ".join(run.causes), " ".join(run.named) or NONE, run.cause or NONE),
        *("yes" if run.right else "no" if run.cause else NONE, run.playbook or NONE, run.outcome),
        *_p99s(run),
        *(_goodput(phase) for phase in (run.before, incident, after)),
        _change(incident.calls_per_answer, after.calls_per_answer if after else None, "{:.2f}"),
        _change(incident.page_faults_per_call, after.page_faults_per_call if after else None, "{:.0f}"),
        _change(incident.allocations_per_call, after.allocations_per_call if after else None, "{:.2f}"),
        seconds(run.moments.to_verified),
    )


def _times_of(run: RemediationReport) -> tuple[str, ...]:
    of = run.moments
    times = (of.over, of.noticed, of.diagnosed, of.changed, of.settled, of.verified, of.closed)
    return (run.scenario, *(NONE if time is None else f"{time:.1f}" for time in times))


def _p99s(run: RemediationReport) -> tuple[str, ...]:
    return tuple(seconds(phase.p99 if phase else None) for phase in (run.before, run.incident, run.after))


def _goodput(phase: PhaseReport | None) -> str:
    return NONE if phase is None else f"{phase.goodput:.1f}/s"


def _change(before: float | None, after: float | None, form: str) -> str:
    if before is None and after is None:
        return NONE
    return " → ".join(NONE if value is None else form.format(value) for value in (before, after))


def _reduction(down: float | None) -> str:
    return NONE if down is None else f"{'−' if down >= 0 else '+'}{abs(down):.0%}".replace("%", " %")


def _times(times: float | None) -> str:
    return NONE if times is None else f"× {times:.1f}"


def _share(share: Proportion) -> str:
    if share.value is None or share.low is None or share.high is None:
        return NONE
    return f"{share.right:g} of {share.of} [{share.low:.0%}–{share.high:.0%}]"
