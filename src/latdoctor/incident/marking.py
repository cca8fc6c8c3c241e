"""What commands journal of the incident that they belong to, and what its SOP does not permit yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from latdoctor.decoding import UNDECODABLE
from latdoctor.errors import LatdoctorError, OperationError
from latdoctor.incident import events
from latdoctor.incident.clock import clock, permitted
from latdoctor.incident.next_step import after
from latdoctor.incident.sop import RESTART, Sop, needed
from latdoctor.incident.sop_files import followed
from latdoctor.incident.state import Incident, incidents
from latdoctor.journal.store import Journal
from latdoctor.remedy.guards import Refusal
from latdoctor.remedy.plan import Plan
from latdoctor.text import clean

GUARD = "sop"


def known(journal: Journal) -> tuple[Incident, ...]:
    """Every incident, the oldest first. Raises JournalError, and OperationError for what another version wrote."""
    with readable(journal):
        return incidents(journal.entries())


@contextmanager
def readable(journal: Journal) -> Iterator[None]:
    """An entry that another version wrote otherwise is an OperationError with a next step."""
    try:
        yield
    except UNDECODABLE as error:
        raise OperationError(
            f"an entry is not as this version writes it: {clean(str(error), 200)}",
            where=str(journal.path),
            next_step="use the latdoctor that wrote it, or a later one",
        ) from error


def planned(plan: Plan) -> events.Planned:
    return events.Planned(
        playbook=plan.playbook,
        title=plan.title,
        digest=plan.digest,
        target=plan.target.name,
        risk=plan.risk,
        cause=plan.because.cause if plan.because else "",
    )


def refusal(journal: Journal, place: Path, incident: Incident, plan: Plan) -> Refusal | None:
    """Why the SOP of `incident`, if it has one, does not permit `plan` now; what cannot be told does not either."""
    if not incident.opened.sop:  # nobody asked for one
        return None
    try:
        sop = followed(place, incident)
    except LatdoctorError as error:
        return Refusal(
            GUARD, f"what may be done now cannot be told: {error.what}", "say --approve to do it all the same"
        )
    with readable(journal):
        states = clock(sop, incident, journal.clock())
    lacking = [action for action in needed(plan.risk, plan.disruption) if not permitted(sop, states, action)]
    if not lacking:
        return None
    reason = f"{incident.id}: {plan.playbook} ({_what(lacking, plan)}) is {_when(sop, lacking)}"
    return Refusal(GUARD, reason, f"{after(incident, sop, states).command}, or --approve")


def _what(lacking: Sequence[str], plan: Plan) -> str:
    parts = [f"{plan.risk} risk"] if set(lacking) - {RESTART} else []
    return " and ".join([*parts, *(["it restarts"] if RESTART in lacking else [])])


def _when(sop: Sop, lacking: Sequence[str]) -> str:
    """From which stage on it will be."""
    stages = [sop.permitting(action) for action in lacking]
    told = [stage for stage in stages if stage is not None]
    if len(told) < len(stages):
        return f"never permitted by the SOP {sop.id}"
    last = max(told, key=sop.stages.index)
    return f"permitted by the SOP {sop.id} from {last.id!r} on ({last.title}), which is not met"
