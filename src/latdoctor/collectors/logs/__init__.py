"""Driver and application logs."""

from __future__ import annotations

from latdoctor.collectors.base import Collector, SourceReader

NAME = "logs"
TITLE = "driver and application logs"
XID, SXID, GPU_LOST = "log.xid", "log.sxid", "log.gpu_lost"
CUDA_ERROR, DRIVER_MISMATCH, OOM_KILL = "log.cuda_error", "log.driver_mismatch", "log.oom_kill"
SIGNALS = (XID, SXID, GPU_LOST, CUDA_ERROR, DRIVER_MISMATCH, OOM_KILL)
# Reported when found, but never ruled out by a log without them.
DCGM_ERROR, ENGINE_SHAPE, MEMORY_REFUSED = "log.dcgm_error", "log.engine_shape", "log.memory_refused"
GPU_LINES = (
    "gpu.access_error", "gpu.vgpu_unlicensed", "log.collective_error", "log.collective_timeout", "log.fabric_error",
    "log.host_failure", "log.no_gpu_found", "log.pcie_error", "collective.channels", "collective.network",
    "collective.peer_access_disabled", "collective.version", "offload.layer_share", "offload.layers",
    "offload.layers_total",
)  # fmt: skip
KUBELET = (
    "kube.crash_loop", "kube.evicted", "kube.image_pull_failed", "kube.node_not_ready", "kube.node_pressure",
    "kube.probe_failed", "kube.probe_kill",
)  # fmt: skip
BY_CHANCE = (DCGM_ERROR, ENGINE_SHAPE, MEMORY_REFUSED, *GPU_LINES, *KUBELET)
# The figures of failed allocations and of refused starts, where their messages state them.
MEMORY = (
    "oom.requested", "oom.device_total", "oom.device_free", "oom.process_used", "oom.other_used", "oom.allocated",
    "oom.reserved_unallocated", "oom.room_ratio", "start.memory_free", "start.memory_total", "start.memory_reserve",
    "start.kv_needed", "start.kv_available", "start.kv_tokens", "start.sequence_tokens", "start.prefill_tokens",
    "log.cpu_fallback", "log.dependency_slow", "offload.nodes_cpu", "offload.nodes_gpu", "offload.memcpy_nodes",
    "log.fatal_error", "log.recompile", "log.recompile_limit", "log.slow_callback",
)  # fmt: skip
CHANGES = ("change.process_start", "change.model", "change.config", "change.deployment")
# What the engines' own lines show (engines/*.yaml), where a log has such lines.
ENGINE_SIGNALS = (
    "batch.tokens", "batch.tokens.mean", "compute.infer.mean", "compute.time", "compute.time.mean",
    "config.context_length", "config.gpu_memory_share", "decode.time", "decode.time.mean",
    "image_cache.hit_ratio", "input.length", "input.length.mean", "input.token_rate", "iteration.time",
    "iteration.time.mean", "kv.blocks", "kv.blocks_free", "kv.blocks_used", "kv.hit_ratio", "kv.host_usage",
    "kv.longest_requests", "kv.preemption_rate", "kv.retracted", "kv.tokens", "kv.tokens_used", "kv.usage",
    "latency", "latency.mean", "level.onset", "log.connection_awaited", "log.engine_dead", "log.engine_timeout",
    "log.kernel_compiled", "log.kv_full", "log.kv_transfer_failed", "log.model_failed", "log.model_loaded",
    "log.model_missing", "log.pool_fallback", "log.prefix_cache_lost", "log.queue_full", "log.replica_delayed",
    "log.slot_awaited", "log.upstream_error", "log.worker_killed", "model.load_time", "output.length",
    "output.length.mean", "output.token_rate", "postprocess.time.mean", "prefill.time",
    "prefill.time.mean", "prefix_cache.hit_ratio", "prefix_cache.remote_hit_ratio", "preprocess.time.mean",
    "queue.depth", "queue.time", "queue.time.mean", "queue.tokens", "requests.in_decode", "requests.in_prefill",
    "requests.limit", "requests.running", "requests.scheduled", "requests.swapped", "server.gpu_memory_ratio",
    "server.gpu_utilization", "server.host_cpu", "server.host_disk_ratio", "server.host_memory_ratio",
    "speculation.acceptance_ratio", "tpot", "tpot.mean", "transfer.sending", "transfer.unallocated",
    "transfer.waiting", "worker.load_time",
)  # fmt: skip


def _reader() -> SourceReader:
    from latdoctor.collectors.logs.collector import READER

    return READER


COLLECTOR = Collector(
    name=NAME,
    title=TITLE,
    signals=lambda: frozenset((*SIGNALS, *CHANGES, *BY_CHANCE, *ENGINE_SIGNALS, *MEMORY)),
    is_requested=lambda request: bool(request.logs),
    reader=_reader,
    option="--log FILE",
    cost="reads a file",
    only_positive=frozenset((*BY_CHANCE, *ENGINE_SIGNALS, *MEMORY)),
)
