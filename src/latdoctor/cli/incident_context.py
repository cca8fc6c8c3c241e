"""What a command journals of itself in the incident that it belongs to.

With no incident open nothing is written and no folder is made. What goes wrong here is told on stderr: a journal that
cannot be read or written never keeps a diagnosis from its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from latdoctor.cli.console import say
from latdoctor.cli.notifier import notify_now
from latdoctor.cli.request import Looked, why_unread
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.errors import LatdoctorError, OperationError, UsageError
from latdoctor.http.address import mask_credentials
from latdoctor.incident import events, recorder
from latdoctor.incident.alert_intake import not_observed
from latdoctor.incident.evidence_store import store_evidence
from latdoctor.incident.lookup import incident_option, open_incidents_for, select_incident
from latdoctor.incident.state import Incident
from latdoctor.journal import state_dir
from latdoctor.journal.store import Journal
from latdoctor.remediation.guards import Refusal
from latdoctor.remediation.planner import Plan
from latdoctor.sanitize import clean


@dataclass(frozen=True, slots=True)
class IncidentSelector:
    """What was said of the incident: its id, or that there is none; else it is the open one of what is looked at."""

    incident: str = ""
    none: bool = False


@dataclass(frozen=True, slots=True)
class JoinedIncident:
    """The incident of a command. `option` names it for the next command, unless it is the only open one."""

    incident: Incident
    journal: Journal
    place: Path
    option: str = ""


def check_selector(belongs: IncidentSelector) -> None:
    """Raises UsageError where an incident was named that is not there: told before a look, it costs nobody the look."""
    if belongs.incident and belongs.none:
        raise UsageError("--incident and --no-incident were both given", next_step="give one of them")
    if belongs.incident:
        select_incident(recorder.all_incidents(_read()), belongs.incident)


def join_incident(belongs: IncidentSelector, targets: Sequence[str]) -> JoinedIncident | None:
    """The incident, ready to be written to; None where there is none, or which one is not told. Says why on stderr.

    Raises LatdoctorError.
    """
    if belongs.none or not _is_any():
        return None
    known = recorder.all_incidents(_read())
    found = (select_incident(known, belongs.incident),) if belongs.incident else open_incidents_for(known, targets)
    if len(found) == 1:
        place = state_dir.folder()
        return JoinedIncident(
            found[0], Journal.opened(place / state_dir.JOURNAL), place, incident_option(known, found[0].id)
        )
    standing = [one.id for one in known[::-1] if one.open]  # the newest first
    if found:
        names = ", ".join(one.id for one in found[::-1][:4])
        say(f"{len(found)} incidents could be meant, and none was marked: say which with --incident ID ({names})")
    elif standing:
        say(
            f"not marked in {', '.join(standing[:4])}, which is of another target (--incident ID marks it all the same)"
        )
    return None


def record_diagnosis(belongs: IncidentSelector, look: Looked, diagnosis: Diagnosis) -> None:
    """Keeps what was seen and the answer, and journals it."""
    with _beside("the diagnosis"):
        found = join_incident(belongs, (diagnosis.target, *_addresses(look)))
        if found is None:
            return
        told = store_evidence(found.place, found.incident.id, look.bundle, diagnosis)
        for trouble in told.troubles:
            say(f"{found.incident.id}: {mask_credentials(trouble)}")
        found.journal.append(found.incident.id, events.DIAGNOSED, told.diagnosed)
        _tell_marked(found)


@contextmanager
def record_unreadable(belongs: IncidentSelector, look: Looked) -> Iterator[None]:
    """Where nothing that was named could be read, that is journaled, unless more was seen in the incident before."""
    try:
        yield
    except OperationError:
        with _beside("that nothing could be seen"):
            found = join_incident(belongs, (look.bundle.context.target, *_addresses(look)))
            if found and not found.incident.of(events.DIAGNOSED) and not found.incident.of(events.CONFIRMED):
                found.journal.append(found.incident.id, events.CONFIRMED, not_observed(why_unread(look)))
                _tell_marked(found)
        raise


class ChangeRecorder:
    """Looks that follow each other: one is journaled where the answer is another one than before."""

    def __init__(self, belongs: IncidentSelector, summary: Callable[[Diagnosis], str]) -> None:
        self._belongs = belongs
        self._summary = summary
        self._last = ""

    def __call__(self, look: Looked, diagnosis: Diagnosis) -> None:
        message = self._summary(diagnosis)
        if message != self._last:
            record_diagnosis(self._belongs, look, diagnosis)
        self._last = message


def record_plans(belongs: IncidentSelector, plans: Sequence[Plan], targets: Sequence[str]) -> None:
    with _beside("the plan"):
        found = join_incident(belongs, (*targets, *_changed_at(plans)))
        if found is None:
            return
        for plan in plans:
            found.journal.append(found.incident.id, events.PLANNED, recorder.plan_record(plan))
        _tell_marked(found)


def join_for_apply(belongs: IncidentSelector, plans: Sequence[Plan], targets: Sequence[str]) -> RunMembership:
    """Raises LatdoctorError: what changes a server is not done where the journal cannot be read."""
    return RunMembership(join_incident(belongs, (*targets, *_changed_at(plans))))


@dataclass(frozen=True, slots=True)
class RunMembership:
    """A run's place in its incident, if it has one."""

    found: JoinedIncident | None

    def begun(self, run: str) -> None:
        """Before anything of the run is journaled. Raises JournalError."""
        if self.found:
            self.found.journal.append(self.found.incident.id, events.RUN_JOINED, events.RunJoined(run))

    def refusal(self, plan: Plan) -> Refusal | None:
        """What the SOP says as things stand now."""
        if self.found is None:
            return None
        known = recorder.all_incidents(self.found.journal)
        incident = next(one for one in known if one.id == self.found.incident.id)
        return recorder.sop_refusal(self.found.journal, self.found.place, incident, plan)


def _is_any() -> bool:
    """Whether there is a journal; a user without a home, who named no folder either, has none."""
    try:
        return (state_dir.folder() / state_dir.JOURNAL).exists()
    except UsageError:
        return False


def _read() -> Journal:
    return Journal.reading(state_dir.folder() / state_dir.JOURNAL)


def _tell_marked(found: JoinedIncident) -> None:
    say(f"marked in {found.incident.id}. Next: latdoctor sop status{found.option}")
    notify_now()


def _addresses(look: Looked) -> tuple[str, ...]:
    places = (*(one.source for one in look.bundle.artifacts), *(one.place for one in look.asked))
    return tuple(dict.fromkeys(place for place in places if "://" in place))


def _changed_at(plans: Sequence[Plan]) -> tuple[str, ...]:
    return tuple(place for plan in plans for place in (plan.target.name, plan.target.admin) if place)


@contextmanager
def _beside(what: str) -> Iterator[None]:
    """What is done here is beside the answer, and must not disturb it."""
    try:
        yield
    except (LatdoctorError, OSError) as error:
        say(mask_credentials(clean(f"{what} was not marked in an incident: {error}", 600)))
