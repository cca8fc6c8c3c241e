"""Vital signs in words: what was observed, and the key numbers with their meaning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from itertools import islice

from rich.cells import cell_len

from latdoctor.diagnosis.result import Diagnosis, Vital
from latdoctor.evidence.model import CoverageStatus
from latdoctor.report import cluster_signs, engine_signs, gpu_signs, log_signs
from latdoctor.report.text_utils import WIDTH, wrapped, wrapped_parts

# How a vital sign is said; {} is its value with the unit.
PHRASES = {
    "latency.p99": "P99 {}",
    "client.latency.p99": "P99 {} at the client",
    "latency.mean": "mean latency {}",
    "client.latency.mean": "mean latency {} at the client",
    "http.latency.mean": "mean latency {} at the HTTP layer",
    "http.latency.p99": "P99 {} at the HTTP layer",
    "request.count": "{} requests",
    "ttft.p99": "time to first token P99 {}",
    "ttft.mean": "mean time to first token {}",
    "tpot.p99": "time per output token P99 {}",
    "tpot.mean": "mean time per output token {}",
    "itl.p99": "time between tokens P99 {}",
    "itl.mean": "mean time between tokens {}",
    "step.duration.mean": "mean step {}",
    "error.ratio": "errors {}",
    "client.error_ratio": "errors {} at the client",
    "arrival.rate": "{} requests arrive",
    "completion.rate": "{} answered",
    "timeout.limit": "requests cut off at {}",
    "client.timeout_limit": "clients give up at {}",
    "upstream.retry_share": "{} sent to a second server",
    "queue.depth": "{} waiting",
    "queue.time.mean": "mean wait {}",
    "compute.time.mean": "mean compute time {}",
    "compute.infer.mean": "{} of compute in the model",
    "requests.running": "{} running",
    "kv.usage": "KV cache {} full",
    "kv.preemption_rate": "{} preempted",
    "batch.size.mean": "mean batch {}",
    "forward.utilization": "model busy {}",
    "gpu.busy_ratio": "GPU busy {}",
    "gpu.utilization": "GPU utilization {}",
    "gpu.memory_used_ratio": "GPU memory {} used",
    "gpu.temperature": "GPU {}",
    "gpu.sm_clock_ratio": "SM clock {} of its maximum",
    "gpu.power_ratio": "power {} of the limit",
    **gpu_signs.PHRASES,
    "trace.span": "trace of {}",
    "trace.kernels": "{} kernels",
    "copy.time_share": "memory copies (memcpy) {} of the time",
    "sync.idle_share": "host blocked while the GPU was idle {} of the time",
    "launch.api_share": "launch calls {} of the time",
    "engine.latency.median": "median run with its copies {}",
    "engine.latency.p99": "P99 {} of a run",
    "engine.throughput": "throughput {}",
    "engine.layer_time": "all layers {}",
    "engine.compute.median": "median run on the GPU {}",
    "engine.enqueue.median": "median time to enqueue a run {}",
    "engine.layers": "{} layers",
    "engine.reformat.time_share": "layout and type conversions {} of layer time",
    "engine.fp32.time_share": "FP32 layers {} of layer time",
    "alloc.reserved": "{} reserved",
    "alloc.allocated": "{} allocated",
    "alloc.inactive_split_ratio": "{} of it lost to fragmentation",
    "alloc.ooms": "{} failed allocations",
    "alloc.retries": "{} retried allocations",
    "gateway.timeout_rate": "{} cut off by the gateway's time-out",
    "gateway.reset_rate": "{} reset by the server",
    "cgroup.cpu.throttled_ratio": "CPU quota exhausted in {} of the periods",
    "cgroup.memory.used_ratio": "container memory {} of its limit",
    "pod.pending": "{} pods pending",
    "pod.ready": "{} pods ready",
    "pod.restarts": "{} restarts",
    "node.ready": "{} nodes ready",
    "hpa.replicas": "autoscaler at {} replicas",
    "hpa.metric_ratio": "its metric at {} times the target",
    "kube.container_ended": "last end {}",
    "kube.unschedulable": "no node {}",
    "kube.probe_failed": "failed probe: {}",
    "workload.replicas_ready": "{} replicas ready",
    "container.memory.used": "container memory {}",
    "container.cpu.used": "container CPU {} processors",
    "container.oom_kills": "{} processes killed for memory since the start",
    "pod.memory.used": "pod memory {}",
    "node.memory.used_ratio": "node memory {} used",
    "node.cpu.used_ratio": "node CPU {} used",
    "node.memory.requested_ratio": "{} of a node's memory requested",
    "node.cpu.requested_ratio": "{} of its CPU requested",
    "node.taints": "taints {}",
    "quota.used_ratio": "quota {} used",
    "container.memory.limit": "memory limit {}",
    "container.cpu.limit": "CPU limit {} processors",
    "cluster.gpus_free": "{} free",
    "node.gpus_allocatable": "{} GPUs on the nodes",
    "node.gpus_requested": "{} GPUs requested",
    "log.cpu_fallback": "computes on the CPU by fallback ({} warnings)",
    "offload.memcpy_nodes": "{} copies added between CPU and GPU nodes",
    "offload.nodes_cpu": "{} nodes on the CPU",
    "offload.nodes_gpu": "{} nodes on the GPU",
    "profile.host_time": "{} of the host in operators",
    "profile.gpu_time": "{} of the GPU",
    "log.fatal_error": "{} fatal errors of Python",
    "log.recompile": "{} recompilations by torch.compile",
    "log.recompile_limit": "torch.compile gave up ({} times)",
    "environment.cuda_available": "PyTorch cannot use CUDA",
    "environment.pytorch": "PyTorch {}",
    "environment.cuda_build": "built for CUDA {}",
    "environment.gpus": "{}",
    "stack.gil_holder": "GIL held by {}",
    "stack.main_thread": "main thread {}",
    "stack.threads": "{} Python threads",
    "stack.active_threads": "{} of them active",
    "stack.unchanged_active_threads": "{} active in the same place in every dump",
    "oom.requested": "an allocation of {} failed",
    "oom.device_free": "{} of the GPU free",
    "oom.reserved_unallocated": "{} held without use",
    "oom.other_used": "{} held by other processes",
    "start.memory_free": "{} of the GPU free at the start",
    "start.memory_reserve": "{} to be reserved",
    "start.kv_needed": "{} of KV cache needed",
    "start.kv_available": "{} left for it",
    "start.sequence_tokens": "sequences of up to {} tokens configured",
    "start.kv_tokens": "KV cache for {} tokens",
    "log.memory_refused": "refused to start for lack of GPU memory ({})",
    "host.cpu.busy_ratio": "CPU {} busy",
    "host.memory.available_ratio": "{} of memory available",
    "host.disk.wait": "{} for a request at the busiest disk",
    "host.filesystem.free_ratio": "{} free in the fullest file system",
    "host.tcp.retransmit_ratio": "{} of TCP segments sent again",
    "host.conntrack.used_ratio": "{} of the connection table in use",
    "host.clock.offset": "clock off by {}",
    "client.latency.p95": "P95 {} at the client",
    "client.latency.p50": "P50 {} at the client",
    "client.latency.max": "slowest request {} at the client",
    "client.request_rate": "{} requests sent by the client",
    "output.token_rate": "{} output tokens",
    "input.token_rate": "{} input tokens",
    "prefix_cache.hit_ratio": "prefix cache hits {}",
    "latency.p50": "P50 {}",
    "latency.p95": "P95 {}",
}
_PARTS = {
    "stage.time_share": "time of a request by stage: {}",
    "tail.share": "what the slowest requests take longer, by stage: {}",
    "kernel.kind_share": "GPU time by kind of kernel: {}",
    "operator.gpu_share": "GPU time by operator: {}",
    "request.failure_share": "requests failed: {}",
    "gap.host_share": "while the GPU has no work, the host is in: {}",
    "call.time_share": "time in CUDA calls: {}",
    "stack.frame_share": "threads are in: {}",
    "ncu.compute_throughput": "compute throughput over its peak: {}",
    "ncu.memory_throughput": "memory throughput over its peak: {}",
    "trace.rule_matches": "rows found by nsys analyze: {}",
    **gpu_signs.PARTS,
}
HOST_ACTIVITY = {
    "none": "no CUDA call",
    "launch": "launches",
    "copy": "copies",
    "synchronise": "synchronization",
    "allocate": "allocation",
}
# Vital signs that say by themselves that something is wrong: failures, restarts, and less ready than there should be.
_BUSY, IDLE = 0.9, 0.5
# Shares that say something only where they are large.
_MINOR = {"copy.time_share", "sync.idle_share", "launch.api_share", "upstream.retry_share"}
_MINOR_BELOW = 0.01
_FILES = {
    "torch_trace": "trace",
    "nsight": "trace",
    "logs": "log",
    "access_log": "request log",
    "torch_memory": "memory snapshot",
    "tensorrt": "engine",
}
_HARM = (
    "latency.p99",
    "client.latency.p99",
    "latency.mean",
    "error.ratio",
    "client.error_ratio",
    "arrival.rate",
    "completion.rate",
)
P99 = ("latency.p99", "client.latency.p99")  # latencies that the SLO is about
RATES = ("arrival.rate", "completion.rate")
_MEANS = ("latency.mean", "client.latency.mean", "ttft.p99")  # where no P99 of whole answers is known
_MAX_LINES = 6
_JOINED_LINES, _DATED_LINES = 2, 3  # phrases with the time of a change are longer
_CLIENT_LINES = 4


def headline_latency(diagnosis: Diagnosis) -> Vital | None:
    """The latency in the verdict line; None where no latency was measured."""
    signs = {one.signal: one for one in diagnosis.vitals}
    return next((signs[name] for name in (*P99, *_MEANS) if name in signs), None)


def phrase(sign: Vital) -> str:
    """`P99 2.48 s`."""
    return quantity(sign.signal, sign.shown)


def quantity(signal: str, shown: str) -> str:
    """`shown` with the name of its quantity: `P99 2.48 s`; as it is for a signal that is no vital sign."""
    text = PHRASES.get(signal, "{}").format(shown)
    return text.removesuffix("s") if shown == "1" else text


def measured(diagnosis: Diagnosis) -> Iterator[str]:
    """What was measured although nothing is named: at most six lines, those already in the headline left out."""
    return islice(_measured(diagnosis), _MAX_LINES)


def _measured(diagnosis: Diagnosis) -> Iterator[str]:
    singles = [one for one in diagnosis.vitals if not one.part]
    compute_bound = False
    busy = next((one for one in singles if one.signal == "gpu.busy_ratio"), None)
    if busy and not isinstance(busy.value, str):
        compute_bound = busy.value >= _BUSY
        yield from wrapped(f"GPU busy {busy.shown}{_meaning(busy.value)}", " ", "   ")
    best = headline_latency(diagnosis)
    headline = {*_HARM, *P99, *([best.signal] if best else [])}
    if not any(one.signal in RATES for one in singles):
        headline.add("request.count")
    shown = PHRASES.keys() - {*headline, "gpu.busy_ratio"}
    yield from cluster_signs.lines(diagnosis)
    if reports := gpu_signs.reports(diagnosis):
        yield from wrapped(reports, " ", "   ")[:2]
    if events := engine_signs.events(diagnosis):
        yield from wrapped(events, " ", "   ")[:2]
    known = {one.signal for one in singles}
    signs = [one for one in singles if one.signal in shown and not _is_minor(one) and not _is_repeated(one, known)]
    said = [engine_signs.dated(diagnosis, one, phrase(one) + gpu_signs.place(one)) for one in signs]
    for signal, template in _PARTS.items():
        shares = [f"{_part_name(signal, one.part)} {one.shown}" for one in diagnosis.vitals if one.signal == signal]
        if shares and not (signal == "gap.host_share" and compute_bound):
            yield from wrapped_parts(template, shares, " ", "   ", 2)
    most = _DATED_LINES if any(one.since for one in signs) else _JOINED_LINES
    # The numbers of a load test are all that is known of it.
    yield from _joined(said, _CLIENT_LINES if best and best.signal.startswith("client.") else most)
    for line in log_signs.lines(diagnosis):
        yield from wrapped(line, " ", "   ")[:2]


def _part_name(signal: str, part: str) -> str:
    if signal in ("stage.time_share", "tail.share"):
        return "no stage" if part in ("none", "other") else part
    return HOST_ACTIVITY.get(part, part)


def _is_minor(sign: Vital) -> bool:
    return sign.signal in _MINOR and not isinstance(sign.value, str) and sign.value < _MINOR_BELOW


def _is_repeated(sign: Vital, known: Set[str]) -> bool:
    """Whether it is the mean of a time whose P99 is shown: the room is for load, queue and cache."""
    return sign.signal.endswith(".mean") and sign.signal.removesuffix("mean") + "p99" in known


def _joined(phrases: Sequence[str], most: int) -> Iterator[str]:
    """As many of the phrases as fit in `most` lines; a line ends between two phrases."""
    line, lines = "", 0
    for phrase in phrases:
        longer = f"{line} · {phrase}" if line else f" {phrase}"
        if cell_len(longer) <= WIDTH:
            line = longer
            continue
        yield line
        line, lines = f" {phrase}", lines + 1
        if lines == most:
            return
    if line:
        yield line


def _meaning(busy: float) -> str:
    if busy >= _BUSY:
        return ": the GPU is the limit, not the host"
    return ": most of the time it waits for work" if busy < IDLE else ""


def file_noun(diagnosis: Diagnosis) -> str:
    """The kind of file where nothing but files of one kind was read: `trace`; empty for live sources."""
    read = {row.collector for row in diagnosis.coverage if row.status in (CoverageStatus.READ, CoverageStatus.PARTLY)}
    return _FILES.get(next(iter(read)), "") if len(read) == 1 else ""
