"""The figures of one engine, from all its files. Pure; times in seconds."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from latdoctor.collectors.tensorrt.build_log import BuildLog
from latdoctor.collectors.tensorrt.file_formats import (
    Document,
    EngineLayer,
    EngineMetadata,
    LayerInfo,
    LayerProfile,
    RunTimes,
    Tensor,
)
from latdoctor.collectors.tensorrt.performance_summary import COMPUTE, D2H, ENQUEUE, H2D, MEDIAN, PerformanceSummary

FP32, FP16, BF16, FP8, INT8 = "FP32", "FP16", "BF16", "FP8", "INT8"
# What a type is called in formats, by the number of its bits.
BITS: Mapping[str, int] = {"FP4": 4, "INT4": 4, INT8: 8, FP8: 8, FP16: 16, BF16: 16, FP32: 32}
_CALLED = {"FLOAT": FP32, "HALF": FP16, "BFLOAT16": BF16, "TF32": FP32, "E4M3": FP8}
_TYPE = re.compile(r"\b(FP32|TF32|FP16|BF16|BFLOAT16|FP8|E4M3|FP4|INT8|INT4|FLOAT|HALF)\b", re.IGNORECASE)

# Convolutions and matrix products: what tensor cores are for, and where a wider type costs.
_HEAVY = re.compile(r"conv|gemm|matrixmultiply|matmul|fullyconnected|\bfc\b", re.IGNORECASE)
# Element by element; the builder puts these into the layer before them where it can.
_POINTWISE = re.compile(r"^(?:elementwise|pointwise\w*|activation|scale|unary)$", re.IGNORECASE)
# The instructions of tensor cores in names of tactics. trt-engine-explorer knows imma, hmma, xmma, i88 and 884; cuDNN's
# own kernels name the shape of the instruction instead (h16816, s1688).
_TENSOR_CORES = re.compile(
    r"[ihgq]mma|xmma|mma_sync|wgmma|i88|884|[hsi]?1688|16816|16832|tensor\d|tensorop", re.IGNORECASE
)
_FEW_CHANNELS = 32  # below, tensor cores do not pay and are rightly not used


@dataclass(frozen=True, slots=True)
class LayerShare:
    """Some of an engine's layers: how many, their time (None without a profile), and names of the dearest."""

    count: int
    time: float | None
    named: tuple[str, ...]


def type_of(tensor: Tensor) -> str:
    """`FP32`, `INT8` …; empty if the format has none, or for whole numbers."""
    found = _TYPE.search(tensor.form)
    if found is None:
        return ""
    name = found[1].upper()
    return _CALLED.get(name, name)


def is_reformat(layer: EngineLayer) -> bool:
    """By its type: what quantises is a Reformat as well, and is named QuantizeLinear_…"""
    return layer.kind == "Reformat"


def is_unfused_quantisation(layer: EngineLayer) -> bool:
    """A quantisation or its reverse that is a layer by itself: as a Reformat, or a Scale with one INT8 side."""
    if is_reformat(layer):
        return layer.origin.upper() == "QDQ"
    return layer.kind == "Scale" and (_types(layer.inputs) == {INT8}) != (_types(layer.outputs) == {INT8})


def is_converting(layer: EngineLayer) -> bool:
    """A Reformat between two types, not only between two layouts of one."""
    sides = (_types(layer.inputs), _types(layer.outputs))
    return is_reformat(layer) and all(sides) and sides[0] != sides[1]


def is_heavy(layer: EngineLayer) -> bool:
    return bool(_HEAVY.search(layer.kind) or _HEAVY.search(layer.parameter)) and not is_reformat(layer)


def is_pointwise(layer: EngineLayer) -> bool:
    return bool(_POINTWISE.match(layer.kind))


def is_wide(layer: EngineLayer) -> bool:
    """Heavy, with FP32 in and out."""
    return is_heavy(layer) and _first(layer.inputs) == FP32 and _first(layer.outputs) == FP32


def gives_float(layer: EngineLayer) -> bool:
    """Heavy, with INT8 in and floating point out: the quantisation that should follow was not fused into it."""
    return is_heavy(layer) and _first(layer.inputs) == INT8 and _first(layer.outputs) in (FP32, FP16, BF16)


def is_without_tensor_cores(layer: EngineLayer) -> bool:
    """Heavy, in a narrow type, with a tactic that names no tensor-core instruction; few channels excuse it."""
    kind = _first(layer.inputs)
    if not is_heavy(layer) or not layer.tactic or kind in (FP32, "") or _TENSOR_CORES.search(layer.tactic):
        return False
    return not any(len(tensor.size) >= 2 and 0 < tensor.size[1] < _FEW_CHANNELS for tensor in layer.inputs[:1])


def narrowest(layers: Iterable[EngineLayer]) -> int | None:
    """The bits of the narrowest type that a heavy layer computes in."""
    return min(
        (BITS[kind] for layer in layers if is_heavy(layer) and (kind := _first(layer.inputs)) in BITS), default=None
    )


def share(
    layers: Sequence[EngineLayer], times: Sequence[float] | None, wanted: Callable[[EngineLayer], bool]
) -> LayerShare:
    """Those of `layers` that are `wanted`; `times` are as long as `layers`."""
    chosen = [number for number, layer in enumerate(layers) if wanted(layer)]
    if times is None:
        return LayerShare(len(chosen), None, tuple(layers[number].name for number in chosen[:3]))
    dearest = sorted(chosen, key=lambda number: -times[number])[:3]
    return LayerShare(
        len(chosen), sum(times[number] for number in chosen), tuple(layers[number].name for number in dearest)
    )


def _types(tensors: Iterable[Tensor]) -> set[str]:
    return {kind for tensor in tensors if (kind := type_of(tensor))}


def _first(tensors: Sequence[Tensor]) -> str:
    return type_of(tensors[0]) if tensors else ""


# What is counted among the layers, by the part of the signal's name.
KINDS: Mapping[str, Callable[[EngineLayer], bool]] = {
    "reformat": is_reformat,
    "converting": is_converting,
    "quantising": is_unfused_quantisation,
    "float_out": gives_float,
    "pointwise": is_pointwise,
    "fp32": is_wide,
    "no_tensor_cores": is_without_tensor_cores,
}
# Of a profile of this engine nearly all layers are found by name; of another one hardly any.
_SAME_ENGINE = 0.9


@dataclass(slots=True)
class EngineFiles:
    """What was read, each with the name of its artifact."""

    layers: tuple[LayerInfo, str] | None = None
    profile: tuple[LayerProfile, str] | None = None
    runs: tuple[RunTimes, str] | None = None
    facts: list[tuple[EngineMetadata, str]] = field(default_factory=list)
    logs: list[tuple[BuildLog, str]] = field(default_factory=list)

    def add(self, found: Document | BuildLog, artifact: str) -> None:
        if isinstance(found, LayerInfo):
            if self.layers is None or _detail(found) > _detail(self.layers[0]):
                self.layers = (found, artifact)
        elif isinstance(found, LayerProfile):
            self.profile = (found, artifact)
        elif isinstance(found, RunTimes):
            self.runs = (found, artifact)
        elif isinstance(found, EngineMetadata):
            self.facts.append((found, artifact))
        else:
            self.logs.append((found, artifact))
            for printed in (found.layers, found.profile):
                if printed is not None and (isinstance(printed, LayerInfo) or self.profile is None):
                    self.add(printed, artifact)


def _detail(found: LayerInfo) -> int:
    """How much the layer information states: names, types, or the tactics' names too."""
    return 0 if found.names_only else 1 + any(layer.tactic for layer in found.listed)


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A text or a time with its artifact."""

    value: str | float
    artifact: str
    place: str


def matched_times(files: EngineFiles) -> tuple[Sequence[float] | None, str]:
    """The time of each layer, or None and why not."""
    if files.layers is None or files.layers[0].names_only:
        return None, "no detailed layer information"
    if files.profile is None:
        return None, "no profile of the layers' times"
    waiting: dict[str, list[float]] = defaultdict(list)
    for name, time in reversed(files.profile[0].times):
        waiting[name].append(time)
    listed = files.layers[0].listed
    times = [waiting[layer.name].pop() if waiting.get(layer.name) else -1.0 for layer in listed]
    whole = sum(time for _, time in files.profile[0].times)
    if whole <= 0 or sum(time for time in times if time > 0) < _SAME_ENGINE * whole:
        return None, "the profile is of another engine than the layer information"
    return [max(0.0, time) for time in times], ""


def shares(files: EngineFiles, times: Sequence[float] | None) -> Mapping[str, LayerShare]:
    """Of each of KINDS the layers; nothing without detailed layer information."""
    if files.layers is None or files.layers[0].names_only:
        return {}
    return {name: share(files.layers[0].listed, times, wanted) for name, wanted in KINDS.items()}


def narrow_was_meant(files: EngineFiles, bits: int | None) -> bool | None:
    """May the engine compute in less than FP32? By what the build was allowed, else by what it does; None: unknown."""
    allowed = precision(files)
    if allowed is not None and isinstance(allowed.value, str):
        return any(kind in allowed.value for kind in ("16", "8", "4"))
    return None if bits is None else bits < 32 or None


def precision(files: EngineFiles) -> SourcedValue | None:
    """What the build was allowed: `FP32+FP16+INT8`."""
    for facts, artifact in files.facts:
        if facts.precision:
            return SourcedValue(facts.precision, artifact, "build options")
    for log, artifact in files.logs:
        if log.precision:
            return SourcedValue(log.precision, artifact, "build options")
    return None


def device(files: EngineFiles) -> SourcedValue | None:
    for facts, artifact in files.facts:
        if facts.device:
            return SourcedValue(facts.device, artifact, "device")
    for log, artifact in files.logs:
        if log.device:
            return SourcedValue(log.device, artifact, "Selected Device")
    return None


def timing(files: EngineFiles) -> Mapping[str, SourcedValue]:
    """Medians of `compute`, `enqueue` and `copies`: of the runs one by one, else as a summary states them."""
    found: dict[str, SourcedValue] = {}
    if files.runs is not None:
        runs, artifact = files.runs
        for name, values in (("compute", runs.compute), ("enqueue", runs.enqueue), ("copies", runs.copies)):
            if values:
                found[name] = SourcedValue(median(values), artifact, f"median of {len(values)} runs")
    for facts, artifact in files.facts:
        for name, value in (("compute", facts.compute), ("enqueue", facts.enqueue), ("copies", facts.copies)):
            if value is not None:
                found.setdefault(name, SourcedValue(value, artifact, "performance summary"))
    for log, artifact in files.logs:
        for name, value in _medians(log.summary):
            if value is not None:
                found.setdefault(name, SourcedValue(value, artifact, "performance summary"))
    return found


def _medians(summary: PerformanceSummary) -> Iterator[tuple[str, float | None]]:
    yield "compute", summary.get(COMPUTE, MEDIAN)
    yield "enqueue", summary.get(ENQUEUE, MEDIAN)
    ways = [summary.get(title, MEDIAN) for title in (H2D, D2H)]
    yield "copies", None if None in ways else sum(way for way in ways if way is not None)


def first_input(files: EngineFiles) -> str:
    """The shape of the first binding that some layer reads: `32x3x224x224`."""
    if files.layers is None:
        return ""
    found, _ = files.layers
    given = (tensor for layer in found.listed for tensor in layer.inputs if tensor.name in found.bindings)
    return next(("x".join(map(str, tensor.size)) for tensor in given if tensor.size), "")
