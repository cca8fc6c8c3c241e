"""The sessions of users while a load runs: each user is a task that sends its turns one after the other.

Open in the sense that matters: users arrive at times that are fixed before the run, whatever the server does. A turn's
latency counts from the time at which its user wanted to send it, which is the end of the answer before plus the time to
think, so a late generator or a frozen server is part of it.
"""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Awaitable, Callable, Iterator
from enum import StrEnum
from itertools import count

from msgspec import Struct

from latdoctor.load.arrivals import Population
from latdoctor.load.mix import Conversations, Mix, RequestContent, draw
from latdoctor.load.outcome import Ending, RequestOutcome
from latdoctor.load.plan import MAX_REQUESTS, LoadPhase, LoadPlan, PlannedRequest, generator
from latdoctor.load.users import Users

FIRST_SESSION = 1_000_001  # above the sessions of a mix and of a recording


class UserArrival(Struct, frozen=True, gc=False):
    """The arrival of user `name`, `at` seconds from the start of the run, in the phase with the index `phase`.

    `slot` is the place of a user of a population; None for a user who arrives once.
    """

    name: str
    at: float
    phase: int
    slot: int | None = None


class SessionEnding(StrEnum):
    """How a session ended."""

    COMPLETED = "completed"  # the last turn was answered
    ABANDONED_SLOW = "abandoned_slow"  # a turn took longer than the patience
    ABANDONED_FAILED = "abandoned_failed"  # a turn failed, and the user left
    UNFINISHED = "unfinished"  # the run or the population's phase ended before


class SessionRecord(Struct, frozen=True, gc=False):
    """One session: `at` seconds from the start of the run, `turns` sent."""

    phase: int
    at: float
    turns: int
    ending: SessionEnding


def arrivals_of(plan: LoadPlan, number: int) -> Iterator[UserArrival]:
    """The users of one phase by time, as fixed by the seed."""
    phase, start = plan.phases[number], plan.starts()[number]
    times = phase.arrivals.times(phase.seconds, generator(plan.seed, f"{number}/arrivals"))
    yield from named_arrivals(phase, number, (start + at for at in times), f"{number}")


def named_arrivals(phase: LoadPhase, number: int, times: Iterator[float], prefix: str) -> Iterator[UserArrival]:
    """Users at `times`, with the names from which their random numbers derive."""
    closed = isinstance(phase.arrivals, Population)
    for index, at in enumerate(times):
        yield UserArrival(f"{prefix}/{index}", at, number, index if closed else None)


class User:
    """One user with what is fixed before its session: see `latdoctor.load.users`."""

    def __init__(self, users: Users, seed: int, name: str, session: int) -> None:
        self._users, self._session = users, session
        self._behaviour = generator(seed, f"user/{name}")
        self._contents = generator(seed, f"user/{name}/mix")
        self._conversation = Conversations()
        self.turns = users.draw_turns(self._behaviour)
        self.patience = users.draw_patience(self._behaviour)

    def content(self, mix: Mix) -> RequestContent:
        """The content of the next turn, with the turns before."""
        ask = draw(mix, self._contents)
        return self._conversation.joined(RequestContent(ask.kind, ask.tokens, ask.place, self._session))

    def after_turn(self) -> tuple[float, bool]:
        """The seconds to think after a turn, and whether a failure of it makes the user leave."""
        return self._users.think_s.draw(self._behaviour), self._behaviour.random() < self._users.leave_after_failure


Send = Callable[[PlannedRequest, float, str], Awaitable[RequestOutcome]]  # the turn, the patience, the turn's name


class UserSessions:
    """The users of one run. `clock`: seconds from the start of the run; `mix_of`: the mix now in effect in a phase."""

    def __init__(
        self,
        plan: LoadPlan,
        send: Send,
        clock: Callable[[], float],
        mix_of: Callable[[int], Mix],
        indexes: Iterator[int],
    ) -> None:
        self._plan, self._send, self._clock, self._mix_of = plan, send, clock, mix_of
        self._starts, self._indexes, self._sessions = plan.starts(), indexes, count(FIRST_SESSION)
        self._thinking: set[asyncio.Future[None]] = set()
        self._stopped = False
        self._occupied: set[tuple[int, int]] = set()  # phase and slot
        self._resized = 0
        self._size: int | None = None  # of populations, where it was changed
        self.active = 0
        self.sent: list[PlannedRequest] = []
        self.records: list[SessionRecord] = []

    def begin(self, arrival: UserArrival, tasks: asyncio.TaskGroup) -> None:
        """A user arrives."""
        if arrival.slot is None:
            tasks.create_task(self._session_of(arrival))
            return
        place = (arrival.phase, arrival.slot)
        if place not in self._occupied and (self._size is None or arrival.slot < self._size):
            self._occupied.add(place)
            tasks.create_task(self._occupy(arrival, place))

    def resize(self, size: int | None, tasks: asyncio.TaskGroup) -> None:
        """Change the number of users of populations, now and later; None: as planned.

        Users beyond it leave once their present turn is over.
        """
        if size == self._size:
            return
        self._size = size
        self._resized += 1
        now = self._clock()
        number = self._phase_at(now)
        planned = self._plan.phases[number].arrivals
        if isinstance(planned, Population):
            for slot in range(planned.size if size is None else size):
                self.begin(UserArrival(f"{number}/{slot}/change/{self._resized}", now, number, slot), tasks)

    def stop(self) -> None:
        """No user sends another turn."""
        self._stopped = True
        for waiting in self._thinking:
            if not waiting.done():
                waiting.set_result(None)

    async def _occupy(self, arrival: UserArrival, place: tuple[int, int]) -> None:
        """One place of a population: a session, a time to think, the next session."""
        users = self._plan.phases[arrival.phase].users or Users()
        pauses = generator(self._plan.seed, f"user/{arrival.name}/pauses")
        for round_ in count():
            await self._session_of(UserArrival(f"{arrival.name}.{round_}", arrival.at, arrival.phase, arrival.slot))
            again = self._clock() + users.think_s.draw(pauses)
            if not await self._until(again, arrival):
                break
            arrival = UserArrival(arrival.name, again, arrival.phase, arrival.slot)
        self._occupied.discard(place)

    async def _session_of(self, arrival: UserArrival) -> None:
        users = self._plan.phases[arrival.phase].users or Users()
        user = User(users, self._plan.seed, arrival.name, next(self._sessions))
        due, turns = arrival.at, 0
        self.active += 1
        while True:
            if not await self._until(due, arrival):
                ending = SessionEnding.UNFINISHED
                break
            outcome = await self._turn(user, due, f"{arrival.name}/{turns}")
            turns += 1
            think, leaves = user.after_turn()
            if outcome.ending is not Ending.ANSWERED and (leaves or outcome.took >= user.patience):
                slow = outcome.took >= user.patience
                ending = SessionEnding.ABANDONED_SLOW if slow else SessionEnding.ABANDONED_FAILED
                break
            if turns == user.turns:
                ending = SessionEnding.COMPLETED
                break
            due = self._clock() + think
        self.active -= 1
        self.records.append(SessionRecord(arrival.phase, arrival.at, turns, ending))

    async def _turn(self, user: User, due: float, name: str) -> RequestOutcome:
        phase = self._phase_at(due)
        planned = PlannedRequest(next(self._indexes), due, phase, user.content(self._mix_of(phase)))
        self.sent.append(planned)
        return await self._send(planned, user.patience, name)

    def _phase_at(self, at: float) -> int:
        return max(0, bisect.bisect_right(self._starts, at) - 1)

    def _may_send(self, at: float, arrival: UserArrival) -> bool:
        if self._stopped or at >= self._plan.seconds or len(self.sent) >= MAX_REQUESTS:
            return False
        if arrival.slot is None:
            return True
        if at >= self._starts[arrival.phase] + self._plan.phases[arrival.phase].seconds:
            return False
        return self._size is None or arrival.slot < self._size

    async def _until(self, at: float, arrival: UserArrival) -> bool:
        """Wait until `at`; False if the user sends nothing more."""
        while self._may_send(at, arrival) and (wait := at - self._clock()) > 0:
            waiting = asyncio.get_running_loop().create_future()
            timer = asyncio.get_running_loop().call_later(wait, _wake, waiting)
            self._thinking.add(waiting)
            try:
                await waiting
            finally:
                timer.cancel()
                self._thinking.discard(waiting)
        return self._may_send(at, arrival)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
