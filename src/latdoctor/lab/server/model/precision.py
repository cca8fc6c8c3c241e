"""The precisions a model can be computed in, and which this machine does fast."""

from __future__ import annotations

import copy
import warnings
from typing import Literal

import torch
from torch import nn

from latdoctor.errors import UsageError
from latdoctor.lab.server.model.encoder import Encoder

Precision = Literal["fp32", "bf16", "int8"]


def has_fast_bf16(device: str) -> bool:
    """Whether bf16 is computed by the hardware: AMX tiles on a CPU, tensor cores on a GPU."""
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.cpu._is_amx_tile_supported())


def resolved(precision: Literal["auto", "fp32", "bf16", "int8"], device: str) -> Precision:
    """What `auto` means here. Raises UsageError for a precision that the device cannot compute."""
    if precision == "auto":
        return "bf16" if has_fast_bf16(device) else "fp32"
    if precision == "int8" and device == "cuda":
        raise UsageError("int8 is computed on the CPU only", next_step="use bf16 on CUDA")
    return precision


def converted(encoder: Encoder, precision: Precision) -> nn.Module:
    """A copy of `encoder` in `precision`; int8 quantises the inner networks only (activations as they come).

    Attention stays in fp32: quantising it too was measured to drift 3.4 times as far for a third more speed.
    """
    clone = copy.deepcopy(encoder)
    if precision == "bf16":
        return clone.to(torch.bfloat16)
    if precision == "int8":
        return _int8(clone)
    return clone


def _int8(encoder: Encoder) -> nn.Module:
    # The eager path of its successor, torchao, was measured slower than fp32 on CPUs, so this one it is while it lasts.
    from torch.ao.quantization import default_dynamic_qconfig, quantize_dynamic

    names = [f"layers.{at}.{name}" for at in range(len(encoder.layers)) for name in ("inner", "outer")]
    inner = dict.fromkeys(names, default_dynamic_qconfig)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both name their deprecated parts at every use
        quantised: nn.Module = quantize_dynamic(encoder, qconfig_spec=inner, dtype=torch.qint8)  # type: ignore[no-untyped-call]  # torch.ao has no types
    return quantised
