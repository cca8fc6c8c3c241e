"""torch.compile with a fixed set of shapes, and how often it really compiled.

Each shape costs seconds to minutes of compilation, so batches are padded up to a few of them. Without warm-up the first
request of each shape pays.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Any, cast

import torch
from torch import Tensor, nn

BATCHES = (1, 4, 16, 32)
LENGTHS = (64, 128, 256, 512)

Backend = Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]]


def bucket(batch: int, length: int, longest: int) -> tuple[int, int]:
    """The shape to pad to: the next bucket, beyond the last whole multiples of it; `longest` positions at most."""
    return _up(batch, BATCHES), max(length, min(_up(length, LENGTHS), longest))


def _up(value: int, steps: tuple[int, ...]) -> int:
    return next((step for step in steps if step >= value), -(-value // steps[-1]) * steps[-1])


def inductor(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """torch's own compiler; on a CPU it needs a C++ compiler."""
    from torch._inductor.compile_fx import compile_fx

    return cast("Callable[..., Any]", compile_fx(graph, inputs))


class Compilations:
    """Counts compilations and their seconds, whatever the network they were for."""

    def __init__(self, backend: Backend = inductor) -> None:
        self._backend = backend
        self._lock = Lock()
        self.total = 0
        self.seconds = 0.0

    def compiled(self, network: nn.Module) -> Callable[..., Tensor]:
        """`network`, compiled for each new shape when it first comes."""
        # By default torch gives up after 8 shapes and runs uncompiled without a word.
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 256)
        made: Callable[..., Tensor] = torch.compile(network, dynamic=False, backend=self._counting)
        return made

    def _counting(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        started = time.perf_counter()
        try:
            return self._backend(graph, inputs)
        finally:
            with self._lock:
                self.total += 1
                self.seconds += time.perf_counter() - started
