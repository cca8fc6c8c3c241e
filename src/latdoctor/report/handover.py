"""Handover page for the next shift, and the record of an SOP: as Markdown and as text of 80 columns.

The content is that of the journal; unknowns have a section of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from latdoctor.incident.elapsed import GIVEN_BY_HAND
from latdoctor.incident.sop.clock import StageState, StageStatus
from latdoctor.incident.status import AttemptedRun, DiagnosisSummary, IncidentStatus
from latdoctor.report.markdown import escape
from latdoctor.report.remediation_details import clock as clock_of
from latdoctor.report.sop import ending, moment
from latdoctor.report.text_utils import wrapped
from latdoctor.sanitize import TITLE, clean, fitted
from latdoctor.units import elapsed, percent

_LONGEST, _WIDE = 800, 200  # characters of a line, and of an external text
_DEFINITIONS = (
    "met: journaled no later than its due time",
    "late: the due time passed before that, whether it was met since or not",
    "unmet: not met, and not due (or the clock stopped before it was)",
    "unknown: the evidence, or its time, is unknown",
)


@dataclass(frozen=True, slots=True)
class HandoverSection:
    """A heading and its lines, without markup; `commands` are printed as code."""

    title: str
    lines: tuple[str, ...]
    commands: tuple[str, ...] = ()


def handover(found: IncidentStatus) -> tuple[HandoverSection, ...]:
    """Status, findings, runs, remaining changes with their rollback, unknowns, and the next step."""
    return (
        HandoverSection("Status", tuple(_where(found))),
        HandoverSection("Findings", tuple(_found(found))),
        HandoverSection("Runs", tuple(_tried(found))),
        HandoverSection("Changes in place", tuple(_changes(found)), _undo(found)),
        HandoverSection("Unknown", tuple(_unknown(found))),
        HandoverSection("Notes", tuple(_notes(found))),
        HandoverSection("Next", tuple(_next(found)), (found.next.command,)),
    )


def record(found: IncidentStatus) -> tuple[HandoverSection, ...]:
    """Record of the SOP: each stage with its times and the entry that proves it."""
    return (
        HandoverSection("Stages", tuple(_exactly(state) for state in found.stages) or _no_stages(found)),
        HandoverSection("How they are counted", (f"from the start on, which {since(found)}", *_DEFINITIONS)),
        HandoverSection("Findings", tuple(_found(found))),
        HandoverSection("Runs", tuple(_tried(found))),
        HandoverSection("Notes", tuple(_notes(found))),
    )


def as_markdown(found: IncidentStatus, sections: Sequence[HandoverSection]) -> str:
    """As Markdown; untrusted text is escaped: it cannot format, link or mention."""
    lines = [f"## {escape(_title(found))}"]
    for section in _non_empty(sections):
        lines += ["", f"### {section.title}", ""]
        lines += [f"* {escape(clean(one, _LONGEST))}" for one in section.lines]
        lines += [f"* {_code(clean(one, 600))}" for one in section.commands]
    return "\n".join(lines) + "\n"


def as_text(found: IncidentStatus, sections: Sequence[HandoverSection]) -> str:
    """As text in lines of at most 80 columns; a command is on one line."""
    lines = [*wrapped(_title(found))]
    for section in _non_empty(sections):
        lines += ["", section.title, "-" * len(section.title)]
        lines += [row for one in section.lines for row in _wrapped(clean(one, _LONGEST))]
        lines += [f"    {clean(one, 600)}" for one in section.commands]
    return "\n".join(lines) + "\n"


def _wrapped(text: str) -> list[str]:
    return wrapped(text, "- ", "  ", hyphens=False)


def _code(text: str) -> str:
    """Inline code, fenced by more backticks than it contains in a row."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"`{text}`"


def _non_empty(sections: Sequence[HandoverSection]) -> Iterator[HandoverSection]:
    return (section for section in sections if section.lines or section.commands)


def _title(found: IncidentStatus) -> str:
    state = "open" if found.open else f"closed, {found.outcome}"
    return f"{found.incident}: {fitted(found.title, TITLE)} ({clean(state, 80)})"


def _where(found: IncidentStatus) -> Iterator[str]:
    yield since(found)
    if found.targets:
        yield f"target: {', '.join(found.targets)}"
    for state in found.stages:
        yield _stage(state)
    if found.alerts:
        yield "alerts: " + ", ".join(f"{count} {status}" for status, count in found.alerts.items())


def _stage(state: StageState) -> str:
    if state.done:
        after = "" if state.seconds is None else f" after {elapsed(state.seconds)} (due {elapsed(state.due)})"
        return f"{state.title}: {state.status}{after}{', marked by hand' if state.by_hand else ''}"
    if state.margin is None or state.status == StageStatus.UNKNOWN:
        return f"{state.title}: {state.status}, due after {elapsed(state.due)}"
    left = f"{elapsed(state.margin)} left" if state.margin >= 0 else f"overdue by {elapsed(-state.margin)}"
    why = f" ({clean(state.why, _WIDE)})" if state.why else ""
    return f"{state.title}: not met, {left}{why}"


def _no_stages(found: IncidentStatus) -> tuple[str, ...]:
    return (f"its stages: {found.unread}",) if found.unread else ()


def _exactly(state: StageState) -> str:
    parts = [f"{state.title}: {state.status}", f"due {elapsed(state.due)}"]
    if state.met_at:
        parts.append(f"met at {state.met_at}")
    if state.seconds is not None:
        parts.append(f"after {state.seconds:.1f} s{' by the wall clock' if state.wall else ''}")
    if state.margin is not None:
        parts.append(f"margin {state.margin:.1f} s")
    if state.by:
        parts.append(f"entry {state.by[:12]} ({state.how})")
    if state.why:
        parts.append(state.why)
    return ", ".join(parts)


def _found(found: IncidentStatus) -> Iterator[str]:
    for one in found.seen[:-1]:
        yield diagnosis_line(one)
    for one in found.seen[-1:]:
        yield f"last: {diagnosis_line(one)}"
        for cause in one.causes:
            if cause.named:
                yield f"{cause.title}: {'; '.join(cause.because)}" if cause.because else cause.title
        if one.looked:
            yield f"tiers with evidence: {', '.join(one.looked)}"
        if one.bundle:
            yield f"its evidence: {one.bundle} (in the state folder; latdoctor diagnose reads it)"


def _tried(found: IncidentStatus) -> Iterator[str]:
    for run in found.tried:
        yield f"{run.run}: {run_line(run)}"
    if found.refused:
        yield refused_line(found.refused)


def _changes(found: IncidentStatus) -> Iterator[str]:
    changed_runs = [run for run in found.tried if run.standing]
    for run in (*changed_runs, *found.inherited):
        for one in run.standing:
            values = f"{value(one.before)} before, {value(one.after)} now"
            yield f"{one.name} at {one.resource}: {values} (run {run.run}{_from(run)})"
        if not run.standing:
            yield f"changes unknown: run {run.run}{_from(run)}"
    if not changed_runs and not found.inherited:
        yield "none by latdoctor"


def _from(run: AttemptedRun) -> str:
    """Start and outcome of a run of another incident."""
    return f", {run.whose}, since {moment(run.at)} UTC, {run.outcome}" if run.whose else ""


def _undo(found: IncidentStatus) -> tuple[str, ...]:
    own = (run.undo for run in found.tried if run.standing)
    return tuple(dict.fromkeys((*own, *(run.undo for run in found.inherited))))


def _unknown(found: IncidentStatus) -> Iterator[str]:
    if not found.seen:
        yield "the cause: nothing was diagnosed yet"
    elif not any(cause.named for cause in found.seen[-1].causes):
        before = next((one for one in reversed(found.seen) if any(cause.named for cause in one.causes)), None)
        yield f"the cause: the last diagnosis names none{f'; before that {diagnosis_line(before)}' if before else ''}"
    yield from _no_stages(found)
    for state in found.stages:
        if state.status == StageStatus.UNKNOWN:
            yield f"{state.title}: {state.why}"
    if found.seen:
        yield from (f"missing evidence: {reason}" for reason in found.seen[-1].unseen)
    if found.clock == GIVEN_BY_HAND:
        yield "when exactly the trouble began: it was entered by hand"
    elif found.clock:
        yield f"how far the clock of {found.clock} is from this machine's"
    else:
        yield f"when the trouble began: {found.clock_note or 'not reported'}"


def _notes(found: IncidentStatus) -> Iterator[str]:
    for note in found.notes:
        yield f"{clock_of(note.at)} {note.by or 'unnamed'}: {note.text}"


def _next(found: IncidentStatus) -> Iterator[str]:
    yield found.next.why
    if found.open:
        yield f"permitted now: {permitted(found)}"
    asks = found.seen[-1].next_looks if found.seen else ()
    if asks:
        yield f"sources that would add evidence: {', '.join(asks[:4])}"


def since(status: IncidentStatus) -> str:
    """When it began, by which clock, and how long it has lasted."""
    began = f"began {moment(status.began)} UTC"
    if status.clock == GIVEN_BY_HAND:
        began += f" ({GIVEN_BY_HAND})"
    elif status.clock:
        began += f" (clock: {clean(status.clock, 60)}, skew unknown)"
    elif status.clock_note:
        began += f" (opening time: {clean(status.clock_note, _WIDE)})"
    else:
        began += " (opening time; the start of the trouble was not reported)"
    if status.lasted is None:
        return f"{began}, duration unknown"
    return f"{began}, {elapsed(status.lasted)} ago" if status.open else f"{began}, lasted {elapsed(status.lasted)}"


def diagnosis_line(one: DiagnosisSummary) -> str:
    """`07:14:10 critical: app.load.burst (94 %)`."""
    causes = ", ".join(f"{cause.id} ({percent(cause.probability)})" for cause in one.causes if cause.named)
    return f"{clock_of(one.at)} {one.level}: {causes or clean(one.message, _WIDE)}"


def refused_line(count: int) -> str:
    """`1 run was refused by a guard`."""
    return f"{count} {'run was' if count == 1 else 'runs were'} refused by a guard"


def run_line(run: AttemptedRun) -> str:
    """`ran app.batching.token-budget on shop: rolled-back (no improvement)`."""
    return f"ran {run.playbook} on {clean(run.target, 80)}: {ending(run)}"


def permitted(status: IncidentStatus) -> str:
    if status.unread:
        return "unknown (--approve overrides)"
    return ", ".join(status.permitted) or "nothing"


def value(one: object) -> str:
    """A configured value of a target."""
    return "not set" if one is None else clean(one if isinstance(one, str) else json.dumps(one), 60)


FORMS: dict[str, Callable[[IncidentStatus, Sequence[HandoverSection]], str]] = {
    "markdown": as_markdown,
    "text": as_text,
}
