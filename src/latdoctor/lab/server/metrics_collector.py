"""Prometheus collector of the server's state at scrape time, and what it measures of this process.

Gauges and counters of other components; garbage collector pauses, event loop lag, memory and threads.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from latdoctor.lab.server.memory.pool_interface import MemoryStats
from latdoctor.lab.server.session_metrics import STORE_COUNTERS, STORE_GAUGES
from latdoctor.lab.server.worker import ThreadUsage

BEAT = 0.05  # seconds between two heartbeats


class ServerFigures(Struct, frozen=True):
    """The server's state at a scrape. `values` by the names in GAUGES and COUNTERS; None: not measured."""

    info: Mapping[str, str]
    memory: MemoryStats
    usage: ThreadUsage
    values: Mapping[str, float | None]


GAUGES = {
    "ref_start_time_seconds": "When the server started, Unix time",
    "ref_uptime_seconds": "Since the server started",
    "ref_queue_depth": "Requests that wait for the worker",
    "ref_queue_tokens": "Their tokens",
    "ref_queue_oldest_age_seconds": "How long the oldest has waited",
    "ref_breaker_open": "1 while the circuit breaker is open",
    "ref_process_threads": "Threads of the process",
    "ref_torch_threads": "Threads that one torch operator may use",
    "ref_rss_bytes": "Resident memory of the process",
    "ref_sessions": "Conversations that are remembered",
    "ref_answer_cache_entries": "Answers in the cache",
    "ref_answer_cache_bytes": "What they take, about",
    "ref_session_store_breaker_open": "1 while the breaker of the shared session store is open",
}
COUNTERS = {
    "ref_compiles_total": "Times the model was compiled for a shape",
    "ref_compile_seconds_total": "Time spent on that",
    "ref_process_cpu_seconds_total": "Processor time of the process, all of its threads",
    "ref_worker_restarts_total": "Workers that were lost and replaced",
    "ref_model_version_changes_total": "Times another version of the model was deployed",
    "ref_session_trimmed_turns_total": "Turns of conversations that their window dropped",
}
_OURS = "of the buffers that the server takes (inputs, padded batches); torch's own temporaries are not among them"
MEMORY_GAUGES = {
    "ref_device_segments": ("segments", "Segments held"),
    "ref_alloc_limit_bytes": ("limit_bytes", "Bytes that may be held at most"),
    "ref_reserved_bytes": ("reserved_bytes", "Bytes held"),
    "ref_allocated_bytes": ("allocated_bytes", "Bytes in use"),
    "ref_inactive_split_bytes": ("inactive_split_bytes", "Free bytes in segments partly in use"),
    "ref_largest_free_bytes": ("largest_free_bytes", "The largest hole"),
    "ref_fragmentation_ratio": ("fragmentation_ratio", "1 − largest hole / free bytes"),
    "ref_inactive_ratio": ("inactive_ratio", "Free bytes in segments partly in use / bytes held"),
}
MEMORY_COUNTERS = {
    "ref_device_alloc_total": ("device_alloc_total", "Segments taken from the system or the device"),
    "ref_device_free_total": ("device_free_total", "Segments given back"),
    "ref_alloc_retries_total": ("alloc_retries_total", "Allocations that needed a second try"),
    "ref_alloc_oom_total": ("alloc_oom_total", "Allocations that failed"),
    "ref_alloc_seconds_total": ("alloc_seconds_total", "Time spent allocating"),
    "ref_compactions_total": ("compactions_total", "Compactions"),
    "ref_compaction_seconds_total": ("compaction_seconds_total", "Time they stopped everything"),
}


class StateCollector(Collector):
    """Turns figures into samples with the fixed labels. `read` runs on the metrics thread; None has no sample."""

    def __init__(self, read: Callable[[], ServerFigures], fixed: tuple[str, str]) -> None:
        self._read = read
        self._labels = {"replica": fixed[0], "backend": fixed[1]}

    def collect(self) -> Iterator[Metric]:
        found = self._read()
        yield self._gauge("ref_info", "What runs here", 1, found.info)
        for name, message in GAUGES.items():
            yield self._gauge(name, message, found.values.get(name))
        for name, message in COUNTERS.items():
            yield self._counter(name, message, found.values.get(name))
        for name, message in STORE_GAUGES.items():
            if name in found.values:
                yield self._gauge(name, message, found.values[name])
        for name, message in STORE_COUNTERS.items():
            if name in found.values:
                yield self._counter(name, message, found.values[name])
        for name, (attribute, message) in MEMORY_GAUGES.items():
            yield self._gauge(name, f"{message}, {_OURS}", getattr(found.memory, attribute))
        for name, (attribute, message) in MEMORY_COUNTERS.items():
            yield self._counter(name, f"{message}, {_OURS}", getattr(found.memory, attribute))
        yield from self._worker(found.usage)

    def _worker(self, usage: ThreadUsage) -> Iterator[Metric]:
        cpu = CounterMetricFamily(
            "ref_worker_cpu_seconds", "Processor time of the worker thread", labels=[*self._labels, "mode"]
        )
        for mode, seconds in (("user", usage.user_seconds), ("system", usage.system_seconds)):
            cpu.add_metric([*self._labels.values(), mode], seconds)
        yield cpu
        yield self._counter("ref_page_faults_total", "Minor page faults of the worker thread", usage.page_faults)
        yield self._counter(
            "ref_worker_involuntary_switches_total",
            "Times the worker thread lost its processor",
            usage.involuntary_switches,
        )

    def _gauge(self, name: str, message: str, value: float | None, labels: Mapping[str, str] | None = None) -> Metric:
        together = {**self._labels, **(labels or {})}
        family = GaugeMetricFamily(name, message, labels=list(together))
        if value is not None:
            family.add_metric(list(together.values()), float(value))
        return family

    def _counter(self, name: str, message: str, value: float | None) -> Metric:
        family = CounterMetricFamily(name.removesuffix("_total"), message, labels=list(self._labels))
        if value is not None:
            family.add_metric(list(self._labels.values()), float(value))
        return family


class GcPauses:
    """Reports each pause of the garbage collector in seconds; a pause stops every thread that runs Python."""

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._observe = observe
        self._began: float | None = None

    def start(self) -> None:
        gc.callbacks.append(self._on_gc)

    def stop(self) -> None:
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)

    def _on_gc(self, phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            self._began = perf_counter()
        elif self._began is not None:
            self._observe(perf_counter() - self._began)
            self._began = None


async def heartbeat(observe_lag: Callable[[float], None], beat: Callable[[], None]) -> None:
    """Calls `beat` every BEAT seconds, and reports how late the event loop was. `beat` must not block."""
    while True:
        began = perf_counter()  # not the loop's own clock: uvloop's has whole milliseconds
        await asyncio.sleep(BEAT)
        observe_lag(max(0.0, perf_counter() - began - BEAT))
        beat()


def resident_bytes() -> float | None:
    """Resident memory of this process (proc(5), statm); None where there is no /proc."""
    try:
        return float(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError):
        return None


def threads() -> float | None:
    """Threads of this process, those of C libraries included; None where there is no /proc."""
    try:
        return float(len(os.listdir("/proc/self/task")))  # noqa: PTH208 - only their number
    except OSError:
        return None
