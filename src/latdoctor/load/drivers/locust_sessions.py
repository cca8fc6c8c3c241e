"""The users of a plan in Locust: a greenlet for each, with the same draws as in `latdoctor.load.user_sessions`."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Protocol

import gevent

from latdoctor.load.outcome import Ending, RequestOutcome
from latdoctor.load.plan import LoadPlan, PlannedRequest, generator
from latdoctor.load.user_sessions import SessionEnding, SessionRecord, User, UserArrival
from latdoctor.load.users import Users


class SessionRun(Protocol):
    """The run of this process: its start, and what its users leave behind."""

    start: float
    indexes: Iterator[int]
    session_numbers: Iterator[int]
    added: list[PlannedRequest]
    sessions: list[SessionRecord]


Send = Callable[[PlannedRequest, float, str], RequestOutcome]  # the turn, the patience, the turn's name


class UserGreenlets:
    """The users of one process."""

    def __init__(self, plan: LoadPlan, run: SessionRun, send: Send) -> None:
        self._plan, self._run, self._send, self._starts = plan, run, send, plan.starts()

    def live(self, arrival: UserArrival) -> None:
        """A session; of a population, session after session in the same place."""
        if arrival.slot is None:
            self._session(arrival)
            return
        users = self._plan.phases[arrival.phase].users or Users()
        pauses = generator(self._plan.seed, f"user/{arrival.name}/pauses")
        at = arrival.at
        for round_ in count():
            self._session(UserArrival(f"{arrival.name}.{round_}", at, arrival.phase, arrival.slot))
            at = self._now() + users.think_s.draw(pauses)
            if not self._until(at, arrival):
                return

    def _session(self, arrival: UserArrival) -> None:
        users = self._plan.phases[arrival.phase].users or Users()
        user = User(users, self._plan.seed, arrival.name, next(self._run.session_numbers))
        due, turns = arrival.at, 0
        while True:
            if not self._until(due, arrival):
                ending = SessionEnding.UNFINISHED
                break
            outcome = self._turn(user, due, f"{arrival.name}/{turns}")
            turns += 1
            think, leaves = user.after_turn()
            slow = outcome.took >= user.patience
            if outcome.ending is not Ending.ANSWERED and (leaves or slow):
                ending = SessionEnding.ABANDONED_SLOW if slow else SessionEnding.ABANDONED_FAILED
                break
            if turns == user.turns:
                ending = SessionEnding.COMPLETED
                break
            due = self._now() + think
        self._run.sessions.append(SessionRecord(arrival.phase, arrival.at, turns, ending))

    def _turn(self, user: User, due: float, name: str) -> RequestOutcome:
        phase = max(0, bisect.bisect_right(self._starts, due) - 1)
        planned = PlannedRequest(next(self._run.indexes), due, phase, user.content(self._plan.phases[phase].mix))
        self._run.added.append(planned)
        return self._send(planned, user.patience, name)

    def _now(self) -> float:
        return time.perf_counter() - self._run.start

    def _until(self, at: float, arrival: UserArrival) -> bool:
        """Wait until `at`; False if the user sends nothing more: the run, or its population's phase, is over then."""
        last = self._plan.seconds
        if arrival.slot is not None:
            last = self._starts[arrival.phase] + self._plan.phases[arrival.phase].seconds
        if at >= last:
            return False
        gevent.sleep(max(0.0, at - self._now()))
        return True
