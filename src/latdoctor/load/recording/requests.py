"""Recorded requests, and the sessions that they form."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

IDLE_S = 1800.0  # without a request for so long, a session has ended: the usual limit of web analytics


class RecordedRequest(Struct, frozen=True, gc=False):
    """A request: `at` and `ended` in seconds from the first one. None or empty for what the recording does not have."""

    at: float
    ended: float | None = None
    status: int | None = None
    session: str = ""
    tokens: int | None = None
    route: str = ""


class RecordedSession(Struct, frozen=True, gc=False):
    """The turns of one user, by time."""

    turns: tuple[RecordedRequest, ...]

    @property
    def at(self) -> float:
        return self.turns[0].at


class Recording(Struct, frozen=True):
    """Requests by time over `seconds`. `coarse`: their times are whole seconds."""

    requests: tuple[RecordedRequest, ...]
    seconds: float
    coarse: bool = False


def sessions_of(requests: Sequence[RecordedRequest], idle_s: float = IDLE_S) -> tuple[RecordedSession, ...]:
    """The sessions by their first request. A request without a session is one of its own."""
    found: list[list[RecordedRequest]] = []
    last: dict[str, list[RecordedRequest]] = {}
    for request in requests:
        turns = last.get(request.session) if request.session else None
        if turns is None or request.at - (turns[-1].ended or turns[-1].at) > idle_s:
            turns = []
            found.append(turns)
            if request.session:
                last[request.session] = turns
        turns.append(request)
    return tuple(RecordedSession(tuple(turns)) for turns in found)


def think_times(sessions: Sequence[RecordedSession]) -> tuple[list[float], int]:
    """The times from each turn's end (its start, where the end is not known) to the next, and how many are negative.

    Negative ones are turns that were sent before the answer to the one before; they are left out.
    """
    gaps = [
        later.at - (sooner.at if sooner.ended is None else sooner.ended)
        for session in sessions
        for sooner, later in zip(session.turns, session.turns[1:], strict=False)
    ]
    return [gap for gap in gaps if gap >= 0], sum(gap < 0 for gap in gaps)
