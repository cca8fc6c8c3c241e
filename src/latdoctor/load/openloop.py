"""Sends a schedule on time, whatever the server does, and records the outcome of each request.

Latency counts from the planned instant (G. Tene, How NOT to Measure Latency, 2013): a request that the generator or
a frozen server delays carries the whole delay. Nothing waits for an answer before the next request is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

import aiohttp
import msgspec
from msgspec import Struct

from latdoctor.load.latencies import quantile
from latdoctor.load.mix import body
from latdoctor.load.plan import LoadPlan, PlannedRequest, generator
from latdoctor.load.request_outcome import (
    BAD_ANSWER,
    NO_CONNECTION,
    RESET,
    TIMEOUT,
    Reply,
    RequestOutcome,
    ending_of,
    retry_delay,
)

PATH = "/v1/intent"
_MAX_ANSWER = 64 * 1024
# Less than the 5 s after which common servers close an idle connection: a request must never meet one being closed.
_KEEP_ALIVE_S = 4.0


class _Answer(msgspec.Struct):
    request_id: str


class HttpTransport:
    """A transport to one server. Enter it before the first request."""

    def __init__(self, address: str, traces: list[aiohttp.TraceConfig] | None = None) -> None:
        self._traces = traces
        self._url = address.rstrip("/") + PATH
        self._answers = msgspec.json.Decoder(_Answer)

    async def __aenter__(self) -> HttpTransport:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
            timeout=aiohttp.ClientTimeout(total=None),  # the run gives up by itself, and counts it
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
        """One attempt; what goes wrong on the way is the reply's status."""
        headers = {"X-Request-Id": request_id, "X-Attempt": str(attempt)}
        try:
            async with self._session.post(self._url, data=content, headers=headers, allow_redirects=False) as response:
                answer = await _read(response)
                if answer is None or (response.status == 200 and not self._is_for(request_id, answer)):
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
    """The whole answer, or None where it is larger than any answer may be."""
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
    """Retry-After in seconds; its other form, a date, is not what such servers send."""
    return float(header) if header is not None and header.isascii() and header.isdigit() and len(header) < 6 else None


class Transport(Protocol):
    """Carries one attempt. It never raises for what the server or the network does: that is a status."""

    async def send(self, content: bytes, request_id: str, attempt: int) -> Reply: ...


class Progress(Struct, frozen=True, tag="progress"):
    """Where a run stands. `p50` and `p99` are of the requests that ended since the last report (None: none did);
    `oldest` is how long the oldest unanswered one has waited. Times in seconds."""

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
    """One run. `clock` gives seconds of any monotonic clock."""

    def __init__(
        self, plan: LoadPlan, planned: tuple[PlannedRequest, ...], transport: Transport, clock: Callable[[], float]
    ) -> None:
        self._plan, self._planned, self._transport, self._clock = plan, planned, transport, clock
        self._start = 0.0
        self.stopped = False
        self._waiting: dict[int, float] = {}  # in the order of time, so that the first is the oldest
        self._recent: list[float] = []
        self._phase = 0
        self._sent = self._errors = 0
        self.outcomes: list[RequestOutcome] = []
        self.most_in_flight = 0

    async def run(self) -> None:
        """Sends everything and waits for the last answer, which the timeouts bound."""
        self._start = self._clock()
        async with asyncio.TaskGroup() as tasks:
            for planned in self._planned:
                if not await self._until(self._start + planned.at):
                    break
                self._phase = planned.phase
                late = self._clock() - self._start - planned.at
                if len(self._waiting) >= self._plan.max_in_flight:
                    # Counts with the timeout at least: it would not have been answered at once.
                    self._ended(RequestOutcome(planned.index, max(late, self._plan.timeout_s), late, "not_sent"))
                    continue
                self._waiting[planned.index] = planned.at
                self.most_in_flight = max(self.most_in_flight, len(self._waiting))
                tasks.create_task(self._follow(planned))

    def stop(self) -> None:
        """Stops sending; requests in flight are still awaited."""
        self.stopped = True

    async def _until(self, instant: float) -> bool:
        """Waits until `instant`; False if the run was stopped."""
        while (wait := instant - self._clock()) > 0 and not self.stopped:
            await asyncio.sleep(min(wait, 0.25))  # in short steps, so that a stop takes effect during a long pause
        return not self.stopped

    async def _follow(self, planned: PlannedRequest) -> None:
        """One request through all its attempts."""
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
        """The jitter of one retry, by the plan's seed: the order in which requests fail does not change it."""
        if self._plan.retry.kind != "backoff":
            return 0.0
        return generator(self._plan.seed, f"{index}/retry/{made}").random()

    async def _attempt(self, planned: PlannedRequest, attempt: int, due: float) -> Reply:
        request_id = f"{self._plan.seed}-{planned.index}"
        self._sent += 1
        try:
            async with asyncio.timeout(max(0.0, due + self._plan.timeout_s - self._clock())):
                return await self._transport.send(body(planned.ask, request_id, attempt), request_id, attempt)
        except TimeoutError:
            return Reply(TIMEOUT)

    def _ended(self, outcome: RequestOutcome) -> None:
        self.outcomes.append(outcome)
        self._recent.append(outcome.took)
        self._errors += outcome.ending not in {"answered", "rejected"}

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
