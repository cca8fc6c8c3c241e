"""Measures the limit of a target: levels of open-loop load until it is known, and closed loops for the model."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from msgspec import Struct

from latdoctor import __version__
from latdoctor.errors import OperationError
from latdoctor.load import machine_state
from latdoctor.load.arrivals import Poisson
from latdoctor.load.latencies import merged
from latdoctor.load.mix import Mix
from latdoctor.load.openloop import Progress, Saturation
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.process import LoadProcess, saturate, start_load
from latdoctor.load.target import Target
from latdoctor.planning.capacity.binding import ReadSignals, Signals, bound
from latdoctor.planning.capacity.fit import Limit, limit
from latdoctor.planning.capacity.level import Level, Trend, level, trend
from latdoctor.planning.capacity.measurement import CapacityMeasurement
from latdoctor.planning.capacity.queue_model import SHARES, ClosedLevel, QueueModel, fit_model
from latdoctor.planning.capacity.search import SearchSettings, next_rate

Log = Callable[[str], None]

_REPORT = 0.5  # seconds between two looks at a level
_ROUGH, _ENOUGH = 200, 700  # requests of a level before a level has failed, and afterwards: a P99 of 7 requests
_CLOSED = (1, 2, 4, 8, 16, 32, 64)
_FLAT = 1.03  # more in flight brings less than this: the server is saturated
_PERCENTS = tuple((2 * index + 1) / 2 for index in range(100))  # of the sizes of requests: 0.5 %, 1.5 % …


class MeasureSettings(Struct, frozen=True):
    """`slo` and `timeout` in seconds; `shortest` and `longest`: of a level, `closed`: of a closed loop.

    `start`: the first rate; 0: from the closed loops.
    """

    slo: float
    search: SearchSettings = SearchSettings()
    mix: Mix = Mix()
    seed: int = 0
    start: float = 0.0
    shortest: float = 10.0
    longest: float = 45.0
    closed: float = 5.0
    timeout: float = 10.0
    remote: bool = False


@dataclass
class Measuring:
    """A measurement in progress. `read`: what the server shows of itself."""

    target: Target
    settings: MeasureSettings
    read: ReadSignals
    log: Log
    levels: list[Level] = field(default_factory=list)
    signals: dict[int, Signals] = field(default_factory=dict)  # of each level, by its number

    def run(self) -> CapacityMeasurement:
        """Raises OperationError where the target answers nothing, or not within the SLO at any rate."""
        began, busy = time.monotonic(), machine_state.busy(limit=machine_state.OTHERS)
        loops = self._closed_loops()
        closed = tuple(_closed_level(one) for one in loops)
        start = self.settings.start or max(self.settings.search.lowest, max(one.rate for one in closed) / 8)
        while (rate := next_rate(self.levels, start, self.settings.search)) is not None:
            self._measure(rate)
        found = limit(self.levels, self.settings.search.attainment, self.settings.seed)
        model = fit_model(closed, _sizes(loops[0]))
        return self._result(found, closed, model, time.monotonic() - began, busy)

    def _result(
        self, found: Limit, closed: tuple[ClosedLevel, ...], model: QueueModel, lasted: float, busy: str
    ) -> CapacityMeasurement:
        settings = self.settings
        by_rate = sorted(range(len(self.levels)), key=lambda number: self.levels[number].rate)
        failing = next((n for n in by_rate if self._fails(n) and self.levels[n].rate >= found.rate), None)
        predicted = model.limit(settings.slo, settings.search.attainment)
        return CapacityMeasurement(
            address=self.target.address,
            target=self.target.name,
            date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            tool_version=__version__,
            slo=settings.slo,
            attainment=settings.search.attainment,
            limit=found.rate,
            interval=found.interval,
            first_failing=found.first_failing,
            bound_by=bound(
                None if failing is None else self.levels[failing],
                {} if failing is None else self.signals[failing],
                settings.search.attainment,
            ),
            is_cliff=found.is_cliff,
            levels=tuple(self.levels),
            closed=closed,
            lasted=lasted,
            model=model,
            model_limit=predicted,
            model_error=predicted / found.rate - 1 if found.rate else None,
            problems=tuple(self._problems(busy)),
        )

    def _fails(self, number: int) -> bool:
        return self.levels[number].attainment < self.settings.search.attainment

    def _problems(self, busy: str) -> list[str]:
        """`busy`: why the machine was too busy before any load; the server may be on it."""
        late = sum(bool(one.problems) for one in self.levels)
        found = [f"the generator was late at {late} of {len(self.levels)} levels"] if late else []
        share = self.settings.search.attainment
        needed = round(1 / (1 - share)) if share < 1 else 1
        if few := sum(one.requests < needed and not one.overloaded for one in self.levels):
            found.append(
                f"{few} of {len(self.levels)} levels had fewer than {needed} requests: too few for {share:.4g}"
            )
        return [*found, *([busy] if busy else [])]

    def _closed_loops(self) -> list[Saturation]:
        """With more and more requests in flight, until that brings nothing and as many are as at the limit.

        There the speed times the SLO are in flight (Little's law), and some servers become slower with a queue.
        Raises OperationError.
        """
        found: list[Saturation] = []
        for in_flight in _CLOSED:
            found.append(self._closed_loop(in_flight))
            best = max(one.rate for one in found[:-1]) if found[:-1] else 0.0
            if len(found) > 2 and found[-1].rate < _FLAT * best and in_flight >= best * self.settings.slo:
                break
        return found

    def _closed_loop(self, in_flight: int) -> Saturation:
        request, remote, seconds = self.target.request, self.settings.remote, self.settings.closed
        plan = self._plan(1.0, seconds, 0)
        one = saturate(plan, self.target.address, seconds, in_flight=in_flight, remote=remote, request=request)
        if not one.answered:
            what = f"answers none of {one.other} requests with {in_flight} in flight"
            raise OperationError(what, where=self.target.address, next_step="check --path and --body")
        self.log(f"{in_flight} in flight: {one.rate:.4g} requests/s")
        return one

    def _measure(self, rate: float) -> None:
        """One level, stopped early where the server is plainly overloaded."""
        wanted = _ENOUGH if any(map(self._fails, range(len(self.levels)))) else _ROUGH
        seconds = min(self.settings.longest, max(self.settings.shortest, wanted / rate))
        plan = self._plan(rate, seconds, len(self.levels) + 1)
        with (
            ThreadPoolExecutor(1) as reader,
            start_load(
                plan, self.target.address, remote=self.settings.remote, report_s=_REPORT, request=self.target.request
            ) as load,
        ):
            load.wait_started()
            signals = reader.submit(self.read, min(seconds, self.settings.shortest) * 0.6)
            watch = _OverloadWatch(load, self.settings.slo)
            result = load.wait(watch)
            self.signals[len(self.levels)] = signals.result()
        self.levels.append(level(result, rate, overloaded=watch.stopped))
        last = self.levels[-1]
        p99 = "–" if last.p99 is None else f"{last.p99 * 1000:.0f} ms"
        self.log(f"{rate:.4g}/s: {last.attainment:.2%} within the SLO, P99 {p99}{', stopped' if watch.stopped else ''}")

    def _plan(self, rate: float, seconds: float, number: int) -> LoadPlan:
        phase = LoadPhase("load", seconds, Poisson(rate), self.settings.mix)
        return LoadPlan(
            (phase,),
            seed=self.settings.seed * 1000 + number,
            timeout_s=self.settings.timeout,
            slo_s=self.settings.slo,
            warm_up_s=min(1.0, seconds / 10),
        )


class _OverloadWatch:
    """Stops a load at which latency and the requests in flight both keep growing, far beyond the SLO."""

    def __init__(self, load: LoadProcess, slo: float) -> None:
        self._load, self._slo = load, slo
        self._in_flight: list[float] = []
        self._p50: list[float] = []
        self.stopped = False

    def __call__(self, progress: Progress) -> None:
        if self.stopped or progress.p50 is None:
            return
        self._in_flight.append(progress.in_flight)
        self._p50.append(progress.p50)
        grows = trend(self._in_flight) is Trend.GROWING and trend(self._p50) is Trend.GROWING
        if grows and progress.p50 > 2 * self._slo:
            self.stopped = True
            self._load.stop()


def _closed_level(one: Saturation) -> ClosedLevel:
    took = merged([one.histogram])
    return ClosedLevel(one.in_flight, one.rate, tuple(took.percentile(share * 100) or 0.0 for share in SHARES))


def _sizes(alone: Saturation) -> tuple[float, ...]:
    """Latencies of requests that were alone, as quantiles."""
    took = merged([alone.histogram])
    return tuple(took.percentile(percent) or 0.0 for percent in _PERCENTS)
