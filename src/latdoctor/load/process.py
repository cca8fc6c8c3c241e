"""Runs the generator in a process of its own, so that neither the caller nor the server shares its event loop."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from types import TracebackType

import msgspec
from msgspec import Struct

from latdoctor.errors import OperationError, UsageError
from latdoctor.load.live_changes import Adjustment, check_adjustment
from latdoctor.load.openloop import Progress, Saturation
from latdoctor.load.plan import LoadPlan, check_address, schedule
from latdoctor.load.request_template import RequestTemplate
from latdoctor.load.summary import LoadResult
from latdoctor.sanitize import clean

IN_FLIGHT = 128  # enough for the batches of every scheduler


class LoadOrder(Struct, frozen=True):
    """The task of the process: run the plan, or (`saturate_s` > 0) measure capacity with a phase's mix.

    `metrics_port`: the local port of the client's metrics page; 0: a free port, None: no page.
    `request`: of a server other than the reference server. `adjustable`: adjustments follow on stdin, one a line.
    """

    plan: LoadPlan
    address: str
    report_s: float = 1.0
    saturate_s: float = 0.0
    phase: str = ""
    in_flight: int = IN_FLIGHT
    metrics_port: int | None = None
    request: RequestTemplate | None = None
    adjustable: bool = False


class RunStarted(Struct, frozen=True, tag="started"):
    """The first request is about to be sent; `at` is Unix time, `metrics` the address of the run's metrics page."""

    at: float
    metrics: str = ""


class RunEnded(Struct, frozen=True, tag="ended"):
    """The run is over: every request is answered or timed out."""

    result: LoadResult


Message = RunStarted | Progress | RunEnded | Saturation


class LoadProcess:
    """A generator process; a context manager that ends it.

    `metrics` is the address of its metrics page once it has started; empty without one.
    """

    metrics = ""

    def __init__(self, order: LoadOrder) -> None:
        self._messages: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # closed in __exit__; a pipe could fill up
        self._plan, self._adjustable, self._started = order.plan, order.adjustable, False
        # A session of its own: Ctrl-C reaches only the caller, which may then stop the run and keep its result.
        self._process = subprocess.Popen(  # our own interpreter and module
            [sys.executable, "-m", "latdoctor.load"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            start_new_session=True,
        )
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it ended early: `_next` reports why
                self._process.stdin.write(msgspec.json.encode(order) + b"\n")
                self._process.stdin.flush()
            if not order.adjustable:
                self._close_input()

    def __enter__(self) -> LoadProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._close_input()
        self._output.close()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _close_input(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def adjust(self, adjustment: Adjustment) -> None:
        """Change the load of an adjustable order that has started; the result states the change and its time.

        Raises UsageError where the plan cannot follow. Nothing happens once the generator has ended.
        """
        check_adjustment(self._plan, adjustment)
        if not (self._adjustable and self._started and self._process.stdin is not None):
            raise UsageError("this load cannot be changed: it has not started, or was not started as adjustable")
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(msgspec.json.encode(adjustment) + b"\n")
            self._process.stdin.flush()

    def stop(self) -> None:
        """Stop sending. `wait` returns once the requests in flight are answered or timed out."""
        self._process.send_signal(signal.SIGTERM)

    def wait_started(self) -> float:
        """The Unix time at which sending began. Call it before `wait`. Raises OperationError."""
        message = self._next()
        if not isinstance(message, RunStarted):
            raise OperationError(f"unexpected {type(message).__name__} before the load generator started")
        self.metrics, self._started = message.metrics, True
        return message.at

    def wait(self, on_progress: Callable[[Progress], None] | None = None) -> LoadResult:
        """The result, once the run is over. Raises OperationError if the generator fails."""
        while not isinstance(message := self._next(), RunEnded):
            self._started = True
            if isinstance(message, Progress) and on_progress is not None:
                on_progress(message)
        return message.result

    def wait_saturation(self) -> Saturation:
        """The completed rate, of an order to saturate. Raises OperationError if the generator fails."""
        message = self._next()
        if not isinstance(message, Saturation):
            raise OperationError(f"unexpected {type(message).__name__} instead of the measured capacity")
        return message

    def _next(self) -> Message:
        line = self._process.stdout.readline() if self._process.stdout is not None else b""
        if line:
            return self._messages.decode(line)
        self._process.wait()
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        last = lines[-1] if lines else "no output"
        raise OperationError(f"the load generator ended early: {clean(last, 300)}")


def start_load(
    plan: LoadPlan,
    address: str,
    *,
    remote: bool = False,
    report_s: float = 1.0,
    metrics_port: int | None = None,
    request: RequestTemplate | None = None,
    adjustable: bool = False,
) -> LoadProcess:
    """Start `plan` against the server at `address`. Raises UsageError for a bad plan or address, OperationError.

    With a `metrics_port` (0: a free one) the run serves its metrics page; `LoadProcess.metrics` has its address. An
    `adjustable` load can be changed while it runs (`LoadProcess.adjust`).
    """
    schedule(plan)  # an invalid plan is refused here instead of in the other process
    check_address(address, remote=remote)
    order = LoadOrder(plan, address, report_s, metrics_port=metrics_port, request=request, adjustable=adjustable)
    return LoadProcess(order)


def run_load(
    plan: LoadPlan,
    address: str,
    on_progress: Callable[[Progress], None] | None = None,
    *,
    remote: bool = False,
) -> LoadResult:
    """Run `plan` to its end and returns its result. Raises UsageError, OperationError."""
    with start_load(plan, address, remote=remote) as process:
        return process.wait(on_progress)


def saturate(
    plan: LoadPlan,
    address: str,
    seconds: float,
    *,
    phase: str = "",
    in_flight: int = IN_FLIGHT,
    remote: bool = False,
    request: RequestTemplate | None = None,
) -> Saturation:
    """The capacity of the server for the mix of `phase` (default: the last).

    Takes `seconds` plus the time of the last answers. Raises UsageError, OperationError.
    """
    name = phase or plan.phases[-1].name
    if name not in {each.name for each in plan.phases}:
        raise UsageError(f"the plan has no phase {name!r}")
    if not 0 < seconds <= 600:
        raise UsageError(f"saturation must take more than 0 and at most 600 s (got {seconds:g} s)")
    if not 1 <= in_flight <= plan.max_in_flight:
        raise UsageError(f"{in_flight} requests in flight; the plan allows {plan.max_in_flight}")
    check_address(address, remote=remote)
    order = LoadOrder(plan, address, saturate_s=seconds, phase=name, in_flight=in_flight, request=request)
    with LoadProcess(order) as process:
        return process.wait_saturation()
