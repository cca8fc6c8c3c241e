"""What to do next, as a command that the SOP permits. A function of the journal alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from msgspec import Struct

from latdoctor.incident import events
from latdoctor.incident.elapsed import clock_of
from latdoctor.incident.sop.clock import StageState, clock_stopped_by, permitted
from latdoctor.incident.sop.model import REMEDIES, Sop, SopStage
from latdoctor.incident.state import Incident, decode_body
from latdoctor.remediation import run_history
from latdoctor.remediation.run_history import RunState
from latdoctor.remediation.run_result import Outcome
from latdoctor.sanitize import clean

_OF_AN_INCIDENT = ("latdoctor sop ", "latdoctor diagnose", "latdoctor remediate")  # what takes --incident
_FAILED = (Outcome.ROLLED_BACK, Outcome.INCOMPLETE)


class NextStep(Struct, frozen=True):
    """A command, and why it is next."""

    command: str
    why: str


def next_step(
    incident: Incident, sop: Sop | None, states: Sequence[StageState], others: Sequence[RunState] = ()
) -> NextStep:
    """The next step of an incident whose stages stand as `states` says; without an SOP to look, which any permits.

    `others` are the runs on its target that are not its own (`inherited`). What a run left unfinished comes first, also
    where the incident is closed.
    """
    unfinished = [*_unfinished(run_history.runs(incident.entries), ""), *_unfinished(others, ", not of this incident,")]
    if unfinished:
        return NextStep("latdoctor recover", f"{unfinished[0]} has not come to its end; if it is at work, wait for it")
    if incident.closed:
        return NextStep(f"latdoctor timeline --incident {incident.id}", "it is closed: write down what was learned")
    stood = clock_stopped_by(incident)
    if stood is not None and not _after_all(incident, stood.seq):
        return NextStep(f"latdoctor sop close --outcome {events.FALSE_ALARM}", "it is a false alarm")
    if sop is None:
        why = "what its SOP asks for next cannot be told; looking is never refused"
        return NextStep(f"latdoctor diagnose{target_options(incident)}", why)
    undone = next((state for state in states if not state.done), None)
    stage = sop.stage(undone.id) if undone else None
    if stage is None:
        return NextStep("latdoctor sop close", "every stage is met")
    return _for_stage(stage, incident, sop, states)


def _unfinished(runs: Sequence[RunState], whose: str) -> list[str]:
    return [f"run {run.id}{whose}" for run in runs if run.open]


def with_incident(step: NextStep, option: str) -> NextStep:
    """The step with the `option` that names its incident, where its command takes that."""
    if not step.command.startswith(_OF_AN_INCIDENT):
        return step
    return NextStep(f"{step.command}{option}", step.why)


def target_options(incident: Incident) -> str:
    """The options by which the incident's target is looked at. Where it names none, or only a host, as the last look
    did; else a human has to say it: a look without any searches this machine for servers, and would find one that the
    incident is not about.
    """
    hosts = incident.opened.hosts
    targets = [one for one in incident.opened.targets if one not in hosts]
    named = next((one for one in targets if ":" not in one), "")
    if named:
        return f" --target {shlex.quote(clean(named, 200))}"
    looked = targets[:1] or _looked_at(incident)
    return "".join(f" --server {shlex.quote(clean(one, 200))}" for one in looked) or " --server URL"


def _looked_at(incident: Incident) -> tuple[str, ...]:
    """The pages that the last look read, of those of which that is known."""
    looks = (decode_body(entry, events.DiagnosisRecord).servers for entry in reversed(incident.of(events.DIAGNOSED)))
    return next((servers for servers in looks if servers), ())


def _for_stage(stage: SopStage, incident: Incident, sop: Sop, states: Sequence[StageState]) -> NextStep:
    if stage.step == "close":
        return NextStep("latdoctor sop close", _toward(stage))
    if stage.step == "diagnose":
        return NextStep(f"latdoctor diagnose{target_options(incident)}", _toward(stage))
    return next(_remedies(stage, incident, sop, states))


def _remedies(stage: SopStage, incident: Incident, sop: Sop, states: Sequence[StageState]) -> Iterator[NextStep]:
    look = f"latdoctor diagnose{target_options(incident)}"
    found = [decode_body(entry, events.DiagnosisRecord) for entry in incident.of(events.DIAGNOSED)]
    named = [cause for cause in found[-1].causes if cause.named] if found else []
    if not named:
        yield NextStep(look, f"{_toward(stage)}; {_named_before(incident) or 'no cause is named yet'}")
        return
    tried = {run.plan.playbook for run in run_history.runs(incident.entries) if run.outcome in _FAILED}
    offered = _offered(named)
    left = [name for name in offered if name not in tried]
    if not left:
        what = "every playbook was taken back" if offered else "there is no playbook for it"
        yield NextStep(f"latdoctor explain {named[0].id}", f"{_toward(stage)}; {what}: wake whoever owns it")
        return
    plans = [decode_body(entry, events.PlanRecord) for entry in incident.of(events.PLANNED)]
    plan = next((one for one in reversed(plans) if one.playbook == left[0]), None)
    command = f"latdoctor remediate --playbook {left[0]}{target_options(incident)}"
    if plan is None:
        yield NextStep(command, f"{_toward(stage)}; it shows what it would change")
    elif not permitted(sop, states, REMEDIES.get(plan.risk, "")):
        yield NextStep(look, f"{_toward(stage)}; {plan.playbook} is of {plan.risk} risk, and not permitted yet")
    else:
        yield NextStep(f"{command} --apply", _toward(stage))


def _named_before(incident: Incident) -> str:
    """What an earlier look named, as the last one names nothing; empty where none did."""
    for entry in reversed(incident.of(events.DIAGNOSED)):
        causes = [cause.id for cause in decode_body(entry, events.DiagnosisRecord).causes if cause.named]
        if causes:
            return f"the last look names no cause; that of {clock_of(entry.at)} UTC named {', '.join(causes)}"
    return ""


def _toward(stage: SopStage) -> str:
    return f"the next stage is: {stage.title}"


def _offered(named: Sequence[events.CauseRecord]) -> list[str]:
    """The playbooks of the named causes: first what mends all of them together."""
    every = list(dict.fromkeys(name for cause in named for name in cause.playbooks))
    return sorted(every, key=lambda name: not all(name in cause.playbooks for cause in named))


def _after_all(incident: Incident, seq: int) -> bool:
    """Whether somebody went on changing things although it was called a false alarm."""
    return any(entry.kind == "run.opened" and entry.seq > seq for entry in incident.entries)
