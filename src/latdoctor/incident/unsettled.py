"""What an incident is closed over: changes that nobody has verified, and a last look that was critical."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latdoctor.incident import events
from latdoctor.incident.elapsed import clock
from latdoctor.incident.state import Incident, body
from latdoctor.remedy import history
from latdoctor.remedy.history import RunState
from latdoctor.remedy.result import Outcome
from latdoctor.text import clean

_CRITICAL = "critical"


def unsettled(incident: Incident, others: Sequence[RunState] = ()) -> tuple[str, ...]:
    """A line of each; `others` are the runs on its target that are not its own (`inherited`).

    Raises msgspec.ValidationError for an entry that another version wrote otherwise.
    """
    own = history.runs(incident.entries)
    return (*_unverified(own, ""), *_unverified(others, ", not of this incident"), *_last_look(incident))


def _unverified(runs: Sequence[RunState], whose: str) -> Iterator[str]:
    for run in runs:
        told = f"run {run.id} ({clean(run.plan.playbook, 100)} on {clean(run.plan.target.name, 100)}{whose})"
        if run.open and run.standing:
            yield f"a change stands that nobody has verified: {told} has not come to its end; latdoctor recover"
        elif run.open:
            yield f"{told} has not come to its end, and has changed nothing so far; latdoctor recover"
        elif run.outcome is Outcome.HELD and run.standing:
            yield f"a change stands that nobody has verified: {told} was held; latdoctor rollback {run.id}"


def _last_look(incident: Incident) -> Iterator[str]:
    """Unless a change was verified since: that is a later look, and P99 was within the SLO."""
    last = next(iter(reversed(incident.of(events.DIAGNOSED))), None)
    if last is None:
        return
    verified = {run.id for run in history.runs(incident.entries) if run.outcome is Outcome.VERIFIED}
    since = any(one.kind == "verify.passed" and one.run in verified and one.seq > last.seq for one in incident.entries)
    said = body(last, events.Diagnosed)
    if said.level == _CRITICAL and not since:
        named = ", ".join(clean(cause.id, 100) for cause in said.causes if cause.named)
        yield f"the last look, of {clock(last.at)} UTC, was critical: {named or clean(said.says, 400)}"
