"""The load of an exported plan in Locust: imported by exported locustfiles alone, in Locust's process.

Importing it needs `latdoctor[locust]`, and gevent patches the process. Each worker has one user that sends the worker's
share of the schedule in an open loop: a greenlet for each request, at its time, whatever became of the others; and one
for each user of a phase with users (`locust_sessions`). `locust_coordination` distributes the shares.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterator
from itertools import count

import gevent
from gevent.event import Event
from gevent.pool import Group
from geventhttpclient.client import HTTPClient
from geventhttpclient.response import HTTPConnectionClosed, HTTPParseError
from locust import User, task

from latdoctor.load.answered_history import has_wrong_history
from latdoctor.load.drivers.exported import ExportedLoad
from latdoctor.load.drivers.locust_sessions import UserGreenlets
from latdoctor.load.drivers.share import Share, shared_schedule, shared_users
from latdoctor.load.latencies import quantile
from latdoctor.load.mix import MALFORMED, body
from latdoctor.load.outcome import (
    BAD_ANSWER,
    NO_CONNECTION,
    RESET,
    TIMEOUT,
    WRONG_HISTORY,
    Ending,
    Reply,
    RequestOutcome,
    ending_of,
    retry_delay,
)
from latdoctor.load.plan import PlannedRequest, RetryKind, generator
from latdoctor.load.transport import PATH
from latdoctor.load.user_sessions import FIRST_SESSION, SessionRecord, UserArrival

_LOG = logging.getLogger("latdoctor")
_GOOD = frozenset({Ending.ANSWERED, Ending.REJECTED})


class PhaseTally:
    """The ended requests of one phase: `counted` are all but malformed ones, after the warm-up."""

    def __init__(self) -> None:
        self.counted = self.good = self.not_sent = 0


class ShareRun:
    """What this process sends: its share of the schedule, and the outcomes so far."""

    def __init__(self, load: ExportedLoad) -> None:
        self.load = load
        self.planned: tuple[PlannedRequest, ...] = ()
        self.arrivals: tuple[UserArrival, ...] = ()
        self.indexes: Iterator[int] = count()  # of the turns of users
        self.session_numbers: Iterator[int] = count(FIRST_SESSION)
        self.added: list[PlannedRequest] = []
        self.sessions: list[SessionRecord] = []
        self.begun, self.taken, self.done = Event(), False, False
        self.generators = 1
        self.start = self.started = self.cpu_at_start = 0.0
        self.waiting: set[int] = set()
        self.most_in_flight = 0
        self.phases = {phase.name: PhaseTally() for phase in load.plan.phases}
        self.lates: list[float] = []
        self.unreported: list[RequestOutcome] = []

    @property
    def limit(self) -> int:
        """The requests in flight that this process may have."""
        return max(1, int(self.load.plan.max_in_flight * self.load.times / self.generators))

    def prepare(self, share: Share) -> None:
        """Compute the schedule, in a thread: the worker goes on sending its heartbeats."""
        self.generators = share.generators
        threads = gevent.get_hub().threadpool
        self.planned = threads.apply(shared_schedule, (self.load.plan, share))
        self.arrivals = threads.apply(shared_users, (self.load.plan, share))
        # Above all indexes of the schedule, and unique among all generators.
        self.indexes = count((len(self.planned) + 1) * share.generators + share.index, share.generators)
        self.session_numbers = count(FIRST_SESSION + share.index, share.generators)

    def begin(self) -> None:
        """Release the sender: its schedule begins now."""
        self.started, self.start, self.cpu_at_start = time.time(), time.perf_counter(), time.process_time()
        self.begun.set()

    def ended(self, planned: PlannedRequest, outcome: RequestOutcome) -> None:
        """Count a request that has ended."""
        plan = self.load.plan
        self.lates.append(outcome.late)
        if self.load.times == 1:  # a multiplied load has no common schedule that a result could refer to
            self.unreported.append(outcome)
        tally = self.phases[plan.phases[planned.phase].name]
        tally.not_sent += outcome.ending is Ending.NOT_SENT
        if planned.at >= plan.warm_up_s and planned.ask.kind != MALFORMED:
            tally.counted += 1
            tally.good += outcome.ending is Ending.ANSWERED and outcome.took <= plan.slo_s

    def log_health(self) -> None:
        """Log what this process sent, and how late."""
        not_sent = sum(tally.not_sent for tally in self.phases.values())
        _LOG.info(
            "sent %d requests of %d, late %.1f ms (P99), %d not sent, at most %d in flight",
            len(self.lates) - not_sent,
            len(self.planned),
            (quantile(sorted(self.lates), 0.99) or 0.0) * 1000,
            not_sent,
            self.most_in_flight,
        )


class PlanSender(User):  # type: ignore[misc]  # Locust is not installed where this is checked
    """Sends the share of this process; a second user of the same process sends nothing."""

    abstract = True
    run_of_process: ShareRun

    @task  # type: ignore[untyped-decorator]
    def send_share(self) -> None:
        run = self.run_of_process
        if run.taken:
            _idle()
        run.taken = True
        plan, request = run.load.plan, run.load.request
        self._path = request.path if request else PATH
        self._authorization = os.environ.get("LOAD_AUTHORIZATION", "")
        run.begun.wait()  # the share of this process, and so its limit, is known from here on
        self._client = HTTPClient.from_url(
            self.host, concurrency=run.limit, network_timeout=plan.timeout_s, connection_timeout=plan.timeout_s
        )
        sending = Group()
        sessions = UserGreenlets(plan, run, self._begin_turn)
        entries: list[PlannedRequest | UserArrival] = [*run.planned, *run.arrivals]
        for entry in sorted(entries, key=lambda entry: entry.at):
            while (wait := run.start + entry.at - time.perf_counter()) > 0:
                gevent.sleep(wait)
            if isinstance(entry, UserArrival):
                sending.start(gevent.Greenlet(sessions.live, entry))
            elif self._begins(entry):
                sending.start(gevent.Greenlet(self._follow, entry))
        sending.join()
        run.done = True
        _idle()

    def _begins(self, planned: PlannedRequest) -> bool:
        """Whether the request is sent: not beyond the limit of requests in flight."""
        run = self.run_of_process
        late = time.perf_counter() - run.start - planned.at
        if len(run.waiting) >= run.limit:
            took = max(late, run.load.plan.timeout_s)
            self._report(planned, RequestOutcome(planned.index, took, late, Ending.NOT_SENT), 0)
            return False
        run.waiting.add(planned.index)
        run.most_in_flight = max(run.most_in_flight, len(run.waiting))
        return True

    def _begin_turn(self, planned: PlannedRequest, patience: float, name: str) -> RequestOutcome:
        """Send a turn of a user."""
        if self._begins(planned):
            return self._follow(planned, patience, name)
        took = self.run_of_process.load.plan.timeout_s
        return RequestOutcome(planned.index, took, 0.0, Ending.NOT_SENT)

    def _follow(self, planned: PlannedRequest, patience: float = math.inf, name: str = "") -> RequestOutcome:
        """Send one request with all its attempts, at most for `patience` seconds."""
        run, plan = self.run_of_process, self.run_of_process.load.plan
        due = run.start + planned.at
        given_up = due + patience
        late = time.perf_counter() - due
        statuses: list[str] = []
        while True:
            reply = self._attempt(planned, len(statuses), min(due + plan.timeout_s, given_up))
            statuses.append(reply.status)
            jitter = f"{name or planned.index}/retry/{len(statuses)}"
            chance = generator(plan.seed, jitter).random() if plan.retry.kind is RetryKind.BACKOFF else 0.0
            delay = retry_delay(plan.retry, len(statuses), reply, chance)
            if delay is None or time.perf_counter() >= given_up:
                break
            due = time.perf_counter() + delay
            gevent.sleep(max(0.0, min(due, given_up) - time.perf_counter()))
            if due >= given_up:
                break
        took = time.perf_counter() - run.start - planned.at
        run.waiting.discard(planned.index)
        outcome = RequestOutcome(planned.index, took, late, ending_of(statuses[-1]), tuple(statuses))
        self._report(planned, outcome, reply.content_bytes)
        return outcome

    def _attempt(self, planned: PlannedRequest, attempt: int, deadline: float) -> Reply:
        """Send one attempt; a failure is the status of the reply."""
        load = self.run_of_process.load
        name = load.plan.phases[planned.phase].name
        request_id = f"{load.plan.seed}-{planned.index}"
        if load.request is None:
            content = body(planned.ask, request_id, attempt)
        else:
            content = load.request.content(name, planned.ask)
        headers = {"Content-Type": "application/json", "X-Request-Id": request_id, "X-Attempt": str(attempt)}
        if self._authorization:
            headers["Authorization"] = self._authorization
        timeout = gevent.Timeout.start_new(max(0.001, deadline - time.perf_counter()))
        try:
            return self._post(content, headers, request_id if load.request is None else None)
        except gevent.Timeout as expired:
            if expired is not timeout:
                raise
            return Reply(TIMEOUT)
        finally:
            timeout.close()

    def _post(self, content: bytes, headers: dict[str, str], expected_id: str | None) -> Reply:
        try:
            response = self._client.request("POST", self._path, content, headers)
            answer = bytes(response.read())
        except (ConnectionRefusedError, gevent.socket.gaierror):
            return Reply(NO_CONNECTION)
        except TimeoutError:
            return Reply(TIMEOUT)
        except (OSError, HTTPConnectionClosed):
            return Reply(RESET)
        except HTTPParseError:
            return Reply(BAD_ANSWER)
        status = response.status_code
        if status == 200 and expected_id is not None and f'"{expected_id}"'.encode() not in answer:
            return Reply(BAD_ANSWER)
        if status == 200 and expected_id is not None and has_wrong_history(content, answer):
            return Reply(WRONG_HISTORY)
        after = str(response.get("Retry-After", ""))
        return Reply(str(status), float(after) if after.isdigit() and len(after) < 6 else None, len(answer))

    def _report(self, planned: PlannedRequest, outcome: RequestOutcome, length: int) -> None:
        """Count it in Locust's statistics, from the time it was due, under the name of its phase."""
        run = self.run_of_process
        run.ended(planned, outcome)
        if planned.at < run.load.plan.warm_up_s:
            return
        failed = outcome.ending not in _GOOD
        self.environment.events.request.fire(
            request_type="POST",
            name=run.load.plan.phases[planned.phase].name,
            response_time=outcome.took * 1000,
            response_length=length,
            exception=RuntimeError((outcome.statuses or (outcome.ending.value,))[-1]) if failed else None,
            context={},
        )


def _idle() -> None:
    """Until Locust ends the user."""
    while True:
        gevent.sleep(3600)
