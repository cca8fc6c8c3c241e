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
from latdoctor.cli.notifier import tell_now
from latdoctor.cli.request import Looked, why_unread
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.errors import LatdoctorError, OperationError, UsageError
from latdoctor.http.address import masked
from latdoctor.incident import events, recorder
from latdoctor.incident.alert_intake import unseen
from latdoctor.incident.evidence_store import kept
from latdoctor.incident.lookup import chosen, meant, option
from latdoctor.incident.state import Incident
from latdoctor.journal import state_dir
from latdoctor.journal.store import Journal
from latdoctor.remediation.guards import Refusal
from latdoctor.remediation.planner import Plan
from latdoctor.sanitize import clean


@dataclass(frozen=True, slots=True)
class Belongs:
    """What was said of the incident: its id, or that there is none; else it is the open one of what is looked at."""

    incident: str = ""
    none: bool = False


@dataclass(frozen=True, slots=True)
class Joined:
    """The incident that a command belongs to; `option` names it to the next one, where it is not the only open one."""

    incident: Incident
    journal: Journal
    place: Path
    option: str = ""


def must_be_known(belongs: Belongs) -> None:
    """Raises UsageError where an incident was named that is not there: told before a look, it costs nobody the look."""
    if belongs.incident and belongs.none:
        raise UsageError("--incident and --no-incident were both given", next_step="give one of them")
    if belongs.incident:
        chosen(recorder.known(_read()), belongs.incident)


def joined(belongs: Belongs, targets: Sequence[str]) -> Joined | None:
    """The incident, ready to be written to; None where there is none, or which one is not told. Says why on stderr.

    Raises LatdoctorError.
    """
    if belongs.none or not _is_any():
        return None
    known = recorder.known(_read())
    found = (chosen(known, belongs.incident),) if belongs.incident else meant(known, targets)
    if len(found) == 1:
        place = state_dir.folder()
        return Joined(found[0], Journal.opened(place / state_dir.JOURNAL), place, option(known, found[0].id))
    standing = [one.id for one in known[::-1] if one.open]  # the newest first
    if found:
        names = ", ".join(one.id for one in found[::-1][:4])
        say(f"{len(found)} incidents could be meant, and none was marked: say which with --incident ID ({names})")
    elif standing:
        say(
            f"not marked in {', '.join(standing[:4])}, which is of another target (--incident ID marks it all the same)"
        )
    return None


def looked(belongs: Belongs, look: Looked, diagnosis: Diagnosis) -> None:
    """Keeps what was seen and the answer, and journals it."""
    with _beside("the diagnosis"):
        found = joined(belongs, (diagnosis.target, *_addresses(look)))
        if found is None:
            return
        told = kept(found.place, found.incident.id, look.bundle, diagnosis)
        for trouble in told.troubles:
            say(f"{found.incident.id}: {masked(trouble)}")
        found.journal.append(found.incident.id, events.DIAGNOSED, told.diagnosed)
        _tell_marked(found)


@contextmanager
def unless_unseen(belongs: Belongs, look: Looked) -> Iterator[None]:
    """Where nothing that was named could be read, that is journaled, unless more was seen in the incident before."""
    try:
        yield
    except OperationError:
        with _beside("that nothing could be seen"):
            found = joined(belongs, (look.bundle.context.target, *_addresses(look)))
            if found and not found.incident.of(events.DIAGNOSED) and not found.incident.of(events.CONFIRMED):
                found.journal.append(found.incident.id, events.CONFIRMED, unseen(why_unread(look)))
                _tell_marked(found)
        raise


class Heard:
    """Looks that follow each other: one is journaled where the answer is another one than before."""

    def __init__(self, belongs: Belongs, summary: Callable[[Diagnosis], str]) -> None:
        self._belongs = belongs
        self._summary = summary
        self._last = ""

    def __call__(self, look: Looked, diagnosis: Diagnosis) -> None:
        message = self._summary(diagnosis)
        if message != self._last:
            looked(self._belongs, look, diagnosis)
        self._last = message


def planned(belongs: Belongs, plans: Sequence[Plan], targets: Sequence[str]) -> None:
    with _beside("the plan"):
        found = joined(belongs, (*targets, *_changed_at(plans)))
        if found is None:
            return
        for plan in plans:
            found.journal.append(found.incident.id, events.PLANNED, recorder.planned(plan))
        _tell_marked(found)


def applying(belongs: Belongs, plans: Sequence[Plan], targets: Sequence[str]) -> Applying:
    """Raises LatdoctorError: what changes a server is not done where the journal cannot be read."""
    return Applying(joined(belongs, (*targets, *_changed_at(plans))))


@dataclass(frozen=True, slots=True)
class Applying:
    """A run's place in its incident, if it has one."""

    found: Joined | None

    def begun(self, run: str) -> None:
        """Before anything of the run is journaled. Raises JournalError."""
        if self.found:
            self.found.journal.append(self.found.incident.id, events.RUN_JOINED, events.RunJoined(run))

    def refusal(self, plan: Plan) -> Refusal | None:
        """What the SOP says as things stand now."""
        if self.found is None:
            return None
        known = recorder.known(self.found.journal)
        incident = next(one for one in known if one.id == self.found.incident.id)
        return recorder.refusal(self.found.journal, self.found.place, incident, plan)


def _is_any() -> bool:
    """Whether there is a journal; a user without a home, who named no folder either, has none."""
    try:
        return (state_dir.folder() / state_dir.JOURNAL).exists()
    except UsageError:
        return False


def _read() -> Journal:
    return Journal.reading(state_dir.folder() / state_dir.JOURNAL)


def _tell_marked(found: Joined) -> None:
    say(f"marked in {found.incident.id}. Next: latdoctor sop status{found.option}")
    tell_now()


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
        say(masked(clean(f"{what} was not marked in an incident: {error}", 600)))
