"""The open loop: sends a schedule on time, independently of the server, and records the outcome of each request.

Latency counts from the planned time (G. Tene, How NOT to Measure Latency, 2013), so a delay by the generator or by a
frozen server is part of it. No request waits for the response to another. `saturation` is the closed loop that measures
a server's capacity.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from types import TracebackType
from typing import Protocol

import aiohttp
import msgspec
from msgspec import Struct

from latdoctor.load.latencies import Latencies, quantile
from latdoctor.load.mix import Conversations, Mix, body, draw
from latdoctor.load.plan import LoadPlan, PlannedRequest, RetryKind, RetryPolicy, generator
from latdoctor.load.request_template import RequestTemplate


class Ending(StrEnum):
    """How a request or an attempt ended."""

    ANSWERED = "answered"
    REFUSED = "refused"  # 429 or 503: load shedding
    REJECTED = "rejected"  # another 4xx: an error of the request
    FAILED = "failed"  # 5xx, no connection, a broken or wrong response
    TIMED_OUT = "timed_out"
    NOT_SENT = "not_sent"  # the limit of requests in flight was reached


# The outcome of an attempt without an HTTP status.
TIMEOUT, NO_CONNECTION, RESET, BAD_ANSWER = "timeout", "no-connection", "reset", "bad-answer"
_RETRIED = frozenset({Ending.REFUSED, Ending.FAILED, Ending.TIMED_OUT})  # endings that may succeed on a retry


class Reply(Struct, frozen=True, gc=False):
    """The outcome of one attempt: an HTTP status as text or one of the codes above; Retry-After in seconds.

    `content_bytes` is the size of the response body.
    """

    status: str
    retry_after: float | None = None
    content_bytes: int = 0


class RequestOutcome(Struct, frozen=True, gc=False):
    """The outcome of one planned request. `took` and `late` are seconds from its planned time.

    `statuses` has one entry per attempt; empty for a request that was not sent.
    """

    index: int
    took: float
    late: float
    ending: Ending
    statuses: tuple[str, ...] = ()


def ending_of(status: str) -> Ending:
    """Return the ending of an attempt with this status."""
    if status == TIMEOUT:
        return Ending.TIMED_OUT
    if status.startswith("2"):
        return Ending.ANSWERED
    if status in {"429", "503"}:
        return Ending.REFUSED
    return Ending.REJECTED if status.startswith("4") else Ending.FAILED


def retry_delay(policy: RetryPolicy, made: int, reply: Reply, chance: float) -> float | None:
    """Return the seconds until the next attempt after `made` attempts; None: no retry.

    `chance` in [0, 1) is the jitter, drawn by the caller from a seeded generator.
    """
    if policy.kind is RetryKind.NONE or made >= policy.attempts or ending_of(reply.status) not in _RETRIED:
        return None
    if policy.kind is RetryKind.IMMEDIATE:
        return 0.0
    ceiling = min(policy.max_ms, policy.base_ms * 2.0 ** (made - 1)) / 1000
    return max(chance * ceiling, reply.retry_after or 0.0)


PATH = "/v1/intent"
_MAX_ANSWER = 64 * 1024
# Less than the 5 s after which common servers close an idle connection: a request must never meet one being closed.
_KEEP_ALIVE_S = 4.0


class _Answer(msgspec.Struct):
    request_id: str


class HttpTransport:
    """A transport to one server. Enter it before the first request."""

    def __init__(
        self, address: str, traces: list[aiohttp.TraceConfig] | None = None, request: RequestTemplate | None = None
    ) -> None:
        self._traces = traces
        self._url = address.rstrip("/") + (request.path if request else PATH)
        self._has_ids = request is None  # only the reference server repeats the id of a request in its answer
        self._answers = msgspec.json.Decoder(_Answer)

    async def __aenter__(self) -> HttpTransport:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
            timeout=aiohttp.ClientTimeout(total=None),  # the run has its own timeout, which it counts
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Content-Type": "application/json"},
            trace_configs=self._traces,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def send(self, content: bytes, request_id: str, attempt: int) -> Reply:
        """Send one attempt; a failure is the status of the reply."""
        headers = {"X-Request-Id": request_id, "X-Attempt": str(attempt)}
        try:
            async with self._session.post(self._url, data=content, headers=headers, allow_redirects=False) as response:
                answer = await _read(response)
                if answer is None or (
                    self._has_ids and response.status == 200 and not self._is_for(request_id, answer)
                ):
                    return Reply(BAD_ANSWER)
                return Reply(str(response.status), _seconds(response.headers.get("Retry-After")), len(answer))
        except aiohttp.ClientConnectorError:
            return Reply(NO_CONNECTION)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
            return Reply(RESET)
        except aiohttp.ClientError:
            return Reply(BAD_ANSWER)

    def _is_for(self, request_id: str, answer: bytes) -> bool:
        try:
            return self._answers.decode(answer).request_id == request_id
        except msgspec.DecodeError:
            return False


async def _read(response: aiohttp.ClientResponse) -> bytes | None:
    """Read the response body; None beyond _MAX_ANSWER bytes."""
    parts: list[bytes] = []
    left = _MAX_ANSWER
    async for part in response.content.iter_any():
        parts.append(part)
        left -= len(part)
        if left < 0:
            response.close()
            return None
    return b"".join(parts)


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; None for its other form, a date, which such servers do not send."""
    return float(header) if header is not None and header.isascii() and header.isdigit() and len(header) < 6 else None


class Transport(Protocol):
    """Send one attempt. Failures of the server or the network are statuses, never exceptions."""

    async def send(self, content: bytes, request_id: str, attempt: int) -> Reply: ...


class Progress(Struct, frozen=True, tag="progress"):
    """The state of a run. `p50` and `p99` are of the requests that ended since the last report (None: none did);
    `oldest` is the age of the oldest unanswered request. Times in seconds.
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


class OpenLoop:
    """One run. `clock` returns seconds of a monotonic clock."""

    def __init__(
        self,
        plan: LoadPlan,
        planned: tuple[PlannedRequest, ...],
        transport: Transport,
        clock: Callable[[], float],
        request: RequestTemplate | None = None,
    ) -> None:
        self._plan, self._planned, self._transport, self._clock = plan, planned, transport, clock
        self._request = request
        self._start = 0.0
        self.stopped = False
        self._waiting: dict[int, float] = {}  # in the order of time, so that the first is the oldest
        self._recent: list[float] = []
        self._phase = 0
        self._sent = self._errors = 0
        self.outcomes: list[RequestOutcome] = []
        self.most_in_flight = 0

    async def run(self) -> None:
        """Send all requests and wait for the last response, at most until its timeout."""
        self._start = self._clock()
        async with asyncio.TaskGroup() as tasks:
            for planned in self._planned:
                if not await self._until(self._start + planned.at):
                    break
                self._phase = planned.phase
                late = self._clock() - self._start - planned.at
                if len(self._waiting) >= self._plan.max_in_flight:
                    # Counts with at least the timeout: it would not have been answered immediately.
                    self._ended(RequestOutcome(planned.index, max(late, self._plan.timeout_s), late, Ending.NOT_SENT))
                    continue
                self._waiting[planned.index] = planned.at
                self.most_in_flight = max(self.most_in_flight, len(self._waiting))
                tasks.create_task(self._follow(planned))

    def stop(self) -> None:
        """Stop sending; requests in flight are still awaited."""
        self.stopped = True

    async def _until(self, instant: float) -> bool:
        """Wait until `instant`; False if the run was stopped."""
        while (wait := instant - self._clock()) > 0 and not self.stopped:
            await asyncio.sleep(min(wait, 0.25))  # in short steps, so that a stop takes effect during a long pause
        return not self.stopped

    async def _follow(self, planned: PlannedRequest) -> None:
        """Send one request with all its attempts."""
        due = self._start + planned.at
        late = self._clock() - due
        statuses: list[str] = []
        while True:
            reply = await self._attempt(planned, len(statuses), due)
            statuses.append(reply.status)
            delay = retry_delay(self._plan.retry, len(statuses), reply, self._chance(planned.index, len(statuses)))
            if delay is None or self.stopped:
                break
            due = self._clock() + delay
            await asyncio.sleep(delay)
        took = self._clock() - self._start - planned.at
        del self._waiting[planned.index]
        self._ended(RequestOutcome(planned.index, took, late, ending_of(statuses[-1]), tuple(statuses)))

    def _chance(self, index: int, made: int) -> float:
        """Return the jitter of one retry, from the plan's seed, so that the order of failures does not change it."""
        if self._plan.retry.kind is not RetryKind.BACKOFF:
            return 0.0
        return generator(self._plan.seed, f"{index}/retry/{made}").random()

    async def _attempt(self, planned: PlannedRequest, attempt: int, due: float) -> Reply:
        request_id = f"{self._plan.seed}-{planned.index}"
        self._sent += 1
        try:
            async with asyncio.timeout(max(0.0, due + self._plan.timeout_s - self._clock())):
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
        )


_RAMP = 0.25  # share of the time in which the queue fills; not measured


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


class _Tally:
    def __init__(self) -> None:
        self.answered = self.other = self.next = 0
        self.took: list[float] = []


async def saturation(
    plan: LoadPlan,
    mix: Mix,
    transport: Transport,
    clock: Callable[[], float],
    seconds: float,
    in_flight: int,
    request: RequestTemplate | None = None,
) -> Saturation:
    """Measure the capacity of a server with a closed loop: scenarios scale their load by it.

    Keeps `in_flight` requests of `mix` in flight for `seconds`; returns once the last is answered or timed out.
    """
    contents = generator(plan.seed, "saturate/mix")
    tally, conversations = _Tally(), Conversations()
    begin = clock() + seconds * _RAMP
    end = begin + seconds * (1 - _RAMP)

    async def send_requests() -> None:
        while clock() < end:
            number, ask = tally.next, conversations.joined(draw(mix, contents))
            tally.next += 1
            request_id = f"{plan.seed}-saturate-{number}"
            content = body(ask, request_id, 0) if request is None else request.content("", ask)
            sent = clock()
            try:
                async with asyncio.timeout(plan.timeout_s):
                    status = (await transport.send(content, request_id, 0)).status
            except TimeoutError:
                status = TIMEOUT
            if begin <= clock() < end:
                answered = ending_of(status) is Ending.ANSWERED
                tally.answered += answered
                tally.other += not answered
                if answered:
                    tally.took.append(clock() - sent)
            if ending_of(status) is not Ending.ANSWERED:
                await asyncio.sleep(0.01)  # limits the request rate against a server that refuses at once

    async with asyncio.TaskGroup() as tasks:
        for _ in range(in_flight):
            tasks.create_task(send_requests())
    measured = end - begin
    histogram = Latencies(tally.took).encoded()
    return Saturation(tally.answered / measured, measured, in_flight, tally.answered, tally.other, histogram)
