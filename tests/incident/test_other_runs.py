"""What stands on a target counts, whichever incident (or none) made it; and what an incident is closed over."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from latdoctor.incident import events
from latdoctor.incident.lookup import other_runs
from latdoctor.incident.similar import past_incident, past_incidents, similar
from latdoctor.incident.state import Incident, incidents_in
from latdoctor.incident.status import IncidentStatus, incident_status, unsettled
from latdoctor.journal.entry import Moment
from latdoctor.remediation.run_history import ChangeRef, RunOpened
from latdoctor.report import handover, sop
from latdoctor.report.incidents import print_list, similar_incident_line
from tests.incident.journal_builders import SOP
from tests.incident.scenarios import BOOK, ID, RUN, Log, carried_out, cause, diagnosed, plan

NEXT = "inc-20261122-0750-0002"
FIELD = "batching.scheduler at http://127.0.0.1:8080/admin/config: long-alone before, token-budget now"
HERE = "localhost:8080"


def opened(log: Log, at: float, name: str, *targets: str, hosts: tuple[str, ...] = ()) -> None:
    log.add(
        at,
        events.OPENED,
        events.IncidentOpened("slow", targets, events.OpenedBy.HAND, SOP.id, SOP.digest, hosts=hosts),
        name,
    )


def killed(log: Log, at: float, run: str = RUN, *, changed: bool = True) -> None:
    """A run that was killed behind its change, or before it."""
    made = plan()
    log.add(at, "run.opened", RunOpened(made, made.digest, 1), run)
    if changed:
        log.add(at + 1, "change.intended", ChangeRef(0, 0), run)
        log.add(at + 1.1, "change.made", ChangeRef(0, 0), run)


def earlier(end: str, *, joined: bool = True) -> Log:
    """An incident that was closed over a run that ended as `end` says."""
    log = Log()
    opened(log, 0, ID, "checkout:9000")
    if joined:
        log.add(10, events.RUN_JOINED, events.RunJoined(RUN))
    if end == "verified":
        carried_out(log, 10)
    else:
        killed(log, 10, changed=end == "killed")
    log.add(100, events.CLOSED, events.IncidentClosed("resolved"))
    return log


def named(log: Log, name: str) -> Incident:
    return next(one for one in incidents_in(log.entries) if one.id == name)


def stands(log: Log, name: str = NEXT) -> IncidentStatus:
    last, incident = log.entries[-1], named(log, name)
    now = Moment(last.at, 9000.0, "boot-1")
    return incident_status(SOP, incident, now, Path("nowhere"), others=other_runs(incident, log.entries))


def printed(found: IncidentStatus) -> str:
    out = io.StringIO()
    Console(file=out, width=300, markup=False, highlight=False, emoji=False).print(sop.page(found))
    return out.getvalue()


def page(found: IncidentStatus) -> str:
    return handover.as_markdown(found, handover.handover(found)).replace("\\", "")


@pytest.mark.parametrize("joined", [True, False])
def test_killed_change_is_shown_and_recovered_first(joined: bool) -> None:
    log = earlier("killed", joined=joined)
    opened(log, 200, NEXT, HERE)
    found = stands(log)
    assert found.next.command == "latdoctor recover"
    told = page(found)
    assert f"{FIELD} (run {RUN}, from before this incident, since 2026-11-22 06:49:10 UTC, unfinished)" in told
    assert "nothing, as far as latdoctor" not in told
    status = printed(found)
    assert "2 values still changed from before this incident; undo: latdoctor recover" in status
    assert "Next    latdoctor recover" in status


def test_verified_change_of_an_earlier_incident_has_its_rollback_command() -> None:
    log = earlier("verified")
    opened(log, 200, NEXT, HERE)
    found = stands(log)
    assert f"{FIELD} (run {RUN}, from before this incident, since 2026-11-22 06:49:10 UTC, verified)" in page(found)
    assert f"`latdoctor rollback {RUN}`" in page(found)
    assert found.next.command == f"latdoctor diagnose --server {HERE}"
    assert f"2 values still changed from before this incident; undo: latdoctor rollback {RUN}" in printed(found)


@pytest.mark.parametrize(
    ("targets", "hosts", "meant"),
    [
        ((HERE,), (), True),
        (("http://127.0.0.1:8080/metrics",), (), True),
        (("checkout",), (), True),  # as the run's target is called
        (("checkout:9000",), (), True),  # what the incident was about to which the run belongs
        (("checkout",), ("checkout",), True),
        ((), (), True),  # it may be about any
        (("10.0.0.9:8080",), (), False),
        (("search",), ("search",), False),
    ],
)
def test_which_targets_are_the_same(targets: tuple[str, ...], hosts: tuple[str, ...], meant: bool) -> None:
    log = earlier("verified")
    opened(log, 200, NEXT, *targets, hosts=hosts)
    assert bool(other_runs(named(log, NEXT), log.entries)) is meant
    assert other_runs(named(log, ID), log.entries) == ()  # its own are no others


def test_rolled_back_change_is_not_in_place() -> None:
    log = earlier("verified")
    log.add(110, "rollback.begun", {"reason": "asked", "asked": True}, RUN)
    log.add(111, "undo.made", ChangeRef(0, 0), RUN)
    log.add(112, "run.closed", {"outcome": "rolled-back"}, RUN)
    opened(log, 200, NEXT, HERE)
    assert "none by latdoctor" in page(stands(log))


def test_later_run_reports_an_overwritten_field() -> None:
    log = earlier("verified")
    opened(log, 200, NEXT, HERE)
    log.add(210, events.RUN_JOINED, events.RunJoined("later"), NEXT)
    carried_out(log, 210, run="later")
    found = stands(log)
    assert (found.inherited, [run.run for run in found.tried]) == ((), ["later"])


def test_run_origin_depends_on_the_opening_and_closing() -> None:
    log = Log()
    opened(log, 0, ID, HERE)
    killed(log, 50)
    assert [run.whose for run in stands(log, ID).inherited] == ["from outside this incident"]
    log.add(60, events.CLOSED, events.IncidentClosed("resolved"))
    killed(log, 70, "later")
    assert [run.run for run in stands(log, ID).inherited] == [RUN]
    assert stands(log, ID).next.command == "latdoctor recover"


def test_run_killed_before_its_change_is_shown() -> None:
    log = earlier("opened")
    opened(log, 200, NEXT, HERE)
    assert f"changes unknown: run {RUN}, from before this incident" in page(stands(log))


def test_closing_lists_unsettled_changes() -> None:
    log = earlier("killed")
    unverified = (
        f"an unverified change is in place: run {RUN} ({BOOK} on checkout{{}}) has not ended; latdoctor recover"
    )
    assert unsettled(named(log, ID)) == (unverified.format(""),)
    opened(log, 200, NEXT, HERE)
    after = named(log, NEXT)
    assert unsettled(after, other_runs(after, log.entries)) == (unverified.format(", not of this incident"),)
    log.add(210, events.DIAGNOSED, diagnosed(cause()), NEXT)
    assert unsettled(named(log, NEXT)) == (
        "the last diagnosis, 2026-11-22 06:52:30 UTC, was critical: app.batching.long-alone",
    )
    log.add(220, events.RUN_JOINED, events.RunJoined("later"), NEXT)
    carried_out(log, 220, run="later")
    assert unsettled(named(log, NEXT)) == ()  # verified since


def test_list_shows_an_unfinished_run() -> None:
    log = earlier("killed")
    out = io.StringIO()
    print_list(past_incidents([log.incident]), (), Console(file=out, width=100), as_json=False)
    assert f"{BOOK} unfinished" in out.getvalue()
    assert "–" not in out.getvalue().partition("MTTD")[0]


def test_similar_incidents_show_an_unfinished_run() -> None:
    log = earlier("killed")
    log.add(101, events.DIAGNOSED, diagnosed(cause()))
    one = past_incident(log.incident)
    assert similar_incident_line(similar(one.features, [one])).endswith(f"; {BOOK} unfinished")
