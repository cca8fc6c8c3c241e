"""Next command for an incident, as permitted by its SOP. A function of the journal alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from msgspec import Struct

from latdoctor.incident import events
from latdoctor.incident.elapsed import clock_of
from latdoctor.incident.events import Confirmation
from latdoctor.incident.sop.clock import StageState, clock_stopped_by, permitted
from latdoctor.incident.sop.model import REMEDIES, Sop, SopStage
from latdoctor.incident.state import Incident, decode_body
from latdoctor.remediation import run_history
from latdoctor.remediation.run_history import RunState
from latdoctor.remediation.run_result import Outcome
from latdoctor.sanitize import clean

_OF_AN_INCIDENT = ("latdoctor sop ", "latdoctor diagnose", "latdoctor remediate")  # commands with --incident
_FAILED = (Outcome.ROLLED_BACK, Outcome.INCOMPLETE)


class NextStep(Struct, frozen=True):
    """A command, and why it is next."""

    command: str
    why: str


def next_step(
    incident: Incident, sop: Sop | None, states: Sequence[StageState], others: Sequence[RunState] = ()
) -> NextStep:
    """Next step of an incident with the stages `states`; without an SOP a diagnosis, which is always permitted.

    `others` are other runs on its target (`other_runs`). An unfinished run comes first, also in a closed incident.
    """
    unfinished = [*_unfinished(run_history.runs(incident.entries), ""), *_unfinished(others, " of another incident")]
    if unfinished:
        return NextStep("latdoctor recover", f"{unfinished[0]} has not ended; if it is still active, wait for it")
    if incident.closed:
        return NextStep(f"latdoctor timeline --incident {incident.id}", "the incident is closed: write the post-mortem")
    stopped = clock_stopped_by(incident)
    if stopped is not None and not _changed_later(incident, stopped.seq):
        return NextStep(f"latdoctor sop close --outcome {Confirmation.FALSE_ALARM}", "it is a false alarm")
    if sop is None:
        why = "the SOP cannot be read; a diagnosis is always permitted"
        return NextStep(f"latdoctor diagnose{target_options(incident)}", why)
    undone = next((state for state in states if not state.done), None)
    stage = sop.stage(undone.id) if undone else None
    if stage is None:
        return NextStep("latdoctor sop close", "every stage is met")
    return _for_stage(stage, incident, sop, states)


def _unfinished(runs: Sequence[RunState], suffix: str) -> list[str]:
    return [f"a playbook run{suffix}" for run in runs if run.open]


def with_incident(step: NextStep, option: str) -> NextStep:
    """`step` with the `option` that names its incident, where its command takes one."""
    if not step.command.startswith(_OF_AN_INCIDENT):
        return step
    return NextStep(f"{step.command}{option}", step.why)


def target_options(incident: Incident) -> str:
    """Options that point `diagnose` at the incident's target. Without a target, or with a bare host, those of the last
    diagnosis; else a placeholder: `diagnose` without options would search this machine for unrelated servers.
    """
    hosts = incident.opened.hosts
    targets = [one for one in incident.opened.targets if one not in hosts]
    named = next((one for one in targets if ":" not in one), "")
    if named:
        return f" --target {shlex.quote(clean(named, 200))}"
    servers = targets[:1] or _last_servers(incident)
    return "".join(f" --server {shlex.quote(clean(one, 200))}" for one in servers) or " --server URL"


def _last_servers(incident: Incident) -> tuple[str, ...]:
    """Metrics pages read by the last diagnosis that recorded them."""
    diagnoses = (
        decode_body(entry, events.DiagnosisRecord).servers for entry in reversed(incident.of(events.DIAGNOSED))
    )
    return next((servers for servers in diagnoses if servers), ())


def _for_stage(stage: SopStage, incident: Incident, sop: Sop, states: Sequence[StageState]) -> NextStep:
    if stage.step == "close":
        return NextStep("latdoctor sop close", _reason(stage))
    if stage.step == "diagnose":
        return NextStep(f"latdoctor diagnose{target_options(incident)}", _reason(stage))
    return next(_remedies(stage, incident, sop, states))


def _remedies(stage: SopStage, incident: Incident, sop: Sop, states: Sequence[StageState]) -> Iterator[NextStep]:
    diagnose = f"latdoctor diagnose{target_options(incident)}"
    found = [decode_body(entry, events.DiagnosisRecord) for entry in incident.of(events.DIAGNOSED)]
    named = [cause for cause in found[-1].causes if cause.named] if found else []
    if not named:
        yield NextStep(diagnose, f"{_reason(stage)}; {_earlier_causes(incident) or 'no cause is named yet'}")
        return
    tried = {run.plan.playbook for run in run_history.runs(incident.entries) if run.outcome in _FAILED}
    offered = _playbooks(named)
    left = [name for name in offered if name not in tried]
    if not left:
        what = "every playbook was rolled back" if offered else "there is no playbook for it"
        yield NextStep(f"latdoctor explain {named[0].id}", f"{_reason(stage)}; {what}: page its owner")
        return
    plans = [decode_body(entry, events.PlanRecord) for entry in incident.of(events.PLANNED)]
    plan = next((one for one in reversed(plans) if one.playbook == left[0]), None)
    command = f"latdoctor remediate --playbook {left[0]}{target_options(incident)}"
    if plan is None:
        yield NextStep(command, f"{_reason(stage)}; this is a dry run")
    elif not permitted(sop, states, REMEDIES.get(plan.risk, "")):
        yield NextStep(diagnose, f"{_reason(stage)}; {plan.playbook} is of {plan.risk} risk, and not permitted yet")
    else:
        yield NextStep(f"{command} --apply", _reason(stage))


def _earlier_causes(incident: Incident) -> str:
    """Causes named by an earlier diagnosis where the last one names none; empty if there are none."""
    for entry in reversed(incident.of(events.DIAGNOSED)):
        causes = [clean(cause.title, 80) for cause in decode_body(entry, events.DiagnosisRecord).causes if cause.named]
        if causes:
            return f"the last diagnosis names no cause; that of {clock_of(entry.at)} UTC named {', '.join(causes)}"
    return ""


def _reason(stage: SopStage) -> str:
    return f"the next stage is: {stage.title}"


def _playbooks(named: Sequence[events.CauseRecord]) -> list[str]:
    """Playbooks of the named causes, first those that address all of them."""
    every = list(dict.fromkeys(name for cause in named for name in cause.playbooks))
    return sorted(every, key=lambda name: not all(name in cause.playbooks for cause in named))


def _changed_later(incident: Incident, seq: int) -> bool:
    """Whether a run was opened after the false alarm."""
    return any(entry.kind == "run.opened" and entry.seq > seq for entry in incident.entries)
