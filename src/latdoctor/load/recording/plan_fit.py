"""A load plan fitted to recorded requests, and what the recording did not show.

Nothing is invented: what the recording does not have keeps the default of the plan, and is listed.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from latdoctor.load.mix import Mix
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.recording.distribution_fit import Fitted, fit, quantiles
from latdoctor.load.recording.phase_fit import MOST_PHASES, FittedPhase, fit_phases
from latdoctor.load.recording.requests import IDLE_S, RecordedSession, Recording, sessions_of, think_times
from latdoctor.load.users import MOST_TURNS, Users

_ENOUGH = 0.5  # share of the requests that must have a session, or a length
_OF_PHASE = 200  # lengths from which a phase has a mix of its own
_GROWS = 1.5  # ratio of later turns' median length to that of first turns
_MOST_TOKENS = 100_000.0
_LEFT, _FAILED_FROM, _SHED = frozenset({499, 460}), 500, 429
_MOST_ROUTES = 5


class NotShown(StrEnum):
    """What a recording did not show, or showed only in part."""

    SESSIONS = "sessions"
    SOME_SESSIONS = "some-sessions"
    LENGTHS = "lengths"
    HISTORY = "history"
    ENDS = "ends"
    OVERLAPPING = "overlapping"
    CUT_SESSIONS = "cut-sessions"
    FINE_TIMES = "fine-times"
    PATIENCE = "patience"
    FAILURES = "failures"
    ROUTES = "routes"


class FitNote(Struct, frozen=True):
    """One thing that the plan does not have from the recording, with its figures."""

    code: NotShown
    text: str


class FittedPlan(Struct, frozen=True):
    """The plan, how close its parts are to the recording (Kolmogorov-Smirnov distances), and what is not from it."""

    plan: LoadPlan
    phases: tuple[FittedPhase, ...]
    sessions: int
    turns: Fitted | None
    think_s: Fitted | None
    notes: tuple[FitNote, ...]


def fit_plan(recording: Recording, *, idle_s: float = IDLE_S, most_phases: int = MOST_PHASES) -> FittedPlan:
    """Fit a plan as long as the recording. `idle_s`: a session without a request for so long has ended."""
    sessions = sessions_of(recording.requests, idle_s)
    notes = list(_notes(recording, sessions))
    turns = think = users = None
    arrived = [request.at for request in recording.requests]
    if not any(note.code is NotShown.SESSIONS for note in notes):
        turns = fit([float(min(len(session.turns), MOST_TURNS)) for session in sessions], whole=True)
        gaps, _ = think_times(sessions)
        think = fit(gaps) if gaps else None
        users = Users(turns.distribution, think.distribution) if think else Users(turns.distribution)
        arrived = [session.at for session in sessions]
    phases = fit_phases(arrived, recording.seconds, coarse=recording.coarse, most=most_phases)
    has_lengths = not any(note.code is NotShown.LENGTHS for note in notes)
    planned = tuple(
        LoadPhase(f"phase-{number}", phase.seconds, phase.arrivals, _mix(recording, phase, has_lengths), users)
        for number, phase in enumerate(phases, 1)
    )
    return FittedPlan(LoadPlan(planned), phases, len(sessions), turns, think, tuple(notes))


def _mix(recording: Recording, phase: FittedPhase, has_lengths: bool) -> Mix:
    if not has_lengths:
        return Mix()
    whole = [request for request in recording.requests if request.tokens]
    own = [request for request in whole if phase.start <= request.at < phase.start + phase.seconds]
    chosen = own if len(own) >= _OF_PHASE else whole
    lengths = [min(float(request.tokens or 1), _MOST_TOKENS) for request in chosen]
    return Mix(audio_share=0.0, tokens=quantiles(lengths))


def _notes(recording: Recording, sessions: Sequence[RecordedSession]) -> Iterator[FitNote]:
    requests = recording.requests
    named = sum(bool(request.session) for request in requests)
    several = sum(len(session.turns) > 1 for session in sessions)
    if named < _ENOUGH * len(requests) or not several:
        why = f"{named} of {len(requests)} requests have a session id" if named else "the log has no session id"
        more = ", and none has a second turn" if named and not several else ""
        yield FitNote(NotShown.SESSIONS, f"{why}{more}: users, turns and times to think are not fitted")
    else:
        yield from _session_notes(recording, sessions, named)
    if recording.coarse:
        yield FitNote(NotShown.FINE_TIMES, "times are whole seconds: the shape of gaps is not fitted, only rates")
    known = sum(bool(request.tokens) for request in requests)
    if known < _ENOUGH * len(requests):
        yield FitNote(NotShown.LENGTHS, f"{known} of {len(requests)} requests have a length: the mix is the default")
    if without := sum(request.ended is None for request in requests):
        text = f"{without} of {len(requests)} requests have no duration: times to think include their answers"
        yield FitNote(NotShown.ENDS, text)
    yield from _status_notes(recording)


def _session_notes(recording: Recording, sessions: Sequence[RecordedSession], named: int) -> Iterator[FitNote]:
    if unnamed := len(recording.requests) - named:
        text = f"{unnamed} requests have no session id: each counts as a session of one turn"
        yield FitNote(NotShown.SOME_SESSIONS, text)
    gaps, overlapping = think_times(sessions)
    if overlapping:
        text = f"{overlapping} turns were sent before the answer to the one before: left out of the times to think"
        yield FitNote(NotShown.OVERLAPPING, text)
    if gaps:
        edge = statistics.quantiles(gaps, n=20)[-1] if len(gaps) > 1 else gaps[0]
        cut = sum(one.at < edge or one.turns[-1].at > recording.seconds - edge for one in sessions)
        text = (
            f"{cut} of {len(sessions)} sessions may have begun before the log or gone on after it: turns are a minimum"
        )
        yield FitNote(NotShown.CUT_SESSIONS, text)
    first = [one.turns[0].tokens for one in sessions if one.turns[0].tokens]
    later = [turn.tokens for one in sessions for turn in one.turns[1:] if turn.tokens]
    if first and later and statistics.median(later) > _GROWS * statistics.median(first):
        text = (
            f"later turns are longer than first ones (median {statistics.median(later):.0f} and "
            f"{statistics.median(first):.0f} tokens): lengths probably include the history, which is sent again"
        )
        yield FitNote(NotShown.HISTORY, text)


def _status_notes(recording: Recording) -> Iterator[FitNote]:
    requests = recording.requests
    if left := [request for request in requests if request.status in _LEFT]:
        waited = [request.ended - request.at for request in left if request.ended is not None]
        after = f" after {statistics.median(waited):.1f} s (median)" if waited else ""
        yield FitNote(
            NotShown.PATIENCE,
            f"{len(left)} requests were given up by their client{after}; how long the others would have waited is "
            f"not in the log: set `patience_s`",
        )
    failed = sum(_has_failed(request.status) for request in requests)
    if failed:
        yield FitNote(NotShown.FAILURES, f"{failed} requests failed: whether users left for that is not fitted")
    routes = Counter(request.route for request in requests if request.route)
    if len(routes) > 1:
        shares = ", ".join(f"{name} {count / len(requests):.0%}" for name, count in routes.most_common(_MOST_ROUTES))
        yield FitNote(NotShown.ROUTES, f"{len(routes)} routes ({shares}): all requests of the plan go to one")


def _has_failed(status: int | None) -> bool:
    return status is not None and (status in (0, _SHED) or status >= _FAILED_FROM)
