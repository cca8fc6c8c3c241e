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
from latdoctor.load.openloop import Progress
from latdoctor.load.plan import LoadPlan, check_address, schedule
from latdoctor.load.saturation import Saturation
from latdoctor.load.summary import LoadResult
from latdoctor.sanitize import clean

IN_FLIGHT = 128  # deep enough that every scheduler finds all the requests it can use


class LoadOrder(Struct, frozen=True):
    """What to do: run the plan, or (`saturate_s` > 0) keep `in_flight` requests of a phase's mix waiting.

    `metrics_port`: where a run shows its own metrics page on this machine; 0 is a free port, None shows none.
    """

    plan: LoadPlan
    address: str
    report_s: float = 1.0
    saturate_s: float = 0.0
    phase: str = ""
    in_flight: int = IN_FLIGHT
    metrics_port: int | None = None


class RunStarted(Struct, frozen=True, tag="started"):
    """The first request is about to be sent; `at` is Unix time, `metrics` the address of the run's metrics page."""

    at: float
    metrics: str = ""


class RunEnded(Struct, frozen=True, tag="ended"):
    """The run is over and everything is answered or given up."""

    result: LoadResult


Message = RunStarted | Progress | RunEnded | Saturation


class LoadProcess:
    """One run under way. Leave it as a context: the process never outlives it.

    `metrics` is the address of its metrics page once it has started; empty where none was ordered.
    """

    metrics = ""

    def __init__(self, order: LoadOrder) -> None:
        self._messages: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # closed in __exit__; a pipe could fill up
        # A session of its own: Ctrl-C reaches only the caller, who may then stop the run and still have its result.
        self._process = subprocess.Popen(  # our own interpreter and module
            [sys.executable, "-m", "latdoctor.load"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,
        )
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it ended before it listened: `_next` says why
                self._process.stdin.write(msgspec.json.encode(order) + b"\n")
                self._process.stdin.close()

    def __enter__(self) -> LoadProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._said.close()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def stop(self) -> None:
        """Sends nothing more. `wait` then returns once what is in flight is answered or given up."""
        self._process.send_signal(signal.SIGTERM)

    def wait_started(self) -> float:
        """The Unix time at which sending began. Call it before `wait`. Raises OperationError."""
        message = self._next()
        if not isinstance(message, RunStarted):
            raise OperationError(f"the load generator said {type(message).__name__} before it started")
        self.metrics = message.metrics
        return message.at

    def wait(self, on_progress: Callable[[Progress], None] | None = None) -> LoadResult:
        """The result, once the run is over. Raises OperationError if the generator breaks."""
        while not isinstance(message := self._next(), RunEnded):
            if isinstance(message, Progress) and on_progress is not None:
                on_progress(message)
        return message.result

    def wait_saturation(self) -> Saturation:
        """The completed rate, of an order to saturate. Raises OperationError if the generator breaks."""
        message = self._next()
        if not isinstance(message, Saturation):
            raise OperationError(f"the load generator said {type(message).__name__}, not what it measured")
        return message

    def _next(self) -> Message:
        line = self._process.stdout.readline() if self._process.stdout is not None else b""
        if line:
            return self._messages.decode(line)
        self._process.wait()
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip().splitlines()
        last = said[-1] if said else "it said nothing"
        raise OperationError(f"the load generator ended early: {clean(last, 300)}")


def start_load(
    plan: LoadPlan, address: str, *, remote: bool = False, report_s: float = 1.0, metrics_port: int | None = None
) -> LoadProcess:
    """Starts `plan` against the server at `address`. Raises UsageError for a bad plan or address, OperationError.

    With a `metrics_port` (0: a free one) the run shows its own metrics page on this machine for as long as it lasts;
    after `wait_started` its address is the process's `metrics`.
    """
    schedule(plan)  # refused here, with its own words, rather than in the other process
    check_address(address, remote=remote)
    return LoadProcess(LoadOrder(plan, address, report_s, metrics_port=metrics_port))


def run_load(
    plan: LoadPlan,
    address: str,
    on_progress: Callable[[Progress], None] | None = None,
    *,
    remote: bool = False,
) -> LoadResult:
    """Runs `plan` to its end and gives its result. Raises UsageError, OperationError."""
    with start_load(plan, address, remote=remote) as process:
        return process.wait(on_progress)


def saturate(
    plan: LoadPlan, address: str, seconds: float, *, phase: str = "", in_flight: int = IN_FLIGHT
) -> Saturation:
    """The rate at which the server completes the mix of `phase` (default: the last) when it is never idle.

    It takes `seconds` and then as long as the last answers do. Raises UsageError, OperationError.
    """
    name = phase or plan.phases[-1].name
    if name not in {each.name for each in plan.phases}:
        raise UsageError(f"the plan has no phase {name!r}")
    if not 0 < seconds <= 600:
        raise UsageError("saturation is measured over at most 600 s")
    if not 1 <= in_flight <= plan.max_in_flight:
        raise UsageError(f"{in_flight} requests in flight; the plan allows {plan.max_in_flight}")
    check_address(address, remote=False)
    with LoadProcess(LoadOrder(plan, address, saturate_s=seconds, phase=name, in_flight=in_flight)) as process:
        return process.wait_saturation()
