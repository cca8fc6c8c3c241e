"""Journal entries that commands add to an incident, and the SOP guard for playbooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import LatdoctorError, OperationError, UsageError
from latdoctor.evidence.redaction.documents import field_without_secrets
from latdoctor.evidence.redaction.redactor import without_secrets
from latdoctor.incident import events
from latdoctor.incident.events import IncidentOutcome
from latdoctor.incident.next_step import next_step
from latdoctor.incident.sop.clock import permitted, stage_states
from latdoctor.incident.sop.loader import sop_of_incident
from latdoctor.incident.sop.model import RESTART, Sop, needed
from latdoctor.incident.state import Incident, incidents_in
from latdoctor.journal.entry import JournalEntry
from latdoctor.journal.store import Journal
from latdoctor.remediation.planner import Plan
from latdoctor.remediation.refusal import Refusal
from latdoctor.remediation.run_result import Reason
from latdoctor.sanitize import clean

_LONGER = 4  # times what is kept of a text: what is cut off may tell what the rest is


def without_credentials(text: str, limit: int) -> str:
    """`text`, an address for one, in at most `limit` characters: without logins, tokens, passwords and keys."""
    # Before it is cut and put on one line, and after: characters that are not seen may have been in between.
    shown = without_secrets(text[: limit * _LONGER])
    return clean(without_secrets(clean(shown, limit)), limit)


def field_without_credentials(name: str, value: str, limit: int) -> str:
    """The `value` of a label or annotation; hidden if its `name` marks a credential or a prompt."""
    shown = field_without_secrets(name, value[: limit * _LONGER])
    return clean(field_without_secrets(name, clean(shown, limit)), limit)


LONGEST = 10_000  # characters of a remark


def add_note(journal: Journal, incident: Incident, text: str, by: str) -> JournalEntry:
    """Raises UsageError for an empty remark or one that is too long, and JournalError."""
    if not text.strip():
        raise UsageError("the note is empty", next_step="latdoctor sop note 'what you observed or did'")
    return journal.append(incident.id, events.NOTED, events.NoteAdded(_within(text), clean(by, 80)))


def mark_stage(journal: Journal, incident: Incident, sop: Sop, stage: str, text: str, by: str) -> JournalEntry:
    """Raises UsageError for a stage that the SOP does not have, and JournalError."""
    if sop.stage(stage) is None:
        names = [one.id for one in sop.stages]
        similar = get_close_matches(stage, names, n=1)
        raise UsageError(
            f"the SOP {sop.id} has no stage {clean(stage, 80)!r}",
            next_step=f"did you mean {similar[0]}?" if similar else f"it has: {', '.join(names)}",
        )
    return journal.append(incident.id, events.MARKED, events.StageMarked(stage, clean(by, 80), _within(text)))


def close_incident(journal: Journal, incident: Incident, outcome: IncidentOutcome, text: str, by: str) -> JournalEntry:
    """Close an incident. Raises UsageError where it is closed already, and JournalError."""
    if incident.closed is not None:
        raise UsageError(f"{incident.id} is closed already: {clean(incident.closed.outcome, 40)}")
    return journal.append(incident.id, events.CLOSED, events.IncidentClosed(outcome, _within(text), clean(by, 80)))


def _within(text: str) -> str:
    if len(text) > LONGEST:
        raise UsageError(
            f"a note of {len(text)} characters is longer than {LONGEST}",
            next_step="save it as a file, and note its name",
        )
    return without_credentials(text.strip(), LONGEST)


def all_incidents(journal: Journal) -> tuple[Incident, ...]:
    """All incidents, oldest first. Raises JournalError, and OperationError for entries of another version."""
    with unreadable_as_error(journal):
        return incidents_in(journal.entries())


@contextmanager
def unreadable_as_error(journal: Journal) -> Iterator[None]:
    """An entry that another version wrote otherwise is an OperationError with a next step."""
    try:
        yield
    except UNDECODABLE as error:
        raise OperationError(
            f"an entry is not as this version writes it: {clean(str(error), 200)}",
            where=str(journal.path),
            next_step="use the latdoctor that wrote it, or a later one",
        ) from error


def plan_record(plan: Plan) -> events.PlanRecord:
    return events.PlanRecord(
        playbook=plan.playbook,
        title=plan.title,
        digest=plan.digest,
        target=plan.target.name,
        risk=plan.risk,
        cause=plan.diagnosis.cause if plan.diagnosis else "",
    )


def sop_refusal(journal: Journal, place: Path, incident: Incident, plan: Plan) -> Refusal | None:
    """Refusal of `plan` by the incident's SOP; None where permitted. An unreadable SOP refuses too."""
    if not incident.opened.sop:
        return None
    try:
        sop = sop_of_incident(place, incident)
    except LatdoctorError as error:
        return Refusal(
            Reason.NOT_PERMITTED_BY_SOP,
            f"the permitted actions are unknown: {error.what}",
            "--approve overrides this guard",
        )
    with unreadable_as_error(journal):
        states = stage_states(sop, incident, journal.clock())
    lacking = [action for action in needed(plan.risk, plan.disruption) if not permitted(sop, states, action)]
    if not lacking:
        return None
    reason = f"{incident.id}: {plan.playbook} ({_what(lacking, plan)}) is {_when(sop, lacking)}"
    return Refusal(Reason.NOT_PERMITTED_BY_SOP, reason, f"{next_step(incident, sop, states).command}, or --approve")


def _what(lacking: Sequence[str], plan: Plan) -> str:
    parts = [f"{plan.risk} risk"] if set(lacking) - {RESTART} else []
    return " and ".join([*parts, *(["it restarts"] if RESTART in lacking else [])])


def _when(sop: Sop, lacking: Sequence[str]) -> str:
    """From which stage on it will be."""
    stages = [sop.permitting(action) for action in lacking]
    known_stages = [stage for stage in stages if stage is not None]
    if len(known_stages) < len(stages):
        return f"never permitted by the SOP {sop.id}"
    last = max(known_stages, key=sop.stages.index)
    return f"permitted by the SOP {sop.id} from {last.id!r} on ({last.title}), which is not met"
