"""A remediation plan on one screen: what it changes, how it is verified, its risk, its undo and the next command."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from latdoctor.conditions.ast import signals_of
from latdoctor.diagnosis.rule_loader import shipped as shipped_rules
from latdoctor.remediation.change import Change, Field, Undo, Value
from latdoctor.remediation.guards import MAX_EVIDENCE_AGE, MIN_PROBABILITY
from latdoctor.remediation.planner import DiagnosisRef, Plan
from latdoctor.remediation.playbook import Playbook, Trigger
from latdoctor.remediation.playbook_library import shipped_playbook
from latdoctor.remediation.proof import PENDING
from latdoctor.remediation.standby import ForecastRef, clock
from latdoctor.remediation.target import Pages, Target
from latdoctor.report.fit_to_screen import TIE, Line, Rank, fitted, sentence_lines
from latdoctor.report.plain_conditions import plain_condition, plain_text
from latdoctor.report.playbook import facts
from latdoctor.report.shown_fields import shown_fields
from latdoctor.report.text_utils import WIDTH, wrapped
from latdoctor.sanitize import clean
from latdoctor.units import format_value, percent

_INDENT = 9  # columns of a label and the text after it
_MAX_FIELD_LINES = 8  # of all steps of a plan
_MAX_VALUE = 24  # characters
_MAX_TARGETS = 6
_MAX_RESOURCES = 3
UNDO_TEXTS = {
    Undo.RESTORE: "old values restored within 30 s, at once if not verified",
    Undo.NONE_NEEDED: "nothing is left behind",
    Undo.IRREVERSIBLE: "NONE: a step cannot be undone",
}
_NO_PAGES = Pages(())
SAME_COMMAND = "the same command with --apply"


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with its playbook, the metrics pages that verify it, and the unfinished run on its target (or empty)."""

    plan: Plan
    playbook: Playbook
    pages: Pages = _NO_PAGES
    unfinished: str = ""


def plan_answer(planned: Sequence[Planned], *, confirming: bool = False) -> tuple[Line, ...]:
    """At most 24 lines. `confirming`: the question whether to apply it follows, so no next command is printed."""
    first = planned[0]
    parts = [
        [*_head(planned), *_warnings(planned)],
        list(_changes(planned)),
        [*(_resources(first) if len(planned) == 1 else ()), *_terms(first)],
        list(_next(planned, confirming=confirming)),
    ]
    return fitted(parts)


def labelled(label: str, text: str, rank: Rank = Rank.KEEP, most: int = 2, style: str = "") -> Iterator[Line]:
    """`text` behind a label, its further lines indented."""
    for number, line in enumerate(sentence_lines(text, f" {label:<7} ", " " * _INDENT, most)):
        yield Line(line, style, rank, continued=number > 0)


def whole(label: str, command: str, style: str = "bold") -> Line:
    """A command on one line, however long, so that it can be pasted."""
    return Line(f" {label:<7} {command}", style)


def field_lines(changes: Sequence[Change], *, back: bool = False) -> list[str]:
    """`group: name old → new`, as many on a line as fit; `back`: new → old."""
    groups: dict[str, list[Field]] = {}
    for field in shown_fields(changes):
        groups.setdefault("" if "/" in field.name else field.name.rpartition(".")[0], []).append(field)
    texts: list[str] = []
    for group, fields in groups.items():
        shared = bool(group) and len(fields) > 1
        names = [one.name.rpartition(".")[2] if shared else one.name for one in fields]
        listed = ", ".join(_change(name, one, back=back) for name, one in zip(names, fields, strict=True))
        texts.append(f"{group}:{TIE}{listed}" if shared else listed)
    return [line.replace(TIE, " ") for line in wrapped("; ".join(texts), " " * 6, " " * 6)]


def stage_title(plan: Plan, number: int) -> str:
    """The title of a stage, counted from 0: of its playbook, or its id where that is not shipped."""
    name = plan.stages[number].playbook
    playbook = shipped_playbook(name)
    return plan.title if len(plan.stages) == 1 else playbook.title if playbook else name


def lines_for_each(steps: Sequence[Sequence[Change]], total: int) -> int:
    """How many lines the fields of each step may take, for at most `total` together."""
    needed = [len(field_lines(changes)) for changes in steps]
    return max(needed, default=1) if sum(needed) <= total else max(1, total // len(steps))


def target_text(target: Target) -> str:
    """The name of a target, with its address where that is another."""
    name = clean(target.name, 60)
    return name if not target.admin or target.admin == target.name else f"{name}, {clean(target.admin, 80)}"


def diagnose_command(target: Target) -> str:
    """The command that diagnoses `target` again."""
    if target.pid:
        return f"latdoctor diagnose --pid {target.pid}"
    if target.workload is not UNSET:
        context = f" --kube-context {clean(target.workload.context)}" if target.workload.context else ""
        return f"latdoctor diagnose --kube {clean(str(target.workload))}{context}"
    named = target.name != target.admin
    return f"latdoctor diagnose {f'--target {clean(target.name)}' if named else f'--server {clean(target.admin)}'}"


def _change(name: str, field: Field, *, back: bool) -> str:
    old, new = _value(field.before), _value(field.after)
    return f"{name} {f'{new} → {old}' if back else f'{old} → {new}'}".replace(" ", TIE)


def _value(value: Value) -> str:
    return "not set" if value is None else clean(value if isinstance(value, str) else json.dumps(value), _MAX_VALUE)


def _head(planned: Sequence[Planned]) -> Iterator[Line]:
    first = planned[0]
    if any(one.unfinished for one in planned):
        state, text = "BLOCKED", "an earlier run on this target is not finished; nothing was changed"
    elif not any(one.plan.changes for one in planned):
        state, text = "NOTHING TO DO", "all values are already as the playbook would set them"
    else:
        where = f" on {len(planned)} targets" if len(planned) > 1 else ""
        state, text = "PLAN", f"nothing was changed yet: {first.plan.title}{where}"
    for number, line in enumerate(sentence_lines(f"{state}  {text}", "", "  ")):
        yield Line(line, "bold" if state == "PLAN" else "bold yellow", continued=number > 0)
    kind = f" ({first.plan.target.kind})"
    where = f"{_place(first.plan)}{kind}" if len(planned) == 1 else "several targets"
    for line in wrapped(f"{first.plan.playbook} on {where}", "", "  ", hyphens=False)[:2]:
        yield Line(line, "dim")


def _place(plan: Plan) -> str:
    """The target, with the URL that is written to in place of its address where there is only one."""
    resources, shown = _resource_names(plan), target_text(plan.target)
    if not _in_head(resources, plan.target):
        return shown
    return f"{shown.removesuffix(clean(plan.target.admin, 80))}{resources[0]}"


def _warnings(planned: Sequence[Planned]) -> Iterator[Line]:
    """What will be refused, or must be known before it is applied."""
    found: dict[str, None] = {}
    for one in planned:
        plan, because = one.plan, one.plan.diagnosis
        if one.unfinished:
            found[f"run {one.unfinished} on this target is not finished: refused until it is"] = None
        if because:
            found |= dict.fromkeys(_doubts(because, plan))
        if one.pages.guessed:
            found["no server was named: the metrics pages found on this machine were used"] = None
        if not one.pages.watched:
            found["no metrics page to verify it with: add --server URL"] = None
        found |= dict.fromkeys(f"caution: {change.caution}" for change in plan.changes if change.caution)
    for text in found:
        for number, line in enumerate(sentence_lines(text, " ! ", "   ")):
            yield Line(line, "yellow", continued=number > 0)


def _doubts(because: DiagnosisRef, plan: Plan) -> Iterator[str]:
    age = max(0.0, plan.created_at - because.evidence_end)
    if plan.target.admin and not because.covers(plan.target.admin):
        yield f"{clean(plan.target.admin, 100)} was not part of the diagnosis; --admin names it all the same"
    if age > MAX_EVIDENCE_AGE:
        limit = format_value(MAX_EVIDENCE_AGE, "time")
        yield f"diagnosis too old ({format_value(age, 'time')}, limit {limit}): diagnose again, or it is refused"
    if because.probability < MIN_PROBABILITY:
        yield f"cause not certain enough ({percent(because.probability)}, limit {MIN_PROBABILITY:.0%}): it is refused"


def _changes(planned: Sequence[Planned]) -> Iterator[Line]:
    """Each step with its old and new values; empty where nothing would change."""
    if not any(one.plan.changes for one in planned):
        return
    if len(planned) > 1:
        for one in planned[:_MAX_TARGETS]:
            yield Line(f" {target_text(one.plan.target)}"[:WIDTH], "bold")
            yield from _fields(one.plan.changes, 2 if one.plan.changes else 1)
        if len(planned) > _MAX_TARGETS:
            yield Line(f" … and {len(planned) - _MAX_TARGETS} more targets: -v")
        return
    stages = planned[0].plan.stages
    most = lines_for_each([stage.changes for stage in stages], _MAX_FIELD_LINES)
    for number, stage in enumerate(stages, 1):
        if len(stages) > 1:
            yield Line(f" {number}  {stage_title(planned[0].plan, number - 1)}"[:WIDTH], "bold")
        yield from _fields(stage.changes, most)


def _fields(changes: Sequence[Change], most: int) -> Iterator[Line]:
    if not changes:
        yield Line("      no change: already as wanted", "dim")
        return
    lines = field_lines(changes)
    if len(lines) > most:
        lines = [*lines[: most - 1], f"{lines[most - 1][: WIDTH - 12]} … (all: -v)"] if most > 1 else lines[:1]
    yield from map(Line, lines)


def _resources(planned: Planned) -> Iterator[Line]:
    """What is written to, each URL or process once, where the first lines do not name it."""
    found = _resource_names(planned.plan)
    if _in_head(found, planned.plan.target):
        return
    for resource in found[:_MAX_RESOURCES]:
        yield whole("Changes", resource, "")
    if len(found) > _MAX_RESOURCES:
        yield Line(f"         and {len(found) - _MAX_RESOURCES} more: -v")


def _resource_names(plan: Plan) -> list[str]:
    return list(dict.fromkeys(clean(change.resource, 200) for change in plan.changes))


def _in_head(resources: Sequence[str], target: Target) -> bool:
    """Whether the one resource is an address of the target, printed in place of it."""
    return len(resources) == 1 and bool(target.admin) and resources[0].startswith(f"{clean(target.admin, 80)}/")


def _terms(planned: Planned) -> Iterator[Line]:
    """Why, what must hold, how it is verified, what it risks and how it is undone."""
    plan, playbook, pages = planned.plan, planned.playbook, planned.pages
    if not plan.changes:
        return
    if plan.diagnosis:
        age = format_value(max(0.0, plan.created_at - plan.diagnosis.evidence_end), "time")
        title = next((c.title for c in shipped_rules().causes if c.id == plan.diagnosis.cause), plan.diagnosis.cause)
        text = f"{title} ({percent(plan.diagnosis.probability)}), observed {age} ago"
        yield from labelled("Why", text, Rank.EVIDENCE)
    if plan.forecast is not UNSET:
        yield from labelled("Why", forecast_text(plan.forecast), Rank.EVIDENCE)
    yield from verification_lines(playbook)
    for url in pages.siblings:
        yield from labelled("Ignored", f"{clean(url, 60)}: not changed by this run", Rank.CHANGE, 1)
    if plan.effect:
        yield from labelled("Effect", plain_text(plan.effect), Rank.EVIDENCE)
    symptom = "; eases the symptom, the cause stays" if playbook.treats == "symptom" else ""
    yield from labelled("Risk", f"{facts(plan)}{symptom}")
    undo = "; ".join(dict.fromkeys(UNDO_TEXTS[change.undo] for change in plan.changes))
    yield from labelled("Undo", undo, style="bold red" if Undo.IRREVERSIBLE in {c.undo for c in plan.changes} else "")


def forecast_text(forecast: ForecastRef) -> str:
    """`at most 421/s expected at 20:40 UTC (.9 quantile, ETS), for 4 replicas; kept until 20:50 UTC`."""
    unit = forecast.unit or ""
    method = f", {clean(forecast.method, 20)}" if forecast.method else ""
    expected = f"at most {forecast.rate:.4g}{unit} expected at {clock(forecast.at)} (.9 quantile{method})"
    return f"{expected}, for {forecast.replicas} replicas; kept until {clock(forecast.released_after)}"


_OR_REPAIRED = " (or what was broken all the time is whole)"
# The same load is one of first requests where retries are meant to go.
_WITHOUT_RETRIES = "arrival.first_rate"
_RETRIES = "a server that does not count its retries shows the end of them as less load: the run is inconclusive then"


def verification_lines(playbook: Playbook) -> Iterator[Line]:
    """The preconditions of a run, how it is verified, and what aborts it."""
    verify = playbook.verify
    if playbook.preconditions:
        needs = "; ".join(map(plain_condition, playbook.preconditions))
        yield from labelled("Needs", f"{needs}; otherwise refused", Rank.CHANGE, 1)
    proof = [
        *(f"{plain_condition(one)}{_OR_REPAIRED if verify.repair else ''}" for one in verify.succeed),
        *map(plain_condition, verify.mechanism_conditions),
        *(f"{plain_text(name)} gone" for name in verify.cleared_findings),
    ]
    if verify.load is not None:
        proof.append(plain_condition(verify.load))
    pending = f"{PENDING / 60:g} min pending, or " if playbook.trigger is Trigger.INCIDENT else ""
    held = f"for {verify.hold:g} s in {verify.within:g} s; else {pending}undone"
    if playbook.trigger is Trigger.FORECAST:
        proof.insert(0, "all replicas ready before the time of the forecast")
    yield from labelled("Verify", f"{', '.join(proof)}; {held}", most=3)
    if verify.load is not None and _WITHOUT_RETRIES in signals_of(verify.load):
        yield from labelled("Note", _RETRIES, Rank.CHANGE, 2)
    for condition in verify.abort:
        yield from labelled("Abort", f"{plain_condition(condition)}: rolled back at once", Rank.CHANGE, 1)


def proof_time(playbook: Playbook) -> str:
    """How long a run waits for its proof, and what it does without one."""
    hold, within = playbook.verify.hold, playbook.verify.within
    if playbook.trigger is not Trigger.INCIDENT:
        return f"for {hold:g} s within {within:g} s; otherwise rolled back"
    more = f"up to {PENDING / 60:g} min more if that may be chance"
    return f"for {hold:g} s within {within:g} s, {more}; otherwise rolled back"


def _next(planned: Sequence[Planned], *, confirming: bool) -> Iterator[Line]:
    if not confirming:
        yield whole("Next", next_command(planned))
    yield Line(f" -v the plan in full · latdoctor playbooks show {planned[0].plan.playbook}"[:WIDTH], "dim", Rank.MORE)


def next_command(planned: Sequence[Planned]) -> str:
    """The next step; what would be refused is not advised."""
    if any(one.unfinished for one in planned):
        return "latdoctor recover"
    if not any(one.plan.changes for one in planned):
        return diagnose_command(planned[0].plan.target)
    if not all(one.plan.changes for one in planned):
        return f"{SAME_COMMAND} and --admin for the targets that would be changed"
    needed = [
        "--server URL or --target NAME" if any(one.pages.guessed for one in planned) else "",
        "--server URL" if not any(one.pages.watched for one in planned) else "",
    ]
    return " and ".join([SAME_COMMAND, *filter(None, needed)])
