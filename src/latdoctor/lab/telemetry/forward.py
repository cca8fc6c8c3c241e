"""Forward passes of a transformer encoder as operators and kernels, for the simulated timeline."""

from __future__ import annotations

import random
from dataclasses import dataclass

from latdoctor.lab.telemetry.timeline import Pace, Timeline

# Kernel names follow the libraries' habits: tensor-core GEMMs name their types, plain FP32 ones are sgemm.
_GEMM = {
    "half": "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1_tensor16x8x16_kernel",
    "single": "ampere_sgemm_128x64_tn",
}
_ATTENTION = {
    "half": "flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::half_t>>",
    "single": "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)",
}
_ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::{}>"
_FUSED = "triton_poi_fused_{}_{}"


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass. `size` scales the kernels' times: 1 is a batch that keeps an A100 busy."""

    layers: int = 12
    size: float = 1.0
    precision: str = "half"  # half | single
    fused: bool = True  # pointwise operators in one kernel, or each in its own
    reads_back: int = 0  # values read from the device in each layer
    inputs: int = 2_097_152  # bytes copied to the device for each pass
    states: int = 0  # bytes that go to the device and back in each layer
    pinned: bool = True


def record(rng: random.Random, work: Pass, pace: Pace, steps: int, start: float) -> Timeline:
    """`steps` passes under the profiler; the first number tells that others went before them."""
    line = Timeline(rng, pace, start)
    number = rng.randint(5, 40)
    for step in range(steps):
        begin = line.host
        line.pause(35)
        line.copy("HtoD", work.inputs, pinned=work.pinned)
        line.operator(
            "aten::embedding", "void at::native::(anonymous namespace)::indexSelectLargeIndex", 14 * work.size
        )
        for layer in range(work.layers):
            _layer(line, work, layer)
        line.operator("aten::linear", _GEMM[work.precision], _gemm(work, 60))
        line.copy("DtoH", 98_304, pinned=work.pinned)
        line.synchronise("cudaStreamSynchronize")
        line.step(number + step, begin)
    return line


def _gemm(work: Pass, micros: float) -> float:
    # Without tensor cores a matrix product takes several times as long.
    return micros * work.size * (6.2 if work.precision == "single" else 1.0)


def _layer(line: Timeline, work: Pass, layer: int) -> None:
    gemm, wide = _GEMM[work.precision], 2.0 if work.precision == "single" else 1.0
    if work.states:
        line.copy("HtoD", work.states, pinned=work.pinned)
    line.view("aten::view")
    for name in ("query", "key", "value"):
        line.operator("aten::linear", gemm, _gemm(work, 62))
        _pointwise(line, work, (f"add_{name}",), 11 * wide)
    line.view("aten::transpose")
    line.operator("aten::scaled_dot_product_attention", _ATTENTION[work.precision], 96 * work.size * wide)
    line.operator("aten::linear", gemm, _gemm(work, 62))
    _pointwise(line, work, ("add", "native_dropout", "add", "native_layer_norm"), 12 * wide)
    for _ in range(work.reads_back):
        line.read_back()
        line.pause(14)  # the branch that the value decides
    line.operator("aten::linear", gemm, _gemm(work, 190), call="cudaLaunchKernelExC")
    _pointwise(line, work, ("add", "mul", "tanh", "mul", "add", "gelu"), 34 * wide)
    line.operator("aten::linear", gemm, _gemm(work, 188))
    _pointwise(line, work, ("add", "native_layer_norm"), 12 * wide)
    if work.states:
        line.copy("DtoH", work.states, pinned=work.pinned)


def _pointwise(line: Timeline, work: Pass, names: tuple[str, ...], micros: float) -> None:
    """One compiled kernel for all of `names`, or one kernel each that moves all the data again."""
    if work.fused:
        name = _FUSED.format("_".join(dict.fromkeys(names)), len(names))
        line.operator("triton_call", name, micros * work.size, call="cuLaunchKernel")
        return
    for name in names:
        line.operator(f"aten::{name}", _ELEMENTWISE.format(f"{name}_kernel_cuda"), micros * work.size)
