"""Journaling of a command's results in the incident that it belongs to.

Without an open incident nothing is written and no folder is created. Errors are reported on stderr: an unreadable or
unwritable journal never prevents a diagnosis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from latdoctor.cli.console import notice
from latdoctor.cli.resolve_request import CollectedEvidence, unread_reason
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.errors import LatdoctorError, OperationError, UsageError
from latdoctor.http.safe_address import mask_credentials
from latdoctor.journal import state_dir
from latdoctor.sanitize import clean

if TYPE_CHECKING:
    from latdoctor.incident.state import Incident
    from latdoctor.journal.store import Journal
    from latdoctor.remediation.planner import Plan
    from latdoctor.remediation.refusal import Refusal


@dataclass(frozen=True, slots=True)
class IncidentSelector:
    """Selection by the user: an id, or none; by default the open incident of the target."""

    incident: str = ""
    none: bool = False


@dataclass(frozen=True, slots=True)
class JoinedIncident:
    """The incident of a command. `option` names it for the next command, unless it is the only open one."""

    incident: Incident
    journal: Journal
    place: Path
    option: str = ""


def check_selector(selector: IncidentSelector) -> None:
    """Raises UsageError for an unknown incident, before any evidence is collected."""
    if selector.incident and selector.none:
        raise UsageError("--incident and --no-incident are exclusive", next_step="give one of them")
    if selector.incident:
        from latdoctor.incident import recorder
        from latdoctor.incident.lookup import select_incident

        select_incident(recorder.all_incidents(_read()), selector.incident)


def join_incident(selector: IncidentSelector, targets: Sequence[str]) -> JoinedIncident | None:
    """The incident, ready for writing; None where there is none or it is ambiguous, with the reason on stderr.

    Raises LatdoctorError.
    """
    if selector.none or not _is_any():
        return None
    from latdoctor.incident import recorder
    from latdoctor.incident.lookup import incident_option, open_incidents_for, select_incident
    from latdoctor.journal.store import Journal

    known = recorder.all_incidents(_read())
    found = (select_incident(known, selector.incident),) if selector.incident else open_incidents_for(known, targets)
    if len(found) == 1:
        place = state_dir.folder()
        return JoinedIncident(
            found[0], Journal.opened(place / state_dir.JOURNAL), place, incident_option(known, found[0].id)
        )
    open_ids = [one.id for one in known[::-1] if one.open]  # the newest first
    if found:
        names = ", ".join(one.id for one in found[::-1][:4])
        notice(f"{len(found)} incidents fit, and none was updated: choose one with --incident ID ({names})")
    elif open_ids:
        notice(f"not recorded in {', '.join(open_ids[:4])}, which has another target (--incident ID overrides this)")
    return None


def record_diagnosis(selector: IncidentSelector, source_read: CollectedEvidence, diagnosis: Diagnosis) -> None:
    """Store the evidence and the answer, and journal them."""
    with _beside("the diagnosis"):
        found = join_incident(selector, (diagnosis.target, *_addresses(source_read)))
        if found is None:
            return
        from latdoctor.incident import events
        from latdoctor.incident.evidence_store import store_evidence

        stored = store_evidence(found.place, found.incident.id, source_read.bundle, diagnosis)
        for trouble in stored.troubles:
            notice(f"{found.incident.id}: {mask_credentials(trouble)}")
        found.journal.append(found.incident.id, events.DIAGNOSED, stored.diagnosed)
        _log_recorded(found)


@contextmanager
def record_unreadable(selector: IncidentSelector, source_read: CollectedEvidence) -> Iterator[None]:
    """Journal that no named source could be read, unless the incident has an earlier observation."""
    try:
        yield
    except OperationError:
        with _beside("that no source could be read"):
            found = join_incident(selector, (source_read.bundle.context.target, *_addresses(source_read)))
            if found:
                _journal_unread(found, source_read)
        raise


def _journal_unread(found: JoinedIncident, source_read: CollectedEvidence) -> None:
    from latdoctor.incident import events
    from latdoctor.incident.alert_intake import not_observed

    if not found.incident.of(events.DIAGNOSED) and not found.incident.of(events.CONFIRMED):
        found.journal.append(found.incident.id, events.CONFIRMED, not_observed(unread_reason(source_read)))
        _log_recorded(found)


class ChangeRecorder:
    """Recorder of consecutive diagnoses: one is journaled when its answer changes."""

    def __init__(self, selector: IncidentSelector, summary: Callable[[Diagnosis], str]) -> None:
        self._selector = selector
        self._summary = summary
        self._last = ""

    def __call__(self, source_read: CollectedEvidence, diagnosis: Diagnosis) -> None:
        message = self._summary(diagnosis)
        if message != self._last:
            record_diagnosis(self._selector, source_read, diagnosis)
        self._last = message


def record_plans(selector: IncidentSelector, plans: Sequence[Plan], targets: Sequence[str]) -> None:
    with _beside("the plan"):
        found = join_incident(selector, (*targets, *_changed_at(plans)))
        if found is None:
            return
        from latdoctor.incident import events, recorder

        for plan in plans:
            found.journal.append(found.incident.id, events.PLANNED, recorder.plan_record(plan))
        _log_recorded(found)


def join_for_apply(selector: IncidentSelector, plans: Sequence[Plan], targets: Sequence[str]) -> RunMembership:
    """Raises LatdoctorError: no server is changed while the journal is unreadable."""
    return RunMembership(join_incident(selector, (*targets, *_changed_at(plans))))


@dataclass(frozen=True, slots=True)
class RunMembership:
    """A run's place in its incident, if it has one."""

    found: JoinedIncident | None

    def begun(self, run: str) -> None:
        """Before anything of the run is journaled. Raises JournalError."""
        if self.found:
            from latdoctor.incident import events

            self.found.journal.append(self.found.incident.id, events.RUN_JOINED, events.RunJoined(run))

    def refusal(self, plan: Plan) -> Refusal | None:
        """Refusal by the SOP at this moment."""
        if self.found is None:
            return None
        from latdoctor.incident import recorder

        known = recorder.all_incidents(self.found.journal)
        incident = next(one for one in known if one.id == self.found.incident.id)
        return recorder.sop_refusal(self.found.journal, self.found.place, incident, plan)


def _is_any() -> bool:
    """Whether there is a journal; without a home and LATDOCTOR_STATE there is none."""
    try:
        return (state_dir.folder() / state_dir.JOURNAL).exists()
    except UsageError:
        return False


def _read() -> Journal:
    from latdoctor.journal.store import Journal

    return Journal.reading(state_dir.folder() / state_dir.JOURNAL)


def _log_recorded(found: JoinedIncident) -> None:
    from latdoctor.cli.notifier import notify_now

    notice(f"recorded in {found.incident.id}. Next: latdoctor sop status{found.option}")
    notify_now()


def _addresses(source_read: CollectedEvidence) -> tuple[str, ...]:
    places = (*(one.source for one in source_read.bundle.artifacts), *(one.place for one in source_read.requested))
    return tuple(dict.fromkeys(place for place in places if "://" in place))


def _changed_at(plans: Sequence[Plan]) -> tuple[str, ...]:
    return tuple(place for plan in plans for place in (plan.target.name, plan.target.admin) if place)


@contextmanager
def _beside(what: str) -> Iterator[None]:
    """Report errors on stderr, without affecting the answer."""
    try:
        yield
    except (LatdoctorError, OSError) as error:
        notice(mask_credentials(clean(f"{what} was not recorded in an incident: {error}", 600)))
