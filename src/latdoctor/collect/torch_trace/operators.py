"""Which operators the GPU's time belongs to: kernels and operators with the same id, matched range by range of ids."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from latdoctor.collect.torch_trace.spool import swept
from latdoctor.collect.torch_trace.summary import Operator

if TYPE_CHECKING:
    from latdoctor.collect.torch_trace.columns import Columns

# What a kernel does, by the first that its name holds: cuBLAS, cuDNN, CUTLASS, NCCL, PyTorch, Triton.
_KINDS = (
    ("communication", re.compile(r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter", re.IGNORECASE)),
    ("attention", re.compile(r"flash|fmha|attention|attn|softmax", re.IGNORECASE)),
    ("convolution", re.compile(r"conv|winograd|implicit_gemm|wgrad|dgrad", re.IGNORECASE)),
    ("matrix product", re.compile(r"gemm|gemv|cutlass|cublas|splitk|_mm_|matmul|tensile|Cijk", re.IGNORECASE)),
    ("normalisation", re.compile(r"norm", re.IGNORECASE)),
    ("reduction", re.compile(r"reduce|_red_|cumsum|scan|sort|topk", re.IGNORECASE)),
    (
        "elementwise",
        re.compile(r"elementwise|_poi_|vectorized|copy_|fill|cat|index|gather|scatter|dropout", re.IGNORECASE),
    ),
)
OTHER = "other"


def kind_of_kernel(name: str) -> str:
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), OTHER)


def time_by_kind(times: Mapping[str, float]) -> Mapping[str, float]:
    """Seconds of kernels by what they do, from seconds by name."""
    found: defaultdict[str, float] = defaultdict(float)
    for name, time in times.items():
        found[kind_of_kernel(name)] += time
    return dict(found)


def operators(columns: Columns, device: int) -> tuple[Operator, ...]:
    """The operators of the trace, those that kept `device` longest first. Empty where nothing is linked."""
    names = max(1, len(columns.operator_names.listed))
    calls, host, gpu = np.zeros(names, np.int64), np.zeros(names), np.zeros(names)
    for _, _, [rows] in swept([columns.links]):
        own = rows[rows["place"] == 0]
        calls += np.bincount(own["label"], minlength=names)
        host += np.bincount(own["label"], own["dur"], names)
        kernels = rows[(rows["place"] == 1 + device) & (rows["start"] >= 0)]
        if not len(own) or not len(kernels):
            continue
        found = np.minimum(np.searchsorted(own["start"], kernels["start"]), len(own) - 1)
        linked = own["start"][found] == kernels["start"]
        gpu += np.bincount(own["label"][found[linked]], kernels["dur"][linked], names)
    order = np.lexsort((host, gpu))[::-1]
    listed = columns.operator_names.listed
    return tuple(
        Operator(listed[index], int(calls[index]), float(host[index]) * 1e-6, float(gpu[index]) * 1e-6)
        for index in order.tolist()
        if calls[index]
    )
