"""What kind of work a layer is, and what is wrong with it. Pure.

The judgements are those of trt-engine-explorer's lint and of the issues of TensorRT; each says where it errs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from latdoctor.collect.tensorrt.documents import Layer, Tensor

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
class Share:
    """Some of an engine's layers: how many, their time (None where no profile tells it), and names of the dearest."""

    count: int
    time: float | None
    named: tuple[str, ...]


def type_of(tensor: Tensor) -> str:
    """`FP32`, `INT8` …; empty where the format does not tell, or for whole numbers."""
    found = _TYPE.search(tensor.form)
    if found is None:
        return ""
    name = found[1].upper()
    return _CALLED.get(name, name)


def is_reformat(layer: Layer) -> bool:
    """By its type: what quantises is a Reformat as well, and is named QuantizeLinear_…"""
    return layer.kind == "Reformat"


def is_unfused_quantisation(layer: Layer) -> bool:
    """A quantisation or its reverse that is a layer by itself: as a Reformat, or a Scale with one INT8 side."""
    if is_reformat(layer):
        return layer.origin.upper() == "QDQ"
    return layer.kind == "Scale" and (_types(layer.inputs) == {INT8}) != (_types(layer.outputs) == {INT8})


def is_converting(layer: Layer) -> bool:
    """A Reformat between two types, not only between two layouts of one."""
    sides = (_types(layer.inputs), _types(layer.outputs))
    return is_reformat(layer) and all(sides) and sides[0] != sides[1]


def is_heavy(layer: Layer) -> bool:
    return bool(_HEAVY.search(layer.kind) or _HEAVY.search(layer.parameter)) and not is_reformat(layer)


def is_pointwise(layer: Layer) -> bool:
    return bool(_POINTWISE.match(layer.kind))


def is_wide(layer: Layer) -> bool:
    """Heavy, with FP32 in and out."""
    return is_heavy(layer) and _first(layer.inputs) == FP32 and _first(layer.outputs) == FP32


def gives_float(layer: Layer) -> bool:
    """Heavy, with INT8 in and floating point out: the quantisation that should follow was not fused into it."""
    return is_heavy(layer) and _first(layer.inputs) == INT8 and _first(layer.outputs) in (FP32, FP16, BF16)


def is_without_tensor_cores(layer: Layer) -> bool:
    """Heavy, in a narrow type, with a tactic that names no tensor-core instruction; few channels excuse it."""
    kind = _first(layer.inputs)
    if not is_heavy(layer) or not layer.tactic or kind in (FP32, "") or _TENSOR_CORES.search(layer.tactic):
        return False
    return not any(len(tensor.size) >= 2 and 0 < tensor.size[1] < _FEW_CHANNELS for tensor in layer.inputs[:1])


def narrowest(layers: Iterable[Layer]) -> int | None:
    """The bits of the narrowest type that a heavy layer computes in."""
    return min(
        (BITS[kind] for layer in layers if is_heavy(layer) and (kind := _first(layer.inputs)) in BITS), default=None
    )


def share(layers: Sequence[Layer], times: Sequence[float] | None, wanted: Callable[[Layer], bool]) -> Share:
    """Those of `layers` that are `wanted`; `times` are as long as `layers`."""
    chosen = [number for number, layer in enumerate(layers) if wanted(layer)]
    if times is None:
        return Share(len(chosen), None, tuple(layers[number].name for number in chosen[:3]))
    dearest = sorted(chosen, key=lambda number: -times[number])[:3]
    return Share(len(chosen), sum(times[number] for number in chosen), tuple(layers[number].name for number in dearest))


def _types(tensors: Iterable[Tensor]) -> set[str]:
    return {kind for tensor in tensors if (kind := type_of(tensor))}


def _first(tensors: Sequence[Tensor]) -> str:
    return type_of(tensors[0]) if tensors else ""
