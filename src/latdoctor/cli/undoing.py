"""Puts a rollback and a recovery together: the run as it was journaled, and the way back in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from latdoctor.cli.asking import settings_of
from latdoctor.cli.ended import tell_results
from latdoctor.cli.mending import about, both
from latdoctor.cli.mending_targets import again, settings_for
from latdoctor.cli.notifying import notifying
from latdoctor.cli.options import Given
from latdoctor.cli.screen import notice_console
from latdoctor.cli.stopping import stoppable
from latdoctor.errors import UsageError
from latdoctor.journal import state
from latdoctor.journal.store import Journal
from latdoctor.looking import kept
from latdoctor.remedy import history, recovering
from latdoctor.remedy.aside import Tell, aside
from latdoctor.remedy.history import RunState
from latdoctor.remedy.observation import Observation
from latdoctor.remedy.result import Outcome, Result
from latdoctor.remedy.target import Target
from latdoctor.remedy.world import World
from latdoctor.report import mending as shown


def rolled_back(run: str, target: str, *, as_json: bool) -> int:
    """The exit code; a run that was taken back as asked is a success."""
    journal, place = _journal()
    known = next((one for one in history.runs(journal.entries()) if one.id == run), None)
    screen = shown.told(notice_console(), known.plan if known else None)
    with notifying() as poke, stoppable(), aside(screen) as tell:
        enter = _enter(journal, place, target, both(tell, poke))
        result = recovering.roll_back(run, enter, lambda: history.runs(journal.entries()))
    tell_results([about(result, known.plan) if known else result], as_json=as_json)
    return 0 if result.outcome is Outcome.ROLLED_BACK else result.outcome.exit_code


def recovered(target: str, *, as_json: bool) -> int:
    """The exit code: the worst of all."""
    journal, place = _journal()
    with notifying() as poke, stoppable():
        unfinished = [run for run in history.runs(journal.entries()) if run.open]
        results = [_recovered(run, journal, place, target, poke) for run in unfinished]
    tell_results(results, as_json=as_json, nothing="no run is unfinished", at_work=True)
    codes = {result.outcome for result in results}
    return next((outcome.exit_code for outcome in (Outcome.INCOMPLETE, Outcome.HELD) if outcome in codes), 0)


def _recovered(run: RunState, journal: Journal, place: Path, target: str, poke: Callable[..., None]) -> Result:
    with aside(shown.told(notice_console(), run.plan)) as tell:
        return about(recovering.recover(run, _enter(journal, place, target, both(tell, poke))), run.plan)


def _journal() -> tuple[Journal, Path]:
    """The journal of what was done, and its folder; nothing is made where nothing was done. Raises UsageError."""
    place = state.folder()
    state.must_be_own(place)
    reading = Journal.reading(place / state.JOURNAL)
    return (Journal.opened(reading.path) if reading.entries() else reading), place


def _enter(journal: Journal, place: Path, target: str, tell: Tell) -> recovering.Enter:
    """A way back in: nothing is observed then, so the look is one that fails."""

    def enter(to: Target) -> World:
        settings = settings_of(Given(target=target)) if target else settings_for(to)
        return World(journal, place, again(to, settings), _blind, kept, tell)

    return enter


def _blind(seconds: float) -> Observation:
    raise UsageError("nothing is watched here")
