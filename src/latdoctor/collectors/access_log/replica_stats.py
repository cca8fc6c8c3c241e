"""Quantiles, rates and ratios of the requests of one replica, for recent time and as series.

Latency is counted at the exit of a request and arrivals at its entry, which is the exit minus the duration. The slow
ones among the last arrivals are not in the log yet, so the arrivals end one P99 before the log does. They begin where
the log does, because earlier arrivals are there only in part.

With a time range, series cover all of it, and single values only its judged window, however few requests it has.

Steps are one second, or as many whole seconds as keep a series within MAX_STEPS. A quantile of a step is the sample of
that rank (the smallest that q of the samples do not exceed); for a few samples the P99 is simply the slowest.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

from latdoctor.collectors.access_log.entry import CLIENT_LEFT, is_failure
from latdoctor.collectors.access_log.histogram import bin_of, edge
from latdoctor.collectors.access_log.requests import RequestColumns, TimeSegment
from latdoctor.collectors.access_log.step_table import StepTable
from latdoctor.collectors.time_range import TimeRange
from latdoctor.evidence.model import AT_LEAST, Bucket, Distribution, Evidence, Labels, Origin, Reading, Series, Window

MAX_STEPS = 7200
MAX_REQUESTS = 20_000  # of the most recent requests, reported one by one
RECENT = 600.0  # seconds at the log's end covered by a single value: a day's P99 would hide ten bad minutes
ENOUGH = 100  # requests needed for a P99
RATE_REQUESTS, RATE_SECONDS = 10, 1.0  # needed for a rate
QUANTILES = ((".p50", 0.50, 3), (".p95", 0.95, 20), (".p99", 0.99, 100))  # as in detectors/quantiles.py
_WHOLE_SECONDS = 0.5  # with a coarser resolution a quantile is only a bound


class ReplicaStats:
    """The requests of one replica within the segments that are read."""

    def __init__(
        self,
        requests: RequestColumns,
        read: Sequence[TimeSegment],
        subject: str,
        origin: Origin,
        notes: str,
        past: TimeRange | None = None,
        older: StepTable | None = None,
        *,
        borrowed: bool = False,
    ) -> None:
        """`borrowed`: the requests have the times of other lines. `older`: requests of the log that are not kept."""
        self.subject, self.origin, self.notes, self.past = subject, origin, notes, past
        self.requests = requests
        spans = [range(one.first, one.last + 1) for one in read] or [range(len(requests))]
        every = [index for span in spans for index in span]
        # The requests with a known time, in the order of their exit.
        self.timed = sorted((i for i in every if requests.ended[i] >= 0), key=requests.ended.__getitem__)
        self.whole = self._span(self.timed)
        if older and self.timed:
            self.whole = Window(min(older.start, self.whole.start or math.inf), self.whole.end)
        self.step = max(1.0, math.ceil((self.whole.seconds or 0.0) / MAX_STEPS), self._spacing() if borrowed else 0.0)
        self.dated = self._recent() if self.timed else ()  # of the recent ones, those with a known time
        # Requests without a time are of any time of the log, and judged where all of it is.
        undated = () if past or len(self.dated) < len(self.timed) else [i for i in every if requests.ended[i] < 0]
        self.recent = [*self.dated, *undated]
        self.total = len(self.recent)
        self.latencies = sorted(requests.duration[i] for i in self.recent if self.is_latency(i))
        self.statuses = [requests.status[i] for i in self.recent if requests.status[i] >= 0]
        self.window = self._span(self.dated)

    def _spacing(self) -> float:
        """The whole seconds between two times of requests, as a rule."""
        times = sorted({self.requests.ended[row] for row in self.timed})
        gaps = sorted(later - before for before, later in pairwise(times))
        return math.ceil(gaps[len(gaps) // 2]) if gaps else 0.0

    def _span(self, rows: Sequence[int]) -> Window:
        return Window(self.requests.ended[rows[0]], self.requests.ended[rows[-1]]) if rows else Window()

    def _recent(self) -> Sequence[int]:
        """The judged window; otherwise the last RECENT seconds, extended until it has ENOUGH requests."""
        ended = self.requests.ended
        if self.past is not None:
            return self.timed[bisect_left(self.timed, self.past.judged, key=ended.__getitem__) :]
        first = bisect_left(self.timed, ended[self.timed[-1]] - RECENT, key=ended.__getitem__)
        enough = [place for place, index in enumerate(self.timed) if self.is_latency(index)][-ENOUGH:]
        return self.timed[min(first, enough[0] if len(enough) == ENOUGH else 0) :]

    def is_latency(self, index: int) -> bool:
        """Whether the duration of a request counts as latency."""
        return bool(self.requests.answered[index]) and self.requests.duration[index] >= 0

    def evidence(self, coarse: float) -> Evidence:
        """`coarse`: the resolution of the durations, seconds."""
        return Evidence(
            readings=(
                self.reading("request.count", float(self.total)),
                *self._latency_readings(coarse),
                *self._ratio_readings(),
                *self._rate_readings(),
            ),
            series=(
                *self._latency_series(),
                *self._ratio_series(),
                *self._arrival_series(),
                *(self._single_requests() if coarse <= _WHOLE_SECONDS else ()),
            ),
            distributions=self._distribution(coarse),
        )

    def reading(self, signal: str, value: float, note: str = "", bound: str = "", labels: Labels = ()) -> Reading:
        """A reading of the recent requests."""
        part_of = (self.window.seconds or 0.0) < (self.whole.seconds or 0.0)
        what = "the requested range" if self.past else "the log"
        late = f"the last {self.window.seconds or 0.0:.0f} s of {what}" if part_of else ""
        noted = "; ".join(part for part in (note, late, self.notes) if part)
        return Reading(signal, self.subject, value, self.origin, self.window, labels, noted, bound)

    def _latency_readings(self, coarse: float) -> Iterator[Reading]:
        count = len(self.latencies)
        if not count:
            return
        bound = AT_LEAST if coarse > _WHOLE_SECONDS else ""
        points = f"of {count} requests" + ("; logged in whole seconds, rounded down" if bound else "")
        yield self.reading("latency.mean", math.fsum(self.latencies) / count, points, bound)
        for suffix, q, least in QUANTILES:
            if count >= least:
                yield self.reading(f"latency{suffix}", nearest_rank(self.latencies, q), points, bound)

    def _distribution(self, coarse: float) -> tuple[Distribution, ...]:
        if not self.latencies or coarse > _WHOLE_SECONDS:
            return ()
        counts: dict[int, int] = {}
        for value in self.latencies:
            place = bin_of(value)
            counts[place] = counts.get(place, 0) + 1
        buckets = tuple(Bucket(edge(place - 1), edge(place), float(n)) for place, n in sorted(counts.items()))
        total = math.fsum(self.latencies)
        return (Distribution("latency", self.subject, buckets, self.origin, total, self.window, (), self.notes),)

    def _ratio_readings(self) -> Iterator[Reading]:
        if self.statuses:
            failed = sum(map(is_failure, self.statuses))
            note = "shed requests and server failures; invalid input counts as the client's fault"
            yield self.reading("error.ratio", failed / len(self.statuses), note)

    def _rate_readings(self) -> Iterator[Reading]:
        """Rates need enough requests and time: five requests within a millisecond are no 12,500 a second."""
        seconds = self.window.seconds or 0.0
        if seconds < RATE_SECONDS or len(self.dated) < RATE_REQUESTS:
            return
        arrivals = self._arrivals(self.window)
        if len(arrivals) >= RATE_REQUESTS and arrivals[-1] - arrivals[0] >= RATE_SECONDS:
            yield self.reading("arrival.rate", (len(arrivals) - 1) / (arrivals[-1] - arrivals[0]))
        if self.statuses:
            done = [self.requests.status[i] for i in self.dated]
            yield self.reading("completion.rate", sum(200 <= one < 400 for one in done) / seconds)
            yield self.reading("error.rate", sum(one >= 0 and is_failure(one) for one in done) / seconds)
            yield self.reading("cancel.rate", sum(one in CLIENT_LEFT for one in done) / seconds)

    def steps(self) -> Iterator[tuple[float, list[int]]]:
        """Yield the end of each non-empty step and the requests that ended in it."""
        start = math.floor(self.whole.start or 0.0)
        rows: list[int] = []
        current = -1
        for index in self.timed:
            step = int((self.requests.ended[index] - start) // self.step)
            if step != current and rows:
                yield start + (current + 1) * self.step, rows
                rows = []
            current = step
            rows.append(index)
        if rows:
            yield start + (current + 1) * self.step, rows

    def _latency_series(self) -> Iterator[Series]:
        """A step without a response has no latency: it is omitted, not zero."""
        times: list[float] = []
        values: dict[str, list[float]] = {suffix: [] for suffix, _, _ in QUANTILES}
        for end, rows in self.steps():
            duration = sorted(self.requests.duration[i] for i in rows if self.is_latency(i))
            if duration:
                times.append(end)
                for suffix, q, _ in QUANTILES:
                    values[suffix].append(nearest_rank(duration, q))
        if len(times) > 1:
            for suffix, found in values.items():
                yield self.series(f"latency{suffix}", times, found)

    def _single_requests(self) -> Iterator[Series]:
        """The latency of each of the last requests at its arrival time, and its time per stage."""
        ended, duration = self.requests.ended, self.requests.duration
        last = [i for i in self.dated if self.is_latency(i)][-MAX_REQUESTS:]
        rows = sorted(last, key=lambda index: ended[index] - duration[index])
        place = Origin(self.origin.artifact, f"{self.origin.place}, request by request".lstrip(", "))
        times = tuple(ended[i] - duration[i] for i in rows)
        if len(rows) > 1:
            yield Series("request.latency", self.subject, times, tuple(duration[i] for i in rows), place)
            for name in self.requests.stages:
                points = (self.requests.stage(name, i) for i in rows)
                values = tuple(value if value >= 0 else math.nan for value in points)
                yield Series("request.stage_time", self.subject, times, values, place, (("stage", name),))

    def _ratio_series(self) -> Iterator[Series]:
        status = self.requests.status
        rows = [(end, [status[i] for i in step if status[i] >= 0]) for end, step in self.steps()]
        points = [(end, sum(map(is_failure, found)) / len(found)) for end, found in rows if found]
        if len(points) > 1:
            yield self.series("error.ratio", [end for end, _ in points], [ratio for _, ratio in points])

    def _arrivals(self, window: Window) -> list[float]:
        """Entries from the window's start to one P99 before its end, ascending."""
        start, end = window.start or 0.0, window.end or 0.0
        late = nearest_rank(self.latencies, 0.99) if self.latencies else 0.0
        last = end - late if end - late > start else end
        started = (self.requests.ended[i] - max(0.0, self.requests.duration[i]) for i in self.timed)
        return sorted(moment for moment in started if start <= moment <= last)

    def _arrival_series(self) -> Iterator[Series]:
        arrivals = self._arrivals(self.whole)
        if len(arrivals) < 2:
            return
        start = math.floor(arrivals[0])
        whole = int((arrivals[-1] - start) // self.step)  # the last step is incomplete
        if whole < 2:
            return
        counts = array("l", bytes(array("l").itemsize * whole))
        for started in arrivals:
            place = int((started - start) // self.step)
            if place < whole:
                counts[place] += 1
        times = [start + (place + 1) * self.step for place in range(whole)]
        yield self.series("arrival.rate", times, [count / self.step for count in counts])

    def series(self, signal: str, times: Sequence[float], values: Sequence[float], labels: Labels = ()) -> Series:
        """A series over the steps of the whole log."""
        place = f"{self.origin.place}, each {self.step:g} s".lstrip(", ")
        return Series(signal, self.subject, tuple(times), tuple(values), Origin(self.origin.artifact, place), labels)


def nearest_rank(ordered: Sequence[float], q: float) -> float:
    """The smallest of `ordered` that a share `q` of it does not exceed."""
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]
