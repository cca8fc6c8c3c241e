"""How a remediation run ended, on one screen: the state and its numbers, the steps, the undo and the next command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET
from rich.cells import cell_len

from latdoctor.remediation.observation import left_signals
from latdoctor.remediation.playbook import Trigger
from latdoctor.remediation.run_result import Measure, Outcome, Verdict, verdict_of
from latdoctor.remediation.standby import clock
from latdoctor.report.fit_to_screen import HEIGHT, Line, Rank, fitted, sentence_lines
from latdoctor.report.plain_conditions import (
    P99,
    change_of,
    headline_measure,
    plain_text,
    short_change_of,
    value_after,
)
from latdoctor.report.remediation_plan import (
    diagnose_command,
    field_lines,
    labelled,
    lines_for_each,
    target_text,
    whole,
)
from latdoctor.report.remediation_steps import RunSummary, StepState, StepSummary
from latdoctor.report.text_utils import WIDTH, wrapped
from latdoctor.sanitize import clean
from latdoctor.sanitize import fitted as fitted_text
from latdoctor.units import format_value

_MAX_FIELD_LINES = 6  # of all steps
_MAX_COMMANDS = 3  # of each kind
_MAX_MEASURES = 4  # beside the one in the headline
_UNCHANGED = "all values are as before"
_INCONCLUSIVE = "the change may help; a run with a history (--prometheus URL) or under steadier load can show it"
_UNCHANGED_WORDS = {
    Outcome.REFUSED: "REFUSED",
    Outcome.HELD: "HELD",
    Outcome.FAILED: "FAILED",
    Outcome.PLANNED: "PLANNED",
}
_STYLE = {
    Outcome.VERIFIED: "bold green",
    Outcome.FAILED: "bold red",
    Outcome.INCOMPLETE: "bold red",
    Outcome.HELD: "bold magenta",
}
_PREPARED = {Trigger.FORECAST: "READY", Trigger.PEAK_PASSED: "RELEASED"}
_STEP_STYLE = {StepState.IN_PLACE: "bold red", StepState.LEFT: "bold yellow"}


def run_answer(summary: RunSummary, height: int = HEIGHT) -> tuple[Line, ...]:
    """At most `height` lines."""
    parts = [
        list(_head(summary)),
        list(_why(summary)),
        list(_steps(summary)),
        [*_measured(summary), *_unmet(summary)],
        list(_next(summary)),
    ]
    return fitted(parts, height)


def runs_answer(summaries: Sequence[RunSummary], untried: Sequence[str] = ()) -> tuple[Line, ...]:
    """Several runs: a headline each, and in full the last that was not verified, which ended the command."""
    if len(summaries) == 1 and not untried:
        return run_answer(summaries[0])
    failed = next((one for one in reversed(summaries) if one.result.outcome is not Outcome.VERIFIED), summaries[-1])
    others = [line for one in summaries if one is not failed for line in _brief(one)]
    skipped = list(labelled("Skipped", clean(", ".join(untried), 400), style="yellow")) if untried else []
    rest = HEIGHT - len(others) - len(skipped) - 2
    return fitted([run_answer(failed, max(10, rest)), others, skipped])


def _brief(summary: RunSummary) -> Iterator[Line]:
    result = summary.result
    place = target_text(summary.plan.target) if summary.plan else clean(result.target, 60)
    undo = f" · undo: latdoctor rollback {result.run}" if result.outcome is Outcome.VERIFIED else ""
    yield Line(f" {headline(summary).partition('  ')[0]}  {place}{undo}", _style(summary))


def headline(summary: RunSummary) -> str:
    """`FIXED  P99 2.48 s → 310 ms (SLO 500 ms), 3 steps verified in 34 s`."""
    result = summary.result
    if summary.at_work and result.outcome is Outcome.HELD:
        return "RUNNING  another run is changing this target; wait until it ends"
    if summary.unfinished:
        return f"UNFINISHED  the run did not end; {_count(_in_place(summary), 'step')} may be in place"
    numbers = _numbers(summary)
    match result.outcome:
        case Outcome.VERIFIED:
            took = f" in {result.seconds:.0f} s" if result.seconds else ""
            steps = f"{_count(summary.verified, 'step')} verified{took}" if summary.verified else "verified"
            return f"{_fixed(summary)}  {', '.join(filter(None, (numbers, steps)))}"
        case Outcome.ROLLED_BACK:
            return f"ROLLED BACK  {'; '.join(filter(None, (_rolled_back(summary), _UNCHANGED)))}"
        case Outcome.PARTLY_ROLLED_BACK:
            kept = f"{_count(summary.verified, 'verified step')} kept, the rest as before"
            return f"PARTLY ROLLED BACK  {', '.join(filter(None, (numbers, kept)))}"
        case Outcome.PENDING:
            return f"APPLIED  {', '.join(filter(None, (numbers, 'proof pending')))}"
        case Outcome.INCOMPLETE:
            return f"ROLLBACK INCOMPLETE  {_count(_in_place(summary), 'step')} may still be in place"
        case _:
            return f"{_UNCHANGED_WORDS[result.outcome]}  nothing was changed: {_reason(summary)}"


def _rolled_back(summary: RunSummary) -> str:
    """What led to a rollback, in a few words or numbers."""
    if summary.requested or summary.interrupted:
        return "on request" if summary.requested else "interrupted"
    measure = _headline_measure(summary)
    return f"{change_of(measure)} with the change" if measure else ""


def _fixed(summary: RunSummary) -> str:
    """The word for a verified run: what the SLO and the kind of playbook allow to say."""
    if summary.playbook is not None and summary.playbook.trigger in _PREPARED:
        return _PREPARED[summary.playbook.trigger]
    if summary.result.unmet:
        return "IMPROVED"
    if summary.playbook is not None and summary.playbook.treats == "symptom":
        return "MITIGATED"
    return "FIXED" if summary.slo_p99 is not None else "VERIFIED"


def _numbers(summary: RunSummary) -> str:
    measure = _headline_measure(summary)
    if measure is None:
        return ""
    slo = summary.slo_p99 if measure.signal == P99 else None
    return change_of(measure) + (f" (SLO {format_value(slo, 'time')})" if slo is not None else "")


def _headline_measure(summary: RunSummary) -> Measure | None:
    verify = summary.playbook.verify.succeed if summary.playbook else ()
    return headline_measure(summary.result.measures, left_signals(verify))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _in_place(summary: RunSummary) -> int:
    return sum(step.state in (StepState.IN_PLACE, StepState.LEFT) for step in summary.steps)


def _reason(summary: RunSummary) -> str:
    return plain_text(clean(summary.result.reason, 2000))


def _style(summary: RunSummary) -> str:
    return "bold red" if summary.unfinished else _STYLE.get(summary.result.outcome, "bold yellow")


def _head(summary: RunSummary) -> Iterator[Line]:
    result = summary.result
    for number, line in enumerate(sentence_lines(headline(summary), "", "  ", 4)):
        yield Line(line, _style(summary), continued=number > 0)
    playbook = clean(result.playbook, 60)
    place = target_text(summary.plan.target) if summary.plan else clean(result.target, 100)
    about = [" on ".join(filter(None, (playbook, place))), f"run {result.run}" if result.run else ""]
    for line in wrapped(" · ".join(filter(None, about)), "", "  ", hyphens=False)[:2]:
        yield Line(line, "dim") if line else Line("")


def _why(summary: RunSummary) -> Iterator[Line]:
    """The reason where the headline does not have it."""
    result = summary.result
    if result.outcome in (Outcome.VERIFIED, *_UNCHANGED_WORDS) and not summary.at_work:
        return
    if result.reason and not (summary.requested and result.outcome is Outcome.ROLLED_BACK):
        yield from labelled("Why", _reason(summary), most=4)


def _steps(summary: RunSummary) -> Iterator[Line]:
    """Each step with its state and the numbers of its verification; below it what it changed."""
    if summary.result.outcome in _UNCHANGED_WORDS:
        return
    most = lines_for_each([step.changes for step in summary.steps], _MAX_FIELD_LINES)
    for number, step in enumerate(summary.steps, 1):
        yield _step(number, step, alone=len(summary.steps) == 1)
        back = step.state is StepState.ROLLED_BACK
        lines = field_lines(step.changes, back=back) if step.changes else []
        if len(lines) > most:
            lines = [*lines[: most - 1], f"{lines[most - 1][: WIDTH - 4]} …"]
        if step.state not in (StepState.SKIPPED, StepState.NOT_APPLIED):
            yield from (Line(line, rank=Rank.EVIDENCE) for line in lines)


def _step(number: int, step: StepSummary, *, alone: bool) -> Line:
    """The title and the state, with what was measured at the end of the step: of one step that is the headline's."""
    measure = None if alone else headline_measure(step.measures)
    end = f"{value_after(measure)}  {step.state}" if measure else str(step.state)
    title = fitted_text(clean(step.title, 200), WIDTH - cell_len(end) - 8)
    blanks = " " * max(2, WIDTH - 4 - cell_len(title) - cell_len(end))
    return Line(f" {number}  {title}{blanks}{end}", _STEP_STYLE.get(step.state, "bold"))


def _measured(summary: RunSummary) -> Iterator[Line]:
    """The other measurements, each signal once."""
    outcome = summary.result.outcome
    if outcome in _UNCHANGED_WORDS or outcome is Outcome.INCOMPLETE or summary.requested or summary.interrupted:
        return
    shown = _headline_measure(summary)
    found: dict[str, str] = {}
    for one in summary.result.measures:
        if shown is None or one.signal != shown.signal:
            found.setdefault(one.signal, short_change_of(one))
    if found:
        yield from labelled("Also", ", ".join(list(found.values())[:_MAX_MEASURES]), Rank.CHANGE)


def _unmet(summary: RunSummary) -> Iterator[Line]:
    for text in summary.result.unmet:
        yield from labelled("But", clean(text, 400), style="yellow")
    if verdict_of(summary.result.outcome, summary.result.code) is Verdict.INCONCLUSIVE:
        yield from labelled("Note", _INCONCLUSIVE, style="yellow")
    if summary.result.note:
        yield from labelled("Note", clean(summary.result.note, 400), style="yellow")


def _next(summary: RunSummary) -> Iterator[Line]:
    """The undo and the one next command; for what could not be undone the commands to type, each on one line."""
    result = summary.result
    yield from _commands("By hand, to undo what is left:", result.manual, "bold red")
    yield from _commands("Left as it is, for this run did not set it; to overwrite it:", result.overwrite, "yellow")
    if result.outcome in (Outcome.VERIFIED, Outcome.PARTLY_ROLLED_BACK) and result.run and not summary.unfinished:
        yield whole("Undo", f"latdoctor rollback {result.run}", "")
    if result.outcome is Outcome.PENDING:
        yield whole("Stop", f"latdoctor rollback {result.run}", "")
    yield whole("Next", next_command(summary))
    if result.run:
        yield Line(f" every entry and measurement: latdoctor runs show {result.run} -v", "dim", Rank.MORE)


def _commands(title: str, commands: Sequence[str], style: str) -> Iterator[Line]:
    if commands:
        yield Line(f" {title}", style)
    yield from (Line(f"  {command}", "bold") for command in commands[:_MAX_COMMANDS])
    if len(commands) > _MAX_COMMANDS:
        yield Line(f"  … and {len(commands) - _MAX_COMMANDS} more: -v", style)


def next_command(summary: RunSummary) -> str:
    """What to type next."""
    result = summary.result
    if summary.unfinished:
        return "latdoctor recover"
    if result.next_step and result.next_step != f"latdoctor rollback {result.run}":
        return clean(result.next_step, 400)
    if result.outcome is Outcome.INCOMPLETE:
        return "latdoctor recover, or the commands above" if result.manual else "latdoctor recover"
    if summary.plan is None:
        return f"latdoctor runs show {result.run}" if result.run else "latdoctor runs list"
    if result.outcome is Outcome.VERIFIED and summary.plan.forecast is not UNSET and summary.plan.releases is UNSET:
        release = summary.plan.playbook.replace("standby", "release")
        return f"after {clock(summary.plan.forecast.released_after)} the same with --playbook {release}"
    return diagnose_command(summary.plan.target)
