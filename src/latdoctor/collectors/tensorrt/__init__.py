"""Output of trtexec for TensorRT engines: layers, their times, the time of each run, and the build log."""

from __future__ import annotations

from latdoctor.collectors.base import Collector, SourceReader

NAME = "tensorrt"
TITLE = "TensorRT engines"
SIGNALS = (
    "engine.layers", "engine.bits", "engine.input", "engine.quantising.layer_share", "engine.reformat.count",
    "engine.converting.count", "engine.quantising.count", "engine.float_out.count", "engine.pointwise.count",
    "engine.fp32.count", "engine.no_tensor_cores.count", "engine.fallback.count", "engine.reformat.time_share",
    "engine.converting.time_share", "engine.quantising.time_share", "engine.float_out.time_share",
    "engine.pointwise.time_share", "engine.fp32.time_share", "engine.no_tensor_cores.time_share",
    "engine.fallback.time_share", "engine.compute.median", "engine.enqueue.median", "engine.enqueue_ratio",
    "engine.copy_ratio", "engine.rejected", "engine.unconstrained", "engine.reformats_needed",
    "engine.shape_refused", "engine.foreign_device", "engine.layer_time", "engine.device", "engine.precision",
)  # fmt: skip
# What only a log states.
PRINTED = (
    "engine.latency.mean", "engine.latency.median", "engine.latency.p99", "engine.latency.max", "engine.compute.p99",
    "engine.throughput", "engine.compute_variation", "engine.gpu_share", "engine.tactics_skipped",
    "engine.dla_fallback",
)  # fmt: skip


def _reader() -> SourceReader:
    from latdoctor.collectors.tensorrt.collector import READER

    return READER


COLLECTOR = Collector(
    name=NAME,
    title=TITLE,
    signals=lambda: frozenset((*SIGNALS, *PRINTED)),
    is_requested=lambda request: bool(request.tensorrt),
    reader=_reader,
    option="--tensorrt FILE",
    cost="reads a file",
)
