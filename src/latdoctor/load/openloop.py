"""The open loop: sends a schedule on time, independently of the server, and records the outcome of each request.

Latency counts from the planned time (G. Tene, How NOT to Measure Latency, 2013), so a delay by the generator or by a
frozen server is part of it. No request of the schedule waits for the response to another; the turns of a user do, and
their planned time is when the user wants to send them (`user_sessions.py`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from itertools import count

from msgspec import Struct

from latdoctor.load.latencies import quantile
from latdoctor.load.live_changes import (
    LEAD_S,
    MOST_CHANGES,
    Adjustment,
    Entry,
    LoadChange,
    Timetable,
    adjusted_mix,
    redrawn,
)
from latdoctor.load.mix import Mix, body
from latdoctor.load.outcome import TIMEOUT, Ending, Reply, RequestOutcome, ending_of, retry_delay
from latdoctor.load.plan import LoadPlan, PlannedRequest, RetryKind, generator
from latdoctor.load.request_template import RequestTemplate
from latdoctor.load.transport import Transport
from latdoctor.load.user_sessions import SessionRecord, UserArrival, UserSessions


class Progress(Struct, frozen=True, tag="progress"):
    """The state of a run. `p50` and `p99` are of the requests that ended since the last report (None: none did);
    `oldest` is the age of the oldest unanswered request. `users` are those with a session, `rate` is the factor now in
    effect. Times in seconds.
    """

    elapsed: float
    of: float
    phase: str
    sent: int
    ended: int
    errors: int
    in_flight: int
    oldest: float
    p50: float | None
    p99: float | None
    users: int = 0
    rate: float = 1.0


class Saturation(Struct, frozen=True, tag="saturation"):
    """Answers per second with `in_flight` concurrent requests, over `seconds` without the ramp.

    A capacity, not a latency that users have: each of the `in_flight` clients waits for its answer before the next
    request. `histogram`: the times of these answers.
    """

    rate: float
    seconds: float
    in_flight: int
    answered: int
    other: int
    histogram: str = ""


class OpenLoop:
    """One run. `clock` returns seconds of a monotonic clock. `adjustable`: `adjust` may change the load meanwhile."""

    def __init__(
        self,
        plan: LoadPlan,
        planned: tuple[PlannedRequest, ...],
        transport: Transport,
        clock: Callable[[], float],
        request: RequestTemplate | None = None,
        *,
        adjustable: bool = False,
    ) -> None:
        self._adjustable = adjustable
        self._plan, self._transport, self._clock = plan, transport, clock
        self._request = request
        self._start = 0.0
        self.stopped = False
        self._timetable = Timetable(plan, planned)
        self._scheduled = len(planned)
        self._indexes = count(len(planned))  # of requests that the schedule does not have
        self._added: list[PlannedRequest] = []
        self._users = UserSessions(plan, self._turn, lambda: clock() - self._start, self._mix_of, self._indexes)
        self._tasks: asyncio.TaskGroup | None = None
        self.changes: list[LoadChange] = []
        self._waiting: dict[int, float] = {}  # in the order of time, so that the first is the oldest
        self._recent: list[float] = []
        self._phase = 0
        self._sent = self._errors = 0
        self.outcomes: list[RequestOutcome] = []
        self.most_in_flight = 0

    @property
    def added(self) -> tuple[PlannedRequest, ...]:
        """The requests of the run that the schedule did not have: turns of users, and those after a change."""
        return (*self._added, *self._users.sent)

    @property
    def sessions(self) -> tuple[SessionRecord, ...]:
        """The sessions of users that ended."""
        return tuple(self._users.records)

    async def run(self) -> None:
        """Send all requests and wait for the last response, at most until its timeout."""
        self._start = self._clock()
        async with asyncio.TaskGroup() as self._tasks:
            while (entry := await self._next()) is not None:
                if not await self._until_due(entry):
                    continue
                self._timetable.take()
                self._phase = entry.phase
                if isinstance(entry, UserArrival):
                    self._users.begin(entry, self._tasks)
                    continue
                if entry.index >= self._scheduled:
                    self._added.append(entry)
                if self._begins(entry):
                    self._tasks.create_task(self._follow(entry))
        self._tasks = None

    async def _next(self) -> Entry | None:
        """The next entry; None at the end. A change may add entries for as long as the plan lasts."""
        while self._timetable.first is None and self._adjustable and not self.stopped:
            if self._clock() - self._start >= self._plan.seconds:
                break
            await asyncio.sleep(0.25)
        return None if self.stopped else self._timetable.first

    def stop(self) -> None:
        """Stop sending; requests in flight are still awaited."""
        self.stopped = True
        self._users.stop()

    def adjust(self, adjustment: Adjustment) -> None:
        """Go on with another load. Ignored before and after the run, and after MOST_CHANGES changes."""
        if not self._adjustable or self._tasks is None or self.stopped or len(self.changes) >= MOST_CHANGES:
            return
        at = self._clock() - self._start + LEAD_S
        if at >= self._plan.seconds:
            return
        self.changes.append(LoadChange(at, adjustment))
        self._timetable.replace(at, redrawn(self._plan, adjustment, at, len(self.changes), self._indexes))
        self._tasks.create_task(self._resize(at, adjustment.users))

    async def _resize(self, at: float, size: int | None) -> None:
        await asyncio.sleep(max(0.0, self._start + at - self._clock()))
        if self._tasks is not None and not self.stopped:
            self._users.resize(size, self._tasks)

    def _mix_of(self, phase: int) -> Mix:
        """The mix now in effect in a phase."""
        mix = self._plan.phases[phase].mix
        now = self._clock() - self._start
        past = [change for change in self.changes[-2:] if change.at <= now]
        return adjusted_mix(mix, past[-1].adjustment.mix) if past else mix

    async def _until_due(self, entry: Entry) -> bool:
        """Wait until `entry` is due; False if the run was stopped or changed before."""
        due = self._start + entry.at
        while (wait := due - self._clock()) > 0 and not self.stopped:
            await asyncio.sleep(min(wait, 0.25))  # in short steps, so that a stop takes effect during a long pause
            if self._timetable.first is not entry:
                return False
        return not self.stopped

    def _begins(self, planned: PlannedRequest) -> bool:
        """Whether the request is sent: not beyond the limit of requests in flight."""
        late = self._clock() - self._start - planned.at
        if len(self._waiting) >= self._plan.max_in_flight:
            # Counts with at least the timeout: it would not have been answered immediately.
            self._ended(RequestOutcome(planned.index, max(late, self._plan.timeout_s), late, Ending.NOT_SENT))
            return False
        self._waiting[planned.index] = planned.at
        self.most_in_flight = max(self.most_in_flight, len(self._waiting))
        return True

    async def _turn(self, planned: PlannedRequest, patience: float, name: str) -> RequestOutcome:
        """Send a turn of a user."""
        self._phase = max(self._phase, planned.phase)
        if not self._begins(planned):
            return self.outcomes[-1]
        return await self._follow(planned, patience, name)

    async def _follow(self, planned: PlannedRequest, patience: float = math.inf, name: str = "") -> RequestOutcome:
        """Send one request with all its attempts, at most for `patience` seconds."""
        due = self._start + planned.at
        given_up = due + patience
        late = self._clock() - due
        statuses: list[str] = []
        while True:
            reply = await self._attempt(planned, len(statuses), min(due + self._plan.timeout_s, given_up))
            statuses.append(reply.status)
            chance = self._chance(name or str(planned.index), len(statuses))
            delay = retry_delay(self._plan.retry, len(statuses), reply, chance)
            if delay is None or self.stopped or self._clock() >= given_up:
                break
            due = self._clock() + delay
            await asyncio.sleep(min(due, given_up) - self._clock())
            if due >= given_up:
                break
        took = self._clock() - self._start - planned.at
        del self._waiting[planned.index]
        outcome = RequestOutcome(planned.index, took, late, ending_of(statuses[-1]), tuple(statuses))
        self._ended(outcome)
        return outcome

    def _chance(self, name: str, made: int) -> float:
        """Return the jitter of one retry, from the plan's seed, so that the order of failures does not change it."""
        if self._plan.retry.kind is not RetryKind.BACKOFF:
            return 0.0
        return generator(self._plan.seed, f"{name}/retry/{made}").random()

    async def _attempt(self, planned: PlannedRequest, attempt: int, deadline: float) -> Reply:
        request_id = f"{self._plan.seed}-{planned.index}"
        self._sent += 1
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock())):
                return await self._transport.send(self._content(planned, request_id, attempt), request_id, attempt)
        except TimeoutError:
            return Reply(TIMEOUT)

    def _content(self, planned: PlannedRequest, request_id: str, attempt: int) -> bytes:
        if self._request is None:
            return body(planned.ask, request_id, attempt)
        return self._request.content(self._plan.phases[planned.phase].name, planned.ask)

    def _ended(self, outcome: RequestOutcome) -> None:
        self.outcomes.append(outcome)
        self._recent.append(outcome.took)
        self._errors += outcome.ending not in {Ending.ANSWERED, Ending.REJECTED}

    def progress(self) -> Progress:
        """The progress so far; the next report counts from here."""
        recent, self._recent = sorted(self._recent), []
        elapsed = self._clock() - self._start
        oldest = next(iter(self._waiting.values()), None)
        return Progress(
            elapsed=elapsed,
            of=self._plan.seconds,
            phase=self._plan.phases[self._phase].name,
            sent=self._sent,
            ended=len(self.outcomes),
            errors=self._errors,
            in_flight=len(self._waiting),
            oldest=0.0 if oldest is None else elapsed - oldest,
            p50=quantile(recent, 0.5),
            p99=quantile(recent, 0.99),
            users=self._users.active,
            rate=self.changes[-1].adjustment.rate if self.changes else 1.0,
        )
