"""Load governance: readiness, admission, circuit breaker, retry budget, lanes, features and the standby model."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

from latdoctor.lab.server.config import ServerConfig
from latdoctor.lab.server.control.load_window import LoadWindow
from latdoctor.lab.server.errors import LoadShed, Unavailable
from latdoctor.lab.server.features import features_of
from latdoctor.lab.server.intent_request import IntentRequest, PendingRequests
from latdoctor.lab.server.schedulers.batch import Lane, Work
from latdoctor.lab.server.schedulers.cost_model import CostModel

WINDOW = 5.0  # seconds of answers in the P99
FEWEST = 20  # minimum number of answers for a P99
_JUDGE_EVERY = 0.25  # seconds between two evaluations
_MOST = 4096  # answers remembered


class Breaker:
    """Opens when the P99 exceeds its limit, and closes after a time; then it measures the latency again.

    Seconds of a monotonic clock. `note` is called with the shared lock held; `is_open` from any thread.
    """

    def __init__(self) -> None:
        self._answers: deque[tuple[float, float]] = deque(maxlen=_MOST)
        self._judged = float("-inf")
        self._open_until = float("-inf")

    def is_open(self, now: float) -> bool:
        return now < self._open_until

    def note(self, latency: float, now: float, *, limit: float, open_for: float) -> None:
        """One answer took `latency`; a `limit` of 0 switches the breaker off."""
        if not limit:
            self._open_until = float("-inf")
            return
        self._answers.append((now, latency))
        if self.is_open(now) or now - self._judged < _JUDGE_EVERY:
            return
        self._judged = now
        while self._answers and self._answers[0][0] < now - WINDOW:
            self._answers.popleft()
        if len(self._answers) >= FEWEST and self._p99() > limit:
            self._open_until = now + open_for
            self._answers.clear()

    def _p99(self) -> float:
        """Nearest rank."""
        ordered = sorted(latency for _, latency in self._answers)
        return ordered[-(-len(ordered) * 99 // 100) - 1]

    def remaining(self, now: float) -> float:
        """Seconds until it closes."""
        return max(0.0, self._open_until - now)


class RetryBudget:
    """The share of requests that may be retries, over ten seconds (Google SRE book, chapter 21: at most 10 %)."""

    SECONDS = 10

    def __init__(self) -> None:
        self._seconds: deque[list[int]] = deque(maxlen=self.SECONDS)  # [second, requests, retries admitted]

    def allows(self, *, is_retry: bool, now: float, share: float) -> bool:
        """Counts one request; False for a retry over the budget. A share of 0 allows any."""
        second = int(now)
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append([second, 0, 0])
        current = self._seconds[-1]
        current[1] += 1
        if not is_retry or not share:
            current[2] += is_retry
            return True
        recent = [entry for entry in self._seconds if entry[0] > second - self.SECONDS]
        if sum(entry[2] for entry in recent) + 1 > share * sum(entry[1] for entry in recent):
            return False
        current[2] += 1
        return True


class Governance:
    """Judges requests by the present configuration. Called on the event loop, except for the methods that differ.

    While the breaker is open the light model answers (`standby: auto`), or long requests are refused.
    A request of high priority passes breaker and deadline.
    """

    def __init__(self, config: ServerConfig, cost_model: CostModel, clock: Callable[[], float]) -> None:
        self.breaker = Breaker()
        self.load = LoadWindow()
        self._config = config
        self._cost_model = cost_model
        self._clock = clock
        self._retries = RetryBudget()

    def configure(self, config: ServerConfig) -> None:
        self._config = config

    def arrived(self, intent_request: IntentRequest) -> None:
        """Counts a request. Raises LoadShed for a retry over the budget."""
        share = self._config.governance.retry_budget
        if not self._retries.allows(is_retry=intent_request.attempt > 0, now=self._clock(), share=share):
            raise LoadShed(429, "retry-budget", "too many requests come in again", retry_after=RetryBudget.SECONDS)

    def lane(self, tokens: int) -> Lane:
        governance = self._config.governance
        if not governance.lanes:
            return Lane.ALL
        return Lane.LONG if tokens > governance.lane_boundary_tokens else Lane.SHORT

    def admit(
        self, intent_request: IntentRequest, tokens: int, received: float, pending: PendingRequests
    ) -> float | None:
        """The deadline of an admitted request, or None where it has none. Raises LoadShed."""
        self.load.arrived(self._clock(), tokens)
        queue = self._config.queue
        # An empty queue admits any request: one larger than the token limit would never be served otherwise.
        if pending.depth and (pending.depth >= queue.max_requests or pending.tokens + tokens > queue.max_tokens):
            raise LoadShed(503, "queue-full", "the queue is full", retry_after=1)
        if intent_request.priority == "high":
            return None
        self._pass_breaker(tokens)
        if not queue.deadline_ms:
            return None
        deadline = received + queue.deadline_ms / 1000
        self._meet(deadline, tokens, pending)
        return deadline

    def _pass_breaker(self, tokens: int) -> None:
        now, governance = self._clock(), self._config.governance
        if governance.standby == "off" and tokens > governance.lane_boundary_tokens and self.breaker.is_open(now):
            raise LoadShed(
                429, "breaker", "long requests are turned away for a moment", retry_after=self.breaker.remaining(now)
            )

    def _meet(self, deadline: float, tokens: int, pending: PendingRequests) -> None:
        now, lane = self._clock(), self.lane(tokens)
        waiting = [ticket.work for ticket in pending.all() if ticket.work.lane == lane]
        judged = self._cost_model.admission(Work(0, tokens, now, deadline, lane), now, waiting)
        if not judged.admitted:
            raise LoadShed(429, "deadline", "the answer would come too late", retry_after=judged.retry_after or 1)

    def answered(self, latency: float) -> None:
        """One answer took `latency` seconds. Called on a request thread, with the shared lock held."""
        limits = self._config.governance
        self.breaker.note(
            latency, self._clock(), limit=limits.breaker_p99_ms / 1000, open_for=limits.breaker_open_ms / 1000
        )

    def features(self) -> tuple[tuple[str, ...], bool]:
        """The features that a request is computed with now, and whether some are left out. Any thread."""
        settings = self._config.features
        trims = settings.trim == "on" or (settings.trim == "auto" and self.breaker.is_open(self._clock()))
        trims = trims and settings.kept < settings.count
        return features_of(settings, trimmed=trims), trims

    def wants_standby(self) -> bool:
        """Whether the light model computes the next batch. Called by the worker, with the shared lock held."""
        standby = self._config.governance.standby
        return standby == "on" or (standby == "auto" and self.breaker.is_open(self._clock()))


class ServerState(StrEnum):
    """What `/readyz` reports."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


class Readiness:
    """Whether the server takes requests, and how many are in progress. Used on the event loop only."""

    def __init__(self) -> None:
        self.warm = False
        self.draining = False  # the server is shutting down
        self.set_aside = False  # until the operator ends it
        self.in_flight = 0

    @property
    def away(self) -> bool:
        """Whether requests shall go to other servers."""
        return self.draining or self.set_aside

    @property
    def state(self) -> ServerState:
        if self.away:
            return ServerState.DRAINING
        return ServerState.READY if self.warm else ServerState.STARTING

    @contextmanager
    def request(self, most: int) -> Iterator[None]:
        """One request in progress. Raises Unavailable while the server starts, LoadShed beyond `most` requests.

        While it drains, requests that still arrive are answered: the listening socket is closed elsewhere.
        """
        if not self.warm:
            raise Unavailable("starting", "the model is being made ready")
        if self.in_flight >= most:
            raise LoadShed(503, "queue-full", "too many requests are on their way", retry_after=1)
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
