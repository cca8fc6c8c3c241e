"""The master's side of an exported plan in Locust: shares for the workers, one beginning, one end, and the result.

Imported by exported locustfiles alone, in Locust's process (see `locust_users`). Without a master the process is its
own only worker.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any

import msgspec
from locust import LoadTestShape, events
from locust.runners import MasterRunner, WorkerRunner

from latdoctor.load.drivers.exported import ATTAINMENT, ExportedLoad
from latdoctor.load.drivers.locust_users import PlanSender, ShareRun
from latdoctor.load.drivers.share import Share
from latdoctor.load.outcome import RequestOutcome
from latdoctor.load.plan import PlannedRequest, schedule
from latdoctor.load.summary import RawRun, summarise
from latdoctor.load.user_sessions import SessionRecord

SHARE, READY, GO = "latdoctor-share", "latdoctor-ready", "latdoctor-go"
_KEY = "latdoctor"  # of a worker's regular report
_PREPARING_S = 300.0  # at most, until all workers have their schedules
_LOG = logging.getLogger("latdoctor")


class PhaseCounts(msgspec.Struct, frozen=True):
    """The requests of one phase so far, as in `PhaseTally`."""

    counted: int
    good: int
    not_sent: int


class ShareReport(msgspec.Struct, frozen=True):
    """What a worker reports every few seconds: outcomes since the last report, the rest since its beginning."""

    outcomes: tuple[RequestOutcome, ...]
    added: tuple[PlannedRequest, ...]
    sessions: tuple[SessionRecord, ...]
    phases: dict[str, PhaseCounts]
    cpu_seconds: float
    most_in_flight: int
    done: bool


def report_of(run: ShareRun) -> ShareReport:
    """The report; the next one counts from here."""
    done = run.done  # before the outcomes: what ends meanwhile is in the next report
    outcomes, run.unreported = tuple(run.unreported), []
    added, run.added = tuple(_without_turns_before(one) for one in run.added), []
    sessions, run.sessions = tuple(run.sessions), []
    cpu = time.process_time() - run.cpu_at_start if run.begun.is_set() else 0.0
    phases = {name: PhaseCounts(tally.counted, tally.good, tally.not_sent) for name, tally in run.phases.items()}
    if run.load.times != 1:
        added = ()
    return ShareReport(outcomes, added, sessions, phases, cpu, run.most_in_flight, done)


def _without_turns_before(request: PlannedRequest) -> PlannedRequest:
    """`request` without the earlier turns of its session, which a result has no use for."""
    return msgspec.structs.replace(request, ask=msgspec.structs.replace(request.ask, before=()))


class Coordination:
    """The state of the whole run, in the master or in the only process."""

    def __init__(self, run: ShareRun) -> None:
        self._run, self._load = run, run.load
        self._runner: Any = None
        self.generators = 1
        self._expected: list[str] = []
        self._ready: set[str] = set()
        self._reports: dict[str, list[ShareReport]] = {}
        self._distributed = self._started = self._began = 0.0

    def attach(self, runner: Any) -> None:
        """Listen to the events of a master or of a process without one."""
        self._runner = runner
        if isinstance(runner, MasterRunner):
            runner.register_message(READY, self._on_ready)
            events.test_start.add_listener(self._distribute)
            events.worker_report.add_listener(self._on_report)
        else:
            events.test_start.add_listener(self._send_alone)
        events.quitting.add_listener(self._conclude)

    def users(self) -> int:
        """One sender for each worker that is connected when the run begins."""
        if not self._distributed:
            self.generators = max(1, self._runner.worker_count)
        return self.generators

    def finished(self) -> bool:
        """Whether all has been sent and answered, or will not be."""
        if not self._distributed:
            return False
        if not isinstance(self._runner, MasterRunner):
            return self._run.done
        left = set(self._expected) & set(self._runner.clients)
        return left <= self._done() or (not self._began and time.monotonic() - self._distributed > _PREPARING_S)

    def _unfinished(self) -> set[str]:
        """The processes that were to send a share, and have not sent all of it."""
        return set(self._reports if "local" in self._reports else self._expected) - self._done()

    def _done(self) -> set[str]:
        """The processes that have sent their whole share."""
        return {name for name, reports in self._reports.items() if any(report.done for report in reports)}

    def _distribute(self, **_: Any) -> None:
        self._distributed = time.monotonic()
        self._expected = [client.id for client in self._runner.clients.ready][: self.generators]
        for index, name in enumerate(self._expected):
            share = Share(index, len(self._expected), self._load.times)
            self._runner.send_message(SHARE, msgspec.to_builtins(share), name)

    def _on_ready(self, msg: Any, **_: Any) -> None:
        self._ready.add(msg.node_id)
        if self._ready >= set(self._expected) and not self._began:
            self._began, self._started = time.monotonic(), time.time()
            self._runner.send_message(GO)

    def _send_alone(self, **_: Any) -> None:
        self._distributed = time.monotonic()
        self._run.prepare(Share(times=self._load.times))
        self._run.begin()
        self._began, self._started = time.monotonic(), time.time()

    def _on_report(self, client_id: str, data: dict[str, Any], **_: Any) -> None:
        if _KEY in data:
            self._reports.setdefault(client_id, []).append(msgspec.convert(data[_KEY], ShareReport))

    def _conclude(self, environment: Any, **_: Any) -> None:
        """Log whether each phase met the SLO; that is Locust's exit code. Then write the result."""
        if not self._began:
            _LOG.error("not all workers were ready: nothing was sent")
            environment.process_exit_code = 1
            return
        if not isinstance(self._runner, MasterRunner):
            self._reports["local"] = [report_of(self._run)]
        met = [self._met(phase.name) for phase in self._load.plan.phases]
        if unfinished := self._unfinished():
            _LOG.error("not sent to the end by %s", ", ".join(sorted(unfinished)))
        environment.process_exit_code = 0 if all(met) and not unfinished else 1
        if (target := os.environ.get("LOAD_RESULT")) and self._load.times == 1:
            self._write_result(Path(target))
        elif target:
            _LOG.warning("no LOAD_RESULT: it is that of the plan's own rates, and these are multiplied")

    def _met(self, phase: str) -> bool:
        """Whether the phase met the SLO and all of it was sent; a phase in the warm-up has nothing that missed it."""
        counts = [reports[-1].phases[phase] for reports in self._reports.values()]
        counted, good = sum(one.counted for one in counts), sum(one.good for one in counts)
        not_sent = sum(one.not_sent for one in counts)
        met = good >= ATTAINMENT * counted and not not_sent
        _LOG.log(
            logging.INFO if met else logging.WARNING,
            "phase %s: %d of %d requests within %g ms, %d not sent: %s",
            phase,
            good,
            counted,
            self._load.plan.slo_s * 1000,
            not_sent,
            "SLO met" if met else "SLO missed",
        )
        return met

    def _write_result(self, target: Path) -> None:
        """Write the result of all workers, as `latdoctor lab load -o json` prints it."""
        plan = self._load.plan
        reports = [report for each in self._reports.values() for report in each]
        outcomes = tuple(outcome for report in reports for outcome in report.outcomes)
        planned = schedule(plan)
        ran = RawRun(
            address=str(self._runner.environment.host),
            started=self._started,
            seconds=time.monotonic() - self._began,
            cpu_seconds=max((report.cpu_seconds for report in reports), default=0.0),
            most_in_flight=sum(max(one.most_in_flight for one in each) for each in self._reports.values()),
            stopped=bool(self._unfinished()),
            outcomes=outcomes,
            added=tuple(request for report in reports for request in report.added),
            sessions=tuple(record for report in reports for record in report.sessions),
        )
        target.write_bytes(msgspec.json.encode(summarise(plan, planned, ran)))
        _LOG.info("wrote %s: %d of %d requests", target, len(outcomes), len(planned) + len(ran.added))


def _attach_worker(run: ShareRun, runner: Any) -> None:
    """Listen to the master."""

    def prepare(msg: Any, **_: Any) -> None:
        run.prepare(msgspec.convert(msg.data, Share))
        runner.send_message(READY)

    def report(data: dict[str, Any], **_: Any) -> None:
        data[_KEY] = msgspec.to_builtins(report_of(run))

    runner.register_message(SHARE, prepare, concurrent=True)
    runner.register_message(GO, lambda **_: run.begin())
    events.report_to_master.add_listener(report)


def classes(load: ExportedLoad) -> tuple[type[PlanSender], type[LoadTestShape]]:
    """The user and the shape of a locustfile; the listeners are registered when Locust has its runner."""
    run = ShareRun(load)
    coordination = Coordination(run)

    class PlanUser(PlanSender):
        run_of_process = run

    class PlanShape(LoadTestShape):  # type: ignore[misc]  # Locust is not installed where this is checked
        def tick(self) -> tuple[int, float] | None:
            if coordination.finished():
                return None
            users = coordination.users()
            return users, float(users)

    def attach(runner: Any, **_: Any) -> None:
        if isinstance(runner, WorkerRunner):
            _attach_worker(run, runner)
        else:
            coordination.attach(runner)
        events.quitting.add_listener(log_health)

    def log_health(**_: Any) -> None:
        if run.planned:
            run.log_health()

    events.init.add_listener(attach)
    return PlanUser, PlanShape
