"""The mended incidents as a page of documentation and as a few lines for a screen. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latdoctor.evaluation.remediation.run_record import VERIFIED, RemediationReport
from latdoctor.evaluation.remediation.run_specs import WRONG
from latdoctor.evaluation.remediation.scores import (
    CALLS_DOWN,
    GOODPUT_TIMES,
    P99_DOWN,
    TAKEN_DOWN,
    WITHIN,
    PromoRushScore,
    RemediationScores,
)
from latdoctor.evaluation.statistics import Proportion
from latdoctor.lab.run_report import PhaseReport

_HEAD = """# How well incidents are mended

`latdoctor lab bench remediation --page docs/remediation-bench.md` writes this page. Each incident is really played
against the reference server, and nobody takes it away. Once a window of five seconds is over the SLO, or after
fifteen seconds, somebody looks for ten seconds, and runs the playbook of the first named cause that has one, as
`diagnose` and `remediate --from` do: nothing knows what was put in. P99 and goodput (answers within the SLO per
second) are the clients'; calls, page faults and device allocations are the servers' own counters. *Incident* is the
time until the playbook was at work, *after* at least twelve seconds from when it was verified. Whether a run was
spoiled is decided by the rule of the [diagnosis bench](lab.md#the-incident-bench), without regard to how it ended."""

_RUSH = """The field's incident: a promotion brings long calls to a batcher that runs them alone, and every large
buffer goes back to the kernel. Beside the targets stands what field reports tell of such an incident."""

_DIFFERS = """Where it differs from the field, and why. The field reports P99 from 0.4 s to 3.2 s; here the height of
the incident's P99 is how long it was let go on, for a server that gets more than it can answer never stops falling
behind. The field counts kernel launches on a GPU (−78 %); here forward calls are counted on a processor. At the live
rate the mended server is not busy, and so starts a call with whatever waits: it makes many small calls because it
can, and the calls for an answer fall by less. With both sides saturated each call is as full as the scheduler may
make it: that is the figure to set beside the field's. INT8, FP16 and a state cache are part of the field's figures
for throughput and play no part here. The field gives no figure for memory remedies. Bounding batches by tokens alone
leaves the memory as it was: each call is larger then, and takes more page faults."""

_WRONG = """Playbooks tried on purpose where they mend nothing; in `burst` the load falls by itself meanwhile. Each
must be refused or taken back, and leave the configuration as it was."""

_COLUMNS = (
    *("incident", "named, and acted on", "playbook", "outcome", "P99 before", "incident", "after"),
    *("goodput before", "incident", "after", "calls per answer", "page faults per call", "device allocations per call"),
    "time to verified",
)
_STEPS = (
    "incident",
    "first window over the SLO",
    "noticed",
    "diagnosed",
    "changed",
    "queue drained",
    "verified",
    "closed",
)


def page(scores: RemediationScores) -> str:
    """The whole page as Markdown."""
    real = [run for run in scores.runs if run.kind != WRONG]
    wrong = [run for run in scores.runs if run.kind == WRONG]
    untold = [run for run in real if run.outcome != VERIFIED]
    parts = [
        _HEAD,
        _counted(scores),
        "## In short\n\n" + _table(("", "value"), _short(scores)),
        f"## promo-rush\n\n{_RUSH}",
        _table(_rush_columns(scores.rush), _rush(scores.rush)),
        _DIFFERS,
        "## Every incident\n\nIn a cell with an arrow: in the incident → after.\n\n"
        + _table(_COLUMNS, (_row(run) for run in real)),
        "## Step by step\n\nSeconds from the beginning of the incident.\n\n"
        + _table(_STEPS, (_steps(run) for run in real)),
        "## What was not verified, and why\n\n"
        + _table(("incident", "outcome", "why"), ((run.scenario, run.outcome, run.reason) for run in untold)),
        "## Wrong on purpose\n\n" + _WRONG + "\n\n" + _table(
            ("incident", "playbook", "outcome", "as it was", "why"),
            ((run.scenario, f"`{run.playbook}`", run.outcome, _said(run.restored), run.reason) for run in wrong),
        ),
    ]  # fmt: skip
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def summary(scores: RemediationScores) -> str:
    """A few lines for a screen."""
    lines = [_counted(scores), *(f"{name:<44} {value}" for name, value in _short(scores))]
    for rush in scores.rush:
        told = ", ".join(f"{name} {value}" for name, value, _ in _figures(rush))
        lines.append(f"{rush.run} ({rush.playbook or 'no playbook'}): {told}")
    for run in scores.runs:
        lines.append(
            f"{run.run:<60} {run.outcome:<14} P99 {' → '.join(_p99s(run))} {_seconds(run.moments.to_verified)}"
        )
    return "\n".join(lines) + "\n"


def _counted(scores: RemediationScores) -> str:
    missing = f" Not played yet: {', '.join(scores.missing)}." if scores.missing else ""
    outcomes = ", ".join(f"{count} {name}" for name, count in scores.outcomes.items()) or "none"
    return (
        f"{sum(scores.outcomes.values())} incidents: {outcomes}; {scores.spoiled_tries} spoiled tries, "
        f"{scores.given_up} runs given up; {_machine(scores)}; version {scores.tool_version}.{missing}"
    )


def _machine(scores: RemediationScores) -> str:
    counts = sorted({run.machine.processors for run in scores.runs})
    return f"{' or '.join(map(str, counts))} processors"


def _short(scores: RemediationScores) -> Iterator[tuple[str, str]]:
    yield "a true cause was acted on", _share(scores.right)
    yield "of those, verified", _share(scores.mended)
    yield "wrong playbooks refused or taken back", _share(scores.wrong_refused)
    yield "of those, the configuration as it was", _share(scores.wrong_restored)


def _rush_columns(rush: Sequence[PromoRushScore]) -> tuple[str, ...]:
    return ("", "target", "the field", *(f"`{one.playbook}`" if one.playbook else one.outcome for one in rush))


_FIELD = {
    "P99": "−35 % for batching alone; −61 % (2.3 → 0.89 s) with FP16, INT8 and a state cache together",
    "goodput at the SLO": "QPS × 2.2 (950 → 2 100) with all of these together",
    "forward calls per answer, saturated": "launches −78 %",
}


def _rush(rush: Sequence[PromoRushScore]) -> Iterator[tuple[str, ...]]:
    columns = [_figures(one) for one in rush]
    for number, (name, _, target) in enumerate(columns[0] if columns else ()):
        yield (name, target, _FIELD.get(name, "–"), *(column[number][1] for column in columns))


def _figures(rush: PromoRushScore) -> tuple[tuple[str, str, str], ...]:
    """Name, value and target."""
    return (
        ("outcome", rush.outcome, VERIFIED),
        ("P99", _fell(rush.p99_down), f"at least {_fell(P99_DOWN)}"),
        ("goodput at the SLO", _times(rush.goodput_times), f"at least {_times(GOODPUT_TIMES)}"),
        ("forward calls per answer, saturated", _fell(rush.calls_down_saturated), f"at least {_fell(CALLS_DOWN)}"),
        ("forward calls per answer, live", _fell(rush.calls_down), "–"),
        ("answers per second, saturated", _times(rush.capacity_times), "–"),
        ("page faults per call", _fell(rush.faults_down), f"at least {_fell(TAKEN_DOWN)}"),
        ("first window over the SLO to verified", _seconds(rush.to_verified), f"under {_seconds(WITHIN)}"),
    )


def _row(run: RemediationReport) -> tuple[str, ...]:
    named = ", ".join(f"`{name}`" for name in run.named) or "nothing"
    if run.cause and not run.right:
        named += " (wrong)"
    ill, after = run.incident, run.after
    return (
        run.scenario,
        named if run.cause in (*run.named[:1], "") else f"{named}; acted on `{run.cause}`",
        f"`{run.playbook}`" if run.playbook else "–",
        run.outcome,
        *_p99s(run),
        *(_rate(one) for one in (run.before, ill, after)),
        _arrow(ill.calls_per_answer, after.calls_per_answer if after else None, "{:.2f}"),
        _arrow(ill.page_faults_per_call, after.page_faults_per_call if after else None, "{:.0f}"),
        _arrow(ill.allocations_per_call, after.allocations_per_call if after else None, "{:.2f}"),
        _seconds(run.moments.to_verified),
    )


def _steps(run: RemediationReport) -> tuple[str, ...]:
    of = run.moments
    times = (of.over, of.noticed, of.diagnosed, of.changed, of.settled, of.verified, of.closed)
    return (run.scenario, *("–" if time is None else f"{time:.1f}" for time in times))


def _p99s(run: RemediationReport) -> tuple[str, str, str]:
    before, ill, after = (_seconds(one.p99 if one else None) for one in (run.before, run.incident, run.after))
    return before, ill, after


def _rate(phase: PhaseReport | None) -> str:
    return "–" if phase is None else f"{phase.goodput:.1f}/s"


def _arrow(before: float | None, after: float | None, form: str) -> str:
    if before is None and after is None:
        return "–"
    return " → ".join("–" if value is None else form.format(value) for value in (before, after))


def _fell(down: float | None) -> str:
    return "–" if down is None else f"{'−' if down >= 0 else '+'}{abs(down):.0%}".replace("%", " %")


def _times(times: float | None) -> str:
    return "–" if times is None else f"× {times:.1f}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _share(one: Proportion) -> str:
    if one.value is None or one.low is None or one.high is None:
        return "–"
    return f"{one.right:g} of {one.of} [{one.low:.0%}–{one.high:.0%}]"


def _said(restored: bool | None) -> str:
    return {True: "yes", False: "no", None: "nothing was changed"}[restored]


def _table(columns: Sequence[str], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(_cell(text) for text in row)} |" for row in rows]
    if not lines:
        return "Nothing to tell."
    return "\n".join([f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *lines])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
