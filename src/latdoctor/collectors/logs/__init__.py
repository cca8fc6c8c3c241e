"""Driver and application logs."""

from __future__ import annotations

from latdoctor.collectors.base import Collector, SourceReader

NAME = "logs"
TITLE = "driver and application logs"
XID, SXID, GPU_LOST = "log.xid", "log.sxid", "log.gpu_lost"
CUDA_ERROR, DRIVER_MISMATCH, OOM_KILL = "log.cuda_error", "log.driver_mismatch", "log.oom_kill"
SIGNALS = (XID, SXID, GPU_LOST, CUDA_ERROR, DRIVER_MISMATCH, OOM_KILL)
# Reported when found, but never ruled out by a log without them.
DCGM_ERROR, ENGINE_SHAPE = "log.dcgm_error", "log.engine_shape"
GPU_LINES = (
    "gpu.access_error", "gpu.vgpu_unlicensed", "log.collective_error", "log.collective_timeout", "log.fabric_error",
    "log.no_gpu_found", "log.pcie_error", "collective.channels", "collective.network",
    "collective.peer_access_disabled", "collective.version", "offload.layer_share", "offload.layers",
    "offload.layers_total",
)  # fmt: skip
BY_CHANCE = (DCGM_ERROR, ENGINE_SHAPE, *GPU_LINES)
CHANGES = ("change.process_start", "change.model", "change.config", "change.deployment")


def _reader() -> SourceReader:
    from latdoctor.collectors.logs.collector import READER

    return READER


COLLECTOR = Collector(
    name=NAME,
    title=TITLE,
    signals=lambda: frozenset((*SIGNALS, *CHANGES, *BY_CHANCE)),
    is_requested=lambda request: bool(request.logs),
    reader=_reader,
    option="--log FILE",
    cost="reads a file",
    only_positive=frozenset(BY_CHANCE),
)
