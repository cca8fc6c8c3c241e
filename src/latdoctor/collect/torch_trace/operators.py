"""Whose the GPU's time is: kernels and operators with the same id, matched range by range of ids, and their layers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from latdoctor.collect.torch_trace.columns import OPERATOR
from latdoctor.collect.torch_trace.layers import Layers
from latdoctor.collect.torch_trace.spool import NO_KEY, Spool, swept
from latdoctor.collect.torch_trace.summary import Layer, Operator, Owners

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from latdoctor.collect.torch_trace.columns import Columns
    from latdoctor.collect.torch_trace.intervals import Floats

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
TOP = 10
_MOST_PAIRS = 1 << 16  # of a layer and an operator
_MOST_COUNTED = 1 << 17


def kind_of_kernel(name: str) -> str:
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), OTHER)


def time_by_kind(times: Mapping[str, float]) -> Mapping[str, float]:
    """Seconds of kernels by what they do, from seconds by name."""
    found: defaultdict[str, float] = defaultdict(float)
    for name, time in times.items():
        found[kind_of_kernel(name)] += time
    return dict(found)


class _Pairs:
    """Seconds of kernels by what `codes` number: a layer and an operator in one."""

    def __init__(self) -> None:
        self.times: dict[int, float] = {}

    def take(self, codes: NDArray[np.int64], seconds: Floats) -> None:
        if not len(codes):
            return
        if codes.max() < _MOST_COUNTED:  # as in most traces; to count is faster than to sort
            times = np.bincount(codes, seconds)
            found = np.flatnonzero(times)
            times = times[found]
        else:
            found, which = np.unique(codes, return_inverse=True)
            times = np.bincount(which, seconds)
        for code, time in zip(found.tolist(), times.tolist(), strict=True):
            if code in self.times or len(self.times) < _MOST_PAIRS:
                self.times[code] = self.times.get(code, 0.0) + time


def owners(columns: Columns, device: int) -> Owners:
    """The operators and layers of the trace, those that kept `device` longest first. Empty where nothing is linked."""
    names = columns.operator_names.listed
    count = max(1, len(names))
    pairs = _Pairs()
    with Spool() as owned:
        calls, host = _owned(columns, owned, count)
        for _, _, [kernels, own] in swept([columns.links, owned]):
            ours = kernels[kernels["place"] == device]
            if not len(own) or not len(ours):
                continue
            found = np.minimum(np.searchsorted(own["start"], ours["start"]), len(own) - 1)
            linked = own["start"][found] == ours["start"]
            by = own[found[linked]]
            pairs.take(by["place"].astype(np.int64) * count + by["label"], ours["dur"][linked] * 1e-6)
    gpu = np.zeros(count)
    layers: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for code, time in pairs.times.items():
        layer, operator = divmod(code, count)
        gpu[operator] += time
        layers[names[layer]][names[operator]] = time
    longest = np.lexsort((host, gpu))[::-1].tolist()
    return Owners(
        tuple(Operator(names[at], int(calls[at]), float(host[at]), float(gpu[at])) for at in longest if calls[at])[
            :TOP
        ],
        tuple(sorted((_layer(name, times) for name, times in layers.items()), key=lambda one: -one.gpu))[:TOP],
    )


def _layer(name: str, times: Mapping[str, float]) -> Layer:
    longest = sorted(times.items(), key=lambda pair: -pair[1])[:TOP]
    return Layer(name, sum(times.values()), tuple(longest))


def _owned(columns: Columns, owned: Spool, count: int) -> tuple[NDArray[np.int64], Floats]:
    """Puts the operators that have an id into `owned`, with their layers as places; tells calls and seconds of all."""
    calls, host, layers = np.zeros(count, np.int64), np.zeros(count), Layers()
    for _, high, [rows] in swept([columns.operators]):
        found = layers.take(rows, high)
        ours = rows["place"] & 1 == OPERATOR
        own, their_layers = (rows, found) if ours.all() else (rows[ours], found[ours])
        calls += np.bincount(own["label"], minlength=count)
        host += np.bincount(own["label"], own["dur"] * 1e-6, count)
        told = own["key"] != NO_KEY
        owned.add(own["key"][told], own["dur"][told], own["label"][told], their_layers[told])
    return calls, host
