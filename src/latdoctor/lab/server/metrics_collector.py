"""Prometheus collector of the server's state at scrape time: gauges, and counters of other components."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from latdoctor.lab.server.memory.pool import MemoryStats
from latdoctor.lab.server.worker import ThreadUsage


class ServerStateReader(Protocol):
    """The server's state for the collector, read on the metrics thread."""

    def info(self) -> dict[str, str]: ...
    def memory(self) -> MemoryStats: ...
    def usage(self) -> ThreadUsage: ...
    def figures(self) -> dict[str, float | None]:
        """Values by the names of `GAUGES` and `COUNTERS` below that come from nowhere else."""


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
}
COUNTERS = {
    "ref_compiles_total": "Times the model was compiled for a shape",
    "ref_compile_seconds_total": "Time spent on that",
    "ref_process_cpu_seconds_total": "Processor time of the process, all of its threads",
    "ref_worker_restarts_total": "Workers that were lost and replaced",
}
_OURS = "of the buffers that the server takes (inputs, padded batches); torch's own temporaries are not among them"
MEMORY_GAUGES = {
    "ref_device_segments": ("segments", "Segments held"),
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
    """Turns a ServerStateReader into samples with the fixed labels. What the backend cannot count has no sample."""

    def __init__(self, state: ServerStateReader, fixed: tuple[str, str]) -> None:
        self._state = state
        self._labels = {"replica": fixed[0], "backend": fixed[1]}

    def collect(self) -> Iterator[Metric]:
        yield self._sample(GaugeMetricFamily, "ref_info", "What runs here", 1, self._state.info())
        figures = self._state.figures()
        for name, message in GAUGES.items():
            yield self._sample(GaugeMetricFamily, name, message, figures.get(name))
        for name, message in COUNTERS.items():
            yield self._sample(CounterMetricFamily, name, message, figures.get(name))
        yield from self._memory(self._state.memory())
        yield from self._worker(self._state.usage())

    def _memory(self, memory: MemoryStats) -> Iterator[Metric]:
        for name, (attribute, message) in MEMORY_GAUGES.items():
            yield self._sample(GaugeMetricFamily, name, f"{message}, {_OURS}", getattr(memory, attribute))
        for name, (attribute, message) in MEMORY_COUNTERS.items():
            yield self._sample(CounterMetricFamily, name, f"{message}, {_OURS}", getattr(memory, attribute))

    def _worker(self, usage: ThreadUsage) -> Iterator[Metric]:
        cpu = CounterMetricFamily(
            "ref_worker_cpu_seconds", "Processor time of the worker thread", labels=[*self._labels, "mode"]
        )
        for mode, seconds in (("user", usage.user_seconds), ("system", usage.system_seconds)):
            cpu.add_metric([*self._labels.values(), mode], seconds)
        yield cpu
        counted = CounterMetricFamily
        yield self._sample(
            counted, "ref_page_faults_total", "Minor page faults of the worker thread", float(usage.page_faults)
        )
        yield self._sample(
            counted,
            "ref_worker_involuntary_switches_total",
            "Times the worker thread lost its processor",
            float(usage.involuntary_switches),
        )

    def _sample(
        self,
        kind: Callable[..., Metric],
        name: str,
        message: str,
        value: float | None,
        labels: dict[str, str] | None = None,
    ) -> Metric:
        together = {**self._labels, **(labels or {})}
        family = kind(name.removesuffix("_total"), message, labels=list(together))
        if value is not None:
            family.add_metric(list(together.values()), float(value))  # type: ignore[attr-defined]  # both kinds have it
        return family
