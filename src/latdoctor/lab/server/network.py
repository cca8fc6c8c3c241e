"""The network: a small pre-norm transformer encoder over tokens or audio frames, and a classifier.

Shape of the measured reference: 4 layers, width 256, 4 heads, inner width 1024, 8192 tokens, 512 positions (5.5 million
parameters). Weights are drawn from the version's own seed, so a version is the same network on every machine.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch._dynamo.callback import callback_handler
from torch.nn import functional

from latdoctor.errors import UsageError
from latdoctor.load.text_tokens import VOCABULARY

POSITIONS = 512
FRAME_WIDTH = 80  # features of one audio frame
HEADS = 4

_DEEPER = re.compile(r"\+([0-9]{1,2})$")

Attention = Literal["sdpa", "naive"]


class EncoderLayer(nn.Module):
    """Attention, then the inner network, each on the normed state and added to it."""

    def __init__(self, width: int, attention: Attention) -> None:
        super().__init__()
        self.attention = attention
        self.heads = HEADS
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_inner = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 4 * width)
        self.outer = nn.Linear(4 * width, width)

    def forward(self, states: Tensor, mask: Tensor | None) -> Tensor:
        batch, length, width = states.shape
        qkv = self.qkv(self.norm_attention(states)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        if self.attention == "sdpa":
            mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        else:
            mixed = naive_attention(query, key, value, mask)
        states = states + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        inner = functional.gelu(self.inner(self.norm_inner(states)))
        return states + torch.as_tensor(self.outer(inner))


def naive_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Attention as in the original paper: the whole matrix of weights is written to memory and read again."""
    weights = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if mask is not None:
        weights = weights.masked_fill(~mask, -math.inf)
    return weights.softmax(-1) @ value


class Encoder(nn.Module):
    """From states to logits; IntentModel turns tokens and frames into states."""

    def __init__(
        self, *, layers: int, width: int, intents: int, positions: int = POSITIONS, attention: Attention = "sdpa"
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.frames = nn.Linear(FRAME_WIDTH, width)
        self.positions = nn.Embedding(positions, width)
        self.layers = nn.ModuleList(EncoderLayer(width, attention) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, intents)

    def forward(self, states: Tensor, lengths: Tensor, mask: Tensor | None) -> Tensor:
        """`states` (batch, length, width); `mask` (batch, 1, 1, length): true where there is input; None: all."""
        for layer in self.layers:
            states = layer(states, mask)
        states = self.norm(states)
        if mask is not None:
            states = states * mask[:, 0, 0, :, None]
        # The mean alone is nearly the same for all long inputs while nothing was trained; the first state is not.
        mean = states.sum(1) / lengths[:, None].to(states.dtype)
        return torch.as_tensor(self.head(states[:, 0] + mean))


def layers_of(version: str, layers: int) -> int:
    """How deep a version is: a new one may be deeper than the server was set up for, `v2+4` by four layers."""
    deeper = _DEEPER.search(version)
    return layers + int(deeper[1]) if deeper else layers


@torch.no_grad()
def draw_weights(encoder: Encoder, version: str) -> str:
    """Draws the weights of `version`, the same on every machine, and returns their digest.

    They are uniform: unlike normal ones, they are the same to the last bit on every processor. Matrices have variance
    1/inputs, so that states keep their size; what a layer adds is scaled by 1/sqrt(2·layers), as in GPT-2 (Radford et
    al. 2019, section 2.3); tokens have deviation 1, positions 0.1.
    """
    source = np.random.Generator(np.random.PCG64(_seed(version)))
    digest = hashlib.sha256()
    deviations = {"tokens.weight": 1.0, "positions.weight": 0.1}
    for name, weights in encoder.named_parameters():
        if "norm" in name:
            continue  # ones and zeros as made
        if name.endswith("bias"):
            weights.zero_()
            continue
        drawn = source.random(tuple(weights.shape), dtype=np.float32)
        digest.update(drawn.tobytes())
        deviation = deviations.get(name, weights.shape[-1] ** -0.5)
        if name.endswith((".out.weight", ".outer.weight")):
            deviation /= math.sqrt(2 * len(encoder.layers))
        drawn = (drawn - 0.5) * np.float32(math.sqrt(12) * deviation)
        if name.endswith(".outer.weight"):  # else GELU's mean adds the same vector to every state, and all become alike
            drawn -= drawn.mean(-1, keepdims=True)
        weights.copy_(torch.from_numpy(drawn))
    return digest.hexdigest()[:16]


def _seed(version: str) -> int:
    return int.from_bytes(hashlib.sha256(version.encode()).digest()[:8], "big")


Precision = Literal["fp32", "bf16", "int8"]


def has_fast_bf16(device: str) -> bool:
    """Whether bf16 is computed by the hardware: AMX tiles on a CPU, tensor cores on a GPU."""
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.cpu._is_amx_tile_supported())


def resolve_precision(precision: Literal["auto", "fp32", "bf16", "int8"], device: str) -> Precision:
    """What `auto` means here. Raises UsageError for a precision that the device cannot compute."""
    if precision == "auto":
        return "bf16" if has_fast_bf16(device) else "fp32"
    if precision == "int8" and device == "cuda":
        raise UsageError("int8 is computed on the CPU only", next_step="use bf16 on CUDA")
    return precision


def convert_precision(encoder: Encoder, precision: Precision) -> nn.Module:
    """`encoder` in `precision`; int8 quantises the inner networks only (activations as they come).

    Weights that have the type already are not copied. Attention stays in fp32: quantising it too was measured to drift
    3.4 times as far for a third more speed.
    """
    if precision == "bf16":
        return encoder.to(torch.bfloat16)
    return _int8(encoder.float()) if precision == "int8" else encoder.float()


def _int8(encoder: Encoder) -> nn.Module:
    # The eager path of its successor, torchao, was measured slower than fp32 on CPUs, so this one it is while it lasts.
    from torch.ao.quantization import default_dynamic_qconfig, quantize_dynamic

    names = [f"layers.{at}.{name}" for at in range(len(encoder.layers)) for name in ("inner", "outer")]
    inner = dict.fromkeys(names, default_dynamic_qconfig)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both name their deprecated parts at every use
        quantised: nn.Module = quantize_dynamic(encoder, qconfig_spec=inner, dtype=torch.qint8)  # type: ignore[no-untyped-call]  # torch.ao has no types
    return quantised


BATCHES = (1, 4, 16, 32)
LENGTHS = (64, 128, 256, 512)

Backend = Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]]

# How many shapes torch may know of one network; by default it gives up after 8, or 256 of all networks together, and
# runs uncompiled without a message.
_SHAPES = 8192


def bucket(batch: int, length: int, longest: int) -> tuple[int, int]:
    """The shape to pad to: the next bucket, beyond the last whole multiples of it; `longest` positions at most."""
    return _up(batch, BATCHES), max(length, min(_up(length, LENGTHS), longest))


def _up(value: int, steps: tuple[int, ...]) -> int:
    return next((step for step in steps if step >= value), -(-value // steps[-1]) * steps[-1])


def inductor(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """torch's own compiler to machine code; on a CPU it needs a C++ compiler."""
    from torch._inductor.compile_fx import compile_fx

    return cast("Callable[..., Any]", compile_fx(graph, inputs))


def eager_graph(graph: torch.fx.GraphModule, _: list[Any]) -> Callable[..., Any]:
    """The graph as it was captured, run operator by operator."""
    return graph.forward


BACKENDS: Mapping[Literal["inductor", "eager-graph"], Backend] = {"inductor": inductor, "eager-graph": eager_graph}


class Compilations:
    """Counts compilations and their seconds, whatever the network they were for."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.total = 0
        self.seconds = 0.0

    def compiled(self, network: nn.Module, backend: Backend) -> Callable[..., Tensor]:
        """`network`, compiled at the first batch of each shape."""

        def counting(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
            with self._lock:
                self.total += 1
            return backend(graph, inputs)

        made: Callable[..., Tensor] = torch.compile(network, dynamic=False, backend=counting)

        def run(*inputs: Any) -> Tensor:
            limits = torch._dynamo.config  # each thread has its own, so it is set where the work is done
            limits.recompile_limit = limits.accumulated_recompile_limit = _SHAPES
            with self._timed():
                return made(*inputs)

        return run

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Adds the compile time of the calling thread in the context: capture, guards and backend."""
        began: list[float] = []

        def begin(_: object) -> None:
            began.append(time.perf_counter())

        def end(_: object) -> None:
            with self._lock:
                self.seconds += time.perf_counter() - began.pop()

        callback_handler.register_start_callback(begin)
        callback_handler.register_end_callback(end)
        try:
            yield
        finally:
            callback_handler.remove_start_callback(begin)
            callback_handler.remove_end_callback(end)
