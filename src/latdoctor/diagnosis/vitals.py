"""The key numbers of what was measured: said whether or not a finding fired.

For a service: latency, errors, load, queue, batches. For a profiler trace: how busy the GPU is and what with. For an
engine, an allocator or a machine: what an engineer looks at first. Each is the worst of all subjects; rates and counts
are added up over the subjects of one kind (models, replicas), the kind that shows most: a router counts the requests of
its replicas again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from latdoctor.conditions.evaluator import show
from latdoctor.diagnosis.cluster_troubles import cluster_troubles
from latdoctor.diagnosis.cluster_vitals import cluster_vitals
from latdoctor.diagnosis.engine_vitals import dated, engine_events, level_changes
from latdoctor.diagnosis.framework_vitals import framework_texts
from latdoctor.diagnosis.gpu_link_vitals import links, processes
from latdoctor.diagnosis.gpu_vitals import gpu_events, gpu_numbers, gpu_troubles
from latdoctor.diagnosis.result import Vital
from latdoctor.evidence.model import Event, Evidence, Reading, is_unknown, kind_of

Worst = Callable[[Sequence[float]], float]

# Signals in the order in which they are shown, and which of several subjects is the worst.
_SINGLE: dict[str, Worst] = {
    "latency.p99": max,
    "client.latency.p99": max,
    "latency.mean": max,
    "request.count": sum,
    "latency.p50": max,
    "latency.p95": max,
    "ttft.p99": max,
    "ttft.mean": max,
    "tpot.p99": max,
    "tpot.mean": max,
    "error.ratio": max,
    "client.error_ratio": max,
    "arrival.rate": sum,
    "completion.rate": sum,
    "timeout.limit": max,
    "client.timeout_limit": max,
    "upstream.retry_share": max,
    "queue.depth": max,
    "queue.time.mean": max,
    "compute.time.mean": max,
    "requests.running": sum,
    "kv.usage": max,
    "kv.preemption_rate": sum,
    "output.token_rate": sum,
    "prefix_cache.hit_ratio": min,
    "batch.size.mean": min,
    "forward.utilization": max,
    "gpu.busy_ratio": min,
    "gpu.utilization": max,
    "gpu.memory_used_ratio": max,
    "gpu.temperature": max,
    "gpu.sm_clock_ratio": min,
    "gpu.power_ratio": max,
    "trace.span": max,
    "trace.kernels": max,
    "copy.time_share": max,
    "sync.idle_share": max,
    "launch.api_share": max,
    "engine.latency.median": max,
    "engine.latency.p99": max,
    "engine.throughput": min,
    "engine.compute.median": max,
    "engine.enqueue.median": max,
    "engine.layer_time": max,
    "engine.layers": max,
    "engine.reformat.time_share": max,
    "engine.fp32.time_share": max,
    "alloc.reserved": max,
    "alloc.allocated": max,
    "alloc.inactive_split_ratio": max,
    "alloc.ooms": max,
    "alloc.retries": max,
    "offload.memcpy_nodes": max,
    "offload.nodes_cpu": max,
    "offload.nodes_gpu": min,
    "profile.host_time": max,
    "profile.gpu_time": max,
    "stack.threads": max,
    "stack.active_threads": max,
    "stack.unchanged_active_threads": max,
    "oom.requested": max,
    "oom.device_free": max,
    "oom.reserved_unallocated": max,
    "oom.other_used": max,
    "start.memory_free": min,
    "start.memory_reserve": max,
    "start.kv_needed": max,
    "start.kv_available": min,
    "start.sequence_tokens": max,
    "start.kv_tokens": min,
    "gateway.timeout_rate": sum,
    "gateway.reset_rate": sum,
    "cgroup.cpu.throttled_ratio": max,
    "cgroup.memory.used_ratio": max,
    "host.cpu.busy_ratio": max,
    "host.memory.available_ratio": min,
    "host.disk.wait": max,
    "host.filesystem.free_ratio": min,
    "host.tcp.retransmit_ratio": max,
    "host.conntrack.used_ratio": max,
    "host.clock.offset": lambda values: max(values, key=abs),
    "client.latency.mean": max,
    "client.latency.p95": max,
    "client.latency.p50": max,
    "client.request_rate": max,
    "input.token_rate": sum,
    "compute.infer.mean": max,
}
# Only of request logs, which have no more important numbers.
_OF_REQUESTS = {"latency.p50", "latency.p95"}
# Numbers of a time: those of a log that ends where the watch begins are not of the time that the answer is about.
_OF_THE_TIME = {
    "latency.p99", "latency.mean", "latency.p50", "latency.p95", "request.count", "error.ratio", "arrival.rate",
    "completion.rate", "queue.depth", "output.token_rate", "input.token_rate", "requests.running",
}  # fmt: skip
_OVERLAP = 1.0  # seconds
# Shares of a whole: the largest three parts, named by a label.
_PARTS = {
    "stage.time_share": "stage",
    "tail.share": "stage",
    "kernel.kind_share": "kind",
    "operator.gpu_share": "operator",
    "gap.host_share": "host",
    "request.failure_share": "reason",
    "call.time_share": "call",
    "stack.frame_share": "frame",
    "ncu.compute_throughput": "kernel",
    "ncu.memory_throughput": "kernel",
    "trace.rule_matches": "rule",
}
_STAGES = ("stage.time_share", "tail.share")  # of one subject: shares of several do not add up
_FEW = 100.0  # requests that a P99 needs
_MAX_PARTS = 3
# Events of which only the presence says something.
_REPORTED = (
    "log.cpu_fallback",
    "log.fatal_error",
    "log.memory_refused",
    "log.recompile",
    "log.recompile_limit",
)
# Errors that a log reports, whether or not a finding judges them.
ERRORS = (
    "log.xid",
    "log.sxid",
    "log.gpu_lost",
    "log.cuda_error",
    "log.driver_mismatch",
    "log.oom_kill",
    "log.dcgm_error",
)
_LEAST_PART = 0.01


def vitals(evidence: Evidence) -> tuple[Vital, ...]:
    """The vital signs in `evidence`, in the order of importance; a signal that nothing shows is left out."""
    return (
        *_singles(evidence),
        *gpu_troubles(evidence),
        *links(evidence),
        *gpu_numbers(evidence),
        *cluster_troubles(evidence),
        *processes(evidence),
        *cluster_vitals(evidence),
        *_parts(evidence),
        *framework_texts(evidence),
        *_happened(evidence),
        *gpu_events(evidence),
        *engine_events(evidence),
        *_searched(evidence),
    )


def _singles(evidence: Evidence) -> Iterator[Vital]:
    moved = level_changes(evidence)
    watched = _watched_since(evidence)
    for signal, worst in _SINGLE.items():
        found = [one for one in evidence.readings_by_signal.get(signal, ()) if not one.labels and _is_number(one)]
        if watched is not None and signal in _OF_THE_TIME:
            found = [one for one in found if one.window.end is None or one.window.end > watched + _OVERLAP]
        if not found or (signal in _OF_REQUESTS and "request.count" not in evidence.readings_by_signal):
            continue
        newest = _newest(found)
        values = {subject: _number(one) for subject, one in newest.items()}
        if worst is sum:
            yield dated(_total(signal, values), moved)
            continue
        value = worst(list(values.values()))
        subject = next(name for name, number in values.items() if number == value)
        shown = show(signal, value, newest[subject].bound)
        yield dated(Vital(signal, subject, value, f"{shown}{_few(evidence, signal, subject)}"), moved)


def _watched_since(evidence: Evidence) -> float | None:
    """When the watch over live servers began; None where none was watched."""
    starts = [one.window.start for one in evidence.readings_by_signal.get("server.answering", ())]
    known = [start for start in starts if start is not None]
    return min(known) if known else None


def _few(evidence: Evidence, signal: str, subject: str) -> str:
    """` (of 30 requests)` behind a P99 of a load test that had too few of them for it."""
    if not signal.endswith(".p99"):
        return ""
    counts = [one for one in evidence.readings_by_signal.get("client.requests", ()) if one.subject == subject]
    few = [_number(one) for one in counts if _is_number(one) and 0 < _number(one) < _FEW]
    return f" (of {few[-1]:.0f} requests)" if few else ""


def _total(signal: str, values: Mapping[str, float]) -> Vital:
    """The sum over the subjects of the kind that shows most; its subject is that kind where there are several."""
    kinds: dict[str, list[str]] = {}
    for subject in values:
        kinds.setdefault(kind_of(subject), []).append(subject)
    kind, subjects = max(kinds.items(), key=lambda item: sum(values[name] for name in item[1]))
    value = sum(values[name] for name in subjects)
    return Vital(signal, subjects[0] if len(subjects) == 1 else kind, value, show(signal, value))


def _newest(readings: Sequence[Reading]) -> dict[str, Reading]:
    """The last reading of each subject: of a series of pages the newest counts."""
    return {one.subject: one for one in readings}


def _parts(evidence: Evidence) -> Iterator[Vital]:
    for signal, label in _PARTS.items():
        found = [
            one
            for one in evidence.readings_by_signal.get(signal, ())
            if _is_number(one) and dict(one.labels).get(label)
        ]
        found.sort(key=_number, reverse=True)
        if signal in _STAGES:
            found = [one for one in found if one.subject == _slowest(evidence, found)]
        for one in [one for one in found if _number(one) >= _LEAST_PART][:_MAX_PARTS]:
            yield Vital(signal, one.subject, one.value, show(signal, one.value), dict(one.labels)[label])


def _slowest(evidence: Evidence, found: Sequence[Reading]) -> str:
    """Of the subjects of `found` that are no part of another the one with the longest mean latency."""
    subjects = dict.fromkeys(one.subject for one in found)
    outer = [name for name in subjects if not set(evidence.lineage(name)[1:]) & subjects.keys()]
    latency = {one.subject: _number(one) for one in evidence.readings_by_signal.get("latency.mean", ())}
    return max(outer or subjects, key=lambda name: latency.get(name, 0.0), default="")


def _happened(evidence: Evidence) -> Iterator[Vital]:
    """How often that happened which is not searched for: nothing follows from its absence."""
    for signal in _REPORTED:
        events = evidence.events_by_signal.get(signal, ())
        if events:
            yield Vital(signal, events[0].subject, float(len(events)), str(len(events)))


def _searched(evidence: Evidence) -> Iterator[Vital]:
    """How many events of each kind a log has: where it was searched for them, and where it has them anyway."""
    searched = {signal: subject for signal, subject in reversed(evidence.looked) if signal.startswith("log.")}
    found = {signal: events for signal in ERRORS if (events := evidence.events_by_signal.get(signal, ()))}
    for signal in dict.fromkeys((*(name for name, _ in evidence.looked if name in searched), *found)):
        events = found.get(signal) or evidence.events_by_signal.get(signal, ())
        subject = searched.get(signal) or events[0].subject
        yield Vital(signal, subject, float(len(events)), str(len(events)), _kinds(events))


def _kinds(events: Sequence[Event]) -> str:
    """`cudaErrorECCUncorrectable`, `79, 154`: what the first few kinds of `events` are called."""
    named = (next((one.fields[key] for key in ("name", "code") if key in one.fields), "") for one in events)
    kinds = list(dict.fromkeys(value if isinstance(value, str) else f"{value:g}" for value in named if value != ""))
    return ", ".join([*kinds[:_MAX_PARTS], *([f"{len(kinds) - _MAX_PARTS} more"] if len(kinds) > _MAX_PARTS else [])])


def _is_number(reading: Reading) -> bool:
    return not isinstance(reading.value, str) and not is_unknown(reading.value)


def _number(reading: Reading) -> float:
    return reading.value if not isinstance(reading.value, str) else 0.0
